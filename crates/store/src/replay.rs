//! Replays: sending again, in bulk.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{EndpointId, ReplayId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StoredStatus;

/// What is to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFilter {
    /// To this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Which failed for this.
    pub error_kind: Option<FailureKind>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
    /// What kind of thing.
    pub scope: ReplayScope,
}

/// What kind of thing is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayScope {
    /// Deliveries that have ended this way: succeeded, failed or cancelled.
    Ended(StoredStatus),
    /// What the endpoint, which must be named, never got since `since`: deliveries that failed, and
    /// events of types it wants now that no delivery to it was made of.
    Missed,
}

impl ReplayScope {
    /// How a delivery has ended that is sent again.
    pub fn status(self) -> StoredStatus {
        match self {
            ReplayScope::Ended(status) => status,
            ReplayScope::Missed => StoredStatus::Failed,
        }
    }
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// It goes on.
    Running,
    /// Everything has been set going.
    Done,
    /// Somebody stopped it.
    Cancelled,
}

impl ReplayStatus {
    /// The status as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            ReplayStatus::Running => "running",
            ReplayStatus::Done => "done",
            ReplayStatus::Cancelled => "cancelled",
        }
    }
}

/// A replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Its id.
    pub id: ReplayId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it sends again.
    pub filter: ReplayFilter,
    /// How far it is.
    pub status: ReplayStatus,
    /// How many there were to send when it began.
    pub total: u64,
    /// How many it has come to.
    pub replayed: u64,
    /// How many of those it has passed over.
    pub skipped: u64,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    /// The replay after it.
    pub replay: Replay,
    /// Where something is due now.
    pub endpoints: Vec<EndpointId>,
}
