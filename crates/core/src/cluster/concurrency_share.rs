//! Division of a tenant's concurrency limit among nodes.
//!
//! Each node holds a number of *slots*; all nodes together never hold more than the tenant's limit. Nodes ask one
//! after the other, repeatedly, with what they have and what they want ([`SlotDemand`]). [`share`] answers with a
//! [`ShareGrant`]. A node that uses less gives slots back. A node with more than its fair share, while another node
//! wants some, gives slots back as soon as its attempts in flight have ended. If there is less than one slot per node,
//! the nodes take turns: no node keeps a slot while another one wants one and has none.

/// The slots that a node holds and wants, as other nodes see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShare {
    /// Number of attempts that the node may have in flight.
    pub slots: u32,
    /// Number of attempts that the node would have in flight without a limit.
    pub wants: u32,
}

/// A node's request for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotDemand {
    /// The limit that the node currently applies: it starts no attempt beyond this number.
    pub in_force: u32,
    /// Number of attempts in flight.
    pub under_way: u32,
    /// Number of attempts that would be in flight without a limit.
    pub wants: u32,
}

/// The answer to a request for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareGrant {
    /// Slots that belong to this node exclusively.
    pub slots: u32,
    /// Slots that the node may use from now on. If this is less than `slots`, the node must give up the difference,
    /// by asking again when they are no longer in use.
    pub usable: u32,
    /// The node's fair share, independent of the demand of other nodes. A node that may use this many gets more
    /// only if another node wants less.
    pub fair: u32,
}

/// Returns the slots for a node that asks and already holds `held`, out of the tenant's limit `most`.
pub fn share(most: u32, held: u32, ask: SlotDemand, others: &[NodeShare]) -> ShareGrant {
    let theirs: u32 = others.iter().map(|other| other.slots).sum();
    let free = most.saturating_sub(theirs);
    let claims = |other: &&NodeShare| other.slots > 0 || other.wants > 0;
    let claimants = 1 + others.iter().filter(claims).count() as u32;
    let fair = (most / claimants).max(1);
    let owed: u32 = others
        .iter()
        .map(|other| other.wants.min(fair).saturating_sub(other.slots))
        .sum();
    // Slots that are in use, or may be by the time the node receives the answer, stay with it.
    let kept = ask.under_way.max(ask.in_force);
    let other_has_none = others
        .iter()
        .any(|other| other.slots == 0 && other.wants > 0);
    let target = match held > 0 && most < claimants && other_has_none {
        true => 0,
        false => ask.wants.min(fair.max(free.saturating_sub(owed))),
    };
    let slots = kept.max(target.min(free));
    ShareGrant {
        slots,
        usable: target.min(slots),
        fair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A node that sends as much as it may.
    #[derive(Clone, Copy, Debug, Default)]
    struct Node {
        work: u32,
        under_way: u32,
        usable: u32,
        share: Option<NodeShare>,
        done: u32,
    }

    impl Node {
        fn begin(&mut self) {
            while self.work > 0 && self.under_way < self.usable {
                self.work -= 1;
                self.under_way += 1;
            }
        }

        fn end(&mut self, count: u32) {
            let count = count.min(self.under_way);
            self.under_way -= count;
            self.done += count;
        }
    }

    fn ask(nodes: &mut [Node], asks: usize, most: u32) {
        let others: Vec<NodeShare> = nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != asks)
            .filter_map(|(_, node)| node.share)
            .collect();
        let node = &mut nodes[asks];
        let wants = node.under_way.saturating_add(node.work).min(most);
        let held = node.share.map_or(0, |share| share.slots);
        let grant = share(
            most,
            held,
            SlotDemand {
                in_force: node.usable,
                under_way: node.under_way,
                wants,
            },
            &others,
        );
        assert!(grant.usable <= grant.slots);
        node.usable = grant.usable;
        node.share = Some(NodeShare {
            slots: grant.slots,
            wants,
        });
    }

    #[test]
    fn with_one_slot_nodes_take_turns() {
        let work = Node {
            work: 50,
            ..Node::default()
        };
        let mut nodes = [work, work];
        for _ in 0..1_000 {
            for index in 0..2 {
                ask(&mut nodes, index, 1);
                nodes[index].begin();
                assert!(nodes.iter().map(|node| node.under_way).sum::<u32>() <= 1);
                nodes[index].end(1);
            }
        }
        assert_eq!(nodes.map(|node| node.done), [50, 50]);
    }

    #[test]
    fn a_single_node_has_all_slots_and_shares_with_new_nodes() {
        let mut nodes = [
            Node {
                work: 1_000,
                ..Node::default()
            },
            Node::default(),
        ];
        ask(&mut nodes, 0, 10);
        assert_eq!(nodes[0].usable, 10);
        nodes[0].begin();
        nodes[1].work = 1_000;
        for _ in 0..4 {
            for index in 0..2 {
                ask(&mut nodes, index, 10);
                nodes[index].begin();
                nodes[index].end(5);
            }
        }
        assert_eq!(nodes.map(|node| node.usable), [5, 5]);
        // The first node has all slots again when the other one is done.
        nodes[1] = Node {
            share: Some(NodeShare { slots: 0, wants: 0 }),
            ..Node::default()
        };
        nodes[0].under_way = 0;
        ask(&mut nodes, 0, 10);
        assert_eq!(nodes[0].usable, 10);
    }

    proptest! {
        #[test]
        fn the_limit_is_never_exceeded_and_all_work_is_done(
            most in 1u32..12,
            count in 1usize..5,
            steps in prop::collection::vec((0usize..5, 0u32..4, 0u32..6), 1..300),
        ) {
            let mut nodes = vec![Node::default(); count];
            let mut given = 0;
            let sum = |nodes: &[Node]| nodes.iter().map(|node| node.under_way).sum::<u32>();
            for (which, kind, size) in steps {
                let index = which % count;
                match kind {
                    0 => {
                        nodes[index].work += size;
                        given += size;
                    }
                    1 => nodes[index].end(size),
                    2 => nodes[index].begin(),
                    3.. => ask(&mut nodes, index, most),
                }
                prop_assert!(sum(&nodes) <= most);
                let slots: u32 = nodes.iter().filter_map(|node| node.share).map(|it| it.slots).sum();
                prop_assert!(slots <= most);
            }
            for _ in 0..2_000 {
                for index in 0..count {
                    ask(&mut nodes, index, most);
                    nodes[index].begin();
                    prop_assert!(sum(&nodes) <= most);
                    nodes[index].end(1);
                }
            }
            prop_assert_eq!(nodes.iter().map(|node| node.done).sum::<u32>(), given);
        }
    }
}
