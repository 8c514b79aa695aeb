//! Accepts in progress, to tell when they stall.
//!
//! [`AcceptWatch`] knows since when each tenant waits for a commit: since its oldest accept began, or since its last commit.
//! Accepts of a [`TenantClass`] have stalled if a tenant has waited longer than [`MAX_WAIT`] and no accept of the class was
//! committed in time meanwhile. So a tenant that waits for its own turn behind its own events does not make a node
//! unready, and neither do several of them as long as accepts of others are committed in time.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Tick};
use posthaste_telemetry::metrics::request_counters::TenantClass;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Maximum time that an accept may wait for its commit before the node is not ready.
pub const MAX_WAIT: Span = Span::from_secs(5);

/// The accepts in progress.
#[derive(Default)]
pub struct AcceptWatch {
    accepts: Mutex<Accepts>,
}

#[derive(Default)]
struct Accepts {
    /// The tenants with accepts in progress, by the hash of their id.
    tenants: FxHashMap<u64, TenantWait>,
    limited: ClassCommits,
    default: ClassCommits,
}

/// The accepts of one tenant.
struct TenantWait {
    class: TenantClass,
    accepts: usize,
    /// The time since which the tenant waits for a commit.
    since: Tick,
}

/// The commits of a class of tenants.
#[derive(Default)]
struct ClassCommits {
    /// The last time that an accept was committed within [`MAX_WAIT`].
    last_in_time: Option<Tick>,
}

/// An accept in progress. It ends when this is dropped.
pub struct AcceptGuard {
    watch: Arc<AcceptWatch>,
    tenant: u64,
    class: TenantClass,
    begun_at: Tick,
    committed_at: Option<Tick>,
}

impl AcceptWatch {
    /// Begins an accept.
    pub fn begin(self: &Arc<Self>, now: Tick, id: &TenantId, class: TenantClass) -> AcceptGuard {
        let tenant = FxBuildHasher.hash_one(id);
        let mut accepts = self.lock();
        let wait = accepts.tenants.entry(tenant).or_insert(TenantWait {
            class,
            accepts: 0,
            since: now,
        });
        wait.accepts += 1;
        wait.class = class;
        AcceptGuard {
            watch: self.clone(),
            tenant,
            class,
            begun_at: now,
            committed_at: None,
        }
    }

    /// Returns the longest time that a tenant has waited, if accepts have stalled.
    pub fn stalled_for(&self, now: Tick) -> Option<Span> {
        let accepts = self.lock();
        let is_late = |since: Tick| now.since(since) > MAX_WAIT;
        let stalled = accepts.tenants.values().filter(|wait| {
            let last_in_time = accepts.commits_of(wait.class).last_in_time;
            is_late(wait.since) && last_in_time.is_none_or(is_late)
        });
        stalled.map(|wait| now.since(wait.since)).max()
    }

    fn lock(&self) -> MutexGuard<'_, Accepts> {
        // No operation panics before it is complete.
        self.accepts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accepts {
    fn commits_of(&self, class: TenantClass) -> &ClassCommits {
        match class {
            TenantClass::Limited => &self.limited,
            TenantClass::Default => &self.default,
        }
    }

    fn commits_of_mut(&mut self, class: TenantClass) -> &mut ClassCommits {
        match class {
            TenantClass::Limited => &mut self.limited,
            TenantClass::Default => &mut self.default,
        }
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
        if let Some(now) = self.committed_at
            && now.since(self.begun_at) <= MAX_WAIT
        {
            accepts.commits_of_mut(self.class).last_in_time = Some(now);
        }
        let Some(wait) = accepts.tenants.get_mut(&self.tenant) else {
            return;
        };
        wait.accepts -= 1;
        wait.since = self.committed_at.unwrap_or(wait.since);
        if wait.accepts == 0 {
            accepts.tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Tick = Tick(10_000);
    const LATE: Tick = Tick(START.0 + MAX_WAIT.as_millis() + 1);

    fn begin(watch: &Arc<AcceptWatch>, now: Tick, name: &str) -> AcceptGuard {
        let tenant = name.parse().expect("a valid id");
        watch.begin(now, &tenant, TenantClass::Default)
    }

    fn span(from: Tick, until: Tick) -> Option<Span> {
        Some(until.since(from))
    }

    #[test]
    fn accepts_stall_when_nothing_is_committed() {
        let watch = Arc::new(AcceptWatch::default());
        assert_eq!(watch.stalled_for(LATE), None);
        let first = begin(&watch, START, "acme");
        assert_eq!(watch.stalled_for(Tick(LATE.0 - 1)), None);
        assert_eq!(watch.stalled_for(LATE), span(START, LATE));
        let second = begin(&watch, LATE, "acme");
        assert_eq!(watch.stalled_for(LATE), span(START, LATE));
        second.committed(LATE);
        assert_eq!(watch.stalled_for(LATE), None, "accepts move");
        let later = Tick(LATE.0 + MAX_WAIT.as_millis() + 1);
        assert_eq!(watch.stalled_for(later), span(LATE, later));
        drop(first);
        assert_eq!(watch.stalled_for(later), None);
    }

    #[test]
    fn tenants_that_wait_behind_their_own_events_do_not_stall_a_node() {
        let watch = Arc::new(AcceptWatch::default());
        let flood = |name| [0; 3].map(|_| begin(&watch, START, name));
        let ([first, .., _a], [second, .., _b]) = (flood("acme"), flood("globex"));
        assert_eq!(watch.stalled_for(LATE), span(START, LATE));
        first.committed(LATE);
        second.committed(LATE);
        assert_eq!(watch.stalled_for(LATE), None, "each has had its turn");
        let later = Tick(LATE.0 + MAX_WAIT.as_millis() + 1);
        assert!(watch.stalled_for(later).is_some(), "no turn for too long");
        begin(&watch, later, "third").committed(later);
        assert_eq!(watch.stalled_for(later), None, "others are in time");
    }

    #[test]
    fn a_late_commit_does_not_hide_that_others_wait() {
        let watch = Arc::new(AcceptWatch::default());
        let _waits = begin(&watch, START, "acme");
        begin(&watch, START, "globex").committed(LATE);
        assert_eq!(watch.stalled_for(LATE), span(START, LATE));
    }

    #[test]
    fn commits_of_one_class_do_not_hide_that_the_other_waits() {
        let watch = Arc::new(AcceptWatch::default());
        let limited = "limited".parse().expect("a valid id");
        let waits = watch.begin(START, &limited, TenantClass::Limited);
        begin(&watch, LATE, "acme").committed(LATE);
        assert_eq!(watch.stalled_for(LATE), span(START, LATE));
        watch
            .begin(LATE, &limited, TenantClass::Limited)
            .committed(LATE);
        assert_eq!(watch.stalled_for(LATE), None);
        drop(waits);
    }

    #[test]
    fn nothing_is_kept_of_tenants_without_accepts() {
        let watch = Arc::new(AcceptWatch::default());
        for number in 0..100 {
            let _one = begin(&watch, START, &format!("t{number}"));
            let _other = begin(&watch, START, &format!("t{number}"));
        }
        assert!(watch.lock().tenants.is_empty());
    }
}
