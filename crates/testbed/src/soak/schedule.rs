//! The faults of a run, and their times. Everything follows from the seed, so a printed seed repeats the schedule exactly.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use posthaste_core::rng::Rng;

use crate::Direction;

/// Time before the first fault, in milliseconds.
const QUIET_START_MS: u64 = 4_000;
/// Pause between two faults, in milliseconds. The longer ones let a slow node take its shards back.
const PAUSE_MS: (u64, u64) = (1_500, 9_000);

/// A fault of one node, of its link to the database, or of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The node is killed, and started again at the end.
    Kill,
    /// The node is stopped in order, and started again at the end.
    Stop,
    /// The process is frozen.
    Freeze,
    /// All connections to the database are cut once.
    Cut,
    /// All connections to the database are cut after some bytes in one direction, in the middle of a statement.
    CutAfterBytes,
    /// Nothing passes between the node and the database, and no connection is closed.
    BlackHole,
    /// Nothing passes to the database.
    DeafDatabase,
    /// Nothing passes to the node.
    DeafNode,
    /// Everything between the node and the database is delayed.
    SlowLink,
    /// The links of all nodes are equally slow.
    AllSlow,
    /// The database is stopped and started again.
    DatabaseRestart,
    /// The database is killed and recovers.
    DatabaseCrash,
}

impl FaultKind {
    /// Every kind that concerns nodes and links.
    pub const OF_NODES: [FaultKind; 10] = [
        FaultKind::Kill,
        FaultKind::Stop,
        FaultKind::Freeze,
        FaultKind::Cut,
        FaultKind::CutAfterBytes,
        FaultKind::BlackHole,
        FaultKind::DeafDatabase,
        FaultKind::DeafNode,
        FaultKind::SlowLink,
        FaultKind::AllSlow,
    ];
    /// Every kind that concerns the database.
    pub const OF_DATABASE: [FaultKind; 2] = [FaultKind::DatabaseRestart, FaultKind::DatabaseCrash];

    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Stop => "stop in order",
            FaultKind::Freeze => "freeze",
            FaultKind::Cut => "cut",
            FaultKind::CutAfterBytes => "cut in a statement",
            FaultKind::BlackHole => "black hole",
            FaultKind::DeafDatabase => "one way: to the node",
            FaultKind::DeafNode => "one way: to the database",
            FaultKind::SlowLink => "slow link",
            FaultKind::AllSlow => "all links slow",
            FaultKind::DatabaseRestart => "database restart",
            FaultKind::DatabaseCrash => "database crash",
        }
    }

    /// Returns true if it hits all nodes.
    pub fn hits_all(self) -> bool {
        match self {
            FaultKind::AllSlow | FaultKind::DatabaseRestart | FaultKind::DatabaseCrash => true,
            FaultKind::Kill
            | FaultKind::Stop
            | FaultKind::Freeze
            | FaultKind::Cut
            | FaultKind::CutAfterBytes
            | FaultKind::BlackHole
            | FaultKind::DeafDatabase
            | FaultKind::DeafNode
            | FaultKind::SlowLink => false,
        }
    }

    /// Returns the range of its duration in milliseconds. Some are longer than the lease, some shorter.
    fn duration_ms(self) -> (u64, u64) {
        match self {
            FaultKind::Cut => (0, 0),
            FaultKind::CutAfterBytes => (500, 1_500),
            FaultKind::Kill | FaultKind::Stop => (500, 12_000),
            FaultKind::Freeze => (500, 12_000),
            FaultKind::BlackHole | FaultKind::DeafDatabase | FaultKind::DeafNode => (800, 14_000),
            FaultKind::SlowLink => (25_000, 40_000),
            FaultKind::AllSlow => (15_000, 25_000),
            FaultKind::DatabaseRestart | FaultKind::DatabaseCrash => (100, 4_000),
        }
    }
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// Time since the start of the load.
    pub at: Duration,
    /// Its duration.
    pub lasts: Duration,
    /// Its kind.
    pub kind: FaultKind,
    /// The node that it hits, also for faults that hit all.
    pub node: usize,
    /// Delay of a slow link in each direction, in milliseconds.
    pub delay_ms: RangeInclusive<u64>,
    /// Bytes that pass before a cut, and their direction.
    pub cut_after: (Direction, usize),
    /// Seed of the delays.
    pub seed: u64,
}

impl fmt::Display for ScheduledFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(
            formatter,
            "{at:8.3} s  {:<24} {lasts:6.3} s",
            self.kind.name()
        )?;
        if !self.kind.hits_all() {
            write!(formatter, "  node {}", self.node)?;
        }
        match self.kind {
            FaultKind::SlowLink | FaultKind::AllSlow => {
                write!(formatter, "  {:?} ms each way", self.delay_ms)
            }
            FaultKind::CutAfterBytes => {
                let (direction, bytes) = self.cut_after;
                write!(formatter, "  after {bytes} bytes {direction:?}")
            }
            FaultKind::Kill
            | FaultKind::Stop
            | FaultKind::Freeze
            | FaultKind::Cut
            | FaultKind::BlackHole
            | FaultKind::DeafDatabase
            | FaultKind::DeafNode
            | FaultKind::DatabaseRestart
            | FaultKind::DatabaseCrash => Ok(()),
        }
    }
}

/// Returns the faults of a run, one after the other. Every kind of `kinds` occurs before one occurs again.
pub fn schedule(
    seed: u64,
    duration: Duration,
    nodes: usize,
    kinds: &[FaultKind],
) -> Vec<ScheduledFault> {
    let mut rng = Rng::seeded(seed);
    let mut faults = Vec::new();
    let mut remaining: Vec<FaultKind> = Vec::new();
    let mut at_ms = QUIET_START_MS;
    loop {
        if remaining.is_empty() {
            remaining = kinds.to_vec();
        }
        let index = rng.between(0, remaining.len() as u64 - 1) as usize;
        let kind = remaining.swap_remove(index);
        let (shortest, longest) = kind.duration_ms();
        let lasts_ms = rng.between(shortest, longest);
        let from_ms = rng.between(250, 450);
        let direction = *rng.pick(&[Direction::ToDatabase, Direction::FromDatabase]);
        let fault = ScheduledFault {
            at: Duration::from_millis(at_ms),
            lasts: Duration::from_millis(lasts_ms),
            kind,
            node: rng.between(0, nodes as u64 - 1) as usize,
            delay_ms: from_ms..=from_ms + rng.between(0, 400),
            cut_after: (direction, rng.between(1, 60_000) as usize),
            seed: rng.bits(),
        };
        let pause_ms = rng.between(PAUSE_MS.0, PAUSE_MS.1);
        at_ms += lasts_ms;
        if Duration::from_millis(at_ms) > duration {
            return faults;
        }
        at_ms += pause_ms;
        faults.push(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_schedule_exactly() {
        let minutes = Duration::from_secs(600);
        let of = |seed| schedule(seed, minutes, 3, &FaultKind::OF_NODES);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let kinds: std::collections::BTreeSet<FaultKind> =
            of(7).iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), FaultKind::OF_NODES.len());
        assert!(of(7).iter().all(|fault| fault.at + fault.lasts <= minutes));
    }
}
