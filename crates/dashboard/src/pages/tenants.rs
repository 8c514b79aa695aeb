//! The list of tenants, and a form for a new one.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionHandler, At, PageHandler, Reach, at};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{Field, Listed, Wrong, empty, pager, time};
use crate::visit::{PageRequest, query_of};

/// Number of tenants on a page.
const PER_PAGE: u8 = 50;

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Everything, "/tenants", |visit| {
    Box::pin(show(visit))
})];

pub(super) const ACTIONS: &[At<ActionHandler>] =
    &[at(Reach::Everything, "/tenants", |visit, sent| {
        Box::pin(create(visit, sent))
    })];

#[derive(Deserialize)]
struct Tenant {
    id: String,
    name: String,
    created_at: String,
}

async fn show(visit: PageRequest) -> Result<PageResult, Problem> {
    Ok(page(&visit, "", "", &Wrong::default()).await?.into())
}

async fn page(visit: &PageRequest, id: &str, name: &str, wrong: &Wrong) -> Result<Page, Problem> {
    let cursor = visit.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_of([("limit", limit.as_str()), ("cursor", cursor)]);
    let listed: Listed<Tenant> = visit.read(&format!("/v1/tenants{query}")).await?;
    let newest = (!cursor.is_empty()).then(|| visit.link("/tenants"));
    let older = listed.next_cursor.map(|cursor| {
        let query = query_of([("cursor", cursor.as_str())]);
        visit.link(&format!("/tenants{query}"))
    });
    let list = match listed.data.is_empty() {
        true => empty("There are no tenants yet. Create the first below."),
        false => table(visit, &listed.data),
    };
    let pager = pager(newest.as_deref(), older.as_deref());
    Ok(Page::new(Tab::Tenants, "Tenants")
        .lead(html! { "Your customers, each with endpoints of its own. Each sees only what is its own." })
        .live("list", html! { (list) (pager) })
        .static_section("new", form(visit, id, name, wrong)))
}

fn table(visit: &PageRequest, tenants: &[Tenant]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "Tenants, newest first" }
            thead { tr { th scope="col" { "Tenant" } th scope="col" { "Name" } th scope="col" { "Created" } th scope="col" { "Look at" } } }
            tbody { @for tenant in tenants { tr {
                th scope="row" { a href=(visit.at(&tenant.id, "")) { (tenant.id) } }
                td data-label="Name" { (tenant.name) }
                td data-label="Created" { (time(&tenant.created_at)) }
                td data-label="Look at" {
                    a href=(visit.at(&tenant.id, "/endpoints")) { "endpoints" span.unseen { " of " (tenant.id) } } ", "
                    a href=(visit.at(&tenant.id, "/deliveries")) { "deliveries" span.unseen { " of " (tenant.id) } } ", "
                    a href=(visit.at(&tenant.id, "/dead-letters")) { "dead letters" span.unseen { " of " (tenant.id) } }
                }
            } } }
        }
    }
}

fn form(visit: &PageRequest, id: &str, name: &str, wrong: &Wrong) -> Markup {
    let id = Field {
        name: "id",
        label: "Id",
        hint: "It stands in paths and cannot be changed; empty means one is made.",
        value: id,
        wrong,
    };
    let name = Field {
        name: "name",
        label: "Name",
        hint: "",
        value: name,
        wrong,
    };
    html! {
        div.card {
            h2 { "Create a tenant" }
            (wrong.summary())
            form.narrow method="post" action=(visit.link("/tenants")) {
                (csrf(visit))
                (id.line("text"))
                (name.line("text"))
                div.actions { button.primary type="submit" { "Create the tenant" } }
            }
        }
    }
}

async fn create(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let (id, name) = (sent.text("id"), sent.text("name"));
    let mut document = json!({});
    for (field, text) in [("id", id), ("name", name)] {
        if !text.is_empty() {
            document[field] = Value::from(text);
        }
    }
    let made: Result<Tenant, Problem> = visit.ask(Verb::Post, "/v1/tenants", Some(document)).await;
    match made {
        Ok(tenant) => Ok(ActionResult::Redirect(
            visit.at(&tenant.id, ""),
            Done::TenantCreated,
        )),
        Err(problem) => {
            let wrong = Wrong::new(&problem, |field| {
                ["id", "name"].into_iter().find(|name| *name == field)
            });
            let page = page(&visit, id, name, &wrong).await?;
            Ok(ActionResult::Page(page.with_status(problem.status)))
        }
    }
}
