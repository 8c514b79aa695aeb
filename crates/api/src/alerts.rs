//! Reads alerts: open and resolved ones.
//!
//! An admin sees all of them. A tenant sees its own and those of its endpoints, and none of an earlier tenant
//! with the same id.

use axum::body::Body;
use http::Response;
use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_notify::alerts::words;
use posthaste_notify::runbook;
use posthaste_store::{Alert, AlertFilter, Scope};
use serde::Serialize;
use serde_json::{Value, json};

use super::call::Call;
use super::delivery_view::Shown;
use super::paging::{self, Query};
use super::problem::Problem;
use super::route::{
    Access, CURSOR, Content, Group, LIMIT, Parameter, RequestBody, Route, Schema, SuccessResponse,
    Verb,
};

pub(super) static GROUP: Group = Group {
    name: "Alerts",
    about: "What is wrong: each alert is raised once and resolved once, about everything, a tenant or an endpoint.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/alerts",
            name: "list_alerts",
            summary: "Lists alerts about anything, the newest first.",
            access: Access::Admin,
            query: &[STATE, NAME, TENANT, ENDPOINT, SINCE, UNTIL, LIMIT, CURSOR],
            takes: RequestBody::Nothing,
            gives: ALERTS,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/alerts",
            name: "list_tenant_alerts",
            summary: "Lists alerts about a tenant and its endpoints, the newest first.",
            access: Access::Tenant,
            query: &[STATE, NAME, ENDPOINT, SINCE, UNTIL, LIMIT, CURSOR],
            takes: RequestBody::Nothing,
            gives: ALERTS,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas,
};

const ALERTS: &[SuccessResponse] = &[SuccessResponse {
    status: 200,
    about: "A page of alerts.",
    content: Content::List("Alert"),
}];

const STATE: Parameter = Parameter {
    name: "state",
    about: "Only those that go on, or only those that are over.",
    shape: || json!({"enum": ["open", "resolved"]}),
};

const NAME: Parameter = Parameter {
    name: "name",
    about: "Only those of this name.",
    shape: || json!({"enum": AlertName::ALL.map(AlertName::name)}),
};

const TENANT: Parameter = Parameter {
    name: "tenant",
    about: "Only those about this tenant and its endpoints.",
    shape: || json!({"type": "string"}),
};

const ENDPOINT: Parameter = Parameter {
    name: "endpoint",
    about: "Only those about this endpoint.",
    shape: || json!({"type": "string"}),
};

const SINCE: Parameter = Parameter {
    name: "since",
    about: "Only those raised at this time or later.",
    shape: || json!({"type": "string", "format": "date-time"}),
};

const UNTIL: Parameter = Parameter {
    name: "until",
    about: "Only those raised before this time.",
    shape: || json!({"type": "string", "format": "date-time"}),
};

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
    let state: Option<State> = query.parsed("state");
    let endpoint: Option<EndpointId> = query.parsed("endpoint");
    let filter = AlertFilter {
        open: state.map(|state| state == State::Open),
        name: query.parsed("name"),
        tenant,
        scope: endpoint.map(Scope::Endpoint),
        since: query.parsed("since"),
        until: query.parsed("until"),
    };
    let page = query.page();
    query.finish()?;
    let found = call.app.store.alerts(filter, page).await?;
    Ok(paging::answer(found, AlertView::new))
}

/// The state of an alert.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Resolved,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Resolved => "resolved",
        }
    }
}

impl std::str::FromStr for State {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<State, &'static str> {
        match text {
            "open" => Ok(State::Open),
            "resolved" => Ok(State::Resolved),
            _ => Err("must be open or resolved"),
        }
    }
}

/// An alert in an API response.
#[derive(Serialize)]
struct AlertView {
    id: Shown<AlertId>,
    name: &'static str,
    scope: ScopeView,
    state: &'static str,
    raised_at: Shown<Timestamp>,
    resolved_at: Option<Shown<Timestamp>>,
    value: Option<f64>,
    threshold: Option<f64>,
    message: String,
    runbook: String,
    detail: Value,
}

/// The subject of an alert.
#[derive(Serialize)]
struct ScopeView {
    kind: &'static str,
    tenant_id: Option<Shown<TenantId>>,
    endpoint_id: Option<Shown<EndpointId>>,
}

impl AlertView {
    fn new(alert: Alert) -> AlertView {
        let (message, runbook) = (words::message(&alert), runbook::section(alert.name));
        let state = match alert.resolved_at {
            None => State::Open,
            Some(_) => State::Resolved,
        };
        let (kind, endpoint) = match alert.scope {
            Scope::Everything => ("everything", None),
            Scope::Tenant(_) => ("tenant", None),
            Scope::Endpoint(endpoint) => ("endpoint", Some(endpoint)),
        };
        let number = |name: &str| alert.detail.get(name).and_then(Value::as_f64);
        AlertView {
            id: Shown(alert.id),
            name: alert.name.name(),
            scope: ScopeView {
                kind,
                tenant_id: alert.tenant.map(Shown),
                endpoint_id: endpoint.map(Shown),
            },
            state: state.word(),
            raised_at: Shown(alert.raised_at),
            resolved_at: alert.resolved_at.map(Shown),
            value: number("value"),
            threshold: number("threshold"),
            message,
            runbook,
            detail: alert.detail,
        }
    }
}

fn schemas() -> Vec<Schema> {
    let time = json!({"type": "string", "format": "date-time"});
    let number = json!({"type": ["number", "null"]});
    vec![Schema {
        name: "Alert",
        shape: json!({
            "type": "object",
            "required": [
                "id", "name", "scope", "state", "raised_at", "resolved_at", "value", "threshold",
                "message", "runbook", "detail",
            ],
            "properties": {
                "id": {"type": "string", "pattern": "^alr_[0-9a-hjkmnp-tv-z]{26}$"},
                "name": {"enum": AlertName::ALL.map(AlertName::name)},
                "scope": {
                    "type": "object",
                    "required": ["kind", "tenant_id", "endpoint_id"],
                    "properties": {
                        "kind": {"enum": ["everything", "tenant", "endpoint"]},
                        "tenant_id": {"type": ["string", "null"]},
                        "endpoint_id": {"type": ["string", "null"]},
                    },
                    "additionalProperties": false,
                },
                "state": {"enum": ["open", "resolved"]},
                "raised_at": time,
                "resolved_at": {"type": ["string", "null"], "format": "date-time"},
                "value": number,
                "threshold": number,
                "message": {"type": "string", "description": "What is wrong, for people."},
                "runbook": {"type": "string", "description": "Where it is said what to do."},
                "detail": {"type": "object", "description": "All that was known when it was raised."},
            },
            "additionalProperties": false,
            "examples": [{
                "id": "alr_01jd2kq8z3w5x7y9a1b2c3d4e5", "name": "retry_ratio",
                "scope": {"kind": "tenant", "tenant_id": "acme", "endpoint_id": null},
                "state": "open", "raised_at": "2026-01-02T03:04:05.678Z", "resolved_at": null,
                "value": 0.25, "threshold": 0.1,
                "message": "25 % of the attempts within 1h were retries; more than 10 % calls for somebody.",
                "runbook": "docs/operations.md#retry_ratio",
                "detail": {"value": 0.25, "threshold": 0.1, "window": "1h", "samples": 480},
            }],
        }),
    }]
}
