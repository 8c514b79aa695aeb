//! Stats of what was recorded.
//!
//! A store counts in the transaction that records an attempt or ends a delivery. So its stats are those of its rows: every
//! attempt and every dead letter is counted once, at its own time, and a superseded record is not counted.

use posthaste_core::classify::{Outcome, TransportError};
use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::dispatcher::Record;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{DisableCause, EndpointStatus};
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{
    DAY, StoreFixture, answered, at, attempt, detail, endpoint, event, id, record, settings,
};
use posthaste_store::{
    BucketWidth, DeliveryFilter, StatCounters, StoreSettings, SubjectScope, Written,
};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// The first whole minute after the start, which is also a whole quarter of an hour.
const WHOLE: u64 = 100 * SECOND;
/// After every deadline. A whole minute and a whole quarter of an hour too.
const LATE: u64 = 10 * DAY;
/// The duration of every attempt, and the time by which it ends later than it starts.
const LATENCY_MICROS: u64 = 10_500;

impl StoreFixture<'_> {
    async fn sum(&self, scope: SubjectScope, width: BucketWidth) -> StatCounters {
        let buckets = self.store.stats(scope, width, at(0)).await;
        let mut sum = StatCounters::default();
        for (_, counters) in buckets.expect("the store can be read") {
            sum.add(&counters);
        }
        sum
    }

    /// Returns the sum of everything. Checks that both widths have the same sum.
    async fn counted(&self, scope: SubjectScope) -> StatCounters {
        let sum = self.sum(scope.clone(), BucketWidth::Minute).await;
        assert_eq!(sum, self.sum(scope, BucketWidth::Quarter).await);
        sum
    }
}

fn everywhere(endpoint: EndpointId) -> [SubjectScope; 3] {
    [
        SubjectScope::Everything,
        SubjectScope::Tenant(id("acme")),
        SubjectScope::Endpoint(endpoint),
    ]
}

fn one_attempt() -> StatCounters {
    StatCounters {
        attempts: 1,
        latency_micros: LATENCY_MICROS,
        slowest_micros: LATENCY_MICROS,
        ..StatCounters::default()
    }
}

pub(super) async fn attempts_are_counted_when_they_are_recorded(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoint = world.add_endpoint(1).await;
    let sent = world.send(at(WHOLE), "a.b").await;
    // The attempt ends 10 ms after its start, in the next minute.
    world.fail_retryably(sent, at(WHOLE + MINUTE - 10)).await;
    world.fail_retryably(sent, at(WHOLE + 20 * MINUTE)).await;
    world.succeed(sent, at(WHOLE + 21 * MINUTE)).await;
    let first = StatCounters {
        retried_deliveries: 1,
        ..one_attempt()
    };
    let second = StatCounters {
        retries: 1,
        second_attempts: 1,
        ..one_attempt()
    };
    let third = StatCounters {
        retries: 1,
        succeeded: 1,
        success_attempts: 3,
        ..one_attempt()
    };
    let minute = |number: u64| at(WHOLE + number * MINUTE);
    let minutes = vec![
        (minute(1), first),
        (minute(20), second),
        (minute(21), third),
    ];
    let mut later = second;
    later.add(&third);
    let quarters = vec![(minute(0), first), (minute(15), later)];
    let world = world.reopened().await;
    for scope in everywhere(endpoint) {
        let stats = |width| world.store.stats(scope.clone(), width, at(0));
        assert_eq!(stats(BucketWidth::Minute).await, Ok(minutes.clone()));
        assert_eq!(stats(BucketWidth::Quarter).await, Ok(quarters.clone()));
        let failing = world.store.failing_stats(BucketWidth::Minute, at(0), 9);
        let mut all = first;
        all.add(&later);
        assert!(failing.await.unwrap().contains(&(scope, all)));
    }
}

pub(super) async fn dead_letters_without_an_attempt_are_counted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let mut sent = Vec::new();
    for ms in 0..8 {
        sent.push(world.send(at(WHOLE + ms), "a.b").await);
    }
    let failed = |failed| StatCounters {
        failed,
        ..StatCounters::default()
    };
    let expired = world.delivery(sent[0]).await;
    assert_eq!(
        world.expire(&expired, at(WHOLE + LATE)).await,
        Written::Applied
    );
    assert_eq!(
        world.cancel(sent[1], at(WHOLE + SECOND)).await,
        Written::Applied
    );
    assert_eq!(world.counted(SubjectScope::Everything).await, failed(1));
    let reason = DeadReason::EndpointDisabled;
    world.sweep(at(WHOLE + MINUTE), made, reason).await;
    for scope in everywhere(made) {
        assert_eq!(world.counted(scope.clone()).await, failed(7));
        let minutes = world.store.stats(scope, BucketWidth::Minute, at(0)).await;
        let minute = |number: u64| at(WHOLE + number * MINUTE);
        assert_eq!(
            minutes,
            Ok(vec![(minute(1), failed(6)), (at(WHOLE + LATE), failed(1))])
        );
    }
    // Deliveries of a deleted endpoint end too. They stay in the stats of its tenant and of everything.
    world.send(at(WHOLE + MINUTE), "a.b").await;
    world.set_status(made, EndpointStatus::Deleted).await;
    let reason = DeadReason::EndpointDeleted;
    world.sweep(at(WHOLE + MINUTE), made, reason).await;
    let [everything, tenant, endpoint] = everywhere(made);
    assert_eq!(world.counted(everything).await, failed(8));
    assert_eq!(world.counted(tenant).await, failed(8));
    assert_eq!(world.counted(endpoint).await, failed(0));
}

pub(super) async fn a_superseded_record_counts_nothing(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(WHOLE), "a.b").await;
    let before = world.delivery(sent).await;
    let success = attempt(&before, at(WHOLE), answered(200));
    let failure = attempt(&before, at(WHOLE), answered(400));
    assert_eq!(
        world.record(at(WHOLE), success.clone()).await,
        Written::Applied
    );
    let counted = world.counted(SubjectScope::Everything).await;
    assert_eq!((counted.attempts, counted.succeeded), (1, 1));
    for late in [success, failure] {
        assert_eq!(world.record(at(WHOLE), late).await, Written::Superseded);
    }
    assert_eq!(world.cancel(sent, at(WHOLE)).await, Written::Superseded);
    let mut expired = before.clone();
    expired.expire(at(WHOLE + LATE)).expect("it is late");
    let expire = Record::Expire(Box::new(expired));
    let written = record(&*world.store, at(WHOLE), expire, detail()).await;
    assert_eq!(written, Ok(Written::Superseded));
    assert_eq!(world.counted(SubjectScope::Everything).await, counted);
    // An attempt that disables its endpoint is written apart from others on some stores.
    let sent = world.send(at(WHOLE), "a.b").await;
    let mut disabling = attempt(&world.delivery(sent).await, at(WHOLE), answered(410));
    disabling.disable = Some(DisableCause::Gone);
    for written in [Written::Applied, Written::Superseded] {
        assert_eq!(world.record(at(WHOLE), disabling.clone()).await, written);
        let counted = world.counted(SubjectScope::Everything).await;
        assert_eq!(
            (counted.attempts, counted.succeeded, counted.failed),
            (2, 1, 1)
        );
    }
}

pub(super) async fn deliveries_of_the_operational_tenant_are_only_in_its_own_stats(
    harness: &dyn Harness,
) {
    let world = StoreFixture::open_with(
        harness,
        StoreSettings {
            operational_tenant: Some(id("operator")),
            ..settings()
        },
    );
    world.add_tenant("acme").await;
    world.add_tenant("operator").await;
    world.add_endpoint(1).await;
    let own = world.add(endpoint(2, "operator", &[])).await;
    let sent = world.send(at(WHOLE), "a.b").await;
    world.succeed(sent, at(WHOLE)).await;
    for ms in 0..3 {
        world.accept(at(WHOLE + ms), event("operator", "a.b")).await;
    }
    let waiting = world.fetch(own, at(WHOLE + SECOND), 1, false).await;
    let failing = attempt(&waiting.deliveries[0], at(WHOLE), answered(400));
    assert_eq!(world.record(at(WHOLE), failing).await, Written::Applied);
    let reason = DeadReason::EndpointDisabled;
    world.sweep(at(WHOLE), own, reason).await;
    let counted = async |scope| {
        let counted = world.counted(scope).await;
        (counted.attempts, counted.succeeded, counted.failed)
    };
    assert_eq!(counted(SubjectScope::Everything).await, (1, 1, 0));
    assert_eq!(counted(SubjectScope::Tenant(id("acme"))).await, (1, 1, 0));
    assert_eq!(
        counted(SubjectScope::Tenant(id("operator"))).await,
        (1, 0, 3)
    );
    assert_eq!(counted(SubjectScope::Endpoint(own)).await, (1, 0, 3));
}

/// The sums equal a count of the stored rows, whatever happened.
pub(super) async fn stats_of_records_equal_the_stored_attempts(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let mut endpoints = Vec::new();
    for number in 1..=5 {
        let types = [format!("of.{number}")];
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        endpoints.push(world.add(endpoint(number, "acme", &types)).await);
    }
    for number in 0..60_u64 {
        let now = at(WHOLE + number * 7 * SECOND);
        let event_type = format!("of.{}", number % 5 + 1);
        let sent = world.send(now, &event_type).await;
        match number % 6 {
            0 => world.succeed(sent, now).await,
            1 => world.fail(sent, now).await,
            2 => {
                world.fail_retryably(sent, now).await;
                world.succeed(sent, now).await;
            }
            3 => {
                let timeout = Outcome::Failed(TransportError::Timeout);
                world.try_once(sent, now, timeout).await;
            }
            4 => assert_eq!(world.cancel(sent, now).await, Written::Applied),
            _ => {}
        }
    }
    let now: Timestamp = at(WHOLE + 8 * MINUTE);
    world
        .sweep(now, endpoints[0], DeadReason::EndpointDisabled)
        .await;
    let world = world.reopened().await;
    let mut everything = (0, 0, 0);
    for endpoint in endpoints {
        let filter = DeliveryFilter {
            endpoint: Some(endpoint),
            ..DeliveryFilter::default()
        };
        let stored = world.deliveries("acme", filter).await;
        let ended = |status| {
            let ended = stored.iter().filter(|it| it.shown_status() == status);
            ended.count() as u64
        };
        let attempts = stored
            .iter()
            .map(|it| u64::from(it.delivery.facts().attempts));
        let expected = (
            attempts.sum::<u64>(),
            ended(Status::Succeeded),
            ended(Status::Failed),
        );
        let counted = world.counted(SubjectScope::Endpoint(endpoint)).await;
        assert_eq!(
            (counted.attempts, counted.succeeded, counted.failed),
            expected
        );
        everything.0 += expected.0;
        everything.1 += expected.1;
        everything.2 += expected.2;
    }
    for scope in [SubjectScope::Everything, SubjectScope::Tenant(id("acme"))] {
        let counted = world.counted(scope).await;
        assert_eq!(
            (counted.attempts, counted.succeeded, counted.failed),
            everything
        );
    }
}
