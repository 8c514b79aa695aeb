//! A table of deliveries: each with its status and its next step.

use maud::{Markup, html};
use posthaste_api::resources::DeliverySummary;

use crate::components::{delivery_badge, time};
use crate::page_request::PageRequest;
use crate::pages::delivery::status_text;
use crate::pages::endpoint_lookup::{self, EndpointLookup};

/// Form field of the selected deliveries.
pub(super) const SELECTED_FIELD: &str = "delivery";

/// The style of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pages) enum TableStyle {
    /// Without checkboxes.
    ReadOnly,
    /// With checkboxes.
    Selectable,
}

/// Renders the table.
pub(in crate::pages) fn table(
    request: &PageRequest,
    caption: &str,
    deliveries: &[DeliverySummary],
    lookup: &EndpointLookup,
    style: TableStyle,
) -> Markup {
    let is_selectable = style == TableStyle::Selectable;
    html! {
        table.stack.deliveries data-list="hold" {
            caption { (caption) }
            thead {
                tr {
                    @if is_selectable {
                        th scope="col" {
                            label.choice {
                                input type="checkbox" data-all=(SELECTED_FIELD);
                                span.unseen { "Select all" }
                            }
                        }
                    }
                    th scope="col" { "Delivery" }
                    th scope="col" { "Status" }
                    th scope="col" { "Endpoint" }
                    th scope="col" { "Accepted" }
                    th scope="col" { "Attempts" }
                    th scope="col" { "Next step" }
                }
            }
            tbody {
                @for delivery in deliveries { (row(request, delivery, lookup, is_selectable)) }
            }
        }
    }
}

fn row(
    request: &PageRequest,
    delivery: &DeliverySummary,
    lookup: &EndpointLookup,
    is_selectable: bool,
) -> Markup {
    let endpoint = lookup.get(&delivery.endpoint_id);
    let link = request.tenant_link(&format!("/deliveries/{}", delivery.id));
    html! {
        tr data-key=(delivery.id) {
            @if is_selectable {
                td {
                    label.choice {
                        input type="checkbox" name=(SELECTED_FIELD) value=(delivery.id);
                        span.unseen { "Select " (delivery.id) }
                    }
                }
            }
            th scope="row" {
                a href=(link) { (delivery.event_type) }
                " " code.id { (delivery.id) }
            }
            td data-label="Status" { (delivery_badge(delivery.status.name())) }
            td data-label="Endpoint" { (endpoint_lookup::destination(request, delivery, endpoint)) }
            td data-label="Accepted" { (time(&delivery.created_at)) }
            td data-label="Attempts" { (delivery.attempt_count) " of " (delivery.max_attempts) }
            td data-label="Next step" {
                (status_text::next_step(delivery, endpoint, request.now))
                @if let Some(error) = &delivery.last_error {
                    p.soft.error { "Last error: " (error.detail) }
                }
            }
        }
    }
}
