//! The table that all nodes share, as in a database.
//!
//! [`Table`] holds the registered nodes with their heartbeats, and the owner and epoch of every shard.
//! [`Table::apply`] executes one request as one transaction and returns the answer for the node. A release is
//! refused if its epoch is outdated, a fence if the node has sent a heartbeat since, and every request of a removed
//! node is answered with `Expelled`.

use std::collections::BTreeMap;

use posthaste_core::cluster::{
    Capacity, Command, Epoch, Input, NodeNo, NodeRow, OwnedShard, ReportedSpeed, RoundTrips, Shard,
    ShardRow, TableView,
};
use posthaste_core::time::Span;

use super::mutations::ClusterMutation;

#[derive(Clone, Copy, Debug)]
struct Row {
    beat: u64,
    wants_shards: bool,
    lease: Span,
    speed: ReportedSpeed,
}

/// The registered nodes and the owners of the shards.
#[derive(Debug)]
pub(super) struct Table {
    next: u64,
    nodes: BTreeMap<NodeNo, Row>,
    shards: BTreeMap<Shard, (Epoch, Option<NodeNo>)>,
    mutation: Option<ClusterMutation>,
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Input,
    /// True if the other nodes are notified.
    pub(super) notifies: bool,
}

impl Table {
    pub(super) fn new(mutation: Option<ClusterMutation>) -> Table {
        Table {
            next: 0,
            nodes: BTreeMap::new(),
            shards: Shard::all()
                .map(|shard| (shard, (Epoch(0), None)))
                .collect(),
            mutation,
        }
    }

    /// Executes a node's request as one transaction.
    pub(super) fn apply(&mut self, me: Option<NodeNo>, request: &Command, lease: Span) -> Done {
        let silent_reply = |answer| Done {
            answer,
            notifies: false,
        };
        let notifying = |answer| Done {
            answer,
            notifies: true,
        };
        let expelled = me.is_some_and(|me| !self.nodes.contains_key(&me));
        let me = me.unwrap_or(NodeNo(0));
        match request {
            Command::Register => {
                self.next += 1;
                let row = Row {
                    beat: 0,
                    // The first heartbeat reports the capacity, and only then the others make room.
                    wants_shards: self.mutation == Some(ClusterMutation::AnnouncesFull),
                    lease,
                    speed: ReportedSpeed {
                        capacity: Capacity::FULL,
                        round_trips: RoundTrips::default(),
                    },
                };
                self.nodes.insert(NodeNo(self.next), row);
                notifying(Input::Registered(NodeNo(self.next)))
            }
            _ if expelled => silent_reply(Input::Expelled),
            Command::Heartbeat {
                wants_shards,
                report,
            } => {
                let row = self
                    .nodes
                    .get_mut(&me)
                    .expect("the node is registered, or it would be an outcast");
                row.beat += 1;
                let notifies =
                    row.wants_shards != *wants_shards || row.speed.capacity != report.capacity;
                row.wants_shards = *wants_shards;
                row.speed = ReportedSpeed {
                    capacity: report.capacity,
                    round_trips: report.round_trips,
                };
                Done {
                    answer: Input::HeartbeatDone(self.view()),
                    notifies,
                }
            }
            Command::Fence {
                node,
                heartbeats: beat,
            } => {
                let silent = self.nodes.get(node).is_some_and(|row| {
                    row.beat == *beat || self.mutation == Some(ClusterMutation::FencesTheLiving)
                });
                if silent && self.mutation != Some(ClusterMutation::NeverFences) {
                    self.remove_node(*node);
                }
                notifying(Input::Fenced)
            }
            Command::Claim { own, free } => notifying(Input::Claimed(self.claim(me, own, *free))),
            Command::Release(holdings) => {
                for holding in holdings {
                    let (epoch, owner) = self
                        .shards
                        .get_mut(&holding.shard)
                        .expect("the table has every shard");
                    let current = *epoch == holding.epoch
                        || self.mutation == Some(ClusterMutation::ReleasesAnyEpoch);
                    if *owner == Some(me) && current {
                        *owner = None;
                    }
                }
                notifying(Input::Released)
            }
            Command::Leave => {
                if self.mutation != Some(ClusterMutation::LeavesRegistered) {
                    self.remove_node(me);
                }
                notifying(Input::Left)
            }
            Command::SetLease { .. }
            | Command::Grant(_)
            | Command::Revoke(_)
            | Command::CapacityChanged(_)
            | Command::Expire
            | Command::Retired => panic!("{request:?} is not a request to the table"),
        }
    }

    /// Removes a node, as another one that thinks it is dead does.
    pub(super) fn remove_node(&mut self, node: NodeNo) {
        self.nodes.remove(&node);
        for (_, owner) in self.shards.values_mut() {
            if *owner == Some(node) {
                *owner = None;
            }
        }
    }

    fn claim(&mut self, me: NodeNo, own: &[OwnedShard], free: usize) -> Vec<OwnedShard> {
        if self.mutation == Some(ClusterMutation::TakesNothing) {
            return Vec::new();
        }
        let mut left = free;
        let mut claimed = Vec::new();
        for (&shard, (epoch, owner)) in &mut self.shards {
            let holding = OwnedShard {
                shard,
                epoch: *epoch,
            };
            let lost = *owner == Some(me) && own.contains(&holding);
            let taken = owner.is_none() && left > 0;
            if lost || taken {
                left -= usize::from(taken);
                *owner = Some(me);
                epoch.0 += 1;
                claimed.push(OwnedShard {
                    shard,
                    epoch: *epoch,
                });
            }
        }
        claimed
    }

    fn view(&self) -> TableView {
        TableView {
            nodes: self
                .nodes
                .iter()
                .map(|(&node, row)| NodeRow {
                    node,
                    heartbeats: row.beat,
                    wants_shards: row.wants_shards,
                    lease: row.lease,
                    speed: Some(row.speed),
                })
                .collect(),
            shards: self.owned().collect(),
        }
    }

    /// Returns the owner of every shard.
    pub(super) fn owned(&self) -> impl Iterator<Item = ShardRow> {
        self.shards
            .iter()
            .map(|(&shard, &(epoch, owner))| ShardRow {
                ownership: OwnedShard { shard, epoch },
                owner,
            })
    }

    /// Returns true if the node is registered or owns a shard.
    pub(super) fn knows(&self, node: NodeNo) -> bool {
        self.nodes.contains_key(&node) || self.owned().any(|owned| owned.owner == Some(node))
    }
}
