//! One simulated node.
//!
//! [`Node`] has a membership state machine ([`MembershipState`]), the shards that it believes to own, and its own monotonic
//! clock, which starts at any value and runs slightly too fast or too slow. It can crash, freeze, lose its
//! connection and leave. Events for an earlier life of the node are recognised by the number of the life and
//! ignored.

use std::collections::BTreeSet;

use posthaste_core::cluster::{Command, Input, MembershipState, NodeNo, OwnedShard, Timings};
use posthaste_core::time::Tick;

use super::slow_links::Link;

/// A node with its membership state machine and the shards that it believes to own.
#[derive(Debug)]
pub(super) struct Node {
    membership: MembershipState,
    /// Clock value at the start of the simulation.
    origin: u64,
    parts_per_million: i64,
    pub(super) wants_shards: bool,
    pub(super) is_alive: bool,
    pub(super) frozen: bool,
    /// False after it was asked to leave.
    pub(super) stays: bool,
    pub(super) retired: bool,
    pub(super) life: u64,
    /// Its requests are lost until this time.
    pub(super) cut_off_until_ms: u64,
    pub(super) link: Link,
    pub(super) number: Option<NodeNo>,
    /// The request whose response it waits for.
    pub(super) asked: Option<u64>,
    /// The shards that it may send for, until its clock shows `end_by`.
    pub(super) held: BTreeSet<OwnedShard>,
    pub(super) end_by: Tick,
    /// The simulated time of the wake-up that is scheduled for its present life.
    wake_at_ms: Option<u64>,
}

impl Node {
    pub(super) fn new(
        wants_shards: bool,
        origin: u64,
        parts_per_million: i64,
        timings: Timings,
    ) -> Node {
        Node {
            membership: MembershipState::new(timings, wants_shards, Tick::START),
            origin,
            parts_per_million,
            wants_shards,
            is_alive: false,
            frozen: false,
            stays: true,
            retired: false,
            life: 0,
            cut_off_until_ms: 0,
            link: Link::Quick,
            number: None,
            asked: None,
            held: BTreeSet::new(),
            end_by: Tick::START,
            wake_at_ms: None,
        }
    }

    pub(super) fn start(&mut self, now_ms: u64, timings: Timings) {
        self.is_alive = true;
        self.wake_at_ms = None;
        self.membership = MembershipState::new(timings, self.wants_shards, self.clock(now_ms));
    }

    pub(super) fn crash(&mut self) {
        self.is_alive = false;
        self.life += 1;
        self.held.clear();
    }

    /// Returns the time of its monotonic clock.
    pub(super) fn clock(&self, now_ms: u64) -> Tick {
        let drift = now_ms as i64 * self.parts_per_million / 1_000_000;
        Tick(self.origin + now_ms.saturating_add_signed(drift))
    }

    pub(super) fn is_current_life(&self, life: u64) -> bool {
        self.is_alive && self.life == life
    }

    /// Returns true if it is alive and has not left.
    pub(super) fn runs(&self) -> bool {
        self.is_alive && !self.retired
    }

    pub(super) fn handle(&mut self, now: Tick, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        self.membership.handle(now, input, &mut commands);
        commands
    }

    /// Returns the simulated time until its state machine wants to be woken, in milliseconds. `None` if it wants none, or
    /// if a wake-up at this time or earlier is scheduled, after which it is asked again.
    pub(super) fn schedule_wake(&mut self, now_ms: u64) -> Option<u64> {
        let wake = self.membership.wake()?;
        let left = wake.since(self.clock(now_ms)).as_millis();
        // The clock may be slow. Adding 0.1 % avoids waking it too early again and again.
        let in_ms = left + left / 1_000;
        let at_ms = now_ms + in_ms;
        if self.wake_at_ms.is_some_and(|scheduled| scheduled <= at_ms) {
            return None;
        }
        self.wake_at_ms = Some(at_ms);
        Some(in_ms)
    }

    /// Takes a wake-up of its present life. Returns false if an earlier one has replaced it, or if the node is frozen.
    pub(super) fn take_wake(&mut self, now_ms: u64) -> bool {
        if self.wake_at_ms != Some(now_ms) {
            return false;
        }
        self.wake_at_ms = None;
        !self.frozen
    }
}
