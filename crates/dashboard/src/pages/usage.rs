//! Limits of a tenant and their current usage.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{LimitUsage, Usage};
use posthaste_charts::format;
use serde_json::Value;

use crate::components::{BadgeKind, badge, time};
use crate::page_request::PageRequest;

/// The limits that are shown, in this order, with their labels.
const LIMITS: [(&str, &str); 10] = [
    ("events_per_month", "Events this month"),
    ("events_per_second", "Events per second"),
    (
        "deliveries_per_second",
        "Deliveries per second, on each node",
    ),
    ("endpoints", "Endpoints"),
    ("payload_bytes", "Payload size in bytes"),
    ("max_attempts", "Attempts per retry policy"),
    ("in_flight", "Concurrent attempts"),
    ("retention", "Delivery retention"),
    ("payload_retention", "Payload retention"),
    ("attempt_retention", "Attempt-history retention"),
];

/// Renders the limits and their usage.
pub(super) async fn summary(request: &PageRequest) -> Result<Markup, Problem> {
    let usage: Usage = request.tenant_get("/usage").await?;
    Ok(html! {
        div.titled { h2 { "Usage" } a href=(request.tenant_link("/settings")) { "Settings" } }
        @if let Some(plan) = &usage.plan {
            p {
                "Plan " strong { (plan) } ". "
                @if !usage.plan_found {
                    (badge(BadgeKind::Warning, "unknown plan")) " The plan is not in the configuration, so the server's limits apply."
                }
            }
        }
        table.stack {
            caption.unseen { "Limits and usage" }
            thead { tr { th scope="col" { "Limit" } th scope="col" { "Used" } th scope="col" { "Allowed" } th scope="col" { "Set by" } } }
            tbody { @for (name, label) in LIMITS { @if let Some(limit) = usage.limits.get(name) { tr {
                th scope="row" { (label) }
                td data-label="Used" { (used(limit)) }
                td data-label="Allowed" {
                    (allowed_text(&limit.limit))
                    @if let (false, Some(at)) = (limit.limit.is_null(), &limit.resets_at) { ", resets " (time(at)) }
                }
                td data-label="Set by" { (source(limit)) }
            } } } }
        }
    })
}

fn used(limit: &LimitUsage) -> Markup {
    let Some(used) = limit.used else {
        return html! { "–" };
    };
    let is_used_up = limit.limit.as_u64().is_some_and(|max| used >= max);
    html! {
        (format::count(used))
        @if is_used_up { " " (badge(BadgeKind::Warning, "limit reached")) }
    }
}

/// Returns a limit in words.
pub(super) fn allowed_text(limit: &Value) -> String {
    match (limit.as_u64(), limit.as_str()) {
        (Some(count), _) => format::count(count),
        (None, Some(span)) => span.to_owned(),
        (None, None) => "no limit".to_owned(),
    }
}

fn source(limit: &LimitUsage) -> &'static str {
    match limit.source.as_str() {
        "tenant" => "tenant",
        "plan" => "plan",
        _ if limit.limit.is_null() => "–",
        _ => "server",
    }
}
