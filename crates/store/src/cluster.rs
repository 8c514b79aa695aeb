//! The interface between nodes that share a store.
//!
//! Endpoints are divided into shards. A node owns shards while it holds a lease. The store grants and revokes shards
//! through [`ClusterEvents`], which the node implements. Through [`Cluster`] the node looks up owners and asks other
//! nodes for actions that only an owner can do.
//!
//! # Guarantees
//!
//! 1. **One owner.** No two nodes own a shard at the same time. A write that requires ownership is applied only if
//!    the node still owns the shard, by node number and epoch, checked in the same transaction.
//! 2. **No shared clock.** Each node measures a lease by its own monotonic clock. The holder counts from before it
//!    requested the lease; a node that waits for its end counts from after it saw it. No wall clock decides about
//!    ownership.
//! 3. **Clean release.** A shard that is revoked is released when nothing of it is in flight, and can be granted to
//!    another node immediately.
//! 4. **Bounded delay.** A node learns of another node's changes within one second, and of deliveries that another
//!    node persisted within five seconds, even if every `NOTIFY` is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::cluster::{Capacity, NodeNo, RoundTrips, Shard, ShareGrant};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::id::{DeliveryId, EndpointId, ReplayId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Tick, Timestamp};
use serde_json::Value;

use crate::{Answer, DisabledReason, Done, KeyHash, Written};

/// The owner of a shard, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node.
    Me,
    /// Another node.
    Other(NodeNo),
    /// No node at the moment.
    None,
}

/// The time until which this node may send, by its own monotonic clock. Clones share the same lease.
#[derive(Clone, Debug)]
pub struct Lease {
    begin_by: Arc<AtomicU64>,
    end_by: Arc<AtomicU64>,
}

impl Lease {
    /// Creates a lease that never ends, for a store that belongs to one process.
    pub fn endless() -> Lease {
        Lease::until(Tick(u64::MAX), Tick(u64::MAX))
    }

    /// Creates a lease with these end times.
    pub fn until(begin_by: Tick, end_by: Tick) -> Lease {
        Lease {
            begin_by: Arc::new(AtomicU64::new(begin_by.0)),
            end_by: Arc::new(AtomicU64::new(end_by.0)),
        }
    }

    /// Returns whether it never ends.
    pub fn is_endless(&self) -> bool {
        self.end_by() == Tick(u64::MAX)
    }

    /// Sets new end times, after a renewal or when the lease is given up.
    pub fn set(&self, begin_by: Tick, end_by: Tick) {
        self.begin_by.store(begin_by.0, Ordering::SeqCst);
        self.end_by.store(end_by.0, Ordering::SeqCst);
    }

    /// The tick from which no attempt is started.
    pub fn begin_by(&self) -> Tick {
        Tick(self.begin_by.load(Ordering::SeqCst))
    }

    /// The tick at which attempts in flight are aborted, because other nodes may send from then on.
    pub fn end_by(&self) -> Tick {
        Tick(self.end_by.load(Ordering::SeqCst))
    }
}

/// A change of the directory or of a replay, made by any node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A tenant: its defaults for endpoints, or its existence.
    Tenant(TenantId),
    /// The configuration or the status of an endpoint.
    Endpoint(EndpointId),
    /// A key was revoked.
    Key(KeyHash),
    /// A replay started or was cancelled.
    Replay(ReplayId),
}

/// A node, as operators see it. Absent values: the node runs an earlier version, or has not measured them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's number. A node that was declared dead gets a new one.
    pub node: NodeNo,
    /// Host name and process id.
    pub name: String,
    /// The role: `all`, `api` or `worker`.
    pub role: String,
    /// The version of the program.
    pub version: Option<String>,
    /// Start of the process.
    pub started_at: Option<Timestamp>,
    /// Time of the last heartbeat, by the database's clock.
    pub last_heartbeat_at: Option<Timestamp>,
    /// Time since the last heartbeat, by the database's clock.
    pub heartbeat_age: Option<Span>,
    /// The lease: after this long without a heartbeat, other nodes take over the node's shards.
    pub lease: Span,
    /// The part of an equal share of the shards that the node takes.
    pub capacity: Option<Capacity>,
    /// Round trips of the node to the database.
    pub round_trips: RoundTrips,
    /// By how much the machine's clock is ahead of the database's, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// Number of shards that the node owns.
    pub shards: u64,
}

/// Receives cluster events from the shared store. Called from any thread; the methods must not block.
pub trait ClusterEvents: Send + Sync {
    /// The node owns these shards from now on. The waiting deliveries of their endpoints are in the store.
    fn granted(&self, shards: Vec<Shard>);

    /// These shards are revoked: the node must start nothing more for them. It calls `done` when nothing of them is
    /// in flight and all results are recorded. Until then it still owns them.
    fn revoked(&self, shards: Vec<Shard>, done: Done<()>);

    /// The lease has expired: the node owns nothing any more. Attempts in flight are aborted, and their results can
    /// no longer be recorded.
    fn expired(&self);

    /// Another node persisted deliveries for endpoints of this node, due at these times.
    fn work(&self, work: Vec<(EndpointId, Timestamp)>);

    /// These objects were changed, by another node or by this one.
    fn changed(&self, changes: Vec<Change>);

    /// Changes may have been missed: everything read earlier may be out of date.
    fn missed(&self);

    /// Another node asks a question that only this node can answer, or for an action that only this node can do.
    fn asked(&self, question: Value, done: Done<Value>);
}

/// The other nodes of a shared store.
pub trait Cluster: Send + Sync {
    /// Returns the number of this node.
    fn me(&self) -> NodeNo;

    /// Returns all nodes that are believed to be alive, including this one.
    fn nodes(&self) -> Vec<NodeNo>;

    /// Returns the owner of a shard.
    fn owner(&self, shard: Shard) -> Owner;

    /// Returns the lease of this node.
    fn lease(&self) -> Lease;

    /// Returns whether this node knows all changes of other nodes, except those of the last second.
    fn is_up_to_date(&self) -> bool;

    /// Asks another node and waits up to `within` for its answer. Without an answer it is unknown whether the
    /// question arrived, so questions must be idempotent.
    fn ask(&self, node: NodeNo, question: Value, within: Duration) -> Answer<Value>;

    /// Persists the status of an endpoint whose shard has no owner and cannot get one before the commit. Returns
    /// `None` if the shard has an owner. Otherwise works like
    /// [`Store::set_endpoint_status`](crate::Store::set_endpoint_status).
    fn set_unowned_status(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
    ) -> Answer<Option<bool>>;

    /// Cancels a delivery under the same condition.
    fn cancel_unowned(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Answer<Option<Written>>;

    /// Divides the concurrency limits of tenants among the nodes. Returns this node's concurrency share of each
    /// tenant, in the order of `tenant_demands`. A tenant that is not in the list keeps its last share. A node that was
    /// removed from the membership has no share.
    fn request_shares(&self, tenant_demands: Vec<TenantDemand>) -> Answer<Vec<ShareGrant>>;

    /// Reads all registered nodes, by number.
    fn list_nodes(&self) -> Answer<Vec<NodeInfo>>;

    /// Leaves the cluster: requests no more shards and gives up those it owns. Each is revoked, and goes to another
    /// node as soon as nothing of it is in flight. Completes when this node owns nothing.
    fn retire(&self) -> Answer<()>;
}
