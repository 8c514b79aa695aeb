//! Tests of the way from the store or the hand-over to the attempt, and of the timers in between.
//!
//! An accepted delivery is sent without a store read if its lane has capacity. Otherwise it stays in the store and
//! is fetched in batches, one fetch per lane at a time, only while the lane can send.

use super::bench::Bench;
use super::fixture::{RETRY, down, ok, settings, throttled, unlimited_rate};
use crate::delivery::{Status, Trigger};
use crate::dispatcher::{Command, DispatcherLimits, Input, STORE_PAUSE};
use crate::lane::{EndpointStatus, LaneSettings, RateLimit};
use crate::time::Span;

const SMALL: DispatcherLimits = DispatcherLimits {
    max_in_flight: 100,
    ready_per_lane: 8,
};

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

#[test]
fn an_endpoint_is_loaded_before_it_is_sent_to() {
    let mut bench = Bench::new();
    bench.manual.introductions = true;
    let endpoint = bench.endpoint(settings());
    let first = bench.accept_one(endpoint);
    bench.accept_one(endpoint);
    // The configuration is requested once, even if more deliveries arrive.
    assert_eq!(bench.take_commands(), [Command::LoadEndpoint(endpoint)]);
    bench.load_endpoint(endpoint);
    assert_eq!(bench.sent.len(), 2);
    let attempt = bench.sent[0];
    assert_eq!(
        (attempt.delivery, attempt.number, attempt.trigger),
        (first, 1, Trigger::Automatic)
    );
}

#[test]
fn accepted_deliveries_are_sent_without_a_fetch() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.accept(endpoint, 1);
    bench.take_commands();
    let second = bench.accept(endpoint, 2);
    let issued = bench.take_commands();
    assert_eq!(issued.len(), 2, "{issued:?}");
    assert!(issued.iter().all(|it| matches!(it, Command::Send(_))));
    bench.finish_all(ok());
    assert_eq!(bench.disk.status(second[0]), Status::Succeeded);
    assert_eq!(bench.fetch_count(), 0);
}

#[test]
fn overflow_stays_in_the_store_and_is_fetched_later() {
    let mut bench = Bench::limited(SMALL);
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 20);
    // The lane kept as many as it may; one of them was sent.
    assert_eq!(bench.lane(endpoint).ready, 7);
    assert!(
        bench.fetches.is_empty(),
        "nothing is fetched while the list is full"
    );
    for _ in 0..2 {
        bench.finish_all(ok());
    }
    assert!(
        bench.fetches.is_empty(),
        "nothing is fetched while the list is more than half full"
    );
    bench.finish_all(ok());
    // Space for four, plus those that a fetch may return again: four ready, one in flight, and one whose result was
    // being written.
    assert_eq!(bench.fetches.len(), 1);
    assert_eq!(bench.fetches[0].limit, 10);
    assert_eq!(bench.fetches[0].due_by, bench.now.wall);
    bench.answer_fetch();
    assert_eq!(bench.lane(endpoint).ready, 8);
    bench.manual.fetches = false;
    for _ in 0..20 {
        bench.finish_all(ok());
    }
    let order: Vec<_> = bench.take_sent();
    assert_eq!(
        order, ids,
        "each delivery is sent once, in order of acceptance"
    );
}

#[test]
fn the_ready_list_is_refilled_ahead_but_never_beyond_its_size() {
    let mut bench = Bench::limited(SMALL);
    let endpoint = bench.endpoint(one_at_a_time());
    bench.accept(endpoint, 500);
    for _ in 0..300 {
        bench.finish_all(ok());
        let ready = bench.lane(endpoint).ready;
        assert!((1..=8).contains(&ready), "{ready} deliveries are ready");
    }
    // There are far fewer fetches than deliveries: each returns at least half a list.
    assert!(
        bench.fetch_count() <= 300 / 4 + 1,
        "{}",
        bench.fetch_count()
    );
}

#[test]
fn nothing_is_fetched_while_paused_and_everything_after() {
    let mut bench = Bench::limited(SMALL);
    let endpoint = bench.endpoint(unlimited_rate());
    bench.accept_one(endpoint);
    bench.finish_all(ok());
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.take_commands();
    bench.accept(endpoint, 30);
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.advance(Span::from_days(2));
    assert_eq!(bench.fetch_count(), 0);
    assert_eq!(bench.lane(endpoint).ready, 8);
    assert!(bench.lane(endpoint).holds);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.run(Span::from_secs(60), ok());
    assert!(bench.disk.rows().all(|it| it.status() == Status::Succeeded));
}

#[test]
fn nothing_is_fetched_during_a_retry_after_pause() {
    let mut bench = Bench::limited(SMALL);
    let endpoint = bench.endpoint(unlimited_rate());
    let first = bench.accept_one(endpoint);
    bench.finish(first, throttled(Span::from_secs(60)));
    bench.take_sent();
    let quiet_until = bench.now.tick.after(Span::from_secs(60));
    bench.accept(endpoint, 30);
    bench.take_commands();
    bench.advance(Span::from_millis(59_999));
    assert_eq!(bench.fetch_count(), 0);
    assert!(bench.sent.is_empty());
    assert_eq!(bench.dispatcher.wake().tick, Some(quiet_until));
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.sent.len(), 1, "the lane starts slowly after the wait");
}

#[test]
fn a_lane_that_waits_briefly_for_its_rate_is_fetched_ahead() {
    let mut bench = Bench::limited(SMALL);
    let rate = |per_second| LaneSettings {
        rate: RateLimit {
            per_second,
            burst: 1,
        },
        ..settings()
    };
    let (brisk, slow) = (bench.endpoint(rate(2.0)), bench.endpoint(rate(0.1)));
    for endpoint in [brisk, slow] {
        bench.accept_one(endpoint);
        bench.finish_all(ok());
    }
    bench.take_commands();
    for (endpoint, fetches) in [(brisk, 1), (slow, 0)] {
        bench.commit(endpoint, None);
        bench.handle(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
        assert_eq!(bench.fetch_count(), fetches);
        bench.take_commands();
    }
    bench.take_sent();
    bench.advance(Span::from_millis(499));
    assert!(bench.sent.is_empty());
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.sent.len(), 1);
    bench.advance(Span::from_millis(9_499));
    assert_eq!(bench.sent.len(), 1);
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn the_dispatcher_wakes_when_a_retry_is_due() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.finish(id, down());
    let due = bench.now.wall.after(RETRY);
    assert_eq!(bench.disk.row(id).next_attempt_at(), Some(due));
    assert_eq!(bench.dispatcher.wake().wall, Some(due));
    bench.take_sent();
    bench.advance(Span::from_millis(9_999));
    assert!(bench.sent.is_empty());
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.sent.len(), 1);
    assert_eq!(bench.sent[0].number, 2);
}

#[test]
fn the_earliest_stored_delivery_sets_the_time_of_the_fetch() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.load_endpoint(endpoint);
    let wall = bench.now.wall;
    let at = |seconds| wall.after(Span::from_secs(seconds));
    for due in [at(50), at(20), at(90)] {
        bench.handle(Input::Work { endpoint, due });
    }
    assert_eq!(bench.dispatcher.wake().wall, Some(at(20)));
}

#[test]
fn a_scheduled_delivery_waits_for_its_time() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.accept_one(endpoint);
    bench.take_sent();
    bench.set_forward(Span::from_hours(1));
    let later = bench.commit(endpoint, None);
    bench.set_back(Span::from_hours(1));
    bench.handle(Input::Accepted(vec![later.clone()]));
    assert!(bench.sent.is_empty());
    bench.advance(Span::from_hours(1));
    assert_eq!(bench.take_sent(), [later.id()]);
}

#[test]
fn a_failed_fetch_is_repeated_after_a_pause() {
    let mut bench = Bench::limited(SMALL);
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(settings());
    let delivery = bench.commit(endpoint, None);
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    let failed = bench.fetches[0].ticket;
    bench.fail_fetch();
    assert!(
        bench.fetches.is_empty(),
        "a failed fetch is not repeated at once"
    );
    bench.advance(Span::from_millis(STORE_PAUSE.as_millis() - 1));
    assert!(bench.fetches.is_empty());
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.fetches.len(), 1);
    assert_ne!(
        bench.fetches[0].ticket, failed,
        "the new fetch has a new ticket"
    );
    bench.answer_fetch();
    assert_eq!(bench.take_sent(), [delivery.id()]);
}

#[test]
fn one_fetch_at_a_time_for_each_lane() {
    let mut bench = Bench::limited(SMALL);
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(settings());
    for _ in 0..5 {
        bench.commit(endpoint, None);
        bench.handle(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
    }
    assert_eq!(bench.fetches.len(), 1);
    bench.answer_fetch();
    // Work that was reported during the fetch may not be in its snapshot.
    assert_eq!(bench.fetches.len(), 1);
    bench.answer_fetch();
    assert!(bench.fetches.is_empty());
    assert_eq!(bench.sent.len(), 5);
}

#[test]
fn an_empty_store_is_not_fetched_again() {
    let mut bench = Bench::limited(SMALL);
    let endpoint = bench.endpoint(unlimited_rate());
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.accept(endpoint, 9);
    assert!(bench.fetch_count() <= 2, "{}", bench.fetch_count());
    bench.take_commands();
    bench.advance(Span::from_secs(50));
    assert_eq!(bench.take_commands(), []);
}

#[test]
fn changed_limits_apply_to_an_open_lane() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    bench.accept(endpoint, 6);
    assert_eq!(bench.flying.len(), 1);
    bench.change(endpoint, unlimited_rate());
    assert_eq!(bench.flying.len(), 6, "a raised limit takes effect at once");
    bench.accept(endpoint, 6);
    assert_eq!(bench.flying.len(), 10);
    bench.change(endpoint, one_at_a_time());
    for _ in 0..9 {
        let next = *bench.flying.keys().next().unwrap();
        bench.finish(next, ok());
    }
    assert_eq!(bench.flying.len(), 1);
    bench.finish_all(ok());
    assert_eq!(bench.flying.len(), 1);
}
