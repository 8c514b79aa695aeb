//! Deliveries, as they are kept and found.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{Delivery, Status};
use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;

use crate::AttemptEntry;

/// A delivery, as it is read back.
///
/// That it is being sent right now is not written down; whoever sends it knows. That it is held is not
/// written down either: it follows from its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// Whose it is.
    pub tenant: TenantId,
    /// The type of its event.
    pub event_type: EventType,
    /// When its event was accepted.
    pub created_at: Timestamp,
    /// Whether its endpoint holds what waits for it.
    pub endpoint_holds: bool,
    /// Its last attempt.
    pub last_attempt: Option<AttemptEntry>,
}

impl StoredDelivery {
    /// The status to show, but for what is being sent.
    pub fn shown_status(&self) -> Status {
        self.delivery.shown_status(self.endpoint_holds)
    }

    /// Why it failed last, or was given up.
    pub fn error_kind(&self) -> Option<FailureKind> {
        let given_up = self
            .delivery
            .state()
            .dead_reason()
            .and_then(|reason| reason.kind());
        given_up.or(self.last_attempt.as_ref().and_then(|last| last.error_kind))
    }
}

/// A status one can look for: any but `in_progress`, which is not written down.
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
    /// Given up.
    Failed,
    /// Called off.
    Cancelled,
}

/// Which deliveries. What is absent does not matter.
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
    /// Whose [`StoredDelivery::error_kind`] is this.
    pub error_kind: Option<FailureKind>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

/// What came of an attempt to write a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is on disk.
    Applied,
    /// The row has moved on; nothing was changed.
    Superseded,
}

/// What came of asking for another attempt by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// It waited, and its turn is now.
    Hastened {
        /// Where it goes.
        endpoint: EndpointId,
    },
    /// It had ended, and begins all over.
    Replayed {
        /// Where it goes.
        endpoint: EndpointId,
    },
    /// Its endpoint is disabled.
    EndpointDisabled,
    /// Its endpoint is deleted.
    EndpointDeleted,
    /// It has ended, and what it carried has been removed since.
    PayloadGone,
    /// There is no such delivery.
    NoSuchDelivery,
}
