//! The sign-in page: signing in with a key, and signing out.
//!
//! The key is sent once and not stored: a session has its own token, of which only the hash is stored. A session ends
//! when it expires, when the visitor signs out, and when its key is revoked.

use std::sync::Arc;

use axum::body::Body;
use http::header::{HeaderMap, HeaderValue, SET_COOKIE};
use http::{Method, Request, StatusCode};
use maud::{Markup, html};
use posthaste_api::audit_writer::AuditedRequest;
use posthaste_api::auth::Caller;
use posthaste_api::code::Code;
use posthaste_api::hash_key;
use posthaste_api::problem::Problem;
use posthaste_api::request_source::RequestSource;
use posthaste_core::time::Timestamp;
use posthaste_store::{ActionInterface, AuditOutcome, CreateResult, LoginSession, SessionIdentity};
use posthaste_system::random::fresh_token;

use super::auth::{self, AuthMethod};
use super::form::{Form, MAX_SIGN_IN_BYTES};
use super::layout;
use super::page::{FlashMessage, Page, Tab};
use super::responses::{self, HtmlResponse, redirect};
use super::state::{Dashboard, Site};
use super::urls::{self, DASHBOARD_PATH};

/// Shows the sign-in form, or handles its submission.
pub(super) async fn handle(
    dashboard: &Arc<Dashboard>,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    match *http_request.method() {
        Method::GET | Method::HEAD => Ok(show(dashboard, &http_request)),
        Method::POST => sign_in(dashboard, http_request).await,
        _ => Err(Problem::method_not_allowed("GET, POST".to_owned())),
    }
}

fn show(dashboard: &Dashboard, http_request: &Request<Body>) -> HtmlResponse {
    let query = urls::parse_query(http_request.uri());
    let param = |name: &str| {
        let found = query.iter().find(|(param, _)| param == name);
        found.map_or("", |(_, text)| text.as_str())
    };
    let message = FlashMessage::from_query(param("done"));
    let page = page(param("next"), None);
    let markup =
        layout::render_unauthenticated_with_message(dashboard, Site::Dashboard, &page, message);
    responses::html(&markup, StatusCode::OK)
}

async fn sign_in(
    dashboard: &Arc<Dashboard>,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    let (parts, body) = http_request.into_parts();
    let reservation = dashboard.app.body_reservation(&Caller::Anonymous);
    let form = Form::read(&parts.headers, body, MAX_SIGN_IN_BYTES, reservation).await?;
    auth::check_origin(dashboard, &parts.headers)?;
    let app = &dashboard.app;
    let hash = hash_key(form.text("key"));
    let source = RequestSource::of_page(ActionInterface::Page, &parts.headers, &parts.extensions);
    let caller = match app.authenticate_key(hash, &source).await {
        Ok(caller) => caller,
        Err(problem) if problem.code == Code::Unauthorized => {
            return Ok(unknown_key(dashboard, form.text("next")));
        }
        Err(problem) => return Err(problem),
    };
    let audited = begin_audit_entry(dashboard, "sign_in", &caller, &source).await?;
    let now = app.clock.wall();
    let lifetime_ms = dashboard.settings.session.as_millis();
    let token = fresh_token();
    let session = LoginSession {
        id: app.new_id(),
        hash: hash_key(&token),
        holder: SessionIdentity::Key(hash),
        created_at: now,
        expires_at: Timestamp(now.0.saturating_add(lifetime_ms)),
    };
    match app.store.create_session(now, session).await? {
        CreateResult::Created => audited.end(AuditOutcome::Done, None).await,
        CreateResult::Taken | CreateResult::NoSuchTenant | CreateResult::TooMany => {
            return Err(Problem::internal(&"a fresh session was refused"));
        }
    }
    let mut response = redirect(safe_redirect_target(form.text("next")));
    set_cookie(
        dashboard,
        &parts.headers,
        &mut response,
        &token,
        lifetime_ms / 1_000,
    );
    Ok(response)
}

fn unknown_key(dashboard: &Dashboard, next: &str) -> HtmlResponse {
    let error = "Unknown or revoked key.";
    let page = page(next, Some(error));
    let markup = layout::render_unauthenticated(dashboard, Site::Dashboard, &page);
    responses::html(&markup, StatusCode::UNAUTHORIZED)
}

/// Ends the session and deletes the cookie.
pub(super) async fn sign_out(
    dashboard: &Arc<Dashboard>,
    http_request: Request<Body>,
) -> Result<HtmlResponse, Problem> {
    if *http_request.method() != Method::POST {
        return Err(Problem::method_not_allowed("POST".to_owned()));
    }
    let (parts, body) = http_request.into_parts();
    let reservation = dashboard.app.body_reservation(&Caller::Anonymous);
    let form = Form::read(&parts.headers, body, MAX_SIGN_IN_BYTES, reservation).await?;
    let source = RequestSource::of_page(ActionInterface::Page, &parts.headers, &parts.extensions);
    match auth::authenticate_dashboard(dashboard, &parts.headers, &source).await {
        Ok(visitor) => {
            auth::check_form(dashboard, &visitor, &parts.headers, &form)?;
            match visitor.method {
                AuthMethod::Session { id, .. } => {
                    let caller = &visitor.caller;
                    let audited = begin_audit_entry(dashboard, "sign_out", caller, &source).await?;
                    let app = &dashboard.app;
                    app.store.end_session(app.clock.wall(), None, id).await?;
                    audited.end(AuditOutcome::Done, None).await;
                }
                AuthMethod::Portal { .. } | AuthMethod::Key(_) => {}
            }
        }
        // The session has ended already.
        Err(problem) if problem.code == Code::Unauthorized => {}
        Err(problem) => return Err(problem),
    }
    let message = FlashMessage::SignedOut.query_value();
    let mut response = redirect(&format!("{DASHBOARD_PATH}/sign-in?done={message}"));
    set_cookie(dashboard, &parts.headers, &mut response, "", 0);
    Ok(response)
}

/// Begins the audit log entry of a sign-in or sign-out.
async fn begin_audit_entry(
    dashboard: &Dashboard,
    action: &str,
    caller: &Caller,
    source: &RequestSource,
) -> Result<AuditedRequest, Problem> {
    let tenant = match caller {
        Caller::Tenant(_, tenant) => Some(tenant.clone()),
        Caller::Admin(_) | Caller::Anonymous => None,
    };
    AuditedRequest::begin(
        &dashboard.app,
        action,
        caller,
        tenant,
        source,
        DASHBOARD_PATH,
    )
    .await
}

/// Sets or deletes the session cookie. Scripts cannot read it, and other sites cannot make the browser send it.
fn set_cookie(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    response: &mut HtmlResponse,
    token: &str,
    lifetime_secs: u64,
) {
    let is_secure = auth::is_secure(dashboard, headers);
    let name = auth::cookie_name(is_secure);
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!(
        "{name}={token}; Path=/; Max-Age={lifetime_secs}; HttpOnly; SameSite=Strict{secure}"
    );
    let cookie =
        HeaderValue::from_str(&cookie).expect("a token consists of visible ASCII characters");
    response.headers_mut().insert(SET_COOKIE, cookie);
}

/// The sign-in page.
fn page(next: &str, error: Option<&str>) -> Page {
    let form: Markup = html! {
        form method="post" action={ (DASHBOARD_PATH) "/sign-in" } class="card narrow" {
            @if let Some(error) = error { p.wrong role="alert" id="wrong" { (error) } }
            input type="hidden" name="next" value=(next);
            label for="key" { "Key" }
            input #key type="password" name="key" required autocomplete="current-password" autofocus
                spellcheck="false" aria-describedby=[error.map(|_| "wrong")];
            p.hint { "An admin key or a tenant's key. Generated keys start with " code { "ph_" } "." }
            button.primary type="submit" { "Sign in" }
        }
    };
    Page::new(Tab::None, "Sign in").static_section("sign-in", form)
}

/// Returns the page to open after signing in, if it is one of ours.
fn safe_redirect_target(next: &str) -> &str {
    let below = next.strip_prefix(DASHBOARD_PATH);
    let is_ours = below
        .is_some_and(|below| below.is_empty() || below.starts_with('/') || below.starts_with('?'));
    match is_ours && next.is_ascii() && !next.contains(['\\', '\r', '\n']) {
        true => next,
        false => DASHBOARD_PATH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_target_is_never_another_site() {
        let own = "/dashboard/t/acme/deliveries?status=failed";
        assert_eq!(safe_redirect_target(own), own);
        assert_eq!(safe_redirect_target("/dashboard"), "/dashboard");
        for other in [
            "",
            "//evil.example",
            "https://evil.example/dashboard",
            "/dashboard.evil.example",
            "/\\evil.example",
            "/dashboard\r\nset-cookie: a=b",
            "javascript:alert(1)",
        ] {
            assert_eq!(safe_redirect_target(other), DASHBOARD_PATH, "{other}");
        }
    }
}
