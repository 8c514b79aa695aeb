//! Mutations of the cluster simulation, and the oracles that must detect them.
//!
//! [`ClusterOracle`] lists the guarantees of a cluster. Each [`ClusterMutation`] is a bug in the table, or in what
//! a node reads from it, and [`ClusterMutation::ALL`] names the oracle that must fail. So a test can prove that
//! every oracle is able to fail. The core's code does not know about mutations.

use posthaste_core::cluster::{
    Capacity, Input, NodeNo, NodeRow, OwnedShard, ReportedSpeed, RoundTrips, TableView,
};
use posthaste_core::time::Span;

/// A guarantee that every cluster must keep under all faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOracle {
    /// Two nodes never send for the same shard at the same time.
    OneOwner,
    /// Every shard has an owner again within the lease and a few heartbeats, while a working node is alive.
    SoonOwned,
    /// The shard counts of nodes differ by at most one, soon after the last node joined or left.
    Balanced,
    /// No shard moves while no node joins or leaves.
    Still,
    /// A node that has left remains neither in the table nor as an owner.
    CleanLeave,
    /// A node whose link is slow, while another node's is not, owns nothing soon: the named bound is `SLOW_STALL_MS`.
    SlowYields,
    /// No shard moves while the links of all nodes are equally slow.
    EquallySlow,
    /// No shard moves because one node has more work than the others.
    BusyKeeps,
    /// No shard moves when a slow node that was removed registers again.
    SlowStaysAway,
}

impl ClusterOracle {
    /// Every oracle.
    pub const ALL: [ClusterOracle; 9] = [
        ClusterOracle::OneOwner,
        ClusterOracle::SoonOwned,
        ClusterOracle::Balanced,
        ClusterOracle::Still,
        ClusterOracle::CleanLeave,
        ClusterOracle::SlowYields,
        ClusterOracle::EquallySlow,
        ClusterOracle::BusyKeeps,
        ClusterOracle::SlowStaysAway,
    ];
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterMutation {
    /// The lease is counted from the response of the heartbeat, not from its request.
    LeaseFromTheAnswer,
    /// A node is fenced although it has sent a heartbeat since.
    FencesTheLiving,
    /// A node is fenced after half its lease.
    FencesEarly,
    /// A revoked shard is released while attempts are in flight.
    ReleasesTooSoon,
    /// Attempts in flight are not cancelled when the lease ends.
    IgnoresLeaseEnd,
    /// A timed-out release that is executed late frees a shard that was claimed since.
    ReleasesAnyEpoch,
    /// Dead nodes are never fenced.
    NeverFences,
    /// Claims return no shards.
    TakesNothing,
    /// Shards that a node claimed without receiving the response stay unused.
    ForgetsUnconfirmedClaims,
    /// Each node believes that it is the only working one.
    Greedy,
    /// Sometimes the table shows a node that does not exist.
    Restless,
    /// A leaving node does not deregister.
    LeavesRegistered,
    /// The round trips of the other nodes are not visible, so no node is slow.
    IgnoresSlowLinks,
    /// A node compares its round trips with a fixed time, not with those of the other nodes.
    ComparesWithNobody,
    /// Round trips that fail do not count.
    IgnoresFailures,
    /// A node compares its records with the heartbeats of the others.
    MixesKinds,
    /// A node that registers counts as one of full capacity before its first heartbeat.
    AnnouncesFull,
}

impl ClusterMutation {
    /// Every mutation, with an oracle that must detect it.
    pub const ALL: [(ClusterMutation, ClusterOracle); 17] = [
        (ClusterMutation::LeaseFromTheAnswer, ClusterOracle::OneOwner),
        (ClusterMutation::FencesTheLiving, ClusterOracle::OneOwner),
        (ClusterMutation::FencesEarly, ClusterOracle::OneOwner),
        (ClusterMutation::ReleasesTooSoon, ClusterOracle::OneOwner),
        (ClusterMutation::IgnoresLeaseEnd, ClusterOracle::OneOwner),
        (ClusterMutation::ReleasesAnyEpoch, ClusterOracle::OneOwner),
        (ClusterMutation::NeverFences, ClusterOracle::SoonOwned),
        (ClusterMutation::TakesNothing, ClusterOracle::SoonOwned),
        (
            ClusterMutation::ForgetsUnconfirmedClaims,
            ClusterOracle::SoonOwned,
        ),
        (ClusterMutation::Greedy, ClusterOracle::Balanced),
        (ClusterMutation::Restless, ClusterOracle::Still),
        (ClusterMutation::LeavesRegistered, ClusterOracle::CleanLeave),
        (ClusterMutation::IgnoresSlowLinks, ClusterOracle::SlowYields),
        (
            ClusterMutation::ComparesWithNobody,
            ClusterOracle::EquallySlow,
        ),
        (ClusterMutation::IgnoresFailures, ClusterOracle::SlowYields),
        (ClusterMutation::MixesKinds, ClusterOracle::BusyKeeps),
        (ClusterMutation::AnnouncesFull, ClusterOracle::SlowStaysAway),
    ];

    /// Changes a response on its way to the membership state machine of a node.
    pub(super) fn tamper(
        self,
        input: Input,
        me: Option<NodeNo>,
        holds: impl Fn(OwnedShard) -> bool,
    ) -> Input {
        let Input::HeartbeatDone(mut view) = input else {
            return input;
        };
        self.tamper_view(&mut view, me, holds);
        Input::HeartbeatDone(view)
    }

    fn tamper_view(
        self,
        view: &mut TableView,
        me: Option<NodeNo>,
        holds: impl Fn(OwnedShard) -> bool,
    ) {
        let own_beat = view
            .nodes
            .iter()
            .find(|seen| Some(seen.node) == me)
            .map_or(0, |seen| seen.heartbeats);
        match self {
            ClusterMutation::FencesEarly => {
                for seen in &mut view.nodes {
                    seen.lease = Span::from_millis(seen.lease.as_millis() / 2);
                }
            }
            ClusterMutation::ForgetsUnconfirmedClaims => {
                for owned in &mut view.shards {
                    if owned.owner == me && !holds(owned.ownership) {
                        owned.owner = Some(NodeNo(u64::MAX));
                    }
                }
            }
            ClusterMutation::Greedy => {
                for seen in &mut view.nodes {
                    seen.wants_shards = Some(seen.node) == me;
                }
            }
            ClusterMutation::Restless if own_beat % 10 == 0 => {
                let ghost = NodeRow {
                    node: NodeNo(u64::MAX),
                    heartbeats: own_beat,
                    wants_shards: true,
                    lease: Span::from_secs(6),
                    speed: Some(ReportedSpeed {
                        capacity: Capacity::FULL,
                        round_trips: RoundTrips::default(),
                    }),
                };
                view.nodes.push(ghost);
            }
            ClusterMutation::IgnoresSlowLinks => {
                for speed in view.nodes.iter_mut().filter_map(|seen| seen.speed.as_mut()) {
                    speed.round_trips = RoundTrips::default();
                }
            }
            ClusterMutation::ComparesWithNobody => {
                for speed in view.nodes.iter_mut().filter_map(|seen| seen.speed.as_mut()) {
                    let quick = Some(Span::from_millis(5));
                    speed.round_trips.heartbeat = quick;
                    speed.round_trips.fetch = quick;
                }
            }
            ClusterMutation::MixesKinds => {
                for speed in view.nodes.iter_mut().filter_map(|seen| seen.speed.as_mut()) {
                    speed.round_trips.record = speed.round_trips.heartbeat;
                }
            }
            ClusterMutation::Restless
            | ClusterMutation::LeaseFromTheAnswer
            | ClusterMutation::FencesTheLiving
            | ClusterMutation::ReleasesTooSoon
            | ClusterMutation::IgnoresLeaseEnd
            | ClusterMutation::ReleasesAnyEpoch
            | ClusterMutation::NeverFences
            | ClusterMutation::TakesNothing
            | ClusterMutation::LeavesRegistered
            | ClusterMutation::IgnoresFailures
            | ClusterMutation::AnnouncesFull => {}
        }
    }
}
