//! Tests of alerts that are computed from counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::classify::{Fault, Outcome};
use posthaste_core::delivery::RetrySettings;
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::lane::RETRY_AFTER_CAP;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AttemptDetail, Content, NewEvent, Scope, StatEntry, StoreError, StoreSettings, Tally,
};
use posthaste_store_testing::model::ModelStore;

use super::{HOOK, Nobody, START, World, acme};
use crate::alerts::readings::FROM_COUNTERS;

/// Returns counters that cross the threshold of this alert only.
fn bad(name: AlertName) -> Tally {
    let fine = Tally {
        attempts: 1_000,
        retries: 50,
        second_attempts: 40,
        second_successes: 35,
        succeeded: 950,
        failed: 0,
        ..Tally::default()
    };
    match name {
        AlertName::RetryRatio => Tally {
            retries: 101,
            ..fine
        },
        AlertName::DeadLetterRatio => Tally { failed: 10, ..fine },
        AlertName::AttemptsPerSuccess => Tally {
            succeeded: 499,
            ..fine
        },
        AlertName::SecondAttemptSuccessRatio => Tally {
            second_successes: 23,
            ..fine
        },
        AlertName::DeadLettersGrowing => Tally {
            attempts: 20_000,
            retries: 0,
            succeeded: 19_800,
            failed: 101,
            ..fine
        },
        AlertName::RetryingOver24h
        | AlertName::BreakerTripped
        | AlertName::DisableWarning
        | AlertName::EndpointDisabled
        | AlertName::QueueAge
        | AlertName::StoreSlow
        | AlertName::StoreNearlyFull
        | AlertName::NotificationsStuck => panic!("{name} is not read from a tally"),
    }
}

async fn happen(world: &World, scope: &Scope, tally: Tally) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let happened = StatEntry {
        scope: scope.clone(),
        at: world.now(),
        tally,
    };
    world
        .store
        .add_figures(number + 1, vec![happened])
        .await
        .expect("it writes");
}

#[tokio::test]
async fn a_figure_out_of_range_is_told_once_and_its_end_once() {
    let scopes = [
        Scope::Everything,
        Scope::Tenant(acme()),
        Scope::Endpoint(HOOK),
    ];
    for name in FROM_COUNTERS {
        for scope in &scopes {
            let mut world = World::new().await;
            world.watch_for(Span::from_mins(1)).await;
            assert_eq!(world.open().await, [], "{name} {scope:?}");
            happen(&world, scope, bad(name)).await;
            world.watch_for(Span::from_mins(20)).await;
            assert_eq!(world.open().await, [(name, scope.clone())]);
            // Another process continues with the stored state.
            world.restart();
            world.watch_for(Span::from_mins(20)).await;
            assert_eq!(world.told(name, scope).await, (1, 0), "{name} {scope:?}");
            // The window of one hour ends, then the value must be normal for a while.
            world.watch_for(Span::from_mins(22)).await;
            assert_eq!(world.told(name, scope).await, (1, 0), "{name} {scope:?}");
            world.watch_for(Span::from_mins(6)).await;
            assert_eq!(world.open().await, [], "{name} {scope:?}");
            world.watch_for(Span::from_mins(30)).await;
            assert_eq!(world.told(name, scope).await, (1, 1), "{name} {scope:?}");
        }
    }
}

#[tokio::test]
async fn too_few_attempts_and_values_on_the_limit_are_no_alert() {
    let mut world = World::new().await;
    let few = Tally {
        attempts: 19,
        retries: 19,
        second_attempts: 19,
        failed: 19,
        ..Tally::default()
    };
    happen(&world, &Scope::Endpoint(HOOK), few).await;
    let limit = Tally {
        attempts: 1_000,
        retries: 100,
        second_attempts: 100,
        second_successes: 60,
        succeeded: 500,
        failed: 5,
        ..Tally::default()
    };
    happen(&world, &Scope::Tenant(acme()), limit).await;
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, []);
}

#[tokio::test]
async fn thresholds_are_the_operators() {
    let mut world = World::new().await;
    world.only(AlertName::RetryRatio, Bound::Above(0.5));
    let everything = Scope::Everything;
    for name in FROM_COUNTERS {
        happen(&world, &everything, bad(name)).await;
    }
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, []);
    let worse = Tally {
        attempts: 100_000,
        retries: 90_000,
        ..Tally::default()
    };
    happen(&world, &everything, worse).await;
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(
        world.open().await,
        [(AlertName::RetryRatio, everything.clone())]
    );
    // An alert that is turned off is resolved at once.
    world.settings.bounds.clear();
    world.restart();
    world.watch_for(Span::from_secs(15)).await;
    assert_eq!(world.told(AlertName::RetryRatio, &everything).await, (1, 1));
}

#[tokio::test]
async fn what_is_gone_has_no_alerts_and_a_later_tenant_its_own() {
    let mut world = World::new().await;
    let (tenant, endpoint) = (Scope::Tenant(acme()), Scope::Endpoint(HOOK));
    for scope in [&tenant, &endpoint] {
        happen(&world, scope, bad(AlertName::RetryRatio)).await;
    }
    world.watch_for(Span::from_mins(1)).await;
    assert_eq!(world.open().await.len(), 2);
    let gone = world.store.delete_tenant(world.now(), acme()).await;
    assert!(gone.is_ok_and(|gone| gone.is_some()));
    // The clock was set back meanwhile, so the new tenant has the earlier creation time.
    world.add_tenant_at("acme", Timestamp(START)).await;
    happen(&world, &tenant, bad(AlertName::RetryRatio)).await;
    world.watch_for(Span::from_secs(30)).await;
    assert_eq!(
        world.open().await,
        [(AlertName::RetryRatio, tenant.clone())]
    );
    assert_eq!(world.told(AlertName::RetryRatio, &tenant).await, (2, 1));
    assert_eq!(world.told(AlertName::RetryRatio, &endpoint).await, (1, 1));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_ends_nothing() {
    let settings = StoreSettings::new(Dice::seeded(1));
    let model = Arc::new(ModelStore::new(settings, Arc::new(Nobody)));
    let mut world = World::on(model.clone()).await;
    happen(&world, &Scope::Everything, bad(AlertName::RetryRatio)).await;
    world.watch_for(Span::from_mins(1)).await;
    model.fail_reads(Some(StoreError::Overloaded));
    for _ in 0..200 {
        world.pass(Span::from_mins(1));
        assert_eq!(world.watch.round().await, Err(StoreError::Overloaded));
    }
    model.fail_reads(None);
    // The window ended long ago, but no round has seen a normal value since.
    world.watch_for(Span::from_mins(4)).await;
    let told = world.told(AlertName::RetryRatio, &Scope::Everything).await;
    assert_eq!(told, (1, 0));
    world.watch_for(Span::from_mins(2)).await;
    let told = world.told(AlertName::RetryRatio, &Scope::Everything).await;
    assert_eq!(told, (1, 1));
}

/// Sends an event whose first attempt fails, so that it waits for the next one.
async fn stumble(world: &World) {
    let now = world.now();
    let event = NewEvent {
        tenant: acme(),
        content: Arc::new(Content {
            event_type: "a.b".parse().expect("a type"),
            content_type: None,
            trace: None,
            payload: Bytes::from_static(b"{}"),
        }),
        idempotency: None,
        deliver_at: None,
        ordering: None,
        only: None,
        received: None,
    };
    world
        .store
        .accept(now, vec![event])
        .await
        .expect("it is accepted");
    let fetched = world
        .store
        .fetch(HOOK, now, 100, false)
        .await
        .expect("it reads");
    let mut new = fetched.deliveries.into_iter();
    let mut delivery = new
        .find(|one| one.facts().attempts == 0)
        .expect("one is new");
    let policy = RetryPolicy::default();
    let terms = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    delivery.begin(now, false).expect("it waits");
    let failed = Outcome::Failed(Fault::Timeout);
    let settled = delivery.settle(now, failed, terms, &mut Dice::seeded(1));
    let settlement = settled.expect("it was begun");
    let record = Record::Attempt(Box::new(AttemptRecord {
        delivery,
        settlement,
        health: None,
        disable: None,
        news: Vec::new(),
    }));
    let (tell, told) = tokio::sync::oneshot::channel();
    let done = Box::new(move |written: Result<_, StoreError>| {
        let _ = tell.send(written);
    });
    let detail = AttemptDetail::default();
    world.store.record(now, record, detail, done);
    told.await.expect("it is answered").expect("it is written");
}

#[tokio::test]
async fn what_tells_of_others_in_vain_is_told_of_its_tenant_alone() {
    let mut world = World::new().await;
    let name = AlertName::RetryingOver24h;
    world.audience.tenant = Some(acme());
    world.only(name, Bound::Above(2.0));
    for _ in 0..9 {
        stumble(&world).await;
    }
    world.pass(Span::from_hours(25));
    world.watch_for(Span::from_mins(1)).await;
    assert_eq!(world.open().await, [(name, Scope::Tenant(acme()))]);
}

#[tokio::test]
async fn what_is_in_retry_for_a_day_is_told_of_everything_and_of_its_tenant() {
    let mut world = World::new().await;
    let name = AlertName::RetryingOver24h;
    world.only(name, Bound::Above(2.0));
    for _ in 0..3 {
        stumble(&world).await;
    }
    // The tenant keeps failing, so its deliveries are counted.
    world.pass(Span::from_hours(23));
    happen(&world, &Scope::Tenant(acme()), bad(AlertName::RetryRatio)).await;
    world.watch_for(Span::from_mins(30)).await;
    assert_eq!(world.open().await, []);
    world.watch_for(Span::from_mins(90)).await;
    let both = [(name, Scope::Everything), (name, Scope::Tenant(acme()))];
    assert_eq!(world.open().await, both);
    let waiting = world
        .store
        .fetch(HOOK, world.now(), 9, false)
        .await
        .expect("it reads");
    let one = waiting.deliveries[0].id();
    // The two remaining ones do not exceed the threshold.
    let retried = world.store.retry(world.now(), acme(), one).await;
    retried.expect("it is hastened");
    let record = Record::Cancel {
        delivery: one,
        at: world.now(),
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let done = Box::new(move |written: Result<_, StoreError>| {
        let _ = tell.send(written);
    });
    let detail = AttemptDetail::default();
    world.store.record(world.now(), record, detail, done);
    told.await.expect("it is answered").expect("it is written");
    world.watch_for(Span::from_mins(10)).await;
    assert_eq!(world.open().await, []);
    for (name, scope) in both {
        assert_eq!(world.told(name, &scope).await, (1, 1), "{scope:?}");
    }
}
