//! Events in API responses.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_core::delivery::Status;
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceId;
use posthaste_store::{AcceptedEvent, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::delivery_view::Shown;

/// Writes the response for an accepted event. A repeated request gets the same response; the current status
/// of the deliveries is not part of it.
///
/// It is formatted by hand, because it is the most frequent response. Ids, types and times contain no
/// characters that JSON must escape.
pub(super) fn write_accepted(event: &AcceptedEvent, out: &mut Vec<u8>) {
    let whole = "a vector takes everything";
    write!(
        out,
        r#"{{"id":"{}","type":"{}","created_at":"{}","deliveries":["#,
        event.id, event.event_type, event.created_at
    )
    .expect(whole);
    for (index, delivery) in event.deliveries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write!(
            out,
            r#"{{"id":"{}","endpoint_id":"{}","status":"pending"}}"#,
            delivery.id, delivery.endpoint
        )
        .expect(whole);
    }
    out.extend_from_slice(b"]}");
}

/// An event in a list.
#[derive(Serialize)]
pub(super) struct EventSummary {
    id: Shown<EventId>,
    r#type: String,
    created_at: Shown<Timestamp>,
    deliver_at: Option<Shown<Timestamp>>,
    idempotency_key: Option<String>,
    trace_id: Option<Shown<TraceId>>,
    payload_removed_at: Option<Shown<Timestamp>>,
    delivery_count: usize,
}

impl EventSummary {
    pub(super) fn new(stored: &StoredEvent) -> EventSummary {
        let trace = stored.content.trace.as_ref();
        EventSummary {
            id: Shown(stored.event.id),
            r#type: stored.event.event_type.to_string(),
            created_at: Shown(stored.event.created_at),
            deliver_at: stored.deliver_at.map(Shown),
            idempotency_key: stored.idempotency_key.clone(),
            trace_id: trace.map(|trace| Shown(trace.trace_id)),
            payload_removed_at: stored.payload_removed_at.map(Shown),
            delivery_count: stored.event.deliveries.len(),
        }
    }
}

/// The status of one delivery of an event.
#[derive(Serialize)]
pub(super) struct DeliveryStatusView {
    pub(super) id: Shown<DeliveryId>,
    pub(super) endpoint_id: Shown<EndpointId>,
    pub(super) status: Status,
}

/// An event with its payload and its deliveries.
#[derive(Serialize)]
pub(super) struct EventView<'a> {
    #[serde(flatten)]
    summary: EventSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    deliveries: Vec<DeliveryStatusView>,
}

impl<'a> EventView<'a> {
    pub(super) fn new(
        stored: &'a StoredEvent,
        deliveries: Vec<DeliveryStatusView>,
    ) -> EventView<'a> {
        let content = &stored.content;
        let content_type = content.content_type.as_deref();
        // A payload that was accepted as JSON is JSON. Otherwise it would be shown as base64.
        let payload = match content_type {
            _ if stored.payload_removed_at.is_some() => Some(RawValue::NULL),
            None => serde_json::from_slice(&content.payload).ok(),
            Some(_) => None,
        };
        let body_base64 = payload
            .is_none()
            .then(|| BASE64_STANDARD.encode(&content.payload));
        EventView {
            summary: EventSummary::new(stored),
            payload,
            body_base64,
            content_type,
            deliveries,
        }
    }
}
