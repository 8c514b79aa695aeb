//! Tests of records that can never be written, while others can.

use super::bench::Bench;
use super::fixture::{down, ok, settings, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::lanes::MAX_FAULT_DELAY;
use crate::dispatcher::{FAULTS_TO_QUARANTINE, STORE_PAUSE};
use crate::id::{DeliveryId, EndpointId};

fn held(bench: &Bench) -> Vec<DeliveryId> {
    let held = bench.dispatcher.quarantined();
    held.into_iter().map(|held| held.delivery).collect()
}

/// Delivers one event to an endpoint and writes its record, but none of those that were issued before.
fn deliver_one(bench: &mut Bench, endpoint: EndpointId) {
    let delivery = bench.accept_one(endpoint);
    if !bench.flying.contains_key(&delivery) {
        // It is sent as a single attempt.
        bench.advance(STORE_PAUSE);
    }
    bench.finish(delivery, ok());
    bench.records.rotate_right(1);
    bench.answer_record();
    assert_eq!(bench.disk.status(delivery), Status::Succeeded);
}

#[test]
fn a_record_that_can_never_be_written_holds_its_delivery_and_no_other() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(settings());
    let poison = bench.accept_one(endpoint);
    bench.finish(poison, down());
    let ticket = bench.records[0].0;
    // The first failure may be the store's. Then others are written in between.
    for failures in 0..=FAULTS_TO_QUARANTINE {
        assert_eq!(held(&bench), [], "after {failures} failures");
        assert!(bench.dispatcher.awaits(ticket));
        bench.fail_record();
        deliver_one(&mut bench, endpoint);
        bench.advance(MAX_FAULT_DELAY);
    }
    assert_eq!(held(&bench), [poison]);
    assert!(!bench.dispatcher.awaits(ticket));
    assert_eq!(bench.dispatcher.in_flight_count(), 0);
    assert_eq!(bench.disk.row(poison).facts().attempts, 0);
    // The next record carries the endpoint's health.
    let other = bench.accept_one(endpoint);
    bench.finish(other, down());
    bench.answer_record();
    assert_eq!(bench.stored(endpoint).health.consecutive_failures, 1);
    // It is sent again when it is retried by hand.
    bench.take_sent();
    let due = bench.now.wall;
    bench.disk.row_mut(poison).make_due(due).unwrap();
    bench.handle(crate::dispatcher::Input::Work { endpoint, due });
    assert!(bench.take_sent().contains(&poison));
    assert_eq!(held(&bench), []);
}

#[test]
fn a_record_that_fails_alone_does_not_slow_down_others() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let poison = bench.accept_one(endpoint);
    bench.finish(poison, ok());
    bench.fail_record();
    deliver_one(&mut bench, endpoint);
    // From the second failure on it is known that the store works.
    assert_eq!(bench.records.len(), 1);
    bench.fail_record();
    bench.take_sent();
    bench.accept(endpoint, 5);
    assert_eq!(bench.take_sent().len(), 5);
    // The pause grows.
    bench.advance(STORE_PAUSE);
    assert!(bench.records.is_empty());
    bench.advance(STORE_PAUSE);
    assert_eq!(bench.records.len(), 1);
}

#[test]
fn a_store_that_fails_now_and_then_holds_nothing() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let deliveries = bench.accept(endpoint, 2);
    bench.finish_all(ok());
    for _ in 0..5 * FAULTS_TO_QUARANTINE {
        // Both fail each time, and only one other record is written.
        while !bench.records.is_empty() {
            bench.fail_record();
        }
        deliver_one(&mut bench, endpoint);
        bench.advance(MAX_FAULT_DELAY);
    }
    assert_eq!(held(&bench), []);
    while !bench.records.is_empty() {
        bench.answer_record();
    }
    for delivery in deliveries {
        assert_eq!(bench.disk.status(delivery), Status::Succeeded);
    }
}
