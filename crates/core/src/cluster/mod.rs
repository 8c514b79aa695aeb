//! How nodes share the work: by owning it.
//!
//! Every endpoint belongs to one of [`SHARD_COUNT`] shards, for ever; every shard is owned by at most one
//! node. So whatever is exact within one process, the window, the rate, the breaker, is exact over all.
//!
//! [`Roster`] decides what one node does about it: when to beat, whom to believe dead, how many shards are
//! its share, and until when it may send.

mod room;
mod roster;
mod shard;
mod timings;

use std::fmt;

pub use room::{Ask, Room, Share, share};
pub use roster::{Command, Holding, Input, Owned, Roster, Seen, View};
pub use shard::{SHARD_COUNT, Shard};
pub use timings::{LONGEST_LEASE, SHORTEST_LEASE, Timings, TimingsError};

/// A node's number. Every start of a process is another node, and so is one that was taken for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNo(pub u64);

impl fmt::Display for NodeNo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {}", self.0)
    }
}

/// How often a shard has changed hands. What was meant for an earlier owner is told by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);
