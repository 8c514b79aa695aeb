//! Counts and notifications.
//!
//! The counts that a store keeps equal those of a recount after every kind of change. Deliveries that have been in
//! retry for long are counted up to a limit. Notifications are read in order from any position.

use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::dispatcher::EndpointChange;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;

use super::Harness;
use super::fixture::{DAY, HOUR, StoreFixture, answered, at, attempt, endpoint, event, id};
use posthaste_store::{Counts, DeliveryFilter, TenantSelection, Written};

/// Compares the counts with all deliveries of acme and other, counted individually.
async fn assert_counted(world: &StoreFixture<'_>, step: &str) {
    let mut counts = Counts::default();
    let mut waiting = [0; 3];
    for tenant in ["acme", "other"] {
        for stored in world.deliveries(tenant, DeliveryFilter::default()).await {
            let status = stored.delivery.status();
            if !status.is_terminal() {
                counts.pending += 1;
                waiting[stored.delivery.facts().endpoint.0 as usize] += 1;
            }
            counts.dead_letters += u64::from(status == Status::Failed);
        }
    }
    assert_eq!(
        world.store.counts().await.expect("the counts can be read"),
        counts,
        "after {step}"
    );
    for number in [1, 2] {
        let pending = world
            .store
            .pending(EndpointId(number))
            .await
            .expect("the count can be read");
        assert_eq!(
            pending, waiting[number as usize],
            "pending deliveries of endpoint {number}, after {step}"
        );
    }
}

pub(super) async fn counts_equal_a_recount(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let made = world.add_endpoint(1).await;
    world.add(endpoint(2, "other", &[])).await;
    assert_counted(&world, "nothing").await;
    let mut sent = Vec::new();
    for ms in 0..8 {
        sent.push(world.send(at(ms), "a.b").await);
        world.accept(at(ms), event("other", "a.b")).await;
    }
    assert_counted(&world, "accepting").await;
    world.succeed(sent[0], at(10)).await;
    world.fail(sent[1], at(10)).await;
    world.fail(sent[2], at(10)).await;
    world.fail_retryably(sent[3], at(10)).await;
    assert_eq!(world.cancel(sent[4], at(10)).await, Written::Applied);
    assert_counted(&world, "attempts").await;
    world
        .store
        .retry(at(20), id("acme"), sent[0])
        .await
        .unwrap();
    world
        .store
        .retry(at(20), id("acme"), sent[1])
        .await
        .unwrap();
    world
        .store
        .retry(at(20), id("acme"), sent[3])
        .await
        .unwrap();
    assert_counted(&world, "retries").await;
    let replay = super::replays::failed(&world, at(21)).await;
    world.store.step_replay(at(22), replay.id, 9).await.unwrap();
    assert_counted(&world, "a replay").await;
    world.fail(sent[2], at(23)).await;
    world.set_status(made, EndpointStatus::Disabled).await;
    world
        .sweep(at(24), made, DeadReason::EndpointDisabled)
        .await;
    assert_counted(&world, "a sweep").await;
    let world = world.reopened().await;
    assert_counted(&world, "a restart").await;
    assert!(world.step_retention(at(9 * DAY), DAY).await > 0);
    assert_counted(&world, "tidying").await;
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        0
    );
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        8
    );
    let world = world.reopened().await;
    assert_counted(&world, "another restart").await;
}

pub(super) async fn deliveries_in_retry_for_long_are_counted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    world.add(endpoint(2, "other", &[])).await;
    let mut sent = Vec::new();
    for hour in 0..5 {
        sent.push(world.send(at(hour * HOUR), "a.b").await);
    }
    world.accept(at(0), event("other", "a.b")).await;
    let others = world.recorder.take().pop().unwrap().delivery;
    let stumbled = attempt(&others, at(1), answered(503));
    assert_eq!(world.record(at(1), stumbled).await, Written::Applied);
    for delivery in &sent[..4] {
        world.fail_retryably(*delivery, at(4 * HOUR)).await;
    }
    world.succeed(sent[0], at(5 * HOUR)).await;
    let count = |tenant: Option<&str>, since, limit| {
        let tenants = tenant.map_or(TenantSelection::All, |it| TenantSelection::Only(id(it)));
        world.store.retrying_since(tenants, at(since), limit)
    };
    let count_others = |tenant: &str, limit| {
        let tenants = TenantSelection::Except(id(tenant));
        world.store.retrying_since(tenants, at(9 * HOUR), limit)
    };
    assert_eq!(count(Some("acme"), HOUR, 99).await, Ok(0));
    assert_eq!(count(Some("acme"), HOUR + 1, 99).await, Ok(1));
    assert_eq!(count(Some("acme"), 9 * HOUR, 99).await, Ok(3));
    assert_eq!(count(Some("acme"), 9 * HOUR, 2).await, Ok(2));
    assert_eq!(count(Some("other"), 9 * HOUR, 99).await, Ok(1));
    assert_eq!(count(Some("nobody"), 9 * HOUR, 99).await, Ok(0));
    assert_eq!(count(None, 9 * HOUR, 99).await, Ok(4));
    assert_eq!(count_others("other", 99).await, Ok(3));
    assert_eq!(count_others("other", 2).await, Ok(2));
    assert_eq!(count_others("nobody", 99).await, Ok(4));
    // The limit applies to what is counted: deliveries of the tenant that is left out do not fill it.
    assert_eq!(count_others("acme", 1).await, Ok(1));
    assert_eq!(count_others("acme", 99).await, Ok(1));
    // A new round starts a new wait.
    world.fail(sent[1], at(6 * HOUR)).await;
    world
        .store
        .retry(at(7 * HOUR), id("acme"), sent[1])
        .await
        .unwrap();
    world.fail_retryably(sent[1], at(7 * HOUR)).await;
    assert_eq!(count(Some("acme"), 7 * HOUR, 99).await, Ok(2));
    assert_eq!(count(Some("acme"), 7 * HOUR + 1, 99).await, Ok(3));
}

pub(super) async fn notifications_are_read_from_a_position(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    for ms in 0..5 {
        let sent = world.send(at(ms), "a.b").await;
        let mut settled = attempt(&world.delivery(sent).await, at(ms), answered(200));
        settled.endpoint_changes = vec![EndpointChange::Recovered];
        assert_eq!(world.record(at(ms), settled).await, Written::Applied);
    }
    let notifications = world.store.notifications(0, 99).await.unwrap();
    assert_eq!(notifications.len(), 5);
    for (index, notification) in notifications.iter().enumerate() {
        let rest = world
            .store
            .notifications(notification.number, 2)
            .await
            .unwrap();
        let end = (index + 3).min(5);
        assert_eq!(rest, notifications[index + 1..end]);
    }
}
