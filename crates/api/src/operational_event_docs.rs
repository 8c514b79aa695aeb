//! Operational events in the OpenAPI document.

use serde_json::{Map, Value, json};

use super::resources::schema::{choice, named, nullable};

/// Name of their schema.
pub(super) const SCHEMA: &str = "OperationalEvent";

/// Every operational event, and when it is sent.
const EVENTS: [(&str, &str); 8] = [
    (
        "endpoint.breaker_tripped",
        "The breaker of an endpoint tripped because the endpoint kept failing. `detail.reason` has the reason.",
    ),
    (
        "endpoint.recovered",
        "An endpoint whose breaker had tripped has recovered.",
    ),
    (
        "endpoint.disable_warning",
        "An endpoint will be disabled if it keeps failing. `detail.cause` has the cause.",
    ),
    (
        "endpoint.disabled",
        "posthaste disabled an endpoint. `detail.cause` has the cause.",
    ),
    (
        "delivery.failed",
        "Deliveries to an endpoint failed permanently. One event summarises a period. `detail` has `count`, `first_at`, `last_at`, `reasons` and `error_kinds` with their counts, and one `delivery_id` as an example.",
    ),
    (
        "alert.raised",
        "An alert was raised. `alert` is its name, `detail` has the values.",
    ),
    ("alert.resolved", "The alert was resolved."),
    (
        "email.limit_reached",
        "A tenant has reached its daily limit of emails to endpoint owners. More are dropped until 00:00 UTC.",
    ),
];

/// Returns the section `webhooks`.
pub(super) fn webhooks() -> Value {
    let webhooks = EVENTS.into_iter().map(|(name, about)| {
        let webhook = json!({"post": {
            "summary": about,
            "description": "Sent to the endpoints of the tenant set by `notices.tenant` in the configuration, signed and retried like any event. There are no events about that tenant itself.",
            "requestBody": {
                "required": true,
                "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{SCHEMA}")}}},
            },
            "responses": {"2XX": {"description": "Received."}},
        }});
        (name.to_owned(), webhook)
    });
    Value::Object(webhooks.collect::<Map<String, Value>>())
}

/// Returns the schema of an operational event.
pub(super) fn schema() -> Value {
    let maybe = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": [
            "type", "notice", "at", "tenant_id", "endpoint_id", "endpoint_url", "detail", "alert",
        ],
        "properties": {
            "type": choice("OperationalEventType", EVENTS.map(|(name, _)| name)),
            "notice": {
                "type": "integer",
                "description": "Increasing number. A notification that arrives twice has the same number.",
            },
            "at": {"type": "string", "format": "date-time"},
            "tenant_id": maybe,
            "endpoint_id": maybe,
            "endpoint_url": {
                "type": ["string", "null"],
                "description": "Without user, query and fragment, which may contain a token.",
            },
            "detail": {
                "type": "object",
                "description": "Reason, count and similar values. Members may be added.",
            },
            "alert": nullable(named("OperationalEventAlert", json!({
                "type": "object",
                "required": ["id", "name", "raised_at"],
                "properties": {"id": maybe, "name": maybe, "raised_at": maybe},
            }))),
        },
        "examples": [{
            "type": "endpoint.breaker_tripped", "notice": 17, "at": "2026-01-02T03:04:05.678Z",
            "tenant_id": "acme", "endpoint_id": "ep_01jd2kq8z3w5x7y9a1b2c3d4e5",
            "endpoint_url": "https://hooks.example.com/in",
            "detail": {"reason": "consecutive_failures"}, "alert": null,
        }],
    })
}
