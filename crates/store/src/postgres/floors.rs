//! From where on something may wait for an endpoint.
//!
//! A fetch reads an index in the order of due times. What has ended since the last one may still lie in it,
//! dead, for as long as somebody holds an old snapshot: a million rows to walk over. So a fetch begins at
//! the floor: the due time of the earliest row that the last one saw alive. Whoever hears of something
//! earlier lowers it. What is forgotten is read from the beginning.

use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

/// Of how many endpoints a floor is remembered.
const MAX_FLOORS: usize = 100_000;

/// The floors.
#[derive(Default)]
pub(super) struct Floors {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    floors: FxHashMap<EndpointId, Floor>,
    /// Counts what was lowered.
    lowered: u64,
    /// When everything was last forgotten.
    forgotten: u64,
}

struct Floor {
    due: Timestamp,
    /// When it was last lowered.
    lowered: u64,
}

/// Where a fetch begins, and when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) floor: Timestamp,
    at: u64,
}

impl Floors {
    /// A fetch begins.
    pub(super) fn begin(&self, endpoint: EndpointId) -> Begun {
        let inner = self.lock();
        let floor = inner.floors.get(&endpoint);
        Begun {
            floor: floor.map_or(Timestamp(0), |floor| floor.due),
            at: inner.lowered,
        }
    }

    /// A fetch saw this as the earliest that waits. What was lowered meanwhile it may have missed.
    pub(super) fn saw(&self, endpoint: EndpointId, begun: Begun, earliest: Timestamp) {
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
        let floor = inner.floors.entry(endpoint).or_insert(Floor {
            due: earliest,
            lowered: 0,
        });
        if floor.lowered <= begun.at {
            floor.due = earliest;
        }
    }

    /// Something is due that may not have been seen.
    pub(super) fn lower(&self, endpoint: EndpointId, due: Timestamp) {
        let mut inner = self.lock();
        inner.lowered += 1;
        let now = inner.lowered;
        if let Some(floor) = inner.floors.get_mut(&endpoint) {
            floor.due = floor.due.min(due);
            floor.lowered = now;
        } else if inner.floors.len() < MAX_FLOORS {
            // A fetch that is under way must not raise it above this.
            let floor = Floor {
                due: Timestamp(0),
                lowered: now,
            };
            inner.floors.insert(endpoint, floor);
        } else {
            inner.forgotten = now;
        }
    }

    /// Everything may have been missed.
    pub(super) fn forget(&self) {
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
        let floors = Floors::default();
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
        let floors = Floors::default();
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
