//! The number of searches for the targets of replays that run at the same time.
//!
//! A search keeps its targets in memory until they are stored. [`SearchSlots`] lets [`MAX_ACTIVE`] searches of different tenants
//! hold targets. Others wait, in the order in which they arrived, and hold none yet. A tenant has one active search and a few
//! that wait, so that it cannot keep others from searching. A search whose caller has stopped waiting is not started.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::id::TenantId;

use crate::StoreError;
use crate::reply::CallerPresence;

/// Maximum number of searches that hold targets. With two, a short search does not wait for a long one of another tenant.
pub(crate) const MAX_ACTIVE: usize = 2;
/// Maximum number of searches that wait for a slot.
pub(crate) const MAX_WAITING: usize = 64;
/// Maximum number of searches of one tenant that wait for a slot.
const MAX_WAITING_OF_TENANT: usize = 8;

/// Starts a search with its slot, or refuses it.
type Start = Box<dyn FnOnce(Result<SearchSlot, StoreError>) + Send>;

/// The slots for searches of a store.
#[derive(Default)]
pub(crate) struct SearchSlots {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The tenants whose searches are active.
    active: Vec<TenantId>,
    /// Oldest first.
    waiting: VecDeque<WaitingSearch>,
}

struct WaitingSearch {
    tenant: TenantId,
    caller: CallerPresence,
    start: Start,
}

/// Permission to search and to hold targets, until it is dropped.
pub(crate) struct SearchSlot {
    slots: Arc<SearchSlots>,
    tenant: TenantId,
}

impl SearchSlots {
    /// Calls `start` when a slot is free, or at once with an error if too many searches wait.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        tenant: TenantId,
        caller: CallerPresence,
        start: Start,
    ) {
        let search = WaitingSearch {
            tenant,
            caller,
            start,
        };
        let abandoned = self.lock().take_abandoned();
        // Dropped without the lock: they own what their callers have passed in.
        drop(abandoned);
        let refused = self.lock().enqueue(search);
        if let Some(search) = refused {
            (search.start)(Err(StoreError::Overloaded));
        }
        self.start_next();
    }

    /// Starts the oldest search that may start, if there is a slot for it. Drops those whose callers have left.
    fn start_next(self: &Arc<Self>) {
        let abandoned = self.lock().take_abandoned();
        drop(abandoned);
        let next = self.lock().next();
        if let Some(WaitingSearch { tenant, start, .. }) = next {
            let slots = self.clone();
            start(Ok(SearchSlot { slots, tenant }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes the waiting searches whose callers have left.
    fn take_abandoned(&mut self) -> Vec<WaitingSearch> {
        let all = std::mem::take(&mut self.waiting);
        let mut abandoned = Vec::new();
        for search in all {
            match search.caller.is_waiting() {
                true => self.waiting.push_back(search),
                false => abandoned.push(search),
            }
        }
        abandoned
    }

    /// Adds a search to those that wait. Returns it if too many wait.
    fn enqueue(&mut self, search: WaitingSearch) -> Option<WaitingSearch> {
        let same_tenant = |it: &&WaitingSearch| it.tenant == search.tenant;
        let is_full = self.waiting.len() >= MAX_WAITING
            || self.waiting.iter().filter(same_tenant).count() >= MAX_WAITING_OF_TENANT;
        if is_full {
            return Some(search);
        }
        self.waiting.push_back(search);
        None
    }

    /// Takes the oldest search of a tenant without an active one, and counts it as active.
    fn next(&mut self) -> Option<WaitingSearch> {
        if self.active.len() >= MAX_ACTIVE {
            return None;
        }
        let may_start =
            |it: &WaitingSearch| it.caller.is_waiting() && !self.active.contains(&it.tenant);
        let position = self.waiting.iter().position(may_start)?;
        let search = self.waiting.remove(position)?;
        self.active.push(search.tenant.clone());
        Some(search)
    }
}

impl Drop for SearchSlot {
    fn drop(&mut self) {
        let mut inner = self.slots.lock();
        if let Some(position) = inner.active.iter().position(|it| *it == self.tenant) {
            inner.active.swap_remove(position);
        }
        drop(inner);
        self.slots.start_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::reply::watched_reply_channel;

    type Log = Arc<Mutex<Vec<(usize, Result<SearchSlot, StoreError>)>>>;

    /// Acquires a slot for search `number`, of a tenant of its own, and logs its start.
    fn acquire(slots: &Arc<SearchSlots>, number: usize, log: &Log) -> Answer<()> {
        acquire_of(slots, &format!("t{number}"), number, log)
    }

    fn acquire_of(slots: &Arc<SearchSlots>, tenant: &str, number: usize, log: &Log) -> Answer<()> {
        let (_, answer, caller) = watched_reply_channel();
        let log = log.clone();
        let start = move |slot| log.lock().expect("no test panics").push((number, slot));
        slots.acquire(
            tenant.parse().expect("a tenant id"),
            caller,
            Box::new(start),
        );
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
        assert_eq!(slots.lock().active, []);
        drop(answers);
    }

    #[test]
    fn a_search_whose_caller_has_left_is_not_started() {
        let (slots, log) = (Arc::new(SearchSlots::default()), Log::default());
        let mut answers: Vec<_> = (0..4).map(|n| acquire(&slots, n, &log)).collect();
        drop(answers.remove(2));
        assert_eq!(end_all(&log), [(0, true), (1, true)]);
        assert_eq!(end_all(&log), [(3, true)]);
        assert_eq!(slots.lock().active, []);
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

    #[test]
    fn a_tenant_keeps_no_other_from_searching() {
        let (slots, log) = (Arc::new(SearchSlots::default()), Log::default());
        let all = 1 + MAX_WAITING_OF_TENANT;
        let answers: Vec<_> = (0..=all)
            .map(|n| acquire_of(&slots, "many", n, &log))
            .collect();
        assert_eq!(end_all(&log)[..2], [(0, true), (all, false)]);
        let other = acquire_of(&slots, "other", 99, &log);
        let started = end_all(&log);
        assert!(started.contains(&(99, true)), "{started:?}");
        drop((answers, other));
    }
}
