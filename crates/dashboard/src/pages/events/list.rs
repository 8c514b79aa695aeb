//! The list of a tenant's events, with filters.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{EventSummary, ListPage};
use posthaste_charts::format::count;

use crate::components::{empty_list, pager, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::{PageRequest, page_not_found};
use crate::pages::form_state::FormState;
use crate::urls::query_string;

/// Number of events on a page.
const PER_PAGE: &str = "50";
/// Names of the filters, as in the API.
const FIELDS: [&str; 3] = ["type", "since", "until"];
/// Filters that are times.
const TIME_FIELDS: [&str; 2] = ["since", "until"];

pub(super) async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    let mut filters = FormState::read(&FIELDS, |name| request.query(name));
    filters.check_times(&TIME_FIELDS, request.now);
    let cursor = request.query("cursor");
    let page = Page::new(Tab::Events, "Events")
        .lead(html! { "Accepted events. Each one creates one delivery per subscribed endpoint." })
        .static_section(
            "new",
            html! { p { a.button.primary href=(request.tenant_link("/events/new")) { "Send event" } } },
        );
    let result = match filters.has_errors() {
        true => None,
        false => Some(load(&request, &filters, cursor).await),
    };
    let listed = match result {
        Some(Ok(listed)) => Some(listed),
        Some(Err(problem)) if filters.add_api_errors(&problem) => None,
        Some(Err(problem)) => return Err(problem),
        None => None,
    };
    let page = page.static_section("filters", filter_form(&request, &filters));
    let Some(listed) = listed else {
        return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
    };
    let link =
        |cursor: &str| request.tenant_link(&format!("/events{}", filters.page_query(cursor)));
    let list = match listed.data.is_empty() {
        true => empty_list(empty_text(&filters, listed.next_cursor.is_some())),
        false => table(&request, &listed.data),
    };
    let pager = pager(cursor, listed.next_cursor.as_deref(), link);
    Ok(page.live("events", html! { (list) (pager) }).into())
}

async fn load(
    request: &PageRequest,
    filters: &FormState,
    cursor: &str,
) -> Result<ListPage<EventSummary>, Problem> {
    let fields = filters.api_fields(&TIME_FIELDS, request.now);
    let page = [("limit", PER_PAGE), ("cursor", cursor)];
    let fields = fields
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .chain(page);
    let path = format!("/events{}", query_string(fields));
    request.tenant_get(&path).await
}

fn empty_text(filters: &FormState, has_older: bool) -> &'static str {
    let is_filtered = filters.fields().any(|(_, text)| !text.is_empty());
    match (is_filtered, has_older) {
        (_, true) => {
            "No match among the newest events. There may be older matches on the next pages."
        }
        (true, false) => "No matching events.",
        (false, false) => "No events yet.",
    }
}

fn filter_form(request: &PageRequest, filters: &FormState) -> Markup {
    let link = request.tenant_link("/events");
    html! {
        form.filters.card action=(link) role="search" aria-label="Filter events" {
            (filters.field("type", "Event type", filters.text("type", "invoice.paid")))
            (filters.time_field("since", "Since"))
            (filters.time_field("until", "Until"))
            div.do {
                button.primary type="submit" { "Apply" }
                @if filters.fields().any(|(_, text)| !text.is_empty()) { a href=(link) { "Clear" } }
            }
        }
    }
}

fn table(request: &PageRequest, events: &[EventSummary]) -> Markup {
    html! {
        table.stack data-list="hold" {
            caption { "Events, newest first" }
            thead { tr {
                th scope="col" { "Event" } th scope="col" { "Accepted" } th scope="col" { "Scheduled for" }
                th.number scope="col" { "Deliveries" }
            } }
            tbody { @for event in events { tr data-key=(event.id) {
                th scope="row" {
                    a href=(request.tenant_link(&format!("/events/{}", event.id))) { (event.r#type) }
                    " " code.id { (event.id) }
                }
                td data-label="Accepted" { (time(&event.created_at)) }
                td data-label="Scheduled for" { @match &event.deliver_at { Some(at) => (time(at)), None => "–" } }
                td.number data-label="Deliveries" { (count(event.delivery_count)) }
            } } }
        }
    }
}
