//! The health of deliveries: five figures with their ranges, over everything or of one tenant.
//!
//! They are kept in memory, by each node of what it sent, and begin anew with the process: `24h` is made
//! of what is remembered. All nodes are asked; one that does not answer within a second is left out. A
//! figure without data is the one that says that nothing is wrong.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use serde_json::{Value, json};

use super::App;
use super::body;
use super::call::Call;
use super::problem::Problem;
use super::route::{Access, Content, Gives, Group, Route, Schema, Takes, Verb};
use crate::observe::HealthReport;

/// Deliveries in retry for longer than this are counted.
const LONG_IN_RETRY: Span = Span::from_hours(24);
/// They are counted no further than this: a hundred is alarming already.
pub const MAX_RETRYING_COUNTED: usize = 10_000;

pub(super) static GROUP: Group = Group {
    name: "Stats",
    about: "How well deliveries go.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/stats",
            name: "get_stats",
            summary: "Shows the health of all deliveries over five minutes, an hour and a day.",
            access: Access::Admin,
            query: &[],
            takes: Takes::Nothing,
            gives: HEALTH,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/stats",
            name: "get_tenant_stats",
            summary: "Shows the health of a tenant's deliveries over five minutes, an hour and a day.",
            access: Access::Tenant,
            query: &[],
            takes: Takes::Nothing,
            gives: HEALTH,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas,
};

const HEALTH: &[Gives] = &[Gives {
    status: 200,
    about: "The figures, with their ranges.",
    content: Content::Json("Stats"),
}];

/// `GET /v1/stats`.
async fn of_all(call: Call) -> Result<Response<Body>, Problem> {
    answer(&call.app, None).await
}

/// `GET …/stats`.
async fn of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant().tenant.id.clone();
    answer(&call.app, Some(tenant)).await
}

async fn answer(app: &App, tenant: Option<TenantId>) -> Result<Response<Body>, Problem> {
    let retrying = retrying_over_24h(app, tenant.clone()).await?;
    let tallies = app.switchboard.tallies(tenant.as_ref()).await;
    let report = HealthReport::new(tallies, retrying);
    Ok(body::answer(StatusCode::OK, &report))
}

/// How many deliveries have been in retry for longer than a day.
pub(super) async fn retrying_over_24h(app: &App, tenant: Option<TenantId>) -> Result<u64, Problem> {
    let now = app.clock.wall();
    let since = Timestamp(now.0.saturating_sub(LONG_IN_RETRY.as_millis()));
    let counted = app
        .store
        .retrying_since(tenant, since, MAX_RETRYING_COUNTED);
    Ok(counted.await?)
}

fn schemas() -> Vec<Schema> {
    let figures = [
        "retry_ratio",
        "dead_letter_ratio",
        "attempts_per_success",
        "second_attempt_success_ratio",
        "retrying_over_24h",
    ];
    let windows = ["5m", "1h", "24h"];
    let figure = json!({
        "type": "object",
        "required": ["value", "healthy", "alert", "state"],
        "properties": {
            "value": {"type": "number"},
            "healthy": {"type": "string", "description": "Where it is healthy."},
            "alert": {"type": "string", "description": "Where somebody should look."},
            "state": {"enum": ["healthy", "warning", "alert"]},
        },
        "additionalProperties": false,
    });
    let window = all_of(&figures, &figure);
    vec![Schema {
        name: "Stats",
        shape: all_of(&["windows"], &all_of(&windows, &window)),
    }]
}

/// An object with these names, each of the same shape.
fn all_of(names: &[&str], shape: &Value) -> Value {
    let properties: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), shape.clone()))
        .collect();
    json!({
        "type": "object",
        "required": names,
        "properties": properties,
        "additionalProperties": false,
    })
}
