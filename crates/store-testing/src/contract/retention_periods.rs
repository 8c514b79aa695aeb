//! Payloads, attempts and deliveries have separate retention periods.
//!
//! Each kind of data is removed when its own period has ended, and not before. Unfinished deliveries keep
//! everything that they need. The period of a tenant precedes that of its plan, which precedes the server's, and a
//! change applies to the next run.

use std::sync::Arc;

use posthaste_core::delivery::Status;
use posthaste_core::id::{DeliveryId, EventId};
use posthaste_core::time::Span;

use super::Harness;
use super::fixture::{DAY, HOUR, StoreFixture, at, event, id, keyed, tenant};
use super::replays;
use posthaste_store::{
    AcceptResult, EventFilter, Limits, ReplaceResult, ReplayStatus, Retention, RetentionStepResult,
    RetryResult, StoredEvent, Tenant, Written,
};

const EVER: u64 = 1_000 * DAY;

/// Payloads for one day, attempts for two, everything else for three.
fn separate_periods() -> Retention {
    Retention {
        payloads: Some(Span::from_days(1)),
        attempts: Some(Span::from_days(2)),
        ..Retention::all(Span::from_days(3), 4)
    }
}

fn removed(events: usize, payloads: usize) -> (usize, usize) {
    (events, payloads)
}

fn counted(step: RetentionStepResult) -> (usize, usize) {
    (step.events, step.payloads)
}

async fn stored(world: &StoreFixture<'_>, event: EventId) -> StoredEvent {
    let found = world.store.event(id("acme"), event).await;
    found
        .expect("the store can be read")
        .expect("the row exists")
}

/// Returns the time at which a delivery ended; an attempt takes some time.
async fn end(world: &StoreFixture<'_>, delivery: DeliveryId) -> u64 {
    let ended_at = world.delivery(delivery).await.state().ended_at();
    ended_at.expect("the delivery has ended").0 - at(0).0
}

async fn numbers(world: &StoreFixture<'_>, delivery: DeliveryId) -> Vec<u32> {
    let (_, attempts) = world.find(delivery).await;
    attempts.iter().map(|attempt| attempt.number).collect()
}

pub(super) async fn payloads_attempts_and_deliveries_expire_separately(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let accepted = world.accept(at(0), event("acme", "a.b")).await;
    let sent = accepted.deliveries[0].id;
    world.fail_retryably(sent, at(1)).await;
    world.fail_retryably(sent, at(2)).await;
    world.fail(sent, at(HOUR)).await;
    let before = stored(&world, accepted.id).await;
    let (delivery, attempts) = world.find(sent).await;
    assert_eq!((before.payload_removed_at, attempts.len()), (None, 3));

    let ended = end(&world, sent).await;
    let a_day = ended + DAY;
    let early = world
        .run_retention_as(at(a_day - 1), &separate_periods())
        .await;
    assert_eq!(
        early,
        RetentionStepResult::default(),
        "nothing is removed before the period has ended"
    );
    assert_eq!(
        counted(world.run_retention_as(at(a_day), &separate_periods()).await),
        removed(0, 1)
    );
    // Everything else about the event and its deliveries stays.
    let emptied = stored(&world, accepted.id).await;
    assert_eq!(emptied.payload_removed_at, Some(at(a_day)));
    assert_eq!(emptied.content.payload.len(), 0);
    assert_eq!(emptied.content.event_type, before.content.event_type);
    assert_eq!(emptied.content.content_type, before.content.content_type);
    assert_eq!(emptied.event, before.event);
    assert_eq!(
        world.events("acme", EventFilter::default()).await,
        [emptied]
    );
    assert_eq!(world.store.content(accepted.id).await, Ok(None));
    assert_eq!(world.find(sent).await, (delivery.clone(), attempts.clone()));
    // The payload is removed once, and the event keeps the time of removal.
    assert_eq!(
        counted(
            world
                .run_retention_as(at(a_day + HOUR), &separate_periods())
                .await
        ),
        removed(0, 0)
    );
    let world = world.reopened().await;
    let emptied = stored(&world, accepted.id).await;
    assert_eq!(emptied.payload_removed_at, Some(at(a_day)));

    let two_days = ended + 2 * DAY;
    assert_eq!(
        world
            .run_retention_as(at(two_days - 1), &separate_periods())
            .await
            .attempts,
        0
    );
    assert_eq!(
        world
            .run_retention_as(at(two_days), &separate_periods())
            .await
            .attempts,
        1
    );
    // The last attempt is kept with its delivery.
    assert_eq!(world.find(sent).await, (delivery, attempts[2..].to_vec()));
    assert_eq!(
        world
            .run_retention_as(at(two_days), &separate_periods())
            .await,
        RetentionStepResult::default()
    );
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        1
    );

    assert_eq!(
        counted(
            world
                .run_retention_as(at(ended + 3 * DAY), &separate_periods())
                .await
        ),
        removed(1, 0)
    );
    assert_eq!(world.store.event(id("acme"), accepted.id).await, Ok(None));
    assert_eq!(world.store.delivery(id("acme"), sent).await, Ok(None));
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        0
    );
}

pub(super) async fn unfinished_deliveries_keep_payload_and_attempts(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.add_endpoint(2).await;
    let accepted = world.accept(at(0), event("acme", "a.b")).await;
    let (ended, waits) = (accepted.deliveries[0].id, accepted.deliveries[1].id);
    for delivery in [ended, waits] {
        world.fail_retryably(delivery, at(1)).await;
        world.fail_retryably(delivery, at(2)).await;
    }
    world.succeed(ended, at(3)).await;
    let content = world.store.content(accepted.id).await;
    let step = world.run_retention_as(at(EVER), &separate_periods()).await;
    // Attempts belong to their own delivery, and this one has ended.
    assert_eq!((counted(step), step.attempts), (removed(0, 0), 1));
    assert_eq!(world.store.content(accepted.id).await, content);
    assert_eq!(numbers(&world, ended).await, [3]);
    assert_eq!(numbers(&world, waits).await, [1, 2]);
    // After it has ended too, all retention periods count from then on.
    world.succeed(waits, at(EVER)).await;
    let last = end(&world, waits).await;
    assert_eq!(
        world.run_retention_as(at(EVER), &separate_periods()).await,
        RetentionStepResult::default()
    );
    let step = world
        .run_retention_as(at(last + DAY), &separate_periods())
        .await;
    assert_eq!((counted(step), step.attempts), (removed(0, 1), 0));
    assert_eq!(
        counted(
            world
                .run_retention_as(at(last + 3 * DAY), &separate_periods())
                .await
        ),
        removed(1, 0)
    );
}

pub(super) async fn events_without_deliveries_lose_their_payload(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let accepted = world.accept(at(0), event("acme", "a.b")).await;
    assert_eq!(
        counted(
            world
                .run_retention_as(at(DAY - 1), &separate_periods())
                .await
        ),
        removed(0, 0)
    );
    assert_eq!(
        counted(world.run_retention_as(at(DAY), &separate_periods()).await),
        removed(0, 1)
    );
    let emptied = stored(&world, accepted.id).await;
    assert_eq!(emptied.payload_removed_at, Some(at(DAY)));
}

pub(super) async fn replayed_deliveries_keep_their_payload(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let accepted = world.accept(at(0), event("acme", "a.b")).await;
    let sent = accepted.deliveries[0].id;
    world.fail_retryably(sent, at(1)).await;
    world.fail(sent, at(2)).await;
    let content = world.store.content(accepted.id).await;
    let retried = world.store.retry(at(HOUR), id("acme"), sent).await;
    assert!(
        matches!(retried, Ok(RetryResult::Replayed { .. })),
        "{retried:?}"
    );
    // It waits again, so it is kept, even if it ended long ago before.
    assert_eq!(
        world.run_retention_as(at(EVER), &separate_periods()).await,
        RetentionStepResult::default()
    );
    assert_eq!(world.store.content(accepted.id).await, content);
    assert_eq!(numbers(&world, sent).await, [1, 2]);
    // The retention periods count from its last end.
    world.succeed(sent, at(EVER)).await;
    let last = end(&world, sent).await;
    assert_eq!(numbers(&world, sent).await, [1, 2, 3]);
    assert_eq!(
        world
            .run_retention_as(at(last + DAY - 1), &separate_periods())
            .await,
        RetentionStepResult::default()
    );
    assert_eq!(
        counted(
            world
                .run_retention_as(at(last + DAY), &separate_periods())
                .await
        ),
        removed(0, 1)
    );
    assert_eq!(
        world
            .run_retention_as(at(last + 2 * DAY), &separate_periods())
            .await
            .attempts,
        1
    );
    assert_eq!(numbers(&world, sent).await, [3]);
}

/// After some attempts were removed, later ones continue the numbering.
pub(super) async fn attempt_numbers_continue_after_removal(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(0), "a.b").await;
    world.fail_retryably(sent, at(1)).await;
    world.fail_retryably(sent, at(2)).await;
    assert_eq!(world.cancel(sent, at(3)).await, Written::Applied);
    let brief = Retention {
        attempts: Some(Span::from_days(1)),
        ..Retention::all(Span::from_days(9), 4)
    };
    assert_eq!(
        world.run_retention_as(at(2 * DAY), &brief).await.attempts,
        1
    );
    assert_eq!(numbers(&world, sent).await, [2]);
    world
        .store
        .retry(at(2 * DAY), id("acme"), sent)
        .await
        .unwrap();
    assert_eq!(numbers(&world, sent).await, [2]);
    world.fail_retryably(sent, at(2 * DAY)).await;
    assert_eq!(numbers(&world, sent).await, [2, 3]);
    world.succeed(sent, at(2 * DAY + 1)).await;
    assert_eq!(numbers(&world, sent).await, [2, 3, 4]);
    assert_eq!(
        world.run_retention_as(at(4 * DAY), &brief).await.attempts,
        1
    );
    assert_eq!(numbers(&world, sent).await, [4]);
    assert_eq!(world.delivery(sent).await.facts().attempts, 4);
}

pub(super) async fn deliveries_without_payload_cannot_be_replayed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let gone = world.send(at(0), "a.b").await;
    world.fail(gone, at(1)).await;
    let there = world.send(at(DAY), "a.b").await;
    world.fail(there, at(DAY)).await;
    let replay = replays::failed(&world, at(DAY)).await;
    assert_eq!((replay.total, replay.skipped), (2, 0));
    assert_eq!(
        counted(
            world
                .run_retention_as(at(DAY + HOUR), &separate_periods())
                .await
        ),
        removed(0, 1)
    );
    let retried = world.store.retry(at(DAY + HOUR), id("acme"), gone).await;
    assert_eq!(retried, Ok(RetryResult::PayloadDeleted));
    assert_eq!(world.status(gone).await, Status::Failed);
    // A replay skips it and counts it, also if the replay had begun before.
    let late = replays::failed(&world, at(DAY + HOUR)).await;
    let step = world.store.step_replay(at(DAY + HOUR), replay.id, 9).await;
    let step = step
        .expect("the replay step succeeds")
        .expect("the row exists");
    assert_eq!((step.replay.replayed, step.replay.skipped), (2, 1));
    assert_eq!(step.replay.status, ReplayStatus::Done);
    assert_eq!(step.endpoints.len(), 1);
    let step = world.store.step_replay(at(DAY + HOUR), late.id, 9).await;
    let step = step
        .expect("the replay step succeeds")
        .expect("the row exists");
    assert_eq!((step.replay.replayed, step.replay.skipped), (2, 2));
    assert_eq!(step.endpoints.len(), 0);
    let read = world.store.replay(id("acme"), late.id).await;
    assert_eq!(read, Ok(Some(step.replay)));
    assert_eq!(world.status(gone).await, Status::Failed);
    assert_eq!(world.status(there).await, Status::Pending);
    let missed = world.add_endpoint(2).await;
    let missed = replays::missed_by(&world, at(DAY + HOUR), missed).await;
    let step = world.store.step_replay(at(DAY + HOUR), missed.id, 9).await;
    let step = step
        .expect("the replay step succeeds")
        .expect("the row exists");
    assert_eq!((step.replay.replayed, step.replay.skipped), (2, 1));
}

pub(super) async fn an_idempotency_key_outlives_the_payload(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let first = world.accept(at(0), keyed("acme", "k", "content")).await;
    assert_eq!(
        counted(world.run_retention_as(at(DAY), &separate_periods()).await),
        removed(0, 1)
    );
    let again = vec![keyed("acme", "k", "content")];
    let again = world.accept_all(at(DAY), again).await;
    assert!(!again[0].is_new);
    assert_eq!(again[0].event, first);
    let other = vec![keyed("acme", "k", "other")];
    let other = world.store.accept(at(DAY), other).await;
    assert_eq!(other, Ok(AcceptResult::Conflict(vec![0])));
    // The key is removed with the event.
    assert_eq!(
        counted(
            world
                .run_retention_as(at(3 * DAY), &separate_periods())
                .await
        ),
        removed(1, 0)
    );
    let fresh = vec![keyed("acme", "k", "other")];
    assert!(world.accept_all(at(3 * DAY), fresh).await[0].is_new);
}

pub(super) async fn the_retention_of_a_tenant_precedes_that_of_its_plan(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let days = |days| Some(Span::from_days(days));
    let quick = Limits {
        retention: days(2),
        payload_retention: days(1),
        ..Limits::default()
    };
    let retention = Retention {
        plans: Arc::new([("quick".to_owned(), quick)].into()),
        payloads: days(5),
        ..Retention::all(Span::from_days(7), 3)
    };
    let own = Limits {
        payload_retention: days(3),
        ..Limits::default()
    };
    for (name, plan, limits) in [
        ("usual", None, Limits::default()),
        ("planned", Some("quick"), Limits::default()),
        ("own", None, own),
        ("both", Some("quick"), own),
        ("lost", Some("a plan that is gone"), Limits::default()),
    ] {
        let made = Tenant {
            plan: plan.map(str::to_owned),
            limits,
            ..tenant(name)
        };
        world.store.create_tenant(at(0), made).await.unwrap();
        world.accept(at(0), event(name, "a.b")).await;
    }
    let mut seen = Vec::new();
    for day in 1..=7 {
        world.run_retention_as(at(day * DAY), &retention).await;
        let mut line = String::new();
        for name in ["usual", "planned", "own", "both", "lost"] {
            let events = world.events(name, EventFilter::default()).await;
            line.push(match events.first() {
                None => ' ',
                Some(event) if event.payload_removed_at.is_some() => '-',
                Some(_) => '+',
            });
        }
        seen.push(line);
    }
    // No part outlives its event: with a plan that keeps events for two days, a payload period of three days is
    // two.
    assert_eq!(
        seen,
        [
            "+-+++", "+ + +", "+ - +", "+ - +", "- - -", "- - -", "     "
        ]
    );
}

/// A longer retention period applies to everything that still exists; a shorter one applies at once.
pub(super) async fn changed_retention_applies_at_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let accepted = world.accept(at(0), event("acme", "a.b")).await;
    assert_eq!(
        world.run_retention_as(at(HOUR), &separate_periods()).await,
        RetentionStepResult::default()
    );
    let keep = async |revision: u64, hours: u64| {
        let limits = Limits {
            payload_retention: Some(Span::from_hours(hours)),
            ..Limits::default()
        };
        let changed = Tenant {
            limits,
            revision,
            ..tenant("acme")
        };
        let replaced = world.store.replace_tenant(at(HOUR), changed).await;
        assert_eq!(replaced, Ok(ReplaceResult::Done));
    };
    keep(0, 48).await;
    assert_eq!(
        counted(world.run_retention_as(at(DAY), &separate_periods()).await),
        removed(0, 0)
    );
    keep(1, 2).await;
    assert_eq!(
        counted(world.run_retention_as(at(DAY), &separate_periods()).await),
        removed(0, 1)
    );
    // The same holds for a change of the server's default.
    let brief = Retention::all(Span::from_hours(1), 4);
    assert_eq!(
        counted(world.run_retention_as(at(DAY), &brief).await),
        removed(1, 0)
    );
    assert_eq!(world.store.event(id("acme"), accepted.id).await, Ok(None));
    // The data of a deleted tenant is kept for the server's default.
    world.accept(at(DAY), event("acme", "a.b")).await;
    assert_eq!(
        counted(
            world
                .run_retention_as(at(DAY + HOUR), &separate_periods())
                .await
        ),
        removed(0, 0)
    );
    world
        .store
        .delete_tenant(at(DAY + HOUR), id("acme"))
        .await
        .unwrap();
    assert_eq!(
        counted(
            world
                .run_retention_as(at(DAY + 2 * HOUR), &separate_periods())
                .await
        ),
        removed(0, 0)
    );
    assert_eq!(
        counted(
            world
                .run_retention_as(at(2 * DAY), &separate_periods())
                .await
        ),
        removed(0, 1)
    );
}
