//! Events: as applications send them, as they are stored, and as they are handed over to the engine.
//!
//! [`NewEvent`] is an event to accept and [`AcceptResult`] the result; [`StoredEvent`] is an event read back.
//! [`HandOver`] receives the deliveries of each commit as [`HandedOver`], with their content, so that a first attempt
//! needs no read.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use posthaste_core::delivery::{Delivery, OneOffRequest, OrderingKey};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::quota::{QuotaExceeded, QuotaKind};
use posthaste_core::schedule::ScheduledRun;
use posthaste_core::subscription::EventType;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::trace::TraceContext;

use crate::{LimitName, StoreError};

/// The content of an event, which all its deliveries carry. The debug output hides the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Event type.
    pub event_type: EventType,
    /// MIME type of the payload; absent for JSON.
    pub content_type: Option<String>,
    /// The bytes, exactly as received.
    pub payload: Bytes,
    /// The trace context that the sender passed, if any.
    pub trace: Option<TraceContext>,
    /// The run of a schedule that made it, if any.
    pub scheduled_run: Option<ScheduledRun>,
}

impl Content {
    /// Returns JSON content without a trace context, that no schedule made.
    pub fn new(event_type: EventType, payload: Bytes) -> Content {
        Content {
            event_type,
            content_type: None,
            payload,
            trace: None,
            scheduled_run: None,
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Content")
            .field("event_type", &self.event_type)
            .field("content_type", &self.content_type)
            .field("payload_bytes", &self.payload.len())
            .field("trace", &self.trace)
            .field("scheduled_run", &self.scheduled_run)
            .finish_non_exhaustive()
    }
}

/// An event to accept.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// Its content.
    pub content: Arc<Content>,
    /// Its idempotency key with the fingerprint of the content.
    pub idempotency: Option<Idempotency>,
    /// The earliest time of delivery.
    pub deliver_at: Option<Timestamp>,
    /// Its ordering key.
    pub ordering: Option<OrderingKey>,
    /// Deliver only to this endpoint, regardless of its subscription: a test event.
    pub only: Option<EndpointId>,
    /// The request of its delivery to `only`, which is the origin endpoint of the request's URL: a one-off request.
    pub request: Option<Arc<OneOffRequest>>,
    /// The time of its arrival by the monotonic clock, passed through to measure latency; not stored.
    pub received: Option<Instant>,
}

impl NewEvent {
    /// Returns an event for all subscribed endpoints, to be delivered at once, without keys.
    pub fn new(tenant: TenantId, content: impl Into<Arc<Content>>) -> NewEvent {
        NewEvent {
            tenant,
            content: content.into(),
            idempotency: None,
            deliver_at: None,
            ordering: None,
            only: None,
            request: None,
            received: None,
        }
    }
}

/// Identifies an event that may be sent more than once. The debug output hides the key, because callers can put
/// anything into it.
#[derive(Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The idempotency key that the sender chose.
    pub key: String,
    /// Hash of the content, to detect a key that is reused for other content.
    pub fingerprint: Fingerprint,
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Idempotency")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The result of accepting a list of events: either all are accepted or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptResult {
    /// All are persisted. The results are in the order of the events.
    Done(Vec<AcceptedOrStored>),
    /// The events at these positions (from 0) have keys under which other content is stored. Nothing was written.
    Conflict(Vec<usize>),
    /// There is no such tenant. Nothing was written.
    NoSuchTenant,
    /// There is no such endpoint, or it is disabled. Nothing was written.
    NoSuchEndpoint,
    /// The new events among them have more deliveries than one request may create
    /// ([`StoreSettings::max_deliveries_per_request`](crate::StoreSettings::max_deliveries_per_request)). Nothing was
    /// written, and no quota was used.
    TooManyDeliveries {
        /// Number of deliveries that they have.
        deliveries: u64,
        /// Maximum number of deliveries of one request.
        limit: u64,
    },
    /// They exceed a limit of the tenant. Nothing was written.
    OverLimit {
        /// The exceeded limit.
        limit: LimitName,
        /// The time after which the same number would be accepted, without other traffic; `None` if never.
        wait: Option<Span>,
    },
}

impl From<QuotaExceeded> for AcceptResult {
    fn from(over: QuotaExceeded) -> AcceptResult {
        AcceptResult::OverLimit {
            limit: match over.quota {
                QuotaKind::PerSecond => LimitName::EventsPerSecond,
                QuotaKind::PerMonth => LimitName::EventsPerMonth,
            },
            wait: over.wait,
        }
    }
}

/// A persisted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedOrStored {
    /// False if it was already stored.
    pub is_new: bool,
    /// The event.
    pub event: AcceptedEvent,
}

/// Maximum number of deliveries that [`AcceptedEvent`] names if the event was stored before. An event may have very many, and
/// one request may name very many events.
pub const MAX_DELIVERIES_OF_STORED: usize = 100;

/// An accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// Its id.
    pub id: EventId,
    /// Event type.
    pub event_type: EventType,
    /// The time of its acceptance.
    pub created_at: Timestamp,
    /// Number of its deliveries: one for each endpoint that subscribed to it at that time.
    pub delivery_count: usize,
    /// All deliveries of a new event; the first [`MAX_DELIVERIES_OF_STORED`] of one that was stored before.
    pub deliveries: Vec<AcceptedDelivery>,
}

impl AcceptedEvent {
    /// Returns the event as it is named when it is accepted again.
    pub fn repeated(&self) -> AcceptedEvent {
        let listed = self.deliveries.len().min(MAX_DELIVERIES_OF_STORED);
        AcceptedEvent {
            id: self.id,
            event_type: self.event_type.clone(),
            created_at: self.created_at,
            delivery_count: self.delivery_count,
            deliveries: self.deliveries[..listed].to_vec(),
        }
    }
}

/// One delivery of an accepted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The endpoint that it goes to.
    pub endpoint: EndpointId,
}

/// An event, as read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The event.
    pub event: AcceptedEvent,
    /// The earliest time of delivery.
    pub deliver_at: Option<Timestamp>,
    /// Its content. In lists the payload is empty.
    pub content: Arc<Content>,
    /// The time at which the payload was deleted. The rest of the content is still known.
    pub payload_removed_at: Option<Timestamp>,
    /// The idempotency key that the sender chose.
    pub idempotency_key: Option<String>,
}

/// Selects events. An absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// With this type.
    pub event_type: Option<EventType>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

/// A committed delivery with its content, so that its first attempt needs no read.
#[derive(Clone, Debug)]
pub struct HandedOver {
    /// The delivery.
    pub delivery: Delivery,
    /// The time at which its event was accepted.
    pub accepted_at: Timestamp,
    /// The content of its event.
    pub content: Arc<Content>,
    /// The time at which its event arrived, by the monotonic clock.
    pub received: Option<Instant>,
}

/// Receives the deliveries of each commit.
///
/// The writer calls it once for every commit that brought deliveries, in commit order, after the commit and before
/// any caller is answered. It must not block, because the next commit waits for it.
pub trait HandOver: Send + Sync {
    /// Takes deliveries that are now persisted.
    fn accepted(&self, deliveries: Vec<HandedOver>);

    /// The store can no longer guarantee what is persisted, and stops.
    fn broken(&self, why: &StoreError);
}
