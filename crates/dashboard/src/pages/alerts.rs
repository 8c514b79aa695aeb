//! Open and resolved alerts.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_core::alert::AlertName;
use serde::Deserialize;

use super::{At, PageHandler, Reach, at};
use crate::page::{Page, PageResult, Tab};
use crate::parts::{Field, Listed, Mood, Wrong, badge, empty, in_words, pager, time};
use crate::visit::{PageRequest, query_of};

/// Number of resolved alerts on a page.
const PER_PAGE: &str = "50";
/// Maximum number of open alerts that are shown. With more than that, the number of alerts matters more than the
/// list.
const MAX_OPEN: &str = "100";
/// Number of open alerts at the top of other pages.
const ON_TOP: &str = "5";

pub(super) const PAGES: &[At<PageHandler>] = &[
    at(Reach::Everything, "/alerts", |visit| Box::pin(show(visit))),
    at(Reach::Tenant, "/alerts", |visit| Box::pin(show(visit))),
];

#[derive(Deserialize)]
struct Alert {
    name: String,
    scope: Scope,
    raised_at: String,
    resolved_at: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct Scope {
    tenant_id: Option<String>,
    endpoint_id: Option<String>,
}

/// Filter of the list.
struct Filter<'a> {
    name: &'a str,
    tenant: &'a str,
    since: &'a str,
    until: &'a str,
}

impl<'a> Filter<'a> {
    fn of(visit: &'a PageRequest) -> Filter<'a> {
        Filter {
            name: visit.query("name"),
            // On a tenant's pages all alerts belong to that tenant.
            tenant: match visit.tenant {
                None => visit.query("tenant"),
                Some(_) => "",
            },
            since: visit.query("since"),
            until: visit.query("until"),
        }
    }

    /// Builds a link to the page with this filter, beginning at a cursor.
    fn link(&self, visit: &PageRequest, cursor: &str) -> String {
        let query = query_of([
            ("name", self.name),
            ("tenant", self.tenant),
            ("since", self.since),
            ("until", self.until),
            ("cursor", cursor),
        ]);
        format!("{}{query}", path(visit))
    }

    /// Loads the alerts that match the filter.
    async fn found(
        &self,
        visit: &PageRequest,
        state: &str,
        limit: &str,
        cursor: &str,
    ) -> Result<Listed<Alert>, Problem> {
        let (since, until) = (super::in_utc(self.since), super::in_utc(self.until));
        let query = query_of([
            ("state", state),
            ("name", self.name),
            ("tenant", self.tenant),
            ("since", since.as_str()),
            ("until", until.as_str()),
            ("limit", limit),
            ("cursor", cursor),
        ]);
        visit.read(&format!("{}/alerts{query}", base(visit))).await
    }
}

/// Returns the path of this page.
fn path(visit: &PageRequest) -> String {
    match visit.tenant {
        None => visit.link("/alerts"),
        Some(_) => visit.here("/alerts"),
    }
}

/// Returns the API path that the alerts are below.
fn base(visit: &PageRequest) -> String {
    match &visit.tenant {
        None => "/v1".to_owned(),
        Some(tenant) => format!("/v1/tenants/{tenant}"),
    }
}

async fn show(visit: PageRequest) -> Result<PageResult, Problem> {
    let filter = Filter::of(&visit);
    let cursor = visit.query("cursor");
    let page = Page::new(Tab::Alerts, "Alerts")
        .lead(html! { "What is wrong now, and what was. Each is told once when it begins and once when it is over." });
    let found = match filter.found(&visit, "open", MAX_OPEN, "").await {
        Err(problem) => Err(problem),
        Ok(open) => match filter.found(&visit, "resolved", PER_PAGE, cursor).await {
            Err(problem) => Err(problem),
            Ok(over) => Ok((open, over)),
        },
    };
    let (open, over) = match found {
        Ok(found) => found,
        Err(problem) if problem.errors.is_some() => {
            let wrong = Wrong::new(&problem, |field| {
                let names = ["name", "tenant", "since", "until"];
                names.into_iter().find(|name| *name == field)
            });
            let page = page.static_section("filter", filters(&visit, &filter, &wrong));
            return Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into());
        }
        Err(problem) => return Err(problem),
    };
    let newest = (!cursor.is_empty()).then(|| filter.link(&visit, ""));
    let older = over.next_cursor.map(|cursor| filter.link(&visit, &cursor));
    let ended = match over.data.is_empty() {
        true => empty("None is over that fits."),
        false => table(&visit, &over.data, "Alerts that are over, newest first"),
    };
    Ok(page
        .static_section("filter", filters(&visit, &filter, &Wrong::default()))
        .live("open", html! { h2 { "Now" } (now(&visit, &open)) })
        .live(
            "resolved",
            html! { h2 { "Over" } (ended) (pager(newest.as_deref(), older.as_deref())) },
        )
        .into())
}

fn now(visit: &PageRequest, open: &Listed<Alert>) -> Markup {
    html! {
        @if open.data.is_empty() {
            p.card { (badge(Mood::Good, "nothing")) " Nothing is wrong that fits." }
        } @else {
            (table(visit, &open.data, "Alerts that go on, newest first"))
            @if open.next_cursor.is_some() { p.hint { "And more, which are older." } }
        }
    }
}

/// Renders the open alerts for the top of another page; `None` if there are none.
pub(super) async fn on_top(visit: &PageRequest) -> Result<Option<Markup>, Problem> {
    let query = query_of([("state", "open"), ("limit", ON_TOP)]);
    let open: Listed<Alert> = visit
        .read(&format!("{}/alerts{query}", base(visit)))
        .await?;
    if open.data.is_empty() {
        return Ok(None);
    }
    let more = open.next_cursor.is_some();
    Ok(Some(html! {
        div.titled { h2 { "Alerts" } a href=(path(visit)) { "All alerts" } }
        (table(visit, &open.data, "The newest alerts that go on"))
        @if more { p.hint { "And more." } }
    }))
}

fn filters(visit: &PageRequest, filter: &Filter<'_>, wrong: &Wrong) -> Markup {
    let field = |name, label, value| Field {
        name,
        label,
        hint: "",
        value,
        wrong,
    };
    let names = AlertName::ALL.map(|name| (name.name(), in_words(name.name())));
    let names = names.iter().map(|(name, words)| (*name, words.as_str()));
    let names: Vec<(&str, &str)> = std::iter::once(("", "Any")).chain(names).collect();
    html! {
        (wrong.summary())
        form.filters action=(path(visit)) {
            (field("name", "Alert", filter.name).choice(&names))
            @if visit.tenant.is_none() { (field("tenant", "Tenant", filter.tenant).line("text")) }
            (field("since", "Since (UTC)", filter.since).line("datetime-local"))
            (field("until", "Until (UTC)", filter.until).line("datetime-local"))
            div.do {
                button type="submit" { "Show" }
                a href=(path(visit)) { "All" }
            }
        }
    }
}

fn table(visit: &PageRequest, alerts: &[Alert], caption: &str) -> Markup {
    html! {
        table.stack {
            caption.unseen { (caption) }
            thead { tr {
                th scope="col" { "Alert" } th scope="col" { "About" } th scope="col" { "What is wrong" }
                th scope="col" { "Since" } th scope="col" { "Over" }
            } }
            tbody { @for alert in alerts { tr {
                td data-label="Alert" {
                    @match alert.resolved_at {
                        None => { (badge(Mood::Bad, &in_words(&alert.name))) }
                        Some(_) => { (badge(Mood::Quiet, &in_words(&alert.name))) }
                    }
                }
                td data-label="About" { (about(visit, &alert.scope)) }
                td.words data-label="What is wrong" { (alert.message) }
                td data-label="Since" { (time(&alert.raised_at)) }
                td data-label="Over" {
                    @match &alert.resolved_at {
                        None => { "not yet" }
                        Some(at) => { (time(at)) }
                    }
                }
            } } }
        }
    }
}

fn about(visit: &PageRequest, scope: &Scope) -> Markup {
    let of_all = visit.tenant.is_none();
    html! {
        @match (&scope.tenant_id, &scope.endpoint_id) {
            (Some(tenant), Some(endpoint)) => {
                a href=(visit.at(tenant, &format!("/endpoints/{endpoint}"))) { (endpoint) }
                @if of_all { div.hint { "of " a href=(visit.at(tenant, "")) { (tenant) } } }
            }
            (Some(tenant), None) if of_all => { a href=(visit.at(tenant, "")) { (tenant) } }
            (Some(_), None) => { "all endpoints" }
            (None, _) => { "everything" }
        }
    }
}
