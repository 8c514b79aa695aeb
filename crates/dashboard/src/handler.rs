//! Handles requests to the dashboard and the portal.
//!
//! [`handle`] authenticates the visitor, finds the page or the action, and renders the result. Every response gets the
//! security headers. A [`Problem`] is rendered as a page, and a panic as an internal error.

use std::sync::Arc;

use axum::body::Body;
use http::header::{ACCEPT, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use maud::html;
use posthaste_api::auth::Caller;
use posthaste_api::call::CatchPanic;
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::request_source::RequestSource;
use posthaste_core::id::TenantId;
use posthaste_store::ActionInterface;

use super::auth::{self, AuthMethod, Visitor};
use super::form::{Form, MAX_FORM_BYTES};
use super::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use super::page_request::{PageRequest, page_not_found};
use super::responses::{self, HtmlResponse, redirect, set_security_headers};
use super::routes::RouteScope;
use super::state::{Dashboard, Site};
use super::urls::{self, DASHBOARD_PATH, PORTAL_PATH, url_encoded};
use super::{layout, live_updates, pages, sign_in_page};

/// Handles a request below `/dashboard` or `/portal`.
pub(super) async fn handle(dashboard: Arc<Dashboard>, http_request: Request<Body>) -> HtmlResponse {
    let site = match http_request.uri().path().starts_with(PORTAL_PATH) {
        true => Site::Portal,
        false => Site::Dashboard,
    };
    // A panic in a page is answered as an internal error, and the connection stays open.
    let result = CatchPanic(Box::pin({
        let dashboard = dashboard.clone();
        async move {
            match site {
                Site::Portal => handle_portal(&dashboard, http_request).await,
                Site::Dashboard => handle_dashboard(&dashboard, http_request).await,
            }
        }
    }))
    .await;
    let mut response = result.unwrap_or_else(|problem| {
        let page = problem_page(&problem, layout::start_page(site));
        with_retry_after(unauthenticated_page(&dashboard, site, &page), &problem)
    });
    let frame_ancestors = match site {
        Site::Dashboard => &[],
        Site::Portal => dashboard.settings.frame_ancestors.as_slice(),
    };
    set_security_headers(&mut response, frame_ancestors);
    response
}

async fn handle_dashboard(
    dashboard: &Arc<Dashboard>,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let path = http_request.uri().path().to_owned();
    let path = path.strip_prefix(DASHBOARD_PATH).unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    match path {
        "/sign-in" => return sign_in_page::handle(dashboard, http_request).await,
        "/sign-out" => return sign_in_page::sign_out(dashboard, http_request).await,
        _ => {}
    }
    if auth::is_cross_site_navigation(http_request.method(), http_request.headers()) {
        let page = layout::reload_page(dashboard);
        return Ok(responses::html(&page, StatusCode::OK));
    }
    let headers = http_request.headers();
    let source = RequestSource::of_page(ActionInterface::Page, headers, http_request.extensions());
    let visitor = match auth::authenticate_dashboard(dashboard, headers, &source).await {
        Ok(visitor) => visitor,
        Err(problem) if problem.code == Code::Unauthorized => {
            return Ok(redirect_to_sign_in(dashboard, &http_request, &problem));
        }
        Err(problem) => return Err(problem),
    };
    let (tenant, rest) = match path.strip_prefix("/t/") {
        None => (None, path),
        Some(below) => {
            let end = below.find('/').unwrap_or(below.len());
            let tenant: TenantId = below[..end].parse().map_err(|_| page_not_found())?;
            (Some(tenant), &below[end..])
        }
    };
    if tenant.is_none()
        && let Caller::Tenant(_, own) = &visitor.caller
    {
        // A tenant's key opens no pages above its tenant.
        return match path {
            "" => Ok(redirect(&format!("{DASHBOARD_PATH}/t/{own}"))),
            _ => Err(page_not_found()),
        };
    }
    let rest = rest.to_owned();
    show_or_act(dashboard, visitor, tenant, &rest, http_request).await
}

async fn handle_portal(
    dashboard: &Arc<Dashboard>,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let path = http_request.uri().path();
    let below = path.strip_prefix(PORTAL_PATH).unwrap_or_default();
    let below = below.strip_prefix('/').ok_or_else(page_not_found)?;
    let end = below.find('/').unwrap_or(below.len());
    let (token, rest) = (below[..end].to_owned(), below[end..].to_owned());
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    let visitor = match auth::authenticate_portal(dashboard, &token).await {
        Ok(visitor) => visitor,
        Err(problem) if problem.code == Code::Unauthorized => {
            if wants_stream(&http_request) {
                return Ok(live_updates::ended());
            }
            return Ok(unauthenticated_page(dashboard, Site::Portal, &link_ended()));
        }
        Err(problem) => return Err(problem),
    };
    let tenant = match &visitor.caller {
        Caller::Tenant(_, tenant) => Some(tenant.clone()),
        Caller::Admin(_) | Caller::Anonymous => None,
    };
    show_or_act(dashboard, visitor, tenant, rest, http_request).await
}

/// Shows a page, or performs the action that a form requests.
async fn show_or_act(
    dashboard: &Arc<Dashboard>,
    visitor: Visitor,
    tenant: Option<TenantId>,
    path: &str,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let scope = match tenant {
        None => RouteScope::Server,
        Some(_) => RouteScope::Tenant,
    };
    let via = match visitor.method {
        AuthMethod::Portal { .. } => ActionInterface::Portal,
        AuthMethod::Session { .. } | AuthMethod::Key(_) => ActionInterface::Page,
    };
    let request = PageRequest {
        dashboard: dashboard.clone(),
        visitor: Arc::new(visitor),
        tenant,
        path_params: Vec::new(),
        path: http_request.uri().path().to_owned(),
        query: urls::parse_query(http_request.uri()),
        source: RequestSource::of_page(via, http_request.headers(), http_request.extensions()),
        now: dashboard.app.clock.wall(),
        cached_value: Arc::default(),
    };
    match *http_request.method() {
        Method::POST => act(request, scope, path, http_request).await,
        Method::GET | Method::HEAD => {
            Ok(show(request, scope, path, wants_stream(&http_request)).await)
        }
        _ => Err(Problem::method_not_allowed("GET, POST".to_owned())),
    }
}

/// Performs the action that a form requests.
async fn act(
    mut request: PageRequest,
    scope: RouteScope,
    path: &str,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let Some((action, path_params)) = pages::action(scope, path) else {
        return Ok(problem_response(&request, &page_not_found()));
    };
    request.path_params = path_params;
    let (parts, body) = http_request.into_parts();
    let reservation = request
        .dashboard
        .app
        .body_reservation(&request.visitor.caller);
    let form = Form::read(&parts.headers, body, MAX_FORM_BYTES, reservation).await?;
    let checked = auth::check_form(&request.dashboard, &request.visitor, &parts.headers, &form);
    let result = match checked {
        Ok(()) => action(request.clone(), form).await,
        Err(problem) => Err(problem),
    };
    Ok(match result {
        Ok(ActionResult::Redirect(link, message)) => redirect(&with_message(&link, message)),
        Ok(ActionResult::Page(page)) => page_response(&request, &page, None),
        Err(problem) => problem_response(&request, &problem),
    })
}

/// Shows a page, or streams its updates.
async fn show(
    mut request: PageRequest,
    scope: RouteScope,
    path: &str,
    as_stream: bool,
) -> HtmlResponse {
    let Some((page, path_params)) = pages::page(scope, path) else {
        return problem_response(&request, &page_not_found());
    };
    request.path_params = path_params;
    if as_stream {
        return live_updates::stream(request, page);
    }
    let message = FlashMessage::from_query(request.query("done"));
    match page(request.clone()).await {
        Ok(PageResult::Page(page)) => page_response(&request, &page, message),
        Ok(PageResult::Redirect(link)) => redirect(&link),
        Err(problem) => problem_response(&request, &problem),
    }
}

fn wants_stream(http_request: &Request<Body>) -> bool {
    let accept = http_request.headers().get(ACCEPT);
    *http_request.method() == Method::GET
        && accept.is_some_and(|value| value == "text/event-stream")
}

fn page_response(
    request: &PageRequest,
    page: &Page,
    message: Option<FlashMessage>,
) -> HtmlResponse {
    responses::html(&layout::render_page(request, page, message), page.status)
}

fn unauthenticated_page(dashboard: &Dashboard, site: Site, page: &Page) -> HtmlResponse {
    let markup = layout::render_unauthenticated(dashboard, site, page);
    responses::html(&markup, page.status)
}

/// Renders a problem as a page for a visitor who is authenticated.
fn problem_response(request: &PageRequest, problem: &Problem) -> HtmlResponse {
    let page = problem_page(problem, Some(&request.link("")));
    with_retry_after(page_response(request, &page, None), problem)
}

fn with_retry_after(mut response: HtmlResponse, problem: &Problem) -> HtmlResponse {
    if let Some(wait) = problem.retry_after {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Renders a problem as a page.
fn problem_page(problem: &Problem, home: Option<&str>) -> Page {
    let body = html! {
        @if problem.errors.is_none() { p { (problem.detail) } }
        @if let Some(errors) = &problem.errors {
            ul { @for error in errors.iter() { li { code { (error.field) } " " (error.message) } } }
        }
        @if let Some(home) = home { p { a href=(home) { "Go to the overview" } } }
    };
    Page::new(Tab::None, problem.code.title())
        .static_section("problem", body)
        .with_status(problem.status)
}

fn link_ended() -> Page {
    let body = html! {
        p { "This link has expired or was revoked. Ask the person who sent it for a new one." }
    };
    Page::new(Tab::None, "Link expired")
        .static_section("problem", body)
        .with_status(StatusCode::UNAUTHORIZED)
}

/// Redirects to the sign-in page, which leads back to the requested page.
fn redirect_to_sign_in(
    dashboard: &Dashboard,
    http_request: &Request<Body>,
    problem: &Problem,
) -> HtmlResponse {
    if wants_stream(http_request) {
        return live_updates::ended();
    }
    if *http_request.method() != Method::GET {
        let page = problem_page(problem, Some(DASHBOARD_PATH));
        return unauthenticated_page(dashboard, Site::Dashboard, &page);
    }
    let requested = http_request.uri().path_and_query();
    let requested = requested.map_or(DASHBOARD_PATH, |requested| requested.as_str());
    redirect(&match requested {
        DASHBOARD_PATH => format!("{DASHBOARD_PATH}/sign-in"),
        requested => format!("{DASHBOARD_PATH}/sign-in?next={}", url_encoded(requested)),
    })
}

/// Adds the message about an action to the link that follows it.
fn with_message(link: &str, message: FlashMessage) -> String {
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, format!("#{fragment}")),
        None => (link, String::new()),
    };
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}done={}{fragment}", message.query_value())
}
