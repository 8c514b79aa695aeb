//! The page on which the owner of an address confirms it. It needs no login.
//!
//! The link in the email leads to a page with a button. Only the button confirms, because link scanners of mail programs
//! open every link.

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use maud::{Markup, html};
use posthaste_api::owner_confirmation::CONFIRMATION_PATH;
use posthaste_api::problem::Problem;
use posthaste_api::request_source::RequestSource;
use posthaste_store::ActionInterface;

use super::layout;
use super::page::{Page, Tab};
use super::responses::{self, HtmlResponse, set_security_headers};
use super::state::{Dashboard, Site};

/// Handles a request below the path of confirmations.
pub(super) async fn handle(dashboard: Arc<Dashboard>, http_request: Request<Body>) -> HtmlResponse {
    let (parts, _) = http_request.into_parts();
    let page = match show_or_confirm(&dashboard, &parts).await {
        Ok(page) => page,
        Err(problem) => {
            let body = html! { p { (problem.detail) } };
            Page::new(Tab::None, problem.code.title())
                .static_section("problem", body)
                .with_status(problem.status)
        }
    };
    let markup = layout::render_unauthenticated(&dashboard, Site::Portal, &page);
    let mut response = responses::html(&markup, page.status);
    set_security_headers(&mut response, &[]);
    response
}

async fn show_or_confirm(dashboard: &Dashboard, parts: &Parts) -> Result<Page, Problem> {
    let path = parts.uri.path();
    let token = path.strip_prefix(CONFIRMATION_PATH).unwrap_or_default();
    let token = token.strip_prefix('/').unwrap_or_default();
    match parts.method {
        Method::GET | Method::HEAD => {
            let found = dashboard.app.confirmation(token).await?;
            Ok(found.map_or_else(no_such_link, |found| question(path, &found.recipient)))
        }
        Method::POST => {
            let source =
                RequestSource::of_page(ActionInterface::Page, &parts.headers, &parts.extensions);
            match dashboard.app.confirm_owner(token, &source).await? {
                true => Ok(confirmed()),
                false => Ok(no_such_link()),
            }
        }
        _ => Err(Problem::method_not_allowed("GET, POST".to_owned())),
    }
}

fn page(title: &'static str, body: Markup) -> Page {
    Page::new(Tab::None, title).static_section("confirmation", body)
}

fn question(path: &str, recipient: &str) -> Page {
    page(
        "Confirm your email address",
        html! {
            form method="post" action=(path) class="card narrow" {
                p { "Send emails to " strong { (recipient) } " when deliveries to a webhook endpoint fail?" }
                p.hint { "If you do not know this endpoint, close this page. You will then get no emails about it." }
                button.primary type="submit" { "Confirm" }
            }
        },
    )
}

fn confirmed() -> Page {
    page(
        "Email address confirmed",
        html! { p { "You will get an email when deliveries to the endpoint fail. You can close this page." } },
    )
}

fn no_such_link() -> Page {
    let body = html! {
        p { "This link was already used, has expired, or the address is no longer needed." }
    };
    page("Link not valid", body).with_status(StatusCode::NOT_FOUND)
}
