//! The page of a tenant's API keys and portal links: lists them, creates one, revokes one.
//!
//! A key is shown once, in the response to the form that creates it. The portal has no such page: a portal link gives no
//! access to keys and other links.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ApiKey, CreatedApiKey, ListPage};
use posthaste_api::route::Verb;
use serde_json::{Value, json};

use super::portal_links;
use crate::components::{
    Confirmation, Field, FieldErrors, action_button, copyable, csrf_field, empty_list,
    is_confirmed, pager, time,
};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::{PageRequest, page_not_found};
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::query_string;

/// Number of keys on a page.
const PER_PAGE: &str = "50";

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Tenant, "/keys", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/keys", create),
    action_route!(Tenant, "/keys/{key}/revoke", revoke),
];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    Ok(page(&request, "", &FieldErrors::default()).await?.into())
}

async fn page(request: &PageRequest, name: &str, errors: &FieldErrors) -> Result<Page, Problem> {
    let cursor = request.query("cursor");
    let query = query_string([("limit", PER_PAGE), ("cursor", cursor)]);
    let keys: ListPage<ApiKey> = request.tenant_get(&format!("/keys{query}")).await?;
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.tenant_link(&format!("/keys{query}"))
    };
    let list = match keys.data.is_empty() {
        true => empty_list("No keys yet. Create one for the application that sends events."),
        false => table(request, &keys.data),
    };
    let pager = pager(cursor, keys.next_cursor.as_deref(), link);
    let page = Page::new(Tab::Keys, "Keys")
        .lead(html! { "A key gives access to this tenant only." })
        .with_status(errors.status())
        .live("keys", html! { (list) (pager) })
        .static_section("new", form(request, name, errors));
    portal_links::add_sections(request, page).await
}

fn table(request: &PageRequest, keys: &[ApiKey]) -> Markup {
    html! {
        table.stack data-list="calm" {
            caption { "API keys, newest first" }
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "Id" } th scope="col" { "Created" } th scope="col" { "Action" }
            } }
            tbody { @for key in keys { tr data-key=(key.id) {
                th scope="row" { @if key.name.is_empty() { "unnamed" } @else { (key.name) } }
                td data-label="Id" { code { (key.id) } }
                td data-label="Created" { (time(&key.created_at)) }
                td data-label="Action" {
                    // Leads to a page that asks for confirmation.
                    (action_button(request, &request.tenant_link(&format!("/keys/{}/revoke", key.id)), "danger", "Revoke…"))
                }
            } } }
        }
    }
}

fn form(request: &PageRequest, name: &str, errors: &FieldErrors) -> Markup {
    let hint = "For example the name of the application that uses it.";
    let name = Field::new("name", "Name", hint, name, errors);
    html! {
        div.card {
            h2 { "Create a key" }
            (errors.summary())
            form.narrow method="post" action=(request.tenant_link("/keys")) {
                (csrf_field(request))
                (name.line("text"))
                div.actions { button.primary type="submit" { "Create key" } }
            }
        }
    }
}

async fn create(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let name = sent.text("name");
    let document = json!({"name": name});
    let created: Result<CreatedApiKey, Problem> = request
        .tenant_call(Verb::Post, "/keys", Some(document))
        .await;
    let created = match created {
        Ok(created) => created,
        Err(problem) if problem.errors.is_some() => {
            let errors = FieldErrors::of_fields(&problem, &["name"]);
            return Ok(ActionResult::Page(page(&request, name, &errors).await?));
        }
        Err(problem) => return Err(problem),
    };
    let body = html! {
        div.card {
            p { "Copy the key now: it is not shown again. Applications send it as " code { "Authorization: Bearer" } "." }
            p { (copyable(&created.key, "key")) }
            div.actions { a.button.primary href=(request.tenant_link("/keys")) { "Done" } }
        }
    };
    let page = Page::new(Tab::Keys, "Key created")
        .breadcrumb("Keys", request.tenant_link("/keys"))
        .static_section("shown", body);
    Ok(ActionResult::Page(page))
}

async fn revoke(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let path = format!("/keys/{}", request.path_param("key"));
    if is_confirmed(&form) {
        let _: Value = request.tenant_call(Verb::Delete, &path, None).await?;
        return request.redirect("/keys", FlashMessage::KeyRevoked);
    }
    let link = request.tenant_link("/keys");
    let body = Confirmation {
        subject: html! { code { (request.path_param("key")) } },
        meaning: html! { p { "Requests with this key are rejected immediately, and dashboard sessions that were opened with it end. This cannot be undone." } },
        fields: &[],
        answer: "Revoke key",
        class: "danger",
        action: &request.tenant_link(&format!("{path}/revoke")),
        cancel: &link,
    };
    let page = Page::new(Tab::Keys, "Revoke the key?")
        .breadcrumb("Keys", link.clone())
        .static_section("sure", body.render(&request));
    Ok(ActionResult::Page(page))
}
