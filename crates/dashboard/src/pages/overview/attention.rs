//! The rows at the top of the overview: problems of the server, and one row for each endpoint that needs attention,
//! the most severe first. Each row has one action.

use maud::{Markup, html};
use posthaste_api::resources::{Alert, AttentionItem, AttentionReason};
use posthaste_charts::format;

use crate::components::{BadgeKind, badge, csrf_field, time, url_text};
use crate::page_request::PageRequest;
use crate::pages::alerts::runbook_link;

/// Number of endpoints that are shown at once. The others are behind a summary, so that the page below stays in sight.
const MAX_SHOWN: usize = 6;

/// The severity of a row, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Nothing is delivered: the endpoint is disabled, or its breaker has tripped.
    Down,
    /// Deliveries wait because a person paused the endpoint.
    Held,
    /// Many attempts fail.
    Failing,
    /// A limit holds deliveries back.
    Limited,
    /// Paused by a person, and nothing waits.
    Paused,
}

impl Severity {
    fn of(item: &AttentionItem) -> Severity {
        match item.reason {
            AttentionReason::Disabled | AttentionReason::BreakerTripped => Severity::Down,
            AttentionReason::Paused if item.pending > 0 => Severity::Held,
            AttentionReason::Failing => Severity::Failing,
            AttentionReason::Limited => Severity::Limited,
            AttentionReason::Paused => Severity::Paused,
        }
    }

    fn badge(self) -> Markup {
        match self {
            Severity::Down => badge(BadgeKind::Bad, "down"),
            Severity::Held => badge(BadgeKind::Warning, "held"),
            Severity::Failing => badge(BadgeKind::Warning, "failing"),
            Severity::Limited => badge(BadgeKind::Warning, "limited"),
            Severity::Paused => badge(BadgeKind::Quiet, "paused"),
        }
    }
}

/// Renders the section. `server_alerts` are alerts about the server itself; `has_alerts` says whether any alert is
/// active.
pub(super) fn table(
    request: &PageRequest,
    items: &[AttentionItem],
    server_alerts: &[&Alert],
    has_alerts: bool,
) -> Markup {
    let mut sorted: Vec<&AttentionItem> = items.iter().collect();
    // The API lists the most urgent first; the order within a severity stays.
    sorted.sort_by_key(|item| Severity::of(item));
    let (shown, more) = sorted.split_at(sorted.len().min(MAX_SHOWN));
    html! {
        h2 { "Needs attention" }
        @if items.is_empty() && server_alerts.is_empty() {
            p.card {
                (badge(BadgeKind::Good, "all endpoints healthy"))
                " No endpoint is down, held, failing or limited."
                @if has_alerts { " Active alerts are listed below." }
                @if request.tenant.is_none() { " Failed deliveries are listed under the dead letters of each tenant." }
            }
        } @else {
            (rows(request, shown, server_alerts, "Endpoints that need attention, most severe first"))
            @if !more.is_empty() {
                details #more-attention {
                    summary { @if more.len() == 1 { "1 more endpoint" } @else { (more.len()) " more endpoints" } }
                    (rows(request, more, &[], "Further endpoints that need attention"))
                }
            }
        }
    }
}

fn rows(
    request: &PageRequest,
    items: &[&AttentionItem],
    server_alerts: &[&Alert],
    caption: &str,
) -> Markup {
    html! {
        table.stack.attention data-list="calm" {
            caption.unseen { (caption) }
            thead { tr {
                th scope="col" { "Severity" } th scope="col" { "Endpoint" } th scope="col" { "Problem" }
                th.number scope="col" { "Waiting" } th scope="col" { "Action" }
            } }
            tbody {
                @for alert in server_alerts { (server_row(request, alert)) }
                @for item in items { (row(request, item)) }
            }
        }
    }
}

fn server_row(request: &PageRequest, alert: &Alert) -> Markup {
    html! {
        tr data-key=(alert.id) {
            td data-label="Severity" { (badge(BadgeKind::Bad, "server")) }
            th scope="row" { "This server" }
            td.words data-label="Problem" { (alert.message) div.hint { "since " (time(&alert.raised_at)) } }
            td.number data-label="Waiting" { "–" }
            td data-label="Action" { (runbook_link(request, alert)) }
        }
    }
}

fn row(request: &PageRequest, item: &AttentionItem) -> Markup {
    let path = format!("/endpoints/{}", item.endpoint_id);
    html! {
        tr data-key=(item.endpoint_id) {
            td data-label="Severity" { (Severity::of(item).badge()) }
            th scope="row" {
                a href=(request.link_for_tenant(&item.tenant_id, &path)) { (url_text(&item.url)) }
                @if request.tenant.is_none() {
                    div.hint { "of " a href=(request.link_for_tenant(&item.tenant_id, "")) { (item.tenant_id) } }
                }
            }
            td.words data-label="Problem" {
                (sentence(item))
                @match (&item.since, &item.last_failure_at) {
                    (Some(since), _) => { div.hint { "since " (time(since)) } }
                    (None, Some(last)) => { div.hint { "last failure " (time(last)) } }
                    (None, None) => {}
                }
            }
            td.number data-label="Waiting" { (format::count(item.pending)) }
            td data-label="Action" { (action(request, item)) }
        }
    }
}

/// Returns the problem in words.
fn sentence(item: &AttentionItem) -> String {
    match item.reason {
        AttentionReason::BreakerTripped => format!("breaker tripped: {}", item.detail),
        AttentionReason::Disabled
        | AttentionReason::Failing
        | AttentionReason::Limited
        | AttentionReason::Paused => item.detail.clone(),
    }
}

/// Renders the one action of a row.
fn action(request: &PageRequest, item: &AttentionItem) -> Markup {
    let link = |path: &str| {
        let path = format!("/endpoints/{}{path}", item.endpoint_id);
        request.link_for_tenant(&item.tenant_id, &path)
    };
    let form = |verb: &str, label: &str| {
        html! {
            form.act method="post" action=(link(verb)) {
                (csrf_field(request))
                button type="submit" { (label) span.unseen { " " (item.url) } }
            }
        }
    };
    let page = |path: &str, label: &str| {
        html! { a.button href=(link(path)) { (label) span.unseen { " of " (item.url) } } }
    };
    match item.reason {
        AttentionReason::Disabled => form("/enable", "Enable"),
        AttentionReason::BreakerTripped => form("/resume", "Retry now"),
        AttentionReason::Paused => form("/resume", "Resume"),
        AttentionReason::Failing => page("#failures", "View failures"),
        AttentionReason::Limited => page("/edit#limits", "Change limits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoint_that_is_down_comes_before_one_that_is_paused() {
        let item = |reason: &str, pending: u64| -> AttentionItem {
            let item = json!({
                "tenant_id": "acme", "endpoint_id": "ep_1", "url": "https://example.com", "status": "enabled",
                "reason": reason, "since": null, "detail": "", "pending": pending, "success_ratio": 1.0,
                "last_failure_at": null,
            });
            serde_json::from_value(item).expect("an item")
        };
        let mut severities: Vec<Severity> = [
            ("paused", 0),
            ("limited", 5),
            ("failing", 5),
            ("paused", 1),
            ("breaker_tripped", 0),
            ("disabled", 0),
        ]
        .map(|(reason, pending)| Severity::of(&item(reason, pending)))
        .into();
        severities.sort();
        assert_eq!(
            severities,
            [
                Severity::Down,
                Severity::Down,
                Severity::Held,
                Severity::Failing,
                Severity::Limited,
                Severity::Paused
            ]
        );
    }
}
