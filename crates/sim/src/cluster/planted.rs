//! Bugs planted between the rosters and their world, to see that the oracles can fail.

use posthaste_core::cluster::{Holding, Input, NodeNo, Seen, View};
use posthaste_core::time::Span;

/// What must be true of a cluster, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOracle {
    /// At no moment may two nodes send for one shard.
    OneOwner,
    /// Every shard has an owner again within the lease and a few beats, while one worker lives.
    SoonOwned,
    /// Shares differ by one at most, soon after nobody comes or goes any more.
    Balanced,
    /// Nothing moves while nobody comes or goes.
    Still,
    /// Who has retired has left nothing behind.
    CleanLeave,
}

impl ClusterOracle {
    /// Every oracle there is.
    pub const ALL: [ClusterOracle; 5] = [
        ClusterOracle::OneOwner,
        ClusterOracle::SoonOwned,
        ClusterOracle::Balanced,
        ClusterOracle::Still,
        ClusterOracle::CleanLeave,
    ];
}

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterBug {
    /// The lease counts from when the beat was answered.
    LeaseFromTheAnswer,
    /// A node is struck off although its heart has beaten since.
    FencesTheLiving,
    /// A node is struck off after half its lease.
    FencesEarly,
    /// A recalled shard is given up while something of it is under way.
    GivesUpTooSoon,
    /// What is under way is not cut off when the lease ends.
    NeverLetsGo,
    /// A release that was long given up for lost frees what was claimed since.
    ReleasesAnyEpoch,
    /// The dead are never struck off.
    NeverFences,
    /// Claims come back empty.
    TakesNothing,
    /// What an answer was lost of is lost.
    ForgetsStrays,
    /// Each believes it is the only worker.
    Greedy,
    /// Now and then a look shows a node that is not there.
    Restless,
    /// Who leaves does not say so.
    LeavesItsName,
}

impl ClusterBug {
    /// Every bug, with an oracle that must see it.
    pub const ALL: [(ClusterBug, ClusterOracle); 12] = [
        (ClusterBug::LeaseFromTheAnswer, ClusterOracle::OneOwner),
        (ClusterBug::FencesTheLiving, ClusterOracle::OneOwner),
        (ClusterBug::FencesEarly, ClusterOracle::OneOwner),
        (ClusterBug::GivesUpTooSoon, ClusterOracle::OneOwner),
        (ClusterBug::NeverLetsGo, ClusterOracle::OneOwner),
        (ClusterBug::ReleasesAnyEpoch, ClusterOracle::OneOwner),
        (ClusterBug::NeverFences, ClusterOracle::SoonOwned),
        (ClusterBug::TakesNothing, ClusterOracle::SoonOwned),
        (ClusterBug::ForgetsStrays, ClusterOracle::SoonOwned),
        (ClusterBug::Greedy, ClusterOracle::Balanced),
        (ClusterBug::Restless, ClusterOracle::Still),
        (ClusterBug::LeavesItsName, ClusterOracle::CleanLeave),
    ];

    /// What becomes of an answer on its way to the roster of a node that holds some shards.
    pub(super) fn tamper(
        self,
        input: Input,
        me: Option<NodeNo>,
        holds: impl Fn(Holding) -> bool,
    ) -> Input {
        let Input::Beaten(mut view) = input else {
            return input;
        };
        self.tamper_view(&mut view, me, holds);
        Input::Beaten(view)
    }

    fn tamper_view(self, view: &mut View, me: Option<NodeNo>, holds: impl Fn(Holding) -> bool) {
        let own_beat = view
            .nodes
            .iter()
            .find(|seen| Some(seen.node) == me)
            .map_or(0, |seen| seen.beat);
        match self {
            ClusterBug::FencesEarly => {
                for seen in &mut view.nodes {
                    seen.lease = Span::from_millis(seen.lease.as_millis() / 2);
                }
            }
            ClusterBug::ForgetsStrays => {
                for owned in &mut view.shards {
                    if owned.owner == me && !holds(owned.holding) {
                        owned.owner = Some(NodeNo(u64::MAX));
                    }
                }
            }
            ClusterBug::Greedy => {
                for seen in &mut view.nodes {
                    seen.works = Some(seen.node) == me;
                }
            }
            ClusterBug::Restless if own_beat % 10 == 0 => {
                let ghost = Seen {
                    node: NodeNo(u64::MAX),
                    beat: own_beat,
                    works: true,
                    lease: Span::from_secs(6),
                };
                view.nodes.push(ghost);
            }
            ClusterBug::Restless
            | ClusterBug::LeaseFromTheAnswer
            | ClusterBug::FencesTheLiving
            | ClusterBug::GivesUpTooSoon
            | ClusterBug::NeverLetsGo
            | ClusterBug::ReleasesAnyEpoch
            | ClusterBug::NeverFences
            | ClusterBug::TakesNothing
            | ClusterBug::LeavesItsName => {}
        }
    }
}
