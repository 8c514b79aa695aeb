//! A table of deliveries: each with its status and its next step.

use maud::{Markup, html};

use crate::pages::addresses::{self, EndpointLookup};
use crate::pages::delivery::api_types::Delivery;
use crate::pages::delivery::words;
use crate::parts::{delivery_badge, time};
use crate::visit::PageRequest;

/// Form field of the selected deliveries.
pub(super) const SELECTED_FIELD: &str = "delivery";

/// The style of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pages) enum Lines {
    /// Read-only.
    Plain,
    /// With checkboxes.
    WithBoxes,
}

/// Renders the table.
pub(in crate::pages) fn table(
    visit: &PageRequest,
    caption: &str,
    deliveries: &[Delivery],
    addresses: &EndpointLookup,
    lines: Lines,
) -> Markup {
    let has_boxes = lines == Lines::WithBoxes;
    html! {
        table.stack.deliveries {
            caption { (caption) }
            thead {
                tr {
                    @if has_boxes {
                        th scope="col" {
                            label.choice {
                                input type="checkbox" data-all=(SELECTED_FIELD);
                                span.unseen { "Choose all" }
                            }
                        }
                    }
                    th scope="col" { "Delivery" }
                    th scope="col" { "Status" }
                    th scope="col" { "Endpoint" }
                    th scope="col" { "Accepted" }
                    th scope="col" { "Attempts" }
                    th scope="col" { "What happens next" }
                }
            }
            tbody {
                @for delivery in deliveries { (line(visit, delivery, addresses, has_boxes)) }
            }
        }
    }
}

fn line(
    visit: &PageRequest,
    delivery: &Delivery,
    addresses: &EndpointLookup,
    has_box: bool,
) -> Markup {
    let address = addresses.of(&delivery.endpoint_id);
    let page = visit.here(&format!("/deliveries/{}", delivery.id));
    html! {
        tr {
            @if has_box {
                td {
                    label.choice {
                        input type="checkbox" name=(SELECTED_FIELD) value=(delivery.id);
                        span.unseen { "Choose " (delivery.id) }
                    }
                }
            }
            th scope="row" {
                a href=(page) { (delivery.event_type) }
                " " code.id { (delivery.id) }
            }
            td data-label="Status" { (delivery_badge(delivery.status.name())) }
            td data-label="Endpoint" { (addresses::link(visit, &delivery.endpoint_id, address)) }
            td data-label="Accepted" { (time(&delivery.created_at)) }
            td data-label="Attempts" { (delivery.attempt_count) " of " (delivery.max_attempts) }
            td data-label="Next" {
                (words::next(delivery, address, visit.now))
                @if let Some(error) = &delivery.last_error {
                    p.soft.error { "Last error: " (error.detail) }
                }
            }
        }
    }
}
