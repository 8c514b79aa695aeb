//! Tests of the backlog of one lane.
//!
//! The backlog keeps a few deliveries in memory and knows the earliest due time of those in the store. The tests
//! cover capacity, fetches that return outdated snapshots, cancellations, and lanes that keep the order of each
//! key.

use super::*;
use crate::delivery::{ScheduledAttempt, State, Trigger};
use crate::id::{EndpointId, EventId};
use crate::time::Span;

const NOW: Timestamp = Timestamp(1_000_000);
const LATER: Timestamp = Timestamp(1_010_000);
const MUCH_LATER: Timestamp = Timestamp(2_000_000);

fn keyed(id: u128, key: Option<u64>) -> Delivery {
    Delivery::schedule(
        DeliveryId(id),
        EventId(id),
        EndpointId(1),
        key.map(OrderingKey),
        NOW,
        Span::from_hours(72),
    )
}

fn fresh(id: u128) -> Delivery {
    keyed(id, None)
}

/// The delivery after `attempts` attempts, with the next one due at `at`.
fn retrying(delivery: &Delivery, attempts: u32, at: Timestamp) -> Delivery {
    let mut facts = delivery.facts().clone();
    facts.attempts = attempts;
    facts.spent = attempts;
    let trigger = Trigger::Automatic;
    Delivery::restore(facts, State::Retrying(ScheduledAttempt { at, trigger }))
}

fn succeeded(delivery: &Delivery) -> Delivery {
    let mut facts = delivery.facts().clone();
    facts.attempts += 1;
    Delivery::restore(facts, State::Succeeded { at: NOW })
}

fn fetched(deliveries: Vec<Delivery>) -> Fetched {
    Fetched {
        deliveries,
        next_due: None,
        blocked: false,
        unreadable: Vec::new(),
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<u128> {
    deliveries.iter().map(|delivery| delivery.id().0).collect()
}

fn take_all(backlog: &mut Backlog) -> Vec<u128> {
    let taken: Vec<Delivery> = std::iter::from_fn(|| backlog.take()).collect();
    ids(&taken)
}

fn ordered(capacity: usize) -> Backlog {
    let mut backlog = Backlog::new(capacity);
    backlog.set_ordered(true, NOW);
    backlog.begin_fetch(0);
    backlog.end_fetch(0, fetched(Vec::new()));
    assert_eq!(backlog.stored_due(), None);
    backlog
}

#[test]
fn deliveries_are_served_in_order_and_the_rest_stays_in_the_store() {
    let mut backlog = Backlog::new(2);
    assert!(backlog.is_idle() && !backlog.has_ready());
    for id in 1..=4 {
        backlog.offer(fresh(id), NOW);
    }
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (2, Some(NOW)));
    assert!(!backlog.is_idle());
    assert_eq!(take_all(&mut backlog), [1, 2]);
}

#[test]
fn scheduled_deliveries_stay_in_the_store_until_due() {
    let mut backlog = Backlog::new(2);
    backlog.offer(fresh(1), Timestamp(NOW.0 - 1));
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    assert!(!backlog.wants_fetch(Timestamp(NOW.0 - 1)));
    assert!(backlog.wants_fetch(NOW));
}

#[test]
fn the_earliest_stored_due_time_is_kept() {
    let mut backlog = Backlog::new(2);
    for due in [MUCH_LATER, LATER, MUCH_LATER] {
        backlog.note_stored(due);
    }
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert!(!backlog.is_idle());
}

#[test]
fn one_fetch_at_a_time_when_half_empty_for_the_free_capacity() {
    let mut backlog = Backlog::new(4);
    for id in 1..=5 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    assert!(!backlog.wants_fetch(NOW), "three of four slots are filled");
    backlog.take();
    assert!(backlog.wants_fetch(NOW));
    // There is space for two deliveries, and the four known ones may be returned again.
    assert_eq!(backlog.begin_fetch(9), 6);
    assert_eq!(backlog.stored_due(), None);
    assert!(!backlog.is_idle());
    backlog.note_stored(NOW);
    assert!(!backlog.wants_fetch(NOW), "a fetch is in progress");
    let all = (1..=7).map(fresh).collect();
    assert!(backlog.end_fetch(9, fetched(all)));
    // Known deliveries are ignored, the list is filled, and the due time of the remaining one is noted.
    assert_eq!(backlog.stored_due(), Some(NOW));
    assert_eq!(take_all(&mut backlog), [3, 4, 5, 6]);
}

#[test]
fn deliveries_beyond_the_capacity_stay_in_the_store() {
    let mut backlog = Backlog::new(2);
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    backlog.offer(fresh(10), NOW);
    backlog.end_fetch(0, fetched(vec![fresh(1), fresh(2)]));
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (2, Some(NOW)));
}

#[test]
fn an_unexpected_fetch_result_is_refused() {
    let mut backlog = Backlog::new(4);
    backlog.note_stored(NOW);
    backlog.begin_fetch(7);
    assert!(!backlog.end_fetch(6, fetched(vec![fresh(1)])));
    assert!(!backlog.fail_fetch(6, NOW));
    assert_eq!(backlog.ready_len(), 0);
    assert!(backlog.fail_fetch(7, LATER));
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert!(!backlog.end_fetch(7, fetched(vec![fresh(1)])));
    assert_eq!(backlog.ready_len(), 0);
}

#[test]
fn an_old_snapshot_adds_no_delivery_twice() {
    let mut backlog = Backlog::new(4);
    for id in 1..=3 {
        backlog.offer(fresh(id), NOW);
    }
    take_all(&mut backlog);
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    backlog.settled(&succeeded(&fresh(1)), NOW);
    backlog.settled(&retrying(&fresh(2), 1, LATER), NOW);
    // The first has ended, the second waits for a retry, the third is in flight.
    backlog.end_fetch(0, fetched((1..=4).map(fresh).collect()));
    assert_eq!(take_all(&mut backlog), [4]);
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert_eq!(backlog.taken(), [DeliveryId(3), DeliveryId(4)]);
}

#[test]
fn a_delivery_settled_during_a_fetch_is_taken_from_a_later_one() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    backlog.take();
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    let again = retrying(&fresh(1), 1, LATER);
    backlog.settled(&again, NOW);
    backlog.end_fetch(0, fetched(vec![fresh(1)]));
    backlog.begin_fetch(1);
    backlog.end_fetch(1, fetched(vec![again]));
    assert_eq!(take_all(&mut backlog), [1]);
}

#[test]
fn a_row_that_changed_since_is_fetched_again() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    backlog.take();
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    // Its first attempt is recorded and it was replayed, but the backlog has not been informed of either.
    backlog.end_fetch(0, fetched(vec![retrying(&fresh(1), 1, NOW)]));
    assert!(!backlog.has_ready());
    assert_eq!(backlog.stored_due(), None);
    backlog.settled(&succeeded(&fresh(1)), LATER);
    assert_eq!(backlog.stored_due(), Some(LATER));
    // The store is checked only once more.
    backlog.begin_fetch(1);
    backlog.end_fetch(1, fetched(vec![retrying(&fresh(1), 1, NOW)]));
    backlog.take();
    backlog.settled(&succeeded(&retrying(&fresh(1), 1, NOW)), LATER);
    assert!(backlog.is_idle());
}

#[test]
fn a_late_or_repeated_acceptance_adds_nothing() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    backlog.offer(fresh(1), NOW);
    assert_eq!(take_all(&mut backlog), [1]);
    backlog.offer(fresh(1), NOW);
    backlog.settled(&succeeded(&fresh(1)), NOW);
    assert!(backlog.is_idle());
}

#[test]
fn settling_a_first_attempt_reports_that_an_acceptance_may_follow() {
    let mut backlog = Backlog::new(4);
    let again = retrying(&fresh(2), 1, NOW);
    backlog.offer(fresh(1), NOW);
    backlog.note_stored(NOW);
    backlog.begin_fetch(7);
    backlog.end_fetch(7, fetched(vec![again.clone()]));
    assert_eq!(take_all(&mut backlog), [1, 2]);
    assert!(
        backlog.settled(&succeeded(&fresh(1)), NOW),
        "it was the delivery's first attempt"
    );
    assert!(
        !backlog.settled(&succeeded(&again), NOW),
        "it was the delivery's second attempt"
    );
}

#[test]
fn a_claimed_delivery_is_not_taken_until_unclaimed() {
    let mut backlog = Backlog::new(4);
    for id in 1..=3 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    assert_eq!(
        backlog.claim(DeliveryId(1)),
        ClaimResult::Taken,
        "the delivery is in flight"
    );
    assert_eq!(
        backlog.claim(DeliveryId(2)),
        ClaimResult::Claimed,
        "the delivery is in memory"
    );
    assert_eq!(
        backlog.claim(DeliveryId(9)),
        ClaimResult::Claimed,
        "the delivery is in the store"
    );
    let claimed = [DeliveryId(1), DeliveryId(2), DeliveryId(9)];
    assert_eq!(backlog.taken(), claimed);
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    backlog.release_claim(DeliveryId(2), NOW);
    let stale = vec![fresh(2), fresh(9)];
    backlog.end_fetch(0, fetched(stale));
    assert_eq!(take_all(&mut backlog), [3]);
    backlog.release_claim(DeliveryId(9), NOW);
    assert_eq!(backlog.taken(), [DeliveryId(1), DeliveryId(3)]);
}

#[test]
fn a_returned_delivery_is_taken_again() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    let delivery = backlog.take().unwrap();
    backlog.return_unsent(&delivery, LATER);
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert_eq!(backlog.taken(), []);
    backlog.begin_fetch(0);
    backlog.end_fetch(0, fetched(vec![fresh(1)]));
    assert_eq!(take_all(&mut backlog), [1]);
}

#[test]
fn spilling_drops_only_ready_deliveries() {
    let mut backlog = Backlog::new(4);
    for id in 1..=3 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    backlog.drop_ready();
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    assert_eq!(backlog.taken(), [DeliveryId(1)]);
    // Spilled deliveries can be fetched again; deliveries in flight cannot.
    backlog.begin_fetch(0);
    backlog.end_fetch(0, fetched((1..=3).map(fresh).collect()));
    assert_eq!(take_all(&mut backlog), [2, 3]);
    backlog.note_stored(NOW);
    backlog.forget_stored();
    assert_eq!(backlog.stored_due(), None);
}

#[test]
fn an_ordered_lane_takes_one_delivery_per_key_at_a_time() {
    let mut backlog = ordered(8);
    for (id, key) in [
        (1, Some(7)),
        (2, Some(7)),
        (3, Some(8)),
        (4, None),
        (5, None),
    ] {
        backlog.offer(keyed(id, key), NOW);
    }
    assert_eq!(take_all(&mut backlog), [1, 3, 4, 5]);
    assert_eq!((backlog.ready_len(), backlog.has_ready()), (1, false));
    backlog.settled(&succeeded(&keyed(3, Some(8))), NOW);
    assert!(!backlog.has_ready(), "the settled delivery has another key");
    backlog.settled(&succeeded(&keyed(1, Some(7))), NOW);
    assert_eq!(take_all(&mut backlog), [2]);
}

#[test]
fn a_retry_on_an_ordered_lane_spills_later_deliveries_of_its_key() {
    for fell in [false, true] {
        let mut backlog = ordered(8);
        for (id, key) in [(1, 7), (2, 7), (3, 8)] {
            backlog.offer(keyed(id, Some(key)), NOW);
        }
        let head = backlog.take().unwrap();
        if fell {
            backlog.return_unsent(&head, LATER);
        } else {
            backlog.settled(&retrying(&head, 1, LATER), NOW);
        }
        assert_eq!(take_all(&mut backlog), [3]);
        assert_eq!(backlog.stored_due(), Some(NOW));
        // A new delivery of the same key does not overtake it; one without a key may.
        backlog.offer(keyed(4, Some(7)), NOW);
        backlog.offer(keyed(5, None), NOW);
        assert_eq!(take_all(&mut backlog), [5]);
    }
}

#[test]
fn on_an_ordered_lane_new_deliveries_wait_for_stored_ones() {
    let mut backlog = ordered(2);
    backlog.note_stored(MUCH_LATER);
    backlog.offer(keyed(1, Some(7)), NOW);
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    backlog.begin_fetch(1);
    backlog.end_fetch(
        1,
        Fetched {
            deliveries: vec![keyed(1, Some(7))],
            next_due: None,
            blocked: true,
            unreadable: Vec::new(),
        },
    );
    backlog.offer(keyed(2, Some(8)), NOW);
    assert_eq!(
        backlog.ready_len(),
        1,
        "other deliveries are blocked in the store"
    );
    backlog.begin_fetch(2);
    backlog.offer(keyed(3, Some(9)), NOW);
    assert_eq!(backlog.ready_len(), 1, "a fetch is in progress");
    backlog.end_fetch(2, fetched(Vec::new()));
    backlog.offer(keyed(4, Some(9)), NOW);
    assert_eq!(
        backlog.ready_len(),
        1,
        "the third delivery was noted as stored during the fetch"
    );
    backlog.begin_fetch(3);
    backlog.end_fetch(3, fetched(Vec::new()));
    backlog.offer(keyed(5, Some(9)), NOW);
    assert_eq!(backlog.ready_len(), 2, "the store holds no more deliveries");
}

#[test]
fn settling_the_first_of_a_key_fetches_the_next() {
    for key in [Some(7), None] {
        let mut backlog = ordered(8);
        backlog.note_stored(NOW);
        backlog.begin_fetch(1);
        let blocked = Fetched {
            deliveries: vec![keyed(1, key)],
            next_due: None,
            blocked: true,
            unreadable: Vec::new(),
        };
        backlog.end_fetch(1, blocked);
        backlog.take();
        backlog.settled(&succeeded(&keyed(1, key)), LATER);
        assert_eq!(backlog.stored_due(), key.map(|_| LATER));
    }
    // If nothing is blocked in the store, no fetch is needed.
    let mut backlog = ordered(8);
    backlog.offer(keyed(1, Some(7)), NOW);
    backlog.take();
    backlog.settled(&succeeded(&keyed(1, Some(7))), LATER);
    assert_eq!(backlog.stored_due(), None);
    // The cancelled delivery may have been the oldest of its key.
    backlog.claim(DeliveryId(9));
    backlog.release_claim(DeliveryId(9), LATER);
    assert_eq!(backlog.stored_due(), Some(LATER));
}

#[test]
fn changing_the_ordering_spills_the_backlog() {
    for (was, is) in [(false, true), (true, false)] {
        let mut backlog = Backlog::new(4);
        if was {
            backlog = ordered(4);
        }
        backlog.offer(fresh(1), NOW);
        backlog.set_ordered(was, LATER);
        assert_eq!(backlog.ready_len(), 1, "the setting has not changed");
        backlog.set_ordered(is, LATER);
        assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    }
}

#[test]
#[should_panic(expected = "was accepted in state")]
fn an_ended_delivery_cannot_be_accepted() {
    Backlog::new(1).offer(succeeded(&fresh(1)), NOW);
}
