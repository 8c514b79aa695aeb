//! Coming in with a key, and leaving.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use maud::{Markup, html};

use super::door::HOME;
use super::page::{Done, Page, Tab};
use super::{Answer, Dashboard, answer, layout, visit};
use crate::api::problem::Problem;

/// The page that asks for a key, or what comes of giving one.
pub(super) async fn answer(
    dashboard: &Arc<Dashboard>,
    request: Request<Body>,
) -> Result<Answer, Problem> {
    if *request.method() == Method::GET || *request.method() == Method::HEAD {
        let query = visit::read_query(request.uri());
        let given = |wanted: &str| {
            let found = query.iter().find(|(name, _)| name == wanted);
            found.map_or("", |(_, text)| text.as_str())
        };
        let done = Done::read(given("done"));
        let page = page(given("next"), None);
        return Ok(answer::html(
            &layout::bare_with(dashboard, &page, done),
            StatusCode::OK,
        ));
    }
    Err(Problem::method_not_allowed("GET, POST".to_owned()))
}

/// Ends a session.
pub(super) async fn leave(
    _dashboard: &Arc<Dashboard>,
    _request: Request<Body>,
) -> Result<Answer, Problem> {
    Ok(answer::to(&format!("{HOME}/sign-in")))
}

/// The page that asks for a key.
fn page(next: &str, wrong: Option<&str>) -> Page {
    let form: Markup = html! {
        form method="post" action={ (HOME) "/sign-in" } class="card narrow" {
            @if let Some(wrong) = wrong { p.wrong role="alert" id="wrong" { (wrong) } }
            input type="hidden" name="next" value=(next);
            label for="key" { "Key" }
            input #key type="password" name="key" required autocomplete="current-password" autofocus
                spellcheck="false" aria-describedby=[wrong.map(|_| "wrong")];
            p.hint { "An admin key or a tenant's key. It begins with " code { "ph_" } "." }
            button.primary type="submit" { "Sign in" }
        }
    };
    Page::new(Tab::None, "Sign in").still("sign-in", form)
}

/// Where somebody wanted to go, if that is a page of ours.
fn wanted(next: &str) -> &str {
    let below = next.strip_prefix(HOME);
    let is_ours = below
        .is_some_and(|below| below.is_empty() || below.starts_with('/') || below.starts_with('?'));
    match is_ours && next.is_ascii() && !next.contains(['\\', '\r', '\n']) {
        true => next,
        false => HOME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        let own = "/dashboard/t/acme/deliveries?status=failed";
        assert_eq!(wanted(own), own);
        assert_eq!(wanted("/dashboard"), "/dashboard");
        for other in [
            "",
            "//evil.example",
            "https://evil.example/dashboard",
            "/dashboard.evil.example",
            "/\\evil.example",
            "/dashboard\r\nset-cookie: a=b",
            "javascript:alert(1)",
        ] {
            assert_eq!(wanted(other), HOME, "{other}");
        }
    }
}
