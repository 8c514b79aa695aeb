//! Processes one request: from the connection to its handler and back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use serde_json::Value;

use super::App;
use super::auth::{CachedTenant, Caller};
use super::body;
use super::origin::{self, Origin};
use super::paging::Query;
use super::problem::{Problem, ResourceKind};
use super::route::{Access, HandlerFuture, RequestBody, Route, to_the_end};
use super::trail::{self, AuditedRequest};

/// An authorized request. Its caller and its tenant are known.
pub struct Call {
    /// The shared state.
    pub app: Arc<App>,
    /// Its route.
    pub route: &'static Route,
    /// Its caller.
    pub caller: Caller,
    parts: Parts,
    /// Never contended. The lock makes a call `Sync`, which a body alone is not.
    body: Mutex<Body>,
    tenant: Option<Arc<CachedTenant>>,
    origin: Origin,
}

/// Answers a request for `route`.
pub(super) async fn answer(
    app: Arc<App>,
    route: &'static Route,
    request: Request<Body>,
) -> Response<Body> {
    match handle(app, route, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn handle(
    app: Arc<App>,
    route: &'static Route,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let caller = match route.access {
        Access::Open => Caller::Nobody,
        Access::AnyKey | Access::Admin | Access::Tenant | Access::TenantKey => {
            app.authenticate(request.headers()).await?
        }
    };
    let origin = Origin::of(request.headers(), request.extensions());
    authorize_and_run(app, route, caller, origin, request).await
}

/// Checks that the caller may use the route, and runs its handler. Every request passes here, independent of
/// how its caller was authenticated.
pub(super) async fn authorize_and_run(
    app: Arc<App>,
    route: &'static Route,
    caller: Caller,
    origin: Origin,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let tenant = match route.access {
        Access::Open | Access::AnyKey => None,
        Access::Admin => {
            caller.must_be_admin()?;
            None
        }
        Access::Tenant | Access::TenantKey => {
            let name = segment(&parts, route.place_of("tenant"));
            Some(app.tenant_for(&caller, name).await?)
        }
    };
    if route.access == Access::TenantKey {
        caller.must_have_key()?;
    }
    let call = Call {
        app,
        route,
        caller,
        parts,
        body: Mutex::new(body),
        tenant,
        origin,
    };
    if route.query.is_empty() && route.access != Access::Open {
        call.query().finish()?;
    }
    match trail::is_audited(route) {
        false => CatchPanic((route.handler)(call)).await,
        true => to_the_end(audited(call)).await,
    }
}

/// Runs the handler and writes the audit log.
async fn audited(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant.as_ref().map(|known| known.tenant.id.clone());
    let path = call.parts.uri.path();
    let (app, route) = (&call.app, call.route);
    let trail =
        AuditedRequest::begin(app, route.name, &call.caller, tenant, &call.origin, path).await?;
    let answered = CatchPanic((route.handler)(call)).await;
    if let Some(outcome) = trail::outcome_of(&answered) {
        trail.end(outcome, trail::created_id(&answered)).await;
    }
    answered
}

/// Turns a panic of a handler into an internal error: the caller gets a response, and the connection stays
/// open. The data stays consistent, because the store applies each operation completely or not at all.
pub struct CatchPanic(pub HandlerFuture);

impl Future for CatchPanic {
    type Output = Result<Response<Body>, Problem>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handled = AssertUnwindSafe(|| self.0.as_mut().poll(context));
        catch_unwind(handled).unwrap_or_else(|_| {
            let problem = Problem::internal(&"a handler panicked");
            Poll::Ready(Err(problem))
        })
    }
}

fn segment(parts: &Parts, place: usize) -> &str {
    parts.uri.path().split('/').nth(place).unwrap_or_default()
}

impl Call {
    /// Returns the tenant in the path.
    ///
    /// # Panics
    /// If the path of the route has no tenant.
    pub fn tenant(&self) -> &Arc<CachedTenant> {
        self.tenant.as_ref().expect("the route is a tenant's")
    }

    /// Returns the id that the path has for `name`. An invalid id is answered like an unknown one.
    pub fn id<T: std::str::FromStr>(&self, name: &str, noun: ResourceKind) -> Result<T, Problem> {
        segment(&self.parts, self.route.place_of(name))
            .parse()
            .map_err(|_| Problem::missing(noun))
    }

    /// Returns the URL under which the caller reached this server: scheme, host and port.
    pub fn called(&self) -> Option<String> {
        let told = self.origin.called.clone();
        told.or_else(|| origin::called(&self.parts.headers))
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
        body::read(&self.parts.headers, body, limit_bytes, timeout).await
    }

    /// Reads the body as JSON. An empty body counts as an empty object if the route allows it.
    pub async fn take_json(&mut self) -> Result<Value, Problem> {
        let bytes = self.take_body(self.app.settings.body_bytes).await?;
        let may_be_empty = match self.route.takes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let handled: HandlerFuture = Box::pin(async { panic!("on purpose") });
        let problem = CatchPanic(handled).await.expect_err("a panic");
        assert_eq!(problem.status, 500);
        assert!(!problem.detail.contains("purpose"));
    }
}
