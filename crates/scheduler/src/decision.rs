//! Turns the plan of a schedule into what the store writes.
//!
//! [`Decision`] is a plan with the version of the schedule that it was made from. If the events of a plan are refused, the
//! same occurrences are recorded as skipped ([`Decision::refused`]), and count neither as runs nor towards `max_runs`.

use std::sync::Arc;

use posthaste_core::schedule::{
    PlannedRun, RunOutcome, Schedule, ScheduleDefinition, SchedulePlan, ScheduleProgress,
    ScheduleState, ScheduleStatus, WatchedRun,
};
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AdvancedBy, EventProgress, MAX_RUN_REASON_CHARS, NewEvent, NewRun, NewRunOutcome,
    ScheduleAdvance, StoredSchedule,
};

use crate::failure_streak::{FailureStreak, RunProgress};

/// A plan for a stored schedule.
pub(crate) struct Decision {
    stored: Arc<StoredSchedule>,
    schedule: Schedule,
    state: ScheduleState,
    plan: SchedulePlan,
    /// The failed runs after it.
    streak: FailureStreak,
}

/// Returns the state that the planner works on.
pub(crate) fn state_of(stored: &StoredSchedule) -> ScheduleState {
    ScheduleState {
        status: stored.status,
        next_run_at: stored.next_run_at,
        last_run_at: stored.last_run_at,
        run_count: stored.run_count,
        created_at: stored.created_at,
        progress: match &stored.progress {
            Some(progress) => ScheduleProgress::read(progress),
            None => ScheduleProgress::default(),
        },
    }
}

impl Decision {
    /// Plans the occurrences that are due. Fails if the definition cannot be read.
    pub(crate) fn plan(
        stored: Arc<StoredSchedule>,
        now: Timestamp,
        progress: RunProgress,
        max_created: usize,
    ) -> Result<Decision, String> {
        let definition =
            ScheduleDefinition::read(&stored.definition).map_err(|error| error.to_string())?;
        let schedule = Schedule::new(definition).map_err(|error| error.to_string())?;
        let state = state_of(&stored);
        let is_unfinished = progress.last == EventProgress::Unfinished;
        let mut plan = schedule.plan_at_most(now, &state, is_unfinished, max_created);
        let streak = streak_after(&stored, &state, now, progress, &plan);
        if !plan.runs.is_empty() {
            plan.state.progress.watched = streak.watched;
        }
        Ok(Decision {
            stored,
            schedule,
            state,
            plan,
            streak,
        })
    }

    /// The definition.
    pub(crate) fn definition(&self) -> &ScheduleDefinition {
        self.schedule.definition()
    }

    /// The occurrences that are decided about.
    pub(crate) fn runs(&self) -> &[PlannedRun] {
        &self.plan.runs
    }

    /// Returns whether there is nothing to write, because the schedule is not due.
    pub(crate) fn is_empty(&self) -> bool {
        self.plan.runs.is_empty() && self.plan.state == self.state
    }

    /// The time of the next occurrence after this decision.
    pub(crate) fn next_run_at(&self) -> Option<Timestamp> {
        self.plan.state.next_run_at
    }

    /// Returns what the store writes, with the events of the runs that make one, in their order.
    pub(crate) fn accepted(&self, events: Vec<NewEvent>) -> ScheduleAdvance {
        let mut events = events.into_iter();
        let runs = self.plan.runs.iter().map(|run| NewRun {
            scheduled_for: run.scheduled_for,
            outcome: match run.outcome {
                RunOutcome::Create => {
                    let event = events.next().expect("each such run has an event");
                    NewRunOutcome::Create(Box::new(event))
                }
                RunOutcome::Skip(reason) => NewRunOutcome::Skip(reason.code().to_owned()),
                RunOutcome::Missed(reason) => NewRunOutcome::Miss(reason.code().to_owned()),
            },
        });
        let runs: Vec<NewRun> = runs.collect();
        self.advance(runs, &self.plan.state, self.streak.failed_runs)
    }

    /// Returns what the store writes if the events are refused for this reason.
    pub(crate) fn refused(&self, reason: &str) -> ScheduleAdvance {
        let reason: String = reason.chars().take(MAX_RUN_REASON_CHARS).collect();
        let runs = self.plan.runs.iter().map(|run| NewRun {
            scheduled_for: run.scheduled_for,
            outcome: match run.outcome {
                RunOutcome::Create => NewRunOutcome::Skip(reason.clone()),
                RunOutcome::Skip(reason) => NewRunOutcome::Skip(reason.code().to_owned()),
                RunOutcome::Missed(reason) => NewRunOutcome::Miss(reason.code().to_owned()),
            },
        });
        let runs: Vec<NewRun> = runs.collect();
        let mut state = ScheduleState {
            run_count: self.state.run_count,
            last_run_at: self.state.last_run_at,
            ..self.plan.state.clone()
        };
        state.progress.watched = self.state.progress.watched;
        if let (None, Some(last)) = (state.next_run_at, self.plan.runs.last()) {
            // The plan may have counted the refused runs towards `max_runs`.
            let created_at = state.created_at;
            state.next_run_at = self.schedule.next_after(last.scheduled_for, created_at);
            if state.next_run_at.is_some() {
                state.status = ScheduleStatus::Active;
            }
        }
        self.advance(runs, &state, self.stored.failed_runs.saturating_add(1))
    }

    /// The number of events.
    pub(crate) fn event_count(&self) -> usize {
        event_count(&self.plan)
    }

    fn advance(
        &self,
        runs: Vec<NewRun>,
        state: &ScheduleState,
        failed_runs: u32,
    ) -> ScheduleAdvance {
        ScheduleAdvance {
            tenant: self.stored.tenant.clone(),
            schedule: self.stored.id.clone(),
            version: self.stored.version(),
            by: AdvancedBy::Owner,
            runs,
            status: state.status,
            next_run_at: state.next_run_at,
            last_run_at: state.last_run_at,
            run_count: state.run_count,
            failed_runs,
            progress: Some(state.progress.stored()),
        }
    }
}

fn event_count(plan: &SchedulePlan) -> usize {
    let runs = plan.runs.iter();
    runs.filter(|run| run.outcome == RunOutcome::Create).count()
}

/// Returns the failed runs after a plan.
fn streak_after(
    stored: &StoredSchedule,
    state: &ScheduleState,
    now: Timestamp,
    progress: RunProgress,
    plan: &SchedulePlan,
) -> FailureStreak {
    let before = FailureStreak {
        failed_runs: stored.failed_runs,
        watched: state.progress.watched,
    };
    let last = stored.last_event.map(|event| WatchedRun {
        event,
        since: stored.last_run_at.unwrap_or(now),
    });
    before.after(now, last, progress, event_count(plan) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::EventId;
    use posthaste_core::schedule::MAX_CREATED_PER_PLAN;
    use posthaste_core::time::Span;
    use posthaste_store::RunStatus;

    const NOON: Timestamp = Timestamp(1_800_014_400_000);

    fn plan(
        stored: StoredSchedule,
        now: Timestamp,
        last: EventProgress,
    ) -> Result<Decision, String> {
        let progress = RunProgress {
            last,
            watched: last,
        };
        Decision::plan(Arc::new(stored), now, progress, MAX_CREATED_PER_PLAN)
    }

    fn stored(max_runs: Option<u32>) -> StoredSchedule {
        let definition = serde_json::json!({
            "timing": {"every": Span::from_mins(1)},
            "timezone": "UTC",
            "target": {"event": {"type": "a.b", "body": {"bytes": {"text": "{}"}}}},
            "max_runs": max_runs,
        });
        StoredSchedule {
            tenant: "acme".parse().expect("an id"),
            id: "s".parse().expect("an id"),
            definition: definition.to_string(),
            progress: None,
            status: ScheduleStatus::Active,
            next_run_at: Some(NOON),
            last_run_at: None,
            last_event: Some(EventId(7)),
            run_count: 4,
            failed_runs: 2,
            created_at: NOON,
            revision: 3,
        }
    }

    fn event() -> NewEvent {
        let content =
            posthaste_store::Content::new("a.b".parse().expect("a type"), Default::default());
        NewEvent::new("acme".parse().expect("an id"), std::sync::Arc::new(content))
    }

    #[test]
    fn failures_of_the_previous_run_are_counted_once() {
        for (last, expected) in [
            (EventProgress::Failed, 3),
            (EventProgress::Finished, 0),
            (EventProgress::Unfinished, 2),
        ] {
            let decision = plan(stored(None), NOON, last).expect("a plan");
            let advance = decision.accepted(vec![event()]);
            assert_eq!(advance.failed_runs, expected, "{last:?}");
            assert_eq!(advance.run_count, 5);
            assert_eq!(advance.next_run_at, Some(NOON.after(Span::from_mins(1))));
        }
    }

    #[test]
    fn refused_runs_are_skipped_and_do_not_count() {
        let decision = plan(stored(Some(5)), NOON, EventProgress::Finished);
        let decision = decision.expect("a plan");
        assert_eq!(
            decision.accepted(vec![event()]).status,
            ScheduleStatus::Finished
        );
        let refused = decision.refused(&"x".repeat(9_000));
        assert_eq!((refused.run_count, refused.failed_runs), (4, 3));
        assert_eq!(refused.status, ScheduleStatus::Active);
        assert_eq!(refused.next_run_at, Some(NOON.after(Span::from_mins(1))));
        let [run] = refused.runs.as_slice() else {
            panic!("one run");
        };
        assert_eq!(run.outcome.status(), RunStatus::Skipped);
    }

    #[test]
    fn a_schedule_that_is_not_due_needs_no_write() {
        let before = Timestamp(NOON.0 - 1);
        let decision = plan(stored(None), before, EventProgress::Finished);
        assert!(decision.expect("a plan").is_empty());
        let unreadable = StoredSchedule {
            definition: "{}".to_owned(),
            ..stored(None)
        };
        assert!(plan(unreadable, NOON, EventProgress::Finished).is_err());
    }
}
