//! Routes: the paths of pages and actions, and their handlers.
//!
//! A [`Route`] has a pattern such as `/endpoints/{endpoint}` below its [`RouteScope`]. [`find`] returns the handler for
//! a path, and the [`PathParams`] in it.

use std::pin::Pin;

use posthaste_api::problem::Problem;

use super::form::Form;
use super::page::{ActionResult, PageResult};
use super::page_request::{PageRequest, PathParams};

/// Renders a page.
pub(super) type PageHandler = fn(PageRequest) -> PageFuture;
/// The future of a rendered page.
pub(super) type PageFuture = Pin<Box<dyn Future<Output = Result<PageResult, Problem>> + Send>>;
/// Performs the action that a form requests.
pub(super) type ActionHandler = fn(PageRequest, Form) -> ActionFuture;
/// The future of an action.
pub(super) type ActionFuture = Pin<Box<dyn Future<Output = Result<ActionResult, Problem>> + Send>>;

/// The part of the site that a page or an action belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteScope {
    /// The whole server: only visible with an admin key.
    Server,
    /// One tenant.
    Tenant,
}

/// The path of a page or an action, and its handler.
pub(super) struct Route<T> {
    scope: RouteScope,
    /// Path below its part of the site, with parameters in braces.
    pattern: &'static str,
    handler: T,
}

impl<T> Route<T> {
    /// Creates a route.
    pub(super) const fn new(scope: RouteScope, pattern: &'static str, handler: T) -> Route<T> {
        Route {
            scope,
            pattern,
            handler,
        }
    }
}

/// Creates the route of a page: `page_route!(Tenant, "/endpoints", show)`.
macro_rules! page_route {
    ($scope:ident, $pattern:literal, $show:path) => {
        $crate::routes::Route::new($crate::routes::RouteScope::$scope, $pattern, |request| {
            Box::pin($show(request))
        })
    };
}
pub(super) use page_route;

/// Creates the route of an action: `action_route!(Tenant, "/endpoints/new", create)`.
macro_rules! action_route {
    ($scope:ident, $pattern:literal, $act:path) => {
        $crate::routes::Route::new(
            $crate::routes::RouteScope::$scope,
            $pattern,
            |request, form| Box::pin($act(request, form)),
        )
    };
}
pub(super) use action_route;

/// Finds the handler for a path, and the parameters in the path.
pub(super) fn find<T: Copy>(
    groups: &[&[Route<T>]],
    scope: RouteScope,
    path: &str,
) -> Option<(T, PathParams)> {
    let mut routes = groups.iter().copied().flatten();
    routes.find_map(|route| {
        let params = (route.scope == scope).then(|| match_path(route.pattern, path))??;
        Some((route.handler, params))
    })
}

/// Matches a path against a pattern. Returns the parameters in it, or `None`.
fn match_path(pattern: &'static str, path: &str) -> Option<PathParams> {
    let mut params = Vec::new();
    let mut actual = path.split('/');
    for expected in pattern.split('/') {
        let actual = actual.next()?;
        let name = expected
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        match name {
            // A path parameter is an id, so it never contains escaped characters.
            Some(name) if is_plain(actual) => params.push((name, actual.to_owned())),
            Some(_) => return None,
            None if expected == actual => {}
            None => return None,
        }
    }
    actual.next().is_none().then_some(params)
}

fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_matches_pattern_segment_by_segment() {
        let matched = |path| match_path("/endpoints/{endpoint}/pause", path);
        let params = matched("/endpoints/ep_1/pause").expect("the path matches");
        assert_eq!(params, [("endpoint", "ep_1".to_owned())]);
        for other in [
            "/endpoints//pause",
            "/endpoints/ep_1",
            "/endpoints/ep_1/pause/",
            "/endpoints/ep%2f1/pause",
            "/endpoints/a b/pause",
        ] {
            assert_eq!(matched(other), None, "{other}");
        }
        assert_eq!(match_path("", ""), Some(Vec::new()));
    }
}
