//! Endpoints that need attention, the most urgent first, each with its reason.
//!
//! The store knows the endpoints that are disabled, tripped or paused. The nodes know those that have failed
//! recently without tripping. After a restart no node remembers recent failures; the open alerts in the store
//! then show which endpoints fail. No secret is decrypted, so an endpoint with unreadable secrets is shown
//! like any other.

mod ranking;

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::alert::AlertName;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_notify::alerts::readings::FROM_COUNTERS;
use posthaste_store::{Alert, AlertFilter, EndpointRow, PageRequest, SubjectScope};
use posthaste_telemetry::metrics::RecentAttempts;
use rustc_hash::FxHashMap;

use super::App;
use super::body;
use super::problem::Problem;
use super::resources::{
    Attention, AttentionItem, AttentionReason, MAX_ATTENTION_ITEMS, attention_schemas,
};
use super::route::{
    Access, Call, Content, Group, RequestBody, Route, SuccessResponse, Verb, success,
};
use ranking::{Candidate, Finding};

/// Maximum number of endpoints that are examined.
const MAX_CANDIDATES: usize = 2 * MAX_ATTENTION_ITEMS;
/// Maximum number of endpoints read from the store, which returns paused ones last.
const MAX_ROWS_READ: usize = 1_000;
/// Maximum number of parallel store reads. Sending needs the same readers.
const MAX_PARALLEL_READS: usize = 8;

pub(super) static GROUP: Group = Group {
    name: "Attention",
    about: "Endpoints that need attention, most severe first: disabled automatically, breaker tripped, failing, limited, paused.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/attention",
            name: "get_attention",
            summary: "Lists the endpoints of all tenants that need attention, most severe first.",
            access: Access::Admin,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: ENDPOINTS,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/attention",
            name: "get_tenant_attention",
            summary: "Lists a tenant's endpoints that need attention, most severe first.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: ENDPOINTS,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas: attention_schemas,
};

const ENDPOINTS: &[SuccessResponse] = &[success(
    200,
    "The endpoints, at most 100; empty if all are healthy.",
    Content::Json("Attention"),
)];

/// `GET /v1/attention`.
async fn of_all(call: Call) -> Result<Response<Body>, Problem> {
    answer(&call.app, None).await
}

/// `GET …/attention`.
async fn of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant().tenant.id.clone();
    answer(&call.app, Some(tenant)).await
}

async fn answer(app: &App, tenant: Option<TenantId>) -> Result<Response<Body>, Problem> {
    let now = app.clock.wall();
    let candidates = candidates(app, tenant).await?;
    let findings = ranking::findings(candidates, now, MAX_ATTENTION_ITEMS);
    let data = findings.iter().map(describe).collect();
    Ok(body::answer(StatusCode::OK, &Attention { data }))
}

/// Returns endpoints that may need attention, with their recent results.
async fn candidates(app: &App, tenant: Option<TenantId>) -> Result<Vec<Candidate>, Problem> {
    let now = app.clock.wall();
    let attention_list = app
        .store
        .attention_list(tenant.clone(), MAX_ROWS_READ)
        .await?;
    let nothing = RecentAttempts::default();
    let mut rows: Vec<(AttentionReason, EndpointRow)> = attention_list
        .into_iter()
        .filter_map(|row| Some((ranking::reason(&row, &nothing, now)?, row)))
        .collect();
    rows.sort_by_key(|(reason, _)| *reason);
    rows.truncate(MAX_CANDIDATES);
    let rows: Vec<EndpointRow> = rows.into_iter().map(|(_, row)| row).collect();
    let ids: Vec<EndpointId> = rows.iter().map(|row| row.endpoint.id).collect();
    let OpenAlerts {
        about_stats: mut alerts,
        about_limits: mut limits,
    } = alerts(app, tenant.clone()).await?;
    let others = ids.iter().chain(alerts.keys()).chain(limits.keys());
    let others: Vec<EndpointId> = others.copied().collect();
    let recent = app.owner_router.lately(tenant.as_ref(), &others).await;
    let is_known = |id: &EndpointId| recent.get(id).is_some_and(|recent| recent.attempts > 0);
    alerts.retain(|id, _| !is_known(id) && !ids.contains(id));
    let mut failing = failing(app, tenant.as_ref(), &ids, &recent).await?;
    let shown: Vec<EndpointId> = failing.iter().map(|row| row.endpoint.id).collect();
    let mut alerted: Vec<EndpointId> = alerts.keys().chain(limits.keys()).copied().collect();
    alerted.sort_unstable();
    alerted.dedup();
    alerted.retain(|id| !shown.contains(id) && !ids.contains(id));
    failing.extend(still_enabled(app, tenant.as_ref(), alerted).await?);
    let mut candidates = Vec::new();
    let rows: Vec<EndpointRow> = rows.into_iter().chain(failing).collect();
    for chunk in rows.chunks(MAX_PARALLEL_READS) {
        let reads: Vec<_> = chunk
            .iter()
            .map(|row| app.store.pending(row.endpoint.id))
            .collect();
        for (row, pending) in chunk.iter().zip(reads) {
            let recent = recent.get(&row.endpoint.id).copied();
            candidates.push(Candidate {
                row: row.clone(),
                recent: recent.unwrap_or_default(),
                alert: alerts.remove(&row.endpoint.id),
                limited: limits.remove(&row.endpoint.id),
                pending: pending.await?,
            });
        }
    }
    Ok(candidates)
}

/// Returns endpoints that have failed recently and are not in `named`.
async fn failing(
    app: &App,
    tenant: Option<&TenantId>,
    named: &[EndpointId],
    recent: &FxHashMap<EndpointId, RecentAttempts>,
) -> Result<Vec<EndpointRow>, Problem> {
    let now = app.clock.wall();
    let mut failing: Vec<(EndpointId, RecentAttempts)> = recent
        .iter()
        .filter(|(id, recent)| recent.is_failing(now) && !named.contains(id))
        .map(|(id, recent)| (*id, *recent))
        .collect();
    failing.sort_by(|(one, a), (other, b)| {
        let by_ratio = a.success_ratio().total_cmp(&b.success_ratio());
        by_ratio.then_with(|| one.cmp(other))
    });
    failing.truncate(MAX_ATTENTION_ITEMS);
    let failing = failing.into_iter().map(|(id, _)| id).collect();
    still_enabled(app, tenant, failing).await
}

/// The newest open alert of each endpoint.
#[derive(Default)]
struct OpenAlerts {
    about_stats: FxHashMap<EndpointId, Alert>,
    /// Those that say that a limit holds deliveries back.
    about_limits: FxHashMap<EndpointId, Alert>,
}

/// Returns the open alerts of endpoints.
async fn alerts(app: &App, tenant: Option<TenantId>) -> Result<OpenAlerts, Problem> {
    let filter = AlertFilter {
        open: Some(true),
        tenant,
        ..AlertFilter::default()
    };
    let page = PageRequest {
        limit: MAX_CANDIDATES,
        before: None,
    };
    let open = app.store.alerts(filter, page).await?.items;
    let mut alerts = OpenAlerts::default();
    for alert in open {
        let SubjectScope::Endpoint(endpoint) = alert.scope else {
            continue;
        };
        if FROM_COUNTERS.contains(&alert.name) {
            alerts.about_stats.entry(endpoint).or_insert(alert);
        } else if alert.name == AlertName::HeldBack {
            alerts.about_limits.entry(endpoint).or_insert(alert);
        }
    }
    Ok(alerts)
}

/// Returns those of these endpoints that are enabled and belong to the tenant, if one is given.
async fn still_enabled(
    app: &App,
    tenant: Option<&TenantId>,
    endpoints: Vec<EndpointId>,
) -> Result<Vec<EndpointRow>, Problem> {
    let mut rows = Vec::new();
    for ids in endpoints.chunks(MAX_PARALLEL_READS) {
        let reads: Vec<_> = ids.iter().map(|id| app.store.endpoint(*id)).collect();
        for row in reads {
            rows.extend(row.await?);
        }
    }
    rows.retain(|row| {
        let is_of_tenant = tenant.is_none_or(|tenant| row.endpoint.tenant == *tenant);
        // No page could change an origin endpoint.
        is_of_tenant && row.status == EndpointStatus::Enabled && !row.endpoint.is_origin
    });
    Ok(rows)
}

fn describe(finding: &Finding) -> AttentionItem {
    let Candidate {
        row,
        recent,
        pending,
        ..
    } = &finding.candidate;
    AttentionItem {
        tenant_id: row.endpoint.tenant.to_string(),
        endpoint_id: row.endpoint.id.to_string(),
        url: row.endpoint.url.clone(),
        status: row.status,
        reason: finding.reason,
        since: finding.since().map(|at| at.to_string()),
        detail: finding.detail(),
        pending: *pending,
        success_ratio: recent.success_ratio(),
        last_failure_at: recent.last_failure.map(|failure| failure.at.to_string()),
    }
}
