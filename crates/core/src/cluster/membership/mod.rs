//! Membership of one node in the cluster, and its ownership of shards.
//!
//! [`MembershipState::handle`] takes an [`Input`] and returns [`Command`]s. All nodes share one table in the database. The
//! caller executes at most one request to the table at a time. The membership guarantees:
//!
//! - No two nodes may send for a shard at the same time, even if messages are lost or late or a node is frozen, as
//!   long as monotonic clocks run at the same speed to within a few percent.
//! - A lease counts from before the heartbeat that renewed it was sent. The silence of another node counts from
//!   after its last heartbeat was seen, and only while this node could read the table.
//! - A revoked shard stays with this node until nothing of it is in flight, and is then released at once.
//! - Shards are divided in proportion to the nodes' capacities. While all are full, the numbers of shards per node differ
//!   by at most one as soon as all nodes have seen the same table. No shard moves while no node joins, leaves or
//!   changes its capacity.
//! - A node whose round trips to the database are much slower than those of another node gives its shards away in
//!   steps, and takes them back when it is quick again.
//! - If the table shows a shard as this node's that the node does not hold, because an answer was lost, the node
//!   claims it again with a new epoch or releases it.
//!
//! ```text
//!   Unregistered ─ Register ─▶ Registered: Heartbeat ▸ read the table ▸ Fence ▸ Claim · Revoke ▸ Release ─┐
//!        ▲                       │  ▲──────────────────────────────────────────────────────────────────────┘
//!        └────── Expelled ───────┤   a database that needs a later version: TooOld ─▶ Left
//!                                └─ Retire ▸ all revoked ▸ Leave ─▶ Left
//! ```

mod command;
mod shard_plan;

#[cfg(test)]
mod tests;

pub use command::{
    Command, Input, NodeReport, NodeRow, OwnedShard, ReportedSpeed, ShardRow, TableView,
};

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::serving_speed::ServingSpeed;
use super::{
    Epoch, LONGEST_LEASE, MIN_SLOW_ROUND_TRIP, NodeNo, RoundTripKind, RoundTrips, Shard, Timings,
};
use crate::time::{Span, Tick};

/// The membership state machine of one node.
#[derive(Debug)]
pub struct MembershipState {
    timings: Timings,
    wants_shards: bool,
    retiring: bool,
    membership: MemberState,
    outstanding: Option<PendingRequest>,
    /// Time of the next heartbeat or registration.
    next_heartbeat_at: Tick,
    /// After a failure: no request before this time.
    retry_at: Tick,
    last_heartbeat: Option<Tick>,
    /// Kept when the lease ends: the next ownership begins with the capacity that the last one ended with.
    speed: ServingSpeed,
}

#[derive(Debug)]
enum MemberState {
    Unregistered,
    Registered(RegisteredNode),
    Left,
}

/// The request to the table that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingRequest {
    Register,
    Heartbeat { sent: Tick },
    Fence,
    Claim,
    Release,
    Leave,
}

#[derive(Debug)]
struct RegisteredNode {
    node: NodeNo,
    /// End of the lease; `None` if the node has no lease.
    end_by: Option<Tick>,
    owned: BTreeMap<Shard, ShardOwnership>,
    /// Shards that are no longer held and not yet released in the table.
    unreleased: Vec<OwnedShard>,
    others: FxHashMap<NodeNo, LastHeartbeat>,
    last_view_at: Option<Tick>,
    /// Requests that follow from the last table contents.
    plan: VecDeque<Command>,
    /// True if no request of the plan has been issued yet. If heartbeats are slow, the next one is already due when
    /// an answer arrives. If it went first, no plan would ever be executed.
    fresh: bool,
}

#[derive(Clone, Copy, Debug)]
struct ShardOwnership {
    epoch: Epoch,
    revoked: bool,
}

/// The last heartbeat of another node, and when this node saw it first.
#[derive(Clone, Copy, Debug)]
struct LastHeartbeat {
    heartbeats: u64,
    since: Tick,
}

impl MembershipState {
    /// Creates the membership of a node that has not registered yet.
    pub fn new(timings: Timings, wants_shards: bool, now: Tick) -> MembershipState {
        MembershipState {
            timings,
            wants_shards,
            retiring: false,
            membership: MemberState::Unregistered,
            outstanding: None,
            next_heartbeat_at: now,
            retry_at: now,
            last_heartbeat: None,
            speed: ServingSpeed::new(),
        }
    }

    /// Returns when to call [`handle`](MembershipState::handle) with [`Input::Tick`], if no other input arrives before.
    pub fn wake(&self) -> Option<Tick> {
        let (ends, more) = match &self.membership {
            MemberState::Registered(registered) => {
                (registered.end_by, registered.has_more(self.retiring))
            }
            MemberState::Unregistered => (None, false),
            MemberState::Left => return None,
        };
        let asks = if more {
            self.retry_at
        } else {
            self.next_heartbeat_at.max(self.retry_at)
        };
        let asks = self.outstanding.is_none().then_some(asks);
        [ends, asks].into_iter().flatten().min()
    }

    /// Handles one input and appends the resulting commands to `commands`, in the order in which to execute them.
    ///
    /// # Panics
    ///
    /// If an answer arrives to a request that was not made.
    pub fn handle(&mut self, now: Tick, input: Input, commands: &mut Vec<Command>) {
        self.expire_if_late(now, commands);
        match input {
            Input::Tick => {}
            Input::Registered(node) => self.registered(now, node),
            Input::HeartbeatDone(view) => self.heartbeat_done(now, &view, commands),
            Input::RoundTrip(kind, took) => self.speed.add(now, kind, took),
            Input::RoundTripFailed(kind) => self.speed.fail(now, kind),
            Input::Fenced => {
                self.answered(PendingRequest::Fence);
                // Read the table at once, because the freed shards can be claimed now.
                self.next_heartbeat_at = now;
            }
            Input::Claimed(holdings) => self.claimed(holdings, commands),
            Input::Released => self.answered(PendingRequest::Release),
            Input::Left => {
                self.answered(PendingRequest::Leave);
                self.gone(commands);
            }
            Input::Failed => self.failed(now, commands),
            Input::Expelled => self.expelled(now, commands),
            Input::TooOld => {
                self.answered(PendingRequest::Register);
                self.gone(commands);
            }
            Input::RevokeFinished(holding) => self.revoke_finished(holding),
            Input::TableChanged => self.table_changed(now),
            Input::Retire => self.retire(now, commands),
        }
        self.issue_next_request(now, commands);
    }

    /// Ends the lease if its time is over, so that no decision is based on it.
    fn expire_if_late(&mut self, now: Tick, commands: &mut Vec<Command>) {
        if let MemberState::Registered(registered) = &mut self.membership
            && registered.end_by.is_some_and(|end_by| now >= end_by)
        {
            registered.expire(commands);
        }
    }

    /// Removes the outstanding request, which must be `to`.
    fn answered(&mut self, to: PendingRequest) {
        let asked = self.outstanding.take();
        assert_eq!(
            asked,
            Some(to),
            "the answer belongs to another request than the outstanding one"
        );
    }

    fn registered(&mut self, now: Tick, node: NodeNo) {
        self.answered(PendingRequest::Register);
        self.membership = MemberState::Registered(RegisteredNode {
            node,
            end_by: None,
            owned: BTreeMap::new(),
            unreleased: Vec::new(),
            others: FxHashMap::default(),
            last_view_at: None,
            plan: VecDeque::new(),
            fresh: false,
        });
        self.next_heartbeat_at = now;
    }

    fn heartbeat_done(&mut self, now: Tick, view: &TableView, commands: &mut Vec<Command>) {
        let Some(PendingRequest::Heartbeat { sent }) = self.outstanding.take() else {
            panic!("a heartbeat was answered that is not outstanding");
        };
        let MemberState::Registered(registered) = &mut self.membership else {
            panic!("a heartbeat was answered for a node that is not registered");
        };
        let dead = registered.update_heartbeats(now, view, self.timings);
        let interval = self.timings.heartbeat_interval;
        self.speed.heartbeat_succeeded(now, interval);
        self.speed
            .add(now, RoundTripKind::Heartbeat, now.since(sent));
        let mine = self.speed.round_trips(now, interval);
        let others = registered.quickest_others(now, view);
        let change = self.speed.judge(mine, others);
        registered.plan.clear();
        let begin_by = sent.after(self.timings.begin_within);
        let end_by = sent.after(self.timings.end_within);
        if now < end_by {
            registered.end_by = Some(end_by);
            commands.push(Command::SetLease { begin_by, end_by });
        }
        if now >= begin_by {
            // The answer took so long that no attempt may start on its basis.
            self.next_heartbeat_at = now;
            return;
        }
        registered.verify_ownership(view, commands);
        if let Some(change) = change {
            commands.push(Command::CapacityChanged(change));
            // All nodes divide the shards by the capacities in the table, so the new one is reported first.
            self.next_heartbeat_at = now;
        }
        if registered.end_by.is_some() {
            let wants_shards = self.wants_shards && !self.retiring;
            registered.plan_shards(wants_shards, view, commands);
            // Last, because a fence may have to wait for writes that the dead node has in progress.
            registered.plan.extend(dead);
            registered.fresh = true;
        } else {
            self.next_heartbeat_at = now;
        }
    }

    fn claimed(&mut self, holdings: Vec<OwnedShard>, commands: &mut Vec<Command>) {
        self.answered(PendingRequest::Claim);
        if let MemberState::Registered(registered) = &mut self.membership
            && registered.end_by.is_some()
            && !holdings.is_empty()
        {
            for holding in &holdings {
                let held = ShardOwnership {
                    epoch: holding.epoch,
                    revoked: false,
                };
                registered.owned.insert(holding.shard, held);
            }
            commands.push(Command::Grant(holdings));
            if self.retiring {
                registered.revoke_all(commands);
            }
        }
    }

    fn failed(&mut self, now: Tick, commands: &mut Vec<Command>) {
        let asked = self.outstanding.take();
        assert!(
            asked.is_some(),
            "a failure was reported but no request is outstanding"
        );
        if let Some(PendingRequest::Heartbeat { sent }) = asked
            && now.since(sent) > MIN_SLOW_ROUND_TRIP
        {
            // An answer would have taken at least this long.
            self.speed
                .add(now, RoundTripKind::Heartbeat, now.since(sent));
        }
        match asked {
            Some(PendingRequest::Heartbeat { .. } | PendingRequest::Register) => {
                self.speed.heartbeat_failed();
            }
            Some(
                PendingRequest::Fence
                | PendingRequest::Claim
                | PendingRequest::Release
                | PendingRequest::Leave,
            )
            | None => {}
        }
        self.retry_at = now.after(self.timings.try_again);
        self.next_heartbeat_at = self.retry_at;
        match &mut self.membership {
            MemberState::Registered(registered) => {
                registered.plan.clear();
                // Without a lease the node owns nothing, so leaving need not succeed: other nodes will notice the
                // silence.
                if asked == Some(PendingRequest::Leave) && registered.end_by.is_none() {
                    self.gone(commands);
                }
            }
            MemberState::Unregistered if self.retiring => self.gone(commands),
            MemberState::Unregistered | MemberState::Left => {}
        }
    }

    /// Handles that another node declared this one dead: it is no longer a member.
    fn expelled(&mut self, now: Tick, commands: &mut Vec<Command>) {
        let asked = self.outstanding.take();
        assert!(
            asked.is_some(),
            "an answer was reported but no request is outstanding"
        );
        if let MemberState::Registered(registered) = &mut self.membership
            && registered.end_by.is_some()
        {
            registered.expire(commands);
        }
        self.membership = MemberState::Unregistered;
        self.next_heartbeat_at = now;
        if self.retiring {
            self.gone(commands);
        }
    }

    fn revoke_finished(&mut self, holding: OwnedShard) {
        if let MemberState::Registered(registered) = &mut self.membership
            && registered
                .owned
                .get(&holding.shard)
                .is_some_and(|held| held.revoked && held.epoch == holding.epoch)
        {
            registered.owned.remove(&holding.shard);
            registered.unreleased.push(holding);
        }
    }

    /// Schedules a heartbeat soon, with at least the minimum interval since the last one to limit the load on the
    /// table.
    fn table_changed(&mut self, now: Tick) {
        let earliest = self
            .last_heartbeat
            .map_or(now, |last| last.after(self.timings.look_pause));
        self.next_heartbeat_at = self.next_heartbeat_at.min(earliest.max(now));
    }

    fn retire(&mut self, now: Tick, commands: &mut Vec<Command>) {
        if self.retiring {
            return;
        }
        self.retiring = true;
        self.next_heartbeat_at = now;
        match &mut self.membership {
            MemberState::Registered(registered) => {
                registered.plan.clear();
                registered.revoke_all(commands);
            }
            MemberState::Unregistered if self.outstanding.is_none() => self.gone(commands),
            MemberState::Unregistered | MemberState::Left => {}
        }
    }

    fn gone(&mut self, commands: &mut Vec<Command>) {
        self.membership = MemberState::Left;
        commands.push(Command::Retired);
    }

    /// Issues the next request to the table, if none is outstanding.
    fn issue_next_request(&mut self, now: Tick, commands: &mut Vec<Command>) {
        if self.outstanding.is_some() || now < self.retry_at {
            return;
        }
        let due = now >= self.next_heartbeat_at;
        let retiring = self.retiring;
        let (command, underway) = match &mut self.membership {
            MemberState::Left => return,
            MemberState::Unregistered if due => (Command::Register, PendingRequest::Register),
            MemberState::Unregistered => return,
            MemberState::Registered(registered) if !registered.unreleased.is_empty() => {
                let holdings = std::mem::take(&mut registered.unreleased);
                (Command::Release(holdings), PendingRequest::Release)
            }
            MemberState::Registered(registered) if retiring && registered.owned.is_empty() => {
                (Command::Leave, PendingRequest::Leave)
            }
            MemberState::Registered(registered)
                if due && (!registered.fresh || registered.plan.is_empty()) =>
            {
                self.last_heartbeat = Some(now);
                self.next_heartbeat_at = now.after(self.timings.heartbeat_interval);
                let wants_shards = self.wants_shards && !retiring;
                let report = NodeReport {
                    capacity: self.speed.capacity(),
                    round_trips: self.speed.round_trips(now, self.timings.heartbeat_interval),
                };
                (
                    Command::Heartbeat {
                        wants_shards,
                        report,
                    },
                    PendingRequest::Heartbeat { sent: now },
                )
            }
            MemberState::Registered(registered) => match registered.plan.pop_front() {
                Some(command) => {
                    registered.fresh = false;
                    let underway = PendingRequest::of(&command);
                    (command, underway)
                }
                None => return,
            },
        };
        self.outstanding = Some(underway);
        commands.push(command);
    }
}

impl PendingRequest {
    /// Returns the outstanding request that a planned command becomes.
    fn of(command: &Command) -> PendingRequest {
        match command {
            Command::Fence { .. } => PendingRequest::Fence,
            Command::Claim { .. } => PendingRequest::Claim,
            Command::Release(_) => PendingRequest::Release,
            Command::Register
            | Command::Heartbeat { .. }
            | Command::Leave
            | Command::SetLease { .. }
            | Command::Grant(_)
            | Command::Revoke(_)
            | Command::CapacityChanged(_)
            | Command::Expire
            | Command::Retired => panic!("{command:?} is never part of a plan"),
        }
    }
}

impl RegisteredNode {
    /// Returns true if there is a request that need not wait for the next heartbeat.
    fn has_more(&self, retiring: bool) -> bool {
        let leaves = retiring && self.owned.is_empty();
        leaves || !self.unreleased.is_empty() || !self.plan.is_empty()
    }

    /// Ends the lease and drops all shards.
    fn expire(&mut self, commands: &mut Vec<Command>) {
        self.end_by = None;
        self.owned.clear();
        self.unreleased.clear();
        self.plan.clear();
        commands.push(Command::Expire);
    }

    /// Updates the last heartbeats of the other nodes and returns the commands that fence the dead ones.
    fn update_heartbeats(&mut self, now: Tick, view: &TableView, timings: Timings) -> Vec<Command> {
        let deaf = self
            .last_view_at
            .is_none_or(|last| now.since(last) > timings.deaf_after);
        self.last_view_at = Some(now);
        let mut dead = Vec::new();
        let mut others = FxHashMap::default();
        for row in view.nodes.iter().filter(|row| row.node != self.node) {
            let known = self.others.get(&row.node);
            let heard = match known {
                Some(heard) if heard.heartbeats == row.heartbeats && !deaf => *heard,
                Some(_) | None => LastHeartbeat {
                    heartbeats: row.heartbeats,
                    since: now,
                },
            };
            if now.since(heard.since) >= row.lease.min(LONGEST_LEASE) {
                dead.push(Command::Fence {
                    node: row.node,
                    heartbeats: row.heartbeats,
                });
            }
            others.insert(row.node, heard);
        }
        self.others = others;
        dead
    }

    /// Returns the quickest round trip of each kind of the other nodes that want shards and whose heartbeats arrive.
    fn quickest_others(&self, now: Tick, view: &TableView) -> RoundTrips {
        let others = view.nodes.iter();
        let others = others.filter(|row| row.node != self.node && row.wants_shards);
        let arrives = |row: &&NodeRow| {
            let heard = self.others.get(&row.node);
            // A frozen node reports what was true before.
            let silence = Span::from_millis(row.lease.as_millis() / 2);
            heard.is_some_and(|heard| now.since(heard.since) < silence)
        };
        let reported = others.filter(arrives).filter_map(|row| row.speed);
        reported.fold(RoundTrips::default(), |quickest, speed| {
            quickest.quickest(speed.round_trips)
        })
    }

    /// Revokes all shards, so that they are released when their attempts have ended.
    fn revoke_all(&mut self, commands: &mut Vec<Command>) {
        for (&shard, held) in self.owned.iter_mut().filter(|(_, held)| !held.revoked) {
            held.revoked = true;
            let epoch = held.epoch;
            commands.push(Command::Revoke(OwnedShard { shard, epoch }));
        }
    }
}
