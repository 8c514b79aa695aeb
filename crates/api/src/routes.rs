//! The table of all routes, and the router.
//!
//! [`GROUPS`] has one entry for each part of the API. [`router`] serves all routes, and [`probes_only`] those of a node
//! with the role `worker`. The OpenAPI document and the documentation are made from the same table.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Request;

use super::App;
use super::call;
use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::route::{Group, Route, Verb};
use super::{
    alerts, attention, audit, dead_letters, deliveries, endpoints, events, keys, metrics, nodes,
    policies, portal_links, probes, replays, requests, schedules, stats, tenant_of_id, tenants,
    usage,
};

/// Every group of routes, in the order of the documentation.
pub static GROUPS: &[&Group] = &[
    &probes::GROUP,
    &tenants::GROUP,
    &usage::GROUP,
    &keys::GROUP,
    &portal_links::GROUP,
    &endpoints::GROUP,
    &events::GROUP,
    &requests::GROUP,
    &schedules::GROUP,
    &deliveries::GROUP,
    &dead_letters::GROUP,
    &replays::GROUP,
    &policies::GROUP,
    &stats::GROUP,
    &attention::GROUP,
    &alerts::GROUP,
    &nodes::GROUP,
    &audit::GROUP,
    &tenant_of_id::GROUP,
    &metrics::GROUP,
];

/// Returns every route.
pub fn all() -> impl Iterator<Item = &'static Route> {
    GROUPS.iter().flat_map(|group| group.routes)
}

/// Creates the router for every route. Other paths are answered with a problem.
pub fn router(app: Arc<App>) -> Router {
    let mut paths: Vec<&'static str> = Vec::new();
    for route in all() {
        if !paths.contains(&route.path) {
            paths.push(route.path);
        }
    }
    serving(&app, &paths)
        .fallback(|| async { Problem::missing(ResourceKind::Path).into_response() })
}

/// Paths of health checks and metrics: those that a node with the role `worker` serves, and those that are served
/// when all connections are in use.
pub(crate) const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Creates the router of a node with the role `worker`: health checks and metrics only.
pub fn probes_only(app: Arc<App>) -> Router {
    serving(&app, &PROBES).fallback(|| async {
        let detail = "This node only sends: its role is \"worker\". Use a node with the role \"api\" or \"all\".";
        Problem::new(Code::NotFound, detail).into_response()
    })
}

fn serving(app: &Arc<App>, paths: &[&'static str]) -> Router {
    let mut router = Router::new();
    for path in paths {
        router = router.route(path, at_path(app, path));
    }
    router
}

/// Returns the handlers of all methods of one path.
fn at_path(app: &Arc<App>, path: &str) -> MethodRouter {
    let mut methods = MethodRouter::new();
    let mut allow: Vec<&str> = Vec::new();
    for route in all().filter(|route| route.path == path) {
        let app = app.clone();
        let handler = move |request: Request<Body>| call::answer(app.clone(), route, request);
        methods = methods.merge(on(filter(route.verb), handler));
        allow.push(route.verb.as_str());
    }
    let allow = allow.join(", ");
    methods.fallback(move || {
        let problem = Problem::method_not_allowed(allow.clone());
        async move { problem.into_response() }
    })
}

fn filter(verb: Verb) -> MethodFilter {
    match verb {
        Verb::Get => MethodFilter::GET,
        Verb::Post => MethodFilter::POST,
        Verb::Patch => MethodFilter::PATCH,
        Verb::Delete => MethodFilter::DELETE,
    }
}
