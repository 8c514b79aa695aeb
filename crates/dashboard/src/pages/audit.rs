//! The audit log: actor, action, origin and outcome.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use serde::Deserialize;

use super::time_input::in_utc;
use crate::components::{
    BadgeKind, Field, FieldErrors, Listed, badge, empty_list, humanize, pager, time,
};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, RouteScope, route};
use crate::urls::query_string;

/// Number of entries on a page.
const PER_PAGE: u8 = 50;

pub(super) const PAGES: &[Route<PageHandler>] = &[route(RouteScope::Server, "/audit", |request| {
    Box::pin(show(request))
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
    fn link(&self, request: &PageRequest, cursor: &str) -> String {
        let query = query_string([
            ("tenant", self.tenant),
            ("since", self.since),
            ("until", self.until),
            ("cursor", cursor),
        ]);
        request.link(&format!("/audit{query}"))
    }
}

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let filter = Filter {
        tenant: request.query("tenant"),
        since: request.query("since"),
        until: request.query("until"),
    };
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let (since, until) = (in_utc(filter.since), in_utc(filter.until));
    let query = query_string([
        ("tenant", filter.tenant),
        ("since", since.as_str()),
        ("until", until.as_str()),
        ("limit", limit.as_str()),
        ("cursor", cursor),
    ]);
    let result: Result<Listed<Entry>, Problem> = request.get(&format!("/v1/audit{query}")).await;
    let page = Page::new(Tab::Audit, "Audit")
        .lead(html! { "Who did what, from where, and what came of it." });
    let listed = match result {
        Ok(listed) => listed,
        Err(problem) if problem.errors.is_some() => {
            let errors = FieldErrors::of_fields(&problem, &["tenant", "since", "until"]);
            let page = page.static_section("filter", filter_form(&request, &filter, &errors));
            return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
        }
        Err(problem) => return Err(problem),
    };
    let newest = (!cursor.is_empty()).then(|| filter.link(&request, ""));
    let older = listed
        .next_cursor
        .map(|cursor| filter.link(&request, &cursor));
    let list = match listed.data.is_empty() {
        true => empty_list("Nothing was done that fits."),
        false => table(&request, &listed.data),
    };
    let pager = pager(newest.as_deref(), older.as_deref());
    Ok(page
        .static_section(
            "filter",
            filter_form(&request, &filter, &FieldErrors::default()),
        )
        .live("list", html! { (list) (pager) })
        .into())
}

fn filter_form(request: &PageRequest, filter: &Filter<'_>, errors: &FieldErrors) -> Markup {
    let field = |name, label, value| Field::new(name, label, "", value, errors);
    html! {
        (errors.summary())
        form.filters action=(request.link("/audit")) {
            (field("tenant", "Tenant", filter.tenant).line("text"))
            (field("since", "Since (UTC)", filter.since).line("datetime-local"))
            (field("until", "Until (UTC)", filter.until).line("datetime-local"))
            div.do {
                button type="submit" { "Show" }
                a href=(request.link("/audit")) { "All" }
            }
        }
    }
}

fn table(request: &PageRequest, entries: &[Entry]) -> Markup {
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
                    (entry.actor) span.hint { ", " (via_text(&entry.via)) }
                    @if let Some(from) = &entry.from { span.hint { " from " (from) } }
                }
                td data-label="What" { (humanize(&entry.action.replace('.', " "))) div.hint { code { (entry.resource) } } }
                td data-label="Tenant" {
                    @match &entry.tenant_id {
                        Some(tenant) => { a href=(request.link_for_tenant(tenant, "")) { (tenant) } }
                        None => { "–" }
                    }
                }
                td data-label="Outcome" { (outcome_badge(entry)) }
            } } }
        }
    }
}

fn via_text(via: &str) -> String {
    match via {
        "api" => "by the API".to_owned(),
        "page" => "on these pages".to_owned(),
        "portal" => "in the portal".to_owned(),
        "cli" => "on the command line".to_owned(),
        "posthaste" => "by itself".to_owned(),
        other => humanize(other),
    }
}

fn outcome_badge(entry: &Entry) -> Markup {
    match entry.outcome.as_deref() {
        Some("done") => badge(BadgeKind::Good, "done"),
        Some(_) => {
            let reason = entry.code.as_deref().map(humanize).unwrap_or_default();
            html! { (badge(BadgeKind::Warning, "refused")) " " (reason) }
        }
        None => {
            html! { (badge(BadgeKind::Quiet, "not known")) span.hint { " under way, or cut short" } }
        }
    }
}
