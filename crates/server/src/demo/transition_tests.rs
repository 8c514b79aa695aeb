//! Tests of the changes that the demo reports.

use super::super::snapshot::{EndpointState, idle};
use super::*;
use posthaste_core::time::Timestamp;

const WALL: Timestamp = Timestamp(100_000);

fn tripped(until: u64) -> Breaker {
    Breaker::Tripped {
        until: Timestamp(until),
        reason: TripReason::ConsecutiveFailures,
    }
}

const PROBING: Breaker = Breaker::Probing {
    reason: TripReason::ConsecutiveFailures,
};

fn quiet() -> EndpointState {
    idle(ReceiverKind::Flaky)
}

fn with(breaker: Breaker) -> EndpointState {
    EndpointState {
        breaker,
        pending: 38,
        in_flight: 1,
        consecutive_failures: 20,
        ..quiet()
    }
}

fn dead(count: u64) -> EndpointState {
    let dead_letter = |n| DeadLetter {
        delivery: format!("dlv_{n}"),
        event: format!("evt_{n}"),
        reason: "permanent".to_owned(),
        status_code: Some(422),
    };
    EndpointState {
        dead: Count {
            number: count,
            or_more: false,
        },
        dead_letters: (1..=count).rev().map(dead_letter).collect(),
        ..quiet()
    }
}

/// Returns the changes at the last of these snapshots, which are one second apart.
fn last_transitions(states: Vec<EndpointState>) -> Vec<Transition> {
    let mut states = states.into_iter();
    let first = states.next().expect("at least one state");
    let mut before = DemoSnapshot::first(Span::ZERO, WALL, 0, vec![first]);
    let mut found = Vec::new();
    for state in states {
        let at = before.at.plus(Span::from_secs(1));
        let now = before.next(at, WALL, 0, vec![state]);
        found = transitions(&before, &now);
        before = now;
    }
    found
}

fn kinds(states: Vec<EndpointState>) -> Vec<&'static str> {
    last_transitions(states)
        .iter()
        .map(Transition::kind)
        .collect()
}

fn messages(states: Vec<EndpointState>) -> String {
    let texts: Vec<String> = last_transitions(states)
        .iter()
        .map(Transition::message)
        .collect();
    texts.join("\n")
}

#[test]
fn no_change_is_no_transition() {
    for state in [quiet(), with(tripped(105_000)), with(PROBING), dead(2)] {
        assert_eq!(kinds(vec![state.clone(), state]), [""; 0]);
    }
}

#[test]
fn a_trip_names_the_number_of_held_deliveries() {
    let states = vec![quiet(), with(tripped(105_000))];
    assert_eq!(
        messages(states),
        "breaker tripped after 20 consecutive failures; 37 deliveries are held, none are lost"
    );
    // The probe may be in flight already in the first snapshot after the trip.
    assert_eq!(kinds(vec![quiet(), with(PROBING)]), ["trip"]);
}

#[test]
fn a_failed_probe_is_reported_even_if_no_snapshot_shows_it() {
    let states = vec![with(tripped(100_100)), with(tripped(104_000))];
    assert_eq!(
        messages(states),
        "probe failed, next one in 4 s; 37 deliveries are held"
    );
    let states = vec![with(PROBING), with(tripped(104_000))];
    assert_eq!(kinds(states), ["failed_probe"]);
    // A small difference between two clock readings is not a failed probe.
    let states = vec![with(tripped(104_000)), with(tripped(104_002))];
    assert_eq!(kinds(states), [""; 0]);
    // A probe in flight is not reported yet.
    assert_eq!(kinds(vec![with(tripped(100_100)), with(PROBING)]), [""; 0]);
}

#[test]
fn a_recovery_is_reported_at_its_start_and_end() {
    let back = |arrived, pending| {
        let mut state = with(Breaker::Passing);
        state.counts.arrived = arrived;
        EndpointState { pending, ..state }
    };
    let mut states = vec![with(PROBING), back(10, 130)];
    assert_eq!(
        messages(states.clone()),
        "probe succeeded; 130 held deliveries are sent gradually"
    );
    states.push(back(27, 60));
    assert_eq!(kinds(states.clone()), [""; 0]);
    states.push(back(57, 3));
    assert_eq!(
        messages(states.clone()),
        "backlog drained in 2 s: 10/s, 17/s, 30/s"
    );
    states.push(back(77, 3));
    assert_eq!(kinds(states), [""; 0]);
}

#[test]
fn a_long_drain_is_reported_once_in_between() {
    let back = |arrived| {
        let mut state = with(Breaker::Passing);
        state.counts.arrived = arrived;
        state
    };
    let mut states = vec![with(PROBING), back(10), back(22), back(37), back(57)];
    assert_eq!(
        messages(states.clone()),
        "recovering: 10/s, 12/s, 15/s, 20/s; 38 still waiting"
    );
    states.push(back(80));
    assert_eq!(kinds(states.clone()), [""; 0]);
    states.extend((1..=6).map(|n| back(80 + 50 * n)));
    states.push(EndpointState {
        pending: 0,
        ..back(430)
    });
    assert_eq!(
        messages(states),
        "backlog drained in 11 s: 10/s, 12/s, 15/s, 20/s, 23/s, 50/s, 50/s, 50/s…"
    );
}

#[test]
fn a_drain_that_an_outage_ends_is_not_reported_as_drained() {
    let states = vec![
        with(PROBING),
        with(Breaker::Passing),
        with(tripped(109_000)),
    ];
    assert_eq!(kinds(states), ["trip"]);
}

#[test]
fn dead_letters_are_reported_less_and_less_often() {
    let reported: Vec<u64> = (1..=45)
        .filter(|count| !last_transitions(vec![dead(count - 1), dead(*count)]).is_empty())
        .collect();
    assert_eq!(reported, [1, 2, 3, 20, 40]);
    // Several dead letters between two snapshots are one message, which names the newest.
    let several = last_transitions(vec![dead(0), dead(5)]);
    assert_eq!(several.len(), 1);
    assert_eq!(several[0].delivery(), Some("dlv_5"));
    assert_eq!(
        messages(vec![dead(0), dead(1)]),
        "evt_1 was rejected with 422: a dead letter, the first"
    );
}

#[test]
fn frequent_changes_are_reported_once() {
    let mut after = quiet();
    after.counts.first_retry_success = Some(RetrySuccess {
        delivery: "dlv_7".to_owned(),
        attempt: 2,
    });
    after.counts.first_retry_after = Some(Span::from_secs(1));
    assert_eq!(kinds(vec![quiet(), after.clone()]), ["retry", "throttle"]);
    let mut later = after.clone();
    later.counts.retries = 9;
    assert_eq!(kinds(vec![after, later]), [""; 0]);
}

#[test]
fn the_json_contains_the_details() {
    let transition = &last_transitions(vec![dead(0), dead(1)])[0];
    let json = transition.as_json(Span::from_millis(2_500));
    assert_eq!(json["moment"], "dead_letter");
    assert_eq!(json["endpoint"], "flaky");
    assert_eq!(json["at_ms"], 2_500);
    assert_eq!(json["delivery_id"], "dlv_1");
    assert_eq!(json["status_code"], 422);
}
