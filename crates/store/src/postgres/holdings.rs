//! What this node owns.
//!
//! The membership (`roster`) drives it: it registers this node, claims and releases shards, and says so
//! here; the writer asks here whether what it is to write is its to write, and with which epoch the
//! database has to agree. To take a shard: claim it in the database, then [`Holdings::grant`], then tell the
//! node. To give one up: wait until nothing of it is under way, [`Holdings::revoke`], pass a barrier
//! through the writer (an operation that does nothing), and then release it in the database.

use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::cluster::{SHARD_COUNT, Shard};
use posthaste_core::id::EndpointId;

use tokio::sync::Notify;

use crate::NodeNo;

/// How many slots the tally has for each kind of writer.
const SLOTS: u64 = 32;

/// This node's number and shards.
pub(super) struct Holdings {
    inner: Mutex<Inner>,
    fenced: Notify,
}

struct Inner {
    me: NodeNo,
    epochs: Vec<Option<i64>>,
}

/// As which node, and by which epoch, an endpoint is owned at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    pub(super) me: NodeNo,
    pub(super) shard: Shard,
    pub(super) epoch: Option<i64>,
}

impl Holdings {
    /// Nothing yet.
    pub(super) fn new(me: NodeNo) -> Holdings {
        Holdings {
            inner: Mutex::new(Inner {
                me,
                epochs: vec![None; usize::from(SHARD_COUNT)],
            }),
            fenced: Notify::new(),
        }
    }

    /// This node.
    pub(super) fn me(&self) -> NodeNo {
        self.lock().me
    }

    /// The slot of the tally in which a writer of this node counts: the one, or the one beside it.
    pub(super) fn slot(&self, beside: bool) -> i16 {
        let first = if beside { SLOTS } else { 0 };
        (first + self.me().0 % SLOTS) as i16
    }

    /// With which epoch this node owns a shard.
    pub(super) fn epoch(&self, shard: Shard) -> Option<i64> {
        self.lock().epochs[usize::from(shard.number())]
    }

    /// How this node owns an endpoint now, if it does.
    pub(super) fn tenure(&self, endpoint: EndpointId) -> Tenure {
        let shard = Shard::of(endpoint);
        let inner = self.lock();
        Tenure {
            me: inner.me,
            shard,
            epoch: inner.epochs[usize::from(shard.number())],
        }
    }

    /// Returns whether this node still owns the shard as it did under this tenure.
    pub(super) fn is_current(&self, tenure: Tenure) -> bool {
        let inner = self.lock();
        let epoch = inner.epochs[usize::from(tenure.shard.number())];
        tenure.epoch.is_some() && (inner.me, epoch) == (tenure.me, tenure.epoch)
    }

    /// Whether this node owns an endpoint.
    pub(super) fn owns(&self, endpoint: EndpointId) -> bool {
        self.epoch(Shard::of(endpoint)).is_some()
    }

    /// The shards that this node owns.
    pub(super) fn shards(&self) -> Vec<Shard> {
        let inner = self.lock();
        let owned = |shard: &Shard| inner.epochs[usize::from(shard.number())].is_some();
        Shard::all().filter(owned).collect()
    }

    /// These are this node's, with these epochs.
    pub(super) fn grant(&self, shards: &[(Shard, i64)]) {
        let mut inner = self.lock();
        for (shard, epoch) in shards {
            inner.epochs[usize::from(shard.number())] = Some(*epoch);
        }
    }

    /// These are not.
    pub(super) fn revoke(&self, shards: &[Shard]) {
        let mut inner = self.lock();
        for shard in shards {
            inner.epochs[usize::from(shard.number())] = None;
        }
    }

    /// This node is another one from now on, and owns nothing.
    pub(super) fn begin_anew(&self, me: NodeNo) {
        let mut inner = self.lock();
        inner.me = me;
        inner.epochs.fill(None);
    }

    /// The database has refused what this node wrote as an owner: somebody has taken its place.
    pub(super) fn tell_fenced(&self) {
        self.fenced.notify_one();
    }

    /// Waits until that happens.
    pub(super) async fn fenced(&self) {
        self.fenced.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
