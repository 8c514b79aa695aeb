//! Routes and schemas of events.
//!
//! [`GROUP`] is their part of the route table; the handlers are in the parent module. The schemas of requests are here,
//! because requests have no type. Those of responses are beside the types in [`resources`](crate::resources).

use posthaste_core::id::EventId;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::due::MAX_AHEAD;
use super::{MAX_BATCH, MAX_TEXT_CHARS, accept, accept_batch, get, list, test};
use crate::code::Code;
use crate::resources::schema::{described, event_type, nullable, reference, span, time};
use crate::resources::{Schema, event_schemas, patterns};
use crate::route::{
    Access, Content, Group, LIMIT, Parameter, RequestBody, Route, SuccessResponse, Verb, cursor,
    parameter, success,
};

pub(crate) static GROUP: Group = Group {
    name: "Events",
    about: "Events that an application sends. Each event creates one delivery for every endpoint that is subscribed to its type.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/events",
            name: "create_event",
            summary: "Accepts an event. It is persisted before the response, which lists its first 100 deliveries. The idempotency key may also be sent in the header `Idempotency-Key`. The headers `traceparent` and `tracestate` (W3C Trace Context) are stored with the event and sent to its receivers.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("NewEvent"),
            responses: &[ACCEPTED, REPEATED],
            fails: ACCEPT_ERRORS,
            handler: |call| Box::pin(accept(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/events",
            name: "list_events",
            summary: "Lists events, newest first, without their payloads.",
            access: Access::Tenant,
            query: &[LIMIT, cursor::<EventId>(), TYPE, EVENT_TYPE, SINCE, UNTIL],
            request_body: RequestBody::Nothing,
            responses: &[success(
                200,
                "A page of events.",
                Content::List("EventSummary"),
            )],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/events/batch",
            name: "create_events",
            summary: "Accepts up to 1,000 events; either all are accepted or none. The body may also be a plain list of events. The headers `traceparent` and `tracestate` apply to all events.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("NewEvents"),
            responses: &[
                success(
                    202,
                    "All events are accepted. For a known idempotency key the existing event is returned.",
                    Content::Json("AcceptedEvents"),
                ),
                success(
                    200,
                    "All events were accepted before, with the same idempotency keys.",
                    Content::Json("AcceptedEvents"),
                ),
            ],
            fails: ACCEPT_ERRORS,
            handler: |call| Box::pin(accept_batch(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/events/{event}",
            name: "get_event",
            summary: "Returns an event, its payload and its newest 1,000 deliveries.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The event.", Content::Json("Event"))],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/endpoints/{endpoint}/test",
            name: "test_endpoint",
            summary: "Sends a test event to one endpoint, regardless of its subscriptions.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("TestEvent"),
            responses: &[ACCEPTED],
            fails: &[
                (409, Code::EndpointDisabled),
                (403, Code::QuotaExceeded),
                (413, Code::QuotaExceeded),
                (429, Code::QuotaExceeded),
            ],
            handler: |call| Box::pin(test(call)),
        },
    ],
    schemas,
};

const ACCEPTED: SuccessResponse = success(
    202,
    "The event is accepted.",
    Content::Json("AcceptedEvent"),
);

const REPEATED: SuccessResponse = success(
    200,
    "The event was accepted before with the same idempotency key; this is the original response.",
    Content::Json("AcceptedEvent"),
);

/// Refusals of a request that sends events.
pub(crate) const ACCEPT_ERRORS: &[(u16, Code)] = &[
    (409, Code::IdempotencyConflict),
    (403, Code::QuotaExceeded),
    (413, Code::QuotaExceeded),
    (422, Code::TooManyDeliveries),
    (429, Code::QuotaExceeded),
];

const TYPE: Parameter = parameter("type", "Only events of this type.", event_type);

/// The `event_type` parameter of lists.
pub(crate) const EVENT_TYPE: Parameter =
    parameter("event_type", "Only events of this type.", event_type);

/// The `since` parameter of lists.
pub(crate) const SINCE: Parameter =
    parameter("since", "Only events accepted at this time or later.", time);

/// The `until` parameter of lists.
pub(crate) const UNTIL: Parameter =
    parameter("until", "Only events accepted before this time.", time);

/// A short text or null.
pub(crate) fn short_text(about: &str) -> Value {
    json!({
        "type": ["string", "null"], "minLength": 1, "maxLength": MAX_TEXT_CHARS,
        "pattern": patterns::VISIBLE_TEXT, "description": about,
    })
}

fn schemas() -> Vec<Schema> {
    let mut schemas = request_schemas();
    schemas.extend(event_schemas());
    schemas
}

fn request_schemas() -> Vec<Schema> {
    let mut test_type = event_type();
    test_type["default"] = json!("posthaste.test");
    vec![
        Schema {
            name: "NewEvent",
            shape: new_event(),
        },
        Schema {
            name: "NewEvents",
            shape: json!({
                "type": "object",
                "required": ["events"],
                "properties": {
                    "events": {
                        "type": "array", "minItems": 1, "maxItems": MAX_BATCH,
                        "items": reference("NewEvent"),
                    },
                },
                "additionalProperties": false,
                "examples": [{"events": [{"type": "invoice.paid", "payload": {"amount": 42}}]}],
            }),
        },
        Schema {
            name: "TestEvent",
            shape: json!({
                "type": "object",
                "properties": {
                    "type": test_type,
                    "payload": {"description": "Any JSON value."},
                },
                "additionalProperties": false,
                "examples": [{}],
            }),
        },
    ]
}

/// The schema of raw bytes.
pub(crate) fn body_base64() -> Value {
    json!({
        "type": ["string", "null"], "contentEncoding": "base64", "pattern": patterns::BASE64,
        "description": "Raw bytes.",
    })
}

/// The schema of the media type of raw bytes.
pub(crate) fn content_type() -> Value {
    json!({
        "type": ["string", "null"], "maxLength": MAX_TEXT_CHARS, "pattern": patterns::MEDIA_TYPE,
        "description": "Media type of the raw bytes; default `application/octet-stream`.",
    })
}

/// The schema of a delay.
pub(crate) fn delay(about: &str) -> Value {
    described(
        nullable(span("DeliveryDelay", Span::ZERO, MAX_AHEAD)),
        about,
    )
}

/// The combinations of fields that an event and a one-off request cannot have.
pub(crate) fn contradictions() -> [Value; 3] {
    [
        json!({"required": ["payload", "body_base64"], "properties": {"body_base64": {"type": "string"}}}),
        json!({
            "required": ["content_type"],
            "properties": {"content_type": {"type": "string"}, "body_base64": {"type": "null"}},
        }),
        json!({
            "required": ["deliver_at", "delay"],
            "properties": {"deliver_at": {"type": "string"}, "delay": {"type": "string"}},
        }),
    ]
}

pub(crate) fn new_event() -> Value {
    let [two_bodies, type_of_json, two_times] = contradictions();
    let no_body =
        json!({"not": {"required": ["payload"]}, "properties": {"body_base64": {"type": "null"}}});
    json!({
        "type": "object",
        "description": "Either `payload`, or `body_base64` with its `content_type`.",
        "not": {"anyOf": [two_bodies, type_of_json, two_times, no_body]},
        "required": ["type"],
        "properties": {
            "type": described(event_type(), "Names joined by dots."),
            "payload": {"description": "Any JSON value. It is sent byte for byte as received."},
            "body_base64": body_base64(),
            "content_type": content_type(),
            "idempotency_key": short_text("Requests with the same key create one event."),
            "deliver_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "The event is not delivered before this time. At most 365 days ahead; a time in the past means now.",
            },
            "delay": delay("The event is not delivered before this duration has passed. Cannot be combined with `deliver_at`."),
            "ordering_key": short_text("Events with the same key are delivered in order to endpoints with ordered delivery."),
        },
        "additionalProperties": false,
        "examples": [{
            "type": "invoice.paid",
            "payload": {"invoice": "in_42", "amount": 1200},
            "idempotency_key": "in_42-paid",
        }],
    })
}
