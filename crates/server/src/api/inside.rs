//! The API as it is called from within this process.
//!
//! The page shows nothing and does nothing that the API would not show or do to the same caller: it asks
//! here, by the routes of the same table. So there is one place that decides who may what.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Uri};
use http_body_util::BodyExt;
use serde_json::Value;

use super::App;
use super::auth::Caller;
use super::call;
use super::origin::Origin;
use super::problem::{Noun, Problem};
use super::route::{Route, Verb};
use super::routes;

/// A question of somebody who is known already.
#[derive(Clone)]
pub struct Asked {
    /// Who asks.
    pub caller: Caller,
    /// From where, and which way.
    pub origin: Origin,
    /// What is to be done.
    pub verb: Verb,
    /// The path and the query, written as in a URL.
    pub target: String,
    /// What goes with it.
    pub document: Option<Value>,
}

impl App {
    /// Answers as the API would: with the body of a good answer, or with the problem.
    pub async fn ask(self: &Arc<App>, asked: Asked) -> Result<Bytes, Problem> {
        let uri: Uri = asked
            .target
            .parse()
            .map_err(|_| Problem::missing(Noun::Path))?;
        let route = find(asked.verb, uri.path()).ok_or_else(|| Problem::missing(Noun::Path))?;
        let body = match &asked.document {
            None => Body::empty(),
            Some(document) => Body::from(document.to_string()),
        };
        let mut request = Request::new(body);
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let response =
            call::admit(self.clone(), route, asked.caller, asked.origin, request).await?;
        // It is in memory already, and as large as its route lets it be.
        let whole = response.into_body().collect().await;
        let whole = whole.map_err(|error| Problem::internal(&error))?;
        Ok(whole.to_bytes())
    }
}

/// The route that a path leads to.
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
    fn a_path_leads_to_the_route_that_a_request_would_take() {
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
