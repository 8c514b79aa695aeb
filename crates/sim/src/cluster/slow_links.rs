//! Slow links between nodes and the table.
//!
//! A slow link delays every request and every response of a node by 400 to 900 ms, so its heartbeats still arrive in
//! time. Slow reads and failing writes leave the heartbeats alone: only the fetches of the node's shards take long, or only
//! its records fail. The checks: a node that is slow alone owns nothing soon ([`ClusterOracle::SlowYields`]), also if it is
//! removed and registers again ([`ClusterOracle::SlowStaysAway`]); a node whose records take long because it has the most work
//! keeps its shards ([`ClusterOracle::BusyKeeps`]), and so do nodes that are equally slow ([`ClusterOracle::EquallySlow`]); and
//! when all are quick again, shards are evenly distributed.

use posthaste_core::cluster::{Input, MAX_RECOVERY_HEARTBEATS, RoundTripKind, ShardRow};
use posthaste_core::time::Span;

use super::node::Node;
use super::{CheckResult, ClusterMutation, ClusterOracle, EVEN_WITHIN_MS, World};

/// Delay of a slow link in each direction, in milliseconds.
const SLOW_LINK_MS: (u64, u64) = (400, 900);
/// Duration of a fetch of a node with slow reads, and of any other node's.
const FETCH_MS: (u64, u64) = (1_500, 3);
/// Duration of a record of a node with much work.
const BUSY_RECORD_MS: u64 = 500;
/// Maximum time for which the endpoints of a slow node may be stalled: until all of its shards have another owner.
/// The node notices after four heartbeats, takes three steps and then releases its shards; each of these requests takes
/// up to 1.8 s.
pub(super) const SLOW_STALL_MS: u64 = 30_000;
/// Maximum time until a node that was slow has its shards back.
pub(super) const RECOVERED_WITHIN_MS: u64 = MAX_RECOVERY_HEARTBEATS as u64 * 1_000 + EVEN_WITHIN_MS;
/// Time during which all links are slow.
const ALL_SLOW_MS: u64 = 60_000;
/// Time during which one node has much work.
const BUSY_MS: u64 = 30_000;
/// Time until a slow node that was removed has registered again and sent a heartbeat.
const REJOINED_WITHIN_MS: u64 = 7_000;

/// The speed of a node's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    /// Requests take a few milliseconds, with exceptions during the fault phase.
    #[default]
    Quick,
    /// Everything is delayed.
    Slow,
    /// Fetches take long.
    SlowReads,
    /// Records fail.
    FailingWrites,
    /// The link is quick, and records take long because they are large.
    Busy,
}

impl World {
    /// Returns the delays of a request and of its response.
    pub(super) fn delays_ms(&mut self, at: usize) -> (u64, u64) {
        let between = match self.nodes[at].link {
            Link::Slow => SLOW_LINK_MS,
            Link::Quick | Link::SlowReads | Link::FailingWrites | Link::Busy => {
                let slow = self.has_faults && self.rng.random_ratio(1, 20);
                (0, if slow { 3_000 } else { 20 })
            }
        };
        let mut delay = || self.rng.between(between.0, between.1);
        (delay(), delay())
    }

    /// Reports the fetches and records of a node that holds shards, before each heartbeat's answer.
    pub(super) fn report_round_trips(&mut self, at: usize, input: &Input) -> CheckResult {
        let is_heartbeat = matches!(input, Input::HeartbeatDone(_));
        if !is_heartbeat || self.nodes[at].held.is_empty() {
            return Ok(());
        }
        let (fetch_ms, recorded) = match self.nodes[at].link {
            Link::SlowReads => (FETCH_MS.0, None),
            Link::Quick | Link::Slow => (FETCH_MS.1, None),
            Link::FailingWrites => {
                let counts = self.mutation != Some(ClusterMutation::IgnoresFailures);
                let failed = Input::RoundTripFailed(RoundTripKind::Record);
                (FETCH_MS.1, counts.then_some(failed))
            }
            Link::Busy => {
                let took = Span::from_millis(BUSY_RECORD_MS);
                let recorded = Input::RoundTrip(RoundTripKind::Record, took);
                (FETCH_MS.1, Some(recorded))
            }
        };
        let fetched = Input::RoundTrip(RoundTripKind::Fetch, Span::from_millis(fetch_ms));
        self.handle(at, fetched)?;
        match recorded {
            Some(recorded) => self.handle(at, recorded),
            None => Ok(()),
        }
    }

    /// Makes one node slow, then all of them, and checks who owns the shards.
    pub(super) fn live_with_slow_links(&mut self) -> CheckResult {
        let workers = |node: &&Node| node.runs() && node.wants_shards && node.stays;
        if self.nodes.iter().filter(workers).count() < 2 {
            self.join(true)?;
            self.settle("after a join before the slow links", false)?;
        }
        if let Some(slow) = self.pick(|node| node.wants_shards && node.stays) {
            let links = [Link::Slow, Link::SlowReads, Link::FailingWrites];
            let link = *self.rng.pick(&links);
            self.note(|| format!("node {slow} gets the link {link:?}"));
            self.nodes[slow].link = link;
            self.pass(SLOW_STALL_MS)?;
            self.check_yielded(slow)?;
            self.check_owned("with a slow node")?;
            self.rejoin(slow)?;
            self.nodes[slow].link = Link::Quick;
            self.pass(RECOVERED_WITHIN_MS)?;
            self.check_owned("after a slow node")?;
            self.check_balance("after a slow node")?;
        }
        if let Some(busy) = self.pick(|node| node.wants_shards && node.stays) {
            self.note(|| format!("node {busy} is busy"));
            let before: Vec<ShardRow> = self.table.owned().collect();
            self.nodes[busy].link = Link::Busy;
            self.pass(BUSY_MS)?;
            self.check_unmoved("while a node was busy", &before, ClusterOracle::BusyKeeps)?;
        }
        self.set_all(Link::Slow);
        self.note(|| "all links are slow".to_owned());
        let before: Vec<ShardRow> = self.table.owned().collect();
        self.pass(ALL_SLOW_MS)?;
        self.check_unmoved(
            "while all links were slow",
            &before,
            ClusterOracle::EquallySlow,
        )?;
        self.set_all(Link::Quick);
        self.pass(EVEN_WITHIN_MS)?;
        self.check_unmoved(
            "after all links were slow",
            &before,
            ClusterOracle::EquallySlow,
        )
    }

    /// Removes a slow node, which registers again. The other nodes make no room for it.
    fn rejoin(&mut self, slow: usize) -> CheckResult {
        let Some(number) = self.nodes[slow].number else {
            return Ok(());
        };
        self.note(|| format!("node {slow} is removed as {number}"));
        self.table.remove_node(number);
        let before: Vec<ShardRow> = self.table.owned().collect();
        self.pass(REJOINED_WITHIN_MS)?;
        self.check_unmoved(
            "while a slow node registered again",
            &before,
            ClusterOracle::SlowStaysAway,
        )
    }

    /// Changes the links of all nodes.
    pub(super) fn set_all(&mut self, link: Link) {
        for node in &mut self.nodes {
            node.link = link;
        }
    }

    /// Checks that a slow node holds no shards.
    fn check_yielded(&self, slow: usize) -> CheckResult {
        let held = self.nodes[slow].held.len();
        if held == 0 {
            return Ok(());
        }
        let detail = format!("node {slow} is slow and still holds {held} shards");
        Err((ClusterOracle::SlowYields, detail))
    }

    /// Checks that no shard has another owner than before.
    pub(super) fn check_unmoved(
        &self,
        when: &str,
        before: &[ShardRow],
        oracle: ClusterOracle,
    ) -> CheckResult {
        let pairs = before.iter().zip(self.table.owned());
        let moved = pairs.filter(|(then, now)| *then != now).count();
        if moved == 0 {
            return Ok(());
        }
        let detail = format!("{when}, {moved} shards moved although no node joined or left");
        Err((oracle, detail))
    }
}
