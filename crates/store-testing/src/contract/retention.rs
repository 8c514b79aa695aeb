//! Retention: finished data is removed after its period; unfinished data is never removed.
//!
//! An event is removed with all its rows when all its deliveries ended long enough ago. Runs work in small steps
//! that start over at the end. A removed event frees its idempotency key, and expired replays are removed too.

use posthaste_core::delivery::Status;
use posthaste_core::time::Span;

use super::Harness;
use super::fixture::{DAY, StoreFixture, all, at, event, id, keyed, tenant};
use super::replays;
use posthaste_store::{DeliveryFilter, EventFilter, Limits, Tenant, Written};

const EVER: u64 = 1_000 * DAY;

pub(super) async fn unfinished_data_is_kept(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let pending = world.send(at(0), "a.b").await;
    let retrying = world.send(at(0), "a.b").await;
    world.fail_retryably(retrying, at(1)).await;
    let again = world.send(at(0), "a.b").await;
    world.fail(again, at(1)).await;
    world.store.retry(at(2), id("acme"), again).await.unwrap();
    // An event is kept while one of its deliveries is unfinished.
    world.add_endpoint(2).await;
    let half = world.accept(at(0), event("acme", "a.b")).await;
    world.succeed(half.deliveries[0].id, at(1)).await;
    assert_eq!(world.step_retention(at(EVER), 1).await, 0);
    for sent in [pending, retrying, again] {
        assert!(!world.status(sent).await.is_terminal());
    }
    assert_eq!(world.status(half.deliveries[0].id).await, Status::Succeeded);
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        4
    );
    world.succeed(half.deliveries[1].id, at(EVER)).await;
    assert_eq!(
        world.step_retention(at(EVER), DAY).await,
        0,
        "the delivery ended too recently"
    );
    assert_eq!(world.step_retention(at(EVER + DAY + 1_000), DAY).await, 1);
}

pub(super) async fn expired_events_are_removed_with_all_their_rows(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let first = world.accept(at(0), event("acme", "a.b")).await;
    let sent = first.deliveries[0].id;
    world.fail_retryably(sent, at(1)).await;
    world.fail(sent, at(2)).await;
    let second = world.accept(at(0), event("acme", "a.b")).await;
    assert_eq!(
        world.cancel(second.deliveries[0].id, at(DAY)).await,
        Written::Applied
    );
    // The event whose delivery ended later is kept for longer.
    assert_eq!(world.step_retention(at(DAY), DAY).await, 0);
    assert_eq!(world.step_retention(at(DAY + 1_000), DAY).await, 1);
    assert_eq!(world.store.event(id("acme"), first.id).await, Ok(None));
    assert_eq!(world.store.content(first.id).await, Ok(None));
    assert_eq!(world.store.delivery(id("acme"), sent).await, Ok(None));
    assert_eq!(
        world.event_ids("acme", EventFilter::default()).await,
        [second.id]
    );
    let left = second.deliveries[0].id;
    assert_eq!(world.listed(DeliveryFilter::default()).await, [left]);
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        0
    );
    let gone = world.store.retry(at(3 * DAY), id("acme"), sent).await;
    assert_eq!(gone, Ok(posthaste_store::RetryResult::NoSuchDelivery));
    // An event without deliveries ended when it was accepted.
    let world = world.reopened().await;
    world
        .set_status(
            posthaste_core::id::EndpointId(1),
            posthaste_core::lane::EndpointStatus::Disabled,
        )
        .await;
    world.accept(at(DAY), event("acme", "a.b")).await;
    assert_eq!(world.step_retention(at(3 * DAY), DAY).await, 2);
    assert_eq!(world.event_ids("acme", EventFilter::default()).await, []);
}

pub(super) async fn a_tenant_can_have_its_own_retention(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    for (name, days) in [("short", Some(1)), ("usual", None), ("long", Some(30))] {
        let made = Tenant {
            limits: Limits {
                retention: days.map(Span::from_days),
                ..Limits::default()
            },
            ..tenant(name)
        };
        world.store.create_tenant(at(0), made).await.unwrap();
        world.accept(at(0), event(name, "a.b")).await;
    }
    let mut left = Vec::new();
    for days in [2, 8, 31] {
        world.step_retention(at(days * DAY), 7 * DAY).await;
        for name in ["short", "usual", "long"] {
            left.push(world.event_ids(name, EventFilter::default()).await.len());
        }
    }
    assert_eq!(left, [0, 1, 1, 0, 0, 1, 0, 0, 0]);
}

pub(super) async fn a_removed_event_frees_its_idempotency_key(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let old = world.accept(at(0), keyed("acme", "k", "content")).await;
    assert_eq!(world.step_retention(at(2 * DAY), DAY).await, 1);
    let fresh = world
        .accept_all(at(2 * DAY), vec![keyed("acme", "k", "other")])
        .await;
    assert!(fresh[0].is_new);
    assert!(fresh[0].event.id > old.id);
}

pub(super) async fn retention_steps_start_over_at_the_end(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let mut sent = Vec::new();
    for ms in 0..10 {
        sent.push(world.send(at(ms), "a.b").await);
    }
    for delivery in &sent[..8] {
        world.succeed(*delivery, at(100)).await;
    }
    let mut removed = 0;
    for _ in 0..20 {
        let step = world.retention_step(at(2 * DAY), DAY, 3).await;
        assert!(step.events <= 3, "a step removes at most its limit");
        removed += step.events;
    }
    assert_eq!(removed, 8);
    // Deliveries that end behind the position of the run are found in its next round.
    for delivery in &sent[8..] {
        world.succeed(*delivery, at(2 * DAY)).await;
    }
    assert_eq!(world.step_retention(at(4 * DAY), DAY).await, 2);
}

pub(super) async fn expired_replays_are_removed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let done = replays::failed(&world, at(0)).await;
    let step = world.store.step_replay(at(DAY), done.id, 1).await;
    assert_eq!(
        step.unwrap().unwrap().replay.status,
        posthaste_store::ReplayStatus::Done
    );
    let cancelled = replays::failed(&world, at(0)).await;
    let cancel = world
        .store
        .cancel_replay(at(2 * DAY), id("acme"), cancelled.id);
    assert!(cancel.await.unwrap().is_some());
    let running = replays::failed(&world, at(0)).await;
    let mut left = Vec::new();
    for now in [DAY + DAY - 1_000, 2 * DAY + 1_000, EVER] {
        world.step_retention(at(now), DAY).await;
        let listed = all(9, |page| world.store.replays(id("acme"), page)).await;
        left.push(listed.iter().map(|it| it.id).collect::<Vec<_>>());
    }
    assert_eq!(
        left,
        [
            vec![running.id, cancelled.id, done.id],
            vec![running.id, cancelled.id],
            vec![running.id]
        ]
    );
    let world = world.reopened().await;
    assert!(
        replays::failed(&world, at(0)).await.id > running.id,
        "ids are not reused"
    );
}
