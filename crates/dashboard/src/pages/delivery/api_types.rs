//! Deliveries as the API returns them, with the fields that pages need.

use std::collections::BTreeMap;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status, Trigger};
use serde::Deserialize;

/// A delivery; in a list, without its attempts.
#[derive(Clone, Deserialize)]
pub(in crate::pages) struct Delivery {
    pub(in crate::pages) id: String,
    pub(in crate::pages) event_id: String,
    pub(in crate::pages) event_type: String,
    pub(in crate::pages) endpoint_id: String,
    pub(in crate::pages) status: Status,
    pub(in crate::pages) reason: Option<DeadReason>,
    pub(in crate::pages) attempt_count: u32,
    pub(in crate::pages) max_attempts: u32,
    pub(in crate::pages) created_at: String,
    pub(in crate::pages) next_attempt_at: Option<String>,
    pub(in crate::pages) give_up_at: String,
    pub(in crate::pages) finished_at: Option<String>,
    pub(in crate::pages) last_error: Option<LastError>,
    #[serde(default)]
    pub(in crate::pages) attempts: Vec<Attempt>,
    #[serde(default)]
    pub(in crate::pages) timeline: Vec<Upcoming>,
}

/// The last failure of a delivery.
#[derive(Clone, Deserialize)]
pub(in crate::pages) struct LastError {
    pub(in crate::pages) status_code: Option<u16>,
    pub(in crate::pages) detail: String,
}

/// An attempt that was made.
#[derive(Clone, Deserialize)]
pub(in crate::pages) struct Attempt {
    pub(in crate::pages) number: u32,
    pub(in crate::pages) trigger: Trigger,
    pub(in crate::pages) started_at: String,
    pub(in crate::pages) latency_ms: u64,
    pub(in crate::pages) status_code: Option<u16>,
    pub(in crate::pages) error_kind: Option<FailureKind>,
    pub(in crate::pages) response_snippet: Option<String>,
    #[serde(default)]
    pub(in crate::pages) response_headers: Option<BTreeMap<String, String>>,
    pub(in crate::pages) next_attempt_at: Option<String>,
    pub(in crate::pages) retry_after_ms: Option<u64>,
}

impl Attempt {
    /// Returns whether it succeeded.
    pub(in crate::pages) fn delivered(&self) -> bool {
        self.error_kind.is_none()
    }
}

/// An expected attempt.
#[derive(Clone, Deserialize)]
pub(in crate::pages) struct Upcoming {
    pub(in crate::pages) number: u32,
    pub(in crate::pages) earliest_at: String,
    pub(in crate::pages) expected_at: String,
    pub(in crate::pages) latest_at: String,
}
