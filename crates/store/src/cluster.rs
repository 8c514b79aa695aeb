//! How nodes that share a store share its work.
//!
//! Endpoints fall into shards, and a node owns shards for as long as it holds a lease. The store grants
//! them and takes them back through [`Orders`], which the node obeys; through [`Cluster`] the node
//! learns who owns what, and asks others for what only an owner can do.
//!
//! # Promises
//!
//! 1. **One owner.** No two nodes own a shard at the same time. What a node writes as an owner is written
//!    only if it still is one, by number and epoch, checked in the same transaction.
//! 2. **No clock in common.** A lease is measured by each node's own steady clock: whoever holds it counts
//!    from before it asked for it, whoever waits for its end counts from after he saw it. No wall clock,
//!    of any machine, decides who owns what.
//! 3. **In good order.** A shard that is given up in peace is given up when nothing of it is under way, and
//!    is somebody else's at once.
//! 4. **Nothing unheard for long.** What another node changed is told within a second, and what it put on
//!    disk within five, even if every notice was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::cluster::{NodeNo, Room, Shard};
use posthaste_core::dispatcher::Crowd;
use posthaste_core::id::{DeliveryId, EndpointId, ReplayId, TenantId};
use posthaste_core::lane::Standing;
use posthaste_core::time::{Tick, Timestamp};
use serde_json::Value;

use crate::{Answer, DisabledReason, Done, KeyHash, Written};

/// Who owns a shard, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node.
    Me,
    /// Another.
    Other(NodeNo),
    /// Nobody at the moment.
    Nobody,
}

/// Until when this node may send, by its own steady clock. Clones are the same lease.
#[derive(Clone, Debug)]
pub struct Lease {
    begin_by: Arc<AtomicU64>,
    end_by: Arc<AtomicU64>,
}

impl Lease {
    /// One that never ends: a store that belongs to one process.
    pub fn endless() -> Lease {
        Lease::until(Tick(u64::MAX), Tick(u64::MAX))
    }

    /// One that ends.
    pub fn until(begin_by: Tick, end_by: Tick) -> Lease {
        Lease {
            begin_by: Arc::new(AtomicU64::new(begin_by.0)),
            end_by: Arc::new(AtomicU64::new(end_by.0)),
        }
    }

    /// Whether it never ends.
    pub fn is_endless(&self) -> bool {
        self.end_by() == Tick(u64::MAX)
    }

    /// It was renewed, or is given up.
    pub fn set(&self, begin_by: Tick, end_by: Tick) {
        self.begin_by.store(begin_by.0, Ordering::SeqCst);
        self.end_by.store(end_by.0, Ordering::SeqCst);
    }

    /// No attempt begins at this tick or later.
    pub fn begin_by(&self) -> Tick {
        Tick(self.begin_by.load(Ordering::SeqCst))
    }

    /// What is still in flight at this tick is cut off: from then on others may send.
    pub fn end_by(&self) -> Tick {
        Tick(self.end_by.load(Ordering::SeqCst))
    }
}

/// Something that was changed, by any node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A tenant: what its endpoints inherit, or that it is there at all.
    Tenant(TenantId),
    /// How an endpoint is configured, or how it stands.
    Endpoint(EndpointId),
    /// A key was revoked.
    Key(KeyHash),
    /// A replay began or was stopped.
    Replay(ReplayId),
}

/// What a node is told by the store it shares. Called from any thread; nothing here may block.
pub trait Orders: Send + Sync {
    /// These shards are this node's from now on. What waits for their endpoints is on disk.
    fn granted(&self, shards: Vec<Shard>);

    /// These shards are to be given up. Nothing more may begin for them; `done` is called when nothing of
    /// them is under way and all of it is written down. Until then they stay this node's.
    fn recalled(&self, shards: Vec<Shard>, done: Done<()>);

    /// The lease has ended: nothing is this node's any more. What is in flight is cut off, and nothing
    /// that became of it can be written down.
    fn expired(&self);

    /// Another node put something on disk for endpoints of this one, due at these times.
    fn work(&self, work: Vec<(EndpointId, Timestamp)>);

    /// These were changed, by another node or by this one.
    fn changed(&self, changes: Vec<Change>);

    /// Changes may have been missed: whatever was read before may be out of date.
    fn missed(&self);

    /// Another node asks something that only this one can answer or do.
    fn asked(&self, question: Value, done: Done<Value>);
}

/// The other nodes on a shared store.
pub trait Cluster: Send + Sync {
    /// This node.
    fn me(&self) -> NodeNo;

    /// Every node that is believed to live, this one too.
    fn nodes(&self) -> Vec<NodeNo>;

    /// Who owns a shard.
    fn owner(&self, shard: Shard) -> Owner;

    /// Until when this node may send.
    fn lease(&self) -> Lease;

    /// Whether this node has heard of everything that others changed, but for the last second.
    fn is_informed(&self) -> bool;

    /// Asks another node, and waits for its answer for at most so long. Whether it was heard is not known
    /// if none comes, so questions must bear being asked twice.
    fn ask(&self, node: NodeNo, question: Value, within: Duration) -> Answer<Value>;

    /// Writes down how an endpoint stands, if nobody owns its shard and nobody can before this is
    /// written. Nothing if somebody does. Otherwise as [`Store::set_standing`](crate::Store::set_standing).
    fn stand_unowned(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
    ) -> Answer<Option<bool>>;

    /// Calls a delivery off in the same way.
    fn cancel_unowned(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Answer<Option<Written>>;

    /// Shares what limited tenants may have under way at once with the other nodes: says what of it this node may have,
    /// in the order asked. Whoever is not asked for keeps what it was told last; a node that is struck off has nothing.
    fn share_room(&self, crowds: Vec<Crowd>) -> Answer<Vec<Room>>;

    /// Wants no shards any more, and gives up those it has: each is recalled, and is another's as soon
    /// as nothing of it is under way. Done when this node owns nothing.
    fn retire(&self) -> Answer<()>;
}
