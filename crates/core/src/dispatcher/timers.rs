//! Timers of the lanes, ordered by time.
//!
//! [`Timers`] holds at most one timer per lane, on one clock: the dispatcher has one instance for the monotonic
//! clock and one for the wall clock. The lane itself remembers the time of its timer, so that setting, moving and
//! removing it is one call ([`Timers::arm`]). A due timer stays armed until the lane sets it anew.

use std::collections::BTreeSet;

/// Timers, earliest first. Each lane has at most one.
#[derive(Debug)]
pub(super) struct Timers<T> {
    set: BTreeSet<(T, usize)>,
}

impl<T: Ord + Copy> Timers<T> {
    pub(super) fn new() -> Timers<T> {
        Timers {
            set: BTreeSet::new(),
        }
    }

    /// Changes the timer of a lane from `armed` to `wanted`.
    pub(super) fn arm(&mut self, lane: usize, armed: &mut Option<T>, wanted: Option<T>) {
        if *armed == wanted {
            return;
        }
        if let Some(old) = armed.take() {
            self.set.remove(&(old, lane));
        }
        if let Some(new) = wanted {
            self.set.insert((new, lane));
        }
        *armed = wanted;
    }

    /// Returns the earliest time.
    pub(super) fn earliest(&self) -> Option<T> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Returns a lane whose timer is due at `now`. The timer stays armed.
    pub(super) fn due(&self, now: T) -> Option<usize> {
        self.set
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, lane)| *lane)
    }
}
