//! Dead letters, grouped by endpoint and cause.
//!
//! Deliveries are grouped because a fix applies to a cause, not to a single delivery. A whole group can be replayed,
//! opened to replay some of it, or shown to the customer by a portal link. Each group shows what failed, why, how
//! often, and how to fix it ([`advice()`]).

mod advice;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use posthaste_charts::words::count;
use posthaste_core::classify::FailureKind;
use serde::Deserialize;
use serde_json::json;

use self::advice::advice;
use super::addresses::{EndpointLookup, EndpointStatus};
use super::delivery::api_types::Delivery;
use super::delivery::words;
use super::replays::api_types::{Progress, Replay};
use super::{ActionHandler, At, PageHandler, Reach, at, replays};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{Listed, Mood, badge, copied, empty, pager, time};
use crate::visit::{PageRequest, query_of};

/// Number of groups on a page.
const PER_PAGE: usize = 25;
/// Number of groups on the overview page.
const SUMMARY_GROUPS: usize = 5;
/// Number of newest replays that are checked for running ones.
const REPLAYS_CHECKED: usize = 10;
/// Lifetimes that can be chosen for a customer's link.
const LINK_LIFETIMES: [(&str, &str); 3] = [("1h", "an hour"), ("24h", "a day"), ("7d", "a week")];
/// Default lifetime of a customer's link.
const DEFAULT_LINK_LIFETIME: &str = "24h";

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Tenant, "/dead-letters", |visit| {
    Box::pin(list(visit))
})];

pub(super) const ACTIONS: &[At<ActionHandler>] = &[
    at(Reach::Tenant, "/dead-letters/replay", |visit, form| {
        Box::pin(replay(visit, form))
    }),
    at(Reach::Tenant, "/dead-letters/link", |visit, form| {
        Box::pin(link(visit, form))
    }),
];

/// The dead letters of one endpoint with one cause.
#[derive(Deserialize)]
struct Group {
    endpoint_id: String,
    endpoint_url: String,
    endpoint_status: EndpointStatus,
    error_kind: Option<FailureKind>,
    count: u64,
    count_is_exact: bool,
    newest_at: String,
    oldest_at: String,
    newest: Delivery,
}

impl Group {
    /// Number of deliveries, in words.
    fn how_many(&self) -> String {
        match self.count_is_exact {
            true => count(self.count),
            false => format!("more than {}", count(self.count)),
        }
    }

    fn kind(&self) -> &'static str {
        self.error_kind.map_or("", FailureKind::name)
    }

    /// Returns whether a replay can select exactly these deliveries and would send them.
    fn can_be_replayed(&self) -> bool {
        match self.endpoint_status {
            EndpointStatus::Enabled | EndpointStatus::Paused => self.error_kind.is_some(),
            EndpointStatus::Disabled | EndpointStatus::Unknown => false,
        }
    }

    /// Element id on its card. The script uses it to restore the focus after an update.
    fn id(&self, what: &str) -> String {
        format!("{what}-{}-{}", self.endpoint_id, self.kind())
    }

    /// The query that lists its deliveries.
    fn deliveries(&self) -> String {
        deliveries(&self.endpoint_id, self.kind())
    }
}

fn deliveries(endpoint: &str, kind: &str) -> String {
    let fields = [
        ("status", "failed"),
        ("endpoint", endpoint),
        ("error_kind", kind),
    ];
    format!("/deliveries{}", query_of(fields))
}

async fn list(visit: PageRequest) -> Result<PageResult, Problem> {
    let (endpoint, cursor) = (visit.query("endpoint"), visit.query("cursor"));
    let limit = PER_PAGE.to_string();
    let asked = query_of([
        ("endpoint", endpoint),
        ("cursor", cursor),
        ("limit", &limit),
    ]);
    let found: Listed<Group> = visit.get(&format!("/dead-letters{asked}")).await?;
    let path = format!("/replays?limit={REPLAYS_CHECKED}");
    let mut running: Listed<Replay> = visit.get(&path).await?;
    running
        .data
        .retain(|replay| replay.status == Progress::Running);
    let mut addresses = EndpointLookup::none();
    replays::look_up(&visit, &mut addresses, &running.data).await?;
    let at = |cursor: &str| {
        let query = query_of([("endpoint", endpoint), ("cursor", cursor)]);
        visit.here(&format!("/dead-letters{query}"))
    };
    let newest = (!cursor.is_empty()).then(|| at(""));
    let older = found.next_cursor.as_deref().map(at);
    let page = Page::new(Tab::DeadLetters, "Dead letters")
        .lead(html! { "What was given up, by endpoint and cause." })
        .live("running", running_now(&visit, &running.data, &addresses))
        .live(
            "groups",
            html! {
                @if !endpoint.is_empty() {
                    p.hint { "Only those of one endpoint. " a href=(visit.here("/dead-letters")) { "Show all" } }
                }
                @if found.data.is_empty() { (empty(nothing(endpoint, cursor, older.is_some()))) }
                @for group in &found.data { (card(&visit, group)) }
                (pager(newest.as_deref(), older.as_deref()))
            },
        );
    Ok(page.into())
}

/// Text for an empty list. It claims no more than was checked.
fn nothing(endpoint: &str, cursor: &str, has_older: bool) -> &'static str {
    match (endpoint, cursor, has_older) {
        (_, _, true) => {
            "Nothing was given up for these endpoints. Older ones may have dead letters."
        }
        ("", "", false) => "Nothing was given up. All is well.",
        ("", _, false) => "Nothing was given up for older endpoints.",
        (_, _, false) => "Nothing was given up for this endpoint.",
    }
}

fn running_now(visit: &PageRequest, running: &[Replay], addresses: &EndpointLookup) -> Markup {
    html! {
        @if !running.is_empty() {
            h2 { "Being replayed" }
            (replays::table(visit, running, addresses))
        }
    }
}

/// Renders the newest groups, for the overview page.
pub(super) async fn summary(visit: &PageRequest) -> Result<Markup, Problem> {
    let path = format!("/dead-letters?limit={SUMMARY_GROUPS}");
    let groups: Listed<Group> = visit.get(&path).await?;
    let all = visit.here("/dead-letters");
    Ok(html! {
        @if !groups.data.is_empty() {
            div.titled { h2 { "Given up" } a href=(all) { "All dead letters" } }
            table.stack {
                caption.unseen { "What was given up, by endpoint and cause" }
                thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Why" } th.number scope="col" { "How many" } th scope="col" { "The newest" } } }
                tbody { @for group in &groups.data { tr {
                    th scope="row" { a href=(visit.here(&format!("/dead-letters?endpoint={}", group.endpoint_id))) { (group.endpoint_url) } }
                    td data-label="Why" { (badge(Mood::Bad, group.error_kind.map_or("it failed", words::kind))) }
                    td.number data-label="How many" { (group.how_many()) }
                    td data-label="The newest" { (time(&group.newest_at)) }
                } } }
            }
        }
    })
}

/// Renders a group: endpoint, cause, count, time, advice and actions.
fn card(visit: &PageRequest, group: &Group) -> Markup {
    let standing = group.endpoint_status;
    let error = group.newest.last_error.as_ref();
    let status = error.and_then(|error| error.status_code);
    let (mender, words) = advice(group.error_kind, status, standing);
    let cause = group.error_kind.map_or("it failed", words::kind);
    let newest = visit.here(&format!("/deliveries/{}", group.newest.id));
    let endpoint = visit.here(&format!("/endpoints/{}", group.endpoint_id));
    html! {
        section.card.group {
            h2 {
                @match standing {
                    EndpointStatus::Unknown => span { (group.endpoint_url) },
                    EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Disabled => {
                        a href=(endpoint) { (group.endpoint_url) }
                    }
                }
                " " (badge(Mood::Bad, cause))
                @match standing {
                    EndpointStatus::Enabled => {}
                    EndpointStatus::Paused => { " " (badge(Mood::Warning, "paused")) }
                    EndpointStatus::Disabled => { " " (badge(Mood::Warning, "disabled")) }
                    EndpointStatus::Unknown => { " " (badge(Mood::Quiet, "deleted")) }
                }
            }
            dl.facts {
                dt { "How often" } dd { strong { (group.how_many()) } }
                dt { "Why" }
                dd {
                    @if let Some(error) = error { (error.detail) "; see " } @else { "See " }
                    a href=(newest) { "the newest, " (group.newest.event_type) }
                }
                dt { "Since" }
                dd {
                    (time(&group.oldest_at)) ", the newest " (time(&group.newest_at))
                }
                dt { "Can it be mended" }
                dd {
                    (mender.in_words()) " " (words)
                    @if standing == EndpointStatus::Paused { " It is paused: what is replayed waits until it is resumed." }
                    @if matches!(standing, EndpointStatus::Disabled | EndpointStatus::Paused) {
                        " " a href=(endpoint) { "To the endpoint" }
                    }
                }
            }
            div.actions {
                @if group.can_be_replayed() {
                    (replay_form(visit, group))
                }
                a.button href=(visit.here(&group.deliveries())) { "Choose some" }
                @if !visit.is_portal() { (link_form(visit, group)) }
            }
        }
    }
}

fn replay_form(visit: &PageRequest, group: &Group) -> Markup {
    let many = group.how_many();
    let question = format!(
        "Replay {many} to {}? They are sent again, paced like any other traffic.",
        group.endpoint_url
    );
    html! {
        form.act method="post" action=(visit.here("/dead-letters/replay")) data-ask=(question) {
            (csrf(visit))
            (named(group))
            button.primary #(group.id("replay")) type="submit" { "Replay all " (many) }
        }
    }
}

/// Hidden fields that identify a group in a form.
fn named(group: &Group) -> Markup {
    html! {
        input type="hidden" name="endpoint" value=(group.endpoint_id);
        input type="hidden" name="error_kind" value=(group.kind());
    }
}

fn link_form(visit: &PageRequest, group: &Group) -> Markup {
    let id = group.id("for");
    html! {
        form.act.link method="post" action=(visit.here("/dead-letters/link")) {
            (csrf(visit))
            (named(group))
            label.unseen for=(id) { "How long the link leads here" }
            select #(id) name="expires_in" {
                @for (value, words) in LINK_LIFETIMES {
                    option value=(value) selected[value == DEFAULT_LINK_LIFETIME] { "for " (words) }
                }
            }
            button #(group.id("link")) type="submit" { "Make a link for the customer" }
        }
    }
}

async fn replay(visit: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let mut asked = json!({"status": "failed", "endpoint": form.text("endpoint")});
    if let Some(kind) = form.filled("error_kind") {
        asked["error_kind"] = json!(kind);
    }
    let replay: Replay = visit.act(Verb::Post, "/replays", Some(asked)).await?;
    let page = visit.here(&format!("/replays/{}", replay.id));
    Ok(ActionResult::Redirect(page, Done::ReplayBegun))
}

#[derive(Deserialize)]
struct PortalLink {
    url: String,
    expires_at: String,
}

/// Creates a portal link that opens on this group. It gives no access to other tenants' data.
async fn link(visit: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let asked = json!({
        "expires_in": form.filled("expires_in").unwrap_or(DEFAULT_LINK_LIFETIME),
        "path": deliveries(form.text("endpoint"), form.text("error_kind")),
    });
    let made: PortalLink = visit.act(Verb::Post, "/portal-links", Some(asked)).await?;
    let body = html! {
        div.card {
            p { "Send this to the customer. It shows these dead letters, and of this tenant's part all the rest." }
            p { (copied(&made.url, "the link")) }
            p.hint {
                "It leads there until " (time(&made.expires_at)) ". Whoever has it can see and do what the tenant can, "
                "and it is not shown again."
            }
            p { a href=(visit.here("/dead-letters")) { "Back to the dead letters" } }
        }
    };
    let page = Page::new(Tab::DeadLetters, "A link for the customer")
        .below("Dead letters", visit.here("/dead-letters"))
        .static_section("link", body);
    Ok(ActionResult::Page(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_well_only_where_everything_was_looked_at() {
        assert!(nothing("", "", false).contains("All is well"));
        for (endpoint, cursor, has_older) in [("", "", true), ("", "x", false), ("ep_1", "", false)]
        {
            let told = nothing(endpoint, cursor, has_older);
            assert!(!told.contains("All is well"), "{told}");
        }
    }

    #[test]
    fn a_group_says_how_many_there_are_and_whether_they_can_be_sent() {
        let group = |exact: bool| -> Group {
            let newest = json!({
                "id": "dlv_1", "event_id": "evt_1", "event_type": "a.b", "endpoint_id": "ep_1",
                "status": "failed", "reason": "exhausted", "attempt_count": 3, "max_attempts": 3,
                "created_at": "2026-11-15T12:00:00.000Z", "next_attempt_at": null,
                "give_up_at": "2026-11-15T13:00:00.000Z", "finished_at": "2026-11-15T12:10:00.000Z",
                "last_error": {"kind": "http", "status_code": 503, "detail": "answered 503"},
            });
            let told = json!({
                "endpoint_id": "ep_1", "endpoint_url": "https://example.com",
                "endpoint_status": "deleted", "error_kind": "http",
                "count": 1000, "count_is_exact": exact, "newest_at": "2026-11-15T12:10:00.000Z",
                "oldest_at": "2026-11-15T12:00:00.000Z", "newest": newest,
            });
            serde_json::from_value(told).expect("a group")
        };
        assert!(!group(true).can_be_replayed(), "its endpoint is deleted");
        assert_eq!(group(true).id("replay"), "replay-ep_1-http");
        assert_eq!(group(true).how_many(), "1,000");
        assert_eq!(group(false).how_many(), "more than 1,000");
        assert_eq!(
            group(true).deliveries(),
            "/deliveries?status=failed&endpoint=ep_1&error_kind=http"
        );
    }
}
