//! Delivery stats: five health ratios with their ranges, and time series; of everything, a tenant or an endpoint.
//!
//! The store counts in the transactions that record attempts, so stats are the same on every node and survive a restart.
//! While the store is unavailable, the response is an error. A ratio without data has its healthy value. The definitions of the ratios are in
//! `posthaste_telemetry::metrics::health`.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_store::{
    DeliveryFilter, PageRequest, StoredDelivery, StoredStatus, SubjectScope, TenantSelection,
};
use posthaste_telemetry::metrics::HealthReport;
use posthaste_telemetry::metrics::retrying::{MAX_RETRYING_COUNTED, counted_tenants, long_ago};
use posthaste_telemetry::metrics::window::StatsWindow;

use super::App;
use super::body;
use super::endpoints;
use super::problem::Problem;
use super::resources::{Stats, StatsSeries, series_window, stats_schemas};
use super::route::{
    Access, Call, Content, Group, Handler, Parameter, RequestBody, Route, SuccessResponse, Verb,
    parameter, success,
};

/// Number of deliveries that are read at once to count those of one endpoint.
const WAITING_PER_PAGE: usize = 250;
/// Maximum number of deliveries that are read to count those of one endpoint, in each status.
const MAX_WAITING_SEEN: usize = MAX_RETRYING_COUNTED;
/// The windows with a time series. The first is the default.
const CHARTED: [StatsWindow; 2] = [StatsWindow::Hour, StatsWindow::Day];

const WINDOW: Parameter = parameter("window", "Time range; default `1h`.", series_window);

pub(super) static GROUP: Group = Group {
    name: "Stats",
    about: "Health metrics and time series of deliveries.",
    routes: &[
        route(
            "/v1/stats",
            "get_stats",
            "Returns the health metrics of all deliveries over 5 minutes, 1 hour and 24 hours.",
            Access::Admin,
            &[],
            HEALTH,
            |call| Box::pin(of_all(call)),
        ),
        route(
            "/v1/stats/series",
            "get_stats_series",
            "Returns the time series of all deliveries.",
            Access::Admin,
            &[WINDOW],
            SERIES,
            |call| Box::pin(series_of_all(call)),
        ),
        route(
            "/v1/tenants/{tenant}/stats",
            "get_tenant_stats",
            "Returns the health metrics of a tenant's deliveries over 5 minutes, 1 hour and 24 hours.",
            Access::Tenant,
            &[],
            HEALTH,
            |call| Box::pin(of_tenant(call)),
        ),
        route(
            "/v1/tenants/{tenant}/stats/series",
            "get_tenant_stats_series",
            "Returns the time series of a tenant's deliveries.",
            Access::Tenant,
            &[WINDOW],
            SERIES,
            |call| Box::pin(series_of_tenant(call)),
        ),
        route(
            "/v1/tenants/{tenant}/endpoints/{endpoint}/stats",
            "get_endpoint_stats",
            "Returns the health metrics of the deliveries to an endpoint over 5 minutes, 1 hour and 24 hours.",
            Access::Tenant,
            &[],
            HEALTH,
            |call| Box::pin(of_endpoint(call)),
        ),
        route(
            "/v1/tenants/{tenant}/endpoints/{endpoint}/stats/series",
            "get_endpoint_stats_series",
            "Returns the time series of the deliveries to an endpoint.",
            Access::Tenant,
            &[WINDOW],
            SERIES,
            |call| Box::pin(series_of_endpoint(call)),
        ),
    ],
    schemas: stats_schemas,
};

const HEALTH: &[SuccessResponse] = &[success(
    200,
    "The metrics with their ranges.",
    Content::Json("Stats"),
)];

const SERIES: &[SuccessResponse] = &[success(
    200,
    "The buckets, oldest first. The last one is incomplete.",
    Content::Json("Series"),
)];

const fn route(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    access: Access,
    query: &'static [Parameter],
    gives: &'static [SuccessResponse],
    handler: Handler,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        name,
        summary,
        access,
        query,
        request_body: RequestBody::Nothing,
        responses: gives,
        fails: &[],
        handler,
    }
}

/// `GET /v1/stats`.
async fn of_all(call: Call) -> Result<Response<Body>, Problem> {
    let retrying = retrying_over_24h(&call.app, None).await?;
    health(&call.app, &SubjectScope::Everything, retrying).await
}

/// `GET …/stats`.
async fn of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant().tenant.id.clone();
    let retrying = retrying_over_24h(&call.app, Some(tenant.clone())).await?;
    health(&call.app, &SubjectScope::Tenant(tenant), retrying).await
}

/// `GET …/endpoints/{endpoint}/stats`.
async fn of_endpoint(call: Call) -> Result<Response<Body>, Problem> {
    let endpoint = endpoints::find(&call).await?.endpoint.id;
    let tenant = &call.tenant().tenant.id;
    let retrying = retrying_to(&call.app, tenant, endpoint).await?;
    health(&call.app, &SubjectScope::Endpoint(endpoint), retrying).await
}

async fn health(app: &App, scope: &SubjectScope, retrying: u64) -> Result<Response<Body>, Problem> {
    let counters = app.owner_router.counters_of(scope).await?;
    let stats = Stats::from(HealthReport::new(counters, retrying));
    Ok(body::answer(StatusCode::OK, &stats))
}

/// Counts the deliveries that have been retried for longer than a day, of one tenant or of all.
pub(super) async fn retrying_over_24h(app: &App, tenant: Option<TenantId>) -> Result<u64, Problem> {
    let (since, most) = (long_ago(app.clock.wall()), MAX_RETRYING_COUNTED);
    let tenants = match tenant {
        Some(tenant) => TenantSelection::Only(tenant),
        None => counted_tenants(app.metrics.operational_tenant()),
    };
    Ok(app.store.retrying_since(tenants, since, most).await?)
}

/// Counts the same for one endpoint, including held deliveries. Deliveries accepted within the last day are
/// filtered out by the store, so that many new ones do not fill the page before the old ones.
async fn retrying_to(app: &App, tenant: &TenantId, endpoint: EndpointId) -> Result<u64, Problem> {
    let since = long_ago(app.clock.wall());
    let mut long = 0;
    for status in [StoredStatus::Retrying, StoredStatus::Held] {
        let is_long = |stored: &&StoredDelivery| {
            let delivery = &stored.delivery;
            delivery.status() == Status::Retrying && delivery.facts().due_at < since
        };
        let mut before = None;
        for _ in 0..MAX_WAITING_SEEN.div_ceil(WAITING_PER_PAGE) {
            let filter = DeliveryFilter {
                status: Some(status),
                endpoint: Some(endpoint),
                until: Some(since),
                ..DeliveryFilter::default()
            };
            let page = PageRequest {
                limit: WAITING_PER_PAGE,
                before,
            };
            let found = app.store.deliveries(tenant.clone(), filter, page).await?;
            long += found.items.iter().filter(is_long).count() as u64;
            before = found.next;
            if before.is_none() {
                break;
            }
        }
    }
    Ok(long)
}

/// `GET /v1/stats/series`.
async fn series_of_all(call: Call) -> Result<Response<Body>, Problem> {
    series(&call, &SubjectScope::Everything).await
}

/// `GET …/stats/series`.
async fn series_of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant().tenant.id.clone();
    series(&call, &SubjectScope::Tenant(tenant)).await
}

/// `GET …/endpoints/{endpoint}/stats/series`.
async fn series_of_endpoint(call: Call) -> Result<Response<Body>, Problem> {
    let endpoint = endpoints::find(&call).await?.endpoint.id;
    series(&call, &SubjectScope::Endpoint(endpoint)).await
}

async fn series(call: &Call, scope: &SubjectScope) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let window = match query.text("window") {
        None => CHARTED[0],
        Some(text) => {
            let charted = CHARTED.into_iter().find(|window| window.name() == text);
            charted.unwrap_or_else(|| {
                let names = CHARTED.map(StatsWindow::name).join(", ");
                query.wrong("window", format!("must be one of {names}"));
                CHARTED[0]
            })
        }
    };
    query.finish()?;
    let series = call.app.owner_router.series(scope, window).await?;
    Ok(body::answer(
        StatusCode::OK,
        &StatsSeries::new(window, &series),
    ))
}
