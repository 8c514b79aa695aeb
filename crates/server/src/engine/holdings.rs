//! What is this node's to send.
//!
//! The shell alone changes it; whoever works for the shell looks at it, from any task.

use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::cluster::{SHARD_COUNT, Shard};
use posthaste_core::id::EndpointId;
use posthaste_core::time::Tick;

/// A shard that is another's, or nobody's.
const NOT_OURS: u64 = u64::MAX;
/// Set while a shard is being given up.
const LEAVING: u64 = 1 << 63;

/// Of each shard, since when it is ours.
pub(super) struct Holdings {
    since: [AtomicU64; SHARD_COUNT as usize],
}

/// How a shard stands to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Another's, or nobody's.
    Not,
    /// Ours, since then.
    Ours(Tick),
    /// Ours, and being given up.
    Leaving(Tick),
}

impl Holdings {
    /// Everything, since the process began: the store belongs to it alone.
    pub(super) fn everything() -> Holdings {
        Holdings {
            since: [const { AtomicU64::new(Tick::START.0) }; SHARD_COUNT as usize],
        }
    }

    /// Nothing yet.
    pub(super) fn nothing() -> Holdings {
        Holdings {
            since: [const { AtomicU64::new(NOT_OURS) }; SHARD_COUNT as usize],
        }
    }

    pub(super) fn of(&self, shard: Shard) -> Hold {
        match self.since[usize::from(shard.number())].load(Ordering::SeqCst) {
            NOT_OURS => Hold::Not,
            since if since & LEAVING != 0 => Hold::Leaving(Tick(since & !LEAVING)),
            since => Hold::Ours(Tick(since)),
        }
    }

    pub(super) fn of_endpoint(&self, endpoint: EndpointId) -> Hold {
        self.of(Shard::of(endpoint))
    }

    /// Whether only this node may do something about an endpoint.
    pub(super) fn owns(&self, endpoint: EndpointId) -> bool {
        match self.of_endpoint(endpoint) {
            Hold::Ours(_) | Hold::Leaving(_) => true,
            Hold::Not => false,
        }
    }

    /// Whether something may begin for an endpoint.
    pub(super) fn keeps(&self, endpoint: EndpointId) -> bool {
        match self.of_endpoint(endpoint) {
            Hold::Ours(_) => true,
            Hold::Not | Hold::Leaving(_) => false,
        }
    }

    pub(super) fn set(&self, shard: Shard, hold: Hold) {
        let since = match hold {
            Hold::Not => NOT_OURS,
            Hold::Ours(since) => since.0,
            Hold::Leaving(since) => since.0 | LEAVING,
        };
        self.since[usize::from(shard.number())].store(since, Ordering::SeqCst);
    }

    /// How many shards are ours.
    pub(super) fn count(&self) -> usize {
        let ours = |shard: &Shard| self.of(*shard) != Hold::Not;
        Shard::all().filter(ours).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_what_it_was_set_to() {
        let holdings = Holdings::nothing();
        let shard = Shard::numbered(7).expect("a shard");
        for hold in [
            Hold::Not,
            Hold::Ours(Tick::START),
            Hold::Ours(Tick(5)),
            Hold::Leaving(Tick(5)),
            Hold::Leaving(Tick::START),
        ] {
            holdings.set(shard, hold);
            assert_eq!(holdings.of(shard), hold);
            assert_eq!(holdings.count(), usize::from(hold != Hold::Not));
        }
        assert_eq!(Holdings::everything().count(), usize::from(SHARD_COUNT));
    }
}
