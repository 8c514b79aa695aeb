//! Judges whether a node is quick enough for its part of the shards.
//!
//! A node whose round trips to the database are slow stalls the endpoints that it owns, although its heartbeats arrive in
//! time. [`ServingSpeed`] keeps the last round trips of each [`RoundTripKind`], compares each kind with the quickest
//! other node after each heartbeat, and changes the node's [`Capacity`] in steps: full, a half, a quarter,
//! none. The capacities are in the table that all nodes read, and each node takes shards in proportion to its own.
//!
//! A node is slow only in comparison with another node, and only kinds that both have measured are compared: a transaction
//! takes longer than a heartbeat on every link, and longer with more work. If all nodes are equally slow, for instance
//! because the database is, no capacity changes. Round trips that fail again and again, although heartbeats arrive, count
//! as [`FAILED_ROUND_TRIP`]. Between [`SLOW_FACTOR`] and [`QUICK_FACTOR`] nothing changes either, and every
//! relapse doubles the time until the next step up, so shards do not move back and forth.

use crate::time::{Span, Tick};

/// Number of round trips of each kind whose median counts.
const SAMPLES: usize = 3;
/// Age, in heartbeat intervals, after which a round trip does not count any more.
const MAX_SAMPLE_AGE: u64 = 30;
/// Number of failures of a kind in a row from which on they count. After a restart of the database each connection fails
/// once.
const MIN_FAILURES: u32 = 2;
/// The duration that round trips which fail again and again count for: the time limit of most of them.
const FAILED_ROUND_TRIP: Span = Span::from_secs(6);
/// A node with quicker round trips is never slow: endpoints hardly notice them.
pub const MIN_SLOW_ROUND_TRIP: Span = Span::from_millis(300);
/// A node is slow if its round trips take more than this many times those of the quickest other node.
const SLOW_FACTOR: u64 = 4;
/// A node is quick again if its round trips take at most this many times those of the quickest other node.
const QUICK_FACTOR: u64 = 2;
/// Number of slow heartbeats in a row before the first step down. The round trips of the other nodes are known with a
/// delay of up to two heartbeats, which this covers if all links become slow at once.
const SLOW_HEARTBEATS: u32 = 4;
/// Number of quick heartbeats in a row before a step up, if the node did not relapse.
const QUICK_HEARTBEATS: u32 = 5;
/// Maximum number of relapses that count: each doubles the number of quick heartbeats before a step up.
const MAX_RELAPSES: u32 = 3;
/// Number of quick heartbeats in a row at full capacity after which earlier relapses are forgotten.
const FORGET_RELAPSES: u32 = 120;

/// Maximum number of quick heartbeats between no capacity and full capacity.
pub const MAX_RECOVERY_HEARTBEATS: u32 = 3 * (QUICK_HEARTBEATS << MAX_RELAPSES) + 3;

/// A kind of round trip to the database that endpoints wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTripKind {
    /// A heartbeat.
    Heartbeat,
    /// A read of due deliveries.
    Fetch,
    /// A transaction that records attempts.
    Record,
}

impl RoundTripKind {
    /// Every kind.
    pub const ALL: [RoundTripKind; 3] = [
        RoundTripKind::Heartbeat,
        RoundTripKind::Fetch,
        RoundTripKind::Record,
    ];
}

/// The median of the last round trips of each kind. `None`: there was none for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Of heartbeats.
    pub heartbeat: Option<Span>,
    /// Of reads of due deliveries.
    pub fetch: Option<Span>,
    /// Of transactions that record attempts.
    pub record: Option<Span>,
}

impl RoundTrips {
    /// Returns that of one kind.
    pub fn of(&self, kind: RoundTripKind) -> Option<Span> {
        match kind {
            RoundTripKind::Heartbeat => self.heartbeat,
            RoundTripKind::Fetch => self.fetch,
            RoundTripKind::Record => self.record,
        }
    }

    /// Returns the shorter one of each kind.
    pub(super) fn quickest(self, other: RoundTrips) -> RoundTrips {
        let shorter = |mine: Option<Span>, other: Option<Span>| match (mine, other) {
            (Some(mine), Some(other)) => Some(mine.min(other)),
            (mine, other) => mine.or(other),
        };
        RoundTrips {
            heartbeat: shorter(self.heartbeat, other.heartbeat),
            fetch: shorter(self.fetch, other.fetch),
            record: shorter(self.record, other.record),
        }
    }

    /// Returns the round trip that one of this node is compared with: the same kind, or the heartbeat if this node's
    /// round trips fail and the other node has made none.
    fn comparable(&self, kind: RoundTripKind, mine: Span) -> Option<Span> {
        let same = self.of(kind);
        match mine < FAILED_ROUND_TRIP {
            true => same,
            false => same.or(self.heartbeat),
        }
    }
}

/// The part of an equal share of the shards that a node takes, in quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(u8);

impl Capacity {
    /// No shards, as long as another node takes some.
    pub const NONE: Capacity = Capacity(0);
    /// An equal share.
    pub const FULL: Capacity = Capacity(4);

    /// Returns the capacity of this many quarters, at most [`Capacity::FULL`].
    pub fn of_quarters(quarters: u8) -> Capacity {
        Capacity(quarters).min(Capacity::FULL)
    }

    /// Returns the number of quarters.
    pub fn quarters(self) -> u8 {
        self.0
    }

    /// Returns the next lower step.
    fn lower(self) -> Capacity {
        Capacity(self.0 / 2)
    }

    /// Returns the next higher step.
    fn higher(self) -> Capacity {
        Capacity((self.0 * 2).max(1)).min(Capacity::FULL)
    }
}

/// A change of a node's capacity, with the round trips that it follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityChange {
    /// The capacity before.
    pub from: Capacity,
    /// The capacity from now on.
    pub to: Capacity,
    /// The kind of the round trips that decided.
    pub kind: RoundTripKind,
    /// The round trip of this node.
    pub round_trip: Span,
    /// That of the quickest other node, if there is one.
    pub others: Option<Span>,
}

/// The judgement of the round trips of one kind, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Judgement {
    Quick,
    Between,
    Slow,
}

/// The last round trips of one kind, newest last.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    taken: [Option<(Tick, Span)>; SAMPLES],
    /// Number of failures since the last round trip, and the time of the last one.
    failures: u32,
    failed_at: Tick,
}

impl Samples {
    fn add(&mut self, now: Tick, took: Span) {
        self.taken.rotate_left(1);
        self.taken[SAMPLES - 1] = Some((now, took));
        self.failures = 0;
    }

    fn fail(&mut self, now: Tick) {
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
    }

    /// Returns the median of those that are younger than `max_age`; of two, the smaller one. If the last ones failed,
    /// returns [`FAILED_ROUND_TRIP`].
    fn median(&self, now: Tick, max_age: Span) -> Option<Span> {
        if self.failures >= MIN_FAILURES && now.since(self.failed_at) <= max_age {
            return Some(FAILED_ROUND_TRIP);
        }
        let recent = self.taken.iter().flatten();
        let mut recent: Vec<Span> = recent
            .filter(|(at, _)| now.since(*at) <= max_age)
            .map(|(_, took)| *took)
            .collect();
        recent.sort_unstable();
        recent.get(recent.len().saturating_sub(1) / 2).copied()
    }
}

/// The round trips of this node, and the capacity that follows from them.
#[derive(Clone, Debug)]
pub(super) struct ServingSpeed {
    samples: [Samples; RoundTripKind::ALL.len()],
    capacity: Capacity,
    slow_heartbeats: u32,
    quick_heartbeats: u32,
    relapses: u32,
    /// True after a step up, until relapses are forgotten: a step down is then a relapse.
    was_raised: bool,
    reach: DatabaseReach,
}

/// The state of the connection to the database, as the heartbeats show it. While it is lost the lease ends, and failures say
/// nothing about the speed of the link.
#[derive(Clone, Copy, Debug)]
enum DatabaseReach {
    /// Failures before this time may have begun while the database could not be reached, and do not count.
    ReachedAgain { count_from: Tick },
    /// The last heartbeat failed.
    Lost,
}

impl ServingSpeed {
    pub(super) fn new() -> ServingSpeed {
        ServingSpeed {
            samples: Default::default(),
            capacity: Capacity::FULL,
            slow_heartbeats: 0,
            quick_heartbeats: 0,
            relapses: 0,
            was_raised: false,
            reach: DatabaseReach::ReachedAgain {
                count_from: Tick::START,
            },
        }
    }

    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Adds a round trip that ended now.
    pub(super) fn add(&mut self, now: Tick, kind: RoundTripKind, took: Span) {
        self.samples[kind as usize].add(now, took);
    }

    /// Adds a round trip that failed now: the database did not answer, or could not be reached.
    pub(super) fn fail(&mut self, now: Tick, kind: RoundTripKind) {
        match self.reach {
            DatabaseReach::ReachedAgain { count_from } if now >= count_from => {
                self.samples[kind as usize].fail(now);
            }
            DatabaseReach::ReachedAgain { .. } | DatabaseReach::Lost => {}
        }
    }

    /// Handles that a heartbeat failed.
    pub(super) fn heartbeat_failed(&mut self) {
        self.reach = DatabaseReach::Lost;
        for samples in &mut self.samples {
            samples.failures = 0;
        }
    }

    /// Handles that a heartbeat succeeded. Failures are reported with the heartbeats.
    pub(super) fn heartbeat_succeeded(&mut self, now: Tick, heartbeat_interval: Span) {
        match self.reach {
            DatabaseReach::Lost => {
                let report = Span::from_millis(2 * heartbeat_interval.as_millis());
                self.reach = DatabaseReach::ReachedAgain {
                    count_from: now.after(FAILED_ROUND_TRIP).after(report),
                };
            }
            DatabaseReach::ReachedAgain { .. } => {}
        }
    }

    /// Returns the median round trips.
    pub(super) fn round_trips(&self, now: Tick, heartbeat_interval: Span) -> RoundTrips {
        let max_age = Span::from_millis(heartbeat_interval.as_millis() * MAX_SAMPLE_AGE);
        let median = |kind: RoundTripKind| self.samples[kind as usize].median(now, max_age);
        RoundTrips {
            heartbeat: median(RoundTripKind::Heartbeat),
            fetch: median(RoundTripKind::Fetch),
            record: median(RoundTripKind::Record),
        }
    }

    /// Compares this node's round trips with the quickest ones of the other nodes, once per heartbeat. Without another
    /// node it takes no step down, because no other node could take the shards.
    pub(super) fn judge(&mut self, mine: RoundTrips, others: RoundTrips) -> Option<CapacityChange> {
        let (judgement, round_trip, kind) = RoundTripKind::ALL
            .into_iter()
            .filter_map(|kind| {
                let mine = mine.of(kind)?;
                Some((judge_kind(kind, mine, &others)?, mine, kind))
            })
            .max_by_key(|(judgement, mine, _)| (*judgement, *mine))?;
        match judgement {
            Judgement::Slow => {
                self.slow_heartbeats += 1;
                self.quick_heartbeats = 0;
            }
            Judgement::Quick => {
                self.quick_heartbeats += 1;
                self.slow_heartbeats = 0;
            }
            Judgement::Between => {
                self.slow_heartbeats = 0;
                self.quick_heartbeats = 0;
            }
        }
        let from = self.capacity;
        if self.slow_heartbeats >= SLOW_HEARTBEATS && from > Capacity::NONE {
            self.lower();
        } else if from < Capacity::FULL
            && self.quick_heartbeats >= QUICK_HEARTBEATS << self.relapses
        {
            self.capacity = from.higher();
            self.quick_heartbeats = 0;
            self.was_raised = true;
        } else if from == Capacity::FULL && self.quick_heartbeats >= FORGET_RELAPSES {
            self.relapses = 0;
            self.was_raised = false;
        }
        (self.capacity != from).then_some(CapacityChange {
            from,
            to: self.capacity,
            kind,
            round_trip,
            others: others.comparable(kind, round_trip),
        })
    }

    /// Takes a step down. The next one follows with the next slow heartbeat.
    fn lower(&mut self) {
        self.capacity = self.capacity.lower();
        if std::mem::take(&mut self.was_raised) {
            self.relapses = (self.relapses + 1).min(MAX_RELAPSES);
        }
    }
}

/// Compares the round trips of one kind with those of the quickest other node. `None` if there is nothing to compare:
/// no other node makes such round trips, and this node's heartbeats say how quick the link is.
fn judge_kind(kind: RoundTripKind, mine: Span, others: &RoundTrips) -> Option<Judgement> {
    let other = others.comparable(kind, mine);
    if other.is_none() && kind != RoundTripKind::Heartbeat {
        return None;
    }
    let always_quick = Span::from_millis(MIN_SLOW_ROUND_TRIP.as_millis() / 2);
    let times = |factor: u64| {
        other.map(|other| Span::from_millis(other.as_millis().saturating_mul(factor)))
    };
    Some(
        if times(SLOW_FACTOR).is_some_and(|limit| mine > limit.max(MIN_SLOW_ROUND_TRIP)) {
            Judgement::Slow
        } else if mine <= times(QUICK_FACTOR).unwrap_or_default().max(always_quick) {
            Judgement::Quick
        } else {
            Judgement::Between
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn heartbeats(ms: u64) -> RoundTrips {
        RoundTrips {
            heartbeat: Some(MS(ms)),
            ..RoundTrips::default()
        }
    }

    /// Judges `times` times by heartbeats, and returns the capacities after each, in quarters.
    fn judge(speed: &mut ServingSpeed, times: usize, mine: u64, others: u64) -> Vec<u8> {
        let mut capacities = Vec::new();
        for _ in 0..times {
            speed.judge(heartbeats(mine), heartbeats(others));
            capacities.push(speed.capacity().quarters());
        }
        capacities
    }

    #[test]
    fn a_slow_node_gives_its_shards_away_in_steps_and_takes_them_back_in_steps() {
        let mut speed = ServingSpeed::new();
        assert_eq!(judge(&mut speed, 7, 1_300, 2), [4, 4, 4, 2, 1, 0, 0]);
        assert_eq!(judge(&mut speed, 5, 5, 2), [0, 0, 0, 0, 1]);
        assert_eq!(judge(&mut speed, 10, 5, 2)[4..], [2, 2, 2, 2, 2, 4]);
    }

    #[test]
    fn nodes_that_are_equally_slow_keep_their_shares() {
        let mut speed = ServingSpeed::new();
        assert_eq!(judge(&mut speed, 50, 1_800, 900), [4; 50]);
        assert_eq!(judge(&mut speed, 50, 1_800, 460), [4; 50]);
        for _ in 0..50 {
            assert_eq!(
                speed.judge(heartbeats(1_800), RoundTrips::default()),
                None,
                "there is no other node"
            );
        }
    }

    #[test]
    fn round_trips_that_endpoints_hardly_notice_are_not_slow() {
        let mut speed = ServingSpeed::new();
        assert_eq!(judge(&mut speed, 50, 300, 1), [4; 50]);
    }

    #[test]
    fn a_single_slow_round_trip_changes_nothing() {
        let mut speed = ServingSpeed::new();
        for _ in 0..20 {
            assert_eq!(judge(&mut speed, 3, 1_300, 2), [4; 3]);
            assert_eq!(judge(&mut speed, 1, 5, 2), [4]);
        }
        let mut samples = Samples::default();
        for took in [5, 2_000, 6] {
            samples.add(Tick(10), MS(took));
        }
        assert_eq!(samples.median(Tick(20), MS(100)), Some(MS(6)));
        assert_eq!(samples.median(Tick(200), MS(100)), None);
    }

    #[test]
    fn different_kinds_are_not_compared() {
        let mut speed = ServingSpeed::new();
        let busy = RoundTrips {
            record: Some(MS(900)),
            ..heartbeats(2)
        };
        let idle = RoundTrips {
            fetch: Some(MS(3)),
            ..heartbeats(2)
        };
        for _ in 0..50 {
            assert_eq!(speed.judge(busy, idle), None, "the other records nothing");
        }
        let quick = RoundTrips {
            record: Some(MS(10)),
            ..idle
        };
        let changes: Vec<CapacityChange> = (0..6)
            .filter_map(|_| speed.judge(busy, idle.quickest(quick)))
            .collect();
        let quarters: Vec<u8> = changes.iter().map(|it| it.to.quarters()).collect();
        assert_eq!(quarters, [2, 1, 0]);
        assert_eq!(changes[0].kind, RoundTripKind::Record);
        assert_eq!(changes[0].others, Some(MS(10)));
        // Without shards it records nothing, and its heartbeats are quick.
        for _ in 0..QUICK_HEARTBEATS {
            speed.judge(heartbeats(2), quick);
        }
        assert_eq!(speed.capacity().quarters(), 1);
    }

    #[test]
    fn round_trips_that_fail_again_and_again_are_slow() {
        let interval = MS(1_000);
        let record = |speed: &ServingSpeed, at: u64| speed.round_trips(Tick(at), interval).record;
        let mut speed = ServingSpeed::new();
        speed.add(Tick(0), RoundTripKind::Record, MS(5));
        speed.fail(Tick(10), RoundTripKind::Record);
        assert_eq!(
            record(&speed, 20),
            Some(MS(5)),
            "a single one changes nothing"
        );
        speed.fail(Tick(20), RoundTripKind::Record);
        assert_eq!(record(&speed, 30), Some(FAILED_ROUND_TRIP));
        speed.add(Tick(40), RoundTripKind::Record, MS(5));
        assert_eq!(record(&speed, 50), Some(MS(5)), "the database is back");
        speed.fail(Tick(60), RoundTripKind::Record);
        speed.fail(Tick(70), RoundTripKind::Record);
        // They count also if the other node records nothing: its heartbeats show that the database can be reached.
        for _ in 0..SLOW_HEARTBEATS {
            let mine = speed.round_trips(Tick(80), interval);
            speed.judge(mine, heartbeats(2));
        }
        assert_eq!(speed.capacity().quarters(), 2);
        assert_eq!(record(&speed, 40_000), None, "they are forgotten");
    }

    #[test]
    fn failures_while_the_database_cannot_be_reached_do_not_count() {
        let interval = MS(1_000);
        let mut speed = ServingSpeed::new();
        let record = |speed: &ServingSpeed, at: u64| speed.round_trips(Tick(at), interval).record;
        let fail = |speed: &mut ServingSpeed, at: u64| {
            speed.fail(Tick(at), RoundTripKind::Record);
            speed.fail(Tick(at), RoundTripKind::Record);
        };
        speed.add(Tick(0), RoundTripKind::Record, MS(5));
        fail(&mut speed, 10);
        speed.heartbeat_failed();
        assert_eq!(record(&speed, 30), Some(MS(5)));
        fail(&mut speed, 9_000);
        speed.heartbeat_succeeded(Tick(9_100), interval);
        let count_from = 9_100 + FAILED_ROUND_TRIP.as_millis() + 2_000;
        fail(&mut speed, count_from - 1);
        assert_eq!(record(&speed, count_from - 1), Some(MS(5)));
        speed.heartbeat_succeeded(Tick(count_from - 1), interval);
        fail(&mut speed, count_from);
        assert_eq!(record(&speed, count_from), Some(FAILED_ROUND_TRIP));
    }

    #[test]
    fn between_the_thresholds_nothing_changes() {
        let mut speed = ServingSpeed::new();
        judge(&mut speed, 4, 1_300, 2);
        assert_eq!(judge(&mut speed, 50, 250, 2), [2; 50]);
    }

    #[test]
    fn every_relapse_doubles_the_time_until_the_next_step_up() {
        let mut speed = ServingSpeed::new();
        let mut recoveries = Vec::new();
        for _ in 0..6 {
            while judge(&mut speed, 1, 1_300, 2) != [0] {}
            let mut heartbeats = 0;
            while judge(&mut speed, 1, 5, 2) != [4] {
                heartbeats += 1;
            }
            recoveries.push(heartbeats + 1);
        }
        assert_eq!(recoveries, [15, 30, 60, 120, 120, 120]);
        const { assert!(120 <= MAX_RECOVERY_HEARTBEATS) };
        judge(&mut speed, FORGET_RELAPSES as usize, 5, 2);
        while judge(&mut speed, 1, 1_300, 2) != [0] {}
        assert_eq!(judge(&mut speed, 15, 5, 2)[14], 4, "it is forgotten");
    }
}
