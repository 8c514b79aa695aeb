//! Decides what happens to the occurrences of a schedule that are due.
//!
//! [`Schedule::plan`] is called by the node that owns the schedule, when `next_run_at` has come. It returns the runs to
//! write and the state after them. One call handles at most [`MAX_DUE_PER_PLAN`] occurrences and creates at most
//! [`MAX_CREATED_PER_PLAN`] events; if more are due, the new state is due at once and the next call goes on.
//!
//! An occurrence that starts less than [`LATE_AFTER`] after its time is an ordinary run. An occurrence that is later than
//! that, or at which the schedule was paused, is missed, and [`MissedRuns`] decides what happens to it.

use super::definition::{MissedRuns, Overlap, ScheduleDefinition};
use super::state::{ScheduleProgress, ScheduleState, ScheduleStatus};
use super::timing::{Timing, TimingError};
use crate::time::{Span, Timestamp};

/// An occurrence that has not run this long after its time is missed. Longer than the restart of a node and than the
/// takeover of its schedules by another node with the default lease.
pub const LATE_AFTER: Span = Span::from_secs(15);

/// Maximum number of due occurrences that one plan handles one by one. If more are due, the latest are handled, and one run
/// stands for all earlier ones. It is also the maximum number of missed occurrences that [`MissedRuns::RunAll`] runs.
pub const MAX_DUE_PER_PLAN: usize = 100;

/// Maximum number of events that one plan creates. Bounds the size of the transaction that writes it.
pub const MAX_CREATED_PER_PLAN: usize = 20;

/// A schedule, ready to compute its occurrences.
#[derive(Clone, Debug)]
pub struct Schedule {
    definition: ScheduleDefinition,
    timing: Timing,
}

/// The definition has no occurrences that can be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct ScheduleError(TimingError);

/// The decision about a schedule that is due, to be written in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulePlan {
    /// The runs, ascending by `scheduled_for`.
    pub runs: Vec<PlannedRun>,
    /// The state after them.
    pub state: ScheduleState,
}

/// The decision about one occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// The occurrence.
    pub scheduled_for: Timestamp,
    /// Its outcome.
    pub outcome: RunOutcome,
}

/// The outcome of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The event or request of the schedule is created.
    Create,
    /// Nothing is created, because of another run.
    Skip(SkipReason),
    /// Nothing is created, because the occurrence was missed.
    Missed(MissedReason),
}

/// The reason why an occurrence was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The previous run has unfinished deliveries.
    PreviousUnfinished,
}

impl SkipReason {
    /// Returns the code of the reason, as the API shows it.
    pub fn code(self) -> &'static str {
        match self {
            SkipReason::PreviousUnfinished => "previous_unfinished",
        }
    }
}

/// The reason why an occurrence was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedReason {
    /// It was not started in time: the server was down.
    Late,
    /// The schedule was paused.
    Paused,
    /// It is the first of more missed occurrences than are written one by one.
    Many,
}

impl MissedReason {
    /// Returns the code of the reason, as the API shows it.
    pub fn code(self) -> &'static str {
        match self {
            MissedReason::Late => "late",
            MissedReason::Paused => "paused",
            MissedReason::Many => "many_missed",
        }
    }
}

impl Schedule {
    /// Prepares a definition.
    pub fn new(definition: ScheduleDefinition) -> Result<Schedule, ScheduleError> {
        let timing = Timing::new(&definition.timing, &definition.timezone);
        let timing = timing.map_err(ScheduleError)?;
        Ok(Schedule { definition, timing })
    }

    /// Returns the definition.
    pub fn definition(&self) -> &ScheduleDefinition {
        &self.definition
    }

    /// Returns the timing in words, such as `At 09:00, Monday through Friday (Europe/Berlin)`.
    pub fn description(&self) -> String {
        self.timing.description()
    }

    /// Returns the first occurrence after `after`, of a schedule created at `created_at`.
    pub fn next_after(&self, after: Timestamp, created_at: Timestamp) -> Option<Timestamp> {
        let anchor = match self.definition.starts_at {
            Some(start) => start,
            None => created_at,
        };
        let from = match self.definition.starts_at {
            Some(start) => after.max(Timestamp(start.0.saturating_sub(1))),
            None => after.max(created_at),
        };
        let next = self.timing.next_after(from, anchor)?;
        let is_within = self.definition.ends_at.is_none_or(|end| next <= end);
        is_within.then_some(next)
    }

    /// Returns the first `count` occurrences after `after`.
    pub fn upcoming(
        &self,
        after: Timestamp,
        created_at: Timestamp,
        count: usize,
    ) -> Vec<Timestamp> {
        let mut occurrences = Vec::new();
        let mut after = after;
        while occurrences.len() < count {
            let Some(next) = self.next_after(after, created_at) else {
                break;
            };
            occurrences.push(next);
            after = next;
        }
        occurrences
    }

    /// Returns the state with `next_run_at` computed anew: of a new schedule, and of one whose definition was changed.
    /// Occurrences until `now` do not run any more. A paused schedule stays paused.
    pub fn restart(&self, now: Timestamp, state: &ScheduleState) -> ScheduleState {
        let is_used_up = self.is_used_up(state.run_count);
        let next_run_at = match is_used_up {
            true => None,
            false => self.next_after(now, state.created_at),
        };
        let status = match (next_run_at, state.status) {
            (None, _) => ScheduleStatus::Finished,
            (Some(_), ScheduleStatus::Paused) => ScheduleStatus::Paused,
            (Some(_), ScheduleStatus::Active | ScheduleStatus::Finished) => ScheduleStatus::Active,
        };
        ScheduleState {
            status,
            next_run_at,
            ..state.clone()
        }
    }

    /// Returns the state after a change of `ends_at` or `max_runs` alone. The next occurrence stays the same unless the new
    /// limits exclude it, so one that is due and not decided yet is not lost.
    pub fn with_other_limits(&self, now: Timestamp, state: &ScheduleState) -> ScheduleState {
        let ends_at = self.definition.ends_at;
        let is_allowed = |at: &Timestamp| {
            !self.is_used_up(state.run_count) && ends_at.is_none_or(|end| *at <= end)
        };
        match state.next_run_at.filter(is_allowed) {
            Some(_) => state.clone(),
            None => self.restart(now, state),
        }
    }

    /// Returns the state of a paused schedule when it is resumed at `now`. The occurrences since the pause are due at once,
    /// as missed ones. A schedule that is not paused stays as it is.
    pub fn resumed(&self, now: Timestamp, state: &ScheduleState) -> ScheduleState {
        match state.status {
            ScheduleStatus::Active | ScheduleStatus::Finished => state.clone(),
            ScheduleStatus::Paused => {
                let progress = ScheduleProgress {
                    resumed_at: Some(now),
                    ..state.progress.clone()
                };
                ScheduleState {
                    status: ScheduleStatus::Active,
                    progress,
                    ..state.clone()
                }
            }
        }
    }

    /// Returns the state after a run that was started by hand at `now`. It may have been the last one.
    pub fn ran_by_hand(&self, now: Timestamp, state: &ScheduleState) -> ScheduleState {
        let mut state = ScheduleState {
            last_run_at: Some(now),
            run_count: state.run_count + 1,
            ..state.clone()
        };
        if self.is_used_up(state.run_count) {
            state.next_run_at = None;
            state.status = ScheduleStatus::Finished;
        }
        state
    }

    /// Plans all occurrences that are due at `now`. `has_unfinished_run` tells that the previous run has unfinished
    /// deliveries; it matters only for [`Overlap::Skip`].
    pub fn plan(
        &self,
        now: Timestamp,
        state: &ScheduleState,
        has_unfinished_run: bool,
    ) -> SchedulePlan {
        self.plan_at_most(now, state, has_unfinished_run, MAX_CREATED_PER_PLAN)
    }

    /// Plans like [`plan`](Schedule::plan), with at most this many events. Limits may accept a single event and refuse
    /// several together.
    pub fn plan_at_most(
        &self,
        now: Timestamp,
        state: &ScheduleState,
        has_unfinished_run: bool,
        max_created: usize,
    ) -> SchedulePlan {
        let mut plan = SchedulePlan {
            runs: Vec::new(),
            state: state.clone(),
        };
        match state.status {
            ScheduleStatus::Active => {}
            ScheduleStatus::Paused | ScheduleStatus::Finished => return plan,
        }
        let Some(first) = state.next_run_at else {
            plan.state.status = ScheduleStatus::Finished;
            return plan;
        };
        if first > now {
            return plan;
        }
        let due = self.due(first, now, state.created_at);
        if due.are_more {
            plan.runs.push(PlannedRun {
                scheduled_for: first,
                outcome: RunOutcome::Missed(MissedReason::Many),
            });
        }
        let max_created = max_created.clamp(1, MAX_CREATED_PER_PLAN);
        let latest = &due.latest;
        self.plan_due(now, latest, has_unfinished_run, max_created, &mut plan);
        plan
    }

    fn plan_due(
        &self,
        now: Timestamp,
        due: &[Timestamp],
        has_unfinished_run: bool,
        max_created: usize,
        plan: &mut SchedulePlan,
    ) {
        let missed_at = |at: Timestamp| missed_reason(at, now, &plan.state);
        let is_any_missed = !plan.runs.is_empty() || due.iter().any(|at| missed_at(*at).is_some());
        let mut is_unfinished = has_unfinished_run;
        let mut created = 0;
        let mut next_run_at = None;
        let mut runs = Vec::with_capacity(due.len());
        for (index, at) in due.iter().enumerate() {
            if self.is_used_up(plan.state.run_count + created as u64) {
                break;
            }
            if created == max_created {
                next_run_at = Some(*at);
                break;
            }
            let is_last = index + 1 == due.len();
            let outcome = match (self.definition.missed, missed_at(*at)) {
                (MissedRuns::RunOnce, reason) if is_any_missed && !is_last => {
                    RunOutcome::Missed(reason.unwrap_or(MissedReason::Late))
                }
                (MissedRuns::Skip, Some(reason)) => RunOutcome::Missed(reason),
                (MissedRuns::RunOnce | MissedRuns::RunAll, Some(_))
                | (MissedRuns::RunOnce | MissedRuns::Skip | MissedRuns::RunAll, None) => {
                    self.start(is_unfinished)
                }
            };
            if outcome == RunOutcome::Create {
                created += 1;
                is_unfinished = true;
            }
            runs.push(PlannedRun {
                scheduled_for: *at,
                outcome,
            });
        }
        plan.runs.append(&mut runs);
        self.advance(now, created, next_run_at, due, &mut plan.state);
    }

    /// Advances the state past the occurrences in `due`, or to `next_run_at` if they were not all handled.
    fn advance(
        &self,
        now: Timestamp,
        created: usize,
        next_run_at: Option<Timestamp>,
        due: &[Timestamp],
        state: &mut ScheduleState,
    ) {
        if created > 0 {
            state.last_run_at = Some(now);
            state.run_count += created as u64;
        }
        let last = due.last().copied().unwrap_or(now);
        state.next_run_at = match self.is_used_up(state.run_count) {
            true => None,
            false => next_run_at.or_else(|| self.next_after(last, state.created_at)),
        };
        if state.next_run_at.is_none() {
            state.status = ScheduleStatus::Finished;
        }
    }

    fn start(&self, is_unfinished: bool) -> RunOutcome {
        match (self.definition.overlap, is_unfinished) {
            (Overlap::Skip, true) => RunOutcome::Skip(SkipReason::PreviousUnfinished),
            (Overlap::Skip, false) | (Overlap::Allow, _) => RunOutcome::Create,
        }
    }

    fn is_used_up(&self, run_count: u64) -> bool {
        let max = self.definition.max_runs;
        max.is_some_and(|max| run_count >= u64::from(max))
    }

    /// Returns the latest occurrences from `first` to `now`. Looks back from `now` in windows that double until one contains
    /// enough of them, so that the work does not grow with the length of an outage.
    fn due(&self, first: Timestamp, now: Timestamp, created_at: Timestamp) -> DueOccurrences {
        let mut window = SHORTEST_WINDOW;
        loop {
            let start = Timestamp(now.0.saturating_sub(window.as_millis()));
            let is_all = start <= first;
            let mut latest = std::collections::VecDeque::new();
            let mut next = match is_all {
                true => Some(first),
                false => self.next_after(start, created_at),
            };
            let mut are_more = !is_all;
            while let Some(at) = next.filter(|at| *at <= now) {
                if latest.len() == MAX_DUE_PER_PLAN {
                    latest.pop_front();
                    are_more = true;
                }
                latest.push_back(at);
                next = self.next_after(at, created_at);
            }
            if is_all || latest.len() == MAX_DUE_PER_PLAN {
                let latest = latest.into();
                return DueOccurrences { latest, are_more };
            }
            window = window.times(2);
        }
    }
}

/// The first window in which due occurrences are searched.
const SHORTEST_WINDOW: Span = Span::from_secs(128);

/// The occurrences that are due.
struct DueOccurrences {
    /// The latest of them, ascending.
    latest: Vec<Timestamp>,
    /// There are earlier ones.
    are_more: bool,
}

/// Returns the reason if an occurrence was missed.
fn missed_reason(at: Timestamp, now: Timestamp, state: &ScheduleState) -> Option<MissedReason> {
    if state
        .progress
        .resumed_at
        .is_some_and(|resumed| at < resumed)
    {
        Some(MissedReason::Paused)
    } else if now.since(at) >= LATE_AFTER {
        Some(MissedReason::Late)
    } else {
        None
    }
}
