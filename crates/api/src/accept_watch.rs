//! Accepts in progress, to tell when they stall.
//!
//! [`AcceptWatch`] knows since when each accept waits for its commit. Accepts have stalled if one has waited longer
//! than [`MAX_WAIT`], and this is not only a tenant that waits for its own turn behind its own events: either
//! no accept at all was committed for that time, or accepts of several tenants wait that long.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Tick};
use rustc_hash::FxBuildHasher;

/// Maximum time that an accept may wait for its commit before the node is not ready.
pub const MAX_WAIT: Span = Span::from_secs(5);

/// The accepts in progress.
#[derive(Default)]
pub struct AcceptWatch {
    accepts: Mutex<Accepts>,
}

#[derive(Default)]
struct Accepts {
    /// Free entries are `None`.
    waiting: Vec<Option<Waiting>>,
    free: Vec<usize>,
    last_commit: Option<Tick>,
}

/// One accept.
#[derive(Clone, Copy)]
struct Waiting {
    since: Tick,
    /// The hash of its tenant's id.
    tenant: u64,
}

/// An accept in progress. It ends when this is dropped.
pub struct AcceptGuard {
    watch: Arc<AcceptWatch>,
    index: usize,
    committed_at: Option<Tick>,
}

impl AcceptWatch {
    /// Begins an accept.
    pub fn begin(self: &Arc<Self>, now: Tick, tenant: &TenantId) -> AcceptGuard {
        let waiting = Waiting {
            since: now,
            tenant: FxBuildHasher.hash_one(tenant),
        };
        let mut accepts = self.lock();
        let index = match accepts.free.pop() {
            Some(index) => {
                accepts.waiting[index] = Some(waiting);
                index
            }
            None => {
                accepts.waiting.push(Some(waiting));
                accepts.waiting.len() - 1
            }
        };
        AcceptGuard {
            watch: self.clone(),
            index,
            committed_at: None,
        }
    }

    /// Returns the time that the oldest accept has waited, if accepts have stalled.
    pub fn stalled_for(&self, now: Tick) -> Option<Span> {
        let accepts = self.lock();
        let is_late = |since: Tick| now.since(since) > MAX_WAIT;
        let mut oldest = None;
        let mut tenant = None;
        let mut are_several = false;
        for waiting in accepts.waiting.iter().flatten() {
            if !is_late(waiting.since) {
                continue;
            }
            oldest = oldest.min(Some(waiting.since)).or(Some(waiting.since));
            are_several |= tenant.is_some_and(|other| other != waiting.tenant);
            tenant = Some(waiting.tenant);
        }
        let nothing_moves = accepts.last_commit.is_none_or(is_late);
        oldest
            .filter(|_| nothing_moves || are_several)
            .map(|since| now.since(since))
    }

    fn lock(&self) -> MutexGuard<'_, Accepts> {
        // No operation panics before it is complete.
        self.accepts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcceptGuard {
    /// Ends the accept, because it was committed.
    pub fn committed(mut self, now: Tick) {
        self.committed_at = Some(now);
    }
}

impl Drop for AcceptGuard {
    fn drop(&mut self) {
        let mut accepts = self.watch.lock();
        accepts.waiting[self.index] = None;
        accepts.free.push(self.index);
        accepts.last_commit = self.committed_at.or(accepts.last_commit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Tick = Tick(10_000 + MAX_WAIT.as_millis() + 1);

    fn tenant(name: &str) -> TenantId {
        name.parse().expect("a valid id")
    }

    #[test]
    fn accepts_stall_when_nothing_is_committed() {
        let watch = Arc::new(AcceptWatch::default());
        assert_eq!(watch.stalled_for(LATE), None);
        let first = watch.begin(Tick(10_000), &tenant("acme"));
        assert_eq!(watch.stalled_for(Tick(LATE.0 - 1)), None);
        let waited = Span::from_millis(MAX_WAIT.as_millis() + 1);
        assert_eq!(watch.stalled_for(LATE), Some(waited));
        let second = watch.begin(LATE, &tenant("acme"));
        assert_eq!(watch.stalled_for(LATE), Some(waited));
        second.committed(LATE);
        assert_eq!(watch.stalled_for(LATE), None, "accepts move");
        let later = Tick(LATE.0 + MAX_WAIT.as_millis() + 1);
        assert!(watch.stalled_for(later).is_some(), "nothing moves again");
        drop(first);
        assert_eq!(watch.stalled_for(later), None);
    }

    #[test]
    fn accepts_stall_when_several_tenants_wait() {
        let watch = Arc::new(AcceptWatch::default());
        let moves = || watch.begin(LATE, &tenant("other")).committed(LATE);
        let _first = watch.begin(Tick(10_000), &tenant("acme"));
        let _second = watch.begin(Tick(10_000), &tenant("acme"));
        moves();
        assert_eq!(watch.stalled_for(LATE), None, "acme waits for itself");
        let third = watch.begin(Tick(9_000), &tenant("globex"));
        moves();
        let waited = Span::from_millis(LATE.0 - 9_000);
        assert_eq!(watch.stalled_for(LATE), Some(waited));
        drop(third);
        assert_eq!(watch.stalled_for(LATE), None);
    }

    #[test]
    fn entries_are_used_again() {
        let watch = Arc::new(AcceptWatch::default());
        for _ in 0..100 {
            let _one = watch.begin(Tick(0), &tenant("acme"));
            let _other = watch.begin(Tick(0), &tenant("acme"));
        }
        assert_eq!(watch.lock().waiting.len(), 2);
    }
}
