//! The signing secret of an endpoint: shows it and rotates it. The pages with a secret are responses to a form, so they
//! are not cached.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Endpoint, EndpointSecret};
use posthaste_api::route::Verb;
use serde_json::json;

use super::subpage::{path, subpage};
use crate::components::{Field, FieldErrors, action_button, copyable, csrf_field, time};
use crate::form::Form;
use crate::page::ActionResult;
use crate::page_request::PageRequest;

/// Renders the forms that show and rotate the secret.
pub(super) fn section(request: &PageRequest) -> Markup {
    let link = |verb: &str| request.tenant_link(&format!("{}/{verb}", path(request)));
    let none = FieldErrors::default();
    let overlap = Field::new(
        "overlap",
        "Keep the old secret valid for",
        "Time for receivers to switch, for example 24h or 7d. 0s invalidates the old secret immediately.",
        "24h",
        &none,
    );
    html! {
        div.card {
            h2 { "Signing secret" }
            p { "Receivers use it to verify that deliveries come from this server." }
            (action_button(request, &link("secret"), "", "Show secret"))
            form.narrow.spaced method="post" action=(link("rotate")) data-ask="Replace the secret with a new one?" {
                (csrf_field(request))
                (overlap.line("text"))
                div.actions { button type="submit" { "Rotate secret" } }
            }
        }
    }
}

pub(super) async fn show(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let secret: EndpointSecret = request
        .tenant_get(&format!("{}/secret", path(&request)))
        .await?;
    secret_page(&request, "Signing secret", &secret).await
}

pub(super) async fn rotate(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let document = match form.filled("overlap") {
        None => json!({}),
        Some(overlap) => json!({"overlap": overlap}),
    };
    let target = format!("{}/secret/rotate", path(&request));
    let secret: EndpointSecret = request
        .tenant_call(Verb::Post, &target, Some(document))
        .await?;
    secret_page(&request, "New signing secret", &secret).await
}

async fn secret_page(
    request: &PageRequest,
    title: &str,
    secret: &EndpointSecret,
) -> Result<ActionResult, Problem> {
    let endpoint: Endpoint = request.tenant_get(&path(request)).await?;
    let body = html! {
        div.card {
            (secret_text(&secret.secret, secret.public_key.as_deref()))
            @if !secret.previous.is_empty() {
                h2 { "Old secrets that are still valid" }
                ul { @for earlier in &secret.previous {
                    li { (copyable(&earlier.secret, "old secret")) " until " (time(&earlier.valid_until)) }
                } }
            }
            div.actions { a.button href=(request.tenant_link(&path(request))) { "Done" } }
        }
    };
    Ok(ActionResult::Page(
        subpage(request, title, &endpoint.url).static_section("shown", body),
    ))
}

/// Renders a secret for the person who configures the receiver.
pub(super) fn secret_text(secret: &str, public_key: Option<&str>) -> Markup {
    html! {
        p { "Give it to the receiver only. The endpoint's page can show it again." }
        p { (copyable(secret, "secret")) }
        @if let Some(key) = public_key {
            p { "Receivers verify with the public key:" }
            p { (copyable(key, "public key")) }
        }
    }
}
