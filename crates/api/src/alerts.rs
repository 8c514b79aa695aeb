//! Reads alerts: open and resolved ones.
//!
//! An admin sees all of them. A tenant sees its own and those of its endpoints, and none of an earlier tenant
//! with the same id.

use axum::body::Body;
use http::Response;
use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_notify::alert_text;
use posthaste_notify::alerts::course::{AlertCourse, buckets_of_course};
use posthaste_notify::alerts::readings::FROM_COUNTERS;
use posthaste_store::{AlertFilter, StatCounters, SubjectScope};
use rustc_hash::FxHashMap;
use serde_json::json;

use super::App;
use super::paging::{self, Query};
use super::problem::Problem;
use super::resources::{Alert, AlertState, alert_name, alert_schemas, alert_state};
use super::route::{
    Access, Call, Content, Group, LIMIT, Parameter, RequestBody, Route, SuccessResponse, Verb,
    cursor, parameter, success,
};
use crate::resources::schema::{endpoint_id, tenant_id};

/// Maximum number of scopes whose stats are read for one response. Alerts of further scopes have no current value.
const MAX_SCOPES_READ: usize = 50;

pub(super) static GROUP: Group = Group {
    name: "Alerts",
    about: "Problems that need attention. An alert concerns the server, a tenant or an endpoint. It is raised once and resolved once.",
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
    let mut courses = Courses::new(&call.app);
    for alert in &found.items {
        courses.read(alert).await?;
    }
    Ok(paging::answer(found, |alert| courses.describe(alert)))
}

/// Stats buckets of a scope, each with its start.
type Buckets = Vec<(Timestamp, StatCounters)>;

/// Computes the current values of open alerts, from the stats of their scopes.
struct Courses<'a> {
    app: &'a App,
    now: Timestamp,
    /// Stats of the scopes that were read.
    counters: FxHashMap<SubjectScope, Buckets>,
    /// For alerts about a trip: true if the breaker is still tripped.
    breakers: FxHashMap<AlertId, bool>,
}

impl<'a> Courses<'a> {
    fn new(app: &'a App) -> Courses<'a> {
        Courses {
            app,
            now: app.clock.wall(),
            counters: FxHashMap::default(),
            breakers: FxHashMap::default(),
        }
    }

    /// Reads the stats that the course of an alert is computed from, up to [`MAX_SCOPES_READ`] scopes.
    async fn read(&mut self, alert: &posthaste_store::Alert) -> Result<(), Problem> {
        if let (AlertName::BreakerTripped, None, SubjectScope::Endpoint(endpoint)) =
            (alert.name, alert.resolved_at, &alert.scope)
            && self.breakers.len() < MAX_SCOPES_READ
        {
            let row = self.app.store.endpoint(*endpoint).await?;
            let is_tripped = row.is_some_and(|row| row.health.trip.is_some());
            self.breakers.insert(alert.id, is_tripped);
        }
        let is_needed = alert.resolved_at.is_none() && FROM_COUNTERS.contains(&alert.name);
        let is_read = self.counters.contains_key(&alert.scope);
        if !is_needed || is_read || self.counters.len() >= MAX_SCOPES_READ {
            return Ok(());
        }
        let window = self.app.settings.alerts.window;
        // The alerts of a scope share what is read for the oldest possible one.
        let (width, since) = buckets_of_course(self.now, Timestamp(0), window);
        let counters = self.app.store.stats(alert.scope.clone(), width, since);
        self.counters.insert(alert.scope.clone(), counters.await?);
        Ok(())
    }

    fn describe(&self, alert: posthaste_store::Alert) -> Alert {
        if alert.resolved_at.is_some() {
            return Alert::from(alert);
        }
        let settings = &self.app.settings.alerts;
        let (name, raised_at) = (alert.name, alert.raised_at);
        let counters = self.counters.get(&alert.scope);
        // Other alerts of the same scope have no value in the counters.
        let counters = counters.filter(|_| FROM_COUNTERS.contains(&name));
        let is_tripped = self.breakers.get(&alert.id).copied();
        let mut described = Alert::from(alert);
        let when = alert_text::clears_when(name, settings.bound(name), settings.calm);
        described.clears_when = Some(when);
        described.current = is_tripped.map(|is_tripped| f64::from(u8::from(is_tripped)));
        if let (Some(counters), Some(rule)) = (counters, settings.rule(name)) {
            let raised = (raised_at, described.value);
            let at = (self.now, settings.window);
            let course = AlertCourse::of(name, &rule, raised, counters, at);
            described.current = course.current;
            described.peak = course.peak;
            described.clears_at = course.clears_at.map(|at| at.to_string());
        }
        described
    }
}
