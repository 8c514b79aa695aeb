//! Dead letters, grouped by endpoint and cause.
//!
//! Deliveries are grouped because a fix applies to a cause, not to a single delivery. A whole group can be replayed,
//! opened to replay some of it, or shown to the customer by a portal link. Each group shows what failed, why, how
//! often, and how to fix it ([`advice()`]).

mod advice;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{
    CreatedPortalLink, DeadLetterGroup, EndpointStatus, ListPage, Replay,
};
use posthaste_api::route::Verb;
use posthaste_charts::format::count;
use posthaste_core::classify::FailureKind;
use posthaste_store::ReplayStatus;
use serde_json::json;

use self::advice::advice;
use super::delivery::status_text;
use super::endpoint_lookup::EndpointLookup;
use super::replays;
use crate::components::{
    BadgeKind, badge, copyable, csrf_field, empty_list, pager, time, url_text,
};
use crate::form::Form;
use crate::page::{ActionResult, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::query_string;

/// Number of groups on a page.
const PER_PAGE: usize = 25;
/// Number of groups on the overview page.
const SUMMARY_GROUPS: usize = 5;
/// Number of newest replays that are checked for running ones.
const REPLAYS_CHECKED: usize = 10;
/// Lifetimes that can be chosen for a customer's link.
const LINK_LIFETIMES: [(&str, &str); 3] = [("1h", "1 hour"), ("24h", "1 day"), ("7d", "7 days")];
/// Default lifetime of a customer's link.
const DEFAULT_LINK_LIFETIME: &str = "24h";

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Tenant, "/dead-letters", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] =
    &[action_route!(Tenant, "/dead-letters/link", create_link)];

/// Returns the number of deliveries of a group, as text.
fn count_text(group: &DeadLetterGroup) -> String {
    match group.count_is_exact {
        true => count(group.count),
        false => format!("more than {}", count(group.count)),
    }
}

fn kind_name(group: &DeadLetterGroup) -> &'static str {
    group.error_kind.map_or("", FailureKind::name)
}

/// Returns whether a replay can select exactly these deliveries and would send them.
fn can_be_replayed(group: &DeadLetterGroup) -> bool {
    match group.endpoint_status {
        EndpointStatus::Enabled | EndpointStatus::Paused => group.error_kind.is_some(),
        EndpointStatus::Disabled | EndpointStatus::Deleted => false,
    }
}

/// Returns an element id on the card of a group. The script uses it to restore the focus after an update.
fn element_id(group: &DeadLetterGroup, prefix: &str) -> String {
    format!("{prefix}-{}-{}", group.endpoint_id, kind_name(group))
}

fn deliveries_path(endpoint: &str, kind: &str) -> String {
    let fields = [
        ("status", "failed"),
        ("endpoint", endpoint),
        ("error_kind", kind),
    ];
    format!("/deliveries{}", query_string(fields))
}

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let (endpoint, cursor) = (request.query("endpoint"), request.query("cursor"));
    let limit = PER_PAGE.to_string();
    let query = query_string([
        ("endpoint", endpoint),
        ("cursor", cursor),
        ("limit", &limit),
    ]);
    let groups: ListPage<DeadLetterGroup> =
        request.tenant_get(&format!("/dead-letters{query}")).await?;
    let path = format!("/replays?limit={REPLAYS_CHECKED}");
    let mut running: ListPage<Replay> = request.tenant_get(&path).await?;
    running
        .data
        .retain(|replay| replay.status == ReplayStatus::Running);
    let mut lookup = EndpointLookup::empty();
    replays::look_up_endpoints(&request, &mut lookup, &running.data).await?;
    let link = |cursor: &str| {
        let query = query_string([("endpoint", endpoint), ("cursor", cursor)]);
        request.tenant_link(&format!("/dead-letters{query}"))
    };
    let next_cursor = groups.next_cursor.as_deref();
    let page = Page::new(Tab::DeadLetters, "Dead letters")
        .lead(html! { "Failed deliveries by endpoint and cause." })
        .live("running", running_replays(&request, &running.data, &lookup))
        .live(
            "groups",
            html! {
                @if !endpoint.is_empty() {
                    p.hint { "Filtered by endpoint. " a href=(request.tenant_link("/dead-letters")) { "Show all" } }
                }
                @if groups.data.is_empty() { (empty_list(empty_list_text(endpoint, cursor, next_cursor.is_some()))) }
                div data-list="calm" { @for group in &groups.data { (card(&request, group)) } }
                (pager(cursor, next_cursor, link))
            },
        );
    Ok(page.into())
}

/// Text for an empty list. It claims no more than was checked.
fn empty_list_text(endpoint: &str, cursor: &str, has_older: bool) -> &'static str {
    match (endpoint, cursor, has_older) {
        (_, _, true) => "No dead letters for these endpoints. Older endpoints may have some.",
        ("", "", false) => "No dead letters.",
        ("", _, false) => "No dead letters for older endpoints.",
        (_, _, false) => "No dead letters for this endpoint.",
    }
}

fn running_replays(request: &PageRequest, running: &[Replay], lookup: &EndpointLookup) -> Markup {
    html! {
        @if !running.is_empty() {
            h2 { "Running replays" }
            (replays::table(request, running, lookup))
        }
    }
}

/// Renders the newest groups, for the overview page.
pub(super) async fn summary(request: &PageRequest) -> Result<Markup, Problem> {
    let path = format!("/dead-letters?limit={SUMMARY_GROUPS}");
    let groups: ListPage<DeadLetterGroup> = request.tenant_get(&path).await?;
    let all = request.tenant_link("/dead-letters");
    Ok(html! {
        @if !groups.data.is_empty() {
            div.titled { h2 { "Dead letters" } a href=(all) { "View all" } }
            table.stack {
                caption.unseen { "Failed deliveries by endpoint and cause" }
                thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Cause" } th.number scope="col" { "Count" } th scope="col" { "Newest" } } }
                tbody { @for group in &groups.data { tr {
                    th scope="row" { a href=(request.tenant_link(&format!("/dead-letters?endpoint={}", group.endpoint_id))) { (url_text(&group.endpoint_url)) } }
                    td data-label="Cause" { (badge(BadgeKind::Bad, group.error_kind.map_or("unknown error", status_text::failure_kind))) }
                    td.number data-label="Count" { (count_text(group)) }
                    td data-label="Newest" { (time(&group.newest_at)) }
                } } }
            }
        }
    })
}

/// Renders a group: endpoint, cause, count, time, advice and actions.
fn card(request: &PageRequest, group: &DeadLetterGroup) -> Markup {
    let endpoint_status = group.endpoint_status;
    let error = group.newest.last_error.as_ref();
    let status = error.and_then(|error| error.status_code);
    let (fixable_by, advice) = advice(group.error_kind, status, endpoint_status);
    let cause = group
        .error_kind
        .map_or("unknown error", status_text::failure_kind);
    let newest_link = request.tenant_link(&format!("/deliveries/{}", group.newest.id));
    let endpoint_link = request.tenant_link(&format!("/endpoints/{}", group.endpoint_id));
    html! {
        section.card.group data-key=(element_id(group, "group")) {
            h2 {
                @match endpoint_status {
                    _ if group.newest.request.is_some() => span { (url_text(&group.endpoint_url)) },
                    EndpointStatus::Deleted => span { (url_text(&group.endpoint_url)) },
                    EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Disabled => {
                        a href=(endpoint_link) { (url_text(&group.endpoint_url)) }
                    }
                }
                " " (badge(BadgeKind::Bad, cause))
                @match endpoint_status {
                    EndpointStatus::Enabled => {}
                    EndpointStatus::Paused => { " " (badge(BadgeKind::Warning, "paused")) }
                    EndpointStatus::Disabled => { " " (badge(BadgeKind::Warning, "disabled")) }
                    EndpointStatus::Deleted => { " " (badge(BadgeKind::Quiet, "deleted")) }
                }
            }
            dl.facts {
                dt { "Count" } dd { strong { (count_text(group)) } }
                dt { "Cause" }
                dd {
                    @if let Some(error) = error { (error.detail) "; see " } @else { "See " }
                    a href=(newest_link) { "the latest delivery, " (group.newest.event_type) }
                }
                dt { "Since" }
                dd {
                    (time(&group.oldest_at)) ", latest " (time(&group.newest_at))
                }
                dt { "How to fix" }
                dd {
                    (fixable_by.text()) " " (advice)
                    @if endpoint_status == EndpointStatus::Paused { " The endpoint is paused: replayed deliveries wait until it is resumed." }
                    @if matches!(endpoint_status, EndpointStatus::Disabled | EndpointStatus::Paused) {
                        " " a href=(endpoint_link) { "Open endpoint" }
                    }
                }
            }
            div.actions {
                @if can_be_replayed(group) {
                    (replay_link(request, group))
                }
                a.button href=(request.tenant_link(&deliveries_path(&group.endpoint_id, kind_name(group)))) { "Select deliveries" }
                @if !request.is_portal() { (link_form(request, group)) }
            }
        }
    }
}

/// Renders the link to the question before a replay of the group.
fn replay_link(request: &PageRequest, group: &DeadLetterGroup) -> Markup {
    let path = replays::confirm_path(&[
        ("status", "failed"),
        ("endpoint", &group.endpoint_id),
        ("error_kind", kind_name(group)),
    ]);
    html! {
        a.button.primary #(element_id(group, "replay")) href=(request.tenant_link(&path)) {
            "Replay all " (count_text(group)) "…"
        }
    }
}

/// Hidden fields that identify a group in a form.
fn group_fields(group: &DeadLetterGroup) -> Markup {
    html! {
        input type="hidden" name="endpoint" value=(group.endpoint_id);
        input type="hidden" name="error_kind" value=(kind_name(group));
    }
}

fn link_form(request: &PageRequest, group: &DeadLetterGroup) -> Markup {
    let id = element_id(group, "for");
    html! {
        form.act.link method="post" action=(request.tenant_link("/dead-letters/link")) {
            (csrf_field(request))
            (group_fields(group))
            label.unseen for=(id) { "Link expires after" }
            select #(id) name="expires_in" {
                @for (value, label) in LINK_LIFETIMES {
                    option value=(value) selected[value == DEFAULT_LINK_LIFETIME] { "for " (label) }
                }
            }
            button #(element_id(group, "link")) type="submit" { "Create link for the customer" }
        }
    }
}

/// Creates a portal link that opens on this group. It gives no access to other tenants' data.
async fn create_link(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let document = json!({
        "expires_in": form.filled("expires_in").unwrap_or(DEFAULT_LINK_LIFETIME),
        "path": deliveries_path(form.text("endpoint"), form.text("error_kind")),
    });
    let link: CreatedPortalLink = request
        .tenant_call(Verb::Post, "/portal-links", Some(document))
        .await?;
    let body = html! {
        div.card {
            p { "Send this link to the customer. It opens these dead letters in the tenant's portal." }
            p { (copyable(&link.url, "link")) }
            p.hint {
                "Expires " (time(&link.expires_at)) ". Anyone with this link can view and manage the tenant's webhooks. "
                "Copy it now: it is not shown again."
            }
            p { a href=(request.tenant_link("/dead-letters")) { "Back to dead letters" } }
        }
    };
    let page = Page::new(Tab::DeadLetters, "Link for the customer")
        .breadcrumb("Dead letters", request.tenant_link("/dead-letters"))
        .static_section("link", body);
    Ok(ActionResult::Page(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_list_text_claims_no_more_than_was_checked() {
        assert!(empty_list_text("", "", false) == "No dead letters.");
        for (endpoint, cursor, has_older) in [("", "", true), ("", "x", false), ("ep_1", "", false)]
        {
            let text = empty_list_text(endpoint, cursor, has_older);
            assert!(text != "No dead letters.", "{text}");
        }
    }

    #[test]
    fn group_shows_its_count_and_whether_it_can_be_replayed() {
        let group = |exact: bool| -> DeadLetterGroup {
            let newest = json!({
                "id": "dlv_1", "event_id": "evt_1", "event_type": "a.b", "endpoint_id": "ep_1",
                "status": "failed", "reason": "exhausted", "attempt_count": 3, "max_attempts": 3,
                "created_at": "2026-11-15T12:00:00.000Z", "next_attempt_at": null,
                "give_up_at": "2026-11-15T13:00:00.000Z", "finished_at": "2026-11-15T12:10:00.000Z",
                "last_error": {"kind": "http", "status_code": 503, "detail": "answered 503"},
            });
            let group = json!({
                "endpoint_id": "ep_1", "endpoint_url": "https://example.com",
                "endpoint_status": "deleted", "error_kind": "http",
                "count": 1000, "count_is_exact": exact, "newest_at": "2026-11-15T12:10:00.000Z",
                "oldest_at": "2026-11-15T12:00:00.000Z", "newest": newest,
            });
            serde_json::from_value(group).expect("a valid group")
        };
        assert!(!can_be_replayed(&group(true)), "the endpoint is deleted");
        assert_eq!(element_id(&group(true), "replay"), "replay-ep_1-http");
        assert_eq!(count_text(&group(true)), "1,000");
        assert_eq!(count_text(&group(false)), "more than 1,000");
        assert_eq!(
            deliveries_path("ep_1", kind_name(&group(true))),
            "/deliveries?status=failed&endpoint=ep_1&error_kind=http"
        );
    }
}
