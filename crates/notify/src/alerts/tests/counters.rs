//! Tests of alerts that are computed from counters.

use std::sync::Arc;

use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::classify::{Outcome, TransportError};
use posthaste_core::dispatcher::Record;
use posthaste_core::rng::Rng;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{StatCounters, StatEntry, StoreError, StoreSettings, SubjectScope};
use posthaste_store_testing::model::ModelStore;

use super::{Fixture, HOOK, NoHandOver, START, acme};
use crate::alerts::readings::FROM_COUNTERS;
use crate::shard_owner_task::ShardOwnerTask;
use crate::testing;

/// Returns counters that cross the threshold of this alert only.
fn beyond_threshold(name: AlertName) -> StatCounters {
    let fine = StatCounters {
        attempts: 1_000,
        retries: 50,
        retried_deliveries: 40,
        second_attempts: 40,
        second_successes: 35,
        succeeded: 950,
        success_attempts: 1_000,
        failed: 0,
        ..StatCounters::default()
    };
    match name {
        AlertName::RetryRatio => StatCounters {
            retried_deliveries: 96,
            ..fine
        },
        AlertName::DeadLetterRatio => StatCounters { failed: 10, ..fine },
        AlertName::AttemptsPerSuccess => StatCounters {
            success_attempts: 1_901,
            ..fine
        },
        AlertName::SecondAttemptSuccessRatio => StatCounters {
            second_successes: 23,
            ..fine
        },
        AlertName::DeadLettersGrowing => StatCounters {
            attempts: 20_000,
            retries: 0,
            retried_deliveries: 0,
            succeeded: 19_800,
            success_attempts: 19_800,
            failed: 101,
            ..fine
        },
        AlertName::RetryingOver24h
        | AlertName::BreakerTripped
        | AlertName::DisableWarning
        | AlertName::EndpointDisabled
        | AlertName::QueueAge
        | AlertName::HeldBack
        | AlertName::StoreSlow
        | AlertName::StoreNearlyFull
        | AlertName::NotificationsStuck
        | AlertName::HeldAfterFaults
        | AlertName::OutboxUnreachable
        | AlertName::SchedulesFailing => panic!("{name} is not computed from counters"),
    }
}

async fn add_counters(fixture: &Fixture, scope: &SubjectScope, counters: StatCounters) {
    let entry = StatEntry {
        scope: scope.clone(),
        at: fixture.now(),
        counters,
    };
    fixture
        .store
        .add_stats(vec![entry])
        .await
        .expect("the store writes");
}

/// Adds counters that cross the threshold of this alert only.
async fn cross_threshold(fixture: &Fixture, scope: &SubjectScope, name: AlertName) {
    add_counters(fixture, scope, beyond_threshold(name)).await;
}

#[tokio::test]
async fn a_crossed_threshold_notifies_once_and_its_end_once() {
    let scopes = [
        SubjectScope::Everything,
        SubjectScope::Tenant(acme()),
        SubjectScope::Endpoint(HOOK),
    ];
    for name in FROM_COUNTERS {
        for scope in &scopes {
            let mut fixture = Fixture::new().await;
            fixture.run_for(Span::from_mins(1)).await;
            assert_eq!(fixture.open().await, [], "{name} {scope:?}");
            cross_threshold(&fixture, scope, name).await;
            fixture.run_for(Span::from_mins(20)).await;
            assert_eq!(fixture.open().await, [(name, scope.clone())]);
            // Another process continues with the stored state.
            fixture.restart();
            fixture.run_for(Span::from_mins(20)).await;
            assert_eq!(
                fixture.notified(name, scope).await,
                (1, 0),
                "{name} {scope:?}"
            );
            // The window of one hour ends, then the value must be normal for a while.
            fixture.run_for(Span::from_mins(22)).await;
            assert_eq!(
                fixture.notified(name, scope).await,
                (1, 0),
                "{name} {scope:?}"
            );
            fixture.run_for(Span::from_mins(6)).await;
            assert_eq!(fixture.open().await, [], "{name} {scope:?}");
            fixture.run_for(Span::from_mins(30)).await;
            assert_eq!(
                fixture.notified(name, scope).await,
                (1, 1),
                "{name} {scope:?}"
            );
        }
    }
}

#[tokio::test]
async fn too_few_attempts_and_values_on_the_threshold_raise_no_alert() {
    let mut fixture = Fixture::new().await;
    let few = StatCounters {
        attempts: 100,
        retries: 81,
        retried_deliveries: 19,
        second_attempts: 19,
        failed: 19,
        ..StatCounters::default()
    };
    add_counters(&fixture, &SubjectScope::Endpoint(HOOK), few).await;
    let limit = StatCounters {
        attempts: 1_000,
        retries: 500,
        retried_deliveries: 50,
        second_attempts: 100,
        second_successes: 60,
        succeeded: 495,
        success_attempts: 990,
        failed: 5,
        ..StatCounters::default()
    };
    add_counters(&fixture, &SubjectScope::Tenant(acme()), limit).await;
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
}

#[tokio::test]
async fn configured_thresholds_apply() {
    let mut fixture = Fixture::new().await;
    fixture.only(AlertName::RetryRatio, Bound::Above(0.5));
    let everything = SubjectScope::Everything;
    for name in FROM_COUNTERS {
        cross_threshold(&fixture, &everything, name).await;
    }
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    let worse = StatCounters {
        attempts: 100_000,
        retried_deliveries: 90_000,
        ..StatCounters::default()
    };
    add_counters(&fixture, &everything, worse).await;
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(
        fixture.open().await,
        [(AlertName::RetryRatio, everything.clone())]
    );
    // An alert that is turned off is resolved at once.
    fixture.settings.bounds.clear();
    fixture.restart();
    fixture.run_for(Span::from_secs(15)).await;
    assert_eq!(
        fixture.notified(AlertName::RetryRatio, &everything).await,
        (1, 1)
    );
}

#[tokio::test]
async fn alerts_of_a_deleted_tenant_are_resolved_and_do_not_hide_those_of_its_successor() {
    let mut fixture = Fixture::new().await;
    let (tenant, endpoint) = (SubjectScope::Tenant(acme()), SubjectScope::Endpoint(HOOK));
    for scope in [&tenant, &endpoint] {
        cross_threshold(&fixture, scope, AlertName::RetryRatio).await;
    }
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await.len(), 2);
    let deleted = fixture.store.delete_tenant(fixture.now(), acme()).await;
    assert!(deleted.is_ok_and(|deleted| deleted.is_some()));
    // The clock was set back meanwhile, so the new tenant has the earlier creation time.
    fixture.add_tenant_at("acme", Timestamp(START)).await;
    cross_threshold(&fixture, &tenant, AlertName::RetryRatio).await;
    fixture.run_for(Span::from_secs(30)).await;
    assert_eq!(
        fixture.open().await,
        [(AlertName::RetryRatio, tenant.clone())]
    );
    assert_eq!(
        fixture.notified(AlertName::RetryRatio, &tenant).await,
        (2, 1)
    );
    assert_eq!(
        fixture.notified(AlertName::RetryRatio, &endpoint).await,
        (1, 1)
    );
}

#[tokio::test]
async fn a_store_that_cannot_be_read_resolves_nothing() {
    let settings = StoreSettings::new(Rng::seeded(1));
    let model = Arc::new(ModelStore::new(settings, Arc::new(NoHandOver)));
    let mut fixture = Fixture::on(model.clone()).await;
    cross_threshold(&fixture, &SubjectScope::Everything, AlertName::RetryRatio).await;
    fixture.run_for(Span::from_mins(1)).await;
    model.fail_reads(Some(StoreError::Overloaded));
    for _ in 0..200 {
        fixture.advance(Span::from_mins(1));
        assert_eq!(fixture.checker.round().await, Err(StoreError::Overloaded));
    }
    model.fail_reads(None);
    // The window ended long ago, but no round has seen a normal value since.
    fixture.run_for(Span::from_mins(4)).await;
    let notified = fixture.notified(AlertName::RetryRatio, &SubjectScope::Everything);
    assert_eq!(notified.await, (1, 0));
    fixture.run_for(Span::from_mins(2)).await;
    let notified = fixture.notified(AlertName::RetryRatio, &SubjectScope::Everything);
    assert_eq!(notified.await, (1, 1));
}

/// Sends an event whose first attempt fails, so that it waits for the next one.
async fn fail_first_attempt(fixture: &Fixture) {
    let (store, now) = (&*fixture.store, fixture.now());
    let accepted = store.accept(now, vec![testing::event("acme")]).await;
    accepted.expect("the event is accepted");
    let fetched = store.fetch(HOOK, now, 100, false).await;
    let mut deliveries = fetched.expect("the store reads").deliveries.into_iter();
    let new = deliveries.find(|delivery| delivery.facts().attempts == 0);
    let new = new.expect("one delivery is new");
    let record = testing::attempt(
        new,
        now,
        Outcome::Failed(TransportError::Timeout),
        Vec::new(),
    );
    testing::write(store, now, record).await;
}

#[tokio::test]
async fn retries_of_the_operational_tenant_raise_only_its_own_alert() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::RetryingOver24h;
    fixture.audience.tenant = Some(acme());
    fixture.only(name, Bound::Above(2.0));
    for _ in 0..9 {
        fail_first_attempt(&fixture).await;
    }
    fixture.advance(Span::from_hours(25));
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, [(name, SubjectScope::Tenant(acme()))]);
}

#[tokio::test]
async fn any_number_of_retries_of_the_operational_tenant_raises_no_alert_of_all() {
    const MANY: usize = 10_102;
    let mut fixture = Fixture::new().await;
    let name = AlertName::RetryingOver24h;
    fixture.audience.tenant = Some(acme());
    fixture.only(name, Bound::Above(100.0));
    let (store, now) = (&*fixture.store, fixture.now());
    for _ in 0..MANY / 6 + 1 {
        let events = (0..6).map(|_| testing::event("acme")).collect();
        let accepted = store.accept(now, events).await;
        accepted.expect("the events are accepted");
    }
    let fetched = store.fetch(HOOK, now, MANY, false).await;
    let waiting = fetched.expect("the store reads").deliveries;
    assert_eq!(waiting.len(), MANY);
    for delivery in waiting {
        let record = testing::attempt(
            delivery,
            now,
            Outcome::Failed(TransportError::Timeout),
            Vec::new(),
        );
        testing::write(store, now, record).await;
    }
    fixture.advance(Span::from_hours(25));
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, [(name, SubjectScope::Tenant(acme()))]);
}

#[tokio::test]
async fn deliveries_in_retry_for_a_day_raise_the_alert_of_all_and_of_their_tenant() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::RetryingOver24h;
    fixture.only(name, Bound::Above(2.0));
    for _ in 0..3 {
        fail_first_attempt(&fixture).await;
    }
    // The tenant keeps failing, so its deliveries are counted.
    fixture.advance(Span::from_hours(23));
    cross_threshold(
        &fixture,
        &SubjectScope::Tenant(acme()),
        AlertName::RetryRatio,
    )
    .await;
    fixture.run_for(Span::from_mins(30)).await;
    assert_eq!(fixture.open().await, []);
    fixture.run_for(Span::from_mins(90)).await;
    let both = [
        (name, SubjectScope::Everything),
        (name, SubjectScope::Tenant(acme())),
    ];
    assert_eq!(fixture.open().await, both);
    let waiting = fixture
        .store
        .fetch(HOOK, fixture.now(), 9, false)
        .await
        .expect("the store reads");
    let one = waiting.deliveries[0].id();
    // The two remaining ones do not exceed the threshold.
    let retried = fixture.store.retry(fixture.now(), acme(), one).await;
    retried.expect("the delivery is retried");
    let at = fixture.now();
    let cancelled = Record::Cancel { delivery: one, at };
    testing::write(&*fixture.store, at, cancelled).await;
    fixture.run_for(Span::from_mins(10)).await;
    assert_eq!(fixture.open().await, []);
    for (name, scope) in both {
        assert_eq!(fixture.notified(name, &scope).await, (1, 1), "{scope:?}");
    }
}
