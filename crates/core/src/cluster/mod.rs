//! Division of the work among nodes, by ownership of shards.
//!
//! Every endpoint belongs permanently to one of [`SHARD_COUNT`] shards, and every shard is owned by at most one
//! node. Limits that are exact within one process (in-flight window, rate limit, breaker) are therefore exact in
//! the cluster.
//!
//! [`MembershipState`] decides for one node when to send heartbeats, which nodes are dead, how many shards are its part, and
//! until when it may send. A node whose round trips are slow takes fewer shards ([`Capacity`]). [`share`] divides a tenant's
//! concurrency limit among the nodes. [`FormatLevel`] and [`UpgradeState`] let nodes of two versions share a database while
//! they are replaced.

mod concurrency_share;
mod membership;
mod serving_speed;
mod shard;
mod timings;
mod upgrade;

use std::fmt;

pub use concurrency_share::{NodeShare, ShareGrant, SlotDemand, share};
pub use membership::{
    Command, Input, MembershipState, NodeReport, NodeRow, OwnedShard, ReportedSpeed, ShardRow,
    TableView,
};
pub use serving_speed::{
    Capacity, CapacityChange, MAX_RECOVERY_HEARTBEATS, MIN_SLOW_ROUND_TRIP, RoundTripKind,
    RoundTrips,
};
pub use shard::{SHARD_COUNT, Shard};
pub use timings::{LONGEST_LEASE, SHORTEST_LEASE, Timings, TimingsError};
pub use upgrade::{
    DEFAULT_FINISH_UPGRADE_AFTER, Feature, FormatLevel, SchemaCheck, SchemaVersions, UpgradeState,
    UpgradeStep, check,
};

/// A node's number. Every process start gets a new number, and so does a node that was declared dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNo(pub u64);

impl fmt::Display for NodeNo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {}", self.0)
    }
}

/// The number of an ownership of a shard. It increases with every change of owner, so a write for an earlier owner
/// can be recognised and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);
