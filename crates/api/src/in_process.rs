//! In-process client of the API.
//!
//! The dashboard reads and changes data only through this client, with the same route table and the same
//! access checks as the HTTP API. So access is decided in one place.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Uri};
use http_body_util::BodyExt;

use super::App;
use super::auth::Caller;
use super::call;
use super::problem::{Problem, ResourceKind};
use super::request_source::RequestSource;
use super::route::{Route, Verb};
use super::routes;

/// A request of an authenticated caller.
#[derive(Clone)]
pub struct InProcessRequest {
    /// The caller.
    pub caller: Caller,
    /// Its address and interface.
    pub source: RequestSource,
    /// The method.
    pub verb: Verb,
    /// The path and the query, encoded as in a URL.
    pub target: String,
    /// The body, as JSON text. Payloads are sent byte for byte as they are here.
    pub body: Option<Bytes>,
}

impl App {
    /// Executes the request like the API. Returns the body of a successful response, or the problem.
    pub async fn ask(self: &Arc<App>, asked: InProcessRequest) -> Result<Bytes, Problem> {
        let uri: Uri = asked
            .target
            .parse()
            .map_err(|_| Problem::missing(ResourceKind::Path))?;
        let route =
            find(asked.verb, uri.path()).ok_or_else(|| Problem::missing(ResourceKind::Path))?;
        let body = asked.body.map_or_else(Body::empty, Body::from);
        let mut request = Request::new(body);
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let response =
            call::authorize_and_run(self.clone(), route, asked.caller, asked.source, request)
                .await?;
        // The body is already in memory, and its route bounds its size.
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| Problem::internal(&error))?;
        Ok(body.to_bytes())
    }
}

/// Returns the route that matches a path.
fn find(verb: Verb, path: &str) -> Option<&'static Route> {
    routes::all().find(|route| route.verb == verb && fits(route.path, path))
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut wanted = pattern.split('/');
    let mut given = path.split('/');
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) => {
                let is_name = wanted.starts_with('{') && !given.is_empty();
                if !is_name && wanted != given {
                    return false;
                }
            }
            (Some(_), None) | (None, Some(_)) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_matches_the_same_route_as_a_request() {
        let name = |verb, path: &str| find(verb, path).map(|route| route.name);
        let one = "/v1/tenants/acme/endpoints/ep_1";
        assert_eq!(name(Verb::Get, one), Some("get_endpoint"));
        assert_eq!(name(Verb::Delete, one), Some("delete_endpoint"));
        assert_eq!(name(Verb::Post, one), None);
        assert_eq!(name(Verb::Get, "/v1/tenants//endpoints"), None);
        assert_eq!(name(Verb::Get, "/v1/tenants/acme/endpoints/ep_1/"), None);
        assert_eq!(name(Verb::Get, "/v1/stats"), Some("get_stats"));
        assert_eq!(
            name(Verb::Post, "/v1/tenants/acme/events/batch"),
            Some("create_events")
        );
    }
}
