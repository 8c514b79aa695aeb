//! One event: its payload and its deliveries.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{DeliverySummary, Event, ListPage};
use posthaste_charts::format::count;

use crate::components::{copyable, empty_list, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::pages::deliveries::table::{TableStyle, table};
use crate::pages::delivery::payload;
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::urls::query_string;

/// Maximum number of deliveries shown here. The list of deliveries has all of them.
const MAX_SHOWN: usize = 50;

pub(super) async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let id = request.path_param("event");
    // An event never changes, so live updates do not read it again.
    let event: Option<Event> = match request.cached_value.get() {
        Some(_) => None,
        None => Some(request.tenant_get(&format!("/events/{id}")).await?),
    };
    let event_type = request.cached_value.get_or_init(|| {
        let event_type = event.as_ref().map(|event| event.r#type.clone());
        event_type.unwrap_or_default()
    });
    let path = format!("/deliveries?event={id}&limit={MAX_SHOWN}");
    let deliveries: ListPage<DeliverySummary> = request.tenant_get(&path).await?;
    let mut lookup = EndpointLookup::empty();
    lookup.look_up_all(&request, &deliveries.data).await?;
    let page = match request.is_portal() {
        true => Page::new(Tab::Deliveries, format!("Event {event_type}"))
            .breadcrumb("Deliveries", request.tenant_link("/deliveries")),
        false => Page::new(Tab::Events, format!("Event {event_type}"))
            .breadcrumb("Events", request.tenant_link("/events")),
    };
    let mut page = page;
    if let Some(event) = &event {
        page = page.static_section("facts", facts(&request, event));
    }
    page = page.live(
        "deliveries",
        deliveries_section(&request, &deliveries, &lookup),
    );
    if let Some(event) = &event {
        page = page.static_section("payload", payload::section(event));
    }
    Ok(page.into())
}

fn facts(request: &PageRequest, event: &Event) -> Markup {
    let again = query_string([("type", event.r#type.as_str()), ("copy", &event.id)]);
    html! {
        div.card {
            h2 { "Details" }
            dl.facts {
                dt { "Event" } dd { (copyable(&event.id, "event id")) }
                dt { "Type" } dd { (event.r#type) }
                dt { "Accepted" } dd { (time(&event.created_at)) }
                @if let Some(at) = &event.deliver_at { dt { "Scheduled for" } dd { (time(at)) } }
                @if let Some(key) = &event.idempotency_key { dt { "Idempotency key" } dd { code { (key) } } }
                dt { "Deliveries" } dd { (count(event.delivery_count)) }
            }
            @if !request.is_portal() {
                div.actions { a.button href=(request.tenant_link(&format!("/events/new{again}"))) { "Send again as a new event…" } }
            }
        }
    }
}

fn deliveries_section(
    request: &PageRequest,
    deliveries: &ListPage<DeliverySummary>,
    lookup: &EndpointLookup,
) -> Markup {
    let all = request.tenant_link(&format!("/deliveries?id={}", request.path_param("event")));
    html! {
        h2 { "Deliveries" }
        @if deliveries.data.is_empty() {
            (empty_list("No deliveries. No endpoint was subscribed to this event type when the event was accepted."))
        } @else {
            (table(request, "Deliveries, newest first", &deliveries.data, lookup, TableStyle::ReadOnly))
        }
        @if deliveries.next_cursor.is_some() { p { a href=(all) { "View all deliveries" } } }
    }
}
