//! Deliveries as they are stored and listed.
//!
//! [`StoredDelivery`] is a row with what lists show of it. [`Written`] is the result of a record: written, or
//! superseded by another owner or a newer state.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{Delivery, Status};
use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;

use crate::AttemptEntry;

/// A delivery, as read from the store.
///
/// The store does not know that a delivery is being sent right now; only the node that sends it does. Nor is `held`
/// stored: it follows from the endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The type of its event.
    pub event_type: EventType,
    /// The time at which its event was accepted.
    pub created_at: Timestamp,
    /// True if its endpoint holds waiting deliveries: it is paused or its breaker is tripped.
    pub is_held_by_endpoint: bool,
    /// Its last attempt.
    pub last_attempt: Option<AttemptEntry>,
}

impl StoredDelivery {
    /// Returns the status to show, except that it never returns `in_progress`.
    pub fn shown_status(&self) -> Status {
        self.delivery.shown_status(self.is_held_by_endpoint)
    }

    /// Returns the failure kind for which it was dead-lettered, or else that of its last attempt.
    pub fn error_kind(&self) -> Option<FailureKind> {
        let given_up = self
            .delivery
            .state()
            .dead_reason()
            .and_then(|reason| reason.kind());
        given_up.or(self.last_attempt.as_ref().and_then(|last| last.error_kind))
    }
}

/// A status to filter by: any except `in_progress`, which is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredStatus {
    /// Waiting for its first attempt, and not held.
    Pending,
    /// Waiting for another attempt, and not held.
    Retrying,
    /// Waiting, and held.
    Held,
    /// Delivered.
    Succeeded,
    /// Dead-lettered.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// Selects deliveries. An absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Shown with this status.
    pub status: Option<StoredStatus>,
    /// To this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this event.
    pub event: Option<EventId>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// With this [`StoredDelivery::error_kind`].
    pub error_kind: Option<FailureKind>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

/// The result of writing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is persisted.
    Applied,
    /// The delivery has changed since, or the node no longer owns it; nothing was written.
    Superseded,
}

/// The result of a manual request for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryResult {
    /// It waited, and is due now.
    DueNow {
        /// The endpoint that it goes to.
        endpoint: EndpointId,
    },
    /// It had ended, and starts a new round of attempts.
    Replayed {
        /// The endpoint that it goes to.
        endpoint: EndpointId,
    },
    /// Its endpoint is disabled.
    EndpointDisabled,
    /// Its endpoint is deleted.
    EndpointDeleted,
    /// It has ended, and its payload has been deleted.
    PayloadDeleted,
    /// There is no such delivery.
    NoSuchDelivery,
}
