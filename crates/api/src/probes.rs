//! Health checks and the documentation of the API.
//!
//! A node is ready if its store can write, accepts do not stall and its clock is right; it is alive if it answers at all. Both
//! are answered without a key, so however many callers ask, at most one write of a probe waits for the store. The documentation
//! pages are generated from the route table and load nothing from elsewhere.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use posthaste_core::time::Span;
use posthaste_engine::EnginePhase;
use serde_json::json;

use super::accept_watch::MAX_WAIT;
use super::body;
use super::clock_check;
use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::resources::Schema;
use super::route::{
    Access, Call, Content, Group, RequestBody, Route, SuccessResponse, Verb, parameter, success,
};

/// Maximum time for the store to prove that it can write.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Content security policy of the documentation pages: no scripts, no external resources, a search on this server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(super) static GROUP: Group = Group {
    name: "Server",
    about: "Liveness, readiness and API documentation. No key required.",
    routes: &[
        open_route(
            "/healthz",
            "get_liveness",
            "Liveness check.",
            &[success(
                200,
                "The process is alive.",
                Content::Json("Liveness"),
            )],
            &[],
            |call| Box::pin(alive(call)),
        ),
        open_route(
            "/readyz",
            "get_readiness",
            "Readiness check: the store accepts writes without long delays, the engine is running, and the machine's clock differs from the database's by at most one minute.",
            &[success(
                200,
                "The server is ready.",
                Content::Json("Liveness"),
            )],
            &[
                (503, Code::Unavailable),
                (503, Code::Overloaded),
                (503, Code::AcceptsStalled),
                (503, Code::ClockOffset),
                (503, Code::ShuttingDown),
                (507, Code::DiskFull),
            ],
            |call| Box::pin(ready(call)),
        ),
        open_route(
            "/openapi.json",
            "get_openapi",
            "Returns the OpenAPI 3.1 document.",
            &[success(
                200,
                "The OpenAPI document.",
                Content::Other("application/json"),
            )],
            &[(503, Code::Overloaded)],
            |call| Box::pin(description(call)),
        ),
        open_route(
            "/docs",
            "get_docs",
            "Returns the API reference as a page.",
            &[success(200, "The page.", Content::Other("text/html"))],
            &[(503, Code::Overloaded)],
            |call| Box::pin(page(call)),
        ),
        open_route(
            "/docs/errors",
            "get_docs_errors",
            "Returns the list of errors with their meaning and remedy.",
            &[success(200, "The page.", Content::Other("text/html"))],
            &[(503, Code::Overloaded)],
            |call| Box::pin(errors_page(call)),
        ),
        Route {
            query: &[parameter(
                "q",
                "Words that a section must contain.",
                || json!({"type": "string", "minLength": 1}),
            )],
            ..open_route(
                "/docs/search",
                "search_docs",
                "Searches the documentation.",
                &[success(200, "The page.", Content::Other("text/html"))],
                &[(422, Code::Invalid), (503, Code::Overloaded)],
                |call| Box::pin(search(call)),
            )
        },
        open_route(
            "/docs/{guide}",
            "get_docs_guide",
            "Returns a guide as a page, for example the runbook at `/docs/operations`.",
            &[success(200, "The page.", Content::Other("text/html"))],
            &[(404, Code::NotFound), (503, Code::Overloaded)],
            |call| Box::pin(guide(call)),
        ),
    ],
    schemas,
};

const fn open_route(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    gives: &'static [SuccessResponse],
    fails: &'static [(u16, Code)],
    handler: super::route::Handler,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        name,
        summary,
        access: Access::Open,
        query: &[],
        request_body: RequestBody::Nothing,
        responses: gives,
        fails,
        handler,
    }
}

fn schemas() -> Vec<Schema> {
    vec![Schema {
        name: "Liveness",
        shape: json!({
            "type": "object",
            "required": ["status", "version"],
            "properties": {
                "status": {"const": "ok"},
                "version": {"type": "string"},
            },
            "additionalProperties": false,
            "examples": [{"status": "ok", "version": env!("CARGO_PKG_VERSION")}],
        }),
    }]
}

fn healthy() -> Response<Body> {
    let body = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")});
    let mut response = body::answer(StatusCode::OK, &body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn alive(_: Call) -> Result<Response<Body>, Problem> {
    Ok(healthy())
}

async fn ready(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let (store, now) = (app.store.clone(), app.clock.wall());
    let probe = app.store_probe.run(async move { store.probe(now).await });
    match tokio::time::timeout(PROBE_TIMEOUT, probe).await {
        Ok(Some(written)) => written?,
        Ok(None) => {
            let detail = "The check of the store ended without a result. Check the log.";
            return Err(Problem::new(Code::Unavailable, detail).after(Span::from_secs(1)));
        }
        Err(_) => {
            let detail = format!(
                "The store did not complete a write within {} s. Check the disk and the log.",
                PROBE_TIMEOUT.as_secs()
            );
            return Err(Problem::new(Code::Unavailable, detail).after(Span::from_secs(5)));
        }
    }
    if let Some(wait) = app.accepts.stalled_for(app.clock.now().tick) {
        let detail = format!(
            "Events have been waiting for {} s to be stored (threshold {} s). Check the disk or the database, and which tenants send the most events.",
            wait.as_millis() / 1_000,
            MAX_WAIT.as_millis() / 1_000
        );
        return Err(Problem::new(Code::AcceptsStalled, detail).after(Span::from_secs(1)));
    }
    clock_check::check(app.clock.offset_ms())?;
    match app.engine.phase() {
        EnginePhase::Running => Ok(healthy()),
        EnginePhase::Starting => {
            let detail = "The engine is still loading the stored deliveries. Try again shortly.";
            Err(Problem::new(Code::Unavailable, detail).after(Span::from_secs(1)))
        }
        EnginePhase::Stopped => Err(Problem::shutting_down()),
    }
}

async fn description(call: Call) -> Result<Response<Body>, Problem> {
    let bytes = (call.app.documentation.openapi)();
    Ok(body::answer_bytes(StatusCode::OK, bytes))
}

async fn page(call: Call) -> Result<Response<Body>, Problem> {
    Ok(html((call.app.documentation.page)()))
}

async fn errors_page(call: Call) -> Result<Response<Body>, Problem> {
    Ok(html((call.app.documentation.errors_page)()))
}

async fn guide(call: Call) -> Result<Response<Body>, Problem> {
    let name: String = call.id("guide", ResourceKind::Path)?;
    let page = (call.app.documentation.guide)(&name);
    page.map(html)
        .ok_or_else(|| Problem::missing(ResourceKind::Path))
}

async fn search(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let words = query.text("q").unwrap_or_default();
    query.finish()?;
    Ok(html((call.app.documentation.search)(&words)))
}

fn html(page: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(page));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(CONTENT_TYPE, html);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    let plain = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, plain);
    response
}
