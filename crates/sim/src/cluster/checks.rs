//! Checks of the cluster oracles.
//!
//! Each function checks one [`ClusterOracle`] against the state of all nodes and the table. Single ownership is
//! checked after every change that can allow a node to send. Ownership of all shards and balance are checked at
//! certain times, when the cluster must have settled.

use posthaste_core::cluster::{Shard, ShardRow};

use super::slow_links::RECOVERED_WITHIN_MS;
use super::{
    CheckResult, ClusterMutation, ClusterOracle, EVEN_WITHIN_MS, FAULT_PHASE_MS, LATEST_MS,
    OWNED_WITHIN_MS, STILL_MS, World,
};

impl World {
    /// Waits until all shards must be owned and evenly distributed, and then checks that none moves.
    pub(super) fn settle(&mut self, when: &str, settled: bool) -> CheckResult {
        if !settled {
            self.pass(OWNED_WITHIN_MS)?;
        }
        self.check_owned(when)?;
        self.pass(EVEN_WITHIN_MS)?;
        self.check_owned(when)?;
        self.check_balance(when)?;
        let before: Vec<ShardRow> = self.table.owned().collect();
        self.pass(STILL_MS)?;
        self.check_unmoved(when, &before, ClusterOracle::Still)
    }

    /// Checks that at most one node may send for each shard. Called after every change that can allow a node to
    /// send.
    pub(super) fn check_one_owner(&self) -> CheckResult {
        let now_ms = self.event_queue.now_ms();
        let mut owners = [None; 256];
        for (at, node) in self.nodes.iter().enumerate() {
            let late = node.clock(now_ms) >= node.end_by;
            if !node.is_alive
                || node.frozen
                || (late && self.mutation != Some(ClusterMutation::IgnoresLeaseEnd))
            {
                continue;
            }
            for holding in &node.held {
                let owner = &mut owners[usize::from(holding.shard.number())];
                if let Some(other) = owner.replace(at) {
                    let detail = format!("nodes {other} and {at} own {holding:?} at {now_ms} ms");
                    return Err((ClusterOracle::OneOwner, detail));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_leave(&mut self, at: usize) -> CheckResult {
        let node = &mut self.nodes[at];
        node.retired = true;
        // During the fault phase a node may have to leave without deregistering.
        let no_faults =
            self.event_queue.now_ms() >= FAULT_PHASE_MS + LATEST_MS + RECOVERED_WITHIN_MS;
        if let Some(number) = node.number
            && no_faults
            && self.table.knows(number)
        {
            let detail = format!("node {at} has left as {number} and is still there");
            return Err((ClusterOracle::CleanLeave, detail));
        }
        Ok(())
    }

    /// Checks that every shard is held by a running node with a valid lease.
    pub(super) fn check_owned(&self, when: &str) -> CheckResult {
        let now_ms = self.event_queue.now_ms();
        let missing: Vec<u16> = Shard::all()
            .filter(|shard| {
                !self.nodes.iter().any(|node| {
                    node.runs()
                        && node.clock(now_ms) < node.end_by
                        && node.held.iter().any(|holding| holding.shard == *shard)
                })
            })
            .map(Shard::number)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let detail = format!(
            "{when}, {} shards have no owner: {missing:?}",
            missing.len()
        );
        Err((ClusterOracle::SoonOwned, detail))
    }

    pub(super) fn check_balance(&self, when: &str) -> CheckResult {
        let shares: Vec<usize> = self
            .nodes
            .iter()
            .filter(|node| node.runs() && node.wants_shards)
            .map(|node| node.held.len())
            .collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        if let (Some(least), Some(most)) = (least, most)
            && most - least <= 1
        {
            return Ok(());
        }
        Err((
            ClusterOracle::Balanced,
            format!("{when}, shares are {shares:?}"),
        ))
    }
}
