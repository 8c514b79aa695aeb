//! Simulation of schedules: nodes that crash, freeze, lose answers and have wrong clocks decide about one schedule.
//!
//! Several nodes plan the same schedule with the core's planner and write their decisions to one store, which applies a
//! decision only for the revision and the ownership epoch that it was made with. Nodes crash before and after the commit,
//! a node that lost its ownership goes on with a decision that it made long ago, answers of commits are lost, and clocks
//! jump by up to an hour. Callers pause, resume and run the schedule in between. The [`ScheduleOracle`]s check that every
//! occurrence makes exactly one event. Each [`ScheduleMutation`] is a bug that an oracle must detect.

use std::collections::BTreeMap;
use std::fmt;

use posthaste_core::rng::Rng;
use posthaste_core::schedule::{
    EventTarget, MissedReason, MissedRuns, Overlap, RunOutcome, Schedule, ScheduleDefinition,
    SchedulePlan, ScheduleProgress, ScheduleState, ScheduleStatus, ScheduleTarget, ScheduleTiming,
    TargetBody,
};
use posthaste_core::time::{Span, Timestamp};

/// Number of nodes.
const NODES: usize = 3;
/// Number of steps with faults.
const STEPS: usize = 400;
/// Number of steps without faults at the end, after which nothing may be due.
const QUIET_STEPS: usize = 60;
/// The time at the start.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Maximum error of a clock.
const MAX_CLOCK_ERROR_MS: u64 = 3_600_000;
/// Maximum duration of a step, and of an outage.
const STEP_MS: u64 = 4_000;
const OUTAGE_MS: u64 = 900_000;

/// A guarantee about schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleOracle {
    /// No occurrence has two runs or two events.
    AtMostOnce,
    /// Every occurrence before the next one has a run, unless one run stands for many.
    NoneLost,
    /// `run_count` is the number of events.
    Counted,
    /// Without faults, nothing stays due.
    Handled,
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleMutation {
    /// The store applies a decision whatever the revision is.
    IgnoresRevision,
    /// A node creates the events before it writes the decision.
    EventsFirst,
    /// A node whose commit was not answered writes the same decision for the revision that it finds.
    WritesAgain,
    /// The next occurrence is counted from now instead of from the last one.
    CountsFromNow,
    /// A schedule whose decision was refused is not planned again.
    GivesUp,
}

impl ScheduleMutation {
    /// Every mutation, with an oracle that must detect it.
    pub const ALL: [(ScheduleMutation, ScheduleOracle); 5] = [
        (
            ScheduleMutation::IgnoresRevision,
            ScheduleOracle::AtMostOnce,
        ),
        (ScheduleMutation::EventsFirst, ScheduleOracle::AtMostOnce),
        (ScheduleMutation::WritesAgain, ScheduleOracle::AtMostOnce),
        (ScheduleMutation::CountsFromNow, ScheduleOracle::NoneLost),
        (ScheduleMutation::GivesUp, ScheduleOracle::Handled),
    ];
}

/// A run of the simulation that violated a guarantee.
#[derive(Clone, Debug)]
pub struct ScheduleFailure {
    /// The seed, which reproduces the run exactly.
    pub seed: u64,
    /// The violated guarantee.
    pub oracle: ScheduleOracle,
    /// The observation.
    pub detail: String,
}

impl fmt::Display for ScheduleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {:?}: {}", self.seed, self.oracle, self.detail)
    }
}

/// Statistics of a run without violations.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScheduleSummary {
    /// Number of events.
    pub events: u64,
    /// Number of runs without an event.
    pub without_event: u64,
    /// Number of decisions that the store refused.
    pub refused: u64,
    /// Number of commits whose answer was lost.
    pub lost_answers: u64,
    /// Number of decisions that were lost in a crash.
    pub crashes: u64,
}

/// Runs one simulation.
pub fn run_schedules(
    seed: u64,
    mutation: Option<ScheduleMutation>,
) -> Result<ScheduleSummary, ScheduleFailure> {
    let mut world = World::new(seed, mutation);
    match world.run() {
        Ok(()) => Ok(world.summary),
        Err((oracle, detail)) => Err(ScheduleFailure {
            seed,
            oracle,
            detail,
        }),
    }
}

type CheckResult = Result<(), (ScheduleOracle, String)>;

/// The stored schedule with its runs.
struct Store {
    state: ScheduleState,
    revision: u64,
    /// Number of changes of the owner.
    epoch: u64,
    owner: usize,
    runs: BTreeMap<Timestamp, RunOutcome>,
    /// Occurrences with an event.
    events: Vec<Timestamp>,
    /// Number of runs by hand.
    by_hand: u64,
}

/// A decision that a node has made and not written yet.
#[derive(Clone)]
struct Decision {
    plan: SchedulePlan,
    revision: u64,
    epoch: u64,
}

struct Node {
    /// The error of its clock, in milliseconds.
    clock_error_ms: i64,
    decision: Option<Decision>,
    /// True if it plans nothing any more, by a planted bug.
    has_given_up: bool,
}

struct World {
    rng: Rng,
    mutation: Option<ScheduleMutation>,
    schedule: Schedule,
    store: Store,
    nodes: Vec<Node>,
    now: Timestamp,
    summary: ScheduleSummary,
}

fn definition(rng: &mut Rng) -> ScheduleDefinition {
    let every = Span::from_secs(rng.between(1, 30));
    let timings = [
        ScheduleTiming::Every(every),
        ScheduleTiming::Cron("*/5 * * * * *".to_owned()),
        ScheduleTiming::Cron("* * * * *".to_owned()),
    ];
    ScheduleDefinition {
        name: String::new(),
        timing: rng.pick(&timings).clone(),
        timezone: "Europe/Berlin".to_owned(),
        target: ScheduleTarget::Event(EventTarget {
            event_type: "a".to_owned(),
            body: TargetBody::default(),
            ordering_key: None,
        }),
        overlap: *rng.pick(&[Overlap::Allow, Overlap::Allow, Overlap::Skip]),
        missed: *rng.pick(&[MissedRuns::RunOnce, MissedRuns::Skip, MissedRuns::RunAll]),
        starts_at: None,
        ends_at: None,
        max_runs: None,
    }
}

impl World {
    fn new(seed: u64, mutation: Option<ScheduleMutation>) -> World {
        let mut rng = Rng::seeded(seed);
        let schedule = Schedule::new(definition(&mut rng)).expect("a valid definition");
        let state = ScheduleState {
            status: ScheduleStatus::Active,
            next_run_at: None,
            last_run_at: None,
            run_count: 0,
            created_at: START,
            progress: ScheduleProgress::default(),
        };
        let node = || Node {
            clock_error_ms: 0,
            decision: None,
            has_given_up: false,
        };
        World {
            mutation,
            store: Store {
                state: schedule.restart(START, &state),
                revision: 0,
                epoch: 0,
                owner: 0,
                runs: BTreeMap::new(),
                events: Vec::new(),
                by_hand: 0,
            },
            schedule,
            nodes: (0..NODES).map(|_| node()).collect(),
            now: START,
            summary: ScheduleSummary::default(),
            rng,
        }
    }

    fn has(&self, mutation: ScheduleMutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn run(&mut self) -> CheckResult {
        for _ in 0..STEPS {
            self.pass_time();
            self.step()?;
            self.check()?;
        }
        self.recover()?;
        self.summary.events = self.store.events.len() as u64 + self.store.by_hand;
        Ok(())
    }

    fn pass_time(&mut self) {
        let most = match self.rng.random_ratio(1, 60) {
            true => OUTAGE_MS,
            false => STEP_MS,
        };
        self.now = self.now.after(Span::from_millis(self.rng.between(0, most)));
    }

    fn step(&mut self) -> CheckResult {
        let node = self.rng.between(0, NODES as u64 - 1) as usize;
        match self.rng.between(0, 19) {
            0..=6 => self.decide(self.store.owner),
            7..=11 => self.write(self.store.owner)?,
            // A node that is not the owner any more goes on with an old decision.
            12..=13 => self.write(node)?,
            14 => {
                self.store.owner = node;
                self.store.epoch += 1;
            }
            15 => self.crash(node),
            16 => {
                let error = self.rng.between(0, 2 * MAX_CLOCK_ERROR_MS) as i64;
                self.nodes[node].clock_error_ms = error - MAX_CLOCK_ERROR_MS as i64;
            }
            17 => self.nodes[node].clock_error_ms = 0,
            18 => self.pause_or_resume(),
            19.. => self.run_by_hand(),
        }
        Ok(())
    }

    fn clock_of(&self, node: usize) -> Timestamp {
        Timestamp(
            self.now
                .0
                .saturating_add_signed(self.nodes[node].clock_error_ms),
        )
    }

    /// A node reads the schedule and plans it.
    fn decide(&mut self, node: usize) {
        if self.nodes[node].has_given_up || self.nodes[node].decision.is_some() {
            return;
        }
        let now = self.clock_of(node);
        let is_unfinished = self.rng.random_ratio(1, 3);
        let mut plan = self.schedule.plan(now, &self.store.state, is_unfinished);
        if self.has(ScheduleMutation::CountsFromNow) && !plan.runs.is_empty() {
            plan.state.next_run_at = self
                .schedule
                .next_after(now.after(Span::from_secs(2)), START);
        }
        if plan.runs.is_empty() {
            return;
        }
        self.nodes[node].decision = Some(Decision {
            plan,
            revision: self.store.revision,
            epoch: self.store.epoch,
        });
    }

    /// A node writes its decision. The answer may be lost.
    fn write(&mut self, node: usize) -> CheckResult {
        let Some(decision) = self.nodes[node].decision.take() else {
            return Ok(());
        };
        if self.has(ScheduleMutation::EventsFirst) {
            self.create_events(&decision);
            // The process dies before the commit.
            if self.rng.random_ratio(1, 8) {
                return Ok(());
            }
        }
        let is_current = decision.epoch == self.store.epoch
            && decision.revision == self.store.revision
            || self.has(ScheduleMutation::IgnoresRevision);
        if !is_current {
            self.summary.refused += 1;
            self.nodes[node].has_given_up = self.has(ScheduleMutation::GivesUp);
            return Ok(());
        }
        if !self.has(ScheduleMutation::EventsFirst) {
            self.create_events(&decision);
        }
        for run in &decision.plan.runs {
            let earlier = self.store.runs.insert(run.scheduled_for, run.outcome);
            if earlier.is_some() {
                let at = run.scheduled_for;
                return Err((ScheduleOracle::AtMostOnce, format!("{at} has two runs")));
            }
        }
        self.store.state = decision.plan.state.clone();
        self.store.revision += 1;
        if self.rng.random_ratio(1, 6) {
            self.summary.lost_answers += 1;
            if self.has(ScheduleMutation::WritesAgain) {
                self.nodes[node].decision = Some(Decision {
                    revision: self.store.revision,
                    ..decision
                });
            }
        }
        Ok(())
    }

    fn create_events(&mut self, decision: &Decision) {
        for run in &decision.plan.runs {
            match run.outcome {
                RunOutcome::Create => self.store.events.push(run.scheduled_for),
                RunOutcome::Skip(_) | RunOutcome::Missed(_) => {}
            }
        }
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].decision.take().is_some() {
            self.summary.crashes += 1;
        }
        self.nodes[node].has_given_up = false;
    }

    fn pause_or_resume(&mut self) {
        let state = &self.store.state;
        self.store.state = match state.status {
            ScheduleStatus::Active => state.paused(),
            ScheduleStatus::Paused | ScheduleStatus::Finished => {
                self.schedule.resumed(self.now, state)
            }
        };
        self.store.revision += 1;
    }

    fn run_by_hand(&mut self) {
        self.store.state = self.schedule.ran_by_hand(self.now, &self.store.state);
        self.store.revision += 1;
        self.store.by_hand += 1;
    }

    fn check(&mut self) -> CheckResult {
        let mut events = self.store.events.clone();
        events.sort_unstable();
        if let Some(pair) = events.windows(2).find(|pair| pair[0] == pair[1]) {
            let detail = format!("{} has two events", pair[0]);
            return Err((ScheduleOracle::AtMostOnce, detail));
        }
        let counted = self.store.events.len() as u64 + self.store.by_hand;
        if self.store.state.run_count != counted && self.mutation.is_none() {
            let detail = format!("{} of {counted} are counted", self.store.state.run_count);
            return Err((ScheduleOracle::Counted, detail));
        }
        Ok(())
    }

    /// All faults end. Then everything that is due is handled, and nothing was left out before.
    fn recover(&mut self) -> CheckResult {
        for node in &mut self.nodes {
            node.clock_error_ms = 0;
        }
        if self.store.state.status == ScheduleStatus::Paused {
            self.pause_or_resume();
        }
        for step in 0..QUIET_STEPS {
            self.now = self.now.after(Span::from_millis(200));
            // Old decisions are refused first.
            for node in 0..NODES {
                if step == 0 || node == self.store.owner {
                    self.write(node)?;
                }
            }
            self.decide(self.store.owner);
            self.write(self.store.owner)?;
            self.check()?;
        }
        let next = self.store.state.next_run_at;
        let due = next.filter(|next| *next <= self.now);
        if let Some(due) = due {
            return Err((ScheduleOracle::Handled, format!("{due} is still due")));
        }
        self.check_complete(next)
    }

    /// Checks that the runs have no gaps.
    fn check_complete(&mut self, next: Option<Timestamp>) -> CheckResult {
        let mut expected = self.schedule.next_after(START, START);
        let many = RunOutcome::Missed(MissedReason::Many);
        let mut may_skip = false;
        for (at, outcome) in &self.store.runs {
            if expected != Some(*at) && !may_skip {
                let detail = format!("{expected:?} has no run, and {at} has one");
                return Err((ScheduleOracle::NoneLost, detail));
            }
            may_skip = *outcome == many;
            self.summary.without_event += u64::from(*outcome != RunOutcome::Create);
            expected = self.schedule.next_after(*at, START);
        }
        match expected == next {
            true => Ok(()),
            false => {
                let detail = format!("{expected:?} has no run, and {next:?} is next");
                Err((ScheduleOracle::NoneLost, detail))
            }
        }
    }
}
