//! The page of one delivery: status, attempts, next step, payload.
//!
//! The sections are in the modules beside this one. The possible action depends on the status of the delivery and of
//! its endpoint: [`PossibleAction`].

mod attempts;
mod curl;
pub(super) mod payload;
pub(super) mod status_text;

use http::StatusCode;
use maud::{Markup, PreEscaped, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Delivery, EndpointHealth, EndpointStatus, Event};
use posthaste_api::route::Verb;
use posthaste_core::delivery::Status;
use serde_json::Value;

use self::curl::{CurlRequest, PAYLOAD_FILE};
use super::endpoint_lookup::{self, EndpointLookup, EndpointSummary};
use crate::components::{action_button, copy_button, copyable, csrf_field, delivery_badge, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};

pub(super) const PAGES: &[Route<PageHandler>] =
    &[page_route!(Tenant, "/deliveries/{delivery}", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/deliveries/{delivery}/retry", retry),
    action_route!(Tenant, "/deliveries/{delivery}/cancel", cancel),
];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let delivery: Delivery = request.tenant_get(&path(&request, "")).await?;
    let mut lookup = EndpointLookup::empty();
    lookup.look_up_all(&request, [&delivery.summary]).await?;
    let endpoint = lookup.get(&delivery.endpoint_id);
    // A payload may be large and never changes, so live updates do not read it again.
    let event: Option<Event> = match request.cached_value.get() {
        Some(_) => None,
        None => Some(
            request
                .tenant_get(&format!("/events/{}", delivery.event_id))
                .await?,
        ),
    };
    let content_type = request.cached_value.get_or_init(|| {
        let content_type = event.as_ref().map(payload::content_type);
        content_type.unwrap_or_default().to_owned()
    });
    let health = health_if_held_back(&request, &delivery).await?;
    let title = format!("Delivery of {}", delivery.event_type);
    let page = Page::new(Tab::Deliveries, title)
        .breadcrumb("Deliveries", request.tenant_link("/deliveries"))
        .live(
            "now",
            status_section(&request, &delivery, endpoint, health.as_ref()),
        )
        .live("journey", attempt_charts(&request, &delivery))
        .live(
            "attempts",
            html! {
                (attempts::past_table(&delivery, content_type))
                (attempts::expected_table(&delivery, request.now))
            },
        );
    Ok(match &event {
        None => page,
        Some(event) => page
            .static_section("facts", facts_section(&request, &delivery, event, endpoint))
            .static_section("payload", payload::section(event))
            .static_section("curl", curl_section(&delivery, event, endpoint)),
    }
    .into())
}

/// Renders the attempts as charts, if there are any.
fn attempt_charts(request: &PageRequest, delivery: &Delivery) -> Markup {
    html! {
        h2 { "Attempts" }
        @for chart in attempts::charts(delivery, request.now) {
            div.picture tabindex="0" role="group" aria-label=(chart.title) {
                (PreEscaped(chart.draw().write_for_page()))
            }
        }
    }
}

fn path(request: &PageRequest, suffix: &str) -> String {
    format!("/deliveries/{}{suffix}", request.path_param("delivery"))
}

/// Returns the health of the delivery's endpoint, if something holds the delivery back.
async fn health_if_held_back(
    request: &PageRequest,
    delivery: &Delivery,
) -> Result<Option<EndpointHealth>, Problem> {
    let has_ended = delivery.status.is_terminal();
    if has_ended || delivery.status != Status::Held && delivery.held_back_by.is_none() {
        return Ok(None);
    }
    let path = format!("/endpoints/{}/health", delivery.endpoint_id);
    match request.tenant_get(&path).await {
        Ok(health) => Ok(Some(health)),
        // The endpoint was deleted, and its deliveries are about to be given up.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Renders the current status and the possible actions.
fn status_section(
    request: &PageRequest,
    delivery: &Delivery,
    endpoint: &EndpointSummary,
    health: Option<&EndpointHealth>,
) -> Markup {
    let link = |verb: &str| request.tenant_link(&path(request, verb));
    let endpoint_link = request.tenant_link(&format!("/endpoints/{}", delivery.endpoint_id));
    html! {
        div.card.verdict {
            p { (delivery_badge(delivery.status.name())) " " span.story { (status_text::summary(delivery, endpoint, health, request.now)) } }
            @match possible_action(delivery, endpoint) {
                PossibleAction::None => {}
                PossibleAction::EnableEndpoint => p.hint {
                    "The endpoint is disabled. " a href=(endpoint_link) { "Enable it" } " before you retry."
                }
                PossibleAction::EndpointDeleted => p.hint { "The endpoint was deleted, so this delivery cannot be sent." }
                PossibleAction::SendAgain => form.act method="post" action=(link("/retry")) data-ask="This delivery succeeded. Send it again?" {
                    (csrf_field(request))
                    button type="submit" { "Send again" }
                }
                PossibleAction::Retry(label) => div.actions {
                    (action_button(request, &link("/retry"), "primary", label))
                    @if !delivery.status.is_terminal() { (cancel_form(request, &link("/cancel"))) }
                }
            }
        }
    }
}

/// The action that is possible on a delivery.
enum PossibleAction {
    /// No action at the moment.
    None,
    /// No action until the endpoint is enabled again.
    EnableEndpoint,
    /// No action, because the endpoint is deleted.
    EndpointDeleted,
    /// Send a delivery again that succeeded.
    SendAgain,
    /// Retry it now; the button has this label.
    Retry(&'static str),
}

fn possible_action(delivery: &Delivery, endpoint: &EndpointSummary) -> PossibleAction {
    match (endpoint.status, delivery.status) {
        (_, Status::InProgress) => PossibleAction::None,
        (EndpointStatus::Deleted, _) => PossibleAction::EndpointDeleted,
        (EndpointStatus::Disabled, _) => PossibleAction::EnableEndpoint,
        (EndpointStatus::Enabled | EndpointStatus::Paused, Status::Succeeded) => {
            PossibleAction::SendAgain
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

fn cancel_form(request: &PageRequest, link: &str) -> Markup {
    html! {
        form.act method="post" action=(link) data-ask="Cancel this delivery? No more attempts are made." {
            (csrf_field(request))
            button.danger type="submit" { "Cancel delivery" }
        }
    }
}

fn facts_section(
    request: &PageRequest,
    delivery: &Delivery,
    event: &Event,
    endpoint: &EndpointSummary,
) -> Markup {
    html! {
        div.card {
            h2 { "Details" }
            dl.facts {
                dt { "Delivery" } dd { (copyable(&delivery.id, "delivery id")) }
                dt { "Event" }
                dd {
                    a href=(request.tenant_link(&format!("/events/{}", delivery.event_id))) { (event.r#type) } " "
                    (copyable(&delivery.event_id, "event id"))
                }
                @if delivery.request.is_some() {
                    dt { "Request" }
                    dd { (endpoint_lookup::destination(request, delivery, endpoint)) }
                } @else {
                    dt { "Endpoint" }
                    dd {
                        (endpoint_lookup::link(request, &delivery.endpoint_id, endpoint)) " "
                        (copyable(&delivery.endpoint_id, "endpoint id"))
                    }
                }
                dt { "Accepted" } dd { (time(&delivery.created_at)) }
                @if let Some(at) = &event.deliver_at { dt { "Scheduled for" } dd { (time(at)) } }
                @if let Some(key) = &event.idempotency_key { dt { "Idempotency key" } dd { code { (key) } } }
                dt { "Max attempts" } dd { (delivery.max_attempts) }
            }
        }
    }
}

/// Renders a command that repeats the delivery.
fn curl_section(delivery: &Delivery, event: &Event, endpoint: &EndpointSummary) -> Markup {
    let (method, url) = match &delivery.request {
        Some(target) => (target.method.as_str(), Some(&target.url)),
        None => ("POST", endpoint.url.as_ref()),
    };
    let Some(url) = url.filter(|_| event.payload_removed_at.is_none()) else {
        return html! {};
    };
    let next = delivery.attempt_count + 1;
    let mut headers: Vec<(&str, String)> =
        attempts::common_headers(delivery, payload::content_type(event), next);
    let own = endpoint.headers.iter();
    headers.extend(own.map(|(name, value)| (name.as_str(), value.clone())));
    let payload = payload::payload(event);
    let repeated = CurlRequest {
        method,
        url,
        headers,
        payload: &payload,
    };
    let command = repeated.command();
    html! {
        h2 { "Reproduce with curl" }
        p.hint {
            "The command is unsigned. A receiver that verifies signatures needs one computed over this body and a current "
            code { "webhook-timestamp" } "."
            @if delivery.request.is_some() { " Custom headers are not shown: they are encrypted." }
            @if repeated.needs_file() {
                " The payload is too long or not plain text: save it as " code { (PAYLOAD_FILE) } " first."
            }
        }
        div.over { (copy_button(&command, "command")) }
        pre tabindex="0" aria-label="curl command" { (command) }
    }
}

async fn retry(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let after: Delivery = request
        .tenant_call(Verb::Post, &path(&request, "/retry"), None)
        .await?;
    let message = match after.status {
        Status::Held => FlashMessage::NextInLine,
        Status::Pending
        | Status::Retrying
        | Status::InProgress
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled => FlashMessage::Retried,
    };
    request.redirect(&path(&request, ""), message)
}

async fn cancel(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let _: Value = request
        .tenant_call(Verb::Post, &path(&request, "/cancel"), None)
        .await?;
    request.redirect(&path(&request, ""), FlashMessage::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A delivery that failed three times and is waiting for a retry, with these changes.
    pub(super) fn delivery(change: Value) -> Delivery {
        let mut fields = json!({
            "id": "dlv_1", "event_id": "evt_1", "event_type": "invoice.paid", "endpoint_id": "ep_1",
            "status": "retrying", "reason": null, "attempt_count": 3, "max_attempts": 9,
            "created_at": "2026-11-15T12:00:00.000Z", "next_attempt_at": "2026-11-15T12:01:10.000Z",
            "give_up_at": "2026-11-15T13:00:00.000Z", "finished_at": null,
            "last_error": {"kind": "http", "status_code": 503, "detail": "answered 503"},
            "attempts": [{
                "number": 3, "trigger": "manual", "started_at": "2026-11-15T12:00:10.000Z",
                "finished_at": "2026-11-15T12:00:11.000Z", "latency_ms": 1012, "status_code": 503,
                "error_kind": "http", "detail": "the receiver answered 503", "response_snippet": "busy", "response_headers": null,
                "will_retry": true,
                "next_attempt_at": "2026-11-15T12:01:10.000Z", "retry_after_ms": 2000,
            }],
            "timeline": [
                {"number": 4, "earliest_at": "2026-11-15T12:01:10.000Z",
                 "expected_at": "2026-11-15T12:01:10.000Z", "latest_at": "2026-11-15T12:01:10.000Z"},
                {"number": 5, "earliest_at": "2026-11-15T12:01:40.000Z",
                 "expected_at": "2026-11-15T12:02:10.000Z", "latest_at": "2026-11-15T12:02:40.000Z"},
            ],
        });
        let changes = change.as_object().expect("changes are an object").clone();
        fields
            .as_object_mut()
            .expect("a delivery is an object")
            .extend(changes);
        serde_json::from_value(fields).expect("a valid delivery")
    }

    #[test]
    fn possible_action_depends_on_delivery_and_endpoint_status() {
        let action = |status: &str, endpoint_status| {
            let endpoint = EndpointSummary {
                url: None,
                status: endpoint_status,
                headers: BTreeMap::new(),
            };
            match possible_action(&delivery(json!({"status": status})), &endpoint) {
                PossibleAction::None => "wait",
                PossibleAction::EnableEndpoint => "enable",
                PossibleAction::EndpointDeleted => "gone",
                PossibleAction::SendAgain => "Send again, asked about",
                PossibleAction::Retry(label) => label,
            }
        };
        assert_eq!(action("failed", EndpointStatus::Enabled), "Send again");
        assert_eq!(action("held", EndpointStatus::Paused), "Retry now");
        assert_eq!(action("failed", EndpointStatus::Disabled), "enable");
        assert_eq!(action("failed", EndpointStatus::Deleted), "gone");
        assert_eq!(action("in_progress", EndpointStatus::Enabled), "wait");
    }
}
