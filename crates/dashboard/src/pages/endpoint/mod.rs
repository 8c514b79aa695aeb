//! One endpoint: status, health, stats, settings and actions.

mod actions;
mod api_types;
mod form;

use http::StatusCode;
use maud::{Markup, html};
use posthaste_core::time::{Span, Timestamp};
use serde::Deserialize;

pub(super) use actions::ACTIONS;
pub(super) use api_types::{Endpoint, Health};

use super::figures::{Series, Stats, Window};
use super::{At, PageHandler, Reach, at};
use crate::layout::csrf;
use crate::page::{Page, PageResult, Tab};
use crate::parts::{
    Field, Listed, PolicyPreview, Wrong, act, copied, delivery_badge, empty, in_words, time,
};
use crate::visit::{PageRequest, query_of};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;

pub(super) const PAGES: &[At<PageHandler>] = &[
    at(Reach::Tenant, "/endpoints/new", |visit| {
        Box::pin(form::new(visit))
    }),
    at(Reach::Tenant, "/endpoints/{endpoint}", |visit| {
        Box::pin(show(visit))
    }),
    at(Reach::Tenant, "/endpoints/{endpoint}/edit", |visit| {
        Box::pin(form::edit(visit))
    }),
];

/// Number of recent failures shown.
const FAILURES_SHOWN: usize = 5;
/// Number of held deliveries that are searched for failures. Only a delivery that was attempted before can have one.
const HELD_SEARCHED: usize = 50;
/// Default range of a replay of missed events.
const DEFAULT_MISSED_RANGE: Span = Span::from_hours(24);

#[derive(Deserialize)]
struct Delivery {
    id: String,
    event_type: String,
    status: String,
    created_at: String,
    last_error: Option<LastError>,
}

#[derive(Deserialize)]
struct LastError {
    kind: String,
    status_code: Option<u16>,
    detail: String,
}

/// Returns the path of an endpoint, which is the same for pages and for the API.
fn path(visit: &PageRequest) -> String {
    format!("/endpoints/{}", visit.name("endpoint"))
}

async fn show(visit: PageRequest) -> Result<PageResult, Problem> {
    Ok(whole(&visit, &Wrong::default(), None).await?.into())
}

/// Renders the page. After a replay request that failed, it shows the errors and the time that was typed.
async fn whole(visit: &PageRequest, wrong: &Wrong, since: Option<&str>) -> Result<Page, Problem> {
    let path = path(visit);
    let endpoint: Endpoint = visit.get(&path).await?;
    let health: Health = visit.get(&format!("{path}/health")).await?;
    let stats: Stats = visit.get(&format!("{path}/stats")).await?;
    let window = Window::read(visit.query("window"));
    let query = query_of([("window", window.name())]);
    let series: Series = visit.get(&format!("{path}/stats/series{query}")).await?;
    let target = "/v1/policies/preview";
    let policy: PolicyPreview = visit
        .ask(Verb::Post, target, Some(endpoint.retry_policy.clone()))
        .await?;
    let failures = failures(visit, &endpoint, &health).await?;
    let why = why(visit, &endpoint).await?;
    let default_since = Timestamp(visit.now.0.saturating_sub(DEFAULT_MISSED_RANGE.as_millis()));
    let since = since.map_or_else(|| to_the_minute(default_since), str::to_owned);
    let link = visit.here(&path);
    let status = match wrong.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Ok(Page::new(Tab::Endpoints, endpoint.url.clone())
        .below("Endpoints", visit.here("/endpoints"))
        .with_status(status)
        .live("state", state(visit, &endpoint, &health, why.as_deref()))
        .live(
            "health",
            html! {
                div.titled { h2 { "Health" } (window.choice(&link)) }
                (series.charts(window))
                (stats.cards(window, &series))
            },
        )
        .live(
            "failures",
            shown_failures(visit, &endpoint, &health, &failures),
        )
        .live(
            "policy",
            html! { div.card {
                h2 { "When it is tried again" }
                p.hint { "The policy is " (policy.name()) ", " (endpoint.policy_from()) "." }
                (policy.shown())
            } },
        )
        .live("settings", settings(visit, &endpoint))
        .static_section("missed", missed(visit, &since, wrong))
        .static_section("secret", secret(visit))
        .static_section("danger", danger(visit)))
}

/// Formats a time for a browser's time field: UTC, to the minute.
fn to_the_minute(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..16).unwrap_or(&text).to_owned()
}

async fn failures(
    visit: &PageRequest,
    endpoint: &Endpoint,
    health: &Health,
) -> Result<Vec<Delivery>, Problem> {
    let mut found = Vec::new();
    // Either all waiting deliveries of an endpoint are held, or none. A query for the other status would scan slowly
    // and find nothing.
    let holds = endpoint.status != "enabled" || !health.breaker.is_passing();
    let waiting = match holds {
        true => ("held", HELD_SEARCHED),
        false => ("retrying", FAILURES_SHOWN),
    };
    for (status, most) in [("failed", FAILURES_SHOWN), waiting] {
        let limit = most.to_string();
        let query = query_of([
            ("endpoint", endpoint.id.as_str()),
            ("status", status),
            ("limit", limit.as_str()),
        ]);
        let listed: Listed<Delivery> = visit.get(&format!("/deliveries{query}")).await?;
        let failed = |delivery: &Delivery| delivery.last_error.is_some();
        found.extend(listed.data.into_iter().filter(failed));
    }
    // Ids sort by time.
    found.sort_by(|a, b| b.id.cmp(&a.id));
    found.truncate(FAILURES_SHOWN);
    Ok(found)
}

/// An endpoint that needs attention, and why.
#[derive(Deserialize)]
struct Needy {
    endpoint_id: String,
    detail: String,
}

#[derive(Deserialize)]
struct Attention {
    data: Vec<Needy>,
}

/// Returns the reason why the endpoint needs attention, if it does.
async fn why(visit: &PageRequest, endpoint: &Endpoint) -> Result<Option<String>, Problem> {
    let attention: Attention = visit.get("/attention").await?;
    let mut needy = attention.data.into_iter();
    let found = needy.find(|needy| needy.endpoint_id == endpoint.id);
    Ok(found.map(|needy| needy.detail))
}

fn state(visit: &PageRequest, endpoint: &Endpoint, health: &Health, why: Option<&str>) -> Markup {
    let link = |verb: &str| visit.here(&format!("/endpoints/{}/{verb}", endpoint.id));
    html! {
        div.card {
            p { (endpoint.badges(health)) }
            @if !endpoint.description.is_empty() { p { (endpoint.description) } }
            p { (endpoint.state_in_words(health)) }
            dl.facts {
                @if let Some(why) = why { dt { "What is wrong" } dd { (why) } }
                dt { "Breaker" } dd { (health.breaker.in_words(endpoint.status == "enabled")) }
                dt { "Backlog" } dd { (health.backlog()) }
                dt { "Next attempt" } dd { (health.next(endpoint)) }
                dt { "Success lately" } dd {
                    (health.success())
                    @if health.consecutive_failures > 0 { "; the last " (health.consecutive_failures) " failed" }
                }
                @if let Some(latency) = health.latency() { dt { "Latency" } dd { (latency) } }
            }
            div.actions {
                @match endpoint.status.as_str() {
                    "enabled" => {
                        (act(visit, &link("test"), "primary", "Send a test event"))
                        (act(visit, &link("pause"), "", "Pause"))
                        @if !health.breaker.is_passing() { (act(visit, &link("resume"), "", "Close the breaker")) }
                    }
                    "paused" => {
                        (act(visit, &link("resume"), "primary", "Resume"))
                        (act(visit, &link("test"), "", "Send a test event"))
                    }
                    _ => { (act(visit, &link("enable"), "primary", "Enable")) }
                }
                a.button href=(link("edit")) { "Edit" }
                a href=(visit.here(&format!("/deliveries?endpoint={}", endpoint.id))) { "Its deliveries" }
                a href=(visit.here(&format!("/dead-letters?endpoint={}", endpoint.id))) { "Its dead letters" }
            }
        }
    }
}

fn shown_failures(
    visit: &PageRequest,
    endpoint: &Endpoint,
    health: &Health,
    failures: &[Delivery],
) -> Markup {
    let held = visit.here(&format!("/deliveries?endpoint={}&status=held", endpoint.id));
    let all = visit.here(&format!(
        "/deliveries?endpoint={}&status=failed",
        endpoint.id
    ));
    html! {
        h2 { "Last errors" }
        @if failures.is_empty() && health.consecutive_failures > 0 {
            p.empty { "The last attempts failed. What they were for waits: " a href=(held) { "look at what is held" } "." }
        } @else if failures.is_empty() {
            (empty("No delivery to this endpoint has failed lately."))
        } @else {
            table.stack {
                caption.unseen { "Deliveries that failed or are being retried, newest first" }
                thead { tr {
                    th scope="col" { "Delivery" } th scope="col" { "Status" } th scope="col" { "Event" }
                    th scope="col" { "What went wrong" } th scope="col" { "Since" }
                } }
                tbody { @for delivery in failures { tr {
                    th scope="row" { a href=(visit.here(&format!("/deliveries/{}", delivery.id))) { code { (delivery.id) } } }
                    td data-label="Status" { (delivery_badge(&delivery.status)) }
                    td data-label="Event" { (delivery.event_type) }
                    td.words data-label="What went wrong" { (wrong_in_words(delivery.last_error.as_ref())) }
                    td data-label="Since" { (time(&delivery.created_at)) }
                } } }
            }
            p { a href=(all) { "All that failed" } }
        }
    }
}

fn wrong_in_words(error: Option<&LastError>) -> String {
    match error {
        None => "not tried yet".to_owned(),
        Some(error) => {
            let what = match (error.kind.as_str(), error.status_code) {
                ("http", Some(code)) => format!("answered {code}"),
                (kind, _) => in_words(kind),
            };
            match error.detail.is_empty() {
                true => what,
                false => format!("{what}: {}", error.detail),
            }
        }
    }
}

fn settings(visit: &PageRequest, endpoint: &Endpoint) -> Markup {
    let names: Vec<&str> = endpoint.headers.keys().map(String::as_str).collect();
    let style = match endpoint.signature_style.as_str() {
        "github" => "Standard Webhooks, and as GitHub signs",
        "stripe" => "Standard Webhooks, and as Stripe signs",
        _ => "Standard Webhooks",
    };
    let auth = endpoint
        .auth
        .as_ref()
        .and_then(|auth| auth["kind"].as_str());
    html! {
        div.card {
            h2 { "Settings" }
            dl.facts {
                dt { "Id" } dd { (copied(&endpoint.id, "the id")) }
                dt { "Takes" } dd { (endpoint.types()) }
                dt { "Time limit" } dd { (endpoint.timeout) " for each attempt" }
                dt { "In flight" } dd { "at most " (endpoint.max_in_flight) " at once" }
                dt { "Rate" } dd { "at most " (endpoint.rate()) }
                dt { "Order" } dd {
                    @if endpoint.ordered { "one after the other, for each ordering key" }
                    @else { "as they come" }
                }
                dt { "Signatures" } dd { (style) }
                dt { "Own headers" } dd {
                    @if names.is_empty() { "none" } @else { (names.join(", ")) span.hint { " (values are shown when it is edited)" } }
                }
                dt { "Authorization" } dd { (auth.map_or("none".to_owned(), in_words)) }
                dt { "Client certificate" } dd {
                    @match &endpoint.client_certificate {
                        None => { "none" }
                        Some(shown) => {
                            code { (shown["fingerprint"].as_str().unwrap_or("unknown")) }
                            @if let Some(end) = shown["expires_at"].as_str() { ", expires " (time(end)) }
                        }
                    }
                }
                dt { "Owner" } dd { (endpoint.owner_email.as_deref().unwrap_or("nobody is named")) }
                dt { "Created" } dd { (time(&endpoint.created_at)) }
            }
            div.actions { a.button href=(visit.here(&format!("/endpoints/{}/edit", endpoint.id))) { "Edit" } }
        }
    }
}

fn missed(visit: &PageRequest, since: &str, wrong: &Wrong) -> Markup {
    let field = Field {
        name: "since",
        label: "Since (UTC)",
        hint: "Every event from then on that it wants and never got is sent now, paced like any other traffic.",
        value: since,
        wrong,
    };
    html! {
        div.card #missed-form {
            h2 { "Replay what it missed" }
            (wrong.summary())
            form.narrow method="post" action=(visit.here(&format!("{}/missed", path(visit)))) {
                (csrf(visit))
                (field.line("datetime-local"))
                div.actions { button type="submit" { "Replay what it missed" } }
            }
        }
    }
}

fn secret(visit: &PageRequest) -> Markup {
    let link = |verb: &str| visit.here(&format!("{}/{verb}", path(visit)));
    let none = Wrong::default();
    let overlap = Field {
        name: "overlap",
        label: "Earlier secrets sign along for",
        hint: "Give receivers this long to change over: 24h, 7d; 0s ends the earlier ones at once.",
        value: "24h",
        wrong: &none,
    };
    html! {
        div.card {
            h2 { "Signing secret" }
            p { "Receivers verify with it that deliveries come from here." }
            (act(visit, &link("secret"), "", "Show the secret"))
            form.narrow.spaced method="post" action=(link("rotate")) data-ask="Really change the secret for a new one?" {
                (csrf(visit))
                (overlap.line("text"))
                div.actions { button type="submit" { "Rotate the secret" } }
            }
        }
    }
}

fn danger(visit: &PageRequest) -> Markup {
    let link = |verb: &str| visit.here(&format!("{}/{verb}", path(visit)));
    html! {
        div.card {
            h2 { "Stop sending" }
            p.hint {
                "Pausing holds deliveries and loses none. Disabling fails what waits; it can be replayed after enabling. Deleting ends it for good; its history stays until it ages out."
            }
            div.actions {
                // Each leads to a page that asks for confirmation.
                (act(visit, &link("disable"), "danger", "Disable…"))
                (act(visit, &link("delete"), "danger", "Delete…"))
            }
        }
    }
}
