//! Round trips to the database that endpoints wait for, on their way to the membership.
//!
//! Readers and the writer add the durations of fetches and records to [`RoundTripLog`], and those that failed because the
//! database did not answer or could not be reached. An error that the database answers with says nothing about the link, nor does
//! a fetch that takes too long: one endpoint may be the cause. With
//! each heartbeat the membership takes them and judges by them whether this node is quick enough for its shards. The time in a
//! queue does not count: it says how much work there is, not how slow the link is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::RoundTripKind;
use posthaste_core::time::Span;
use tokio::time::Instant;

use super::db_error::{DbError, ErrorKind};
use crate::StoreError;

/// Maximum number of round trips of each kind that are kept between two heartbeats. The membership uses the last few.
const MAX_KEPT: usize = 16;

/// A link with slower round trips holds no lock that other nodes may wait for during them.
const QUICK_ROUND_TRIP_MS: u64 = 100;

/// The last round trips.
#[derive(Debug, Default)]
pub(super) struct RoundTripLog {
    /// The durations by kind, oldest first; `None` for one that failed.
    kept: Mutex<[VecDeque<Option<Span>>; RoundTripKind::ALL.len()]>,
    /// Duration of the last heartbeat, in milliseconds.
    heartbeat_ms: AtomicU64,
}

impl RoundTripLog {
    /// Adds a round trip that began then and has ended now.
    fn add(&self, kind: RoundTripKind, began: Instant) {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.keep(kind, Some(Span::from_millis(took)));
    }

    /// Adds the commit of this number of records, which began then, if there are any.
    pub(super) fn add_written(&self, records: usize, began: Instant) {
        if records > 0 {
            self.add(RoundTripKind::Record, began);
        }
    }

    /// Adds a failed record if this number of records could not be written: the database did not answer, or there is no
    /// connection.
    pub(super) fn add_unwritten(&self, records: usize) {
        if records > 0 {
            self.keep(RoundTripKind::Record, None);
        }
    }

    fn keep(&self, kind: RoundTripKind, took: Option<Span>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut kept[kind as usize];
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(took);
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

    /// Takes all of them, those of each kind in their order. The duration is `None` if it failed.
    pub(super) fn take(&self) -> Vec<(RoundTripKind, Option<Span>)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = |kind: RoundTripKind| {
            let taken = std::mem::take(&mut kept[kind as usize]);
            taken.into_iter().map(move |took| (kind, took))
        };
        RoundTripKind::ALL.into_iter().flat_map(of_kind).collect()
    }
}

/// A fetch on its way to the log. It is tried on a second connection if the first one is dead, and fails at most once.
#[derive(Clone)]
pub(super) struct FetchRoundTrip {
    log: Arc<RoundTripLog>,
    /// True if the last try failed without losing its connection: by an error of the database, or by its time limit.
    is_refused: Arc<AtomicBool>,
}

impl FetchRoundTrip {
    pub(super) fn new(log: Arc<RoundTripLog>) -> FetchRoundTrip {
        FetchRoundTrip {
            log,
            is_refused: Arc::default(),
        }
    }

    /// Handles the result of a try that began then.
    pub(super) fn tried<T>(&self, began: Instant, result: &Result<T, DbError>) {
        match result {
            Ok(_) => self.log.add(RoundTripKind::Fetch, began),
            Err(fault) => {
                let is_refused =
                    fault.kind() != ErrorKind::Lost || matches!(fault, DbError::TimedOut(_));
                self.is_refused.store(is_refused, Ordering::Relaxed);
            }
        }
    }

    /// Handles the result of the fetch. It has failed if the last try lost its connection, or if there was none.
    pub(super) fn ended<T>(&self, result: &Result<T, StoreError>) {
        let is_refused = self.is_refused.load(Ordering::Relaxed);
        if matches!(result, Err(StoreError::Unavailable(_))) && !is_refused {
            self.log.keep(RoundTripKind::Fetch, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_round_trips_of_each_kind_are_kept() {
        let log = RoundTripLog::default();
        log.add_unwritten(0);
        log.add_unwritten(3);
        for _ in 0..100 {
            log.add(RoundTripKind::Fetch, Instant::now());
        }
        let taken = log.take();
        assert_eq!(taken.len(), MAX_KEPT + 1);
        assert_eq!(taken[0].0, RoundTripKind::Fetch);
        assert_eq!(taken[MAX_KEPT], (RoundTripKind::Record, None));
        assert!(log.take().is_empty());
    }

    #[test]
    fn fetches_without_an_answer_are_failures() {
        let unavailable = || -> Result<(), _> { Err(StoreError::Unavailable("why".to_owned())) };
        let late = || DbError::TimedOut(Duration::from_secs(6));
        let answered = || DbError::Corrupt("a row".to_owned());
        let failures = |tries: Vec<DbError>, result: Result<(), StoreError>| {
            let log = Arc::new(RoundTripLog::default());
            let fetch = FetchRoundTrip::new(log.clone());
            for fault in tries {
                fetch.tried(Instant::now(), &Err::<(), _>(fault));
            }
            fetch.ended(&result);
            log.take().len()
        };
        for (tries, result, expected) in [
            // There is no connection.
            (vec![], unavailable(), 1),
            (vec![], Err(StoreError::Overloaded), 0),
            (vec![late()], unavailable(), 0),
            (vec![late()], Ok(()), 0),
            (vec![answered()], unavailable(), 0),
        ] {
            let shown = format!("{tries:?} {result:?}");
            assert_eq!(failures(tries, result), expected, "{shown}");
        }
    }
}
