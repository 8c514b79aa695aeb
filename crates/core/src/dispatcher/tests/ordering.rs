//! Ordered lanes: sequential within a key, concurrent between keys.
//!
//! The bench checks for each attempt that no older delivery of its key is unfinished.

use super::bench::Bench;
use super::fixture::{RETRY, down, ok, ordered, refused, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::{DispatcherLimits, Input};
use crate::id::DeliveryId;
use crate::lane::LaneSettings;
use crate::time::Span;

fn all_succeeded(bench: &Bench) -> bool {
    bench.disk.rows().all(|row| row.status().is_terminal())
}

#[test]
fn one_delivery_per_key_at_a_time_and_keys_in_parallel() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let first: Vec<DeliveryId> = (0..4)
        .map(|key| bench.accept_keyed(endpoint, key))
        .collect();
    let second: Vec<DeliveryId> = (0..4)
        .map(|key| bench.accept_keyed(endpoint, key))
        .collect();
    let unkeyed = bench.accept(endpoint, 2);
    let sent = bench.take_sent();
    assert_eq!(sent, [&first[..], &unkeyed[..]].concat());
    // The third key is done first, so only its next delivery is sent.
    bench.finish(first[2], ok());
    assert_eq!(bench.take_sent(), [second[2]]);
    bench.finish_all(ok());
    bench.finish_all(ok());
    assert!(all_succeeded(&bench));
}

#[test]
fn a_failing_delivery_blocks_only_its_own_key() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let head = bench.accept_keyed(endpoint, 1);
    let behind = bench.accept_keyed(endpoint, 1);
    bench.finish(head, down());
    bench.take_sent();
    let (other, later) = (
        bench.accept_keyed(endpoint, 2),
        bench.accept_keyed(endpoint, 1),
    );
    assert_eq!(bench.take_sent(), [other]);
    bench.advance(RETRY);
    assert_eq!(bench.take_sent(), [head]);
    bench.finish(head, ok());
    assert_eq!(bench.take_sent(), [behind]);
    // The delivery is permanently refused and has ended, so the next one may go.
    bench.finish(behind, refused());
    assert_eq!(bench.take_sent(), [later]);
}

#[test]
fn an_internal_fault_keeps_the_order() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let ids: Vec<DeliveryId> = (0..5).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    for id in &ids {
        bench.fail_internally(*id);
        bench.advance(Span::from_secs(1));
        let flying: Vec<_> = bench.flying.keys().copied().collect();
        assert_eq!(
            flying,
            [*id],
            "the same delivery is sent again, and no other"
        );
        bench.finish(*id, ok());
    }
    assert!(all_succeeded(&bench));
}

#[test]
fn cancelling_the_first_of_a_key_sends_the_next() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let (head, second, third) = (
        bench.accept_keyed(endpoint, 7),
        bench.accept_keyed(endpoint, 7),
        bench.accept_keyed(endpoint, 7),
    );
    bench.finish(head, down());
    bench.take_sent();
    // The head waits in the store for its retry, with two deliveries behind it.
    bench.cancel(head);
    assert_eq!(bench.take_sent(), [second]);
    bench.cancel(third);
    bench.finish(second, ok());
    assert_eq!(bench.take_sent(), []);
    assert!(all_succeeded(&bench));
}

#[test]
fn an_old_snapshot_does_not_strand_later_deliveries_of_the_key() {
    for cancelled in [false, true] {
        let mut bench = Bench::new();
        bench.manual.fetches = true;
        let endpoint = bench.endpoint(ordered());
        let (head, second) = (
            bench.commit(endpoint, Some(7)).id(),
            bench.commit(endpoint, Some(7)).id(),
        );
        bench.handle(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
        if cancelled {
            bench.cancel(head);
        } else {
            bench.answer_fetch();
            bench.handle(Input::Work {
                endpoint,
                due: bench.now.wall,
            });
            bench.finish(head, ok());
        }
        bench.take_sent();
        // This snapshot was taken while the head was unfinished.
        bench.answer_fetch();
        bench.manual.fetches = false;
        while !bench.fetches.is_empty() {
            bench.refresh_fetch();
            bench.answer_fetch();
        }
        assert_eq!(bench.take_sent(), [second]);
    }
}

#[test]
fn new_deliveries_do_not_overtake_stored_ones() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 2,
    });
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 3,
        ..ordered()
    });
    for round in 0..10 {
        for key in [1, 1, 2, 1, 3, 2] {
            bench.accept_keyed(endpoint, key);
        }
        bench.finish_all(if round % 3 == 0 { down() } else { ok() });
    }
    bench.run(Span::from_mins(5), ok());
    assert!(all_succeeded(&bench));
}

#[test]
fn new_deliveries_do_not_overtake_during_a_fetch() {
    let mut bench = Bench::new();
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(ordered());
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    let older = bench.commit(endpoint, Some(7));
    bench.refresh_fetch();
    // The newer delivery is handed over before the older one.
    let newer = bench.accept_keyed(endpoint, 7);
    assert_eq!(bench.take_sent(), []);
    bench.answer_fetch();
    assert_eq!(bench.take_sent(), [older.id()]);
    bench.manual.fetches = false;
    bench.finish(older.id(), ok());
    while !bench.fetches.is_empty() {
        bench.refresh_fetch();
        bench.answer_fetch();
    }
    assert_eq!(bench.take_sent(), [newer]);
}

#[test]
fn deliveries_are_sent_directly_when_the_store_has_no_more() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let head = bench.accept_keyed(endpoint, 7);
    bench.accept_keyed(endpoint, 7);
    bench.finish(head, down());
    bench.run(RETRY.times(2), ok());
    assert!(all_succeeded(&bench));
    bench.take_commands();
    bench.accept_keyed(endpoint, 7);
    assert_eq!(bench.fetch_count(), 0);
    assert_eq!(bench.flying.len(), 1);
}

#[test]
fn order_applies_from_the_change_of_the_setting() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    });
    let ids: Vec<DeliveryId> = (0..4).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    bench.change(endpoint, ordered());
    bench.take_sent();
    bench.finish(ids[0], down());
    assert_eq!(
        bench.take_sent(),
        [],
        "the others wait for the first delivery of the key"
    );
    bench.run(RETRY.times(2), ok());
    assert_eq!(bench.take_sent(), ids);
}

#[test]
fn order_ends_with_the_change_of_the_setting() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let ids: Vec<DeliveryId> = (0..4).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    bench.finish(ids[0], down());
    bench.take_sent();
    bench.change(endpoint, unlimited_rate());
    assert_eq!(
        bench.take_sent(),
        ids[1..],
        "the others no longer wait for the first"
    );
    bench.finish_all(ok());
    bench.run(RETRY, ok());
    assert!(bench.disk.rows().all(|it| it.status() == Status::Succeeded));
}
