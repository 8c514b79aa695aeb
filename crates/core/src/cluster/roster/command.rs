//! What happened, and what to do about it.

use crate::cluster::{Epoch, NodeNo, Shard};
use crate::time::{Span, Tick};

/// A shard in somebody's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holding {
    /// Which.
    pub shard: Shard,
    /// Since it changed hands for the last time.
    pub epoch: Epoch,
}

/// A node, as the table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub node: NodeNo,
    /// How often its heart has beaten.
    pub beat: u64,
    /// Whether it wants shards.
    pub works: bool,
    /// How long it must be silent to be dead. Nodes may be set differently.
    pub lease: Span,
}

/// A shard, as the table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which, and how often it has changed hands.
    pub holding: Holding,
    /// Whose it is.
    pub owner: Option<NodeNo>,
}

/// What the table shows in the moment after a beat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Every node, this one too.
    pub nodes: Vec<Seen>,
    /// Every shard.
    pub shards: Vec<Owned>,
}

/// What a roster is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// [`Command::Register`] was done, under this number.
    Registered(NodeNo),
    /// [`Command::Beat`] was done, and this is what the table then showed.
    Beaten(View),
    /// [`Command::Fence`] was done, or was no longer called for.
    Fenced,
    /// [`Command::Claim`] was done: these are this node's.
    Claimed(Vec<Holding>),
    /// [`Command::Release`] was done.
    Released,
    /// [`Command::Leave`] was done.
    Left,
    /// What was asked of the table was not done, or nobody knows whether it was.
    Failed,
    /// The answer to whatever was asked: the table does not know this node any more. Another took it for
    /// dead.
    Outcast,
    /// Nothing of a recalled shard is under way any more, all of it is written down, and nothing more of
    /// it will be written.
    RecallFinished(Holding),
    /// Something has changed, another node says; or a write of this one was refused. Look.
    Rang,
    /// Give up everything, and go.
    Retire,
}

/// What to do. The first six are asked of the table, one at a time, and each is answered by one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Enter this node under a number nobody has had.
    Register,
    /// Beat, say whether this node wants shards, and look.
    Beat {
        /// Whether it does.
        works: bool,
    },
    /// Strike a dead node off and free its shards, if its heart has not beaten since. Waits for what it
    /// is just writing; it writes nothing after.
    Fence {
        /// Which.
        node: NodeNo,
        /// Its last beat.
        beat: u64,
    },
    /// Claim shards for this node, each under a new epoch.
    Claim {
        /// Of its own, these that it has lost track of.
        own: Vec<Holding>,
        /// Of those that are nobody's, as many as this, or as there are.
        free: usize,
    },
    /// Make shards nobody's, if they are still this node's under this epoch.
    Release(Vec<Holding>),
    /// Strike this node off, and free what the table still shows as its own.
    Leave,
    /// The node may send until then.
    SetLease {
        /// Nothing begins at this tick or later.
        begin_by: Tick,
        /// What is under way is cut off at this tick.
        end_by: Tick,
    },
    /// These are the node's from now on.
    Grant(Vec<Holding>),
    /// This is to be given up; say when nothing of it is under way.
    Recall(Holding),
    /// Nothing is the node's any more.
    Expire,
    /// The node is no longer one of them: the answer to [`Input::Retire`].
    Retired,
}
