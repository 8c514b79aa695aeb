//! Replays: requests to send many deliveries again.
//!
//! [`ReplayFilter`] selects the deliveries, and [`Replay`] has the progress. The set is fixed when the replay is
//! created: deliveries that fail later are not part of it.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{EndpointId, ReplayId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StoredStatus;

/// Selects the deliveries and events to send again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFilter {
    /// To this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// That failed with this kind.
    pub error_kind: Option<FailureKind>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
    /// The state of what is sent again.
    pub scope: ReplayScope,
}

impl ReplayFilter {
    /// Returns the status of the deliveries that are sent again, or `None` if there are none: they have not ended, or
    /// the endpoint is missing.
    pub(crate) fn ended_status(&self) -> Option<StoredStatus> {
        let status = match self.scope {
            ReplayScope::Missed if self.endpoint.is_none() => return None,
            scope @ (ReplayScope::Missed | ReplayScope::Ended(_)) => scope.status(),
        };
        match status {
            StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Cancelled => {
                Some(status)
            }
            StoredStatus::Pending | StoredStatus::Retrying | StoredStatus::Held => None,
        }
    }
}

/// The state of what a replay sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayScope {
    /// Deliveries that ended with this status: succeeded, failed or cancelled.
    Ended(StoredStatus),
    /// Everything that one endpoint, which must be given, has not received since `since`: failed deliveries, and
    /// events of types that it subscribes to now without a delivery to it.
    Missed,
}

impl ReplayScope {
    /// Returns the status that a delivery must have to be sent again.
    pub fn status(self) -> StoredStatus {
        match self {
            ReplayScope::Ended(status) => status,
            ReplayScope::Missed => StoredStatus::Failed,
        }
    }
}

/// The status of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// It has deliveries left to start.
    Running,
    /// Every delivery has been started or skipped.
    Done,
    /// A caller cancelled it.
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
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The selection of what it sends again.
    pub filter: ReplayFilter,
    /// Its status.
    pub status: ReplayStatus,
    /// Number of deliveries to send, counted when it started.
    pub total: u64,
    /// Number of deliveries processed so far, started or skipped.
    pub replayed: u64,
    /// Number of those that were skipped.
    pub skipped: u64,
    /// The time at which it started.
    pub created_at: Timestamp,
    /// The time at which it ended.
    pub finished_at: Option<Timestamp>,
}

impl Replay {
    /// Starts a replay of `total` targets. Without a total its tenant does not exist, and the replay is done.
    pub(crate) fn begin(
        id: ReplayId,
        tenant: &TenantId,
        filter: &ReplayFilter,
        now: Timestamp,
        total: Option<usize>,
    ) -> Replay {
        Replay {
            id,
            tenant: tenant.clone(),
            filter: filter.clone(),
            status: match total {
                Some(_) => ReplayStatus::Running,
                None => ReplayStatus::Done,
            },
            total: total.unwrap_or(0) as u64,
            replayed: 0,
            skipped: 0,
            created_at: now,
            finished_at: if total.is_some() { None } else { Some(now) },
        }
    }
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    /// The replay after the step.
    pub replay: Replay,
    /// The endpoints that have deliveries due now.
    pub endpoints: Vec<EndpointId>,
}
