//! Tests of writing the counters to the store, and of reading them meanwhile.

use super::*;

struct NoHandOver;

impl HandOver for NoHandOver {
    fn accepted(&self, _: Vec<HandedOver>) {}
    fn broken(&self, _: &StoreError) {}
}

/// Creates a store with these tenants.
async fn store(tenants: &[&TenantId]) -> ModelStore {
    let store = ModelStore::new(StoreSettings::new(Rng::seeded(1)), Arc::new(NoHandOver));
    for id in tenants {
        let tenant = Tenant {
            id: (*id).clone(),
            name: String::new(),
            plan: None,
            default_retry_policy: None,
            sealed_keys: Vec::new(),
            limits: Limits::default(),
            endpoint_defaults: LimitOverrides::default(),
            protection: ProtectionOverrides::default(),
            created_at: NOON,
            revision: 0,
        };
        store.create_tenant(NOON, tenant).await.unwrap();
    }
    store
}

/// Returns the counters of a scope, written and unwritten.
async fn gathered(metrics: &Metrics, store: &ModelStore, scope: &SubjectScope) -> WindowCounters {
    let unwritten = metrics.unwritten().await;
    let stats = |width| store.stats(scope.clone(), width, Timestamp(0));
    WindowCounters {
        minutes: stats(BucketWidth::Minute).await.unwrap(),
        quarters: stats(BucketWidth::Quarter).await.unwrap(),
        pending: unwritten.pending(scope),
    }
}

#[tokio::test]
async fn written_and_unwritten_counters_together_are_complete() {
    let metrics = Metrics::new();
    let (good, bad) = (tenant("good"), tenant("bad"));
    let store = store(&[&good, &bad]).await;
    let ended = async |scope: &SubjectScope| {
        let counters = gathered(&metrics, &store, scope).await;
        let over = Window::ALL.map(|window| counters.over(at(0).wall, window));
        assert!(over.iter().all(|it| *it == over[0]), "{over:?}");
        (over[0].succeeded, over[0].failed)
    };
    let (good_scope, bad_scope) = (
        SubjectScope::Tenant(good.clone()),
        SubjectScope::Tenant(bad.clone()),
    );
    for round in 1..=3 {
        metrics.attempt(at(0), &success(&good));
        metrics.attempt(at(0), &retry(&bad, 2, Some(Status::Failed)));
        metrics.dead_lettered(at(0), &bad, EndpointId(8), 1);
        for _ in 0..2 {
            assert_eq!(ended(&SubjectScope::Everything).await, (round, 2 * round));
            assert_eq!(ended(&good_scope).await, (round, 0));
            assert_eq!(ended(&bad_scope).await, (0, 2 * round));
            let stranger = SubjectScope::Tenant(tenant("stranger"));
            assert_eq!(ended(&stranger).await, (0, 0));
            metrics.flush(&store).await.unwrap();
        }
        let unwritten = metrics.unwritten().await;
        assert_eq!(unwritten.pending(&SubjectScope::Everything), []);
        assert_eq!(unwritten.flushes(), round);
    }
    // A new tenant with the same id starts at zero. The totals keep the old counts.
    metrics.attempt(at(0), &retry(&bad, 2, Some(Status::Failed)));
    store.delete_tenant(NOON, bad.clone()).await.unwrap();
    metrics.forget(&bad);
    assert_eq!(ended(&bad_scope).await, (0, 0));
    assert_eq!(ended(&SubjectScope::Everything).await, (3, 7));
}

#[tokio::test]
async fn a_failed_write_is_retried() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    let store = store(&[&acme]).await;
    metrics.attempt(at(0), &success(&acme));
    store.fail_writes(Some(StoreError::Full));
    assert_eq!(metrics.flush(&store).await, Err(StoreError::Full));
    metrics.attempt(at(61_000), &success(&acme));
    assert_eq!(metrics.flush(&store).await, Err(StoreError::Full));
    let minutes = async || {
        let counters = gathered(&metrics, &store, &SubjectScope::Tenant(tenant("acme"))).await;
        (counters.minutes.len(), counters.pending.len())
    };
    assert_eq!(minutes().await, (0, 2));
    store.fail_writes(None);
    assert_eq!(metrics.flush(&store).await, Ok(()));
    assert_eq!(minutes().await, (2, 0));
    // A piece that was written without a confirmation is not written again.
    metrics.attempt(at(0), &success(&acme));
    store.lose_write_responses(Some(StoreError::Full));
    assert_eq!(metrics.flush(&store).await, Err(StoreError::Full));
    metrics.attempt(at(61_000), &success(&acme));
    store.lose_write_responses(None);
    assert_eq!(metrics.flush(&store).await, Ok(()));
    let all = gathered(&metrics, &store, &SubjectScope::Everything).await;
    assert_eq!(all.over(at(61_000).wall, Window::Hour).attempts, 4);
}

#[tokio::test]
async fn nothing_is_written_during_a_read() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    let store = store(&[&acme]).await;
    metrics.attempt(at(0), &success(&acme));
    let unwritten = metrics.unwritten().await;
    let mut flushing = std::pin::pin!(metrics.flush(&store));
    let waits = std::future::poll_fn(|context| {
        let polled = flushing.as_mut().poll(context);
        std::task::Poll::Ready(polled.is_pending())
    });
    assert!(waits.await);
    assert_eq!(unwritten.pending(&SubjectScope::Everything).len(), 1);
    drop(unwritten);
    assert_eq!(flushing.await, Ok(()));
    let unwritten = metrics.unwritten().await;
    assert_eq!(unwritten.pending(&SubjectScope::Everything), []);
}

/// With more than one piece, a reader in between neither misses nor doubles one.
#[tokio::test]
async fn a_read_during_a_flush_is_complete() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    let store = store(&[&acme]).await;
    for number in 0..3_000 {
        let attempt = AttemptEvent {
            endpoint: EndpointId(number),
            ..success(&acme)
        };
        metrics.attempt(at(0), &attempt);
    }
    let look = async {
        for _ in 0..50 {
            let counters = gathered(&metrics, &store, &SubjectScope::Tenant(tenant("acme"))).await;
            assert_eq!(counters.over(at(0).wall, Window::Hour).attempts, 3_000);
            tokio::task::yield_now().await;
        }
    };
    let (_, flushed) = tokio::join!(look, metrics.flush(&store));
    assert_eq!(flushed, Ok(()));
    assert!(metrics.unwritten().await.flushes() > 5);
}
