//! The limits of a tenant, and their usage.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::time::{Month, Span};
use posthaste_store::{LimitName, LimitSource, Limits, Usage};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::body;
use super::call::Call;
use super::problem::{Problem, ResourceKind};
use super::route::{Access, Content, Group, RequestBody, Route, Schema, SuccessResponse, Verb};
use crate::limits;

pub(super) static GROUP: Group = Group {
    name: "Limits",
    about: "What tenants are allowed, and how much of it they use. A limit is the tenant's own, else its plan's, else the server's. Plans stand in the configuration.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/usage",
            name: "get_usage",
            summary: "Shows each limit that holds for a tenant, who says so, and how much of it is used.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "What is allowed, and what is used.",
                content: Content::Json("Usage"),
            }],
            fails: &[],
            handler: |call| Box::pin(show(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/plans",
            name: "list_plans",
            summary: "Lists the plans that the configuration names, and what is allowed without one.",
            access: Access::Admin,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "The plans.",
                content: Content::Json("Plans"),
            }],
            fails: &[],
            handler: |call| Box::pin(list_plans(call)),
        },
    ],
    schemas,
};

#[derive(Serialize)]
struct UsageView<'a> {
    plan: Option<&'a str>,
    plan_found: bool,
    limits: BTreeMap<&'static str, LimitView>,
}

#[derive(Serialize)]
struct LimitView {
    limit: Value,
    used: Option<u64>,
    source: &'static str,
    resets_at: Option<String>,
}

/// `GET …/usage`.
async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (&call.app, &call.tenant().tenant);
    let now = app.clock.wall();
    let usage = app.store.usage(now, tenant.id.clone()).await?;
    let usage = usage.ok_or_else(|| Problem::missing(ResourceKind::Tenant))?;
    let under_way = app.switchboard.under_way(&tenant.id).await;
    let plans = &app.settings.plans;
    let limits = app.limits_of(tenant);
    let view = |limit: LimitName| LimitView {
        limit: value_of(&limits, limit),
        used: used_of(&usage, under_way, limit),
        source: match plans.source(tenant, effective_limit(&limits, limit)) {
            LimitSource::Tenant => "tenant",
            LimitSource::Plan => "plan",
            LimitSource::Server => "server",
        },
        resets_at: (limit == LimitName::EventsPerMonth)
            .then(|| Month::of(now).ends_at().to_string()),
    };
    let shown = UsageView {
        plan: tenant.plan.as_deref(),
        plan_found: tenant.plan.is_some() && !plans.lacks_plan_of(tenant),
        limits: LimitName::ALL
            .into_iter()
            .map(|limit| (limit.name(), view(limit)))
            .collect(),
    };
    Ok(body::answer(StatusCode::OK, &shown))
}

/// Returns the limit that takes effect: payloads and attempts are never kept longer than their deliveries.
fn effective_limit(limits: &Limits, limit: LimitName) -> LimitName {
    let own = match limit {
        LimitName::PayloadRetention => limits.payload_retention,
        LimitName::AttemptRetention => limits.attempt_retention,
        LimitName::Endpoints
        | LimitName::EventsPerSecond
        | LimitName::EventsPerMonth
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::InFlight => return limit,
    };
    match (own, limits.retention) {
        (Some(own), Some(all)) if own >= all => LimitName::Retention,
        (Some(_), _) => limit,
        (None, _) => LimitName::Retention,
    }
}

/// Returns the value of a limit; `null` if there is none.
fn value_of(limits: &Limits, limit: LimitName) -> Value {
    let span = |span: Option<Span>| json!(span.map(|span| span.to_string()));
    match effective_limit(limits, limit) {
        LimitName::Endpoints => json!(limits.endpoints),
        LimitName::EventsPerSecond => json!(limits.events_per_second),
        LimitName::EventsPerMonth => json!(limits.events_per_month),
        LimitName::PayloadBytes => json!(limits.payload_bytes),
        LimitName::MaxAttempts => json!(limits.max_attempts),
        LimitName::Retention => span(limits.retention),
        LimitName::PayloadRetention => span(limits.payload_retention),
        LimitName::AttemptRetention => span(limits.attempt_retention),
        LimitName::InFlight => json!(limits.in_flight),
    }
}

/// Returns the used amount of a limit, for limits that can be used up.
fn used_of(usage: &Usage, under_way: Option<u64>, limit: LimitName) -> Option<u64> {
    match limit {
        LimitName::Endpoints => Some(usage.endpoints),
        LimitName::EventsPerMonth => Some(usage.events_this_month),
        LimitName::InFlight => under_way,
        LimitName::EventsPerSecond
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention => None,
    }
}

#[derive(Serialize)]
struct PlansView<'a> {
    default: Limits,
    data: Vec<PlanView<'a>>,
}

#[derive(Serialize)]
struct PlanView<'a> {
    name: &'a str,
    limits: Limits,
}

/// `GET /v1/plans`.
async fn list_plans(call: Call) -> Result<Response<Body>, Problem> {
    let plans = &call.app.settings.plans;
    let named = plans.named.iter();
    let shown = PlansView {
        default: plans.server,
        data: named
            .map(|(name, limits)| PlanView {
                name,
                limits: *limits,
            })
            .collect(),
    };
    Ok(body::answer(StatusCode::OK, &shown))
}

fn schemas() -> Vec<Schema> {
    let limits = json!({"$ref": "#/components/schemas/Limits"});
    let one = json!({
        "type": "object",
        "required": ["limit", "used", "source", "resets_at"],
        "properties": {
            "limit": {"type": ["integer", "string", "null"], "description": "What is allowed: a number, or a duration such as `30d`; `null` if there is no such limit."},
            "used": {"type": ["integer", "null"], "description": "How much of it is used, where it can be used up. Events of a month are counted whether they are still kept or not; tests are among them. Of `in_flight` it is the attempts under way on all nodes that answer, whether they are limited or not."},
            "source": {"enum": ["tenant", "plan", "server"], "description": "Who says so."},
            "resets_at": {"type": ["string", "null"], "format": "date-time", "description": "When what is used begins at 0 again."},
        },
        "additionalProperties": false,
    });
    let names = LimitName::ALL.map(LimitName::name);
    let each: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), one.clone()))
        .collect();
    let example: Map<String, Value> = names
        .iter()
        .map(|name| {
            let shown = json!({"limit": 100, "used": null, "source": "plan", "resets_at": null});
            ((*name).to_owned(), shown)
        })
        .collect();
    vec![
        Schema {
            name: "Usage",
            shape: json!({
                "type": "object",
                "required": ["plan", "plan_found", "limits"],
                "properties": {
                    "plan": {"type": ["string", "null"]},
                    "plan_found": {"type": "boolean", "description": "Whether the configuration has the plan that the tenant is on. If it is lost, the server's limits hold."},
                    "limits": {
                        "type": "object",
                        "required": names,
                        "properties": each,
                        "additionalProperties": false,
                    },
                },
                "additionalProperties": false,
                "examples": [{"plan": "pro", "plan_found": true, "limits": example}],
            }),
        },
        Schema {
            name: "Plans",
            shape: json!({
                "type": "object",
                "required": ["default", "data"],
                "properties": {
                    "default": limits,
                    "data": {"type": "array", "items": {
                        "type": "object",
                        "required": ["name", "limits"],
                        "properties": {"name": {"type": "string"}, "limits": limits},
                        "additionalProperties": false,
                    }},
                },
                "additionalProperties": false,
                "examples": [{"default": limits::example(), "data": [{"name": "pro", "limits": limits::example()}]}],
            }),
        },
    ]
}
