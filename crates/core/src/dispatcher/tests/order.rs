//! Ordered lanes: sequential within a key, concurrent between keys.
//!
//! The bench checks for each attempt that no older delivery of its key is unfinished.

use super::bench::Bench;
use super::given::{RETRY, down, ok, ordered, refused, unhurried};
use crate::delivery::Status;
use crate::dispatcher::{Input, Limits};
use crate::id::DeliveryId;
use crate::lane::LaneSettings;
use crate::time::Span;

fn all_done(bench: &Bench) -> bool {
    bench.disk.rows().all(|row| row.status().is_terminal())
}

#[test]
fn one_of_each_key_at_a_time_and_different_keys_at_once() {
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
    assert!(all_done(&bench));
}

#[test]
fn a_failing_head_holds_its_own_key_and_no_other() {
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
    bench.pass(RETRY);
    assert_eq!(bench.take_sent(), [head]);
    bench.finish(head, ok());
    assert_eq!(bench.take_sent(), [behind]);
    // The delivery is permanently refused and has ended, so the next one may go.
    bench.finish(behind, refused());
    assert_eq!(bench.take_sent(), [later]);
}

#[test]
fn order_holds_when_a_fault_of_our_own_strikes_the_head() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let ids: Vec<DeliveryId> = (0..5).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    for id in &ids {
        bench.fall(*id);
        bench.pass(Span::from_secs(1));
        let flying: Vec<_> = bench.flying.keys().copied().collect();
        assert_eq!(flying, [*id], "it goes again, and alone");
        bench.finish(*id, ok());
    }
    assert!(all_done(&bench));
}

#[test]
fn calling_off_the_head_lets_the_next_go() {
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
    assert!(all_done(&bench));
}

#[test]
fn a_snapshot_in_which_the_head_still_waits_does_not_strand_what_stands_behind_it() {
    for cancelled in [false, true] {
        let mut bench = Bench::new();
        bench.by_hand.fetches = true;
        let endpoint = bench.endpoint(ordered());
        let (head, second) = (
            bench.commit(endpoint, Some(7)).id(),
            bench.commit(endpoint, Some(7)).id(),
        );
        bench.tell(Input::Work {
            endpoint,
            due: bench.now.wall,
        });
        if cancelled {
            bench.cancel(head);
        } else {
            bench.answer_fetch();
            bench.tell(Input::Work {
                endpoint,
                due: bench.now.wall,
            });
            bench.finish(head, ok());
        }
        bench.take_sent();
        // This snapshot was taken while the head was unfinished.
        bench.answer_fetch();
        bench.by_hand.fetches = false;
        while !bench.fetches.is_empty() {
            bench.refresh_fetch();
            bench.answer_fetch();
        }
        assert_eq!(bench.take_sent(), [second]);
    }
}

#[test]
fn nothing_overtakes_what_overflowed_to_the_disk() {
    let mut bench = Bench::limited(Limits {
        max_flights: 10,
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
    assert!(all_done(&bench));
}

#[test]
fn nothing_overtakes_while_a_fetch_is_under_way() {
    let mut bench = Bench::new();
    bench.by_hand.fetches = true;
    let endpoint = bench.endpoint(ordered());
    bench.tell(Input::Work {
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
    bench.by_hand.fetches = false;
    bench.finish(older.id(), ok());
    while !bench.fetches.is_empty() {
        bench.refresh_fetch();
        bench.answer_fetch();
    }
    assert_eq!(bench.take_sent(), [newer]);
}

#[test]
fn once_the_disk_holds_nothing_more_deliveries_go_straight_again() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let head = bench.accept_keyed(endpoint, 7);
    bench.accept_keyed(endpoint, 7);
    bench.finish(head, down());
    bench.run(RETRY.times(2), ok());
    assert!(all_done(&bench));
    bench.listen();
    bench.accept_keyed(endpoint, 7);
    assert_eq!(bench.fetches_said(), 0);
    assert_eq!(bench.flying.len(), 1);
}

#[test]
fn order_begins_when_the_setting_does() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..unhurried()
    });
    let ids: Vec<DeliveryId> = (0..4).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    bench.change(endpoint, ordered());
    bench.take_sent();
    bench.finish(ids[0], down());
    assert_eq!(bench.take_sent(), [], "the rest waits behind the first");
    bench.run(RETRY.times(2), ok());
    assert_eq!(bench.take_sent(), ids);
}

#[test]
fn order_ends_when_the_setting_does() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(ordered());
    let ids: Vec<DeliveryId> = (0..4).map(|_| bench.accept_keyed(endpoint, 7)).collect();
    bench.finish(ids[0], down());
    bench.take_sent();
    bench.change(endpoint, unhurried());
    assert_eq!(bench.take_sent(), ids[1..], "nothing waits for the first");
    bench.finish_all(ok());
    bench.run(RETRY, ok());
    assert!(bench.disk.rows().all(|it| it.status() == Status::Succeeded));
}
