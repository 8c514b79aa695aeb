//! The audit log: actor, action, origin and outcome.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use serde::Deserialize;

use super::{At, PageHandler, Reach, at};
use crate::page::{Page, PageResult, Tab};
use crate::parts::{Field, Listed, Mood, Wrong, badge, empty, in_words, pager, time};
use crate::visit::{PageRequest, query_of};

/// Number of entries on a page.
const PER_PAGE: u8 = 50;

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Everything, "/audit", |visit| {
    Box::pin(show(visit))
})];

#[derive(Deserialize)]
struct Entry {
    at: String,
    actor: String,
    via: String,
    from: Option<String>,
    action: String,
    tenant_id: Option<String>,
    resource: String,
    outcome: Option<String>,
    code: Option<String>,
}

/// Filter of the list.
struct Filter<'a> {
    tenant: &'a str,
    since: &'a str,
    until: &'a str,
}

impl Filter<'_> {
    /// Builds a link to the page with this filter, beginning at a cursor.
    fn link(&self, visit: &PageRequest, cursor: &str) -> String {
        let query = query_of([
            ("tenant", self.tenant),
            ("since", self.since),
            ("until", self.until),
            ("cursor", cursor),
        ]);
        visit.link(&format!("/audit{query}"))
    }
}

async fn show(visit: PageRequest) -> Result<PageResult, Problem> {
    let filter = Filter {
        tenant: visit.query("tenant"),
        since: visit.query("since"),
        until: visit.query("until"),
    };
    let cursor = visit.query("cursor");
    let limit = PER_PAGE.to_string();
    let (since, until) = (super::in_utc(filter.since), super::in_utc(filter.until));
    let query = query_of([
        ("tenant", filter.tenant),
        ("since", since.as_str()),
        ("until", until.as_str()),
        ("limit", limit.as_str()),
        ("cursor", cursor),
    ]);
    let found: Result<Listed<Entry>, Problem> = visit.read(&format!("/v1/audit{query}")).await;
    let page = Page::new(Tab::Audit, "Audit")
        .lead(html! { "Who did what, from where, and what came of it." });
    let listed = match found {
        Ok(listed) => listed,
        Err(problem) if problem.errors.is_some() => {
            let wrong = Wrong::new(&problem, |field| {
                let names = ["tenant", "since", "until"];
                names.into_iter().find(|name| *name == field)
            });
            let page = page.static_section("filter", filters(&visit, &filter, &wrong));
            return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
        }
        Err(problem) => return Err(problem),
    };
    let newest = (!cursor.is_empty()).then(|| filter.link(&visit, ""));
    let older = listed
        .next_cursor
        .map(|cursor| filter.link(&visit, &cursor));
    let list = match listed.data.is_empty() {
        true => empty("Nothing was done that fits."),
        false => table(&visit, &listed.data),
    };
    let pager = pager(newest.as_deref(), older.as_deref());
    Ok(page
        .static_section("filter", filters(&visit, &filter, &Wrong::default()))
        .live("list", html! { (list) (pager) })
        .into())
}

fn filters(visit: &PageRequest, filter: &Filter<'_>, wrong: &Wrong) -> Markup {
    let field = |name, label, value| Field {
        name,
        label,
        hint: "",
        value,
        wrong,
    };
    html! {
        (wrong.summary())
        form.filters action=(visit.link("/audit")) {
            (field("tenant", "Tenant", filter.tenant).line("text"))
            (field("since", "Since (UTC)", filter.since).line("datetime-local"))
            (field("until", "Until (UTC)", filter.until).line("datetime-local"))
            div.do {
                button type="submit" { "Show" }
                a href=(visit.link("/audit")) { "All" }
            }
        }
    }
}

fn table(visit: &PageRequest, entries: &[Entry]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "What was done, newest first" }
            thead { tr {
                th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "What" }
                th scope="col" { "Tenant" } th scope="col" { "Outcome" }
            } }
            tbody { @for entry in entries { tr {
                td data-label="When" { (time(&entry.at)) }
                td data-label="Who" {
                    (entry.actor) span.hint { ", " (way(&entry.via)) }
                    @if let Some(from) = &entry.from { span.hint { " from " (from) } }
                }
                td data-label="What" { (in_words(&entry.action.replace('.', " "))) div.hint { code { (entry.resource) } } }
                td data-label="Tenant" {
                    @match &entry.tenant_id {
                        Some(tenant) => { a href=(visit.at(tenant, "")) { (tenant) } }
                        None => { "–" }
                    }
                }
                td data-label="Outcome" { (outcome(entry)) }
            } } }
        }
    }
}

fn way(via: &str) -> String {
    match via {
        "api" => "by the API".to_owned(),
        "page" => "on these pages".to_owned(),
        "portal" => "in the portal".to_owned(),
        "cli" => "on the command line".to_owned(),
        "posthaste" => "by itself".to_owned(),
        other => in_words(other),
    }
}

fn outcome(entry: &Entry) -> Markup {
    match entry.outcome.as_deref() {
        Some("done") => badge(Mood::Good, "done"),
        Some(_) => {
            let why = entry.code.as_deref().map(in_words).unwrap_or_default();
            html! { (badge(Mood::Warning, "refused")) " " (why) }
        }
        None => {
            html! { (badge(Mood::Quiet, "not known")) span.hint { " under way, or cut short" } }
        }
    }
}
