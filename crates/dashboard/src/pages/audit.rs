//! The page of the audit log: actor, action, origin and outcome.
//!
//! Entries are listed newest first, with filters by tenant and time. The page is for admin keys.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{AuditEntry, ListPage};

use super::form_state::FormState;
use super::time_input::api_query;
use crate::components::{BadgeKind, Field, FieldErrors, badge, empty_list, humanize, pager, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};

/// Number of entries on a page.
const PER_PAGE: u8 = 50;

/// Fields of the filter.
const FILTER_FIELDS: [&str; 3] = ["tenant", "since", "until"];

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Server, "/audit", show)];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let filter = FormState::read(&FILTER_FIELDS, |name| request.query(name));
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let page = [("limit", limit.as_str()), ("cursor", cursor)];
    let query = api_query(filter.fields().chain(page), request.now);
    let result: Result<ListPage<AuditEntry>, Problem> =
        request.get(&format!("/v1/audit{query}")).await;
    let page = Page::new(Tab::Audit, "Audit log").lead(
        html! { "Changes made by users, API clients and posthaste itself, with their outcome." },
    );
    let listed = match result {
        Ok(listed) => listed,
        Err(problem) if problem.errors.is_some() => {
            let errors = FieldErrors::of_fields(&problem, &FILTER_FIELDS);
            let page = page.static_section("filter", filter_form(&request, &filter, &errors));
            return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
        }
        Err(problem) => return Err(problem),
    };
    let link = |cursor: &str| request.link(&format!("/audit{}", filter.page_query(cursor)));
    let list = match listed.data.is_empty() {
        true => empty_list("No matching entries."),
        false => table(&request, &listed.data),
    };
    let pager = pager(cursor, listed.next_cursor.as_deref(), link);
    Ok(page
        .static_section(
            "filter",
            filter_form(&request, &filter, &FieldErrors::default()),
        )
        .live("list", html! { (list) (pager) })
        .into())
}

fn filter_form(request: &PageRequest, filter: &FormState, errors: &FieldErrors) -> Markup {
    let field = |name, label| Field::new(name, label, "", filter.value(name), errors);
    html! {
        (errors.summary())
        form.filters action=(request.link("/audit")) {
            (field("tenant", "Tenant").line("text"))
            (field("since", "Since (UTC)").example("2h, or 2026-11-15 14:30"))
            (field("until", "Until (UTC)").example("2h, or 2026-11-15 14:30"))
            div.do {
                button type="submit" { "Apply" }
                a href=(request.link("/audit")) { "Clear" }
            }
        }
    }
}

fn table(request: &PageRequest, entries: &[AuditEntry]) -> Markup {
    html! {
        table.stack data-list="hold" {
            caption.unseen { "Audit log entries, newest first" }
            thead { tr {
                th scope="col" { "Time" } th scope="col" { "Actor" } th scope="col" { "Action" }
                th scope="col" { "Tenant" } th scope="col" { "Outcome" }
            } }
            tbody { @for entry in entries { tr data-key=(entry.id) {
                td data-label="Time" { (time(&entry.at)) }
                td data-label="Actor" {
                    (entry.actor) span.hint { ", " (via_text(&entry.via)) }
                    @if let Some(from) = &entry.from { span.hint { " from " (from) } }
                }
                td data-label="Action" { (humanize(&entry.action.replace('.', " "))) div.hint { code { (entry.resource) } } }
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
        "api" => "API".to_owned(),
        "page" => "dashboard".to_owned(),
        "portal" => "portal".to_owned(),
        "cli" => "CLI".to_owned(),
        "posthaste" => "automatic".to_owned(),
        other => humanize(other),
    }
}

fn outcome_badge(entry: &AuditEntry) -> Markup {
    match entry.outcome.as_deref() {
        Some("done") => badge(BadgeKind::Good, "done"),
        Some(_) => {
            let reason = entry.code.as_deref().map(humanize).unwrap_or_default();
            html! { (badge(BadgeKind::Warning, "refused")) " " (reason) }
        }
        None => {
            html! { (badge(BadgeKind::Quiet, "unknown")) span.hint { " in progress or interrupted" } }
        }
    }
}
