//! All endpoints of a tenant, each with its status and health.

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;

use super::endpoint::{Endpoint, Health};
use super::{At, PageHandler, Reach, at};
use crate::page::{Page, PageResult, Tab};
use crate::parts::{Listed, empty, pager};
use crate::visit::{PageRequest, query_of};

/// Number of endpoints on a page. Kept small, because the health of each one is a separate API call.
const PER_PAGE: u8 = 25;

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Tenant, "/endpoints", |visit| {
    Box::pin(show(visit))
})];

async fn show(visit: PageRequest) -> Result<PageResult, Problem> {
    let cursor = visit.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_of([("limit", limit.as_str()), ("cursor", cursor)]);
    let listed: Listed<Endpoint> = visit.get(&format!("/endpoints{query}")).await?;
    let mut rows = Vec::with_capacity(listed.data.len());
    for endpoint in listed.data {
        let path = format!("/endpoints/{}/health", endpoint.id);
        match visit.get::<Health>(&path).await {
            Ok(health) => rows.push((endpoint, health)),
            // The endpoint was deleted in the meantime.
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    let newest = (!cursor.is_empty()).then(|| visit.here("/endpoints"));
    let older = listed.next_cursor.map(|cursor| {
        let query = query_of([("cursor", cursor.as_str())]);
        visit.here(&format!("/endpoints{query}"))
    });
    let new = visit.here("/endpoints/new");
    let page = Page::new(Tab::Endpoints, "Endpoints")
        .lead(html! { "Where events are delivered to." })
        .static_section(
            "new",
            html! { p { a.button.primary href=(new) { "Add an endpoint" } } },
        );
    let shown = match rows.is_empty() {
        true => {
            empty("There are no endpoints yet. Add one, and events it wants are delivered to it.")
        }
        false => table(&visit, &rows),
    };
    let pager = pager(newest.as_deref(), older.as_deref());
    Ok(page.live("list", html! { (shown) (pager) }).into())
}

fn table(visit: &PageRequest, rows: &[(Endpoint, Health)]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "Endpoints, newest first" }
            thead { tr {
                th scope="col" { "Endpoint" } th scope="col" { "State" } th scope="col" { "Takes" }
                th scope="col" { "Success lately" } th scope="col" { "Backlog" } th scope="col" { "Next attempt" }
            } }
            tbody { @for (endpoint, health) in rows { (row(visit, endpoint, health)) } }
        }
    }
}

fn row(visit: &PageRequest, endpoint: &Endpoint, health: &Health) -> Markup {
    let link = visit.here(&format!("/endpoints/{}", endpoint.id));
    html! {
        tr {
            th scope="row" {
                a href=(link) { (endpoint.url) }
                @if !endpoint.description.is_empty() { div.hint { (endpoint.description) } }
            }
            td data-label="State" { (endpoint.badges(health)) }
            td data-label="Takes" { (endpoint.types()) }
            td data-label="Success lately" { (health.success()) }
            td data-label="Backlog" { (health.backlog()) }
            td data-label="Next attempt" { (health.next(endpoint)) }
        }
    }
}
