//! One event: its payload and its deliveries.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_charts::words::count;

use super::addresses::EndpointLookup;
use super::deliveries::endpoints;
use super::deliveries::table::{Lines, table};
use super::delivery::api_types::Delivery;
use super::delivery::payload::{self, Event};
use super::{At, PageHandler, Reach, at};
use crate::page::{Page, PageResult, Tab};
use crate::parts::{Listed, copied, empty, time};
use crate::visit::PageRequest;

/// Maximum number of deliveries shown here. The list of deliveries has all of them.
const MAX_SHOWN: usize = 50;

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Tenant, "/events/{event}", |visit| {
    Box::pin(one(visit))
})];

async fn one(visit: PageRequest) -> Result<PageResult, Problem> {
    let id = visit.name("event");
    // An event never changes, so live updates do not read it again.
    let event: Option<Event> = match visit.known.get() {
        Some(_) => None,
        None => Some(visit.get(&format!("/events/{id}")).await?),
    };
    let kind = visit.known.get_or_init(|| {
        let kind = event.as_ref().map(|event| event.r#type.clone());
        kind.unwrap_or_default()
    });
    let path = format!("/deliveries?event={id}&limit={MAX_SHOWN}");
    let found: Listed<Delivery> = visit.get(&path).await?;
    let mut addresses = EndpointLookup::none();
    addresses.look_up(&visit, &endpoints(&found.data)).await?;
    let mut page = Page::new(Tab::Deliveries, format!("Event {kind}"))
        .below("Deliveries", visit.here("/deliveries"));
    if let Some(event) = &event {
        page = page.static_section("facts", facts(event));
    }
    page = page.live("deliveries", deliveries(&visit, &found, &addresses));
    if let Some(event) = &event {
        page = page.static_section("payload", payload::section(event));
    }
    Ok(page.into())
}

fn facts(event: &Event) -> Markup {
    html! {
        div.card {
            h2 { "Facts" }
            dl.facts {
                dt { "Event" } dd { (copied(&event.id, "the id of the event")) }
                dt { "Type" } dd { (event.r#type) }
                dt { "Accepted" } dd { (time(&event.created_at)) }
                @if let Some(at) = &event.deliver_at { dt { "Scheduled for" } dd { (time(at)) } }
                @if let Some(key) = &event.idempotency_key { dt { "Idempotency key" } dd { code { (key) } } }
                dt { "Deliveries" } dd { (count(event.delivery_count)) }
            }
        }
    }
}

fn deliveries(visit: &PageRequest, found: &Listed<Delivery>, addresses: &EndpointLookup) -> Markup {
    let all = visit.here(&format!("/deliveries?id={}", visit.name("event")));
    html! {
        h2 { "Where it went" }
        @if found.data.is_empty() {
            (empty("Nowhere: no endpoint wanted an event of this type when it was accepted."))
        } @else {
            (table(visit, "Its deliveries, the newest first", &found.data, addresses, Lines::Plain))
        }
        @if found.next_cursor.is_some() { p { a href=(all) { "All its deliveries" } } }
    }
}
