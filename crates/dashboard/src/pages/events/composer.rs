//! The forms that send an event, and a test event to one endpoint, with a payload of the visitor's choice.
//!
//! The payload is sent byte for byte as it was typed, without surrounding white space. An event for one endpoint is a
//! test event: it is delivered to that endpoint only, whatever the endpoint subscribes to.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{AcceptedEvent, Delivery, Endpoint, Event};
use posthaste_api::route::Verb;
use posthaste_core::delivery::Status;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::components::{FieldErrors, csrf_field};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::{PageRequest, page_not_found};
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::pages::form_values::{FormValues, filled};

/// Names of the form fields. All but `endpoint` are fields of the API.
const FIELDS: [&str; 6] = [
    "type",
    "payload",
    "endpoint",
    "delay",
    "ordering_key",
    "idempotency_key",
];
/// Payload that the form begins with.
const EXAMPLE_PAYLOAD: &str = "{\n  \"message\": \"Hello from posthaste\"\n}";
/// Type of a test event, unless another one is typed.
const TEST_TYPE: &str = "posthaste.test";

/// The document of an event. Empty fields are absent.
#[derive(Serialize)]
struct NewEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

/// The form that sends an event. The portal has none: events come from the operator's application.
pub(super) async fn new(request: PageRequest) -> Result<PageResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    let mut values = FormValues::default();
    values.set("type", request.query("type"));
    values.set("endpoint", request.query("endpoint"));
    values.set("payload", copied_payload(&request).await?);
    Ok(event_page(&request, &values, &FieldErrors::default())
        .await?
        .into())
}

/// Returns the payload of the event to copy, or an example.
async fn copied_payload(request: &PageRequest) -> Result<String, Problem> {
    let copy = request.query("copy");
    if copy.is_empty() {
        return Ok(EXAMPLE_PAYLOAD.to_owned());
    }
    let path = format!("/events/{}", crate::urls::url_encoded(copy));
    let event: Event = request.tenant_get(&path).await?;
    let payload = event
        .payload
        .filter(|_| event.summary.payload_removed_at.is_none());
    Ok(payload.map_or_else(
        || EXAMPLE_PAYLOAD.to_owned(),
        |payload| payload.get().to_owned(),
    ))
}

async fn event_page(
    request: &PageRequest,
    values: &FormValues,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let endpoints = EndpointLookup::newest(request).await?;
    let field = |name, label, hint| values.field(name, label, hint, errors);
    let mut choices = vec![("", "All subscribed endpoints")];
    let mut known: Vec<(&str, &str)> = endpoints.choices().collect();
    known.sort_unstable_by_key(|(id, url)| (*url, *id));
    choices.extend(known);
    let is_advanced = ["delay", "ordering_key", "idempotency_key"]
        .iter()
        .any(|name| !values.get(name).is_empty() || errors.message(name).is_some());
    let hint = "If you choose one endpoint, it gets a test event regardless of its subscriptions, and the options below do not apply.";
    let body = html! {
        (errors.summary())
        form.card.narrow method="post" action=(request.tenant_link("/events/new")) {
            (csrf_field(request))
            (field("type", "Event type", "For example invoice.paid.").line("text"))
            (field("payload", "Payload", "JSON. It is sent exactly as typed.").lines(8))
            @if endpoints.has_more {
                (field("endpoint", "Endpoint", "Id of one endpoint. Empty means all subscribed endpoints.").line("text"))
            } @else {
                (field("endpoint", "Endpoint", hint).choice(&choices))
            }
            details #advanced open[is_advanced] {
                summary { "Options: delay, ordering, idempotency" }
                (field("delay", "Delay", "A duration, for example 10m. Empty means immediately.").line("text"))
                (field("ordering_key", "Ordering key", "Endpoints with ordered delivery receive events with the same key in order.").line("text"))
                (field("idempotency_key", "Idempotency key", "Requests with the same key create only one event.").line("text"))
            }
            div.actions {
                button.primary type="submit" { "Send event" }
                a href=(request.tenant_link("/events")) { "Cancel" }
            }
        }
    };
    Ok(Page::new(Tab::Events, "Send event")
        .breadcrumb("Events", request.tenant_link("/events"))
        .static_section("form", body)
        .with_status(errors.status()))
}

pub(super) async fn send(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    let values = FormValues::read(&form, FIELDS.into_iter());
    let endpoint = values.get("endpoint");
    let sent = match endpoint {
        "" => accept(&request, "/events", &values).await,
        endpoint => {
            let path = format!("/endpoints/{}/test", crate::urls::url_encoded(endpoint));
            accept(&request, &path, &values).await
        }
    };
    match sent {
        Ok(accepted) => {
            let message = match endpoint {
                "" => FlashMessage::EventSent,
                _ => FlashMessage::Tested,
            };
            after(&request, &accepted, message).await
        }
        Err(problem) => {
            let errors = errors_in_form(problem, !endpoint.is_empty())?;
            Ok(ActionResult::Page(
                event_page(&request, &values, &errors).await?,
            ))
        }
    }
}

/// The form that sends a test event to one endpoint.
pub(super) async fn new_test(request: PageRequest) -> Result<PageResult, Problem> {
    let mut values = FormValues::default();
    values.set("type", TEST_TYPE);
    values.set("payload", EXAMPLE_PAYLOAD);
    Ok(test_page(&request, &values, &FieldErrors::default())
        .await?
        .into())
}

async fn test_page(
    request: &PageRequest,
    values: &FormValues,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let path = format!("/endpoints/{}", request.path_param("endpoint"));
    let endpoint: Endpoint = request.tenant_get(&path).await?;
    let link = request.tenant_link(&path);
    let field = |name, label, hint| values.field(name, label, hint, errors);
    let body = html! {
        (errors.summary())
        form.card.narrow method="post" action={ (link) "/test" } {
            (csrf_field(request))
            p.hint { "The event is sent to this endpoint only, regardless of its subscriptions." }
            (field("type", "Event type", "").line("text"))
            (field("payload", "Payload", "JSON. It is sent exactly as typed.").lines(8))
            div.actions {
                button.primary type="submit" { "Send test event" }
                a href=(link) { "Cancel" }
            }
        }
    };
    Ok(Page::new(Tab::Endpoints, "Send test event")
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .breadcrumb(endpoint.url, link)
        .static_section("form", body)
        .with_status(errors.status()))
}

/// Sends a test event: with the usual content if the form has no fields.
pub(super) async fn send_test(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let values = FormValues::read(&form, FIELDS.into_iter());
    let path = format!("/endpoints/{}/test", request.path_param("endpoint"));
    match accept(&request, &path, &values).await {
        Ok(accepted) => after(&request, &accepted, FlashMessage::Tested).await,
        Err(problem) => {
            let errors = errors_in_form(problem, false)?;
            Ok(ActionResult::Page(
                test_page(&request, &values, &errors).await?,
            ))
        }
    }
}

/// Sends the event to the API.
async fn accept(
    request: &PageRequest,
    path: &str,
    values: &FormValues,
) -> Result<AcceptedEvent, Problem> {
    let is_test = path.ends_with("/test");
    let payload = values.get("payload");
    let payload = match filled(payload) {
        None => None,
        Some(text) => {
            let payload: &RawValue = serde_json::from_str(text).map_err(|error| {
                Problem::invalid_field("payload", format!("is not valid JSON: {error}"))
            })?;
            Some(payload)
        }
    };
    let option = |name| filled(values.get(name)).filter(|_| !is_test);
    let event = NewEvent {
        r#type: filled(values.get("type")),
        payload,
        delay: option("delay"),
        ordering_key: option("ordering_key"),
        idempotency_key: option("idempotency_key"),
    };
    let document = serde_json::to_vec(&event).map_err(|error| Problem::internal(&error))?;
    let target = format!("/v1/tenants/{}{path}", request.tenant());
    request
        .call_with(Verb::Post, &target, Some(document.into()))
        .await
}

/// Redirects to the only delivery of the event, or else to the event.
async fn after(
    request: &PageRequest,
    accepted: &AcceptedEvent,
    message: FlashMessage,
) -> Result<ActionResult, Problem> {
    let [only] = accepted.deliveries.as_slice() else {
        return request.redirect(&format!("/events/{}", accepted.id), message);
    };
    let path = format!("/deliveries/{}", only.id);
    let delivery: Delivery = request.tenant_get(&path).await?;
    let message = match (message, delivery.status) {
        (FlashMessage::Tested, Status::Held) => FlashMessage::TestHeld,
        (message, _) => message,
    };
    request.redirect(&path, message)
}

/// Returns the errors of a problem that can be shown in the form.
fn errors_in_form(problem: Problem, has_endpoint: bool) -> Result<FieldErrors, Problem> {
    match problem.status {
        StatusCode::NOT_FOUND if has_endpoint => {
            Ok(FieldErrors::default().with("endpoint", "no longer exists"))
        }
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::CONFLICT => {
            Ok(FieldErrors::of_fields(&problem, &FIELDS))
        }
        _ => Err(problem),
    }
}

/// Renders the buttons that send a test event, for the page of an endpoint.
pub(in crate::pages) fn test_buttons(request: &PageRequest, endpoint: &str, class: &str) -> Markup {
    let link = request.tenant_link(&format!("/endpoints/{endpoint}/test"));
    html! {
        (crate::components::action_button(request, &link, class, "Send test event"))
        a.button href=(link) { "Test with payload…" }
    }
}
