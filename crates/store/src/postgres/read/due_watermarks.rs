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
const MAX_FLOORS: usize = 100_000;

/// The due watermarks of endpoints.
#[derive(Default)]
pub(in crate::postgres) struct DueWatermarks {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    floors: FxHashMap<EndpointId, DueWatermark>,
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
pub(in crate::postgres) struct FetchStart {
    pub(in crate::postgres) floor: Timestamp,
    at: u64,
}

impl DueWatermarks {
    /// Starts a fetch.
    pub(in crate::postgres) fn begin(&self, endpoint: EndpointId) -> FetchStart {
        let inner = self.lock();
        let floor = inner.floors.get(&endpoint);
        FetchStart {
            floor: floor.map_or(Timestamp(0), |floor| floor.due),
            at: inner.lowered,
        }
    }

    /// Sets the watermark after a fetch that saw this earliest due time. Does nothing if it was lowered or dropped
    /// since the fetch started, because the fetch may have missed a delivery.
    pub(in crate::postgres) fn saw(
        &self,
        endpoint: EndpointId,
        begun: FetchStart,
        earliest: Timestamp,
    ) {
        let mut inner = self.lock();
        if inner.forgotten > begun.at {
            return;
        }
        if inner.floors.len() >= MAX_FLOORS && !inner.floors.contains_key(&endpoint) {
            inner.floors.clear();
            inner.lowered += 1;
            inner.forgotten = inner.lowered;
            return;
        }
        let floor = inner.floors.entry(endpoint).or_insert(DueWatermark {
            due: earliest,
            lowered: 0,
        });
        if floor.lowered <= begun.at {
            floor.due = earliest;
        }
    }

    /// Lowers the watermark for a delivery that the last fetch may not have seen.
    pub(in crate::postgres) fn lower(&self, endpoint: EndpointId, due: Timestamp) {
        let mut inner = self.lock();
        inner.lowered += 1;
        let now = inner.lowered;
        if let Some(floor) = inner.floors.get_mut(&endpoint) {
            floor.due = floor.due.min(due);
            floor.lowered = now;
        } else if inner.floors.len() < MAX_FLOORS {
            // A fetch that is in progress must not raise the watermark above this.
            let floor = DueWatermark {
                due: Timestamp(0),
                lowered: now,
            };
            inner.floors.insert(endpoint, floor);
        } else {
            inner.forgotten = now;
        }
    }

    /// Drops all watermarks, because deliveries may have been missed.
    pub(in crate::postgres) fn forget(&self) {
        let mut inner = self.lock();
        inner.floors.clear();
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
    fn a_fetch_begins_where_the_last_one_saw_something() {
        let floors = DueWatermarks::default();
        let begun = floors.begin(HERE);
        assert_eq!(begun.floor, Timestamp(0));
        floors.saw(HERE, begun, Timestamp(500));
        assert_eq!(floors.begin(HERE).floor, Timestamp(500));
        floors.lower(HERE, Timestamp(300));
        assert_eq!(floors.begin(HERE).floor, Timestamp(300));
        floors.lower(HERE, Timestamp(900));
        assert_eq!(floors.begin(HERE).floor, Timestamp(300));
    }

    #[test]
    fn a_fetch_does_not_raise_what_was_lowered_meanwhile() {
        let floors = DueWatermarks::default();
        for known in [true, false] {
            if known {
                let begun = floors.begin(HERE);
                floors.saw(HERE, begun, Timestamp(500));
            } else {
                floors.forget();
            }
            let begun = floors.begin(HERE);
            floors.lower(HERE, Timestamp(200));
            floors.saw(HERE, begun, Timestamp(800));
            assert!(floors.begin(HERE).floor <= Timestamp(200), "{known}");
        }
        let begun = floors.begin(HERE);
        floors.forget();
        floors.saw(HERE, begun, Timestamp(900));
        assert_eq!(floors.begin(HERE).floor, Timestamp(0));
    }
}
