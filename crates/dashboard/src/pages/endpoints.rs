//! All endpoints of a tenant, each with its status and health.

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Endpoint, EndpointHealth, ListPage};

use super::endpoint::description::{
    backlog_text, badges, next_attempt, subscription_text, success_text,
};
use crate::components::{empty_list, pager, url_text};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

/// Number of endpoints on a page. Kept small, because the health of each one is a separate API call.
const PER_PAGE: u8 = 25;

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Tenant, "/endpoints", show)];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_string([("limit", limit.as_str()), ("cursor", cursor)]);
    let listed: ListPage<Endpoint> = request.tenant_get(&format!("/endpoints{query}")).await?;
    let next_cursor = listed.next_cursor;
    let mut rows = Vec::with_capacity(listed.data.len());
    for endpoint in listed.data {
        let path = format!("/endpoints/{}/health", endpoint.id);
        match request.tenant_get::<EndpointHealth>(&path).await {
            Ok(health) => rows.push((endpoint, health)),
            // The endpoint was deleted in the meantime.
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.tenant_link(&format!("/endpoints{query}"))
    };
    let new = request.tenant_link("/endpoints/new");
    let page = Page::new(Tab::Endpoints, "Endpoints")
        .lead(html! { "URLs that receive this tenant's events." })
        .static_section(
            "new",
            html! { p { a.button.primary href=(new) { "Add endpoint" } } },
        );
    let list = match rows.is_empty() {
        true => empty_list("No endpoints yet. Add one to receive events."),
        false => table(&request, &rows),
    };
    let pager = pager(cursor, next_cursor.as_deref(), link);
    Ok(page.live("list", html! { (list) (pager) }).into())
}

fn table(request: &PageRequest, rows: &[(Endpoint, EndpointHealth)]) -> Markup {
    html! {
        table.stack data-list="calm" {
            caption.unseen { "Endpoints, newest first" }
            thead { tr {
                th scope="col" { "Endpoint" } th scope="col" { "Status" } th scope="col" { "Event types" }
                th scope="col" { "Recent success" } th scope="col" { "Backlog" } th scope="col" { "Next attempt" }
            } }
            tbody { @for (endpoint, health) in rows { (row(request, endpoint, health)) } }
        }
    }
}

fn row(request: &PageRequest, endpoint: &Endpoint, health: &EndpointHealth) -> Markup {
    let link = request.tenant_link(&format!("/endpoints/{}", endpoint.id));
    html! {
        tr data-key=(endpoint.id) {
            th scope="row" {
                a href=(link) { (url_text(&endpoint.url)) }
                @if !endpoint.description.is_empty() { div.hint { (endpoint.description) } }
            }
            td data-label="Status" { (badges(endpoint, health)) }
            td data-label="Event types" { (subscription_text(endpoint)) }
            td data-label="Recent success" { (success_text(health)) }
            td data-label="Backlog" { (backlog_text(health)) }
            td data-label="Next attempt" { (next_attempt(endpoint, health)) }
        }
    }
}
