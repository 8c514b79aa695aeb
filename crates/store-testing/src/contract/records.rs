//! Recording results: each exactly once.
//!
//! A record is applied only if the delivery has not changed since; otherwise it is superseded and changes nothing.
//! The cases check attempts of all rounds, stored health, automatic disabling, notifications and cancellations.

use posthaste_core::classify::{FailureKind, HttpStatus, Outcome, TransportError};
use posthaste_core::delivery::{DeadReason, Delivery, State, Status, Trigger};
use posthaste_core::dispatcher::{AttemptRecord, EndpointChange};
use posthaste_core::id::DeliveryId;
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, TripReason};
use posthaste_core::time::Span;

use super::Harness;
use super::fixture::{DAY, HOUR, StoreFixture, answered, at, attempt, detail, id};
use posthaste_store::{
    AttemptDetail, AttemptEntry, DisabledReason, PageRequest, SubjectScope, Written,
};

pub(super) async fn an_attempt_is_stored_with_its_detail(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    let (stored, attempts) = world.find(sent).await;
    assert_eq!((stored.last_attempt, attempts.len()), (None, 0));
    let asked = Outcome::Answered {
        status: HttpStatus::new(503).unwrap(),
        retry_after: Some(Span::from_secs(120)),
    };
    let made = attempt(&stored.delivery, at(2), asked);
    assert_eq!(world.record(at(12), made.clone()).await, Written::Applied);
    let (stored, attempts) = world.find(sent).await;
    let expected = AttemptEntry::new(&made.settlement, detail());
    assert_eq!(expected.retry_after_ms, Some(120_000));
    assert_eq!(expected.status_code, Some(503));
    assert_eq!(attempts, std::slice::from_ref(&expected));
    assert_eq!(stored.last_attempt, Some(expected));
    assert_eq!(stored.delivery, made.delivery);
    assert_eq!(stored.error_kind(), Some(FailureKind::Http));
    assert_eq!(stored.shown_status(), Status::Retrying);
}

pub(super) async fn attempts_of_all_rounds_stay_in_order(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    let neighbour = world.send(at(1), "a.b").await;
    let mut expected = Vec::new();
    for (number, code) in [503, 500, 400, 503, 200, 200].into_iter().enumerate() {
        let now = at(1_000 * (number as u64 + 1));
        if number == 3 || number == 5 {
            world.store.retry(now, id("acme"), sent).await.unwrap();
        }
        let before = world.delivery(sent).await;
        let made = attempt(&before, now, answered(code));
        assert_eq!(world.record(now, made.clone()).await, Written::Applied);
        expected.push(AttemptEntry::new(&made.settlement, detail()));
        let (stored, attempts) = world.find(sent).await;
        assert_eq!(attempts, expected);
        assert_eq!(stored.last_attempt.as_ref(), expected.last());
        assert_eq!(stored.delivery, made.delivery);
    }
    let numbers: Vec<u32> = expected.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(expected[3].trigger, Trigger::Manual);
    assert_eq!(
        world.find(neighbour).await.1,
        [],
        "the other delivery has no attempts"
    );
}

pub(super) async fn a_delivery_is_read_back_completely(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    // A failure kind with its own attempt limit leaves state in the delivery; so do two of them.
    let sent = world.send(at(1), "a.b").await;
    for (step, outcome) in [
        answered(404),
        Outcome::Failed(TransportError::Dns),
        answered(404),
    ]
    .into_iter()
    .enumerate()
    {
        let now = at(HOUR * (step as u64 + 1));
        let before = world.delivery(sent).await;
        let made = attempt(&before, now, outcome);
        assert_eq!(world.record(now, made.clone()).await, Written::Applied);
        let after = world.delivery(sent).await;
        assert_eq!(after, made.delivery, "after {outcome:?}");
        let fetched = world
            .fetch(after.facts().endpoint, at(99 * HOUR), 1, false)
            .await;
        if after.next_attempt_at().is_some() {
            assert_eq!(fetched.deliveries, [after]);
        }
    }
}

/// Checks that a record of an outdated state is refused and changes nothing.
async fn assert_superseded(world: &StoreFixture<'_>, stale: &AttemptRecord, sent: DeliveryId) {
    let before = world.find(sent).await;
    let endpoint = world.store.endpoint(stale.delivery.facts().endpoint).await;
    let counts = world.store.counts().await.expect("the counts can be read");
    let loud = AttemptRecord {
        health: Some(Health {
            revision: 1_000,
            ..Health::default()
        }),
        disable: Some(DisableCause::Gone),
        endpoint_changes: vec![EndpointChange::Recovered],
        ..stale.clone()
    };
    assert_eq!(world.record(at(9), loud).await, Written::Superseded);
    assert_eq!(world.find(sent).await, before);
    let after = world.store.endpoint(stale.delivery.facts().endpoint).await;
    assert_eq!(after, endpoint);
    assert_eq!(world.store.notifications(0, 9).await, Ok(Vec::new()));
    assert_eq!(
        world.store.counts().await.expect("the counts can be read"),
        counts
    );
}

pub(super) async fn a_stale_record_changes_nothing(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    let first = attempt(&world.delivery(sent).await, at(2), answered(503));
    assert_eq!(world.record(at(2), first.clone()).await, Written::Applied);
    // The same record again, as after a lost response.
    assert_superseded(&world, &first, sent).await;
    // A record that is too far ahead: one in between is missing.
    let mut ahead = attempt(&world.delivery(sent).await, at(3), answered(503));
    ahead = attempt(&ahead.delivery, at(4), answered(200));
    assert_superseded(&world, &ahead, sent).await;
    let second = attempt(&world.delivery(sent).await, at(5), answered(200));
    assert_eq!(world.record(at(5), second).await, Written::Applied);
    assert_superseded(&world, &first, sent).await;
}

pub(super) async fn an_ended_delivery_stays_ended(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    for code in [200, 400] {
        let sent = world.send(at(1), "a.b").await;
        let before = world.delivery(sent).await;
        let cancelled = world.send(at(1), "a.b").await;
        let racing = attempt(&world.delivery(cancelled).await, at(2), answered(code));
        assert_eq!(world.cancel(cancelled, at(3)).await, Written::Applied);
        assert_superseded(&world, &racing, cancelled).await;
        world.try_once(sent, at(2), answered(code)).await;
        assert_eq!(world.cancel(sent, at(4)).await, Written::Superseded);
        assert_superseded(&world, &attempt(&before, at(3), answered(503)), sent).await;
    }
}

pub(super) async fn older_health_does_not_replace_newer(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    for (revision, expected) in [(5, 5), (3, 5), (5, 5), (6, 6)] {
        let sent = world.send(at(1), "a.b").await;
        let mut settled = attempt(&world.delivery(sent).await, at(2), answered(200));
        settled.health = Some(Health {
            revision,
            failing_since: Some(at(revision)),
            ..Health::default()
        });
        assert_eq!(world.record(at(2), settled).await, Written::Applied);
        let row = world.store.endpoint(made).await.unwrap().unwrap();
        assert_eq!(row.health.revision, expected);
        assert_eq!(row.health.failing_since, Some(at(expected)));
        assert_eq!(world.status(sent).await, Status::Succeeded);
    }
}

pub(super) async fn a_disable_stores_its_reason_and_does_not_undo_a_deletion(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let first = world.send(at(1), "a.b").await;
    let second = world.send(at(1), "a.b").await;
    let gone = |delivery: &Delivery| AttemptRecord {
        disable: Some(DisableCause::Gone),
        ..attempt(delivery, at(2), answered(410))
    };
    let before = world.delivery(first).await;
    let settled = gone(&before);
    assert_eq!(world.record(at(2), settled).await, Written::Applied);
    let row = world.store.endpoint(made).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Disabled);
    let reason = DisabledReason::Automatic(DisableCause::Gone);
    assert_eq!(row.disabled_reason, Some(reason));
    world.set_status(made, EndpointStatus::Deleted).await;
    let before = world.delivery(second).await;
    let settled = gone(&before);
    assert_eq!(world.record(at(3), settled).await, Written::Applied);
    let row = world.store.endpoint(made).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.disabled_reason),
        (EndpointStatus::Deleted, None)
    );
    assert_eq!(world.status(second).await, Status::Failed);
}

pub(super) async fn endpoint_changes_become_notifications_in_order(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let endpoint_changes = [
        EndpointChange::BreakerTripped(TripReason::ConsecutiveFailures),
        EndpointChange::DisableWarning(DisableCause::FailingForDays),
        EndpointChange::Disabled(DisableCause::FailingForDays),
    ];
    let sent = world.send(at(1), "a.b").await;
    let mut settled = attempt(&world.delivery(sent).await, at(2), answered(503));
    settled.endpoint_changes = endpoint_changes.to_vec();
    assert_eq!(world.record(at(20), settled).await, Written::Applied);
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert!(notifications.is_sorted_by(|a, b| a.number < b.number));
    assert!(notifications.iter().all(|notification| notification.scope
        == SubjectScope::Endpoint(made)
        && notification.number > 0));
    let names: Vec<&str> = notifications
        .iter()
        .map(|notification| notification.name.as_str())
        .collect();
    assert_eq!(names, endpoint_changes.map(EndpointChange::name));
    assert!(
        notifications[0]
            .detail
            .to_string()
            .contains("consecutive_failures")
    );
    assert!(
        notifications[1]
            .detail
            .to_string()
            .contains("failing_for_days")
    );
    let world = world.reopened().await;
    assert_eq!(world.store.notifications(0, 9).await, Ok(notifications));
}

pub(super) async fn a_waiting_delivery_can_be_cancelled_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let waiting = world.send(at(1), "a.b").await;
    let retrying = world.send(at(1), "a.b").await;
    world.fail_retryably(retrying, at(2)).await;
    for sent in [waiting, retrying] {
        let attempts = world.find(sent).await.1;
        assert_eq!(world.cancel(sent, at(5)).await, Written::Applied);
        assert_eq!(world.cancel(sent, at(6)).await, Written::Superseded);
        let (stored, kept) = world.find(sent).await;
        assert_eq!(stored.delivery.state().ended_at(), Some(at(5)));
        assert_eq!(stored.shown_status(), Status::Cancelled);
        assert_eq!(kept, attempts);
    }
    assert_eq!(
        world.cancel(DeliveryId(7), at(6)).await,
        Written::Superseded
    );
    let fetched = world.fetch(made, at(99 * HOUR), 10, false).await;
    assert_eq!(fetched.deliveries, []);
    // A record without detail is accepted too.
    let sent = world.send(at(7), "a.b").await;
    let settled = attempt(&world.delivery(sent).await, at(8), answered(200));
    let record = posthaste_core::dispatcher::Record::Attempt(Box::new(settled));
    let written = super::fixture::record(&*world.store, at(8), record, AttemptDetail::default());
    assert_eq!(written.await, Ok(Written::Applied));
    assert_eq!(world.find(sent).await.1[0].detail, None);
}

pub(super) async fn a_late_delivery_expires_without_an_attempt(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let fresh = world.send(at(1), "a.b").await;
    let tried = world.send(at(1), "a.b").await;
    world.fail_retryably(tried, at(2)).await;
    let late = at(20 * DAY);
    for (delivery, attempts, kind) in [(fresh, 0, None), (tried, 1, Some(FailureKind::Timeout))] {
        let known = world.delivery(delivery).await;
        assert_eq!(world.expire(&known, late).await, Written::Applied);
        assert_eq!(world.expire(&known, late).await, Written::Superseded);
        let (stored, made) = world.find(delivery).await;
        let reason = DeadReason::Expired;
        assert_eq!(stored.delivery.state(), State::Failed { at: late, reason });
        assert_eq!((made.len(), stored.error_kind()), (attempts, kind));
        assert_eq!(stored.delivery.facts().attempts as usize, attempts);
        let racing = attempt(&known, late, answered(200));
        assert_superseded(&world, &racing, delivery).await;
    }
    let pending = world.store.pending(made).await;
    assert_eq!(pending.expect("the count can be read"), 0);
    // Both are dead letters, and the owner is notified of both.
    let page = PageRequest {
        limit: 9,
        before: None,
    };
    let groups = world.store.dead_letter_groups(id("acme"), None, page).await;
    let groups = groups.expect("the groups can be read");
    let kinds: Vec<Option<FailureKind>> = groups.items.iter().map(|it| it.error_kind).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert!(kinds.contains(&None) && kinds.contains(&Some(FailureKind::Timeout)));
    let later = at(21 * DAY);
    let collected = world.store.collect_failures(later, later, 9).await;
    assert_eq!(collected, Ok(1));
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications[0].detail["count"], 2);
    // A replay starts a new round with a new deadline.
    world.store.retry(late, id("acme"), fresh).await.unwrap();
    assert_eq!(world.status(fresh).await, Status::Pending);
    assert!(world.delivery(fresh).await.facts().give_up_at > late);
}

pub(super) async fn a_delivery_that_changed_since_it_was_dropped_goes_on(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let late = at(20 * DAY);
    let manual = world.send(at(1), "a.b").await;
    let known = world.delivery(manual).await;
    world.store.retry(late, id("acme"), manual).await.unwrap();
    assert_eq!(world.expire(&known, late).await, Written::Superseded);
    assert_eq!(world.status(manual).await, Status::Pending);

    let attempted = world.send(at(1), "a.b").await;
    let known = world.delivery(attempted).await;
    world.fail_retryably(attempted, at(2)).await;
    assert_eq!(world.expire(&known, late).await, Written::Superseded);
    assert_eq!(world.status(attempted).await, Status::Retrying);

    let replayed = world.send(at(1), "a.b").await;
    let known = world.delivery(replayed).await;
    assert_eq!(world.cancel(replayed, at(2)).await, Written::Applied);
    assert_eq!(world.expire(&known, late).await, Written::Superseded);
    assert_eq!(world.status(replayed).await, Status::Cancelled);
    world.store.retry(late, id("acme"), replayed).await.unwrap();
    assert_eq!(world.expire(&known, late).await, Written::Superseded);
    assert_eq!(world.status(replayed).await, Status::Pending);
}
