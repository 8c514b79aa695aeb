//! The shards that this node owns.
//!
//! Only the engine task changes [`OwnedShards`]; any task may read it. [`LeaseLosses`] counts how often the lease was
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::cluster::{SHARD_COUNT, Shard};
use posthaste_core::id::EndpointId;
use posthaste_core::time::Tick;

/// Value of a shard that this node does not own.
const NOT_OWNED: u64 = u64::MAX;
/// Bit that is set while a shard is being released.
const RELEASING: u64 = 1 << 63;

/// For each shard, the time since which this node owns it.
pub(super) struct OwnedShards {
    since: [AtomicU64; SHARD_COUNT as usize],
}

/// Ownership of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Owned by another node, or by none.
    NotOwned,
    /// Owned by this node since that time.
    Owned(Tick),
    /// Owned by this node since that time, and being released.
    Releasing(Tick),
}

/// Number of lease losses. The store increments it at once; the engine task processes the loss a little later. A new
/// lease may begin in between, and it must not cover attempts that were decided under the old one.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseLosses(Arc<AtomicU64>);

impl LeaseLosses {
    /// Returns the number of losses.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more loss. Returns the new number.
    pub(super) fn add(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

impl OwnedShards {
    /// All shards, owned since the process started: no other node shares the store.
    pub(super) fn all() -> OwnedShards {
        OwnedShards {
            since: [const { AtomicU64::new(Tick::START.0) }; SHARD_COUNT as usize],
        }
    }

    /// No shards yet.
    pub(super) fn none() -> OwnedShards {
        OwnedShards {
            since: [const { AtomicU64::new(NOT_OWNED) }; SHARD_COUNT as usize],
        }
    }

    pub(super) fn of(&self, shard: Shard) -> Ownership {
        match self.since[usize::from(shard.number())].load(Ordering::SeqCst) {
            NOT_OWNED => Ownership::NotOwned,
            since if since & RELEASING != 0 => Ownership::Releasing(Tick(since & !RELEASING)),
            since => Ownership::Owned(Tick(since)),
        }
    }

    pub(super) fn of_endpoint(&self, endpoint: EndpointId) -> Ownership {
        self.of(Shard::of(endpoint))
    }

    /// Returns true if this node is the only one that may change the endpoint.
    pub(super) fn owns(&self, endpoint: EndpointId) -> bool {
        match self.of_endpoint(endpoint) {
            Ownership::Owned(_) | Ownership::Releasing(_) => true,
            Ownership::NotOwned => false,
        }
    }

    /// Returns true if attempts to the endpoint may start.
    pub(super) fn may_start(&self, endpoint: EndpointId) -> bool {
        match self.of_endpoint(endpoint) {
            Ownership::Owned(_) => true,
            Ownership::NotOwned | Ownership::Releasing(_) => false,
        }
    }

    pub(super) fn set(&self, shard: Shard, ownership: Ownership) {
        let since = match ownership {
            Ownership::NotOwned => NOT_OWNED,
            Ownership::Owned(since) => since.0,
            Ownership::Releasing(since) => since.0 | RELEASING,
        };
        self.since[usize::from(shard.number())].store(since, Ordering::SeqCst);
    }

    /// Returns the number of owned shards, including those being released.
    pub(super) fn count(&self) -> usize {
        let is_owned = |shard: &Shard| self.of(*shard) != Ownership::NotOwned;
        Shard::all().filter(is_owned).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ownership_is_stored_and_read_back() {
        let shards = OwnedShards::none();
        let shard = Shard::numbered(7).expect("a shard");
        for ownership in [
            Ownership::NotOwned,
            Ownership::Owned(Tick::START),
            Ownership::Owned(Tick(5)),
            Ownership::Releasing(Tick(5)),
            Ownership::Releasing(Tick::START),
        ] {
            shards.set(shard, ownership);
            assert_eq!(shards.of(shard), ownership);
            assert_eq!(
                shards.count(),
                usize::from(ownership != Ownership::NotOwned)
            );
        }
        assert_eq!(OwnedShards::all().count(), usize::from(SHARD_COUNT));
    }
}
