//! Counters of failed authentications.

use std::sync::atomic::{AtomicU64, Ordering};

use super::metric::Metric;

/// Counters of this node.
#[derive(Debug, Default)]
pub struct AuthenticationCounters {
    failed: AtomicU64,
    refused: AtomicU64,
}

impl AuthenticationCounters {
    /// Counts an unknown or revoked key.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused before its key was looked at.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters as metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let counts = [
            ("wrong_key", self.failed.load(Ordering::Relaxed)),
            ("refused", self.refused.load(Ordering::Relaxed)),
        ];
        vec![Metric::counters(
            "posthaste_failed_authentications_total",
            "Requests and sign-ins with a wrong key at this node, and those refused because their address had sent too many wrong keys.",
            "outcome",
            counts,
        )]
    }
}
