//! Stats by time bucket.
//!
//! Entries are added to the buckets of every width, for every scope. Old buckets are removed in small steps, and the
//! scopes with the most failures are listed first. What records and sweeps count is in `counted_stats`.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{StoreFixture, at, endpoint, id};
use posthaste_store::{BucketWidth, MAX_STAT_ENTRIES, StatCounters, StatEntry, SubjectScope};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// The first whole minute after the start, which is also a whole quarter of an hour.
const WHOLE: u64 = 100 * SECOND;

/// Returns counters whose numbers all differ.
fn counters(attempts: u64) -> StatCounters {
    StatCounters {
        attempts,
        retries: attempts / 2,
        second_attempts: attempts / 3,
        second_successes: attempts / 4,
        succeeded: attempts / 5,
        failed: attempts / 6,
        retried_deliveries: attempts / 7,
        success_attempts: attempts / 8,
        latency_micros: attempts * 1_000_000,
        slowest_micros: attempts * 10,
    }
}

fn healthy(attempts: u64) -> StatCounters {
    StatCounters {
        attempts,
        succeeded: attempts,
        ..StatCounters::default()
    }
}

fn happened(scope: &SubjectScope, ms: u64, counters: StatCounters) -> StatEntry {
    StatEntry {
        scope: scope.clone(),
        at: at(WHOLE + ms),
        counters,
    }
}

fn acme() -> SubjectScope {
    SubjectScope::Tenant(id("acme"))
}

impl StoreFixture<'_> {
    async fn happens(&self, happened: Vec<StatEntry>) {
        assert_eq!(self.store.add_stats(happened).await, Ok(()));
    }

    /// Returns the buckets of a scope: milliseconds after [`WHOLE`], and number of attempts.
    async fn buckets(&self, scope: &SubjectScope, width: BucketWidth) -> Vec<(u64, u64)> {
        let buckets = self.store.stats(scope.clone(), width, at(0)).await;
        let buckets = buckets.expect("the store can be read");
        let began = |began: Timestamp| began.since(at(WHOLE)).as_millis();
        buckets
            .iter()
            .map(|(at, counters)| (began(*at), counters.attempts))
            .collect()
    }
}

pub(super) async fn stats_are_added_up_and_survive_a_restart(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    assert_eq!(
        world
            .buckets(&SubjectScope::Everything, BucketWidth::Minute)
            .await,
        []
    );
    let scope = acme();
    world
        .happens(vec![
            happened(&scope, 0, counters(60)),
            happened(&scope, MINUTE - 1, counters(120)),
            happened(&scope, MINUTE, counters(600)),
            happened(&scope, 15 * MINUTE, counters(6_000)),
        ])
        .await;
    world
        .happens(vec![happened(&scope, 30 * SECOND, counters(61))])
        .await;
    world.happens(Vec::new()).await;
    let world = world.reopened().await;
    world
        .happens(vec![happened(&scope, 59 * SECOND, counters(240))])
        .await;
    let minutes = world
        .store
        .stats(scope.clone(), BucketWidth::Minute, at(0))
        .await;
    let mut first = counters(60);
    for more in [120, 61, 240] {
        first.add(&counters(more));
    }
    assert_eq!(
        first.slowest_micros, 2_400,
        "the maximum is stored, not the sum"
    );
    let minute = |number: u64| at(WHOLE + number * MINUTE);
    let expected = vec![
        (minute(0), first),
        (minute(1), counters(600)),
        (minute(15), counters(6_000)),
    ];
    assert_eq!(minutes, Ok(expected.clone()));
    let later = world
        .store
        .stats(scope.clone(), BucketWidth::Minute, minute(1));
    assert_eq!(later.await, Ok(expected[1..].to_vec()));
    let after = world
        .store
        .stats(scope.clone(), BucketWidth::Minute, at(WHOLE + 1));
    assert_eq!(
        after.await,
        Ok(expected[1..].to_vec()),
        "the bucket that contains the start time is included"
    );
    let quarters = world.buckets(&scope, BucketWidth::Quarter).await;
    assert_eq!(quarters, [(0, 1_081), (15 * MINUTE, 6_000)]);
}

pub(super) async fn many_stats_are_added_at_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let all = |number: u64| happened(&SubjectScope::Everything, number * SECOND, healthy(1));
    let many: Vec<StatEntry> = (0..MAX_STAT_ENTRIES as u64).map(all).collect();
    world.happens(many).await;
    let buckets = world
        .buckets(&SubjectScope::Everything, BucketWidth::Minute)
        .await;
    assert_eq!(buckets.len(), MAX_STAT_ENTRIES.div_ceil(60));
    let attempts: u64 = buckets.iter().map(|(_, attempts)| attempts).sum();
    assert_eq!(attempts, MAX_STAT_ENTRIES as u64);
}

pub(super) async fn scopes_have_separate_stats(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let hers = SubjectScope::Endpoint(world.add_endpoint(1).await);
    let scopes = [
        SubjectScope::Everything,
        acme(),
        SubjectScope::Tenant(id("other")),
        hers.clone(),
        SubjectScope::Endpoint(world.add(endpoint(2, "other", &[])).await),
    ];
    let each =
        |(number, scope): (usize, &SubjectScope)| happened(scope, 0, healthy(number as u64 + 1));
    world
        .happens(scopes.iter().enumerate().map(each).collect())
        .await;
    for (number, scope) in scopes.iter().enumerate() {
        let expected = [(0, number as u64 + 1)];
        assert_eq!(world.buckets(scope, BucketWidth::Minute).await, expected);
        assert_eq!(world.buckets(scope, BucketWidth::Quarter).await, expected);
    }
    let nobody = [
        SubjectScope::Tenant(id("nobody")),
        SubjectScope::Endpoint(EndpointId(77)),
    ];
    let mut some: Vec<StatEntry> = nobody
        .iter()
        .map(|it| happened(it, 0, counters(6)))
        .collect();
    some.push(happened(&acme(), 0, healthy(10)));
    world.happens(some).await;
    for scope in &nobody {
        assert_eq!(world.buckets(scope, BucketWidth::Minute).await, []);
    }
    let buckets = world.buckets(&acme(), BucketWidth::Minute).await;
    assert_eq!(
        buckets,
        [(0, 12)],
        "entries of unknown scopes do not affect the known ones"
    );
    world
        .set_status(EndpointId(1), EndpointStatus::Deleted)
        .await;
    world.happens(vec![happened(&hers, 0, healthy(1))]).await;
    assert_eq!(world.buckets(&hers, BucketWidth::Minute).await, []);
}

pub(super) async fn a_new_tenant_with_a_reused_id_has_no_stats(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoint = SubjectScope::Endpoint(world.add_endpoint(1).await);
    let scopes = [SubjectScope::Everything, acme(), endpoint.clone()];
    let all = |counters| -> Vec<StatEntry> {
        let each = scopes.iter().map(|scope| happened(scope, 0, counters));
        each.collect()
    };
    world.happens(all(counters(60))).await;
    world.store.delete_tenant(at(1), id("acme")).await.unwrap();
    assert_eq!(world.buckets(&acme(), BucketWidth::Minute).await, []);
    world.happens(all(counters(60))).await;
    world.add_tenant("acme").await;
    let world = world.reopened().await;
    for scope in [acme(), endpoint] {
        assert_eq!(world.buckets(&scope, BucketWidth::Minute).await, []);
    }
    let buckets = world
        .buckets(&SubjectScope::Everything, BucketWidth::Minute)
        .await;
    assert_eq!(buckets, [(0, 120)]);
    let failing = world
        .store
        .failing_stats(BucketWidth::Minute, at(0), 9)
        .await;
    let failing: Vec<SubjectScope> = failing.unwrap().into_iter().map(|it| it.0).collect();
    assert_eq!(failing, [SubjectScope::Everything]);
    world.happens(vec![happened(&acme(), 0, healthy(3))]).await;
    assert_eq!(world.buckets(&acme(), BucketWidth::Minute).await, [(0, 3)]);
}

pub(super) async fn old_buckets_are_removed_in_small_steps(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let scope = SubjectScope::Everything;
    let each = |minute: u64| happened(&scope, minute * MINUTE, healthy(1));
    world.happens((0..150).map(each).collect()).await;
    let minutes = async || world.buckets(&scope, BucketWidth::Minute).await.len();
    let quarters = async || world.buckets(&scope, BucketWidth::Quarter).await.len();
    let hour = 60 * MINUTE;
    // At this time the buckets of two hours are kept.
    let now = at(WHOLE + 150 * MINUTE);
    let first = world.retention_step(now, hour, 4).await;
    assert_eq!(
        (first.more, minutes().await),
        (true, 146),
        "a step removes at most its limit"
    );
    world.step_retention(now, hour).await;
    let buckets = world.buckets(&scope, BucketWidth::Minute).await;
    assert_eq!((buckets[0].0, buckets.len()), (30 * MINUTE, 120));
    assert_eq!(quarters().await, 10);
    world.step_retention(at(WHOLE + 25 * hour), hour).await;
    assert_eq!((minutes().await, quarters().await), (0, 10));
    world.step_retention(at(WHOLE + 25 * hour + 1), hour).await;
    assert_eq!(quarters().await, 9);
    world.step_retention(at(WHOLE + 28 * hour), hour).await;
    assert_eq!(quarters().await, 0);
}

pub(super) async fn the_scopes_with_most_failures_come_first(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let bad = SubjectScope::Endpoint(world.add_endpoint(1).await);
    let good = SubjectScope::Endpoint(world.add_endpoint(2).await);
    let once = SubjectScope::Endpoint(world.add_endpoint(3).await);
    let retried = |retries| StatCounters {
        attempts: retries,
        retries,
        slowest_micros: retries,
        ..StatCounters::default()
    };
    let given_up = StatCounters {
        failed: 40,
        ..StatCounters::default()
    };
    world
        .happens(vec![
            happened(&once, 0, retried(1_000)),
            happened(&bad, MINUTE, retried(30)),
            happened(&bad, 2 * MINUTE, healthy(500)),
            happened(&bad, 3 * MINUTE, given_up),
            happened(&good, 2 * MINUTE, healthy(9_000)),
            happened(&acme(), MINUTE, retried(2)),
            happened(&acme(), 2 * MINUTE, retried(20)),
            happened(&SubjectScope::Tenant(id("other")), MINUTE, given_up),
        ])
        .await;
    let since = |ms: u64, limit: usize| {
        let failing = world
            .store
            .failing_stats(BucketWidth::Minute, at(WHOLE + ms), limit);
        async move { failing.await.expect("the store can be read") }
    };
    let mut worst = healthy(500);
    worst.add(&retried(30));
    worst.add(&given_up);
    let mut hers = retried(2);
    hers.add(&retried(20));
    let expected = vec![
        (bad.clone(), worst),
        (SubjectScope::Tenant(id("other")), given_up),
        (acme(), hers),
    ];
    assert_eq!(since(MINUTE, 9).await, expected);
    assert_eq!(since(MINUTE, 2).await, expected[..2]);
    assert_eq!(since(MINUTE, 0).await, []);
    assert_eq!(since(0, 1).await, [(once.clone(), retried(1_000))]);
    let quarter = world
        .store
        .failing_stats(BucketWidth::Quarter, at(WHOLE), 9)
        .await;
    let scopes: Vec<SubjectScope> = quarter.unwrap().into_iter().map(|it| it.0).collect();
    let all = [once, bad.clone(), SubjectScope::Tenant(id("other")), acme()];
    assert_eq!(scopes, all);
    world
        .set_status(EndpointId(1), EndpointStatus::Deleted)
        .await;
    assert_eq!(since(MINUTE, 2).await, expected[1..]);
}
