//! Metrics for Prometheus.
//!
//! Each metric is either of this node or of the whole store; the latter is the same on every node. Metrics
//! name no tenant, so they need no key. Only series of single endpoints, if the operator enables them, name
//! tenants, and they need an admin key. A value that is unavailable is left out: an incomplete scrape of a
//! server in trouble is better than none.

use std::time::Duration;

use axum::body::Body;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use posthaste_core::dispatcher::BreakerCounts;
use posthaste_engine::EnginePhase;
use posthaste_store::SubjectScope;
use posthaste_telemetry::metrics::metric::Metric;
use posthaste_telemetry::metrics::process_usage::{self, Process};
use posthaste_telemetry::metrics::window::StatsWindow;
use posthaste_telemetry::metrics::{EndpointPending, Gauges, exposition};
use tokio::time::timeout;

use super::App;
use super::auth::bearer;
use super::problem::Problem;
use super::route::{Access, Call, Content, Group, RequestBody, Route, Verb, success};
use super::stats::retrying_over_24h;

/// Maximum time for one value from the engine or the store. An engine that is still starting does not answer.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum time for counting the waiting deliveries of single endpoints.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of parallel store reads. Sending needs the same readers.
const MAX_PARALLEL_READS: usize = 16;

pub(super) static GROUP: Group = Group {
    name: "Metrics",
    about: "Metrics for Prometheus.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/metrics",
        name: "get_metrics",
        summary: "Returns all metrics in the Prometheus text format. Metrics of single endpoints require an admin key and `metrics.per_endpoint`.",
        access: Access::Open,
        query: &[],
        request_body: RequestBody::Nothing,
        responses: &[success(200, "The metrics.", Content::Other("text/plain"))],
        fails: &[],
        handler: |call| Box::pin(metrics(call)),
    }],
    schemas: Vec::new,
};

/// `GET /metrics`.
async fn metrics(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let reading = app.clone();
    let read = app.gauges.run(async move { gauges(&reading).await });
    let mut gauges = read.await.unwrap_or_default();
    if may_see_endpoints(&call).await {
        gauges.shows_endpoints = true;
        gauges.endpoints = pending_by_endpoint(app).await;
    }
    let text = exposition::render(&collect(app, &gauges));
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    let text = HeaderValue::from_static(exposition::CONTENT_TYPE);
    headers.insert(CONTENT_TYPE, text);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns the present value of every metric that names no tenant.
pub async fn all(app: &App) -> Vec<Metric> {
    collect(app, &gauges(app).await)
}

fn collect(app: &App, gauges: &Gauges) -> Vec<Metric> {
    let reserved_bytes = app.body_budget.reserved_bytes();
    app.metrics.requests.body_bytes(reserved_bytes);
    let mut metrics = app.metrics.metrics(gauges);
    metrics.extend(app.metrics.outboxes.metrics(app.clock.now().tick));
    metrics.extend(app.metrics.schedules.metrics());
    metrics.extend(app.telemetry.metrics());
    metrics
}

/// Returns true if series of single endpoints are enabled and the caller has an admin key. Other callers
/// still get all other metrics.
async fn may_see_endpoints(call: &Call) -> bool {
    let (app, headers) = (&call.app, call.headers());
    if app.metrics.endpoint_counters().is_none() || bearer(headers).is_none() {
        return false;
    }
    let caller = app.authenticate(headers, &call.source).await;
    caller.is_ok_and(|caller| caller.must_be_admin().is_ok())
}

/// Reads the gauges of the engine, the store, all nodes and the machine.
async fn gauges(app: &App) -> Gauges {
    let breakers = match app.engine.phase() {
        // An engine that is starting has no lanes, so no breaker has tripped.
        EnginePhase::Starting => Some(BreakerCounts::default()),
        EnginePhase::Running | EnginePhase::Stopped => within(app.engine.breakers()).await,
    };
    let held_back = match app.engine.phase() {
        EnginePhase::Starting => Some(Vec::new()),
        EnginePhase::Running | EnginePhase::Stopped => within(app.engine.held_back_counts()).await,
    };
    let hour = app
        .owner_router
        .counters(&SubjectScope::Everything, StatsWindow::Hour);
    let path = app.store.path();
    Gauges {
        counts: within(app.store.counts()).await,
        in_flight: app.engine.in_flight_count() as u64,
        breakers,
        held_back,
        retrying_over_24h: within(retrying_over_24h(app, None)).await,
        clock_offset_ms: app.clock.offset_ms(),
        shards: app.owner_router.shards_owned() as u64,
        nodes: app.owner_router.node_count() as u64,
        // This asks other nodes too, so it gets more time.
        hour: timeout(COUNT_TIMEOUT, hour).await.ok().and_then(Result::ok),
        queue_age: timeout(READ_TIMEOUT, app.queue_age.read())
            .await
            .ok()
            .flatten(),
        store_free_ratio: path.and_then(process_usage::free_ratio),
        process: Process::read(),
        alerts: within(app.store.open_alerts()).await,
        ..Gauges::default()
    }
}

async fn within<T, E>(read: impl Future<Output = Result<T, E>>) -> Option<T> {
    timeout(READ_TIMEOUT, read).await.ok().and_then(Result::ok)
}

/// Counts the waiting deliveries of each endpoint with its own series. Leaves out those that are not counted in time.
async fn pending_by_endpoint(app: &App) -> Vec<EndpointPending> {
    let mut known = Vec::new();
    let busy = app.metrics.endpoint_counters().unwrap_or_default();
    let counting = async {
        for chunk in busy.chunks(MAX_PARALLEL_READS) {
            let reads: Vec<_> = chunk.iter().map(|(id, _)| app.store.pending(*id)).collect();
            for ((endpoint, counted), read) in chunk.iter().zip(reads) {
                let Ok(pending) = read.await else {
                    return;
                };
                known.push(EndpointPending {
                    tenant: counted.tenant.clone(),
                    endpoint: *endpoint,
                    pending,
                });
            }
        }
    };
    let _ = timeout(COUNT_TIMEOUT, counting).await;
    known
}
