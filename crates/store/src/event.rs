//! Events: what applications hand over.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use posthaste_core::allowance::{Over, Quota};
use posthaste_core::delivery::{Delivery, OrderingKey};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::subscription::EventType;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::trace::TraceContext;

use crate::{LimitName, StoreError};

/// What every delivery of an event carries. Its debug form shows nothing of the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Its type.
    pub event_type: EventType,
    /// What kind of bytes these are; absent for JSON.
    pub content_type: Option<String>,
    /// The bytes, as they were received.
    pub payload: Bytes,
    /// Whose trace it belongs to, if its sender traces.
    pub trace: Option<TraceContext>,
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Content")
            .field("event_type", &self.event_type)
            .field("content_type", &self.content_type)
            .field("payload_bytes", &self.payload.len())
            .field("trace", &self.trace)
            .finish_non_exhaustive()
    }
}

/// An event to be accepted.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Whose it is.
    pub tenant: TenantId,
    /// What it carries.
    pub content: Arc<Content>,
    /// What makes it the same as another.
    pub idempotency: Option<Idempotency>,
    /// Not before this.
    pub deliver_at: Option<Timestamp>,
    /// What it must stay in order with.
    pub ordering: Option<OrderingKey>,
    /// Only to this endpoint, whatever it subscribed to: a test.
    pub only: Option<EndpointId>,
    /// When it arrived, by the steady clock. Handed over as it is, to measure by; not stored.
    pub received: Option<Instant>,
}

/// What makes an event the same as another. Its debug form does not show the key, in which callers put
/// what they like.
#[derive(Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key that its sender chose.
    pub key: String,
    /// Stands for its content.
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

/// What came of a list of events: all of them are accepted, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingest {
    /// All are on disk, in the order they were given.
    Done(Vec<Ingested>),
    /// These, counted from 0, have keys under which other content is stored. Nothing was written.
    Conflict(Vec<usize>),
    /// There is no such tenant. Nothing was written.
    NoSuchTenant,
    /// There is no such endpoint, or it is disabled. Nothing was written.
    NoSuchEndpoint,
    /// They are more than the tenant may send. Nothing was written.
    OverLimit {
        /// What they exceed.
        limit: LimitName,
        /// After so long as many would be accepted, if nobody else came; nothing if they never would.
        wait: Option<Span>,
    },
}

impl From<Over> for Ingest {
    fn from(over: Over) -> Ingest {
        Ingest::OverLimit {
            limit: match over.quota {
                Quota::PerSecond => LimitName::EventsPerSecond,
                Quota::PerMonth => LimitName::EventsPerMonth,
            },
            wait: over.wait,
        }
    }
}

/// An event that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// False if it was there already.
    pub fresh: bool,
    /// The event.
    pub event: AcceptedEvent,
}

/// An accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Its deliveries, one for each endpoint that wanted it then.
    pub deliveries: Vec<AcceptedDelivery>,
}

/// One delivery of an accepted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
}

/// An event, as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The event.
    pub event: AcceptedEvent,
    /// Not before this.
    pub deliver_at: Option<Timestamp>,
    /// What it carries.
    pub content: Arc<Content>,
    /// When the bytes that it carried were removed. The rest of its content is still known.
    pub payload_removed_at: Option<Timestamp>,
    /// The key that its sender chose.
    pub idempotency_key: Option<String>,
}

/// Which events. What is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

/// A delivery that is on disk now, with what it carries, so that its first attempt needs no read.
#[derive(Clone, Debug)]
pub struct HandedOver {
    /// The delivery.
    pub delivery: Delivery,
    /// When its event was accepted.
    pub accepted_at: Timestamp,
    /// What it carries.
    pub content: Arc<Content>,
    /// When its event arrived, by the steady clock.
    pub received: Option<Instant>,
}

/// Takes what was just committed.
///
/// Called once for every commit that brought deliveries, in the order of the commits, after the commit
/// and before anybody is answered. It must not block: the next commit waits for it.
pub trait HandOver: Send + Sync {
    /// These are on disk now.
    fn accepted(&self, deliveries: Vec<HandedOver>);

    /// The store cannot say any more whether it keeps its promises.
    fn broken(&self, why: &StoreError);
}
