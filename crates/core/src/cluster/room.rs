//! How nodes share what a tenant may have under way at once.
//!
//! Each node holds so many *slots*, and all of them together never more than the tenant is allowed. Nodes ask one after
//! the other, again and again, and say what they have and what they want. A node that uses less gives back; one that has
//! more than its share while another wants some lets go, as soon as what it began has ended. Where there is less than one
//! for each, they take turns: nobody keeps a slot while somebody who wants one has none.

/// What a node holds and wants, as another sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// So many it may have under way.
    pub slots: u32,
    /// So many it would have under way if it might.
    pub wants: u32,
}

/// What a node says of itself when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// It begins nothing that would make them more than this.
    pub in_force: u32,
    /// So many are under way.
    pub under_way: u32,
    /// So many would be, if they might.
    pub wants: u32,
}

/// What a node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many are its own: nobody else has them.
    pub slots: u32,
    /// So many it may use from now on. If these are fewer, it is to let go of the others, and does so by asking again
    /// once they are not in use.
    pub usable: u32,
    /// So many are its due, however many others want. Who may use as many gets more only when somebody wants less.
    pub fair: u32,
}

/// What a node that asks, and holds so many already, gets of so many that a tenant may have at once.
pub fn share(most: u32, held: u32, ask: Ask, others: &[Share]) -> Room {
    let theirs: u32 = others.iter().map(|other| other.slots).sum();
    let free = most.saturating_sub(theirs);
    let claims = |other: &&Share| other.slots > 0 || other.wants > 0;
    let claimants = 1 + others.iter().filter(claims).count() as u32;
    let fair = (most / claimants).max(1);
    let owed: u32 = others
        .iter()
        .map(|other| other.wants.min(fair).saturating_sub(other.slots))
        .sum();
    // What is in use, or may be by the time it hears the answer, stays its own.
    let kept = ask.under_way.max(ask.in_force);
    let somebody_has_none = others
        .iter()
        .any(|other| other.slots == 0 && other.wants > 0);
    let target = match held > 0 && most < claimants && somebody_has_none {
        true => 0,
        false => ask.wants.min(fair.max(free.saturating_sub(owed))),
    };
    let slots = kept.max(target.min(free));
    Room {
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
        share: Option<Share>,
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
        let others: Vec<Share> = nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != asks)
            .filter_map(|(_, node)| node.share)
            .collect();
        let node = &mut nodes[asks];
        let wants = node.under_way.saturating_add(node.work).min(most);
        let held = node.share.map_or(0, |share| share.slots);
        let room = share(
            most,
            held,
            Ask {
                in_force: node.usable,
                under_way: node.under_way,
                wants,
            },
            &others,
        );
        assert!(room.usable <= room.slots);
        node.usable = room.usable;
        node.share = Some(Share {
            slots: room.slots,
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
    fn one_alone_has_all_and_shares_with_whoever_comes() {
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
        // And has all again when the other is done.
        nodes[1] = Node {
            share: Some(Share { slots: 0, wants: 0 }),
            ..Node::default()
        };
        nodes[0].under_way = 0;
        ask(&mut nodes, 0, 10);
        assert_eq!(nodes[0].usable, 10);
    }

    proptest! {
        #[test]
        fn never_more_than_is_allowed_and_all_of_it_is_done(
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
