//! The limits of a tenant, and their usage.
//!
//! [`GROUP`] is the part of the route table, with its handlers. Each limit is shown with the value that takes effect,
//! where it comes from, and how much of it is used. The plans of the configuration are listed here too.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::time::{Month, Span};
use posthaste_store::{LimitName, Limits, Usage};
use serde_json::{Value, json};

use super::body;
use super::problem::{Problem, ResourceKind};
use super::resources::{self, LimitUsage, Plan, Plans, source_name, usage_schemas};
use super::route::{Access, Call, Content, Group, RequestBody, Route, Verb, success};

pub(super) static GROUP: Group = Group {
    name: "Limits",
    about: "Limits of tenants and their usage. A limit comes from the tenant, else from its plan, else from the server. Plans are defined in the configuration.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/usage",
            name: "get_usage",
            summary: "Returns the effective limits of a tenant, their source and their usage.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(
                200,
                "The limits and their usage.",
                Content::Json("Usage"),
            )],
            fails: &[],
            handler: |call| Box::pin(show(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/plans",
            name: "list_plans",
            summary: "Lists the plans in the configuration, and the limits without a plan.",
            access: Access::Admin,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The plans.", Content::Json("Plans"))],
            fails: &[],
            handler: |call| Box::pin(list_plans(call)),
        },
    ],
    schemas: usage_schemas,
};

/// `GET …/usage`.
async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (&call.app, &call.tenant().tenant);
    let now = app.clock.wall();
    let usage = app.store.usage(now, tenant.id.clone()).await?;
    let usage = usage.ok_or_else(|| Problem::missing(ResourceKind::Tenant))?;
    let under_way = app.owner_router.under_way(&tenant.id).await;
    let plans = &app.settings.plans;
    let limits = plans.with_default_rates(&app.limits_of(tenant));
    let describe = |limit: LimitName| LimitUsage {
        limit: value_of(&limits, limit),
        used: used_of(&usage, under_way, limit),
        source: source_name(plans.source(tenant, effective_limit(&limits, limit))).to_owned(),
        resets_at: (limit == LimitName::EventsPerMonth)
            .then(|| Month::of(now).ends_at().to_string()),
    };
    let described = resources::Usage {
        plan: tenant.plan.clone(),
        plan_found: tenant.plan.is_some() && !plans.lacks_plan_of(tenant),
        limits: LimitName::ALL
            .into_iter()
            .map(|limit| (limit.name().to_owned(), describe(limit)))
            .collect(),
    };
    Ok(body::answer(StatusCode::OK, &described))
}

/// Returns the limit that takes effect: payloads and attempts are never kept longer than their deliveries.
fn effective_limit(limits: &Limits, limit: LimitName) -> LimitName {
    let own = match limit {
        LimitName::PayloadRetention => limits.payload_retention,
        LimitName::AttemptRetention => limits.attempt_retention,
        LimitName::Endpoints
        | LimitName::EventsPerSecond
        | LimitName::DeliveriesPerSecond
        | LimitName::EventsPerMonth
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::InFlight
        | LimitName::Schedules
        | LimitName::ShortestScheduleInterval => return limit,
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
        LimitName::DeliveriesPerSecond => json!(limits.deliveries_per_second),
        LimitName::EventsPerMonth => json!(limits.events_per_month),
        LimitName::PayloadBytes => json!(limits.payload_bytes),
        LimitName::MaxAttempts => json!(limits.max_attempts),
        LimitName::Retention => span(limits.retention),
        LimitName::PayloadRetention => span(limits.payload_retention),
        LimitName::AttemptRetention => span(limits.attempt_retention),
        LimitName::InFlight => json!(limits.in_flight),
        LimitName::Schedules => json!(limits.schedules),
        LimitName::ShortestScheduleInterval => span(limits.shortest_schedule_interval),
    }
}

/// Returns the used amount of a limit, for limits that can be used up.
fn used_of(usage: &Usage, under_way: Option<u64>, limit: LimitName) -> Option<u64> {
    match limit {
        LimitName::Endpoints => Some(usage.endpoints),
        LimitName::EventsPerMonth => Some(usage.events_this_month),
        LimitName::InFlight => under_way,
        LimitName::Schedules => Some(usage.schedules),
        LimitName::EventsPerSecond
        | LimitName::DeliveriesPerSecond
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention
        | LimitName::ShortestScheduleInterval => None,
    }
}

/// `GET /v1/plans`.
async fn list_plans(call: Call) -> Result<Response<Body>, Problem> {
    let plans = &call.app.settings.plans;
    let named = plans.named.iter();
    let described = Plans {
        default: plans.with_default_rates(&plans.server),
        data: named
            .map(|(name, limits)| Plan {
                name: name.clone(),
                limits: *limits,
            })
            .collect(),
    };
    Ok(body::answer(StatusCode::OK, &described))
}
