//! The page of open and resolved alerts.
//!
//! Other pages show the open ones at their top through [`summary`]. Both are read from the API with a limit; a list
//! that is cut says so.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Alert, AlertScope, ListPage};
use posthaste_core::alert::AlertName;

use super::form_state::FormState;
use super::time_input::in_utc_query;
use crate::components::{BadgeKind, Field, FieldErrors, badge, empty_list, humanize, pager, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

/// Number of resolved alerts on a page.
const PER_PAGE: &str = "50";
/// Maximum number of open alerts that are shown. With more than that, the number of alerts matters more than the
/// list.
const MAX_OPEN: &str = "100";
/// Number of open alerts at the top of other pages.
const SUMMARY_ALERTS: &str = "5";

/// Fields of the filter.
const FILTER_FIELDS: [&str; 4] = ["name", "tenant", "since", "until"];

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "/alerts", show),
    page_route!(Tenant, "/alerts", show),
];

/// Loads the alerts that match the filter.
async fn load(
    request: &PageRequest,
    filter: &FormState,
    state: &str,
    limit: &str,
    cursor: &str,
) -> Result<ListPage<Alert>, Problem> {
    let page = [("state", state), ("limit", limit), ("cursor", cursor)];
    let query = in_utc_query(filter.fields().chain(page));
    request.scope_get(&format!("/alerts{query}")).await
}

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let filter = FormState::read(&FILTER_FIELDS, |name| match (name, &request.tenant) {
        // On a tenant's pages all alerts belong to that tenant.
        ("tenant", Some(_)) => "",
        (name, _) => request.query(name),
    });
    let cursor = request.query("cursor");
    let page = Page::new(Tab::Alerts, "Alerts")
        .lead(html! { "Current problems and past ones. You are notified once when an alert is raised and once when it is resolved." });
    let loaded = match load(&request, &filter, "open", MAX_OPEN, "").await {
        Err(problem) => Err(problem),
        Ok(open) => match load(&request, &filter, "resolved", PER_PAGE, cursor).await {
            Err(problem) => Err(problem),
            Ok(resolved) => Ok((open, resolved)),
        },
    };
    let (open, resolved) = match loaded {
        Ok(lists) => lists,
        Err(problem) if problem.errors.is_some() => {
            let errors = FieldErrors::of_fields(&problem, &FILTER_FIELDS);
            let page = page.static_section("filter", filter_form(&request, &filter, &errors));
            return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
        }
        Err(problem) => return Err(problem),
    };
    let link = |cursor: &str| request.scope_link(&format!("/alerts{}", filter.page_query(cursor)));
    let pager = pager(cursor, resolved.next_cursor.as_deref(), link);
    let resolved_list = match resolved.data.is_empty() {
        true => empty_list("No matching alerts."),
        false => table(&request, &resolved.data, "Resolved alerts, newest first"),
    };
    Ok(page
        .static_section(
            "filter",
            filter_form(&request, &filter, &FieldErrors::default()),
        )
        .live(
            "open",
            html! { h2 { "Active" } (open_alerts(&request, &open)) },
        )
        .live(
            "resolved",
            html! { h2 { "Resolved" } (resolved_list) (pager) },
        )
        .into())
}

fn open_alerts(request: &PageRequest, open: &ListPage<Alert>) -> Markup {
    html! {
        @if open.data.is_empty() {
            p.card { (badge(BadgeKind::Good, "all clear")) " No matching alerts." }
        } @else {
            (table(request, &open.data, "Active alerts, newest first"))
            @if open.next_cursor.is_some() { p.hint { "Older active alerts are not shown. Use the filter to find them." } }
        }
    }
}

/// Renders the open alerts for the top of another page; `None` if there are none.
pub(super) async fn summary(request: &PageRequest) -> Result<Option<Markup>, Problem> {
    let query = query_string([("state", "open"), ("limit", SUMMARY_ALERTS)]);
    let open: ListPage<Alert> = request.scope_get(&format!("/alerts{query}")).await?;
    if open.data.is_empty() {
        return Ok(None);
    }
    let more = open.next_cursor.is_some();
    Ok(Some(html! {
        div.titled { h2 { "Alerts" } a href=(request.scope_link("/alerts")) { "All alerts" } }
        (table(request, &open.data, "Active alerts, newest first"))
        @if more { p.hint { "More alerts are active." } }
    }))
}

fn filter_form(request: &PageRequest, filter: &FormState, errors: &FieldErrors) -> Markup {
    let field = |name, label| Field::new(name, label, "", filter.value(name), errors);
    let names = AlertName::ALL.map(|name| (name.name(), humanize(name.name())));
    let names = names.iter().map(|(name, label)| (*name, label.as_str()));
    let names: Vec<(&str, &str)> = std::iter::once(("", "Any")).chain(names).collect();
    html! {
        (errors.summary())
        form.filters action=(request.scope_link("/alerts")) {
            (field("name", "Alert").choice(&names))
            @if request.tenant.is_none() { (field("tenant", "Tenant").line("text")) }
            (field("since", "Since (UTC)").line("datetime-local"))
            (field("until", "Until (UTC)").line("datetime-local"))
            div.do {
                button type="submit" { "Apply" }
                a href=(request.scope_link("/alerts")) { "Clear" }
            }
        }
    }
}

fn table(request: &PageRequest, alerts: &[Alert], caption: &str) -> Markup {
    html! {
        table.stack {
            caption.unseen { (caption) }
            thead { tr {
                th scope="col" { "Alert" } th scope="col" { "Scope" } th scope="col" { "Problem" }
                th scope="col" { "Since" } th scope="col" { "Resolved" }
            } }
            tbody { @for alert in alerts { tr {
                td data-label="Alert" {
                    @match alert.resolved_at {
                        None => { (badge(BadgeKind::Bad, &humanize(&alert.name))) }
                        Some(_) => { (badge(BadgeKind::Quiet, &humanize(&alert.name))) }
                    }
                }
                td data-label="Scope" { (scope_links(request, &alert.scope)) }
                td.words data-label="Problem" { (alert.message) }
                td data-label="Since" { (time(&alert.raised_at)) }
                td data-label="Resolved" {
                    @match &alert.resolved_at {
                        None => { "Ongoing" }
                        Some(at) => { (time(at)) }
                    }
                }
            } } }
        }
    }
}

fn scope_links(request: &PageRequest, scope: &AlertScope) -> Markup {
    let is_server_page = request.tenant.is_none();
    html! {
        @match (&scope.tenant_id, &scope.endpoint_id) {
            (Some(tenant), Some(endpoint)) => {
                a href=(request.link_for_tenant(tenant, &format!("/endpoints/{endpoint}"))) { (endpoint) }
                @if is_server_page { div.hint { "of " a href=(request.link_for_tenant(tenant, "")) { (tenant) } } }
            }
            (Some(tenant), None) if is_server_page => { a href=(request.link_for_tenant(tenant, "")) { (tenant) } }
            (Some(_), None) => { "all endpoints" }
            (None, _) => { "server" }
        }
    }
}
