//! Division of the shards among the nodes.
//!
//! [`quota`] computes how many shards a node should own: a part in proportion to its capacity, and one more for the nodes
//! with the lowest numbers. All nodes that see the same table compute the same numbers. After each heartbeat the membership compares
//! the quota with what it holds, plans a claim for the missing shards and revokes surplus ones. It drops everything
//! if the table does not confirm what it holds.

use std::collections::BTreeMap;

use super::{Command, OwnedShard, RegisteredNode, TableView};
use crate::cluster::{Capacity, NodeNo, SHARD_COUNT};

/// Returns the number of shards that a node should own: a part in proportion to its capacity, and one more for the first
/// nodes. The parts are equal if the capacities are, if all are none, or if a node reports no capacity: such a node
/// takes an equal part and leaves the rest to the others.
pub(super) fn quota(node: NodeNo, wants_shards: bool, view: &TableView) -> usize {
    if !wants_shards {
        return 0;
    }
    let workers = view.nodes.iter();
    let workers = workers.filter(|row| row.wants_shards || row.node == node);
    let mut quarters: BTreeMap<NodeNo, usize> = BTreeMap::new();
    let mut are_equal = false;
    for row in workers {
        are_equal |= row.speed.is_none();
        let capacity = row.speed.map_or(Capacity::FULL, |speed| speed.capacity);
        quarters.insert(row.node, usize::from(capacity.quarters()));
    }
    if are_equal || quarters.values().all(|own| *own == 0) {
        quarters.values_mut().for_each(|own| *own = 1);
    }
    quarters.retain(|_, own| *own > 0);
    let Some(own) = quarters.get(&node) else {
        return 0;
    };
    let total: usize = quarters.values().sum();
    let count = usize::from(SHARD_COUNT);
    let part = |own: usize| count * own / total;
    let remaining = count - quarters.values().map(|own| part(*own)).sum::<usize>();
    let rank = quarters.range(..node).count();
    part(*own) + usize::from(rank < remaining)
}

impl RegisteredNode {
    /// Drops all shards if the table does not confirm every one of them. This should never happen. If it does, the
    /// node cannot trust its own state.
    pub(super) fn verify_ownership(&mut self, view: &TableView, commands: &mut Vec<Command>) {
        let holds = |holding: OwnedShard| {
            let held = self.owned.get(&holding.shard);
            held.is_some_and(|held| held.epoch == holding.epoch)
        };
        let mine = view
            .shards
            .iter()
            .filter(|owned| owned.owner == Some(self.node) && holds(owned.ownership));
        let sound = mine.count() == self.owned.len();
        if !sound {
            self.expire(commands);
        }
    }

    /// Plans claims for the missing part of this node's shards, and revokes surplus ones.
    pub(super) fn plan_shards(
        &mut self,
        wants_shards: bool,
        view: &TableView,
        commands: &mut Vec<Command>,
    ) {
        let quota = quota(self.node, wants_shards, view);
        // Shards that the table shows as this node's and that it does not hold: an answer was lost, or the lease
        // ended.
        let mut strays: Vec<OwnedShard> = view
            .shards
            .iter()
            .filter(|owned| owned.owner == Some(self.node))
            .map(|owned| owned.ownership)
            .filter(|holding| !self.owned.contains_key(&holding.shard))
            .filter(|holding| !self.unreleased.contains(holding))
            .collect();
        let kept = self.owned.values().filter(|held| !held.revoked).count();
        let missing = quota.saturating_sub(kept);
        let surplus = strays.split_off(missing.min(strays.len()));
        if !surplus.is_empty() {
            self.plan.push_back(Command::Release(surplus));
        }
        let own = strays;
        let unowned = view
            .shards
            .iter()
            .filter(|owned| owned.owner.is_none())
            .count();
        let free = unowned.min(missing - own.len());
        if !own.is_empty() || free > 0 {
            self.plan.push_back(Command::Claim { own, free });
        }
        let excess = kept.saturating_sub(quota);
        let keepers = self.owned.iter_mut().rev();
        let revoked = keepers.filter(|(_, held)| !held.revoked).take(excess);
        for (&shard, held) in revoked {
            held.revoked = true;
            let epoch = held.epoch;
            commands.push(Command::Revoke(OwnedShard { shard, epoch }));
        }
    }
}
