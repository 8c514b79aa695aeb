//! Round trips to the database that endpoints wait for, on their way to the membership.
//!
//! Readers and the writer add the durations of fetches and records to [`RoundTripLog`]. With each heartbeat the
//! membership takes them and judges by them whether this node is quick enough for its shards. The time in a queue
//! does not count: it says how much work there is, not how slow the link is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::RoundTripKind;
use posthaste_core::time::Span;
use tokio::time::Instant;

/// Maximum number of round trips that are kept between two heartbeats. The membership uses the last few of each kind.
const MAX_KEPT: usize = 16;

/// A link with slower round trips holds no lock that other nodes may wait for during them.
const QUICK_ROUND_TRIP_MS: u64 = 100;

/// The last round trips.
#[derive(Debug, Default)]
pub(super) struct RoundTripLog {
    /// Oldest first.
    kept: Mutex<VecDeque<(RoundTripKind, Span)>>,
    /// Duration of the last heartbeat, in milliseconds.
    heartbeat_ms: AtomicU64,
}

impl RoundTripLog {
    /// Adds a round trip that began then and has ended now.
    pub(super) fn add(&self, kind: RoundTripKind, began: Instant) {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back((kind, Span::from_millis(took)));
    }

    /// Sets the duration of the last heartbeat, which waits for no lock.
    pub(super) fn set_heartbeat(&self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.heartbeat_ms.store(took, Ordering::Relaxed);
    }

    /// Returns whether the link is slow.
    pub(super) fn is_slow(&self) -> bool {
        self.heartbeat_ms.load(Ordering::Relaxed) > QUICK_ROUND_TRIP_MS
    }

    /// Takes all of them.
    pub(super) fn take(&self) -> VecDeque<(RoundTripKind, Span)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_round_trips_are_kept() {
        let log = RoundTripLog::default();
        for _ in 0..100 {
            log.add(RoundTripKind::Fetch, Instant::now());
        }
        log.add(RoundTripKind::Record, Instant::now());
        let taken = log.take();
        assert_eq!(taken.len(), MAX_KEPT);
        assert_eq!(
            taken.back().map(|(kind, _)| *kind),
            Some(RoundTripKind::Record)
        );
        assert!(log.take().is_empty());
    }
}
