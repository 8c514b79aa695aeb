//! The shards that this node owns, with their epochs.
//!
//! The membership updates [`OwnedShards`]: it registers this node, claims and releases shards. The writer asks
//! [`OwnedShards`] whether this node may write for a shard, and which epoch the database must confirm. To take a shard:
//! claim it in the database, call [`OwnedShards::grant`], then notify the node. To release a shard: wait until nothing
//! of it is in flight, call [`OwnedShards::revoke`], pass a barrier (an empty operation) through the writers, then
//! release it in the database.

use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::cluster::{SHARD_COUNT, Shard};
use posthaste_core::id::EndpointId;

use tokio::sync::Notify;

use super::writer_role::WriterRole;
use crate::NodeNo;

/// Number of slots in the table `counters` for each role of a writer.
const SLOTS: u64 = 32;

/// This node's number and shards.
pub(in crate::postgres) struct OwnedShards {
    inner: Mutex<Inner>,
    fenced: Notify,
}

struct Inner {
    me: NodeNo,
    epochs: Vec<Option<i64>>,
}

/// The ownership of an endpoint's shard at some moment: the node, the shard and the epoch.
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct Ownership {
    pub(in crate::postgres) me: NodeNo,
    pub(in crate::postgres) shard: Shard,
    pub(in crate::postgres) epoch: Option<i64>,
}

impl OwnedShards {
    /// Creates holdings without any shard.
    pub(in crate::postgres) fn new(me: NodeNo) -> OwnedShards {
        OwnedShards {
            inner: Mutex::new(Inner {
                me,
                epochs: vec![None; usize::from(SHARD_COUNT)],
            }),
            fenced: Notify::new(),
        }
    }

    /// This node's number.
    pub(in crate::postgres) fn me(&self) -> NodeNo {
        self.lock().me
    }

    /// Returns the slot of the table `counters` in which the writer of this node with this role counts.
    pub(in crate::postgres) fn slot(&self, role: WriterRole) -> i16 {
        (role.number() * SLOTS + self.me().0 % SLOTS) as i16
    }

    /// Returns the epoch with which this node owns a shard.
    pub(in crate::postgres) fn epoch(&self, shard: Shard) -> Option<i64> {
        self.lock().epochs[usize::from(shard.number())]
    }

    /// Returns this node's present ownership of an endpoint. Its epoch is `None` if the node is not the owner.
    pub(in crate::postgres) fn ownership(&self, endpoint: EndpointId) -> Ownership {
        self.ownership_of(Shard::of(endpoint))
    }

    /// The same for a shard.
    pub(in crate::postgres) fn ownership_of(&self, shard: Shard) -> Ownership {
        let inner = self.lock();
        Ownership {
            me: inner.me,
            shard,
            epoch: inner.epochs[usize::from(shard.number())],
        }
    }

    /// Returns whether this node still owns the shard as it did under this tenure.
    pub(in crate::postgres) fn is_current(&self, ownership: Ownership) -> bool {
        let inner = self.lock();
        let epoch = inner.epochs[usize::from(ownership.shard.number())];
        ownership.epoch.is_some() && (inner.me, epoch) == (ownership.me, ownership.epoch)
    }

    /// Returns whether this node owns an endpoint.
    pub(in crate::postgres) fn owns(&self, endpoint: EndpointId) -> bool {
        self.epoch(Shard::of(endpoint)).is_some()
    }

    /// Returns the shards that this node owns.
    pub(in crate::postgres) fn shards(&self) -> Vec<Shard> {
        let inner = self.lock();
        let owned = |shard: &Shard| inner.epochs[usize::from(shard.number())].is_some();
        Shard::all().filter(owned).collect()
    }

    /// Adds shards, with their epochs.
    pub(in crate::postgres) fn grant(&self, shards: &[(Shard, i64)]) {
        let mut inner = self.lock();
        for (shard, epoch) in shards {
            inner.epochs[usize::from(shard.number())] = Some(*epoch);
        }
    }

    /// Removes shards.
    pub(in crate::postgres) fn revoke(&self, shards: &[Shard]) {
        let mut inner = self.lock();
        for shard in shards {
            inner.epochs[usize::from(shard.number())] = None;
        }
    }

    /// Gives this node a new number, and removes all shards.
    pub(in crate::postgres) fn reset(&self, me: NodeNo) {
        let mut inner = self.lock();
        inner.me = me;
        inner.epochs.fill(None);
    }

    /// Reports that the database refused a write as owner: another node has taken the shard over.
    pub(super) fn report_fenced(&self) {
        self.fenced.notify_one();
    }

    /// Waits for such a report.
    pub(in crate::postgres) async fn fenced(&self) {
        self.fenced.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
