//! Measures how long accepts of one tenant take on PostgreSQL while another tenant, or posthaste itself, does as much as
//! it can: large requests, sweeps, replays, the deletion of the tenant, a retention run.
//!
//! `cargo run --release --example stalls -- URL [SECONDS]` needs an empty database.
#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reaches its own server without the egress crate"
)]

#[path = "../tests/engines/mod.rs"]
mod engines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthaste_core::delivery::DeadReason;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::rng::Rng;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::postgres::{PostgresStore, ServerUrl};
use posthaste_store::{
    Content, Endpoint, NewEvent, ReplayFilter, ReplayScope, Retention, Store, StoreSettings,
    StoredStatus, Tenant,
};
use posthaste_store_testing::NoHandOver;

/// Endpoints of the hostile tenant, which all get every event.
const ENDPOINTS: u128 = 1_000;
/// The endpoint of the tenant whose accepts are measured.
const QUIET: EndpointId = EndpointId(1 << 64);
/// Requests of the hostile tenant at once.
const HOSTILE_REQUESTS: usize = 6;
/// Requests of the measured tenant at once, and the pause of each between two.
const PROBES: usize = 4;
const PROBE_PAUSE: Duration = Duration::from_millis(5);
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn main() {
    let mut args = std::env::args().skip(1);
    let url: ServerUrl = args.next().expect("a URL").parse().expect("a URL");
    let seconds = args
        .next()
        .map_or(10, |text| text.parse().expect("seconds"));
    let lasts = Duration::from_secs(seconds);
    let settings = StoreSettings::new(Rng::seeded(1));
    let cluster_events = Arc::new(engines::IgnoreClusterEvents);
    let store = PostgresStore::open(
        engines::settings(url),
        settings,
        Arc::new(NoHandOver),
        cluster_events,
    );
    let store = Arc::new(store.expect("it opens"));
    while store.owned_shards().len() < 256 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    println!("| beside | p50 ms | p99 ms | max ms | refused | seconds | peak MB |");
    println!("|---|---|---|---|---|---|---|");
    runtime.block_on(measure(store, lasts));
}

async fn measure(store: Arc<PostgresStore>, lasts: Duration) {
    create_fixture(&store).await;
    let shared = store.clone();
    beside(&store, "nothing", tokio::time::sleep(lasts)).await;
    for (name, events) in [
        ("requests with 1 × 1,000 deliveries", 1),
        ("requests with 10 × 1,000 deliveries", 10),
        ("requests with 1,000 × 1,000 deliveries", 1_000),
    ] {
        let requests = flood(shared.clone(), events, lasts);
        beside(&store, name, requests).await;
    }
    beside(
        &store,
        "disabling all endpoints",
        sweep_all(shared.clone(), false),
    )
    .await;
    let replay = create_replay(shared.clone());
    let replay = beside(&store, "create_replay", replay).await;
    let steps = step_replay(shared.clone(), replay);
    beside(&store, "step_replay", steps).await;
    beside(&store, "delete_tenant", sweep_all(shared.clone(), true)).await;
    beside(&store, "a retention run", retention_run(shared.clone())).await;
}

/// Runs something, and prints how long the accepts of the quiet tenant took meanwhile.
async fn beside<T>(
    store: &Arc<PostgresStore>,
    name: &str,
    run: impl Future<Output = T> + Send,
) -> T {
    // Resets the peak of the resident memory.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let stop = Arc::new(AtomicBool::new(false));
    let probes: Vec<_> = (0..PROBES)
        .map(|_| tokio::spawn(probe(store.clone(), stop.clone())))
        .collect();
    let began = Instant::now();
    let result = run.await;
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let (mut times, mut refused) = (Vec::new(), 0);
    for probe in probes {
        let (found, refusals) = probe.await.expect("no panic");
        times.extend(found);
        refused += refusals;
    }
    times.sort_unstable();
    let ms = |share: usize| {
        let index = (times.len() * share / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |it| it.as_secs_f64() * 1e3)
    };
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {refused} of {} | {:.1} | {} |",
        ms(50),
        ms(99),
        ms(100),
        times.len() + refused,
        took.as_secs_f64(),
        peak_mb()
    );
    result
}

async fn probe(store: Arc<PostgresStore>, stop: Arc<AtomicBool>) -> (Vec<Duration>, usize) {
    let (mut times, mut refused) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match store.accept(NOW, vec![event("quiet")]).await {
            Ok(_) => times.push(began.elapsed()),
            Err(_) => refused += 1,
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    (times, refused)
}

/// Sends requests of the hostile tenant, each with this number of events.
async fn flood(store: Arc<PostgresStore>, events: usize, lasts: Duration) {
    let until = Instant::now() + lasts;
    let requests: Vec<_> = (0..HOSTILE_REQUESTS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                while Instant::now() < until {
                    let events = (0..events).map(|_| event("hostile")).collect();
                    // A request may be refused.
                    let _ = store.accept(NOW, events).await;
                }
            })
        })
        .collect();
    for request in requests {
        request.await.expect("no panic");
    }
}

/// Disables or deletes all endpoints of the hostile tenant, and fails what waits for them.
async fn sweep_all(store: Arc<PostgresStore>, delete: bool) {
    let (status, reason) = match delete {
        true => (EndpointStatus::Deleted, DeadReason::EndpointDeleted),
        false => (EndpointStatus::Disabled, DeadReason::EndpointDisabled),
    };
    if delete {
        let deleted = store.delete_tenant(NOW, tenant_id("hostile")).await;
        assert!(deleted.is_ok_and(|endpoints| endpoints.is_some()));
    }
    let sweeps: Vec<_> = (1..=ENDPOINTS)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let endpoint = EndpointId(number);
                let set = store.set_endpoint_status(NOW, endpoint, status, None, None);
                set.await.expect("it is set");
                while store
                    .sweep(NOW, endpoint, reason, [].into(), 1_000)
                    .await
                    .expect("it is swept")
                    .more
                {}
            })
        })
        .collect();
    for sweep in sweeps {
        sweep.await.expect("no panic");
    }
}

async fn create_replay(store: Arc<PostgresStore>) -> posthaste_core::id::ReplayId {
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let replay = store.create_replay(NOW, tenant_id("hostile"), filter).await;
    let replay = replay.expect("it is created");
    println!("| ({} targets) | | | | | | |", replay.total);
    replay.id
}

/// Enables the endpoints, and replays for up to 20,000 deliveries.
async fn step_replay(store: Arc<PostgresStore>, replay: posthaste_core::id::ReplayId) {
    for number in 1..=ENDPOINTS {
        let endpoint = EndpointId(number);
        let enabled = EndpointStatus::Enabled;
        let set = store.set_endpoint_status(NOW, endpoint, enabled, None, None);
        set.await.expect("it is set");
    }
    for _ in 0..80 {
        store.step_replay(NOW, replay, 256).await.expect("a step");
    }
}

async fn retention_run(store: Arc<PostgresStore>) {
    let later = NOW.after(Span::from_days(60));
    let retention = Retention::all(Span::from_days(30), 1_000);
    while store
        .step_retention(later, retention.clone())
        .await
        .expect("a step")
        .more
    {}
}

async fn create_fixture(store: &PostgresStore) {
    for name in ["hostile", "quiet"] {
        let tenant = Tenant::new(tenant_id(name), name.to_owned(), NOW);
        store.create_tenant(NOW, tenant).await.expect("a tenant");
    }
    for number in 1..=ENDPOINTS {
        let made = store.create_endpoint(NOW, endpoint("hostile", EndpointId(number)), u32::MAX);
        made.await.expect("an endpoint");
    }
    let made = store.create_endpoint(NOW, endpoint("quiet", QUIET), u32::MAX);
    made.await.expect("an endpoint");
}

fn tenant_id(name: &str) -> TenantId {
    name.parse().expect("a name")
}

fn event(tenant: &str) -> NewEvent {
    NewEvent::new(
        tenant_id(tenant),
        Content::new(
            "invoice.paid".parse().expect("a type"),
            Bytes::from_static(b"{}"),
        ),
    )
}

fn endpoint(tenant: &str, id: EndpointId) -> Endpoint {
    Endpoint {
        owner_email_confirmed: true,
        ..Endpoint::new(
            id,
            tenant_id(tenant),
            "https://example.com/hook".to_owned(),
            NOW,
        )
    }
}

/// Returns the peak of the resident memory since it was reset.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.unwrap_or(0) / 1_024
}
