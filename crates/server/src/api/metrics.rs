//! The figures for Prometheus.
//!
//! They are those of this node, but for what the store counts, which every node tells. They tell of no
//! tenant, so they need no key. What cannot be asked at the moment is left at zero: a
//! scrape of a server in trouble is worth more than none.

use std::time::Duration;

use axum::body::Body;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use super::App;
use super::call::Call;
use super::problem::Problem;
use super::route::{Access, Content, Gives, Group, Route, Takes, Verb};
use super::stats::retrying_over_24h;
use crate::observe::Gauges;
use crate::observe::exposition;
use crate::observe::metric::Metric;

/// How long the engine may take to count its breakers. One that is still starting does not answer.
const ENGINE_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) static GROUP: Group = Group {
    name: "Metrics",
    about: "The figures for Prometheus.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/metrics",
        name: "get_metrics",
        summary: "Shows every metric, in the text format of Prometheus.",
        access: Access::Open,
        query: &[],
        takes: Takes::Nothing,
        gives: &[Gives {
            status: 200,
            about: "The metrics.",
            content: Content::Other("text/plain"),
        }],
        fails: &[],
        handler: |call| Box::pin(metrics(call)),
    }],
    schemas: Vec::new,
};

/// `GET /metrics`.
async fn metrics(call: Call) -> Result<Response<Body>, Problem> {
    let text = exposition::render(&all(&call.app).await);
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    let text = HeaderValue::from_static(exposition::CONTENT_TYPE);
    headers.insert(CONTENT_TYPE, text);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Every metric, as it is now.
pub(crate) async fn all(app: &App) -> Vec<Metric> {
    let gauges = gauges(app).await;
    let mut metrics = app.observe.metrics(app.clock.now(), &gauges);
    metrics.extend(app.telemetry.metrics());
    metrics
}

async fn gauges(app: &App) -> Gauges {
    let counts = tokio::time::timeout(ENGINE_TIMEOUT, app.store.counts()).await;
    let counts = counts.ok().and_then(Result::ok).unwrap_or_default();
    let breakers = tokio::time::timeout(ENGINE_TIMEOUT, app.engine.breakers()).await;
    let breakers = breakers.ok().and_then(Result::ok).unwrap_or_default();
    Gauges {
        pending: counts.pending,
        in_flight: app.engine.flight_count() as u64,
        breakers_passing: breakers.passing as u64,
        breakers_tripped: breakers.tripped as u64,
        breakers_probing: breakers.probing as u64,
        dead_letters: counts.dead_letters,
        retrying_over_24h: retrying_over_24h(app, None).await.unwrap_or_default(),
        shards: app.switchboard.shards_owned() as u64,
        nodes: app.switchboard.node_count() as u64,
    }
}
