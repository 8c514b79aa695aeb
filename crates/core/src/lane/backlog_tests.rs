//! Tests of the backlog.

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
fn first_come_first_served_and_the_rest_stays_on_disk() {
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
fn what_is_scheduled_for_later_stays_on_disk_until_then() {
    let mut backlog = Backlog::new(2);
    backlog.offer(fresh(1), Timestamp(NOW.0 - 1));
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    assert!(!backlog.wants_fetch(Timestamp(NOW.0 - 1)));
    assert!(backlog.wants_fetch(NOW));
}

#[test]
fn the_earliest_of_what_is_on_disk_is_remembered() {
    let mut backlog = Backlog::new(2);
    for due in [MUCH_LATER, LATER, MUCH_LATER] {
        backlog.note_stored(due);
    }
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert!(!backlog.is_idle());
}

#[test]
fn fetches_one_at_a_time_when_half_empty_and_asks_for_what_there_is_room_for() {
    let mut backlog = Backlog::new(4);
    for id in 1..=5 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    assert!(!backlog.wants_fetch(NOW), "three of four are there");
    backlog.take();
    assert!(backlog.wants_fetch(NOW));
    // There is space for two deliveries, and the four known ones may be returned again.
    assert_eq!(backlog.begin_fetch(9), 6);
    assert_eq!(backlog.stored_due(), None);
    assert!(!backlog.is_idle());
    backlog.note_stored(NOW);
    assert!(!backlog.wants_fetch(NOW), "one is under way");
    let all = (1..=7).map(fresh).collect();
    assert!(backlog.end_fetch(9, fetched(all)));
    // Known deliveries are ignored, the list is filled, and the due time of the remaining one is noted.
    assert_eq!(backlog.stored_due(), Some(NOW));
    assert_eq!(take_all(&mut backlog), [3, 4, 5, 6]);
}

#[test]
fn what_did_not_fit_is_on_disk_still() {
    let mut backlog = Backlog::new(2);
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    backlog.offer(fresh(10), NOW);
    backlog.end_fetch(0, fetched(vec![fresh(1), fresh(2)]));
    assert_eq!((backlog.ready_len(), backlog.stored_due()), (2, Some(NOW)));
}

#[test]
fn an_answer_that_is_not_awaited_is_refused() {
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
fn nothing_is_taken_twice_however_old_the_snapshot() {
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
fn what_settled_during_an_earlier_fetch_is_taken_from_a_later_one() {
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
fn a_row_that_has_moved_on_is_looked_at_again() {
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
fn word_that_comes_late_or_twice_adds_nothing() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    backlog.offer(fresh(1), NOW);
    assert_eq!(take_all(&mut backlog), [1]);
    backlog.offer(fresh(1), NOW);
    backlog.settled(&succeeded(&fresh(1)), NOW);
    assert!(backlog.is_idle());
}

#[test]
fn says_of_which_deliveries_word_may_still_be_on_its_way() {
    let mut backlog = Backlog::new(4);
    let again = retrying(&fresh(2), 1, NOW);
    backlog.offer(fresh(1), NOW);
    backlog.note_stored(NOW);
    backlog.begin_fetch(7);
    backlog.end_fetch(7, fetched(vec![again.clone()]));
    assert_eq!(take_all(&mut backlog), [1, 2]);
    assert!(backlog.settled(&succeeded(&fresh(1)), NOW), "its first");
    assert!(!backlog.settled(&succeeded(&again), NOW), "its second");
}

#[test]
fn a_claimed_delivery_is_nobody_elses_until_it_is_settled() {
    let mut backlog = Backlog::new(4);
    for id in 1..=3 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    assert_eq!(
        backlog.claim(DeliveryId(1)),
        Claim::Taken,
        "it is in flight"
    );
    assert_eq!(
        backlog.claim(DeliveryId(2)),
        Claim::Claimed,
        "it is in memory"
    );
    assert_eq!(
        backlog.claim(DeliveryId(9)),
        Claim::Claimed,
        "it is on disk"
    );
    let claimed = [DeliveryId(1), DeliveryId(2), DeliveryId(9)];
    assert_eq!(backlog.taken(), claimed);
    backlog.note_stored(NOW);
    backlog.begin_fetch(0);
    backlog.unclaim(DeliveryId(2), NOW);
    let stale = vec![fresh(2), fresh(9)];
    backlog.end_fetch(0, fetched(stale));
    assert_eq!(take_all(&mut backlog), [3]);
    backlog.unclaim(DeliveryId(9), NOW);
    assert_eq!(backlog.taken(), [DeliveryId(1), DeliveryId(3)]);
}

#[test]
fn what_goes_back_untouched_comes_again() {
    let mut backlog = Backlog::new(4);
    backlog.offer(fresh(1), NOW);
    let delivery = backlog.take().unwrap();
    backlog.untaken(&delivery, LATER);
    assert_eq!(backlog.stored_due(), Some(LATER));
    assert_eq!(backlog.taken(), []);
    backlog.begin_fetch(0);
    backlog.end_fetch(0, fetched(vec![fresh(1)]));
    assert_eq!(take_all(&mut backlog), [1]);
}

#[test]
fn spilling_forgets_what_was_ready_and_nothing_else() {
    let mut backlog = Backlog::new(4);
    for id in 1..=3 {
        backlog.offer(fresh(id), NOW);
    }
    backlog.take();
    backlog.spill();
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
fn an_ordered_lane_takes_one_of_each_key_at_a_time() {
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
    assert!(!backlog.has_ready(), "another key");
    backlog.settled(&succeeded(&keyed(1, Some(7))), NOW);
    assert_eq!(take_all(&mut backlog), [2]);
}

#[test]
fn a_head_that_must_go_again_sends_what_stands_behind_it_to_the_disk() {
    for fell in [false, true] {
        let mut backlog = ordered(8);
        for (id, key) in [(1, 7), (2, 7), (3, 8)] {
            backlog.offer(keyed(id, Some(key)), NOW);
        }
        let head = backlog.take().unwrap();
        if fell {
            backlog.untaken(&head, LATER);
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
fn on_an_ordered_lane_a_newcomer_waits_while_anything_on_disk_could_be_older() {
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
        },
    );
    backlog.offer(keyed(2, Some(8)), NOW);
    assert_eq!(backlog.ready_len(), 1, "others are blocked on disk");
    backlog.begin_fetch(2);
    backlog.offer(keyed(3, Some(9)), NOW);
    assert_eq!(backlog.ready_len(), 1, "a fetch is under way");
    backlog.end_fetch(2, fetched(Vec::new()));
    backlog.offer(keyed(4, Some(9)), NOW);
    assert_eq!(backlog.ready_len(), 1, "the third was noted meanwhile");
    backlog.begin_fetch(3);
    backlog.end_fetch(3, fetched(Vec::new()));
    backlog.offer(keyed(5, Some(9)), NOW);
    assert_eq!(backlog.ready_len(), 2, "now the disk holds nothing more");
}

#[test]
fn the_end_of_a_head_makes_an_ordered_lane_ask_for_the_next() {
    for key in [Some(7), None] {
        let mut backlog = ordered(8);
        backlog.note_stored(NOW);
        backlog.begin_fetch(1);
        let blocked = Fetched {
            deliveries: vec![keyed(1, key)],
            next_due: None,
            blocked: true,
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
    backlog.unclaim(DeliveryId(9), LATER);
    assert_eq!(backlog.stored_due(), Some(LATER));
}

#[test]
fn a_change_of_the_rule_sends_everything_back_to_the_disk() {
    for (was, is) in [(false, true), (true, false)] {
        let mut backlog = Backlog::new(4);
        if was {
            backlog = ordered(4);
        }
        backlog.offer(fresh(1), NOW);
        backlog.set_ordered(was, LATER);
        assert_eq!(backlog.ready_len(), 1, "nothing has changed");
        backlog.set_ordered(is, LATER);
        assert_eq!((backlog.ready_len(), backlog.stored_due()), (0, Some(NOW)));
    }
}

#[test]
#[should_panic(expected = "was accepted in state")]
fn what_has_ended_cannot_be_accepted() {
    Backlog::new(1).offer(succeeded(&fresh(1)), NOW);
}
