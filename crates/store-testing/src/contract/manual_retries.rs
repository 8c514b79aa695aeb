//! Manual retries of single deliveries.
//!
//! A retry makes a waiting delivery due now and starts a new round of an ended one; earlier attempts are kept.
//! Disabled and deleted endpoints refuse it, and a delivery of another tenant does not exist.

use posthaste_core::delivery::{ScheduledAttempt, State, Status, Trigger};
use posthaste_core::id::DeliveryId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{DAY, StoreFixture, at, id};
use posthaste_store::{RetryResult, Written};

fn manual_attempt(at: Timestamp) -> ScheduledAttempt {
    ScheduledAttempt {
        at,
        trigger: Trigger::Manual,
    }
}

async fn retry(world: &StoreFixture<'_>, now: u64, delivery: DeliveryId) -> RetryResult {
    let retried = world.store.retry(at(now), id("acme"), delivery).await;
    retried.expect("the retry is written")
}

pub(super) async fn a_waiting_delivery_is_due_now(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoint = world.add_endpoint(1).await;
    let waiting = world.send(at(1), "a.b").await;
    let retrying = world.send(at(1), "a.b").await;
    world.fail_retryably(retrying, at(2)).await;
    let spent = world.delivery(retrying).await.facts().clone();
    world.set_status(endpoint, EndpointStatus::Paused).await;
    for sent in [waiting, retrying] {
        assert_eq!(
            retry(&world, 5, sent).await,
            RetryResult::DueNow { endpoint }
        );
    }
    assert_eq!(
        world.delivery(waiting).await.state(),
        State::Pending(manual_attempt(at(5)))
    );
    let hastened = world.delivery(retrying).await;
    assert_eq!(hastened.state(), State::Retrying(manual_attempt(at(5))));
    assert_eq!(
        *hastened.facts(),
        spent,
        "the attempts of the delivery still count"
    );
    let fetched = world.fetch(endpoint, at(5), 9, false).await;
    assert_eq!(fetched.deliveries.len(), 2);
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        2
    );
}

pub(super) async fn an_ended_delivery_starts_a_new_round(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoint = world.add_endpoint(1).await;
    let succeeded = world.send(at(1), "a.b").await;
    world.succeed(succeeded, at(2)).await;
    let failed = world.send(at(1), "a.b").await;
    world.fail_retryably(failed, at(2)).await;
    world.fail(failed, at(3)).await;
    let cancelled = world.send(at(1), "a.b").await;
    assert_eq!(world.cancel(cancelled, at(2)).await, Written::Applied);
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        1
    );
    for (sent, attempts) in [(succeeded, 1), (failed, 2), (cancelled, 0)] {
        let before = world.find(sent).await.1;
        assert_eq!(
            retry(&world, DAY, sent).await,
            RetryResult::Replayed { endpoint }
        );
        let (stored, kept) = world.find(sent).await;
        let facts = stored.delivery.facts();
        assert_eq!(
            stored.delivery.state(),
            State::Pending(manual_attempt(at(DAY)))
        );
        assert_eq!((facts.attempts, facts.spent), (attempts, 0));
        assert_eq!((facts.previous_delay, facts.granted.len()), (None, 0));
        assert_eq!(facts.due_at, at(DAY));
        let give_up_after = RetryPolicy::default().give_up_after;
        assert_eq!(facts.give_up_at, at(DAY).after(give_up_after));
        assert_eq!(kept, before, "earlier attempts are kept");
        assert_eq!(stored.created_at, at(1));
    }
    assert_eq!(
        (
            world
                .store
                .counts()
                .await
                .expect("the counts can be read")
                .pending,
            world
                .store
                .counts()
                .await
                .expect("the counts can be read")
                .dead_letters
        ),
        (3, 0)
    );
    world.succeed(failed, at(DAY + 1)).await;
    assert_eq!(world.status(failed).await, Status::Succeeded);
}

pub(super) async fn a_disabled_or_deleted_endpoint_refuses_retries(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoint = world.add_endpoint(1).await;
    let waiting = world.send(at(1), "a.b").await;
    let failed = world.send(at(1), "a.b").await;
    world.fail(failed, at(2)).await;
    for (status, expected) in [
        (EndpointStatus::Disabled, RetryResult::EndpointDisabled),
        (EndpointStatus::Deleted, RetryResult::EndpointDeleted),
    ] {
        world.set_status(endpoint, status).await;
        for sent in [waiting, failed] {
            let before = world.find(sent).await;
            assert_eq!(retry(&world, 5, sent).await, expected);
            assert_eq!(world.find(sent).await, before);
        }
    }
}

pub(super) async fn a_delivery_of_another_tenant_does_not_exist(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let endpoint = world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    world.fail(sent, at(2)).await;
    for other_tenant in ["other", "nobody"] {
        let retried = world.store.retry(at(5), id(other_tenant), sent).await;
        assert_eq!(retried, Ok(RetryResult::NoSuchDelivery));
        assert_eq!(world.store.delivery(id(other_tenant), sent).await, Ok(None));
    }
    assert_eq!(
        retry(&world, 5, DeliveryId(7)).await,
        RetryResult::NoSuchDelivery
    );
    assert_eq!(
        world
            .store
            .pending(endpoint)
            .await
            .expect("the count can be read"),
        0
    );
}
