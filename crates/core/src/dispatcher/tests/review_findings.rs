//! Regression tests for bugs that an adversarial review found.
//!
//! Each of these tests failed before the fix. They combine inputs in an unlikely order: a late acceptance, a record
//! that always fails, a status change during another one, a rate that is not a number.

use super::bench::Bench;
use super::fixture::{RETRY, down, gone, ok, settings, throttled, unlimited_rate};
use crate::classify::{HttpStatus, Outcome};
use crate::delivery::{Delivery, Status};
use crate::dispatcher::{DispatcherLimits, Input, MAX_FETCHES, STORE_PAUSE};
use crate::lane::{BreakerSettings, EndpointStatus, LaneSettings, RateLimit};
use crate::time::Span;

fn code(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).unwrap(),
        retry_after: None,
    }
}

/// Bug: with steady traffic at the speed of the receiver, retries and overflow in the store were never sent.
#[test]
fn new_deliveries_do_not_starve_stored_ones() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let first = bench.accept_one(endpoint);
    bench.finish(first, down()); // retry in 10 s
    let old = bench.accept(endpoint, 200);
    for _ in 0..10_000 {
        let head = *bench.flying.keys().next().unwrap();
        bench.finish(head, ok());
        bench.accept_one(endpoint);
        bench.advance(Span::from_millis(20));
    }
    let left = old
        .iter()
        .filter(|id| !bench.disk.status(**id).is_terminal())
        .count();
    assert_eq!((bench.disk.status(first), left), (Status::Succeeded, 0));
}

/// A fetch returns a delivery before its hand-over arrives.
#[test]
fn an_acceptance_reported_after_the_delivery_ended_sends_nothing() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 200,
        ..unlimited_rate()
    });
    let batch: Vec<Delivery> = (0..300).map(|_| bench.commit(endpoint, None)).collect();
    let due = bench.now.wall;
    bench.handle(Input::Work { endpoint, due });
    bench.run(Span::from_secs(1), ok());
    bench.take_sent();
    bench.handle(Input::Accepted(batch));
    assert_eq!(bench.take_sent().len(), 0);
}

/// Deliveries that are dead-lettered because their payload was refused must not trip the breaker.
#[test]
fn dead_letters_of_refused_payloads_do_not_trip_the_breaker() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    bench.accept(endpoint, 10);
    for _ in 0..10 {
        bench.finish_all(code(404));
        bench.advance(RETRY);
    }
    let endpoint_changes = bench.endpoint_changes();
    assert!(endpoint_changes.is_empty(), "{endpoint_changes:?}");
}

/// One record that can never be written must not stop all other endpoints.
#[test]
fn one_failing_record_does_not_stop_the_others() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let other = bench.endpoint_of("other", unlimited_rate());
    let poison = bench.accept_one(endpoint);
    bench.finish(poison, ok());
    bench.fail_record();
    bench.accept(other, 5);
    for _ in 0..100 {
        bench.advance(STORE_PAUSE);
        bench.fail_record();
    }
    assert_eq!(bench.flying.len(), 5);
}

#[test]
fn health_stored_by_an_enable_does_not_replace_later_health() {
    let mut bench = Bench::new();
    let s = LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 1,
            ..BreakerSettings::default()
        },
        ..unlimited_rate()
    };
    let endpoint = bench.endpoint(s);
    bench.accept_one(endpoint);
    bench.finish_all(ok());
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.accept(endpoint, 1);
    bench.finish_all(down());
    assert!(bench.lane(endpoint).health.trip.is_some());
    let stored = bench.stored(endpoint).health.clone();
    assert_eq!(stored, bench.lane(endpoint).health);
}

/// The endpoint is enabled between the attempt that disables it and the record of that attempt.
#[test]
fn enabling_during_a_disable_leaves_store_and_lane_equal() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let id = bench.accept_one(endpoint);
    bench.finish(id, gone());
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.answer_record();
    assert_eq!(bench.status(endpoint), bench.lane(endpoint).status);
}

/// A rate that is not a number must not disable the limit.
#[test]
fn a_rate_of_nan_does_not_open_the_gate() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1000,
        rate: RateLimit {
            per_second: f64::NAN,
            burst: 1,
        },
        ..settings()
    });
    bench.accept(endpoint, 500);
    assert!(bench.flying.len() <= 1, "{}", bench.flying.len());
}

/// A delivery that waits after an internal fault is not being sent, so it can be cancelled.
#[test]
fn a_delivery_waiting_after_a_fault_can_be_cancelled() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let id = bench.accept_one(endpoint);
    bench.fail_internally(id);
    bench.take_commands();
    bench.cancel(id);
    assert_eq!(bench.disk.status(id), Status::Cancelled);
}

/// Enabling an endpoint ends a pause by `Retry-After`.
#[test]
fn enabling_ends_the_retry_after_pause() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let id = bench.accept_one(endpoint);
    bench.finish(id, throttled(Span::from_hours(24)));
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    let id = bench.accept_one(endpoint);
    bench.advance(Span::from_hours(1));
    assert!(bench.flying.contains_key(&id));
}

/// Many lanes with a backlog at start-up do not all fetch at once, but all get their turn.
#[test]
fn fetches_are_limited_and_queued() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 16,
        ready_per_lane: 64,
    });
    bench.manual.fetches = true;
    let mut waiting = Vec::new();
    for index in 0..2_000 {
        let endpoint = bench.endpoint_of(&format!("t{index}"), settings());
        waiting.push(bench.commit(endpoint, None).id());
        let due = bench.now.wall;
        bench.handle(Input::Work { endpoint, due });
        assert!(bench.fetches.len() <= MAX_FETCHES);
    }
    assert_eq!(bench.fetches.len(), MAX_FETCHES);
    bench.manual.fetches = false;
    while !bench.fetches.is_empty() {
        bench.answer_fetch();
    }
    bench.run(Span::from_mins(10), ok());
    let ended = |id: &_| bench.disk.status(*id) == Status::Succeeded;
    assert!(waiting.iter().all(ended));
}
