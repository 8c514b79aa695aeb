//! Tests of inputs that arrive late, twice, or with outdated contents.
//!
//! Fetches return snapshots of the store that may be older than what the dispatcher knows, and answers may be
//! repeated. No such input may start an attempt twice, start one for an ended delivery, lose a delivery or open a
//! lane.

use super::bench::Bench;
use super::fixture::{RETRY, down, ok, settings, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::{
    AttemptEnd, Command, DispatcherLimits, Input, InternalFaultScope, STORE_PAUSE,
};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{EndpointStatus, Fetched, LaneSettings};
use crate::time::Span;

/// A bench with one delivery in flight and an unanswered fetch whose snapshot still shows that delivery as waiting.
fn overtaken_fetch() -> (Bench, EndpointId, DeliveryId) {
    let mut bench = Bench::new();
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    assert_eq!(bench.fetches[0].snapshot.deliveries[0].id(), id);
    bench.take_sent();
    (bench, endpoint, id)
}

#[test]
fn a_snapshot_from_before_a_success_sends_nothing() {
    let (mut bench, _, id) = overtaken_fetch();
    bench.finish(id, ok());
    bench.answer_fetch();
    bench.advance(Span::from_hours(1));
    assert_eq!(bench.take_sent(), []);
}

#[test]
fn a_snapshot_taken_during_the_attempt_sends_nothing() {
    let (mut bench, _, id) = overtaken_fetch();
    bench.answer_fetch();
    assert_eq!(bench.take_sent(), []);
    bench.finish(id, ok());
    bench.advance(Span::from_hours(1));
    assert_eq!(bench.take_sent(), []);
}

#[test]
fn a_snapshot_from_before_a_retry_does_not_advance_it() {
    let (mut bench, _, id) = overtaken_fetch();
    bench.finish(id, down());
    bench.answer_fetch();
    bench.manual.fetches = false;
    bench.advance(Span::from_millis(RETRY.as_millis() - 1));
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.take_sent(), [id]);
}

#[test]
fn a_snapshot_from_before_a_cancel_sends_nothing() {
    for answered_between in [false, true] {
        let mut bench = Bench::new();
        bench.manual.fetches = true;
        bench.manual.records = true;
        let endpoint = bench.endpoint(settings());
        let delivery = bench.commit(endpoint, None);
        bench.handle(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
        bench.cancel(delivery.id());
        if answered_between {
            bench.answer_fetch();
            bench.answer_record();
        } else {
            bench.answer_record();
            bench.answer_fetch();
        }
        bench.advance(Span::from_hours(1));
        assert_eq!(bench.take_sent(), []);
        assert_eq!(bench.disk.status(delivery.id()), Status::Cancelled);
    }
}

#[test]
fn a_replay_fetched_before_its_record_is_reported_is_not_lost() {
    for reported_before_the_fetch_ends in [false, true] {
        let mut bench = Bench::new();
        bench.manual.fetches = true;
        bench.manual.records = true;
        let endpoint = bench.endpoint(settings());
        let id = bench.accept_one(endpoint);
        bench.finish(id, ok());
        let ticket = bench.write();
        // In the store it has succeeded and was replayed; the dispatcher has not been informed of either.
        bench.replay(id);
        bench.take_sent();
        if reported_before_the_fetch_ends {
            bench.handle(Input::Recorded { ticket });
            bench.answer_fetch();
        } else {
            bench.answer_fetch();
            assert_eq!(bench.take_sent(), [], "the result is still being recorded");
            bench.handle(Input::Recorded { ticket });
            bench.answer_fetch();
        }
        assert_eq!(bench.take_sent(), [id]);
    }
}

#[test]
fn a_late_acceptance_of_an_ended_delivery_sends_nothing() {
    for outcome in [ok(), down()] {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(settings());
        let delivery = bench.commit(endpoint, None);
        bench.handle(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
        assert_eq!(bench.take_sent(), [delivery.id()]);
        bench.handle(Input::Accepted(vec![delivery.clone()]));
        bench.finish(delivery.id(), outcome);
        bench.handle(Input::Accepted(vec![delivery.clone()]));
        bench.advance(Span::from_secs(1));
        assert_eq!(bench.take_sent(), []);
    }
}

#[test]
fn a_late_acceptance_of_a_retrying_delivery_changes_nothing() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = bench.commit(endpoint, None);
    bench.handle(Input::Accepted(vec![delivery.clone(), delivery.clone()]));
    assert_eq!(bench.take_sent().len(), 1);
    bench.finish(delivery.id(), down());
    bench.handle(Input::Accepted(vec![delivery.clone()]));
    assert_eq!(bench.take_sent(), []);
    bench.advance(RETRY);
    assert_eq!(bench.take_sent(), [delivery.id()]);
}

#[test]
fn unexpected_answers_change_nothing() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    });
    let (first, second) = (bench.accept_one(endpoint), bench.accept_one(endpoint));
    let ticket = bench.ticket(first);
    // `Recorded` before there is a result.
    bench.take_commands();
    bench.handle(Input::Recorded { ticket });
    bench.handle(Input::RecordFailed { ticket });
    assert_eq!(bench.dispatcher.in_flight_count(), 1);
    bench.finish(first, ok());
    assert_eq!(bench.records.len(), 1);
    // A second result for the same attempt counts nothing and sends nothing.
    bench.take_commands();
    for finish in [
        AttemptEnd::Completed(down()),
        AttemptEnd::InternalFault(InternalFaultScope::Delivery),
        AttemptEnd::InternalFault(InternalFaultScope::Shared),
    ] {
        bench.handle(Input::Finished { ticket, finish });
    }
    assert_eq!(bench.take_commands(), []);
    bench.answer_record();
    // The second attempt now has the slot of the first one, with another ticket.
    assert_ne!(bench.ticket(second), ticket);
    bench.take_commands();
    let view = bench.lane(endpoint);
    bench.handle(Input::Recorded { ticket });
    bench.handle(Input::RecordFailed { ticket });
    bench.handle(Input::Finished {
        ticket,
        finish: AttemptEnd::Completed(down()),
    });
    bench.handle(Input::Swept {
        ticket: 0,
        endpoint,
    });
    bench.handle(Input::NoSuchEndpoint(endpoint));
    bench.handle(Input::FetchFailed {
        ticket: 77,
        endpoint,
    });
    let fetched = Fetched {
        deliveries: vec![bench.commit(endpoint, None)],
        next_due: Some(bench.now.wall),
        blocked: true,
        unreadable: Vec::new(),
    };
    bench.handle(Input::Fetched {
        ticket: 77,
        endpoint,
        fetched,
    });
    bench.load_endpoint(endpoint);
    assert_eq!(bench.take_commands(), []);
    assert_eq!(bench.lane(endpoint), view);
    bench.finish(second, ok());
    bench.answer_record();
    assert_eq!(bench.disk.status(second), Status::Succeeded);
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
}

#[test]
fn answers_about_unknown_endpoints_open_no_lane() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.load_endpoint(endpoint);
    bench.handle(Input::NoSuchEndpoint(endpoint));
    bench.handle(Input::Swept {
        ticket: 0,
        endpoint,
    });
    bench.handle(Input::FetchFailed {
        ticket: 0,
        endpoint,
    });
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.take_commands(), []);
}

#[test]
fn a_fetch_answered_twice_counts_once() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 4,
    });
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    });
    for _ in 0..3 {
        bench.commit(endpoint, None);
    }
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    let asked = bench.fetches[0].clone();
    bench.answer_fetch();
    let first = bench.take_sent()[0];
    bench.finish(first, ok());
    bench.handle(Input::Fetched {
        ticket: asked.ticket,
        endpoint,
        fetched: asked.snapshot,
    });
    bench.finish_all(ok());
    bench.finish_all(ok());
    let sent = bench.take_sent();
    assert_eq!(sent.len(), 2);
    assert!(!sent.contains(&first));
}

#[test]
fn a_record_failure_reported_twice_is_retried_once() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.finish(id, ok());
    let ticket = bench.fail_record();
    bench.handle(Input::RecordFailed { ticket });
    bench.advance(STORE_PAUSE);
    assert_eq!(bench.records.len(), 1);
}

#[test]
fn a_cancel_in_time_sends_nothing_and_a_late_one_is_refused() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..settings()
    });
    let (flying, waiting) = (bench.accept_one(endpoint), bench.accept_one(endpoint));
    bench.take_commands();
    bench.cancel(flying);
    assert_eq!(bench.take_commands(), [Command::TooLateToCancel(flying)]);
    bench.cancel(waiting);
    assert_eq!(bench.disk.status(waiting), Status::Cancelled);
    bench.finish(flying, down());
    bench.take_sent();
    // Between two attempts it can be cancelled again.
    bench.cancel(flying);
    assert_eq!(bench.disk.status(flying), Status::Cancelled);
    bench.advance(Span::from_hours(1));
    assert_eq!(bench.take_sent(), []);
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
}

#[test]
fn a_cancelled_delivery_stays_cancelled_while_the_store_fails() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..settings()
    });
    let (first, second) = (bench.accept_one(endpoint), bench.accept_one(endpoint));
    bench.cancel(second);
    bench.fail_record();
    bench.finish(first, ok());
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.advance(STORE_PAUSE);
    bench.answer_record();
    bench.answer_record();
    assert_eq!(bench.disk.status(second), Status::Cancelled);
    assert_eq!(bench.take_sent(), [first]);
}
