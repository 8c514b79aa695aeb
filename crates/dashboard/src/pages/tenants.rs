//! The list of tenants, and a form for a new one.
//!
//! The page is for admin keys. A tenant's name links to its overview.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ListPage, Tenant};
use posthaste_api::route::Verb;
use serde_json::{Value, json};

use crate::components::{Field, FieldErrors, csrf_field, empty_list, pager, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::query_string;

/// Number of tenants on a page.
const PER_PAGE: u8 = 50;

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Server, "/tenants", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[action_route!(Server, "/tenants", create)];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    Ok(page(&request, "", "", &FieldErrors::default())
        .await?
        .into())
}

async fn page(
    request: &PageRequest,
    id: &str,
    name: &str,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_string([("limit", limit.as_str()), ("cursor", cursor)]);
    let listed: ListPage<Tenant> = request.get(&format!("/v1/tenants{query}")).await?;
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.link(&format!("/tenants{query}"))
    };
    let list = match listed.data.is_empty() {
        true => empty_list("No tenants yet. Create one below."),
        false => table(request, &listed.data),
    };
    let pager = pager(cursor, listed.next_cursor.as_deref(), link);
    Ok(Page::new(Tab::Tenants, "Tenants")
        .lead(html! { "Your customers. Each tenant has its own endpoints, events and keys." })
        .live("list", html! { (list) (pager) })
        .static_section("new", form(request, id, name, errors)))
}

fn table(request: &PageRequest, tenants: &[Tenant]) -> Markup {
    html! {
        table.stack data-list="calm" {
            caption.unseen { "Tenants, newest first" }
            thead { tr { th scope="col" { "Tenant" } th scope="col" { "Name" } th scope="col" { "Created" } th scope="col" { "View" } } }
            tbody { @for tenant in tenants { tr data-key=(tenant.id) {
                th scope="row" { a href=(request.link_for_tenant(&tenant.id, "")) { (tenant.id) } }
                td data-label="Name" { (tenant.name) }
                td data-label="Created" { (time(&tenant.created_at)) }
                td data-label="View" {
                    a href=(request.link_for_tenant(&tenant.id, "/endpoints")) { "endpoints" span.unseen { " of " (tenant.id) } } ", "
                    a href=(request.link_for_tenant(&tenant.id, "/deliveries")) { "deliveries" span.unseen { " of " (tenant.id) } } ", "
                    a href=(request.link_for_tenant(&tenant.id, "/dead-letters")) { "dead letters" span.unseen { " of " (tenant.id) } }
                }
            } } }
        }
    }
}

fn form(request: &PageRequest, id: &str, name: &str, errors: &FieldErrors) -> Markup {
    let id = Field::new(
        "id",
        "Id",
        "Part of API paths; cannot be changed later. Leave empty to generate one.",
        id,
        errors,
    );
    let name = Field::new("name", "Name", "", name, errors);
    html! {
        div.card {
            h2 { "Create a tenant" }
            (errors.summary())
            form.narrow method="post" action=(request.link("/tenants")) {
                (csrf_field(request))
                (id.line("text"))
                (name.line("text"))
                div.actions { button.primary type="submit" { "Create tenant" } }
            }
        }
    }
}

async fn create(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let (id, name) = (form.text("id"), form.text("name"));
    let mut document = json!({});
    for (field, text) in [("id", id), ("name", name)] {
        if !text.is_empty() {
            document[field] = Value::from(text);
        }
    }
    let created: Result<Tenant, Problem> = request
        .call(Verb::Post, "/v1/tenants", Some(document))
        .await;
    match created {
        Ok(tenant) => Ok(ActionResult::Redirect(
            request.link_for_tenant(&tenant.id, ""),
            FlashMessage::TenantCreated,
        )),
        Err(problem) => {
            let errors = FieldErrors::of_fields(&problem, &["id", "name"]);
            let page = page(&request, id, name, &errors).await?;
            Ok(ActionResult::Page(page.with_status(problem.status)))
        }
    }
}
