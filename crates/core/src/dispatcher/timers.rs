//! Who wants to be looked at again, and when.

use std::collections::BTreeSet;

/// At most one time for each lane, the earliest first.
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

    /// Moves a lane's time from what is armed to `wanted`.
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

    /// The earliest time.
    pub(super) fn earliest(&self) -> Option<T> {
        self.set.first().map(|(at, _)| *at)
    }

    /// A lane whose time has come by `now`. Its timer is still armed.
    pub(super) fn due(&self, now: T) -> Option<usize> {
        self.set
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, lane)| *lane)
    }
}
