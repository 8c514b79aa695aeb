//! Fetching due deliveries.
//!
//! A fetch returns the due deliveries of one endpoint, earliest first, up to a limit, and the due time of the next
//! one. For an ordered endpoint it returns only the oldest unfinished delivery of each ordering key. The list of
//! unfinished work contains every endpoint that has any, with its earliest due time.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::{EndpointStatus, Fetched};

use super::Harness;
use super::fixture::{HOUR, StoreFixture, at, endpoint, event, id, ordered, set};
use posthaste_store::NewEvent;

fn ids(fetched: &Fetched) -> Vec<DeliveryId> {
    fetched
        .deliveries
        .iter()
        .map(|delivery| delivery.id())
        .collect()
}

async fn send_at(world: &StoreFixture<'_>, due: u64) -> DeliveryId {
    let later = NewEvent {
        deliver_at: Some(at(due)),
        ..event("acme", "a.b")
    };
    world.accept(at(0), later).await.deliveries[0].id
}

pub(super) async fn due_deliveries_are_returned_earliest_first(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let mut due = Vec::new();
    for ms in [50, 20, 90, 20, 70] {
        due.push((ms, send_at(&world, ms).await));
    }
    let ended = send_at(&world, 10).await;
    world.cancel(ended, at(0)).await;
    due.sort();
    let expected: Vec<DeliveryId> = due.iter().map(|(_, id)| *id).collect();
    let fetched = world.fetch(made, at(90), 10, false).await;
    assert_eq!(ids(&fetched), expected);
    assert_eq!((fetched.next_due, fetched.blocked), (None, false));
    for delivery in &fetched.deliveries {
        assert_eq!(*delivery, world.delivery(delivery.id()).await, "whole");
    }
    assert_eq!(
        ids(&world.fetch(made, at(90), 2, false).await),
        expected[..2]
    );
    assert_eq!(
        ids(&world.fetch(made, at(70), 9, false).await),
        expected[..4]
    );
    assert_eq!(ids(&world.fetch(made, at(19), 9, false).await), []);
    let nothing = world.fetch(EndpointId(77), at(90), 10, false).await;
    assert_eq!(
        (ids(&nothing), nothing.next_due, nothing.blocked),
        (vec![], None, false)
    );
}

pub(super) async fn the_next_due_time_is_returned(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    for ms in [30, 10, 20] {
        send_at(&world, ms).await;
    }
    for (due_by, limit, count, next_due) in [
        (5, 9, 0, Some(10)),
        (10, 9, 1, Some(20)),
        (30, 1, 1, Some(20)),
        (30, 2, 2, Some(30)),
        (30, 3, 3, None),
        (99, 9, 3, None),
    ] {
        let fetched = world.fetch(made, at(due_by), limit, false).await;
        assert_eq!(
            fetched.deliveries.len(),
            count,
            "by {due_by}, at most {limit}"
        );
        assert_eq!(
            fetched.next_due,
            next_due.map(at),
            "by {due_by}, at most {limit}"
        );
    }
}

pub(super) async fn only_the_oldest_delivery_of_an_ordering_key_is_returned(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let other = world.add(endpoint(2, "acme", &["elsewhere"])).await;
    let mut sent = Vec::new();
    for (key, ms) in [(1, 40), (1, 10), (2, 20), (1, 30), (2, 5)] {
        let later = NewEvent {
            deliver_at: Some(at(ms)),
            ..ordered("acme", key)
        };
        sent.push(world.accept(at(0), later).await.deliveries[0].id);
    }
    let free = send_at(&world, 50).await;
    let elsewhere = NewEvent {
        only: Some(other),
        ..ordered("acme", 1)
    };
    world.accept(at(0), elsewhere).await;

    // The oldest is the one with the smallest id, even if another is due before it.
    let fetched = world.fetch(made, at(99), 10, true).await;
    assert_eq!(ids(&fetched), [sent[2], sent[0], free]);
    assert!(fetched.blocked);
    assert_eq!(fetched.next_due, None);
    // A blocked delivery does not determine `next_due`.
    let fetched = world.fetch(made, at(15), 10, true).await;
    assert_eq!((ids(&fetched), fetched.next_due), (vec![], Some(at(20))));
    assert!(fetched.blocked);
    let fetched = world.fetch(made, at(99), 1, true).await;
    assert_eq!(
        (ids(&fetched), fetched.next_due),
        (vec![sent[2]], Some(at(40)))
    );
    assert!(fetched.blocked);

    // A delivery that waits for a retry still blocks; one that has ended does not.
    world.fail_retryably(sent[0], at(60)).await;
    let fetched = world.fetch(made, at(61), 10, true).await;
    assert_eq!(ids(&fetched), [sent[2], free]);
    world.succeed(sent[0], at(62)).await;
    world.succeed(sent[2], at(62)).await;
    let fetched = world.fetch(made, at(99), 10, true).await;
    assert_eq!(ids(&fetched), [sent[4], sent[1], free]);
    world.succeed(sent[4], at(63)).await;
    world.cancel(sent[1], at(63)).await;
    let fetched = world.fetch(made, at(99), 10, true).await;
    assert_eq!(ids(&fetched), [sent[3], free]);
    assert_eq!((fetched.blocked, fetched.next_due), (false, None));
}

pub(super) async fn ordering_keys_are_ignored_on_unordered_endpoints(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    for _ in 0..3 {
        world.accept(at(1), ordered("acme", 1)).await;
    }
    let fetched = world.fetch(made, at(1), 10, false).await;
    assert_eq!((fetched.deliveries.len(), fetched.blocked), (3, false));
}

pub(super) async fn a_replayed_delivery_keeps_its_position_in_the_order(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let first = world.accept(at(1), ordered("acme", 1)).await.deliveries[0].id;
    let second = world.accept(at(2), ordered("acme", 1)).await.deliveries[0].id;
    world.fail(first, at(3)).await;
    assert_eq!(ids(&world.fetch(made, at(9), 10, true).await), [second]);
    world.store.retry(at(4), id("acme"), first).await.unwrap();
    let fetched = world.fetch(made, at(9), 10, true).await;
    assert_eq!(ids(&fetched), [first]);
    assert!(fetched.blocked);
}

pub(super) async fn unfinished_work_returns_every_endpoint_with_its_earliest_due_time(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 1..=4 {
        world
            .add(endpoint(number, "acme", &[&format!("to.{number}")]))
            .await;
    }
    let send = |number: u128, ms| {
        let later = NewEvent {
            deliver_at: Some(at(ms)),
            ..event("acme", &format!("to.{number}"))
        };
        world.accept(at(0), later)
    };
    send(1, 30).await;
    send(1, 20).await;
    let ended = send(1, 10).await.deliveries[0].id;
    world.cancel(ended, at(0)).await;
    let ended = send(2, 10).await.deliveries[0].id;
    world.succeed(ended, at(10)).await;
    let again = send(3, 10).await.deliveries[0].id;
    world.fail_retryably(again, at(10)).await;
    let again_at = world.delivery(again).await.next_attempt_at().unwrap();
    send(4, HOUR).await;
    // Waiting deliveries of a deleted endpoint must still be failed.
    world
        .set_status(EndpointId(4), EndpointStatus::Deleted)
        .await;
    let expected = set([
        (EndpointId(1), at(20)),
        (EndpointId(3), again_at),
        (EndpointId(4), at(HOUR)),
    ]);
    let found = world.store.unfinished_work().await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(set(found), expected);
    let world = world.reopened().await;
    assert_eq!(set(world.store.unfinished_work().await.unwrap()), expected);
}
