//! Handles requests to the dashboard and the portal: authenticates the visitor, finds the page or the action, and
//! sets the security headers.

use std::sync::Arc;

use axum::body::Body;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use maud::html;
use posthaste_api::auth::Caller;
use posthaste_api::call::CatchPanic;
use posthaste_api::code::Code;
use posthaste_api::origin::Origin;
use posthaste_api::problem::Problem;
use posthaste_core::id::TenantId;
use posthaste_store::Via;

use super::form::Form;
use super::login::{self, DASHBOARD_PATH, LoginMethod, PORTAL_PATH, Visitor};
use super::page::{ActionResult, Done, Page, PageResult, Tab};
use super::pages::{self, Reach};
use super::visit::{self, PageRequest, escaped, no_such_page};
use super::{Dashboard, HtmlResponse, Site, layout, live, sign_in};

/// Answers a request below `/dashboard` or `/portal_response`.
pub(super) async fn answer(dashboard: Arc<Dashboard>, request: Request<Body>) -> HtmlResponse {
    let site = match request.uri().path().starts_with(PORTAL_PATH) {
        true => Site::Portal,
        false => Site::Dashboard,
    };
    // A panic in a page is answered as an internal error, and the connection stays open.
    let answered = CatchPanic(Box::pin({
        let dashboard = dashboard.clone();
        async move {
            match site {
                Site::Portal => portal_response(&dashboard, request).await,
                Site::Dashboard => own(&dashboard, request).await,
            }
        }
    }))
    .await;
    let mut answer = answered.unwrap_or_else(|problem| {
        let page = problem_page(&problem, start_page(site));
        with_retry_after(
            html(&layout::bare(&dashboard, site, &page), page.status),
            &problem,
        )
    });
    set_security_headers(&dashboard, site, &mut answer);
    answer
}

async fn own(dashboard: &Arc<Dashboard>, request: Request<Body>) -> Result<HtmlResponse, Problem> {
    let path = request.uri().path().to_owned();
    let path = path.strip_prefix(DASHBOARD_PATH).unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    match path {
        "/sign-in" => return sign_in::answer(dashboard, request).await,
        "/sign-out" => return sign_in::leave(dashboard, request).await,
        _ => {}
    }
    if login::is_cross_site_navigation(request.method(), request.headers()) {
        return Ok(html(&layout::reload_page(dashboard), StatusCode::OK));
    }
    let visitor = match login::authenticate_dashboard(dashboard, request.headers()).await {
        Ok(visitor) => visitor,
        Err(problem) if problem.code == Code::Unauthorized => {
            return Ok(sign_in_first(dashboard, &request, &problem));
        }
        Err(problem) => return Err(problem),
    };
    let (tenant, rest) = match path.strip_prefix("/t/") {
        None => (None, path),
        Some(below) => {
            let end = below.find('/').unwrap_or(below.len());
            let tenant: TenantId = below[..end].parse().map_err(|_| no_such_page())?;
            (Some(tenant), &below[end..])
        }
    };
    if tenant.is_none()
        && let Caller::Tenant(_, own) = &visitor.caller
    {
        // A tenant's key opens no pages above its tenant.
        return match path {
            "" => Ok(to(&format!("{DASHBOARD_PATH}/t/{own}"))),
            _ => Err(no_such_page()),
        };
    }
    let rest = rest.to_owned();
    show_or_act(dashboard, visitor, tenant, &rest, request).await
}

async fn portal_response(
    dashboard: &Arc<Dashboard>,
    request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let path = request.uri().path();
    let below = path.strip_prefix(PORTAL_PATH).unwrap_or_default();
    let below = below.strip_prefix('/').ok_or_else(no_such_page)?;
    let end = below.find('/').unwrap_or(below.len());
    let (token, rest) = (below[..end].to_owned(), below[end..].to_owned());
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    let visitor = match login::authenticate_portal(dashboard, &token).await {
        Ok(visitor) => visitor,
        Err(problem) if problem.code == Code::Unauthorized => {
            if wants_stream(&request) {
                return Ok(live::ended());
            }
            let page = link_ended();
            return Ok(html(
                &layout::bare(dashboard, Site::Portal, &page),
                page.status,
            ));
        }
        Err(problem) => return Err(problem),
    };
    let tenant = match &visitor.caller {
        Caller::Tenant(_, tenant) => Some(tenant.clone()),
        Caller::Admin(_) | Caller::Nobody => None,
    };
    show_or_act(dashboard, visitor, tenant, rest, request).await
}

/// Shows a page, or performs the action that a form requests.
async fn show_or_act(
    dashboard: &Arc<Dashboard>,
    visitor: Visitor,
    tenant: Option<TenantId>,
    path: &str,
    request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let reach = match tenant {
        None => Reach::Everything,
        Some(_) => Reach::Tenant,
    };
    let via = match visitor.door {
        LoginMethod::Portal { .. } => Via::Portal,
        LoginMethod::Session { .. } | LoginMethod::Key(_) => Via::Page,
    };
    let mut visit = PageRequest {
        dashboard: dashboard.clone(),
        visitor: Arc::new(visitor),
        tenant,
        names: Vec::new(),
        path: request.uri().path().to_owned(),
        query: visit::read_query(request.uri()),
        origin: Origin::of_page(via, request.headers(), request.extensions()),
        now: dashboard.app.clock.wall(),
        known: Arc::default(),
    };
    let method = request.method().clone();
    if method == Method::POST {
        let Some((act, names)) = pages::action(reach, path) else {
            return Ok(problem_response(&visit, &no_such_page()));
        };
        visit.names = names;
        let (parts, body) = request.into_parts();
        let form = Form::read(&parts.headers, body).await?;
        let checked = login::check_form(dashboard, &visit.visitor, &parts.headers, &form);
        let done = match checked {
            Ok(()) => act(visit.clone(), form).await,
            Err(problem) => Err(problem),
        };
        return Ok(match done {
            Ok(ActionResult::Redirect(link, done)) => to(&with_done(&link, done)),
            Ok(ActionResult::Page(page)) => page_response(&visit, &page, None),
            Err(problem) => problem_response(&visit, &problem),
        });
    }
    if method != Method::GET && method != Method::HEAD {
        return Err(Problem::method_not_allowed("GET, POST".to_owned()));
    }
    let Some((show, names)) = pages::page(reach, path) else {
        return Ok(problem_response(&visit, &no_such_page()));
    };
    visit.names = names;
    if wants_stream(&request) {
        return Ok(live::stream(visit, show));
    }
    let done = Done::read(visit.query("done"));
    Ok(match show(visit.clone()).await {
        Ok(PageResult::Page(page)) => page_response(&visit, &page, done),
        Ok(PageResult::Redirect(link)) => to(&link),
        Err(problem) => problem_response(&visit, &problem),
    })
}

fn wants_stream(request: &Request<Body>) -> bool {
    let accept = request.headers().get(ACCEPT);
    *request.method() == Method::GET && accept.is_some_and(|value| value == "text/event-stream")
}

fn page_response(visit: &PageRequest, page: &Page, done: Option<Done>) -> HtmlResponse {
    html(&layout::whole(visit, page, done), page.status)
}

/// Renders a problem as a page for a visitor who is authenticated.
fn problem_response(visit: &PageRequest, problem: &Problem) -> HtmlResponse {
    let page = problem_page(problem, Some(&visit.link("")));
    with_retry_after(page_response(visit, &page, None), problem)
}

fn with_retry_after(mut answer: HtmlResponse, problem: &Problem) -> HtmlResponse {
    if let Some(wait) = problem.retry_after {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Returns the start page for a visitor who is not authenticated. A portal has none: its visitors have only their
/// link and may not use the dashboard.
pub(super) fn start_page(site: Site) -> Option<&'static str> {
    match site {
        Site::Dashboard => Some(DASHBOARD_PATH),
        Site::Portal => None,
    }
}

/// Renders a problem as a page.
fn problem_page(problem: &Problem, home: Option<&str>) -> Page {
    let body = html! {
        @if problem.errors.is_none() { p { (problem.detail) } }
        @if let Some(mistakes) = &problem.errors {
            ul { @for mistake in mistakes.iter() { li { code { (mistake.field) } " " (mistake.message) } } }
        }
        @if let Some(home) = home { p { a href=(home) { "To the overview" } } }
    };
    Page::new(Tab::None, problem.code.title())
        .static_section("problem", body)
        .with_status(problem.status)
}

fn link_ended() -> Page {
    let body = html! {
        p { "This link has expired or was ended. Ask whoever gave it to you for a new one." }
    };
    Page::new(Tab::None, "The link has ended")
        .static_section("problem", body)
        .with_status(StatusCode::UNAUTHORIZED)
}

fn sign_in_first(
    dashboard: &Dashboard,
    request: &Request<Body>,
    problem: &Problem,
) -> HtmlResponse {
    if wants_stream(request) {
        return live::ended();
    }
    if *request.method() != Method::GET {
        let page = problem_page(problem, Some(DASHBOARD_PATH));
        return html(
            &layout::bare(dashboard, Site::Dashboard, &page),
            page.status,
        );
    }
    let wanted = request.uri().path_and_query();
    let wanted = wanted.map_or(DASHBOARD_PATH, |wanted| wanted.as_str());
    to(&match wanted {
        DASHBOARD_PATH => format!("{DASHBOARD_PATH}/sign-in"),
        wanted => format!("{DASHBOARD_PATH}/sign-in?next={}", escaped(wanted)),
    })
}

fn with_done(link: &str, done: Done) -> String {
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, format!("#{fragment}")),
        None => (link, String::new()),
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}done={}{fragment}", done.word())
}

/// Redirects the browser to a link.
pub(super) fn to(link: &str) -> HtmlResponse {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    let link = HeaderValue::from_str(link).unwrap_or(HeaderValue::from_static(DASHBOARD_PATH));
    answer.headers_mut().insert(LOCATION, link);
    answer
}

/// Returns a page as a response. It is marked `no-store`, because it is valid only now and only for this visitor.
pub(super) fn html(markup: &maud::Markup, status: StatusCode) -> HtmlResponse {
    let mut answer = Response::new(Body::from(markup.0.clone()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Content security policy of all pages: they load only our own assets and send forms only to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; ";

/// Sets the security headers: what pages may do, and which sites may show them in a frame.
fn set_security_headers(dashboard: &Dashboard, site: Site, answer: &mut HtmlResponse) {
    let framed_by = match (site, dashboard.settings.frame_ancestors.as_slice()) {
        (Site::Dashboard, _) | (Site::Portal, []) => "'none'".to_owned(),
        (Site::Portal, origins) => origins.join(" "),
    };
    let headers = answer.headers_mut();
    if framed_by == "'none'" {
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    let policy = format!("{POLICY}frame-ancestors {framed_by}");
    let policy = HeaderValue::from_str(&policy).expect("origins were checked at the start");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would make browsers hide the origin of forms, which we check.
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns whether the visitor signed in, so that the page offers to sign out.
pub(super) fn is_session(visit: &PageRequest) -> bool {
    matches!(visit.visitor.door, LoginMethod::Session { .. })
}
