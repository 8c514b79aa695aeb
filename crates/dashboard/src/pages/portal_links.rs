//! Portal links of a tenant, on the page of its keys: lists active links, creates a link, revokes a link.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{CreatedPortalLink, ListPage, PortalLink};
use posthaste_api::route::Verb;
use serde_json::{Value, json};

use crate::components::{Field, FieldErrors, action_button, copyable, csrf_field, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, Route, action_route};

/// Number of links listed, newest first. Older links are not listed and expire on their own.
const MAX_LISTED: u8 = 20;

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/portal-link", create),
    action_route!(Tenant, "/portal-link/{link}/end", revoke),
];

/// Adds the sections about portal links to a page.
pub(super) async fn add_sections(request: &PageRequest, page: Page) -> Result<Page, Problem> {
    let listed: ListPage<PortalLink> = request
        .tenant_get(&format!("/portal-links?limit={MAX_LISTED}"))
        .await?;
    let page = page.live("links", table(request, &listed.data));
    Ok(page.static_section("share", link_form(request, "1h", &FieldErrors::default())))
}

fn table(request: &PageRequest, links: &[PortalLink]) -> Markup {
    if links.is_empty() {
        return html! {};
    }
    html! {
        table.stack data-list="calm" {
            caption { "Active portal links" }
            thead { tr { th scope="col" { "Link" } th scope="col" { "Created" } th scope="col" { "Expires" } th scope="col" { "Action" } } }
            tbody { @for link in links { tr data-key=(link.id) {
                th scope="row" { code { (link.id) } }
                td data-label="Created" { (time(&link.created_at)) }
                td data-label="Expires" { (time(&link.expires_at)) }
                td data-label="Action" { (action_button(request, &request.tenant_link(&format!("/portal-link/{}/end", link.id)), "", "Revoke")) }
            } } }
        }
    }
}

async fn revoke(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let path = format!("/portal-links/{}", request.path_param("link"));
    let _: Value = request.tenant_call(Verb::Delete, &path, None).await?;
    request.redirect("/keys", FlashMessage::LinkEnded)
}

/// Renders the form that creates a portal link.
fn link_form(request: &PageRequest, lifetime: &str, errors: &FieldErrors) -> Markup {
    let field = Field::new(
        "expires_in",
        "Expires after",
        "1m to 7d, for example 1h.",
        lifetime,
        errors,
    );
    html! {
        div.card {
            h2 { "Create a portal link" }
            p { "A portal link lets the tenant's users view and fix their webhooks without a key until it expires." }
            form.narrow method="post" action=(request.tenant_link("/portal-link")) {
                (csrf_field(request))
                (field.line("text"))
                div.actions { button type="submit" { "Create link" } }
            }
        }
    }
}

async fn create(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let lifetime = form.text("expires_in");
    let document = match lifetime {
        "" => json!({}),
        lifetime => json!({"expires_in": lifetime}),
    };
    let created: Result<CreatedPortalLink, Problem> = request
        .tenant_call(Verb::Post, "/portal-links", Some(document))
        .await;
    let page = Page::new(Tab::Keys, "Portal link").breadcrumb("Keys", request.tenant_link("/keys"));
    Ok(ActionResult::Page(match created {
        Ok(link) => page.static_section(
            "shown",
            html! { div.card {
                p { "Expires " (time(&link.expires_at)) ". Anyone with this link can view and manage the tenant's webhooks, but not its keys or portal links, and cannot send events. Copy it now: it is not shown again. You can revoke it on the Keys page." }
                p { (copyable(&link.url, "link")) }
                div.actions { a.button href=(request.tenant_link("/keys")) { "Done" } }
            } },
        ),
        Err(problem) if problem.errors.is_some() => {
            let errors = FieldErrors::of_fields(&problem, &["expires_in"]);
            let status = problem.status;
            let body = html! { (errors.summary()) (link_form(&request, lifetime, &errors)) };
            page.static_section("share", body).with_status(status)
        }
        Err(problem) => return Err(problem),
    }))
}
