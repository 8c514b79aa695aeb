//! A verified webhook, with its body as bytes or parsed.
//!
//! [`RawWebhook`] has the bytes that were signed, [`Webhook`] the value that they contain. [`Head`] is everything that the
//! headers say. Only id, timestamp and body are covered by the signature; the `posthaste-…` headers are not.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::{EventOrder, ReceiveError};

/// The headers of a verified webhook.
///
/// The signature covers [`id`](Head::id), [`timestamp`](Head::timestamp) and the body. The other fields come from headers
/// that are not signed: TLS protects them on the way. They are `None` if the sender does not send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `webhook-id`: identifies the delivery. It is the same on every attempt and replay, so it is the key to deduplicate by.
    pub id: String,
    /// `webhook-timestamp`: the time of this attempt.
    pub timestamp: SystemTime,
    /// `posthaste-event-id`: identifies the event, which several endpoints may get, each by a delivery of its own.
    pub event_id: Option<String>,
    /// `posthaste-event-type`, such as `invoice.paid`.
    pub event_type: Option<String>,
    /// `posthaste-event-time`: the time at which the event was accepted, in RFC 3339 (UTC, milliseconds).
    pub event_time: Option<String>,
    /// `posthaste-attempt`: the number of this attempt, from 1.
    pub attempt: Option<u32>,
}

impl Head {
    pub(crate) fn read(id: &str, timestamp: SystemTime, headers: &HeaderMap) -> Head {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        Head {
            id: id.to_owned(),
            timestamp,
            event_id: text("posthaste-event-id"),
            event_type: text("posthaste-event-type"),
            event_time: text("posthaste-event-time"),
            attempt: text("posthaste-attempt").and_then(|number| number.parse().ok()),
        }
    }

    /// Returns the place of the event among the others of its sender, or `None` if the headers do not say it.
    pub fn order(&self) -> Option<EventOrder> {
        EventOrder::new(self.event_time.as_deref()?, self.event_id.as_deref()?)
    }
}

/// A verified webhook with the body as it was sent. `Debug` shows the length of the body, not its content.
#[derive(Clone, PartialEq, Eq)]
pub struct RawWebhook {
    /// The headers.
    pub head: Head,
    /// The body, byte for byte.
    pub body: Bytes,
}

impl fmt::Debug for RawWebhook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("RawWebhook");
        fields.field("head", &self.head);
        fields.field("body_bytes", &self.body.len());
        fields.finish()
    }
}

impl RawWebhook {
    /// Parses the body as JSON.
    pub fn json<T: DeserializeOwned>(self) -> Result<Webhook<T>, ReceiveError> {
        let payload = serde_json::from_slice(&self.body);
        let payload = payload.map_err(ReceiveError::UnexpectedPayload)?;
        Ok(Webhook {
            head: self.head,
            payload,
        })
    }
}

/// A verified webhook with its parsed payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook<T> {
    /// The headers.
    pub head: Head,
    /// The payload of the event.
    pub payload: T,
}
