//! Due watermarks: the earliest due time at which an endpoint can have waiting deliveries.
//!
//! A fetch reads an index in the order of due times. Entries of deleted rows stay in the index as long as any
//! transaction holds an old snapshot, and a fetch may have to skip a million of them. A fetch therefore starts at the
//! due watermark: the due time of the earliest live row that the last fetch saw. A delivery that becomes due earlier
//! lowers the watermark. Without a watermark a fetch reads from the start of the index.

use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

/// Maximum number of endpoints with a watermark.
const MAX_DUE_WATERMARKS: usize = 100_000;

/// The due watermarks of endpoints.
#[derive(Default)]
pub(in crate::postgres) struct DueWatermarks {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    watermarks: FxHashMap<EndpointId, DueWatermark>,
    /// Counts calls that lowered a watermark. Serves as a logical clock.
    lowered: u64,
    /// The value of `lowered` when all watermarks were last dropped.
    forgotten: u64,
}

struct DueWatermark {
    due: Timestamp,
    /// The value of `Inner::lowered` when this watermark was last lowered.
    lowered: u64,
}

/// The start of a fetch: its watermark and its logical time.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchStart {
    pub(super) watermark: Timestamp,
    at: u64,
}

impl DueWatermarks {
    /// Starts a fetch.
    pub(super) fn begin(&self, endpoint: EndpointId) -> FetchStart {
        let inner = self.lock();
        let watermark = inner.watermarks.get(&endpoint);
        FetchStart {
            watermark: watermark.map_or(Timestamp(0), |watermark| watermark.due),
            at: inner.lowered,
        }
    }

    /// Sets the watermark after a fetch that saw this earliest due time. Does nothing if it was lowered or dropped
    /// since the fetch started, because the fetch may have missed a delivery.
    pub(super) fn set_after_fetch(
        &self,
        endpoint: EndpointId,
        begun: FetchStart,
        earliest: Timestamp,
    ) {
        let mut inner = self.lock();
        if inner.forgotten > begun.at {
            return;
        }
        if inner.watermarks.len() >= MAX_DUE_WATERMARKS && !inner.watermarks.contains_key(&endpoint)
        {
            inner.watermarks.clear();
            inner.lowered += 1;
            inner.forgotten = inner.lowered;
            return;
        }
        let watermark = inner.watermarks.entry(endpoint).or_insert(DueWatermark {
            due: earliest,
            lowered: 0,
        });
        if watermark.lowered <= begun.at {
            watermark.due = earliest;
        }
    }

    /// Lowers the watermark for a delivery that the last fetch may not have seen.
    pub(in crate::postgres) fn lower(&self, endpoint: EndpointId, due: Timestamp) {
        let mut inner = self.lock();
        inner.lowered += 1;
        let now = inner.lowered;
        if let Some(watermark) = inner.watermarks.get_mut(&endpoint) {
            watermark.due = watermark.due.min(due);
            watermark.lowered = now;
        } else if inner.watermarks.len() < MAX_DUE_WATERMARKS {
            // A fetch that is in progress must not raise the watermark above this.
            let watermark = DueWatermark {
                due: Timestamp(0),
                lowered: now,
            };
            inner.watermarks.insert(endpoint, watermark);
        } else {
            inner.forgotten = now;
        }
    }

    /// Drops all watermarks, because deliveries may have been missed.
    pub(in crate::postgres) fn forget(&self) {
        let mut inner = self.lock();
        inner.watermarks.clear();
        inner.lowered += 1;
        inner.forgotten = inner.lowered;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: EndpointId = EndpointId(7);

    #[test]
    fn a_fetch_starts_at_the_due_watermark() {
        let watermarks = DueWatermarks::default();
        let begun = watermarks.begin(HERE);
        assert_eq!(begun.watermark, Timestamp(0));
        watermarks.set_after_fetch(HERE, begun, Timestamp(500));
        assert_eq!(watermarks.begin(HERE).watermark, Timestamp(500));
        watermarks.lower(HERE, Timestamp(300));
        assert_eq!(watermarks.begin(HERE).watermark, Timestamp(300));
        watermarks.lower(HERE, Timestamp(900));
        assert_eq!(watermarks.begin(HERE).watermark, Timestamp(300));
    }

    #[test]
    fn a_fetch_does_not_raise_a_lowered_watermark() {
        let watermarks = DueWatermarks::default();
        for known in [true, false] {
            if known {
                let begun = watermarks.begin(HERE);
                watermarks.set_after_fetch(HERE, begun, Timestamp(500));
            } else {
                watermarks.forget();
            }
            let begun = watermarks.begin(HERE);
            watermarks.lower(HERE, Timestamp(200));
            watermarks.set_after_fetch(HERE, begun, Timestamp(800));
            assert!(
                watermarks.begin(HERE).watermark <= Timestamp(200),
                "{known}"
            );
        }
        let begun = watermarks.begin(HERE);
        watermarks.forget();
        watermarks.set_after_fetch(HERE, begun, Timestamp(900));
        assert_eq!(watermarks.begin(HERE).watermark, Timestamp(0));
    }
}
