//! Decides about one schedule that is due, and stores the decision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthaste_api::App;
use posthaste_api::auth::CachedTenant;
use posthaste_api::code::Code;
use posthaste_api::events::AdvanceOutcome;
use posthaste_api::problem::Problem;
use posthaste_core::schedule::{LATE_AFTER, MAX_CREATED_PER_PLAN, RunOutcome, ScheduledRun};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{NewEvent, RunStatus, ScheduleAdvance, StoreError, StoredSchedule};

use crate::decision::Decision;
use crate::failure_streak::RunProgress;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::scheduler";

/// Maximum time for which a schedule is postponed. Limits can be raised in the meantime.
pub(crate) const MAX_POSTPONEMENT: Span = Span::from_mins(1);
/// Time for which a schedule is postponed if the reason names no time.
const SHORT_POSTPONEMENT: Span = Span::from_secs(1);
/// Time for which a schedule is postponed whose definition cannot be read.
const UNREADABLE_POSTPONEMENT: Span = Span::from_mins(1);

/// The next step of the runner for a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is due again at this time.
    DueAt(Timestamp),
    /// It has no further occurrence.
    Nothing,
    /// It has changed, or belongs to another node: the store knows when it is due.
    Unknown,
}

/// Decides about a schedule, and returns what the runner does next.
pub(crate) async fn run(
    app: &App,
    stored: StoredSchedule,
    progress: RunProgress,
) -> Result<Next, StoreError> {
    let Some(tenant) = app.find_tenant(&stored.tenant).await? else {
        return Ok(Next::Nothing);
    };
    let run = Run {
        app,
        tenant,
        stored: Arc::new(stored),
    };
    match run.decide(progress, MAX_CREATED_PER_PLAN).await? {
        Decided::Next(next) => Ok(next),
        // Limits that refuse several events together may accept one.
        Decided::TooMany => match run.decide(progress, 1).await? {
            Decided::Next(next) => Ok(next),
            Decided::TooMany => Ok(Next::Unknown),
        },
    }
}

/// The result of a decision.
enum Decided {
    /// It was stored, or postponed.
    Next(Next),
    /// Limits did not accept its events together. Nothing was stored.
    TooMany,
}

struct Run<'a> {
    app: &'a App,
    tenant: Arc<CachedTenant>,
    stored: Arc<StoredSchedule>,
}

/// The result of storing a decision.
enum Carried {
    /// It was stored.
    Next(Next),
    /// Its events may be accepted after this time.
    Wait(Span),
    /// Its events cannot be accepted.
    Refused(Problem),
}

/// The reason why there are no events for the runs of a decision.
enum NoEvents {
    /// They may be made after this time.
    Wait(Span),
    /// They cannot be made.
    Refused(Problem),
}

impl Run<'_> {
    async fn decide(
        &self,
        progress: RunProgress,
        max_created: usize,
    ) -> Result<Decided, StoreError> {
        let now = self.app.clock.wall();
        let decision = match Decision::plan(self.stored.clone(), now, progress, max_created) {
            Ok(decision) => decision,
            Err(error) => {
                let (tenant, schedule) = (&self.stored.tenant, &self.stored.id);
                tracing::error!(target: LOG_TARGET, %tenant, %schedule, error, "cannot read a schedule; it does not run");
                let postponed = self.postpone(UNREADABLE_POSTPONEMENT).await?;
                return Ok(Decided::Next(postponed));
            }
        };
        let is_several = decision.event_count() > 1;
        match self.carry_out(&decision, now).await? {
            Carried::Next(next) => Ok(Decided::Next(next)),
            Carried::Wait(_) | Carried::Refused(_) if is_several && max_created > 1 => {
                Ok(Decided::TooMany)
            }
            Carried::Wait(wait) => Ok(Decided::Next(self.postpone(wait).await?)),
            Carried::Refused(problem) => Ok(Decided::Next(self.refuse(&decision, &problem).await?)),
        }
    }

    /// Makes the events of a decision and stores them with it.
    async fn carry_out(&self, decision: &Decision, now: Timestamp) -> Result<Carried, StoreError> {
        if decision.is_empty() {
            let next = decision.next_run_at();
            return Ok(Carried::Next(next.map_or(Next::Nothing, Next::DueAt)));
        }
        let events = match self.events(decision, now).await {
            Ok(events) => events,
            Err(NoEvents::Wait(wait)) => return Ok(Carried::Wait(wait)),
            Err(NoEvents::Refused(problem)) => return Ok(Carried::Refused(problem)),
        };
        let advance = decision.accepted(events);
        let lags = on_time(&advance, now);
        Ok(match self.write(advance).await? {
            AdvanceOutcome::Done(_) => {
                let done_at = self.app.clock.wall();
                for scheduled_for in lags {
                    let lag = Duration::from_millis(done_at.since(scheduled_for).as_millis());
                    self.app.metrics.schedules.started(lag);
                }
                let next = decision.next_run_at();
                Carried::Next(next.map_or(Next::Nothing, Next::DueAt))
            }
            AdvanceOutcome::Superseded => Carried::Next(Next::Unknown),
            AdvanceOutcome::Wait(wait, _) => Carried::Wait(wait),
            // The origin endpoint was deleted since it was found, because it had no deliveries.
            AdvanceOutcome::Refused(problem) if problem.code == Code::EndpointDisabled => {
                Carried::Wait(SHORT_POSTPONEMENT)
            }
            AdvanceOutcome::Refused(problem) => Carried::Refused(problem),
        })
    }

    /// Makes the events of the runs that need one.
    async fn events(&self, decision: &Decision, now: Timestamp) -> Result<Vec<NewEvent>, NoEvents> {
        let mut events = Vec::new();
        let target = &decision.definition().target;
        let payload = Bytes::copy_from_slice(&target.body().bytes);
        for run in decision.runs() {
            match run.outcome {
                RunOutcome::Create => {}
                RunOutcome::Skip(_) | RunOutcome::Missed(_) => continue,
            }
            let of_run = ScheduledRun {
                schedule: self.stored.id.clone(),
                scheduled_for: run.scheduled_for,
            };
            let event =
                self.app
                    .event_of_run(&self.tenant.tenant, now, target, payload.clone(), of_run);
            events.push(event.await.map_err(NoEvents::of)?);
        }
        Ok(events)
    }

    /// Records the runs as skipped.
    async fn refuse(&self, decision: &Decision, problem: &Problem) -> Result<Next, StoreError> {
        let (tenant, schedule) = (&self.stored.tenant, &self.stored.id);
        let code = problem.code.as_str();
        tracing::warn!(target: LOG_TARGET, %tenant, %schedule, code, "run skipped: its event was rejected");
        let advance = decision.refused(code);
        let next = advance.due_at();
        match self.write(advance).await? {
            AdvanceOutcome::Done(_) => Ok(next.map_or(Next::Nothing, Next::DueAt)),
            AdvanceOutcome::Superseded => Ok(Next::Unknown),
            // A decision without events uses no quota.
            AdvanceOutcome::Wait(_, _) | AdvanceOutcome::Refused(_) => {
                self.postpone(SHORT_POSTPONEMENT).await
            }
        }
    }

    async fn write(&self, advance: ScheduleAdvance) -> Result<AdvanceOutcome, StoreError> {
        let now = self.app.clock.wall();
        let outcomes: Vec<RunStatus> = advance
            .runs
            .iter()
            .map(|run| run.outcome.status())
            .collect();
        let written = self
            .app
            .advance_schedule(&self.tenant, now, advance)
            .await?;
        if let AdvanceOutcome::Done(_) = &written {
            for outcome in outcomes {
                self.app.metrics.schedules.count(outcome);
            }
        }
        Ok(written)
    }

    /// Makes the schedule due later, so that it does not delay others.
    async fn postpone(&self, wait: Span) -> Result<Next, StoreError> {
        let until = self.app.clock.wall().after(wait.min(MAX_POSTPONEMENT));
        let key = (self.stored.tenant.clone(), self.stored.id.clone());
        let version = self.stored.version();
        let postponed = self
            .app
            .store
            .postpone_schedule(key.0, key.1, version, until);
        Ok(match postponed.await? {
            true => Next::DueAt(until),
            false => Next::Unknown,
        })
    }
}

impl NoEvents {
    /// An error that another node may not have, or that ends, makes the runs wait. Only what is wrong with the schedule or the
    /// limits of its tenant ends them.
    fn of(problem: Problem) -> NoEvents {
        let is_temporary = problem.status.is_server_error() || problem.code == Code::Contended;
        match problem.retry_after {
            Some(wait) => NoEvents::Wait(wait),
            // The cause was logged. It is logged again each time, so the time is long.
            None if problem.code == Code::Internal => NoEvents::Wait(MAX_POSTPONEMENT),
            None if is_temporary => NoEvents::Wait(SHORT_POSTPONEMENT),
            None => NoEvents::Refused(problem),
        }
    }
}

/// Returns the occurrences that make an event and were not missed, whose lag is measured.
fn on_time(advance: &ScheduleAdvance, now: Timestamp) -> Vec<Timestamp> {
    let created = advance
        .runs
        .iter()
        .filter(|run| run.outcome.status() == RunStatus::Created);
    created
        .map(|run| run.scheduled_for)
        .filter(|at| now.since(*at) < LATE_AFTER)
        .collect()
}
