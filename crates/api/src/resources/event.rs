//! Events, in lists, with their payload, and in the response that acknowledges them.
//!
//! [`EventSummary`] is an event in a list, [`Event`] adds payload and deliveries, and [`AcceptedEvent`] acknowledges a
//! new one. Payloads of any JSON value are kept as they are, `null` included.

use std::ops::Deref;

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_core::delivery::Status;
use posthaste_store::{MAX_DELIVERIES_OF_STORED, StoredEvent};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::schema::{
    Schema, named, nullable_text, nullable_time, object, reference, text, time, with_examples,
};

/// Maximum number of deliveries shown with an event. The list of deliveries returns all of them with `?event=`.
pub const MAX_DELIVERIES_SHOWN: usize = 1_000;
/// Maximum number of deliveries of each event in the response that acknowledges it.
pub const MAX_DELIVERIES_ACKNOWLEDGED: usize = MAX_DELIVERIES_OF_STORED;
/// Maximum number of deliveries of all events together in the response that acknowledges a batch. A batch may name events
/// that were accepted before, which have any number of deliveries.
pub const MAX_DELIVERIES_OF_BATCH: usize = 10_000;

/// An event without its payload, as in lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSummary {
    /// Its id.
    pub id: String,
    /// Its type.
    pub r#type: String,
    /// The time at which it was accepted.
    pub created_at: String,
    /// The requested time of delivery.
    pub deliver_at: Option<String>,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// The time at which its payload was removed.
    pub payload_removed_at: Option<String>,
    /// Number of deliveries that it made when it was accepted.
    pub delivery_count: u64,
}

/// An event with its payload and its deliveries. Reads like its summary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// All other fields.
    #[serde(flatten)]
    pub summary: EventSummary,
    /// The payload, byte for byte, if it was sent as JSON; `null` if it was removed.
    #[serde(
        default,
        deserialize_with = "any_json",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Box<RawValue>>,
    /// The payload in base64, if it was sent as bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Media type of the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Its deliveries, at most [`MAX_DELIVERIES_SHOWN`].
    pub deliveries: Vec<EventDelivery>,
}

/// Reads any JSON value, because `null` is a valid payload too.
pub(super) fn any_json<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}

impl Deref for Event {
    type Target = EventSummary;

    fn deref(&self) -> &EventSummary {
        &self.summary
    }
}

/// The response that acknowledges an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedEvent {
    /// Its id.
    pub id: String,
    /// Its type.
    pub r#type: String,
    /// The time at which it was accepted.
    pub created_at: String,
    /// Number of its deliveries: one for every endpoint that wants the event.
    pub delivery_count: u64,
    /// Its first deliveries, at most [`MAX_DELIVERIES_ACKNOWLEDGED`], and fewer in a large batch. Their status is
    /// always `pending`.
    pub deliveries: Vec<EventDelivery>,
}

/// One delivery of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDelivery {
    /// Its id.
    pub id: String,
    /// Id of its endpoint.
    pub endpoint_id: String,
    /// Its status.
    pub status: Status,
}

impl From<&StoredEvent> for EventSummary {
    fn from(stored: &StoredEvent) -> EventSummary {
        let trace = stored.content.trace.as_ref();
        EventSummary {
            id: stored.event.id.to_string(),
            r#type: stored.event.event_type.to_string(),
            created_at: stored.event.created_at.to_string(),
            deliver_at: stored.deliver_at.map(|at| at.to_string()),
            idempotency_key: stored.idempotency_key.clone(),
            trace_id: trace.map(|trace| trace.trace_id.to_string()),
            payload_removed_at: stored.payload_removed_at.map(|at| at.to_string()),
            delivery_count: stored.event.delivery_count as u64,
        }
    }
}

impl Event {
    /// Describes a stored event and the deliveries that were made of it.
    pub fn new(stored: &StoredEvent, deliveries: Vec<EventDelivery>) -> Event {
        let content = &stored.content;
        let content_type = content.content_type.clone();
        // A payload that was accepted as JSON is JSON. Otherwise it would be shown as base64.
        let payload = match content_type {
            _ if stored.payload_removed_at.is_some() => Some(RawValue::NULL.to_owned()),
            None => serde_json::from_slice(&content.payload).ok(),
            Some(_) => None,
        };
        let body_base64 = payload
            .is_none()
            .then(|| BASE64_STANDARD.encode(&content.payload));
        Event {
            summary: EventSummary::from(stored),
            payload,
            body_base64,
            content_type,
            deliveries,
        }
    }
}

/// Returns the schemas of events in responses.
pub(crate) fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "AcceptedEvent",
            shape: accepted_event_schema(),
        },
        Schema {
            name: "AcceptedEvents",
            shape: object(json!({
                "data": {"type": "array", "items": reference("AcceptedEvent")},
            })),
        },
        Schema {
            name: "EventSummary",
            shape: object(summary_properties()),
        },
        Schema {
            name: "Event",
            shape: event_schema(),
        },
    ]
}

fn accepted_event_schema() -> Value {
    let shape = object(json!({
        "id": text(),
        "type": text(),
        "created_at": time(),
        "delivery_count": {
            "type": "integer", "minimum": 0,
            "description": "Number of deliveries, one for each subscribed endpoint.",
        },
        "deliveries": {
            "type": "array",
            "maxItems": MAX_DELIVERIES_ACKNOWLEDGED,
            "description": format!("The first {MAX_DELIVERIES_ACKNOWLEDGED} of its deliveries. The response to a batch lists at most {MAX_DELIVERIES_OF_BATCH} deliveries, those of the first events. `GET /v1/tenants/{{tenant}}/deliveries?event=` lists all of them."),
            "items": delivery_schema("AcceptedDelivery", json!({"const": "pending"})),
        },
    }));
    let example = json!({
        "id": "evt_01kb2k5x8c0000r4q0m1v9t3zz",
        "type": "invoice.paid",
        "created_at": "2026-11-15T12:00:00.000Z",
        "delivery_count": 1,
        "deliveries": [{
            "id": "dlv_01kb2k5x8c0001jx5n8h2w6c4d",
            "endpoint_id": "ep_01kb2k1d2e0000f7s9y4b8k6q2",
            "status": "pending",
        }],
    });
    with_examples(shape, json!([example]))
}

fn delivery_schema(name: &str, status: Value) -> Value {
    let shape = object(json!({"id": text(), "endpoint_id": text(), "status": status}));
    named(name, shape)
}

fn summary_properties() -> Value {
    json!({
        "id": text(),
        "type": text(),
        "created_at": time(),
        "deliver_at": nullable_time(),
        "idempotency_key": nullable_text(),
        "trace_id": {
            "type": ["string", "null"],
            "description": "Trace id of the `traceparent` header that the event was sent with. Its attempts continue the same trace.",
        },
        "payload_removed_at": {
            "type": ["string", "null"], "format": "date-time",
            "description": "Time when the payload was removed (`payload_retention`). The event cannot be sent again after that.",
        },
        "delivery_count": {
            "type": "integer", "minimum": 0,
            "description": "Number of deliveries created when the event was accepted, without those added by replays.",
        },
    })
}

fn event_schema() -> Value {
    let mut shape = object(summary_properties());
    let properties = &mut shape["properties"];
    properties["payload"] = json!({"description": "The JSON payload; `null` if it was removed."});
    properties["body_base64"] = json!({"type": "string", "description": "The raw body."});
    properties["content_type"] =
        json!({"type": "string", "description": "Media type of the raw body."});
    properties["deliveries"] = json!({
        "type": "array",
        "maxItems": MAX_DELIVERIES_SHOWN,
        "description": format!("Its deliveries, the newest {MAX_DELIVERIES_SHOWN} if there are more. `GET /v1/tenants/{{tenant}}/deliveries?event=` lists all of them."),
        "items": delivery_schema("EventDelivery", reference("DeliveryStatus")),
    });
    shape
}
