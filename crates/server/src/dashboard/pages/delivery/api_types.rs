//! Deliveries as the API returns them, with the fields that pages need.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status, Trigger};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A delivery; in a list, without its attempts.
#[derive(Clone, Deserialize)]
pub(in crate::dashboard::pages) struct Delivery {
    pub(in crate::dashboard::pages) id: String,
    pub(in crate::dashboard::pages) event_id: String,
    pub(in crate::dashboard::pages) event_type: String,
    pub(in crate::dashboard::pages) endpoint_id: String,
    pub(in crate::dashboard::pages) status: Status,
    pub(in crate::dashboard::pages) reason: Option<DeadReason>,
    pub(in crate::dashboard::pages) attempt_count: u32,
    pub(in crate::dashboard::pages) max_attempts: u32,
    pub(in crate::dashboard::pages) created_at: String,
    pub(in crate::dashboard::pages) next_attempt_at: Option<String>,
    pub(in crate::dashboard::pages) give_up_at: String,
    pub(in crate::dashboard::pages) finished_at: Option<String>,
    pub(in crate::dashboard::pages) last_error: Option<LastError>,
    #[serde(default)]
    pub(in crate::dashboard::pages) attempts: Vec<Attempt>,
    #[serde(default)]
    pub(in crate::dashboard::pages) timeline: Vec<Upcoming>,
}

/// The last failure of a delivery.
#[derive(Clone, Deserialize)]
pub(in crate::dashboard::pages) struct LastError {
    pub(in crate::dashboard::pages) status_code: Option<u16>,
    pub(in crate::dashboard::pages) detail: String,
}

/// An attempt that was made.
#[derive(Clone, Deserialize)]
pub(in crate::dashboard::pages) struct Attempt {
    pub(in crate::dashboard::pages) number: u32,
    pub(in crate::dashboard::pages) trigger: Trigger,
    pub(in crate::dashboard::pages) started_at: String,
    pub(in crate::dashboard::pages) latency_ms: u64,
    pub(in crate::dashboard::pages) status_code: Option<u16>,
    pub(in crate::dashboard::pages) error_kind: Option<FailureKind>,
    pub(in crate::dashboard::pages) response_snippet: Option<String>,
    #[serde(default)]
    pub(in crate::dashboard::pages) response_headers: Option<BTreeMap<String, String>>,
    pub(in crate::dashboard::pages) next_attempt_at: Option<String>,
    pub(in crate::dashboard::pages) retry_after_ms: Option<u64>,
}

impl Attempt {
    /// Returns whether it succeeded.
    pub(in crate::dashboard::pages) fn delivered(&self) -> bool {
        self.error_kind.is_none()
    }
}

/// An expected attempt.
#[derive(Clone, Deserialize)]
pub(in crate::dashboard::pages) struct Upcoming {
    pub(in crate::dashboard::pages) number: u32,
    pub(in crate::dashboard::pages) earliest_at: String,
    pub(in crate::dashboard::pages) expected_at: String,
    pub(in crate::dashboard::pages) latest_at: String,
}
