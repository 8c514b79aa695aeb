//! Routes and schemas of events.

use serde_json::{Value, json};

use super::super::code::Code;
use super::super::route::{
    Access, CURSOR, Content, Group, LIMIT, Parameter, RequestBody, Route, Schema, SuccessResponse,
    Verb,
};
use super::{MAX_BATCH, MAX_TEXT_CHARS, accept, accept_batch, get, list, test};

pub(crate) static GROUP: Group = Group {
    name: "Events",
    about: "What an application hands over. Each event makes one delivery for every endpoint that wants its type.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/events",
            name: "create_event",
            summary: "Accepts an event. It is on stable storage when the answer comes. The idempotency key may also come in the header `Idempotency-Key`. The headers `traceparent` and `tracestate` (W3C Trace Context) are kept with the event and told to its receivers.",
            access: Access::TenantKey,
            query: &[],
            takes: RequestBody::Json("NewEvent"),
            gives: &[ACCEPTED, REPEATED],
            fails: REFUSALS,
            handler: |call| Box::pin(accept(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/events",
            name: "list_events",
            summary: "Lists events, the newest first, without their payloads.",
            access: Access::Tenant,
            query: &[LIMIT, CURSOR, TYPE, EVENT_TYPE, SINCE, UNTIL],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "A page of events.",
                content: Content::List("EventSummary"),
            }],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/events/batch",
            name: "create_events",
            summary: "Accepts up to 1,000 events, all or none. A bare list is taken too. The headers `traceparent` and `tracestate` hold for all of them.",
            access: Access::TenantKey,
            query: &[],
            takes: RequestBody::Json("NewEvents"),
            gives: &[
                SuccessResponse {
                    status: 202,
                    about: "All are accepted; those with a known idempotency key are the ones there were.",
                    content: Content::Json("AcceptedEvents"),
                },
                SuccessResponse {
                    status: 200,
                    about: "All were there already.",
                    content: Content::Json("AcceptedEvents"),
                },
            ],
            fails: REFUSALS,
            handler: |call| Box::pin(accept_batch(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/events/{event}",
            name: "get_event",
            summary: "Shows an event, what it carries, and what became of its deliveries (the first 1,000).",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "The event.",
                content: Content::Json("Event"),
            }],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/endpoints/{endpoint}/test",
            name: "test_endpoint",
            summary: "Sends a test event to one endpoint, whatever it subscribed to.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("TestEvent"),
            gives: &[ACCEPTED],
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

const ACCEPTED: SuccessResponse = SuccessResponse {
    status: 202,
    about: "The event is accepted.",
    content: Content::Json("AcceptedEvent"),
};

const REPEATED: SuccessResponse = SuccessResponse {
    status: 200,
    about: "The event was accepted before, under the same idempotency key; this is what was answered then.",
    content: Content::Json("AcceptedEvent"),
};

const REFUSALS: &[(u16, Code)] = &[
    (409, Code::IdempotencyConflict),
    (403, Code::QuotaExceeded),
    (413, Code::QuotaExceeded),
    (429, Code::QuotaExceeded),
];

const TYPE: Parameter = Parameter {
    name: "type",
    about: "Only events of this type.",
    shape: text,
};

/// The `event_type` parameter of lists.
pub(crate) const EVENT_TYPE: Parameter = Parameter {
    name: "event_type",
    about: "Only of this type.",
    shape: text,
};

/// The `since` parameter of lists.
pub(crate) const SINCE: Parameter = Parameter {
    name: "since",
    about: "Only what was accepted at this time or later.",
    shape: time,
};

/// The `until` parameter of lists.
pub(crate) const UNTIL: Parameter = Parameter {
    name: "until",
    about: "Only what was accepted before this time.",
    shape: time,
};

fn text() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn short_text(about: &str) -> Value {
    json!({
        "type": ["string", "null"], "minLength": 1, "maxLength": MAX_TEXT_CHARS, "description": about,
    })
}

fn schemas() -> Vec<Schema> {
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
                        "items": {"$ref": "#/components/schemas/NewEvent"},
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
                    "type": {"type": "string", "default": "posthaste.test"},
                    "payload": {"description": "Any JSON value."},
                },
                "additionalProperties": false,
                "examples": [{}],
            }),
        },
        Schema {
            name: "AcceptedEvent",
            shape: accepted_event(),
        },
        Schema {
            name: "AcceptedEvents",
            shape: json!({
                "type": "object",
                "required": ["data"],
                "properties": {
                    "data": {
                        "type": "array",
                        "items": {"$ref": "#/components/schemas/AcceptedEvent"},
                    },
                },
                "additionalProperties": false,
            }),
        },
        Schema {
            name: "EventSummary",
            shape: event(false),
        },
        Schema {
            name: "Event",
            shape: event(true),
        },
    ]
}

fn new_event() -> Value {
    json!({
        "type": "object",
        "description": "Either `payload`, or `body_base64` with its `content_type`.",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "description": "Names joined by dots."},
            "payload": {"description": "Any JSON value. It is sent byte for byte as it was received."},
            "body_base64": {
                "type": ["string", "null"], "contentEncoding": "base64", "description": "Raw bytes.",
            },
            "content_type": short_text("What the raw bytes are; `application/octet-stream` if absent."),
            "idempotency_key": short_text("The same key makes one event."),
            "deliver_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "Not before this. At most a year ahead; what lies in the past is now.",
            },
            "ordering_key": short_text("Where the endpoint asks for it, events with the same key are delivered in order."),
        },
        "additionalProperties": false,
        "examples": [{
            "type": "invoice.paid",
            "payload": {"invoice": "in_42", "amount": 1200},
            "idempotency_key": "in_42-paid",
        }],
    })
}

fn accepted_event() -> Value {
    json!({
        "type": "object",
        "required": ["id", "type", "created_at", "deliveries"],
        "properties": {
            "id": text(),
            "type": text(),
            "created_at": time(),
            "deliveries": {
                "type": "array",
                "description": "One for every endpoint that wanted it.",
                "items": {
                    "type": "object",
                    "required": ["id", "endpoint_id", "status"],
                    "properties": {"id": text(), "endpoint_id": text(), "status": {"const": "pending"}},
                    "additionalProperties": false,
                },
            },
        },
        "additionalProperties": false,
        "examples": [{
            "id": "evt_01kb2k5x8c0000r4q0m1v9t3zz",
            "type": "invoice.paid",
            "created_at": "2026-11-15T12:00:00.000Z",
            "deliveries": [{
                "id": "dlv_01kb2k5x8c0001jx5n8h2w6c4d",
                "endpoint_id": "ep_01kb2k1d2e0000f7s9y4b8k6q2",
                "status": "pending",
            }],
        }],
    })
}

fn event(whole: bool) -> Value {
    let mut shape = json!({
        "type": "object",
        "required": ["id", "type", "created_at", "deliver_at", "idempotency_key", "trace_id", "payload_removed_at", "delivery_count"],
        "properties": {
            "id": text(),
            "type": text(),
            "created_at": time(),
            "deliver_at": {"type": ["string", "null"], "format": "date-time"},
            "idempotency_key": {"type": ["string", "null"]},
            "trace_id": {
                "type": ["string", "null"],
                "description": "The trace that it belongs to, as the `traceparent` said that it came with. Its attempts carry on the same one.",
            },
            "payload_removed_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "When what it carried was removed, as `payload_retention` says. It cannot be sent again since.",
            },
            "delivery_count": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": false,
    });
    if whole {
        let properties = &mut shape["properties"];
        properties["payload"] = json!({"description": "What it carries, if it came as JSON; `null` if that has been removed."});
        properties["body_base64"] =
            json!({"type": "string", "description": "What it carries, if it came as raw bytes."});
        properties["content_type"] =
            json!({"type": "string", "description": "What the raw bytes are."});
        properties["deliveries"] = json!({
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "endpoint_id", "status"],
                "properties": {
                    "id": text(),
                    "endpoint_id": text(),
                    "status": {"$ref": "#/components/schemas/DeliveryStatus"},
                },
                "additionalProperties": false,
            },
        });
    }
    shape
}
