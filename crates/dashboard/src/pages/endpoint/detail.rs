//! The page of one endpoint: status, health, stats, settings, and forms for its actions.
//!
//! [`show`] loads what the page shows, each part through the API.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{
    Attention, DeliverySummary, Endpoint, EndpointAuth, EndpointHealth, EndpointStatus, LastError,
    ListPage, OwnerEmailStatus, SettingOrigin, Stats, StatsSeries,
};
use posthaste_api::route::Verb;
use posthaste_core::classify::FailureKind;

use super::description::{
    backlog_text, badges, breaker_text, held_back, is_passing, latency_text, lowered_limits_text,
    next_attempt, policy_origin_text, rate_text, status_text, subscription_text, success_text,
};
use super::secret;
use super::subpage::path;
use crate::components::{
    Field, FieldErrors, PolicyPreview, action_button, copyable, delivery_badge, empty_list,
    humanize, time, to_the_second,
};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::pages::events::test_buttons;
use crate::pages::stats::{self, TimeRange};
use crate::urls::query_string;

/// Number of recent failures shown.
const FAILURES_SHOWN: usize = 5;
/// Number of held deliveries that are searched for failures. Only a delivery that was attempted before can have one.
const HELD_SEARCHED: usize = 50;
/// Default range of a replay of missed events.
const DEFAULT_MISSED_RANGE: &str = "1d";

pub(super) async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    Ok(page(&request).await?.into())
}

async fn page(request: &PageRequest) -> Result<Page, Problem> {
    let path = path(request);
    let endpoint: Endpoint = request.tenant_get(&path).await?;
    let health: EndpointHealth = request.tenant_get(&format!("{path}/health")).await?;
    let stats: Stats = request.tenant_get(&format!("{path}/stats")).await?;
    let window = TimeRange::read(request.query("window"));
    let query = query_string([("window", window.name())]);
    let series: StatsSeries = request
        .tenant_get(&format!("{path}/stats/series{query}"))
        .await?;
    let target = "/v1/policies/preview";
    let policy: PolicyPreview = request
        .call(Verb::Post, target, Some(endpoint.retry_policy.clone()))
        .await?;
    let failures = recent_failures(request, &endpoint, &health).await?;
    let attention_reason = attention_reason(request, &endpoint).await?;
    let link = request.tenant_link(&path);
    Ok(Page::new(Tab::Endpoints, endpoint.url.clone())
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .live(
            "state",
            status_section(request, &endpoint, &health, attention_reason.as_deref()),
        )
        .live(
            "health",
            html! {
                div.titled { h2 { "Health" } (window.choice(&link)) }
                (stats::charts(&series, window))
                // The ratios are the operator's; a customer sees the attempts.
                @if !request.is_portal() {
                    (stats::cards(&stats, window, &series, request.dashboard.settings.min_samples))
                }
            },
        )
        .live(
            "failures",
            failures_section(request, &endpoint, &health, &failures),
        )
        .live(
            "policy",
            html! { div.card {
                h2 { "Retry schedule" }
                p.hint { "Retry policy: " (policy.name()) " (" (policy_origin_text(endpoint.retry_policy_from)) ")." }
                (policy.render())
            } },
        )
        .live("settings", settings_section(request, &endpoint))
        .static_section("missed", missed_form(request, &endpoint))
        .static_section("secret", secret::section(request))
        .static_section("danger", stop_section(request)))
}

async fn recent_failures(
    request: &PageRequest,
    endpoint: &Endpoint,
    health: &EndpointHealth,
) -> Result<Vec<DeliverySummary>, Problem> {
    let mut failures = Vec::new();
    // Either all waiting deliveries of an endpoint are held, or none. A query for the other status would scan slowly
    // and find nothing.
    let is_holding = endpoint.status != EndpointStatus::Enabled || !is_passing(&health.breaker);
    let waiting = match is_holding {
        true => ("held", HELD_SEARCHED),
        false => ("retrying", FAILURES_SHOWN),
    };
    for (status, max) in [("failed", FAILURES_SHOWN), waiting] {
        let limit = max.to_string();
        let query = query_string([
            ("endpoint", endpoint.id.as_str()),
            ("status", status),
            ("limit", limit.as_str()),
        ]);
        let listed: ListPage<DeliverySummary> =
            request.tenant_get(&format!("/deliveries{query}")).await?;
        let failed = |delivery: &DeliverySummary| delivery.last_error.is_some();
        failures.extend(listed.data.into_iter().filter(failed));
    }
    // Ids sort by time.
    failures.sort_by(|a, b| b.id.cmp(&a.id));
    failures.truncate(FAILURES_SHOWN);
    Ok(failures)
}

/// Returns the reason why the endpoint needs attention, if it does.
async fn attention_reason(
    request: &PageRequest,
    endpoint: &Endpoint,
) -> Result<Option<String>, Problem> {
    let attention: Attention = request.tenant_get("/attention").await?;
    let mut items = attention.data.into_iter();
    let found = items.find(|item| item.endpoint_id == endpoint.id);
    Ok(found.map(|item| item.detail))
}

fn status_section(
    request: &PageRequest,
    endpoint: &Endpoint,
    health: &EndpointHealth,
    attention_reason: Option<&str>,
) -> Markup {
    let link = |verb: &str| request.tenant_link(&format!("/endpoints/{}/{verb}", endpoint.id));
    html! {
        div.card {
            p { (badges(endpoint, health)) }
            @if !endpoint.description.is_empty() { p { (endpoint.description) } }
            p { (status_text(endpoint, health)) }
            dl.facts {
                @if let Some(reason) = attention_reason { dt { "Problem" } dd { (reason) } }
                dt { "Breaker" } dd { (breaker_text(&health.breaker, endpoint.status == EndpointStatus::Enabled)) }
                dt { "Backlog" } dd { (backlog_text(health)) }
                @if let Some(held_back) = held_back(health) { dt { "Held back by" } dd { (held_back) } }
                @if let Some(limits) = lowered_limits_text(endpoint, health) { dt { "Effective limits" } dd { (limits) } }
                @if let Some(at) = &health.quiet_until { dt { "Retry-After" } dd { "the receiver asked to wait until " (to_the_second(at)) } }
                dt { "Next attempt" } dd { (next_attempt(endpoint, health)) }
                dt { "Recent success" } dd {
                    (success_text(health))
                    @if health.consecutive_failures > 0 { "; the last " (health.consecutive_failures) " failed" }
                }
                @if let Some(latency) = latency_text(health) { dt { "Latency" } dd { (latency) } }
            }
            div.actions {
                @match endpoint.status {
                    EndpointStatus::Enabled => {
                        (test_buttons(request, &endpoint.id, "primary"))
                        (action_button(request, &link("pause"), "", "Pause"))
                        @if !is_passing(&health.breaker) { (action_button(request, &link("resume"), "", "Close breaker")) }
                    }
                    EndpointStatus::Paused => {
                        (action_button(request, &link("resume"), "primary", "Resume"))
                        (test_buttons(request, &endpoint.id, ""))
                    }
                    EndpointStatus::Disabled | EndpointStatus::Deleted => { (action_button(request, &link("enable"), "primary", "Enable")) }
                }
                a.button href=(link("edit")) { "Edit" }
                a href=(request.tenant_link(&format!("/deliveries?endpoint={}", endpoint.id))) { "View deliveries" }
                a href=(request.tenant_link(&format!("/dead-letters?endpoint={}", endpoint.id))) { "View dead letters" }
            }
        }
    }
}

fn failures_section(
    request: &PageRequest,
    endpoint: &Endpoint,
    health: &EndpointHealth,
    failures: &[DeliverySummary],
) -> Markup {
    let held_link =
        request.tenant_link(&format!("/deliveries?endpoint={}&status=held", endpoint.id));
    let failed_link = request.tenant_link(&format!(
        "/deliveries?endpoint={}&status=failed",
        endpoint.id
    ));
    html! {
        h2 { "Recent failures" }
        @if failures.is_empty() && health.consecutive_failures > 0 {
            p.empty { "The last attempts failed. Their deliveries are waiting: " a href=(held_link) { "view held deliveries" } "." }
        } @else if failures.is_empty() {
            (empty_list("No recent failures."))
        } @else {
            table.stack {
                caption.unseen { "Deliveries that failed or are being retried, newest first" }
                thead { tr {
                    th scope="col" { "Delivery" } th scope="col" { "Status" } th scope="col" { "Event" }
                    th scope="col" { "Error" } th scope="col" { "Accepted" }
                } }
                tbody { @for delivery in failures { tr {
                    th scope="row" { a href=(request.tenant_link(&format!("/deliveries/{}", delivery.id))) { code { (delivery.id) } } }
                    td data-label="Status" { (delivery_badge(delivery.status.name())) }
                    td.type data-label="Event" { (delivery.event_type) }
                    td.words data-label="Error" { (error_text(delivery.last_error.as_ref())) }
                    td data-label="Accepted" { (time(&delivery.created_at)) }
                } } }
            }
            p { a href=(failed_link) { "View all failed deliveries" } }
        }
    }
}

fn error_text(error: Option<&LastError>) -> String {
    match error {
        None => "no attempts yet".to_owned(),
        Some(error) => {
            let reason = match (error.kind, error.status_code) {
                (FailureKind::Http, Some(code)) => format!("HTTP {code}"),
                (kind, _) => humanize(kind.name()),
            };
            match error.detail.is_empty() {
                true => reason,
                false => format!("{reason}: {}", error.detail),
            }
        }
    }
}

fn settings_section(request: &PageRequest, endpoint: &Endpoint) -> Markup {
    let headers = endpoint.headers.0.iter();
    let names: Vec<&str> = headers.map(|(name, _)| name.as_str()).collect();
    let style = match endpoint.signature_style.as_str() {
        "github" => "Standard Webhooks and GitHub",
        "stripe" => "Standard Webhooks and Stripe",
        _ => "Standard Webhooks",
    };
    let auth = endpoint.auth.as_ref().map(EndpointAuth::kind);
    html! {
        div.card {
            h2 { "Settings" }
            dl.facts {
                dt { "Id" } dd { (copyable(&endpoint.id, "id")) }
                dt { "Event types" } dd { (subscription_text(endpoint)) }
                dt { "Timeout" } dd { (endpoint.timeout) " per attempt" (inherited(endpoint.timeout_from)) }
                dt { "Max concurrent requests" } dd { (endpoint.max_in_flight) (inherited(endpoint.max_in_flight_from)) }
                dt { "Rate limit" } dd { (rate_text(endpoint)) (inherited(endpoint.rate_limit_from)) }
                dt { "Protection" } dd { (protection_text(endpoint)) }
                dt { "Ordering" } dd {
                    @if endpoint.ordered { "ordered, per ordering key" }
                    @else { "not ordered" }
                }
                dt { "Signatures" } dd { (style) }
                dt { "Custom headers" } dd {
                    @if names.is_empty() { "none" } @else { (names.join(", ")) span.hint { " (values are shown on the Edit page)" } }
                }
                dt { "Authorization" } dd { (auth.map_or("none".to_owned(), humanize)) }
                dt { "Client certificate" } dd {
                    @match &endpoint.client_certificate {
                        None => { "none" }
                        Some(certificate) => {
                            code { (certificate.fingerprint.as_deref().unwrap_or("unknown")) }
                            @if let Some(end) = &certificate.expires_at { ", expires " (time(end)) }
                        }
                    }
                }
                dt { "Owner" } dd { (owner(request, endpoint)) }
                dt { "Created" } dd { (time(&endpoint.created_at)) }
            }
            div.actions { a.button href=(request.tenant_link(&format!("/endpoints/{}/edit", endpoint.id))) { "Edit" } }
        }
    }
}

fn owner(request: &PageRequest, endpoint: &Endpoint) -> Markup {
    let Some(email) = &endpoint.owner_email else {
        return html! { "none" };
    };
    let link = request.tenant_link(&format!("/endpoints/{}/confirm-owner", endpoint.id));
    html! {
        (email)
        @match endpoint.owner_email_status {
            Some(OwnerEmailStatus::Pending) => {
                " " span.badge { "not confirmed" }
                p.hint { "No emails are sent to this address until its owner opens the confirmation link." }
                (action_button(request, &link, "", "Send again"))
            }
            Some(OwnerEmailStatus::Confirmed) | None => { span.hint { " (confirmed)" } }
        }
    }
}

fn inherited(origin: SettingOrigin) -> &'static str {
    match origin {
        SettingOrigin::Endpoint => "",
        SettingOrigin::Tenant => " (tenant default)",
        SettingOrigin::Server => " (server default)",
    }
}

/// Lists the thresholds that the endpoint sets itself.
fn protection_text(endpoint: &Endpoint) -> String {
    let Some(protection) = &endpoint.protection else {
        return "default".to_owned();
    };
    let own = serde_json::to_value(protection).unwrap_or_default();
    let mut settings = Vec::new();
    for (section, thresholds) in own.as_object().into_iter().flatten() {
        for (name, value) in thresholds.as_object().into_iter().flatten() {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            settings.push(format!("{section}.{name} {value}"));
        }
    }
    settings.join(", ")
}

fn missed_form(request: &PageRequest, endpoint: &Endpoint) -> Markup {
    let none = FieldErrors::default();
    let hint = "A duration such as 2h, or a time in UTC such as 2026-11-15 14:30. Finds failed deliveries, and events that \
                the endpoint is subscribed to but never received.";
    let field = Field::new(
        "missed_since",
        "Missed since (UTC)",
        hint,
        DEFAULT_MISSED_RANGE,
        &none,
    );
    html! {
        div.card #missed-form {
            h2 { "Replay missed events" }
            form.narrow action=(request.tenant_link("/replays/confirm")) {
                input type="hidden" name="endpoint" value=(endpoint.id);
                (field.line("text"))
                div.actions { button type="submit" { "Continue" } span.hint { "Shows how many match, and asks before it starts." } }
            }
        }
    }
}

fn stop_section(request: &PageRequest) -> Markup {
    let link = |verb: &str| request.tenant_link(&format!("{}/{verb}", path(request)));
    html! {
        div.card {
            h2 { "Stop sending" }
            p.hint {
                "Pause holds deliveries. Disable fails waiting deliveries; you can replay them after enabling. Delete is permanent; past deliveries stay visible until their retention period ends."
            }
            div.actions {
                // Each leads to a page that asks for confirmation.
                (action_button(request, &link("disable"), "danger", "Disable…"))
                (action_button(request, &link("delete"), "danger", "Delete…"))
            }
        }
    }
}
