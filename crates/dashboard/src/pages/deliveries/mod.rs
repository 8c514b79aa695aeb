//! The list of a tenant's deliveries, with filters and a replay of selected ones.
//!
//! The filters are in `filters`, the table is in `table`. Selected deliveries are retried one by one; those that cannot
//! be retried are listed with the reason.

mod filters;
pub(super) mod table;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{DeliverySummary, ListPage};
use posthaste_api::route::Verb;
use serde_json::Value;

use self::filters::Filters;
use self::table::{SELECTED_FIELD, TableStyle};
use super::endpoint_lookup::EndpointLookup;
use crate::components::{csrf_field, empty_list, pager};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::url_encoded;

/// Number of deliveries on a page.
const PER_PAGE: usize = 50;

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Tenant, "/deliveries", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] =
    &[action_route!(Tenant, "/deliveries/replay", replay)];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let mut filters = Filters::read(&request);
    let mut lookup = EndpointLookup::newest(&request).await?;
    let deliveries = load(&request, &mut filters).await?;
    lookup.look_up_all(&request, &deliveries.data).await?;
    let page = Page::new(Tab::Deliveries, "Deliveries")
        .static_section("filters", filters.form(&request, &lookup))
        .live("deliveries", list(&request, &filters, &deliveries, &lookup));
    Ok(page.into())
}

/// Loads the deliveries that match the valid filters.
async fn load(
    request: &PageRequest,
    filters: &mut Filters,
) -> Result<ListPage<DeliverySummary>, Problem> {
    let path =
        |filters: &Filters| format!("/deliveries{}", filters.api_query(request.now, PER_PAGE));
    loop {
        match request.tenant_get(&path(filters)).await {
            // Each round drops at least one invalid filter, so the loop ends.
            Err(problem) if filters.add_api_errors(&problem) => {}
            result => return result,
        }
    }
}

fn list(
    request: &PageRequest,
    filters: &Filters,
    deliveries: &ListPage<DeliverySummary>,
    lookup: &EndpointLookup,
) -> Markup {
    let link =
        |cursor: &str| request.tenant_link(&format!("/deliveries{}", filters.page_query(cursor)));
    let next_cursor = deliveries.next_cursor.as_deref();
    let is_selectable = filters.is_failed_only();
    let table = |style| {
        let caption = "Deliveries, newest first";
        table::table(request, caption, &deliveries.data, lookup, style)
    };
    html! {
        @if deliveries.data.is_empty() {
            (empty_list(empty_list_text(filters, next_cursor.is_some())))
        } @else if is_selectable {
            form method="post" action=(request.tenant_link("/deliveries/replay")) {
                (csrf_field(request))
                (table(TableStyle::Selectable))
                div.actions { button.primary type="submit" { "Replay selected" } }
            }
        } @else {
            (table(TableStyle::ReadOnly))
        }
        (pager(filters.cursor(), next_cursor, link))
    }
}

fn empty_list_text(filters: &Filters, has_older: bool) -> &'static str {
    match (filters.is_set(), has_older) {
        (_, true) => {
            "No match among the newest deliveries. There may be older matches on the next pages."
        }
        (true, false) => "No matching deliveries.",
        (false, false) => {
            "No deliveries yet. Each event creates one delivery per subscribed endpoint."
        }
    }
}

/// Retries the selected deliveries. Those that cannot be retried are listed with the reason; the others are retried.
async fn replay(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let back = request.tenant_link("/deliveries?status=failed");
    let selected: Vec<&str> = form.all(SELECTED_FIELD).collect();
    if selected.is_empty() {
        return Ok(ActionResult::Page(none_selected_page(&back)));
    }
    if selected.len() > PER_PAGE {
        let message = format!("may be at most {PER_PAGE}; start a replay with a filter for more");
        return Err(Problem::invalid_field(SELECTED_FIELD, message));
    }
    let mut refused: Vec<(&str, Problem)> = Vec::new();
    for id in &selected {
        let path = format!("/deliveries/{}/retry", url_encoded(id));
        let result: Result<Value, Problem> = request.tenant_call(Verb::Post, &path, None).await;
        if let Err(problem) = result {
            refused.push((id, problem));
        }
    }
    if refused.is_empty() {
        return Ok(ActionResult::Redirect(back, FlashMessage::Retried));
    }
    Ok(ActionResult::Page(some_refused_page(
        &back,
        selected.len(),
        &refused,
    )))
}

fn none_selected_page(back: &str) -> Page {
    let body = html! {
        p { "Select at least one delivery." }
        p { a href=(back) { "Back to failed deliveries" } }
    };
    Page::new(Tab::Deliveries, "No deliveries selected").static_section("chosen", body)
}

fn some_refused_page(back: &str, selected: usize, refused: &[(&str, Problem)]) -> Page {
    let retried = selected - refused.len();
    let body = html! {
        p { (retried) " of " (selected) " deliveries are being retried. These could not be retried:" }
        ul { @for (id, problem) in refused { li { code { (id) } ": " (problem.detail) } } }
        p { a href=(back) { "Back to failed deliveries" } }
    };
    Page::new(Tab::Deliveries, "Some deliveries could not be retried")
        .static_section("chosen", body)
}
