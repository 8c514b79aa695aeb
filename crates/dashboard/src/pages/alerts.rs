//! The page of open and resolved alerts.
//!
//! Open alerts are grouped by their subject, each with its current value, its peak and when it clears. The overview
//! shows the same groups through [`summary`]. All are read from the API with a limit; a list that is cut says so.
//! Alerts are for operators and for tenants with a key: the portal has none.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Alert, AlertScope, Endpoint, ListPage};
use posthaste_core::alert::{AlertName, Bound, Measure};

use super::form_state::FormState;
use super::stats::Unit;
use super::time_input::api_query;
use crate::components::{
    BadgeKind, Field, FieldErrors, badge, empty_list, humanize, pager, rounded_duration, time,
    to_the_second, url_text,
};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::{PageRequest, page_not_found};
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

/// Number of resolved alerts on a page.
const PER_PAGE: &str = "50";
/// Maximum number of open alerts that are shown. With more than that, the number of alerts matters more than the
/// list.
const MAX_OPEN: &str = "100";
/// Number of open alerts that are read for the overview.
const SUMMARY_ALERTS: &str = "50";
/// Number of subjects with open alerts on the overview.
const SUMMARY_GROUPS: usize = 8;

/// Fields of the filter.
const FILTER_FIELDS: [&str; 4] = ["name", "tenant", "since", "until"];

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "/alerts", show),
    page_route!(Tenant, "/alerts", show),
];

/// The open alerts of one subject, newest first.
pub(super) struct AlertGroup {
    scope: AlertScope,
    /// URL of the endpoint.
    url: Option<String>,
    alerts: Vec<Alert>,
}

impl AlertGroup {
    /// Identifies the group in the page.
    fn key(&self) -> String {
        let of = |id: &Option<String>| id.clone().unwrap_or_default();
        format!(
            "{}/{}",
            of(&self.scope.tenant_id),
            of(&self.scope.endpoint_id)
        )
    }
}

/// Open alerts by subject: endpoints first, then tenants, then the server.
pub(super) struct OpenAlerts {
    pub(super) groups: Vec<AlertGroup>,
    /// True if there are more open alerts than these.
    has_more: bool,
}

impl OpenAlerts {
    /// Groups alerts by their subject, and looks up the URLs of the endpoints of the first groups.
    async fn group(
        request: &PageRequest,
        open: ListPage<Alert>,
        looked_up: usize,
    ) -> Result<OpenAlerts, Problem> {
        let mut groups: Vec<AlertGroup> = Vec::new();
        for alert in open.data {
            match groups.iter_mut().find(|group| group.scope == alert.scope) {
                Some(group) => group.alerts.push(alert),
                None => groups.push(AlertGroup {
                    scope: alert.scope.clone(),
                    url: None,
                    alerts: vec![alert],
                }),
            }
        }
        groups.sort_by_key(|group| {
            let scope = &group.scope;
            (scope.endpoint_id.is_none(), scope.tenant_id.is_none())
        });
        for group in groups.iter_mut().take(looked_up) {
            let (Some(tenant), Some(endpoint)) = (&group.scope.tenant_id, &group.scope.endpoint_id)
            else {
                continue;
            };
            let path = format!("/v1/tenants/{tenant}/endpoints/{endpoint}");
            match request.get::<Endpoint>(&path).await {
                Ok(endpoint) => group.url = Some(endpoint.url),
                // Deleted meanwhile.
                Err(problem) if problem.code == Code::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(OpenAlerts {
            groups,
            has_more: open.next_cursor.is_some(),
        })
    }

    /// Returns the alerts about the server itself. Ratios over all deliveries are not among them: the endpoints that
    /// cause them are listed.
    pub(super) fn of_server(&self) -> Vec<&Alert> {
        let of_server = self.groups.iter().filter(|group| {
            let scope = &group.scope;
            scope.tenant_id.is_none() && scope.endpoint_id.is_none()
        });
        let is_of_deliveries = |alert: &&Alert| match alert.name.parse() {
            Ok(
                AlertName::RetryRatio
                | AlertName::DeadLetterRatio
                | AlertName::AttemptsPerSuccess
                | AlertName::SecondAttemptSuccessRatio
                | AlertName::RetryingOver24h
                | AlertName::DeadLettersGrowing,
            ) => true,
            Ok(
                AlertName::BreakerTripped
                | AlertName::DisableWarning
                | AlertName::EndpointDisabled
                | AlertName::QueueAge
                | AlertName::HeldBack
                | AlertName::StoreSlow
                | AlertName::StoreNearlyFull
                | AlertName::NotificationsStuck
                | AlertName::HeldAfterFaults
                | AlertName::OutboxUnreachable
                | AlertName::SchedulesFailing,
            )
            | Err(_) => false,
        };
        let alerts = of_server.flat_map(|group| &group.alerts);
        alerts.filter(|alert| !is_of_deliveries(alert)).collect()
    }
}

/// Loads the alerts that match the filter.
async fn load(
    request: &PageRequest,
    filter: &FormState,
    state: &str,
    limit: &str,
    cursor: &str,
) -> Result<ListPage<Alert>, Problem> {
    let page = [("state", state), ("limit", limit), ("cursor", cursor)];
    let query = api_query(filter.fields().chain(page), request.now);
    request.scope_get(&format!("/alerts{query}")).await
}

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    let filter = FormState::read(&FILTER_FIELDS, |name| match (name, &request.tenant) {
        // On a tenant's pages all alerts belong to that tenant.
        ("tenant", Some(_)) => "",
        (name, _) => request.query(name),
    });
    let cursor = request.query("cursor");
    let page = Page::new(Tab::Alerts, "Alerts")
        .lead(html! { "Current and past problems. You get one notification when an alert is raised and one when it is resolved." });
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
    let open = OpenAlerts::group(&request, open, usize::MAX).await?;
    let link = |cursor: &str| request.scope_link(&format!("/alerts{}", filter.page_query(cursor)));
    let pager = pager(cursor, resolved.next_cursor.as_deref(), link);
    let resolved_list = match resolved.data.is_empty() {
        true => empty_list("No matching alerts."),
        false => resolved_table(&request, &resolved.data),
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

fn open_alerts(request: &PageRequest, open: &OpenAlerts) -> Markup {
    html! {
        @if open.groups.is_empty() {
            p.card { (badge(BadgeKind::Good, "all clear")) " No matching active alerts." }
        } @else {
            (groups_table(request, &open.groups))
            @if open.has_more { p.hint { "Older active alerts are not shown. Use the filter to find them." } }
        }
    }
}

/// Loads the open alerts for the overview.
pub(super) async fn load_open(request: &PageRequest) -> Result<OpenAlerts, Problem> {
    let query = query_string([("state", "open"), ("limit", SUMMARY_ALERTS)]);
    let open: ListPage<Alert> = request.scope_get(&format!("/alerts{query}")).await?;
    OpenAlerts::group(request, open, SUMMARY_GROUPS).await
}

/// Renders the open alerts for the overview, by subject. Empty if there are none.
pub(super) fn summary(request: &PageRequest, open: &OpenAlerts) -> Markup {
    let (shown, more) = open.groups.split_at(open.groups.len().min(SUMMARY_GROUPS));
    html! {
        @if !shown.is_empty() {
            div.titled { h2 { "Alerts" } a href=(request.scope_link("/alerts")) { "All alerts" } }
            (groups_table(request, shown))
            @if !more.is_empty() || open.has_more { p.hint { "There are more active alerts." } }
        }
    }
}

/// Renders alerts by subject, one row for each.
fn groups_table(request: &PageRequest, groups: &[AlertGroup]) -> Markup {
    html! {
        table.stack.alerts data-list="calm" {
            caption.unseen { "Active alerts by subject" }
            thead { tr { th scope="col" { "Subject" } th scope="col" { "Active alerts" } } }
            tbody { @for group in groups { tr data-key=(group.key()) {
                th scope="row" { (subject_link(request, &group.scope, group.url.as_deref())) }
                td data-label="Active alerts" {
                    ul.plain { @for alert in &group.alerts { li { (alert_item(request, alert)) } } }
                }
            } } }
        }
    }
}

/// Renders an open alert: value, peak, end and runbook.
fn alert_item(request: &PageRequest, alert: &Alert) -> Markup {
    let value = |value: f64| value_text(&alert.name, value);
    let name = alert.name.parse::<AlertName>();
    let peak_name = match name.as_ref().map(|name| name.bound()) {
        Ok(Bound::Below(_)) => "lowest",
        Ok(Bound::Above(_)) | Err(_) => "peak",
    };
    // A value of 0 says that the breaker passes again.
    let is_passing = name == Ok(AlertName::BreakerTripped) && alert.current == Some(0.0);
    let kind = match alert.clears_at.is_some() || is_passing {
        true => BadgeKind::Warning,
        false => BadgeKind::Bad,
    };
    html! {
        (badge(kind, &title(&alert.name))) " "
        @match (alert.current, alert.peak, alert.threshold) {
            (_, _, _) if is_passing => { "The breaker has closed. " }
            (Some(current), Some(peak), Some(threshold)) => {
                "Now " (value(current)) ", " (peak_name) " " (value(peak)) " (threshold " (value(threshold)) "). "
            }
            (_, _, _) => { (alert.message) " " }
        }
        span.hint {
            "Since " (time(&alert.raised_at)) ". "
            @match (&alert.clears_at, &alert.clears_when) {
                (Some(at), _) => { "Back to normal; clears at " (to_the_second(at)) ". " }
                (None, Some(when)) => { "Clears " (when) ". " }
                (None, None) => {}
            }
        }
        (runbook_link(request, alert))
    }
}

/// Renders the link to the runbook section of an alert. The portal has none: the runbook is for operators.
pub(super) fn runbook_link(request: &PageRequest, alert: &Alert) -> Markup {
    html! {
        @if !request.is_portal() {
            a href=(alert.runbook) { "Runbook" span.unseen { " for " (title(&alert.name)) } }
        }
    }
}

/// Returns the name of an alert in words.
fn title(name: &str) -> String {
    match name.parse() {
        Ok(AlertName::RetryRatio) => "retry rate".to_owned(),
        Ok(AlertName::DeadLetterRatio) => "dead-letter rate".to_owned(),
        Ok(AlertName::AttemptsPerSuccess) => "attempts per success".to_owned(),
        Ok(AlertName::SecondAttemptSuccessRatio) => "second-attempt success rate".to_owned(),
        Ok(AlertName::RetryingOver24h) => "retrying over 24 h".to_owned(),
        Ok(AlertName::HeldBack) => "held back by a limit".to_owned(),
        Ok(AlertName::HeldAfterFaults) => "held after internal errors".to_owned(),
        Ok(AlertName::NotificationsStuck) => "notifications stuck".to_owned(),
        Ok(
            AlertName::DeadLettersGrowing
            | AlertName::BreakerTripped
            | AlertName::DisableWarning
            | AlertName::EndpointDisabled
            | AlertName::QueueAge
            | AlertName::StoreSlow
            | AlertName::StoreNearlyFull
            | AlertName::OutboxUnreachable
            | AlertName::SchedulesFailing,
        )
        // An alert of a later version.
        | Err(_) => humanize(name),
    }
}

/// Formats a value of an alert with its unit.
fn value_text(name: &str, value: f64) -> String {
    match name.parse::<AlertName>().map(AlertName::measure) {
        Ok(Measure::Ratio) => Unit::Share.write(value),
        Ok(Measure::Factor) => Unit::Number.write(value),
        Ok(Measure::Seconds) => rounded_duration((value.max(0.0) * 1_000.0) as u64),
        Ok(Measure::Count | Measure::Event) | Err(_) => Unit::Count.write(value),
    }
}

/// Renders the subject of an alert: an endpoint by its URL, a tenant, or the server.
fn subject_link(request: &PageRequest, scope: &AlertScope, url: Option<&str>) -> Markup {
    let is_server_page = request.tenant.is_none();
    html! {
        @match (&scope.tenant_id, &scope.endpoint_id) {
            (Some(tenant), Some(endpoint)) => {
                a href=(request.link_for_tenant(tenant, &format!("/endpoints/{endpoint}"))) {
                    @match url { Some(url) => { (url_text(url)) } None => { (endpoint) } }
                }
                @if is_server_page { div.hint { "of " a href=(request.link_for_tenant(tenant, "")) { (tenant) } } }
            }
            (Some(tenant), None) if is_server_page => {
                a href=(request.link_for_tenant(tenant, "")) { (tenant) } div.hint { "all its endpoints" }
            }
            (Some(_), None) => { "All endpoints" }
            (None, _) => { "All tenants" }
        }
    }
}

fn filter_form(request: &PageRequest, filter: &FormState, errors: &FieldErrors) -> Markup {
    let field = |name, label| Field::new(name, label, "", filter.value(name), errors);
    let names = AlertName::ALL.map(|name| (name.name(), title(name.name())));
    let names = names.iter().map(|(name, label)| (*name, label.as_str()));
    let names: Vec<(&str, &str)> = std::iter::once(("", "Any")).chain(names).collect();
    html! {
        (errors.summary())
        form.filters action=(request.scope_link("/alerts")) {
            (field("name", "Alert").choice(&names))
            @if request.tenant.is_none() { (field("tenant", "Tenant").line("text")) }
            (field("since", "Since (UTC)").example("2h, or 2026-11-15 14:30"))
            (field("until", "Until (UTC)").example("2h, or 2026-11-15 14:30"))
            div.do {
                button type="submit" { "Apply" }
                a href=(request.scope_link("/alerts")) { "Clear" }
            }
        }
    }
}

fn resolved_table(request: &PageRequest, alerts: &[Alert]) -> Markup {
    html! {
        table.stack data-list="hold" {
            caption.unseen { "Resolved alerts, newest first" }
            thead { tr {
                th scope="col" { "Alert" } th scope="col" { "Subject" } th scope="col" { "Problem" }
                th scope="col" { "Since" } th scope="col" { "Resolved" }
            } }
            tbody { @for alert in alerts { tr data-key=(alert.id) {
                td data-label="Alert" { (badge(BadgeKind::Quiet, &title(&alert.name))) }
                td data-label="Subject" { (subject_link(request, &alert.scope, None)) }
                td.words data-label="Problem" { (alert.message) }
                td data-label="Since" { (time(&alert.raised_at)) }
                td data-label="Resolved" { @if let Some(at) = &alert.resolved_at { (time(at)) } }
            } } }
        }
    }
}
