//! Slow links between nodes and the table.
//!
//! A slow link delays every request and every response of a node by 400 to 900 ms, so its heartbeats still arrive in
//! time. Slow reads leave the heartbeats alone: only the fetches of the node's shards take long. The checks: a node that is
//! slow alone owns nothing soon ([`ClusterOracle::SlowYields`]), nodes that are equally slow keep their shards
//! ([`ClusterOracle::EquallySlow`]), and when all are quick again, shards are evenly distributed.

use posthaste_core::cluster::{Input, MAX_RECOVERY_HEARTBEATS, RoundTripKind, ShardRow};
use posthaste_core::time::Span;

use super::node::Node;
use super::{CheckResult, ClusterOracle, EVEN_WITHIN_MS, World};

/// Delay of a slow link in each direction, in milliseconds.
const SLOW_LINK_MS: (u64, u64) = (400, 900);
/// Duration of a fetch of a node with slow reads, and of any other node's.
const FETCH_MS: (u64, u64) = (1_500, 3);
/// Maximum time for which the endpoints of a slow node may be stalled: until all of its shards have another owner.
/// The node notices after four heartbeats, takes three steps and then releases its shards; each of these requests takes
/// up to 1.8 s.
pub(super) const SLOW_STALL_MS: u64 = 30_000;
/// Maximum time until a node that was slow has its shards back.
pub(super) const RECOVERED_WITHIN_MS: u64 = MAX_RECOVERY_HEARTBEATS as u64 * 1_000 + EVEN_WITHIN_MS;
/// Time during which all links are slow.
const ALL_SLOW_MS: u64 = 60_000;

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
}

impl World {
    /// Returns the delays of a request and of its response.
    pub(super) fn delays_ms(&mut self, at: usize) -> (u64, u64) {
        let between = match self.nodes[at].link {
            Link::Slow => SLOW_LINK_MS,
            Link::Quick | Link::SlowReads => {
                let slow = self.has_faults && self.rng.random_ratio(1, 20);
                (0, if slow { 3_000 } else { 20 })
            }
        };
        let mut delay = || self.rng.between(between.0, between.1);
        (delay(), delay())
    }

    /// Reports the fetches of a node that holds shards, before each heartbeat's answer.
    pub(super) fn report_fetch(&mut self, at: usize, input: &Input) -> CheckResult {
        let is_heartbeat = matches!(input, Input::HeartbeatDone(_));
        if !is_heartbeat || self.nodes[at].held.is_empty() {
            return Ok(());
        }
        let took_ms = match self.nodes[at].link {
            Link::SlowReads => FETCH_MS.0,
            Link::Quick | Link::Slow => FETCH_MS.1,
        };
        let fetched = Input::RoundTrip(RoundTripKind::Fetch, Span::from_millis(took_ms));
        self.handle(at, fetched)
    }

    /// Makes one node slow, then all of them, and checks who owns the shards.
    pub(super) fn live_with_slow_links(&mut self) -> CheckResult {
        let workers = |node: &&Node| node.runs() && node.wants_shards && node.stays;
        if self.nodes.iter().filter(workers).count() < 2 {
            self.join(true)?;
            self.settle("after a join before the slow links", false)?;
        }
        if let Some(slow) = self.pick(|node| node.wants_shards && node.stays) {
            let link = *self.rng.pick(&[Link::Slow, Link::SlowReads]);
            self.note(|| format!("node {slow} gets the link {link:?}"));
            self.nodes[slow].link = link;
            self.pass(SLOW_STALL_MS)?;
            self.check_yielded(slow)?;
            self.check_owned("with a slow node")?;
            self.nodes[slow].link = Link::Quick;
            self.pass(RECOVERED_WITHIN_MS)?;
            self.check_owned("after a slow node")?;
            self.check_balance("after a slow node")?;
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
