//! The number of searches for the targets of replays that run at the same time.
//!
//! A search keeps its targets in memory until they are stored. [`SearchSlots`] lets [`MAX_ACTIVE`] searches hold targets.
//! Others wait, in the order in which they arrived, and hold none yet. A search whose caller has stopped waiting is not
//! started.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::StoreError;
use crate::reply::CallerPresence;

/// Maximum number of searches that hold targets. With two, a short search does not wait for a long one.
pub(crate) const MAX_ACTIVE: usize = 2;
/// Maximum number of searches that wait for a slot.
pub(crate) const MAX_WAITING: usize = 64;

/// Starts a search with its slot, or refuses it.
type Start = Box<dyn FnOnce(Result<SearchSlot, StoreError>) + Send>;

/// The slots for searches of a store.
#[derive(Default)]
pub(crate) struct SearchSlots {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    active: usize,
    /// Oldest first.
    waiting: VecDeque<(CallerPresence, Start)>,
}

/// Permission to search and to hold targets, until it is dropped.
pub(crate) struct SearchSlot(Arc<SearchSlots>);

impl SearchSlots {
    /// Calls `start` when a slot is free, or at once with an error if too many searches wait.
    pub(crate) fn acquire(self: &Arc<Self>, caller: CallerPresence, start: Start) {
        let (start, slot) = {
            let mut inner = self.lock();
            if inner.active < MAX_ACTIVE {
                inner.active += 1;
                (start, Ok(SearchSlot(self.clone())))
            } else {
                inner.waiting.retain(|(caller, _)| caller.is_waiting());
                if inner.waiting.len() < MAX_WAITING {
                    inner.waiting.push_back((caller, start));
                    return;
                }
                (start, Err(StoreError::Overloaded))
            }
        };
        start(slot);
    }

    /// Returns the search that gets a slot that was released. Without one, the slot is free.
    fn release(&self) -> Option<Start> {
        let mut inner = self.lock();
        while let Some((caller, start)) = inner.waiting.pop_front() {
            if caller.is_waiting() {
                return Some(start);
            }
        }
        inner.active -= 1;
        None
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SearchSlot {
    fn drop(&mut self) {
        if let Some(start) = self.0.release() {
            start(Ok(SearchSlot(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::reply::watched_reply_channel;

    type Log = Arc<Mutex<Vec<(usize, Result<SearchSlot, StoreError>)>>>;

    /// Acquires a slot for search `number`, and logs its start.
    fn acquire(slots: &Arc<SearchSlots>, number: usize, log: &Log) -> Answer<()> {
        let (_, answer, caller) = watched_reply_channel();
        let log = log.clone();
        let start = move |slot| log.lock().expect("no test panics").push((number, slot));
        slots.acquire(caller, Box::new(start));
        answer
    }

    /// Returns the searches that were started or refused, and ends them.
    fn end_all(log: &Log) -> Vec<(usize, bool)> {
        let ended = std::mem::take(&mut *log.lock().expect("no test panics"));
        ended
            .into_iter()
            .map(|(n, slot)| (n, slot.is_ok()))
            .collect()
    }

    #[test]
    fn searches_beyond_the_limits_wait_in_order_and_are_refused() {
        let (slots, log) = (Arc::new(SearchSlots::default()), Log::default());
        let all = MAX_ACTIVE + MAX_WAITING;
        let answers: Vec<_> = (0..all).map(|n| acquire(&slots, n, &log)).collect();
        assert_eq!(log.lock().expect("no test panics").len(), MAX_ACTIVE);
        drop(acquire(&slots, all, &log));
        let refused = log.lock().expect("no test panics").pop();
        assert!(matches!(refused, Some((n, Err(StoreError::Overloaded))) if n == all));
        let mut started = Vec::new();
        for _ in 0..all.div_ceil(MAX_ACTIVE) {
            let ended = end_all(&log);
            assert!(ended.len() <= MAX_ACTIVE);
            started.extend(ended);
        }
        assert_eq!(started, (0..all).map(|n| (n, true)).collect::<Vec<_>>());
        assert_eq!(slots.lock().active, 0);
        drop(answers);
    }

    #[test]
    fn a_search_whose_caller_has_left_is_not_started() {
        let (slots, log) = (Arc::new(SearchSlots::default()), Log::default());
        let mut answers: Vec<_> = (0..4).map(|n| acquire(&slots, n, &log)).collect();
        drop(answers.remove(2));
        assert_eq!(end_all(&log), [(0, true), (1, true)]);
        assert_eq!(end_all(&log), [(3, true)]);
        assert_eq!(slots.lock().active, 0);
    }

    #[test]
    fn searches_whose_callers_have_left_make_room() {
        let (slots, log) = (Arc::new(SearchSlots::default()), Log::default());
        let active: Vec<_> = (0..MAX_ACTIVE).map(|n| acquire(&slots, n, &log)).collect();
        for n in 0..MAX_WAITING {
            drop(acquire(&slots, n, &log));
        }
        let waiting = acquire(&slots, 99, &log);
        assert_eq!(end_all(&log).len(), MAX_ACTIVE);
        assert_eq!(end_all(&log), [(99, true)]);
        drop((active, waiting));
    }
}
