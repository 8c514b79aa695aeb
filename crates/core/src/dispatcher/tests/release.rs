//! Tests of endpoints that are released to another node, or lost to it.
//!
//! A released lane starts no attempt, finishes those in flight and is then reported as ready to release. The next owner
//! finds all deliveries in the store. A lost lane is dropped at once. No rate or in-flight limit is exceeded by a
//! change of owner.

use proptest::prelude::*;

use super::bench::Bench;
use super::fixture::{down, gone, ok, settings, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::{Command, Dispatcher, DispatcherLimits, Input, Wake};
use crate::id::EndpointId;
use crate::lane::{BreakerState, EndpointStatus, LaneSettings, RateLimit};
use crate::rng::Rng;
use crate::time::Span;

fn ready_to_release(bench: &mut Bench) -> Vec<EndpointId> {
    let issued = bench.take_commands().into_iter();
    let ready_to_release = issued.filter_map(|command| match command {
        Command::ReadyToRelease(endpoint) => Some(endpoint),
        Command::LoadEndpoint(_)
        | Command::Fetch { .. }
        | Command::Send(_)
        | Command::Record { .. }
        | Command::PersistStatus { .. }
        | Command::CountEnded(_)
        | Command::TooLateToCancel(_)
        | Command::Sweep { .. }
        | Command::Notify(_)
        | Command::Drained => None,
    });
    ready_to_release.collect()
}

/// Gives the endpoint to another node.
fn hand_over(bench: &mut Bench, endpoint: EndpointId) {
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
    bench.stored(endpoint).owned_since = bench.now.tick;
    bench.restart();
}

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

#[test]
fn a_released_lane_starts_nothing_and_finishes_attempts_in_flight() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(ready_to_release(&mut bench), []);
    bench.accept(endpoint, 1);
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.manual.records = true;
    bench.finish(ids[0], down());
    assert_eq!(
        ready_to_release(&mut bench),
        [],
        "the lane is kept until its result is recorded"
    );
    bench.answer_record();
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
    assert_eq!(bench.take_sent(), [ids[0]]);
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
    // Nothing is lost: the next owner sends all deliveries.
    bench.manual.records = false;
    hand_over(&mut bench, endpoint);
    bench.run(Span::from_mins(10), ok());
    let all = bench.disk.rows().map(|row| row.status());
    assert_eq!(all.collect::<Vec<_>>(), [Status::Succeeded; 4]);
}

#[test]
fn an_endpoint_without_a_lane_is_released_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
}

#[test]
fn a_lane_without_settings_is_released_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.manual.introductions = true;
    bench.accept(endpoint, 2);
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
    bench.load_endpoint(endpoint);
    assert_eq!(bench.take_sent(), []);
    assert_eq!(bench.dispatcher.lane_count(), 0);
}

#[test]
fn a_queued_lane_is_withdrawn_when_released() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 1,
        ..DispatcherLimits::default()
    });
    let busy = bench.endpoint(unlimited_rate());
    let waiting = bench.endpoint_of("other", unlimited_rate());
    let [first, second] = bench.accept(busy, 2)[..] else {
        unreachable!("two deliveries were accepted")
    };
    let third = bench.accept_one(waiting);
    bench.handle(Input::Revoke(waiting));
    assert_eq!(ready_to_release(&mut bench), [waiting]);
    bench.finish(first, ok());
    bench.finish(second, ok());
    assert_eq!(bench.take_sent(), [first, second]);
    assert_eq!(bench.disk.status(third), Status::Pending);
}

#[test]
fn a_lane_being_released_still_takes_status_changes_and_cancels() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.handle(Input::Revoke(endpoint));
    bench.cancel(ids[1]);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    assert_eq!(bench.disk.status(ids[1]), Status::Cancelled);
    assert_eq!(bench.status(endpoint), EndpointStatus::Disabled);
    assert_eq!(ready_to_release(&mut bench), []);
    bench.finish(ids[0], ok());
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
    // The waiting deliveries are failed by the next owner.
    assert_eq!(bench.disk.status(ids[2]), Status::Pending);
    hand_over(&mut bench, endpoint);
    assert_eq!(bench.disk.status(ids[2]), Status::Failed);
}

#[test]
fn a_pending_status_change_is_answered_before_the_release() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.stored(endpoint).status = EndpointStatus::Paused;
    bench.manual.introductions = true;
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(ready_to_release(&mut bench), []);
    bench.load_endpoint(endpoint);
    assert_eq!(bench.status(endpoint), EndpointStatus::Enabled);
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
}

#[test]
fn an_endpoint_disabled_during_its_release_is_swept_by_the_next_owner() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 2);
    bench.handle(Input::Revoke(endpoint));
    bench.finish(ids[0], gone());
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
    assert_eq!(bench.disk.status(ids[1]), Status::Pending);
    bench.stored(endpoint).status = EndpointStatus::Disabled;
    hand_over(&mut bench, endpoint);
    assert_eq!(bench.disk.status(ids[1]), Status::Failed);
}

#[test]
fn deliveries_waiting_after_an_internal_fault_are_released() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.fail_internally(id);
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(ready_to_release(&mut bench), [endpoint]);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
}

#[test]
fn lost_endpoints_are_dropped_at_once_and_late_results_ignored() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let other = bench.endpoint_of("other", unlimited_rate());
    let ids = bench.accept(endpoint, 3);
    let (recorded, ticket) = (bench.accept_one(other), bench.ticket(ids[0]));
    bench.manual.records = true;
    bench.finish(recorded, ok());
    bench.handle(Input::Lost);
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
    bench.take_commands();
    let finish = crate::dispatcher::AttemptEnd::Completed(ok());
    bench.handle(Input::Finished { ticket, finish });
    assert_eq!(
        bench.take_commands(),
        [],
        "the result of a lost endpoint is not recorded"
    );
    // An endpoint that this node owns again starts from an empty state.
    bench.records.clear();
    bench.flying.clear();
    bench.take_sent();
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    assert_eq!(bench.take_sent(), [ids[0]]);
}

#[test]
fn a_suspended_dispatcher_starts_nothing_until_resumed() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    bench.handle(Input::Suspend);
    let ids = bench.accept(endpoint, 2);
    bench.advance(Span::from_secs(30));
    assert_eq!(bench.take_sent(), []);
    bench.handle(Input::Resume);
    assert_eq!(bench.take_sent(), ids);
}

#[test]
fn a_tripped_breaker_stays_tripped_at_the_next_owner() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    for _ in 0..20 {
        let id = bench.accept_one(endpoint);
        bench.finish(id, down());
        let health = bench.lane(endpoint).health;
        bench.stored(endpoint).health = health;
    }
    let BreakerState::Tripped { until, .. } = bench.lane(endpoint).breaker else {
        panic!("the breaker has not tripped");
    };
    bench.take_sent();
    bench.handle(Input::Revoke(endpoint));
    hand_over(&mut bench, endpoint);
    bench.advance(Span::from_millis(
        until.since(bench.now.tick).as_millis() - 10,
    ));
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_secs(20));
    assert_eq!(bench.take_sent().len(), 1, "exactly one probe is sent");
}

proptest! {
    /// No change of owner lets an endpoint exceed its rate or its window, and all deliveries arrive. (The bench
    /// checks the window.)
    #[test]
    fn no_limit_is_exceeded_by_a_change_of_owner(
        steps in prop::collection::vec((0u64..400, 0u8..6), 1..120),
        max_in_flight in 1u32..6,
        per_second in 1.0..60.0f64,
        burst in 1u32..20,
    ) {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(LaneSettings {
            max_in_flight,
            rate: RateLimit { per_second, burst },
            ..settings()
        });
        for (pause, what) in steps {
            bench.advance(Span::from_millis(pause));
            match what {
                0..=2 => drop(bench.accept(endpoint, usize::from(what) * 7 + 1)),
                3 => bench.finish_all(ok()),
                4 => bench.finish_all(down()),
                5.. => {
                    bench.handle(Input::Revoke(endpoint));
                    let begun = bench.sent.len();
                    bench.finish_all(ok());
                    prop_assert_eq!(bench.sent.len(), begun, "an attempt started after the endpoint was released");
                    hand_over(&mut bench, endpoint);
                }
            }
        }
        let arrivals = bench.arrivals.clone();
        for (index, from) in arrivals.iter().enumerate() {
            let within = arrivals[index..].iter().filter(|at| at.since(*from) < Span::from_secs(1));
            let most = f64::from(burst) + per_second;
            prop_assert!(within.count() as f64 <= most, "more than {most} attempts in a second");
        }
        for _ in 0..40 {
            bench.run(Span::from_mins(5), ok());
        }
        let unfinished = bench.disk.rows().filter(|row| row.next_attempt_at().is_some()).count();
        prop_assert_eq!(unfinished, 0);
    }
}

#[test]
fn one_thousand_lanes_are_released_at_once() {
    let mut dispatcher = Dispatcher::new(DispatcherLimits::default(), Rng::seeded(1));
    let mut bench = Bench::new();
    let mut commands = Vec::new();
    for number in 0..1_000 {
        let endpoint = EndpointId(1_000 + number);
        let due = bench.now.wall;
        dispatcher.handle(bench.now, Input::Work { endpoint, due }, &mut commands);
    }
    bench.advance(Span::from_secs(1));
    commands.clear();
    for number in 0..1_000 {
        let endpoint = EndpointId(1_000 + number);
        dispatcher.handle(bench.now, Input::Revoke(endpoint), &mut commands);
    }
    assert_eq!(commands.len(), 1_000);
    assert_eq!(dispatcher.lane_count(), 0);
}
