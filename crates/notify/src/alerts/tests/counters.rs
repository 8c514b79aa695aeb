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

use super::{Fixture, HOOK, NoHandOver, START, acme};
use crate::alerts::readings::FROM_COUNTERS;
use crate::periodic::PeriodicTask;

/// Returns counters that cross the threshold of this alert only.
fn beyond_threshold(name: AlertName) -> Tally {
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
        | AlertName::NotificationsStuck => panic!("{name} is not computed from counters"),
    }
}

async fn add_counters(fixture: &Fixture, scope: &Scope, tally: Tally) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let entry = StatEntry {
        scope: scope.clone(),
        at: fixture.now(),
        tally,
    };
    fixture
        .store
        .add_figures(number + 1, vec![entry])
        .await
        .expect("the store writes");
}

#[tokio::test]
async fn a_crossed_threshold_notifies_once_and_its_end_once() {
    let scopes = [
        Scope::Everything,
        Scope::Tenant(acme()),
        Scope::Endpoint(HOOK),
    ];
    for name in FROM_COUNTERS {
        for scope in &scopes {
            let mut fixture = Fixture::new().await;
            fixture.run_for(Span::from_mins(1)).await;
            assert_eq!(fixture.open().await, [], "{name} {scope:?}");
            add_counters(&fixture, scope, beyond_threshold(name)).await;
            fixture.run_for(Span::from_mins(20)).await;
            assert_eq!(fixture.open().await, [(name, scope.clone())]);
            // Another process continues with the stored state.
            fixture.restart();
            fixture.run_for(Span::from_mins(20)).await;
            assert_eq!(
                fixture.notification_counts(name, scope).await,
                (1, 0),
                "{name} {scope:?}"
            );
            // The window of one hour ends, then the value must be normal for a while.
            fixture.run_for(Span::from_mins(22)).await;
            assert_eq!(
                fixture.notification_counts(name, scope).await,
                (1, 0),
                "{name} {scope:?}"
            );
            fixture.run_for(Span::from_mins(6)).await;
            assert_eq!(fixture.open().await, [], "{name} {scope:?}");
            fixture.run_for(Span::from_mins(30)).await;
            assert_eq!(
                fixture.notification_counts(name, scope).await,
                (1, 1),
                "{name} {scope:?}"
            );
        }
    }
}

#[tokio::test]
async fn too_few_attempts_and_values_on_the_threshold_raise_no_alert() {
    let mut fixture = Fixture::new().await;
    let few = Tally {
        attempts: 19,
        retries: 19,
        second_attempts: 19,
        failed: 19,
        ..Tally::default()
    };
    add_counters(&fixture, &Scope::Endpoint(HOOK), few).await;
    let limit = Tally {
        attempts: 1_000,
        retries: 100,
        second_attempts: 100,
        second_successes: 60,
        succeeded: 500,
        failed: 5,
        ..Tally::default()
    };
    add_counters(&fixture, &Scope::Tenant(acme()), limit).await;
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
}

#[tokio::test]
async fn configured_thresholds_apply() {
    let mut fixture = Fixture::new().await;
    fixture.only(AlertName::RetryRatio, Bound::Above(0.5));
    let everything = Scope::Everything;
    for name in FROM_COUNTERS {
        add_counters(&fixture, &everything, beyond_threshold(name)).await;
    }
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    let worse = Tally {
        attempts: 100_000,
        retries: 90_000,
        ..Tally::default()
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
        fixture
            .notification_counts(AlertName::RetryRatio, &everything)
            .await,
        (1, 1)
    );
}

#[tokio::test]
async fn alerts_of_a_deleted_tenant_are_resolved_and_do_not_hide_those_of_its_successor() {
    let mut fixture = Fixture::new().await;
    let (tenant, endpoint) = (Scope::Tenant(acme()), Scope::Endpoint(HOOK));
    for scope in [&tenant, &endpoint] {
        add_counters(&fixture, scope, beyond_threshold(AlertName::RetryRatio)).await;
    }
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await.len(), 2);
    let deleted = fixture.store.delete_tenant(fixture.now(), acme()).await;
    assert!(deleted.is_ok_and(|deleted| deleted.is_some()));
    // The clock was set back meanwhile, so the new tenant has the earlier creation time.
    fixture.add_tenant_at("acme", Timestamp(START)).await;
    add_counters(&fixture, &tenant, beyond_threshold(AlertName::RetryRatio)).await;
    fixture.run_for(Span::from_secs(30)).await;
    assert_eq!(
        fixture.open().await,
        [(AlertName::RetryRatio, tenant.clone())]
    );
    assert_eq!(
        fixture
            .notification_counts(AlertName::RetryRatio, &tenant)
            .await,
        (2, 1)
    );
    assert_eq!(
        fixture
            .notification_counts(AlertName::RetryRatio, &endpoint)
            .await,
        (1, 1)
    );
}

#[tokio::test]
async fn a_store_that_cannot_be_read_resolves_nothing() {
    let settings = StoreSettings::new(Dice::seeded(1));
    let model = Arc::new(ModelStore::new(settings, Arc::new(NoHandOver)));
    let mut fixture = Fixture::on(model.clone()).await;
    add_counters(
        &fixture,
        &Scope::Everything,
        beyond_threshold(AlertName::RetryRatio),
    )
    .await;
    fixture.run_for(Span::from_mins(1)).await;
    model.fail_reads(Some(StoreError::Overloaded));
    for _ in 0..200 {
        fixture.advance(Span::from_mins(1));
        assert_eq!(fixture.checker.round().await, Err(StoreError::Overloaded));
    }
    model.fail_reads(None);
    // The window ended long ago, but no round has seen a normal value since.
    fixture.run_for(Span::from_mins(4)).await;
    let counts = fixture
        .notification_counts(AlertName::RetryRatio, &Scope::Everything)
        .await;
    assert_eq!(counts, (1, 0));
    fixture.run_for(Span::from_mins(2)).await;
    let counts = fixture
        .notification_counts(AlertName::RetryRatio, &Scope::Everything)
        .await;
    assert_eq!(counts, (1, 1));
}

/// Sends an event whose first attempt fails, so that it waits for the next one.
async fn fail_first_attempt(fixture: &Fixture) {
    let now = fixture.now();
    let event = NewEvent {
        tenant: acme(),
        content: Arc::new(Content {
            event_type: "a.b".parse().expect("a valid event type"),
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
    fixture
        .store
        .accept(now, vec![event])
        .await
        .expect("the event is accepted");
    let fetched = fixture
        .store
        .fetch(HOOK, now, 100, false)
        .await
        .expect("the store reads");
    let mut new = fetched.deliveries.into_iter();
    let mut delivery = new
        .find(|one| one.facts().attempts == 0)
        .expect("one delivery is new");
    let policy = RetryPolicy::default();
    let terms = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    delivery.begin(now, false).expect("the delivery is waiting");
    let failed = Outcome::Failed(Fault::Timeout);
    let settled = delivery.settle(now, failed, terms, &mut Dice::seeded(1));
    let settlement = settled.expect("the attempt was started");
    let record = Record::Attempt(Box::new(AttemptRecord {
        delivery,
        settlement,
        health: None,
        disable: None,
        news: Vec::new(),
    }));
    let (report, result) = tokio::sync::oneshot::channel();
    let done = Box::new(move |written: Result<_, StoreError>| {
        let _ = report.send(written);
    });
    let detail = AttemptDetail::default();
    fixture.store.record(now, record, detail, done);
    result
        .await
        .expect("the store answers")
        .expect("the record is written");
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
    assert_eq!(fixture.open().await, [(name, Scope::Tenant(acme()))]);
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
    add_counters(
        &fixture,
        &Scope::Tenant(acme()),
        beyond_threshold(AlertName::RetryRatio),
    )
    .await;
    fixture.run_for(Span::from_mins(30)).await;
    assert_eq!(fixture.open().await, []);
    fixture.run_for(Span::from_mins(90)).await;
    let both = [(name, Scope::Everything), (name, Scope::Tenant(acme()))];
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
    let record = Record::Cancel {
        delivery: one,
        at: fixture.now(),
    };
    let (report, result) = tokio::sync::oneshot::channel();
    let done = Box::new(move |written: Result<_, StoreError>| {
        let _ = report.send(written);
    });
    let detail = AttemptDetail::default();
    fixture.store.record(fixture.now(), record, detail, done);
    result
        .await
        .expect("the store answers")
        .expect("the record is written");
    fixture.run_for(Span::from_mins(10)).await;
    assert_eq!(fixture.open().await, []);
    for (name, scope) in both {
        assert_eq!(
            fixture.notification_counts(name, &scope).await,
            (1, 1),
            "{scope:?}"
        );
    }
}
