//! Routes and schemas of deliveries.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_store::MAX_RESPONSE_HEADERS;
use serde_json::{Value, json};

use super::super::code::Code;
use super::super::events::{EVENT_TYPE, SINCE, UNTIL};
use super::super::route::{
    Access, CURSOR, Content, Group, LIMIT, Parameter, RequestBody, Route, Schema, SuccessResponse,
    Verb, to_the_end,
};
use super::filter::STATUSES;
use super::{cancel, get, list, retry};

pub(crate) static GROUP: Group = Group {
    name: "Deliveries",
    about: "One event on its way to one endpoint: every attempt that was made, and every one still to come.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/deliveries",
            name: "list_deliveries",
            summary: "Lists deliveries, the newest first.",
            access: Access::Tenant,
            query: &[
                LIMIT,
                CURSOR,
                Parameter {
                    name: "status",
                    about: "Only with this status.",
                    shape: || json!({"enum": STATUSES.map(Status::name)}),
                },
                Parameter {
                    name: "endpoint",
                    about: "Only to this endpoint.",
                    shape: || json!({"type": "string"}),
                },
                Parameter {
                    name: "event",
                    about: "Only of this event.",
                    shape: || json!({"type": "string"}),
                },
                Parameter {
                    name: "id",
                    about: "Only those of this id: a delivery's, an event's or an endpoint's; or the beginning of a delivery's or an event's, of at least 4 characters after the prefix.",
                    shape: || json!({"type": "string"}),
                },
                EVENT_TYPE,
                Parameter {
                    name: "error_kind",
                    about: "Only those that failed last for this.",
                    shape: || json!({"enum": FailureKind::ALL.map(FailureKind::name)}),
                },
                SINCE,
                UNTIL,
            ],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "A page of deliveries.",
                content: Content::List("DeliverySummary"),
            }],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}",
            name: "get_delivery",
            summary: "Shows a delivery, its attempts, and those still to come if they fail.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "The delivery.",
                content: Content::Json("Delivery"),
            }],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}/retry",
            name: "retry_delivery",
            summary: "Tries a delivery again now: one that waits need not wait, one that has ended begins all over.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("Nothing"),
            gives: &[SuccessResponse {
                status: 202,
                about: "It is due now.",
                content: Content::Json("Delivery"),
            }],
            fails: &[
                (409, Code::DeliveryInProgress),
                (409, Code::EndpointDisabled),
                (409, Code::EndpointDeleted),
                (409, Code::PayloadGone),
            ],
            handler: |call| to_the_end(retry(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}/cancel",
            name: "cancel_delivery",
            summary: "Calls a delivery off that waits. One that was called off already stays so.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("Nothing"),
            gives: &[SuccessResponse {
                status: 200,
                about: "No attempt of it begins any more.",
                content: Content::Json("Delivery"),
            }],
            fails: &[
                (409, Code::DeliveryInProgress),
                (409, Code::AlreadyFinished),
            ],
            handler: |call| Box::pin(cancel(call)),
        },
    ],
    schemas,
};

fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "DeliveryStatus",
            shape: json!({"enum": STATUSES.map(Status::name)}),
        },
        Schema {
            name: "DeliverySummary",
            shape: delivery(false),
        },
        Schema {
            name: "Delivery",
            shape: delivery(true),
        },
    ]
}

fn text() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn maybe_time() -> Value {
    json!({"type": ["string", "null"], "format": "date-time"})
}

fn maybe_number() -> Value {
    json!({"type": ["integer", "null"]})
}

fn maybe_kind() -> Value {
    let mut kinds: Vec<Value> = FailureKind::ALL.map(|kind| json!(kind.name())).into();
    kinds.push(Value::Null);
    json!({"enum": kinds})
}

fn delivery(whole: bool) -> Value {
    let mut properties = json!({
        "id": text(),
        "event_id": text(),
        "event_type": text(),
        "endpoint_id": text(),
        "status": {"$ref": "#/components/schemas/DeliveryStatus"},
        "reason": {
            "enum": [
                "permanent", "exhausted", "expired", "endpoint_disabled", "endpoint_deleted",
                "unsafe_destination", null,
            ],
            "description": "Why it was given up.",
        },
        "attempt_count": {"type": "integer"},
        "max_attempts": {"type": "integer"},
        "created_at": time(),
        "next_attempt_at": maybe_time(),
        "give_up_at": time(),
        "finished_at": maybe_time(),
        "last_error": {
            "type": ["object", "null"],
            "required": ["kind", "status_code", "detail"],
            "properties": {"kind": maybe_kind(), "status_code": maybe_number(), "detail": text()},
            "additionalProperties": false,
        },
    });
    if whole {
        properties["attempts"] = json!({"type": "array", "items": object(json!({
            "number": {"type": "integer"},
            "trigger": {"enum": ["automatic", "manual", "probe"]},
            "started_at": time(),
            "finished_at": time(),
            "latency_ms": {"type": "integer"},
            "status_code": maybe_number(),
            "error_kind": maybe_kind(),
            "response_snippet": {"type": ["string", "null"]},
            "response_headers": {
                "type": ["object", "null"],
                "additionalProperties": text(),
                "maxProperties": MAX_RESPONSE_HEADERS,
                "description": "The headers of an answer that was not 2xx, by their names in lower case: several \
                    values joined by a comma, long ones cut, cookies and credentials left out. Null for a success, \
                    for an attempt without an answer, and where none were kept.",
            },
            "will_retry": {"type": "boolean"},
            "next_attempt_at": maybe_time(),
            "retry_after_ms": maybe_number(),
        }))});
        properties["timeline"] = json!({"type": "array", "items": object(json!({
            "number": {"type": "integer"},
            "earliest_at": time(),
            "expected_at": time(),
            "latest_at": time(),
        }))});
    }
    object(properties)
}

/// Returns the schema of an object with exactly these properties, all required.
fn object(properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().expect("an object").keys().collect();
    json!({
        "type": "object",
        "required": names,
        "properties": properties,
        "additionalProperties": false,
    })
}
