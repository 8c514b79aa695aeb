//! Round trips to the database that endpoints wait for, on their way to the membership.
//!
//! Readers and the writer add the durations of fetches and records to [`RoundTripLog`], and those that failed because the
//! database did not answer or could not be reached. With each heartbeat the membership takes them and judges by them whether
//! this node is quick enough for its shards. The time in a queue does not count: it says how much work there is, not how slow
//! the link is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::RoundTripKind;
use posthaste_core::time::Span;
use tokio::time::Instant;

use super::db_error::{DbError, ErrorKind};

/// Maximum number of round trips that are kept between two heartbeats. The membership uses the last few of each kind.
const MAX_KEPT: usize = 16;

/// A link with slower round trips holds no lock that other nodes may wait for during them.
const QUICK_ROUND_TRIP_MS: u64 = 100;

/// A round trip: its kind and its duration, or `None` if it failed.
type RoundTrip = (RoundTripKind, Option<Span>);

/// The last round trips.
#[derive(Debug, Default)]
pub(super) struct RoundTripLog {
    /// Oldest first.
    kept: Mutex<VecDeque<RoundTrip>>,
    /// Duration of the last heartbeat, in milliseconds.
    heartbeat_ms: AtomicU64,
}

impl RoundTripLog {
    /// Adds a round trip that began then and has ended now.
    pub(super) fn add(&self, kind: RoundTripKind, began: Instant) {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.keep(kind, Some(Span::from_millis(took)));
    }

    /// Adds a round trip that failed: the database did not answer, or there is no connection.
    pub(super) fn add_failed(&self, kind: RoundTripKind) {
        self.keep(kind, None);
    }

    /// Adds the commit of records. An error that the database answered with says nothing about the link.
    pub(super) fn add_commit<T>(&self, began: Instant, committed: &Result<T, DbError>) {
        match committed {
            Ok(_) => self.add(RoundTripKind::Record, began),
            Err(fault) if fault.kind() == ErrorKind::Lost => self.add_failed(RoundTripKind::Record),
            Err(_) => {}
        }
    }

    /// Adds a failed record if this number of records could not be sent, because there is no connection.
    pub(super) fn add_unsent(&self, records: usize) {
        if records > 0 {
            self.add_failed(RoundTripKind::Record);
        }
    }

    fn keep(&self, kind: RoundTripKind, took: Option<Span>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back((kind, took));
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
    pub(super) fn take(&self) -> VecDeque<RoundTrip> {
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
        log.add_unsent(0);
        log.add_unsent(3);
        let taken = log.take();
        assert_eq!(taken.len(), MAX_KEPT);
        assert_eq!(taken.back(), Some(&(RoundTripKind::Record, None)));
        assert_eq!(taken[MAX_KEPT - 2].0, RoundTripKind::Fetch);
        assert!(log.take().is_empty());
    }

    #[test]
    fn commits_without_an_answer_are_failures() {
        let log = RoundTripLog::default();
        let result = |fault: DbError| -> Result<(), DbError> { Err(fault) };
        let lost = result(DbError::TimedOut(Duration::from_secs(6)));
        let answered = result(DbError::Corrupt("a row".to_owned()));
        for result in [lost, answered] {
            log.add_commit(Instant::now(), &result);
        }
        assert_eq!(log.take(), [(RoundTripKind::Record, None)]);
    }
}
