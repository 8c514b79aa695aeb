//! One process among several.

use std::collections::BTreeSet;

use posthaste_core::cluster::{Command, Holding, Input, NodeNo, Roster, Timings};
use posthaste_core::time::Tick;

/// A process with a roster, and with what it believes to own.
#[derive(Debug)]
pub(super) struct Node {
    roster: Roster,
    /// What its clock showed when the world began.
    origin: u64,
    parts_per_million: i64,
    pub(super) works: bool,
    pub(super) is_alive: bool,
    pub(super) frozen: bool,
    /// Nobody has asked it to go.
    pub(super) stays: bool,
    pub(super) retired: bool,
    pub(super) life: u64,
    /// Until then the table does not hear it.
    pub(super) cut_off_until_ms: u64,
    pub(super) number: Option<NodeNo>,
    /// The request it waits for.
    pub(super) asked: Option<u64>,
    /// What it may send for, until its clock shows `end_by`.
    pub(super) held: BTreeSet<Holding>,
    pub(super) end_by: Tick,
}

impl Node {
    pub(super) fn new(works: bool, origin: u64, parts_per_million: i64, timings: Timings) -> Node {
        Node {
            roster: Roster::new(timings, works, Tick::START),
            origin,
            parts_per_million,
            works,
            is_alive: false,
            frozen: false,
            stays: true,
            retired: false,
            life: 0,
            cut_off_until_ms: 0,
            number: None,
            asked: None,
            held: BTreeSet::new(),
            end_by: Tick::START,
        }
    }

    pub(super) fn start(&mut self, now_ms: u64, timings: Timings) {
        self.is_alive = true;
        self.roster = Roster::new(timings, self.works, self.clock(now_ms));
    }

    pub(super) fn crash(&mut self) {
        self.is_alive = false;
        self.life += 1;
        self.held.clear();
    }

    /// What its steady clock shows.
    pub(super) fn clock(&self, now_ms: u64) -> Tick {
        let drift = now_ms as i64 * self.parts_per_million / 1_000_000;
        Tick(self.origin + now_ms.saturating_add_signed(drift))
    }

    pub(super) fn lives(&self, life: u64) -> bool {
        self.is_alive && self.life == life
    }

    pub(super) fn is_awake(&self, life: u64) -> bool {
        self.lives(life) && !self.frozen
    }

    /// Whether it takes part.
    pub(super) fn runs(&self) -> bool {
        self.is_alive && !self.retired
    }

    pub(super) fn handle(&mut self, now: Tick, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        self.roster.handle(now, input, &mut commands);
        commands
    }

    /// In how many milliseconds of the world its roster wants to be woken.
    pub(super) fn wakes_in_ms(&self, now_ms: u64) -> Option<u64> {
        let wake = self.roster.wake()?;
        let left = wake.since(self.clock(now_ms)).as_millis();
        // Its clock may be slow: one millisecond more is never too early for long.
        Some(left + left / 1_000)
    }
}
