//! Tests of deliveries that are quarantined after repeated internal faults.
//!
//! Ten faults in a row of one delivery quarantine it; faults that other deliveries have too quarantine nothing. A
//! quarantined delivery blocks only its successors on an ordered lane. It is released by hand, by a change of the
//! endpoint and by a restart.

use super::bench::Bench;
use super::fixture::{ok, settings, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::lanes::MAX_FAULT_DELAY;
use crate::dispatcher::{FAULTS_TO_QUARANTINE, Input, MAX_QUARANTINED_PER_LANE};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{EndpointStatus, LaneSettings};
use crate::time::Span;

fn held(bench: &Bench) -> Vec<DeliveryId> {
    let held = bench.dispatcher.quarantined();
    held.into_iter().map(|held| held.delivery).collect()
}

/// Ends attempts of this delivery by faults, each after the longest pause. Other attempts stay in flight.
fn fail(bench: &mut Bench, delivery: DeliveryId, times: u32) {
    for _ in 0..times {
        bench.advance(MAX_FAULT_DELAY);
        bench.fail_internally(delivery);
    }
    bench.advance(MAX_FAULT_DELAY);
}

fn hold(bench: &mut Bench, endpoint: EndpointId) -> DeliveryId {
    let delivery = bench.accept_one(endpoint);
    fail(bench, delivery, FAULTS_TO_QUARANTINE);
    assert_eq!(held(bench), [delivery]);
    delivery
}

#[test]
fn ten_faults_in_a_row_hold_a_delivery_and_nine_do_not() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = bench.accept_one(endpoint);
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
    assert_eq!(held(&bench), []);
    assert!(bench.flying.contains_key(&delivery));
    bench.dispatcher.take_quarantine_changed();
    bench.fail_internally(delivery);
    assert_eq!(held(&bench), [delivery]);
    assert!(bench.dispatcher.take_quarantine_changed());
    assert!(!bench.dispatcher.take_quarantine_changed());
    bench.take_sent();
    bench.advance(Span::from_days(1));
    assert_eq!(bench.take_sent(), [], "a held delivery was sent");
    assert_eq!(bench.disk.row(delivery).facts().attempts, 0);
    assert!(bench.disk.waits(delivery));
    // Other deliveries of the lane are sent, and the lane is not asked for again and again.
    let other = bench.accept_one(endpoint);
    bench.finish(other, ok());
    assert_eq!(bench.disk.status(other), Status::Succeeded);
    assert_eq!(bench.dispatcher.wake().tick, None);
}

#[test]
fn a_normal_end_starts_the_count_anew() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = bench.accept_one(endpoint);
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
    bench.finish(delivery, super::fixture::down());
    bench.advance(super::fixture::RETRY);
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
    assert_eq!(held(&bench), []);
    bench.fail_internally(delivery);
    assert_eq!(held(&bench), [delivery]);
}

#[test]
fn deliveries_whose_content_cannot_be_read_are_held_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    // So many that the faults would look like shared ones.
    let deliveries: Vec<DeliveryId> = (0..8).map(|_| bench.accept_one(endpoint)).collect();
    for delivery in &deliveries {
        bench.end_unreadable(*delivery);
    }
    assert_eq!(held(&bench), deliveries);
    bench.take_sent();
    bench.advance(Span::from_days(1));
    assert_eq!(bench.take_sent(), [], "a held delivery was sent");
    assert_eq!(bench.disk.row(deliveries[0]).facts().attempts, 0);
    let other = bench.accept_one(endpoint);
    bench.finish(other, ok());
    assert_eq!(bench.disk.status(other), Status::Succeeded);
}

#[test]
fn faults_from_outside_the_delivery_hold_nothing() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = bench.accept_one(endpoint);
    for _ in 0..50 {
        bench.fail_by_shared_fault(delivery);
        bench.advance(MAX_FAULT_DELAY);
    }
    assert_eq!(held(&bench), []);
    // They neither count nor interrupt the count.
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
    bench.fail_by_shared_fault(delivery);
    bench.advance(MAX_FAULT_DELAY);
    assert_eq!(held(&bench), []);
    bench.fail_internally(delivery);
    assert_eq!(held(&bench), [delivery]);
}

#[test]
fn a_fault_of_all_deliveries_of_an_endpoint_holds_none() {
    let mut bench = Bench::new();
    let (broken, healthy) = (bench.endpoint(settings()), bench.endpoint(settings()));
    bench.accept(broken, 3);
    for _ in 0..50 {
        let flying: Vec<DeliveryId> = bench.flying.keys().copied().collect();
        assert_ne!(flying, [], "the lane has stopped");
        for delivery in flying {
            bench.fail_internally(delivery);
        }
        let other = bench.accept_one(healthy);
        bench.finish(other, ok());
        bench.advance(MAX_FAULT_DELAY);
    }
    assert_eq!(held(&bench), []);
}

#[test]
fn a_fault_of_all_endpoints_holds_nothing() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        let endpoint = bench.endpoint(settings());
        bench.accept_one(endpoint);
    }
    for _ in 0..50 {
        let flying: Vec<DeliveryId> = bench.flying.keys().copied().collect();
        assert_eq!(flying.len(), 3);
        for delivery in flying {
            bench.fail_internally(delivery);
        }
        bench.advance(MAX_FAULT_DELAY);
    }
    assert_eq!(held(&bench), []);
    // Attempts end normally again, so what still faults has a fault of its own.
    let poison = *bench.flying.keys().next().unwrap();
    let healthy: Vec<DeliveryId> = bench.flying.keys().copied().skip(1).collect();
    for delivery in healthy {
        bench.finish(delivery, ok());
    }
    bench.fail_internally(poison);
    assert_eq!(held(&bench), [poison]);
}

#[test]
fn two_faulty_deliveries_are_held_when_others_of_the_lane_end_normally() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let faulty = bench.accept(endpoint, 2);
    for _ in 0..FAULTS_TO_QUARANTINE {
        let other = bench.accept_one(endpoint);
        bench.finish(other, ok());
        for delivery in &faulty {
            bench.fail_internally(*delivery);
        }
        bench.advance(MAX_FAULT_DELAY);
    }
    // The normal end comes before both, so the second fault of the pair sees it as well.
    assert_eq!(held(&bench), faulty);
}

/// Ends all attempts in flight by faults, in so many rounds.
fn fail_all(bench: &mut Bench, rounds: u32) {
    for _ in 0..rounds {
        let flying: Vec<DeliveryId> = bench.flying.keys().copied().collect();
        for delivery in flying {
            bench.fail_internally(delivery);
        }
        bench.advance(MAX_FAULT_DELAY);
    }
}

#[test]
fn two_faulty_deliveries_of_an_idle_endpoint_are_held_after_more_faults() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let faulty = bench.accept(endpoint, 2);
    fail_all(&mut bench, 3 * FAULTS_TO_QUARANTINE - 1);
    assert_eq!(held(&bench), []);
    fail_all(&mut bench, 2);
    assert_eq!(held(&bench), faulty);
    // The same on two endpoints.
    let mut bench = Bench::new();
    let endpoints = [bench.endpoint(settings()), bench.endpoint(settings())];
    let faulty = endpoints.map(|endpoint| bench.accept_one(endpoint));
    fail_all(&mut bench, 3 * FAULTS_TO_QUARANTINE - 1);
    assert_eq!(held(&bench), []);
    fail_all(&mut bench, 2);
    assert_eq!(held(&bench), faulty);
}

#[test]
fn a_fault_of_many_deliveries_of_an_idle_endpoint_holds_none() {
    let mut bench = Bench::new();
    let endpoints: Vec<EndpointId> = (0..6).map(|_| bench.endpoint(settings())).collect();
    for endpoint in endpoints {
        bench.accept_one(endpoint);
    }
    fail_all(&mut bench, 500);
    assert_eq!(bench.flying.len(), 6);
    assert_eq!(held(&bench), []);
}

#[test]
fn held_deliveries_of_a_lane_are_bounded() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    });
    for _ in 0..MAX_QUARANTINED_PER_LANE {
        let delivery = bench.accept_one(endpoint);
        for _ in 0..FAULTS_TO_QUARANTINE {
            let other = bench.accept_one(endpoint);
            bench.fail_internally(delivery);
            bench.finish(other, ok());
            bench.advance(MAX_FAULT_DELAY);
        }
    }
    assert_eq!(held(&bench).len(), MAX_QUARANTINED_PER_LANE);
    let one_more = bench.accept_one(endpoint);
    for _ in 0..2 * FAULTS_TO_QUARANTINE {
        bench.fail_internally(one_more);
        bench.advance(MAX_FAULT_DELAY);
    }
    assert!(bench.flying.contains_key(&one_more));
    assert_eq!(held(&bench).len(), MAX_QUARANTINED_PER_LANE);
}

#[test]
fn a_retry_by_hand_gives_ten_new_tries() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = hold(&mut bench, endpoint);
    // Other work of the endpoint does not release it.
    bench.take_sent();
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    assert_eq!(bench.take_sent(), []);
    for _ in 0..2 {
        bench.advance(Span::from_secs(1));
        let due = bench.now.wall;
        bench.disk.row_mut(delivery).make_due(due).unwrap();
        bench.handle(Input::Work { endpoint, due });
        assert_eq!(held(&bench), []);
        assert_eq!(bench.take_sent(), [delivery]);
        fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
        assert_eq!(held(&bench), []);
        bench.fail_internally(delivery);
        assert_eq!(held(&bench), [delivery]);
        bench.take_sent();
    }
}

#[test]
fn a_held_delivery_can_be_cancelled() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = hold(&mut bench, endpoint);
    bench.cancel(delivery);
    assert_eq!(bench.disk.status(delivery), Status::Cancelled);
    assert_eq!(held(&bench), []);
    bench.advance(Span::from_hours(1));
    assert_eq!(
        bench.dispatcher.lane_count(),
        0,
        "the lane is not forgotten"
    );
}

#[test]
fn a_restart_gives_ten_new_tries() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = hold(&mut bench, endpoint);
    bench.take_sent();
    bench.restart();
    assert_eq!(bench.take_sent(), [delivery]);
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE - 1);
    assert_eq!(held(&bench), []);
}

#[test]
fn a_held_delivery_does_not_delay_the_release_of_its_endpoint() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    hold(&mut bench, endpoint);
    bench.handle(Input::Revoke(endpoint));
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(held(&bench), []);
    assert!(bench.dispatcher.take_quarantine_changed());
}

#[test]
fn a_change_of_the_endpoint_releases_its_held_deliveries() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = hold(&mut bench, endpoint);
    bench.take_sent();
    bench.change(endpoint, unlimited_rate());
    assert_eq!(bench.take_sent(), [delivery]);
    fail(&mut bench, delivery, FAULTS_TO_QUARANTINE);
    assert_eq!(held(&bench), [delivery]);
    bench.set_status(endpoint, EndpointStatus::Paused);
    assert_eq!(held(&bench), [delivery]);
    bench.take_sent();
    bench.set_status(endpoint, EndpointStatus::Enabled);
    assert_eq!(bench.take_sent(), [delivery]);
    assert_eq!(held(&bench), []);
}

#[test]
fn a_disabled_endpoint_ends_its_held_deliveries() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let delivery = hold(&mut bench, endpoint);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    assert_eq!(bench.disk.status(delivery), Status::Failed);
    assert_eq!(held(&bench), []);
}

/// Holds the oldest delivery of a key, with so many successors before the hold and many after it.
fn successors_wait(successors_before: usize) {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        ordered: true,
        ..unlimited_rate()
    });
    let first = bench.accept_keyed(endpoint, 7);
    let mut successors: Vec<DeliveryId> = (0..successors_before)
        .map(|_| bench.accept_keyed(endpoint, 7))
        .collect();
    fail(&mut bench, first, FAULTS_TO_QUARANTINE);
    assert_eq!(held(&bench), [first]);
    // More than fit into memory.
    successors.extend((0..200).map(|_| bench.accept_keyed(endpoint, 7)));
    bench.take_sent();
    for key in 100..300 {
        let other = bench.accept_keyed(endpoint, key);
        assert_eq!(bench.take_sent(), [other]);
        bench.finish(other, ok());
    }
    bench.cancel(first);
    for successor in successors {
        assert_eq!(bench.take_sent(), [successor]);
        bench.finish(successor, ok());
    }
}

#[test]
fn only_the_successors_of_a_held_delivery_wait() {
    successors_wait(0);
    successors_wait(1);
}
