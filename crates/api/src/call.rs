//! Processes one request: authenticates its caller, checks the access, writes the audit log, runs the handler.
//!
//! `answer` serves requests to the API, and pages call `authorize_and_run` with a caller that they have
//! authenticated themselves. So the checks of access and the audit log are the same for both. A handler that panics
//! answers with an internal error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use posthaste_engine::EngineError;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::audit_writer::{self, AuditedRequest};
use super::auth::Caller;
use super::problem::Problem;
use super::request_source::RequestSource;
use super::route::{Access, Call, HandlerFuture, Route, run_to_completion, segment};

/// Routes whose change the owner of an endpoint makes.
const OWNER_CHANGES: [&str; 6] = [
    "enable_endpoint",
    "disable_endpoint",
    "pause_endpoint",
    "resume_endpoint",
    "delete_endpoint",
    "cancel_delivery",
];
/// Time limit of a change that the owner of an endpoint makes, including authentication, its reads and its audit entry. Over a
/// slow link to the database each of them takes seconds.
const OWNER_CHANGE_TIMEOUT: Duration = Duration::from_secs(12);

/// Answers a request for `route`.
pub(super) async fn answer(
    app: Arc<App>,
    route: &'static Route,
    request: Request<Body>,
) -> Response<Body> {
    let answer_by = answer_by(route);
    match within_time_limit(answer_by, handle(app, route, request, answer_by)).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn handle(
    app: Arc<App>,
    route: &'static Route,
    request: Request<Body>,
    answer_by: Option<Instant>,
) -> Result<Response<Body>, Problem> {
    let source = RequestSource::of(request.headers(), request.extensions());
    let caller = match route.access {
        Access::Open => Caller::Anonymous,
        Access::AnyKey | Access::Admin | Access::Tenant | Access::TenantKey => {
            app.authenticate(request.headers(), &source).await?
        }
    };
    execute(app, route, caller, source, request, answer_by).await
}

/// Checks that an authenticated caller may use the route, and runs its handler.
pub(super) async fn authorize_and_run(
    app: Arc<App>,
    route: &'static Route,
    caller: Caller,
    source: RequestSource,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let answer_by = answer_by(route);
    let running = execute(app, route, caller, source, request, answer_by);
    within_time_limit(answer_by, running).await
}

/// Checks the access and runs the handler. Every request passes here, independent of how its caller was authenticated.
async fn execute(
    app: Arc<App>,
    route: &'static Route,
    caller: Caller,
    source: RequestSource,
    request: Request<Body>,
    answer_by: Option<Instant>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let tenant = match route.access {
        Access::Open | Access::AnyKey => None,
        Access::Admin => {
            caller.must_be_admin()?;
            None
        }
        Access::Tenant | Access::TenantKey => {
            let name = segment(&parts, route.segment_index("tenant"));
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
        reservation: None,
        tenant,
        source,
        answer_by,
    };
    if route.query.is_empty() && route.access != Access::Open {
        call.query().finish()?;
    }
    match audit_writer::is_audited(route) {
        false => CatchPanic((route.handler)(call)).await,
        true => run_to_completion(audited(call)).await,
    }
}

/// Returns the time at which the caller of a route gets an error, if it has a time limit.
fn answer_by(route: &Route) -> Option<Instant> {
    let is_limited = OWNER_CHANGES.contains(&route.name);
    is_limited.then(|| Instant::now() + OWNER_CHANGE_TIMEOUT)
}

/// Waits for the answer of a request. After its time limit the caller gets an error. A change that has reached the owner continues,
/// and its outcome is written to the audit log. A change that has not is not made.
async fn within_time_limit(
    answer_by: Option<Instant>,
    running: impl Future<Output = Result<Response<Body>, Problem>>,
) -> Result<Response<Body>, Problem> {
    let Some(answer_by) = answer_by else {
        return running.await;
    };
    let answered = timeout_at(answer_by, running).await;
    answered.unwrap_or_else(|_| Err(EngineError::NotOwner.into()))
}

/// Runs the handler and writes the audit log.
async fn audited(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = call.tenant.as_ref().map(|known| known.tenant.id.clone());
    let path = call.parts.uri.path();
    let (app, route) = (&call.app, call.route);
    let entry =
        AuditedRequest::begin(app, route.name, &call.caller, tenant, &call.source, path).await?;
    let result = CatchPanic((route.handler)(call)).await;
    if let Some(outcome) = audit_writer::outcome_of(&result) {
        entry.end(outcome, audit_writer::created_id(&result)).await;
    }
    result
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    #[tokio::test(start_paused = true)]
    async fn a_change_by_the_owner_is_answered_within_its_time_limit() {
        for name in OWNER_CHANGES {
            let route = routes::all().find(|route| route.name == name);
            let route = route.expect("a route");
            let answered = within_time_limit(answer_by(route), std::future::pending()).await;
            let problem = answered.expect_err("it never ends");
            assert_eq!(problem.status, 503);
            assert!(problem.detail.contains("may have taken effect"), "{name}");
        }
    }

    #[tokio::test]
    async fn panic_of_a_handler_is_an_internal_error() {
        let handled: HandlerFuture = Box::pin(async { panic!("on purpose") });
        let problem = CatchPanic(handled).await.expect_err("a panic");
        assert_eq!(problem.status, 500);
        assert!(!problem.detail.contains("purpose"));
    }
}
