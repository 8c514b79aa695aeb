//! Tests of deliveries whose turn comes after their deadline.
//!
//! A policy that drops them ends them as expired, without an attempt and without spending anything of the endpoint's
//! limits; any other policy sends them. Writes that fail and rows that change meanwhile lose nothing.

use super::bench::Bench;
use super::fixture::{RETRY, down, ok, settings, unlimited_rate};
use crate::delivery::{DeadReason, Delivery, State, Status};
use crate::dispatcher::Input;
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{EndpointStatus, LaneSettings, RateLimit};
use crate::policy::{LateAction, RetryPolicy};
use crate::time::Span;

/// The duration after which the deliveries of the bench give up.
const GIVE_UP_AFTER: Span = Span::from_days(30);

fn with_late(settings: LaneSettings, late: LateAction) -> LaneSettings {
    LaneSettings {
        policy: RetryPolicy {
            late,
            ..settings.policy
        },
        ..settings
    }
}

fn expired(bench: &Bench, id: DeliveryId) -> bool {
    match bench.disk.row(id).state() {
        State::Failed { reason, .. } => reason == DeadReason::Expired,
        State::Pending(_)
        | State::Retrying(_)
        | State::Held(_)
        | State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Cancelled { .. } => false,
    }
}

/// Accepts deliveries while the endpoint is paused and enables it after their deadline.
fn held_past_the_deadline(
    bench: &mut Bench,
    settings: LaneSettings,
    count: usize,
) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = bench.endpoint(settings);
    bench.set_status(endpoint, EndpointStatus::Paused);
    let ids = bench.accept(endpoint, count);
    bench.advance(GIVE_UP_AFTER.times(2));
    assert!(ids.iter().all(|id| bench.disk.waits(*id)));
    bench.set_status(endpoint, EndpointStatus::Enabled);
    (endpoint, ids)
}

#[test]
fn deliveries_held_past_their_deadline_are_dropped_or_sent_by_policy() {
    for late in [LateAction::Send, LateAction::Drop] {
        let mut bench = Bench::new();
        let settings = with_late(unlimited_rate(), late);
        let (endpoint, ids) = held_past_the_deadline(&mut bench, settings, 200);
        match late {
            LateAction::Send => {
                // A backlog is sent gently after a pause.
                bench.run(Span::from_mins(5), ok());
                assert!(
                    ids.iter()
                        .all(|id| bench.disk.status(*id) == Status::Succeeded)
                );
            }
            LateAction::Drop => {
                assert_eq!(bench.take_sent(), []);
                assert!(ids.iter().all(|id| expired(&bench, *id)));
                assert!(
                    ids.iter()
                        .all(|id| bench.disk.row(*id).facts().attempts == 0)
                );
            }
        }
        // No slot, no count and no delivery is left behind.
        assert_eq!(bench.dispatcher.in_flight_count(), 0);
        let fresh = bench.accept_one(endpoint);
        bench.finish(fresh, ok());
        assert_eq!(bench.disk.status(fresh), Status::Succeeded);
        bench.advance(Span::from_hours(1));
        assert_eq!(bench.dispatcher.lane_count(), 0);
    }
}

#[test]
fn late_deliveries_spend_nothing_of_the_rate() {
    let mut bench = Bench::new();
    let slow = LaneSettings {
        rate: RateLimit {
            per_second: 0.1,
            burst: 1,
        },
        ..settings()
    };
    let (endpoint, ids) =
        held_past_the_deadline(&mut bench, with_late(slow, LateAction::Drop), 100);
    assert!(ids.iter().all(|id| expired(&bench, *id)));
    let fresh = bench.accept_one(endpoint);
    assert_eq!(bench.take_sent().len(), 1);
    bench.finish(fresh, ok());
}

#[test]
fn a_retry_that_is_held_back_past_the_deadline_is_dropped() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(with_late(unlimited_rate(), LateAction::Drop));
    let id = bench.accept_one(endpoint);
    bench.finish(id, down());
    bench.take_sent();
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.advance(GIVE_UP_AFTER.times(2));
    assert_eq!(bench.disk.status(id), Status::Retrying);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    assert_eq!(bench.take_sent(), []);
    assert!(expired(&bench, id));
    assert_eq!(bench.disk.row(id).facts().attempts, 1);
}

#[test]
fn an_attempt_before_the_deadline_is_made() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(with_late(unlimited_rate(), LateAction::Drop));
    let id = bench.accept_one(endpoint);
    bench.finish(id, down());
    bench.advance(RETRY);
    bench.finish(id, ok());
    assert_eq!(bench.disk.status(id), Status::Succeeded);
}

#[test]
fn a_dropped_delivery_is_recorded_again_until_it_is_written() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let settings = with_late(unlimited_rate(), LateAction::Drop);
    let (_, ids) = held_past_the_deadline(&mut bench, settings, 1);
    for _ in 0..3 {
        bench.fail_record();
        assert!(bench.disk.waits(ids[0]));
        bench.advance(Span::from_mins(1));
        assert_eq!(bench.records.len(), 1);
    }
    bench.answer_record();
    assert!(expired(&bench, ids[0]));
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
}

#[test]
fn a_delivery_that_is_retried_by_hand_while_it_is_dropped_is_sent() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let settings = with_late(unlimited_rate(), LateAction::Drop);
    let (endpoint, ids) = held_past_the_deadline(&mut bench, settings, 1);
    assert_eq!(bench.records.len(), 1);
    let now = bench.now.wall;
    bench.disk.row_mut(ids[0]).make_due(now).unwrap();
    bench.handle(Input::Work { endpoint, due: now });
    bench.answer_record();
    assert!(bench.flying.contains_key(&ids[0]), "the retry was lost");
    bench.finish(ids[0], ok());
    bench.answer_record();
    assert_eq!(bench.disk.status(ids[0]), Status::Succeeded);
}

#[test]
fn the_next_delivery_of_an_ordering_key_follows_a_dropped_one() {
    let mut bench = Bench::new();
    let ordered = LaneSettings {
        ordered: true,
        ..with_late(unlimited_rate(), LateAction::Drop)
    };
    let endpoint = bench.endpoint(ordered);
    bench.set_status(endpoint, EndpointStatus::Paused);
    let early = [7, 7].map(|key| bench.accept_keyed(endpoint, key));
    bench.advance(GIVE_UP_AFTER.times(2));
    let fresh = bench.accept_keyed(endpoint, 7);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    assert!(early.iter().all(|id| expired(&bench, *id)));
    bench.finish(fresh, ok());
    assert_eq!(bench.disk.status(fresh), Status::Succeeded);
    assert!(
        bench
            .disk
            .rows()
            .all(|row| Delivery::next_attempt_at(row).is_none())
    );
}
