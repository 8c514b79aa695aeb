//! Inputs and commands of the membership.
//!
//! The node reports what happened as an [`Input`]; the membership answers with [`Command`]s. The first six commands are
//! requests to the table that all nodes share. At most one of them is outstanding, and each is answered by one
//! input. [`TableView`] is the contents of the table after a heartbeat, and [`OwnedShard`] is a shard with the epoch
//! of its ownership. [`NodeReport`] is the speed that a node reports.

use crate::cluster::{Capacity, CapacityChange, Epoch, NodeNo, RoundTripKind, RoundTrips, Shard};
use crate::time::{Span, Tick};

/// A shard with the number of its current ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnedShard {
    /// The shard.
    pub shard: Shard,
    /// The epoch: the number of the ownership.
    pub epoch: Epoch,
}

/// A node, as the shared table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// The node's number.
    pub node: NodeNo,
    /// Number of its heartbeats so far.
    pub heartbeats: u64,
    /// True if the node wants shards.
    pub wants_shards: bool,
    /// The node's lease: after this long without a heartbeat it is dead. Nodes may be configured differently.
    pub lease: Span,
    /// The capacity and the round trips that the node reported. `None`: the node runs a version that reports none.
    pub speed: Option<ReportedSpeed>,
}

/// The speed that a node reports with each heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The part of an equal share of the shards that the node takes.
    pub capacity: Capacity,
    /// Its round trips.
    pub round_trips: RoundTrips,
}

/// The speed of a node, as the shared table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedSpeed {
    /// The part of an equal share of the shards that the node takes.
    pub capacity: Capacity,
    /// Its round trips.
    pub round_trips: RoundTrips,
}

/// A shard, as the shared table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard and its epoch.
    pub ownership: OwnedShard,
    /// The owner, if the shard has one.
    pub owner: Option<NodeNo>,
}

/// The contents of the shared table right after a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    /// Every node, including this one.
    pub nodes: Vec<NodeRow>,
    /// Every shard.
    pub shards: Vec<ShardRow>,
}

/// An event that the membership reacts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// [`Command::Register`] succeeded, with this node number.
    Registered(NodeNo),
    /// [`Command::Heartbeat`] succeeded, and the table then had these contents.
    HeartbeatDone(TableView),
    /// A round trip of this node to the database took this long. Round trips of heartbeats are not reported: the membership
    /// measures them.
    RoundTrip(RoundTripKind, Span),
    /// A round trip of this node failed: the database did not answer, or could not be reached.
    RoundTripFailed(RoundTripKind),
    /// [`Command::Fence`] succeeded, or was no longer necessary.
    Fenced,
    /// [`Command::Claim`] succeeded: this node owns these shards.
    Claimed(Vec<OwnedShard>),
    /// [`Command::Release`] succeeded.
    Released,
    /// [`Command::Leave`] succeeded.
    Left,
    /// A request to the table failed, or its result is unknown.
    Failed,
    /// The answer to any request: the table does not contain this node any more. Another node declared it dead.
    Expelled,
    /// The answer to [`Command::Register`]: the database needs nodes that know a later version. It never takes this one.
    TooOld,
    /// Nothing of a revoked shard is in flight any more, all results are recorded, and nothing more will be written
    /// for it.
    RevokeFinished(OwnedShard),
    /// Another node notified a change, or a write of this node was refused. Read the table.
    TableChanged,
    /// Release all shards and leave the cluster.
    Retire,
}

/// An action for the node to execute. The first six are requests to the table. They are issued one at a time, and
/// each is answered by one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Register this node under a new, unused number.
    Register,
    /// Send a heartbeat, with whether this node wants shards and how quick it is, and read the table.
    Heartbeat {
        /// True if the node wants shards.
        wants_shards: bool,
        /// The node's speed.
        report: NodeReport,
    },
    /// Remove a dead node and free its shards, if it has sent no heartbeat since. Waits for writes that the dead
    /// node has in progress; after that it can write nothing.
    Fence {
        /// The dead node.
        node: NodeNo,
        /// Number of its last heartbeat.
        heartbeats: u64,
    },
    /// Claim shards for this node, each with a new epoch.
    Claim {
        /// Shards that the table shows as this node's, but that the node does not hold.
        own: Vec<OwnedShard>,
        /// Maximum number of shards without an owner to claim.
        free: usize,
    },
    /// Release shards, if this node still owns them with this epoch.
    Release(Vec<OwnedShard>),
    /// Remove this node and free all shards that the table still shows as its own.
    Leave,
    /// The lease is renewed: the node may send until these times.
    SetLease {
        /// No attempt starts at this tick or later.
        begin_by: Tick,
        /// Attempts in flight are aborted at this tick.
        end_by: Tick,
    },
    /// The node owns these shards from now on.
    Grant(Vec<OwnedShard>),
    /// Revoke this shard; report [`Input::RevokeFinished`] when nothing of it is in flight.
    Revoke(OwnedShard),
    /// The node's capacity has changed, because its round trips are slow or quick again. For the log.
    CapacityChanged(CapacityChange),
    /// The lease has ended: the node owns no shards any more.
    Expire,
    /// The node has left the cluster: the answer to [`Input::Retire`] and to [`Input::TooOld`].
    Retired,
}
