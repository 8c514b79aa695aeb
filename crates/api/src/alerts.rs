//! Reads alerts: open and resolved ones.
//!
//! An admin sees all of them. A tenant sees its own and those of its endpoints, and none of an earlier tenant
//! with the same id.

use axum::body::Body;
use http::Response;
use posthaste_core::id::{AlertId, EndpointId, TenantId};
use posthaste_store::{AlertFilter, SubjectScope};
use serde_json::json;

use super::paging::{self, Query};
use super::problem::Problem;
use super::resources::{Alert, AlertState, alert_name, alert_schemas, alert_state};
use super::route::{
    Access, Call, Content, Group, LIMIT, Parameter, RequestBody, Route, SuccessResponse, Verb,
    cursor, parameter, success,
};
use crate::resources::schema::{endpoint_id, tenant_id};

pub(super) static GROUP: Group = Group {
    name: "Alerts",
    about: "Problems that need attention. An alert concerns the server, a tenant or an endpoint; it is raised once and resolved once.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/alerts",
            name: "list_alerts",
            summary: "Lists all alerts, newest first.",
            access: Access::Admin,
            query: &[
                STATE,
                NAME,
                TENANT,
                ENDPOINT,
                SINCE,
                UNTIL,
                LIMIT,
                cursor::<AlertId>(),
            ],
            request_body: RequestBody::Nothing,
            responses: ALERTS,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/alerts",
            name: "list_tenant_alerts",
            summary: "Lists the alerts of a tenant and its endpoints, newest first.",
            access: Access::Tenant,
            query: &[
                STATE,
                NAME,
                ENDPOINT,
                SINCE,
                UNTIL,
                LIMIT,
                cursor::<AlertId>(),
            ],
            request_body: RequestBody::Nothing,
            responses: ALERTS,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas: alert_schemas,
};

const ALERTS: &[SuccessResponse] = &[success(200, "A page of alerts.", Content::List("Alert"))];

const STATE: Parameter = parameter(
    "state",
    "Only active alerts (`open`), or only resolved ones.",
    alert_state,
);

const NAME: Parameter = parameter("name", "Only alerts with this name.", alert_name);

const TENANT: Parameter = parameter(
    "tenant",
    "Only alerts of this tenant and its endpoints.",
    tenant_id,
);

const ENDPOINT: Parameter = parameter("endpoint", "Only alerts of this endpoint.", endpoint_id);

const SINCE: Parameter = parameter(
    "since",
    "Only alerts raised at this time or later.",
    || json!({"type": "string", "format": "date-time"}),
);

const UNTIL: Parameter = parameter(
    "until",
    "Only alerts raised before this time.",
    || json!({"type": "string", "format": "date-time"}),
);

/// `GET /v1/alerts`.
async fn of_all(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let tenant = query.parsed("tenant");
    list(&call, query, tenant).await
}

/// `GET …/alerts`.
async fn of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant().tenant.id.clone();
    list(&call, call.query(), Some(tenant)).await
}

async fn list(
    call: &Call,
    mut query: Query,
    tenant: Option<TenantId>,
) -> Result<Response<Body>, Problem> {
    let state: Option<AlertState> = query.parsed("state");
    let endpoint: Option<EndpointId> = query.parsed("endpoint");
    let filter = AlertFilter {
        open: state.map(|state| state == AlertState::Open),
        name: query.parsed("name"),
        tenant,
        scope: endpoint.map(SubjectScope::Endpoint),
        since: query.parsed("since"),
        until: query.parsed("until"),
    };
    let page = query.page();
    query.finish()?;
    let found = call.app.store.alerts(filter, page).await?;
    Ok(paging::answer(found, Alert::from))
}
