//! Tests of the changes that the demo reports.

use super::super::snapshot::{Look, nothing};
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

fn quiet() -> Look {
    nothing(Role::Flaky)
}

fn with(breaker: Breaker) -> Look {
    Look {
        breaker,
        pending: 38,
        in_flight: 1,
        failures_in_a_row: 20,
        ..quiet()
    }
}

fn dead(count: u64) -> Look {
    let letter = |n| DeadLetter {
        delivery: format!("dlv_{n}"),
        event: format!("evt_{n}"),
        reason: "permanent".to_owned(),
        status_code: Some(422),
    };
    Look {
        dead: Count {
            number: count,
            or_more: false,
        },
        dead_letters: (1..=count).rev().map(letter).collect(),
        ..quiet()
    }
}

/// Returns the changes at the last of these snapshots, which are one second apart.
fn told(looks: Vec<Look>) -> Vec<Moment> {
    let mut looks = looks.into_iter();
    let first = looks.next().expect("a look");
    let mut before = Snapshot::first(Span::ZERO, WALL, 0, vec![first]);
    let mut told = Vec::new();
    for look in looks {
        let at = before.at.plus(Span::from_secs(1));
        let now = before.next(at, WALL, 0, vec![look]);
        told = moments(&before, &now);
        before = now;
    }
    told
}

fn kinds(looks: Vec<Look>) -> Vec<&'static str> {
    told(looks).iter().map(Moment::kind).collect()
}

fn words(looks: Vec<Look>) -> String {
    let words: Vec<String> = told(looks).iter().map(Moment::words).collect();
    words.join("\n")
}

#[test]
fn nothing_new_is_nothing_to_tell() {
    for look in [quiet(), with(tripped(105_000)), with(PROBING), dead(2)] {
        assert_eq!(kinds(vec![look.clone(), look]), [""; 0]);
    }
}

#[test]
fn a_trip_says_what_is_held() {
    let looks = vec![quiet(), with(tripped(105_000))];
    assert_eq!(
        words(looks),
        "its breaker tripped after 20 failures in a row; 37 deliveries are held, none is lost"
    );
    // The probe may be in flight already in the first snapshot after the trip.
    assert_eq!(kinds(vec![quiet(), with(PROBING)]), ["trip"]);
}

#[test]
fn a_failed_probe_is_told_whether_it_was_seen_or_not() {
    let looks = vec![with(tripped(100_100)), with(tripped(104_000))];
    assert_eq!(
        words(looks),
        "a probe failed, the next one goes in 4 s; 37 deliveries are held"
    );
    let looks = vec![with(PROBING), with(tripped(104_000))];
    assert_eq!(kinds(looks), ["failed_probe"]);
    // A small difference between two clock readings is not a failed probe.
    let looks = vec![with(tripped(104_000)), with(tripped(104_002))];
    assert_eq!(kinds(looks), [""; 0]);
    // A probe in flight is not reported yet.
    assert_eq!(kinds(vec![with(tripped(100_100)), with(PROBING)]), [""; 0]);
}

#[test]
fn a_recovery_is_told_when_it_begins_and_when_it_is_over() {
    let back = |arrived, pending| {
        let mut look = with(Breaker::Passing);
        look.counted.arrived = arrived;
        Look { pending, ..look }
    };
    let mut looks = vec![with(PROBING), back(10, 130)];
    assert_eq!(
        words(looks.clone()),
        "a probe got through: it is back; the 130 that wait will come gently"
    );
    looks.push(back(27, 60));
    assert_eq!(kinds(looks.clone()), [""; 0]);
    looks.push(back(57, 3));
    assert_eq!(words(looks.clone()), "caught up in 2 s: 10/s, 17/s, 30/s");
    looks.push(back(77, 3));
    assert_eq!(kinds(looks), [""; 0]);
}

#[test]
fn a_long_drain_is_told_once_on_its_way() {
    let back = |arrived| {
        let mut look = with(Breaker::Passing);
        look.counted.arrived = arrived;
        look
    };
    let mut looks = vec![with(PROBING), back(10), back(22), back(37), back(57)];
    assert_eq!(
        words(looks.clone()),
        "draining gently: 10/s, 12/s, 15/s, 20/s; 38 still wait"
    );
    looks.push(back(80));
    assert_eq!(kinds(looks.clone()), [""; 0]);
    looks.extend((1..=6).map(|n| back(80 + 50 * n)));
    looks.push(Look {
        pending: 0,
        ..back(430)
    });
    assert_eq!(
        words(looks),
        "caught up in 11 s: 10/s, 12/s, 15/s, 20/s, 23/s, 50/s, 50/s, 50/s…"
    );
}

#[test]
fn a_drain_that_another_outage_ends_was_none() {
    let looks = vec![
        with(PROBING),
        with(Breaker::Passing),
        with(tripped(109_000)),
    ];
    assert_eq!(kinds(looks), ["trip"]);
}

#[test]
fn dead_letters_are_told_ever_more_rarely() {
    let calls: Vec<u64> = (1..=45)
        .filter(|count| !told(vec![dead(count - 1), dead(*count)]).is_empty())
        .collect();
    assert_eq!(calls, [1, 2, 3, 20, 40]);
    // Several dead letters between two snapshots are one message, which names the newest.
    let several = told(vec![dead(0), dead(5)]);
    assert_eq!(several.len(), 1);
    assert_eq!(several[0].delivery(), Some("dlv_5"));
    assert_eq!(
        words(vec![dead(0), dead(1)]),
        "evt_1 was refused with 422: a dead letter, the first"
    );
}

#[test]
fn what_happens_often_is_told_once() {
    let mut after = quiet();
    after.counted.rescued = Some(Rescue {
        delivery: "dlv_7".to_owned(),
        attempt: 2,
    });
    after.counted.throttled = Some(Span::from_secs(1));
    assert_eq!(kinds(vec![quiet(), after.clone()]), ["retry", "throttle"]);
    let mut later = after.clone();
    later.counted.retries = 9;
    assert_eq!(kinds(vec![after, later]), [""; 0]);
}

#[test]
fn tools_get_the_same_and_the_figures() {
    let moment = &told(vec![dead(0), dead(1)])[0];
    let json = moment.as_json(Span::from_millis(2_500));
    assert_eq!(json["moment"], "dead_letter");
    assert_eq!(json["endpoint"], "flaky");
    assert_eq!(json["at_ms"], 2_500);
    assert_eq!(json["delivery_id"], "dlv_1");
    assert_eq!(json["status_code"], 422);
}
