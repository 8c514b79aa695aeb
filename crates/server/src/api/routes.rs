//! Every route there is, and the router made of them.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Request;

use super::App;
use super::call;
use super::problem::{Noun, Problem};
use super::route::{Group, Route, Verb};
use super::{
    deliveries, endpoints, events, keys, metrics, policies, probes, replays, stats, tenants,
};

/// Every route, in the order in which they are described.
pub static GROUPS: &[&Group] = &[
    &probes::GROUP,
    &tenants::GROUP,
    &keys::GROUP,
    &endpoints::GROUP,
    &events::GROUP,
    &deliveries::GROUP,
    &replays::GROUP,
    &policies::GROUP,
    &stats::GROUP,
    &metrics::GROUP,
];

/// Every route.
pub fn all() -> impl Iterator<Item = &'static Route> {
    GROUPS.iter().flat_map(|group| group.routes)
}

/// The router: every route, and a problem for whatever is none.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    let mut paths: Vec<&'static str> = Vec::new();
    for route in all() {
        if !paths.contains(&route.path) {
            paths.push(route.path);
        }
    }
    for path in paths {
        router = router.route(path, at_path(&app, path));
    }
    router.fallback(|| async { Problem::missing(Noun::Path).into_response() })
}

/// Every method of one path.
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
