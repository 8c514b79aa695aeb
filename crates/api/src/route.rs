//! The definition of a route: its path, access, request and responses. [`Call`] is a request for it.
//!
//! The router, the OpenAPI document and the documentation page are generated from the same [`Route`]s, so
//! they always agree.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::App;
use super::auth::{CachedTenant, Caller};
use super::body;
use super::body_budget::BodyReservation;
use super::code::Code;
use super::paging::{Cursor, Query, cursor_pattern};
use super::problem::{Problem, ResourceKind};
use super::request_source::{self, RequestSource};
use super::resources::Schema;

/// The future of a handler.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

/// The function that handles a request.
pub type Handler = fn(Call) -> HandlerFuture;

/// Runs a handler to its end even if the caller disconnects. A change that is on disk must reach the engine
/// and the caches, for example that of a revoked key.
pub fn run_to_completion(
    handler: impl Future<Output = Result<Response<Body>, Problem>> + Send + 'static,
) -> HandlerFuture {
    let task = tokio::spawn(handler);
    Box::pin(async move {
        let ended = task.await;
        ended.unwrap_or_else(|error| Err(Problem::internal(&error)))
    })
}

/// An authorized request. Its caller and its tenant are known.
pub struct Call {
    /// The shared state.
    pub app: Arc<App>,
    /// Its route.
    pub route: &'static Route,
    /// Its caller.
    pub caller: Caller,
    pub(super) parts: Parts,
    /// Never contended. The lock makes a call `Sync`, which a body alone is not.
    pub(super) body: Mutex<Body>,
    /// The memory of the body, after it was read. Held until the request ends.
    pub(super) reservation: Option<BodyReservation>,
    pub(super) tenant: Option<Arc<CachedTenant>>,
    pub(super) source: RequestSource,
    /// The time at which the caller gets an error, if the route has a time limit.
    pub(super) answer_by: Option<Instant>,
}

/// Routes of one topic.
pub struct Group {
    /// Name of the topic.
    pub name: &'static str,
    /// Description in a sentence or two.
    pub about: &'static str,
    /// The routes.
    pub routes: &'static [Route],
    /// The schemas of their requests and responses.
    pub schemas: fn() -> Vec<Schema>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Creates, or runs an action.
    Post,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

impl Verb {
    /// Returns the method as in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }
}

/// The callers that may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All callers, without a key.
    Open,
    /// All callers with a valid key.
    AnyKey,
    /// An admin key.
    Admin,
    /// An admin key, a key of the tenant in the path, or a link to its portal.
    Tenant,
    /// An admin key, or a key of the tenant in the path.
    TenantKey,
}

/// A query parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its schema.
    pub shape: fn() -> Value,
    /// True if requests must have it.
    pub is_required: bool,
}

/// Returns an optional query parameter, for the table of routes.
pub const fn parameter(name: &'static str, about: &'static str, shape: fn() -> Value) -> Parameter {
    Parameter {
        name,
        about,
        shape,
        is_required: false,
    }
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// No body.
    Nothing,
    /// JSON of the named schema.
    Json(&'static str),
    /// JSON of the named schema, or no body.
    OptionalJson(&'static str),
}

/// The body of a successful response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No body.
    Nothing,
    /// JSON of the named schema.
    Json(&'static str),
    /// A page of a list of the named schema.
    List(&'static str),
    /// Another media type.
    Other(&'static str),
}

/// A successful response.
pub struct SuccessResponse {
    /// Its status.
    pub status: u16,
    /// Its meaning.
    pub about: &'static str,
    /// Its body.
    pub content: Content,
}

/// Returns a successful response, for the table of routes.
pub const fn success(status: u16, about: &'static str, content: Content) -> SuccessResponse {
    SuccessResponse {
        status,
        about,
        content,
    }
}

/// A route.
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, with names in braces.
    pub path: &'static str,
    /// The operation id, which generated clients use as its name.
    pub name: &'static str,
    /// Summary in a sentence.
    pub summary: &'static str,
    /// The callers that may use it.
    pub access: Access,
    /// Query parameters.
    pub query: &'static [Parameter],
    /// The body of the request.
    pub request_body: RequestBody,
    /// Successful responses.
    pub responses: &'static [SuccessResponse],
    /// Errors in addition to those of every route of its kind.
    pub fails: &'static [(u16, Code)],
    /// The handler.
    pub handler: Handler,
}

/// The `limit` parameter of every list.
pub const LIMIT: Parameter = parameter(
    "limit",
    "Maximum number of items on the page.",
    || serde_json::json!({"type": "integer", "minimum": 1, "maximum": 250, "default": 50}),
);

/// Returns the `cursor` parameter of a list with these positions.
pub const fn cursor<K: Cursor>() -> Parameter {
    parameter(
        "cursor",
        "The `next_cursor` of the previous page; empty or absent for the first page.",
        || serde_json::json!({"type": "string", "pattern": cursor_pattern::<K>()}),
    )
}

impl Route {
    /// Returns every error the route may answer with, including the common ones.
    pub fn all_errors(&self) -> Vec<(u16, Code)> {
        let mut codes: Vec<(u16, Code)> = self.fails.to_vec();
        // The head is too large.
        codes.push((431, Code::MalformedRequest));
        let mut add = |list: &[Code]| {
            codes.extend(list.iter().map(|code| (code.status().as_u16(), *code)));
        };
        add(&[Code::MalformedRequest]);
        match self.access {
            Access::Open => {}
            Access::AnyKey => add(KEY_ERRORS),
            Access::Admin => {
                add(KEY_ERRORS);
                add(&[Code::Forbidden]);
            }
            Access::Tenant => {
                add(KEY_ERRORS);
                add(&[Code::NotFound]);
            }
            Access::TenantKey => {
                add(KEY_ERRORS);
                add(&[Code::NotFound, Code::Forbidden]);
            }
        }
        match self.request_body {
            RequestBody::Nothing => {}
            RequestBody::Json(_) | RequestBody::OptionalJson(_) => add(BODY_ERRORS),
        }
        match (self.access, self.verb) {
            (Access::Open, _) | (_, Verb::Get) => {}
            (_, Verb::Post | Verb::Patch | Verb::Delete) => add(&[Code::DiskFull]),
        }
        codes.sort_unstable_by_key(|(status, code)| (*status, code.as_str()));
        codes.dedup();
        codes
    }

    /// Returns the index of the path segment with this name, from 0.
    ///
    /// # Panics
    /// If the path has no such segment.
    pub fn segment_index(&self, name: &str) -> usize {
        self.path
            .split('/')
            .position(|part| {
                part.strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'))
                    == Some(name)
            })
            .expect("handlers ask only for names that their path has")
    }
}

/// Returns a segment of the path, by its index.
pub(super) fn segment(parts: &Parts, index: usize) -> &str {
    parts.uri.path().split('/').nth(index).unwrap_or_default()
}

impl Call {
    /// Returns the tenant in the path.
    ///
    /// # Panics
    /// If the path of the route has no tenant.
    pub fn tenant(&self) -> &Arc<CachedTenant> {
        self.tenant
            .as_ref()
            .expect("the path of the route has a tenant")
    }

    /// Returns the id that the path has for `name`. An invalid id is answered like an unknown one.
    pub fn id<T: std::str::FromStr>(&self, name: &str, noun: ResourceKind) -> Result<T, Problem> {
        segment(&self.parts, self.route.segment_index(name))
            .parse()
            .map_err(|_| Problem::missing(noun))
    }

    /// Returns the URL under which the caller reached this server: scheme, host and port.
    pub fn called(&self) -> Option<String> {
        let known = self.source.called.clone();
        known.or_else(|| request_source::called(&self.parts.headers))
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Returns the query, to be read parameter by parameter.
    pub fn query(&self) -> Query {
        Query::read(self.parts.uri.query())
    }

    /// Reads the body, of at most `limit_bytes`. It can be taken once.
    pub async fn take_body(&mut self, limit_bytes: u64) -> Result<Bytes, Problem> {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let body = std::mem::take(body);
        let timeout = self.app.settings.body_timeout;
        let reservation = match &self.tenant {
            Some(tenant) => self.app.body_budget.reservation(Some(&tenant.body_budget)),
            None => self.app.body_reservation(&self.caller),
        };
        let reservation = self.reservation.insert(reservation);
        body::read(&self.parts.headers, body, limit_bytes, timeout, reservation).await
    }

    /// Returns the memory of the body, to be held longer than the request.
    pub(super) fn take_reservation(&mut self) -> Option<BodyReservation> {
        self.reservation.take()
    }

    /// Reads the body as JSON. An empty body counts as an empty object if the route allows it.
    pub async fn take_json(&mut self) -> Result<Value, Problem> {
        let bytes = self.take_body(self.app.settings.body_bytes).await?;
        let may_be_empty = match self.route.request_body {
            RequestBody::Nothing | RequestBody::OptionalJson(_) => true,
            RequestBody::Json(_) => false,
        };
        if bytes.is_empty() && may_be_empty {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        body::check_json_type(&self.parts.headers)?;
        body::parse(&bytes)
    }

    /// Checks that the body is empty or an empty object.
    pub async fn take_nothing(&mut self) -> Result<(), Problem> {
        let document = self.take_json().await?;
        body::read_object(&document, |_| Some(()))
    }
}

/// Errors of every route that needs a key.
const KEY_ERRORS: &[Code] = &[
    Code::Unauthorized,
    Code::Invalid,
    Code::RateLimited,
    Code::Internal,
    Code::Unavailable,
    Code::Overloaded,
    Code::ShuttingDown,
];

/// Errors of every route that takes a body.
const BODY_ERRORS: &[Code] = &[
    Code::MalformedJson,
    Code::RequestTimeout,
    Code::TooLarge,
    Code::UnsupportedMediaType,
    Code::Invalid,
];

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn handler_completes_after_its_caller_disconnects() {
        let (begin, begun) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let handled = run_to_completion(async move {
            let _ = begun.await;
            let _ = end.send(());
            Err(Problem::unauthorized())
        });
        drop(handled);
        begin.send(()).expect("it still waits");
        ended.await.expect("it ends");
        let panics = run_to_completion(async { panic!("as it was told to") });
        let problem = panics.await.expect_err("a fault of ours");
        assert_eq!(problem.code, Code::Internal);
    }
}
