//! Tests of the counts and of the verdicts.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::*;

/// Counts of a row in which all went well.
fn counts() -> RowCounts {
    RowCounts {
        seconds: 10.0,
        offered: 200,
        poison: 0,
        requests: 200,
        refused: 0,
        delivered: 200,
        never_sent: 0,
        exhausted: 0,
        trips: 0,
        trip_reasons: Vec::new(),
        requests_before_trip: None,
        busiest_second_after_trip: None,
        status: "enabled".to_owned(),
        requests_each_second: Vec::new(),
        delivered_each_second: Vec::new(),
    }
}

fn misses(target: Target, counts: &RowCounts) -> Vec<String> {
    target.evaluate(counts, None).misses
}

#[test]
fn the_delivered_share_of_what_is_offered_must_reach_the_target() {
    let target = Target::OfOffered(0.9);
    let with = |delivered| RowCounts {
        delivered,
        ..counts()
    };
    assert_eq!(target.evaluate(&with(180), None).ratio, Some(0.9));
    assert!(target.evaluate(&with(180), None).is_met());
    assert_eq!(misses(target, &with(179)), ["0.895 is below 0.90"]);
}

#[test]
fn rates_are_compared_with_the_clean_row() {
    let clean = counts();
    let mut partial = counts();
    (partial.offered, partial.delivered, partial.seconds) = (9_999, 140, 10.0);
    let verdict = Target::OfClean(0.7).evaluate(&partial, Some(&clean));
    assert_eq!((verdict.ratio, verdict.is_met()), (Some(0.7), true));
    // The same count in twice the time is half the rate.
    partial.seconds = 20.0;
    let verdict = Target::OfClean(0.7).evaluate(&partial, Some(&clean));
    assert_eq!(verdict.misses, ["0.350 is below 0.70"]);
    let verdict = Target::OfClean(0.7).evaluate(&partial, None);
    assert!(!verdict.is_met(), "there is nothing to compare with");
}

#[test]
fn a_clean_row_delivers_and_refuses_nothing() {
    assert!(Target::Clean.evaluate(&counts(), None).is_met());
    let mut refused = counts();
    refused.refused = 1;
    assert_eq!(misses(Target::Clean, &refused), ["1 refused"]);
    let mut silent = counts();
    silent.delivered = 0;
    assert_eq!(misses(Target::Clean, &silent), ["nothing was delivered"]);
}

#[test]
fn a_limited_receiver_is_used_and_spared() {
    let target = Target::AtCapacity {
        min_per_second: 8.0,
        max_refused: 0.15,
    };
    let with = |requests, refused| RowCounts {
        requests,
        refused,
        delivered: requests - refused,
        ..counts()
    };
    assert!(misses(target, &with(100, 15)).is_empty());
    assert_eq!(misses(target, &with(100, 16)), ["16.0 % refused"]);
    assert_eq!(misses(target, &with(79, 0)), ["7.9/s is below 8/s"]);
    assert_eq!(misses(target, &with(200, 130)).len(), 2);
}

#[test]
fn a_wave_may_cost_what_it_refused_and_nothing_else() {
    let target = Target::HeldThroughWave { max_refused: 110 };
    let with = |refused, delivered, never_sent| RowCounts {
        refused,
        delivered,
        never_sent,
        ..counts()
    };
    assert!(misses(target, &with(110, 90, 0)).is_empty());
    assert_eq!(misses(target, &with(111, 200, 0)), ["111 refused"]);
    assert_eq!(
        misses(target, &with(50, 149, 0)),
        ["51 not delivered, but only 50 refused"]
    );
    assert_eq!(misses(target, &with(50, 150, 10)), ["10 not yet sent"]);
    let mut disabled = with(50, 150, 0);
    disabled.status = "disabled".to_owned();
    assert_eq!(misses(target, &disabled), ["the endpoint is disabled"]);
}

#[test]
fn refusals_trip_the_breaker_and_probes_are_single() {
    let target = Target::TripsOnRefusals { max_before: 110 };
    let tripped = RowCounts {
        delivered: 0,
        trips: 1,
        trip_reasons: vec!["refusals".to_owned()],
        requests_before_trip: Some(110),
        busiest_second_after_trip: Some(1),
        ..counts()
    };
    assert!(misses(target, &tripped).is_empty());
    assert_eq!(misses(target, &counts()), ["no trip with reason refusals"]);
    let mut other = tripped.clone();
    other.trip_reasons = vec!["failure_ratio".to_owned()];
    assert_eq!(misses(target, &other), ["no trip with reason refusals"]);
    let mut late = tripped.clone();
    late.requests_before_trip = Some(111);
    late.busiest_second_after_trip = Some(2);
    assert_eq!(
        misses(target, &late),
        [
            "111 requests before the trip",
            "2 requests in a second after it"
        ]
    );
}

#[test]
fn poison_costs_only_itself() {
    let target = Target::NeverTrips { min_exhausted: 10 };
    let poisoned = RowCounts {
        poison: 10,
        exhausted: 10,
        delivered: 190,
        ..counts()
    };
    assert!(misses(target, &poisoned).is_empty());
    let mut few = poisoned.clone();
    few.exhausted = 9;
    assert_eq!(misses(target, &few), ["only 9 exhausted"]);
    let mut tripped = poisoned.clone();
    (tripped.trips, tripped.delivered) = (1, 189);
    assert_eq!(
        misses(target, &tripped),
        ["1 trips", "189 of 190 healthy delivered"]
    );
}

#[test]
fn rows_are_counted_from_the_answers() {
    let second = |at: f64| (at * 1e9) as u64;
    let answer = |at: f64, number, accepted| Answer {
        arrived_at: second(at),
        number,
        accepted,
    };
    // Event 20 is poison, event 21 is delivered at its second attempt, 22 too late, and 23 is never sent.
    let answers = [
        answer(1.0, 20, false),
        answer(1.1, 21, false),
        answer(2.0, 20, false),
        answer(2.1, 21, true),
        answer(9.0, 24, true),
        answer(9.5, 25, true),
        answer(11.0, 22, true),
    ];
    let scope = RowScope {
        events: 20..26,
        times: second(1.0)..second(11.0),
        max_attempts: Some(2),
    };
    let faults = Faults::Poison {
        one_in: 20,
        status: StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut watch = HealthWatch::default();
    watch.record(
        second(2.0),
        json!({"breaker": {"state": "tripped", "reason": "refusals"}}),
    );
    let counts = RowCounts::new(&scope, &faults, &answers, &watch, "enabled");
    assert_eq!(
        (counts.seconds, counts.offered, counts.poison),
        (10.0, 6, 1)
    );
    assert_eq!((counts.requests, counts.refused), (6, 3));
    assert_eq!((counts.delivered, counts.never_sent), (3, 2));
    assert_eq!((counts.exhausted, counts.trips), (1, 1));
    // The trip was seen at 2.0; requests up to a second later may have been in flight.
    assert_eq!(counts.requests_before_trip, Some(4));
    assert_eq!(counts.busiest_second_after_trip, Some(2));
    assert_eq!(counts.requests_each_second[..2], [2, 2]);
    assert_eq!(counts.delivered_each_second[..2], [0, 1]);
}

#[test]
fn events_that_would_pass_a_second_time_are_not_poison() {
    let wave = Faults::Wave {
        duration: Duration::from_secs(1),
        status: StatusCode::FORBIDDEN,
    };
    let always = Faults::Always {
        status: StatusCode::NOT_FOUND,
    };
    assert!(!wave.is_poison(0) && !Faults::NONE.is_poison(0) && always.is_poison(0));
}
