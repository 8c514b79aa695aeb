//! One delivery: status, attempts, next step, payload.

pub(super) mod api_types;
mod attempts;
mod curl;
pub(super) mod payload;
pub(super) mod words;

use maud::{Markup, PreEscaped, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use posthaste_core::delivery::Status;
use serde::Deserialize;
use serde_json::Value;

use self::api_types::Delivery;
use self::curl::{CurlRequest, FILE};
use self::payload::Event;
use super::addresses::{self, EndpointLookup, EndpointStatus, EndpointSummary};
use super::{ActionHandler, At, PageHandler, Reach, at};
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{act, copied, copy, delivery_badge, time};
use crate::visit::PageRequest;

pub(super) const PAGES: &[At<PageHandler>] =
    &[at(Reach::Tenant, "/deliveries/{delivery}", |visit| {
        Box::pin(one(visit))
    })];

pub(super) const ACTIONS: &[At<ActionHandler>] = &[
    at(Reach::Tenant, "/deliveries/{delivery}/retry", |visit, _| {
        Box::pin(retry(visit))
    }),
    at(
        Reach::Tenant,
        "/deliveries/{delivery}/cancel",
        |visit, _| Box::pin(cancel(visit)),
    ),
];

async fn one(visit: PageRequest) -> Result<PageResult, Problem> {
    let delivery: Delivery = visit.get(&path(&visit, "")).await?;
    let mut addresses = EndpointLookup::none();
    let endpoint = delivery.endpoint_id.as_str();
    addresses.look_up(&visit, &[endpoint]).await?;
    let address = addresses.of(endpoint);
    // A payload may be large and never changes, so live updates do not read it again.
    let event: Option<Event> = match visit.known.get() {
        Some(_) => None,
        None => Some(visit.get(&format!("/events/{}", delivery.event_id)).await?),
    };
    let content_type = visit.known.get_or_init(|| {
        let content_type = event.as_ref().map(Event::content_type);
        content_type.unwrap_or_default().to_owned()
    });
    let probe_at = probe_at(&visit, &delivery, address).await?;
    let title = format!("Delivery of {}", delivery.event_type);
    let page = Page::new(Tab::Deliveries, title)
        .below("Deliveries", visit.here("/deliveries"))
        .live("now", now(&visit, &delivery, address, probe_at.as_deref()))
        .live("journey", journey(&visit, &delivery))
        .live(
            "attempts",
            html! {
                (attempts::past(&delivery, content_type))
                (attempts::coming(&delivery, visit.now))
            },
        );
    Ok(match &event {
        None => page,
        Some(event) => page
            .static_section("facts", facts(&visit, &delivery, event, address))
            .static_section("payload", payload::section(event))
            .static_section("curl", repeat(&delivery, event, address)),
    }
    .into())
}

/// Renders the attempts as charts, if there are any.
fn journey(visit: &PageRequest, delivery: &Delivery) -> Markup {
    html! {
        h2 { "Attempts" }
        @for picture in attempts::journeys(delivery, visit.now) {
            div.picture tabindex="0" role="group" aria-label=(picture.title) {
                (PreEscaped(picture.draw().write_for_page()))
            }
        }
    }
}

fn path(visit: &PageRequest, verb: &str) -> String {
    format!("/deliveries/{}{verb}", visit.name("delivery"))
}

#[derive(Deserialize)]
struct Health {
    breaker: Breaker,
}

#[derive(Deserialize)]
struct Breaker {
    until: Option<String>,
}

/// Returns the time of the next probe of a held delivery's endpoint, if it is known.
async fn probe_at(
    visit: &PageRequest,
    delivery: &Delivery,
    address: &EndpointSummary,
) -> Result<Option<String>, Problem> {
    if delivery.status != Status::Held || address.standing != EndpointStatus::Enabled {
        return Ok(None);
    }
    let path = format!("/endpoints/{}/health", delivery.endpoint_id);
    let health: Health = visit.get(&path).await?;
    Ok(health.breaker.until)
}

/// Renders the current status and the possible actions.
fn now(
    visit: &PageRequest,
    delivery: &Delivery,
    address: &EndpointSummary,
    probe_at: Option<&str>,
) -> Markup {
    let link = |verb: &str| visit.here(&path(visit, verb));
    let endpoint = visit.here(&format!("/endpoints/{}", delivery.endpoint_id));
    html! {
        div.card.verdict {
            p { (delivery_badge(delivery.status.name())) " " span.story { (words::story(delivery, address, probe_at, visit.now)) } }
            @match next_step(delivery, address) {
                PossibleAction::Wait => {}
                PossibleAction::Enable => p.hint {
                    "The endpoint is disabled: " a href=(endpoint) { "enable it" } " before you try again."
                }
                PossibleAction::EndpointDeleted => p.hint { "The endpoint is gone: this cannot be sent any more." }
                PossibleAction::Again => form.act method="post" action=(link("/retry")) data-ask="It was delivered. Send it once more?" {
                    (csrf(visit))
                    button type="submit" { "Send again" }
                }
                PossibleAction::Retry(word) => div.actions {
                    (act(visit, &link("/retry"), "primary", word))
                    @if !delivery.status.is_terminal() { (cancel_form(visit, &link("/cancel"))) }
                }
            }
        }
    }
}

/// The action that is possible on a delivery.
enum PossibleAction {
    /// None at the moment.
    Wait,
    /// None until the endpoint is enabled again.
    Enable,
    /// None, because the endpoint is deleted.
    EndpointDeleted,
    /// Send a delivery again that succeeded.
    Again,
    /// Retry it now; the button has this label.
    Retry(&'static str),
}

fn next_step(delivery: &Delivery, address: &EndpointSummary) -> PossibleAction {
    match (address.standing, delivery.status) {
        (_, Status::InProgress) => PossibleAction::Wait,
        (EndpointStatus::Unknown, _) => PossibleAction::EndpointDeleted,
        (EndpointStatus::Disabled, _) => PossibleAction::Enable,
        (EndpointStatus::Enabled | EndpointStatus::Paused, Status::Succeeded) => {
            PossibleAction::Again
        }
        (EndpointStatus::Enabled | EndpointStatus::Paused, Status::Failed | Status::Cancelled) => {
            PossibleAction::Retry("Send again")
        }
        (
            EndpointStatus::Enabled | EndpointStatus::Paused,
            Status::Pending | Status::Retrying | Status::Held,
        ) => PossibleAction::Retry("Retry now"),
    }
}

fn cancel_form(visit: &PageRequest, link: &str) -> Markup {
    html! {
        form.act method="post" action=(link) data-ask="Call this delivery off? Nothing more is sent." {
            (csrf(visit))
            button.danger type="submit" { "Cancel it" }
        }
    }
}

fn facts(
    visit: &PageRequest,
    delivery: &Delivery,
    event: &Event,
    address: &EndpointSummary,
) -> Markup {
    html! {
        div.card {
            h2 { "Facts" }
            dl.facts {
                dt { "Delivery" } dd { (copied(&delivery.id, "the id of the delivery")) }
                dt { "Event" }
                dd {
                    a href=(visit.here(&format!("/events/{}", delivery.event_id))) { (event.r#type) } " "
                    (copied(&delivery.event_id, "the id of the event"))
                }
                dt { "Endpoint" }
                dd {
                    (addresses::link(visit, &delivery.endpoint_id, address)) " "
                    (copied(&delivery.endpoint_id, "the id of the endpoint"))
                }
                dt { "Accepted" } dd { (time(&delivery.created_at)) }
                @if let Some(at) = &event.deliver_at { dt { "Scheduled for" } dd { (time(at)) } }
                @if let Some(key) = &event.idempotency_key { dt { "Idempotency key" } dd { code { (key) } } }
                dt { "Attempts allowed" } dd { (delivery.max_attempts) }
            }
        }
    }
}

/// Renders a command that repeats the delivery.
fn repeat(delivery: &Delivery, event: &Event, address: &EndpointSummary) -> Markup {
    let Some(url) = address
        .url
        .as_ref()
        .filter(|_| event.payload_removed_at.is_none())
    else {
        return html! {};
    };
    let next = delivery.attempt_count + 1;
    let mut headers: Vec<(&str, String)> = attempts::headers(delivery, event.content_type(), next);
    let own = address.headers.iter();
    headers.extend(own.map(|(name, value)| (name.as_str(), value.clone())));
    let payload = event.carried();
    let repeated = CurlRequest {
        url,
        headers,
        payload: &payload,
    };
    let command = repeated.command();
    html! {
        h2 { "Repeat it by hand" }
        p.hint {
            "It has no signature: a receiver that verifies wants one made anew, over this very body and a "
            code { "webhook-timestamp" } " of now."
            @if repeated.needs_file() {
                " The payload is too long or no plain text: save it as " code { (FILE) } " first."
            }
        }
        div.over { (copy(&command, "the command")) }
        pre tabindex="0" aria-label="A curl command" { (command) }
    }
}

async fn retry(visit: PageRequest) -> Result<ActionResult, Problem> {
    let after: Delivery = visit.act(Verb::Post, &path(&visit, "/retry"), None).await?;
    let done = match after.status {
        Status::Held => Done::NextInLine,
        Status::Pending
        | Status::Retrying
        | Status::InProgress
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled => Done::Retried,
    };
    Ok(ActionResult::Redirect(visit.here(&path(&visit, "")), done))
}

async fn cancel(visit: PageRequest) -> Result<ActionResult, Problem> {
    let _: Value = visit
        .act(Verb::Post, &path(&visit, "/cancel"), None)
        .await?;
    Ok(ActionResult::Redirect(
        visit.here(&path(&visit, "")),
        Done::Cancelled,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A delivery that failed three times and is waiting for a retry, with these changes.
    pub(super) fn delivery(change: Value) -> Delivery {
        let mut told = json!({
            "id": "dlv_1", "event_id": "evt_1", "event_type": "invoice.paid", "endpoint_id": "ep_1",
            "status": "retrying", "reason": null, "attempt_count": 3, "max_attempts": 9,
            "created_at": "2026-11-15T12:00:00.000Z", "next_attempt_at": "2026-11-15T12:01:10.000Z",
            "give_up_at": "2026-11-15T13:00:00.000Z", "finished_at": null,
            "last_error": {"kind": "http", "status_code": 503, "detail": "answered 503"},
            "attempts": [{
                "number": 3, "trigger": "manual", "started_at": "2026-11-15T12:00:10.000Z",
                "finished_at": "2026-11-15T12:00:11.000Z", "latency_ms": 1012, "status_code": 503,
                "error_kind": "http", "response_snippet": "busy", "will_retry": true,
                "next_attempt_at": "2026-11-15T12:01:10.000Z", "retry_after_ms": 2000,
            }],
            "timeline": [
                {"number": 4, "earliest_at": "2026-11-15T12:01:10.000Z",
                 "expected_at": "2026-11-15T12:01:10.000Z", "latest_at": "2026-11-15T12:01:10.000Z"},
                {"number": 5, "earliest_at": "2026-11-15T12:01:40.000Z",
                 "expected_at": "2026-11-15T12:02:10.000Z", "latest_at": "2026-11-15T12:02:40.000Z"},
            ],
        });
        let fields = told.as_object_mut().expect("an object");
        fields.extend(change.as_object().expect("an object").clone());
        serde_json::from_value(told).expect("a delivery")
    }

    #[test]
    fn what_can_be_done_follows_from_both_how_it_is_and_where_it_goes() {
        let step = |status: &str, standing| {
            let address = EndpointSummary {
                url: None,
                standing,
                headers: BTreeMap::new(),
            };
            match next_step(&delivery(json!({"status": status})), &address) {
                PossibleAction::Wait => "wait",
                PossibleAction::Enable => "enable",
                PossibleAction::EndpointDeleted => "gone",
                PossibleAction::Again => "Send again, asked about",
                PossibleAction::Retry(word) => word,
            }
        };
        assert_eq!(step("failed", EndpointStatus::Enabled), "Send again");
        assert_eq!(step("held", EndpointStatus::Paused), "Retry now");
        assert_eq!(step("failed", EndpointStatus::Disabled), "enable");
        assert_eq!(step("failed", EndpointStatus::Unknown), "gone");
        assert_eq!(step("in_progress", EndpointStatus::Enabled), "wait");
    }
}
