//! Describes stored schedules.

use posthaste_core::schedule::{
    Schedule, ScheduleDefinition, ScheduleProgress, ScheduleState, ScheduleStatus, ScheduleTarget,
    ScheduleTiming,
};
use posthaste_core::time::Timestamp;
use posthaste_store::{StoredSchedule, Tenant};

use super::target::{show_event, show_request};
use crate::App;
use crate::problem::Problem;
use crate::resources;

/// Reads the definition of a stored schedule and prepares it.
pub(super) fn prepared(stored: &StoredSchedule) -> Result<Schedule, Problem> {
    let definition = ScheduleDefinition::read(&stored.definition);
    let definition = definition.map_err(|error| Problem::internal(&error))?;
    Schedule::new(definition).map_err(|error| Problem::internal(&error))
}

/// Returns the state of a stored schedule.
pub(super) fn state_of(stored: &StoredSchedule) -> ScheduleState {
    let progress = stored.progress.as_deref();
    ScheduleState {
        status: stored.status,
        next_run_at: stored.next_run_at,
        last_run_at: stored.last_run_at,
        run_count: stored.run_count,
        created_at: stored.created_at,
        progress: progress.map(ScheduleProgress::read).unwrap_or_default(),
    }
}

/// Returns the stored schedule with another definition and state.
pub(super) fn with_state(
    stored: &StoredSchedule,
    definition: String,
    state: &ScheduleState,
) -> StoredSchedule {
    StoredSchedule {
        definition,
        progress: Some(state.progress.stored()),
        status: state.status,
        next_run_at: state.next_run_at,
        last_run_at: state.last_run_at,
        run_count: state.run_count,
        ..stored.clone()
    }
}

/// Describes a schedule.
pub(super) async fn describe(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    stored: &StoredSchedule,
) -> Result<resources::Schedule, Problem> {
    let schedule = prepared(stored)?;
    let definition = schedule.definition();
    let (cron, every, at) = match &definition.timing {
        ScheduleTiming::Cron(text) => (Some(text.clone()), None, None),
        ScheduleTiming::Every(interval) => (None, Some(interval.to_string()), None),
        ScheduleTiming::At(times) => (None, None, Some(resources::times(times))),
    };
    let (event, request) = match &definition.target {
        ScheduleTarget::Event(target) => (Some(show_event(target)), None),
        ScheduleTarget::Request(target) => (None, Some(show_request(app, tenant, target).await?)),
    };
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    Ok(resources::Schedule {
        id: stored.id.to_string(),
        name: definition.name.clone(),
        cron,
        every,
        at,
        timezone: definition.timezone.clone(),
        event,
        request,
        overlap: definition.overlap,
        missed: definition.missed,
        starts_at: time(definition.starts_at),
        ends_at: time(definition.ends_at),
        max_runs: definition.max_runs,
        status: stored.status,
        next_run_at: time(shown_next_run(&schedule, now, stored)),
        last_run_at: time(stored.last_run_at),
        run_count: stored.run_count,
        created_at: stored.created_at.to_string(),
        description: schedule.description(),
        failed_runs: stored.failed_runs,
    })
}

/// Returns the next occurrence that is shown. Just after a resume, the stored one is in the past: it was missed, and the
/// scheduler is about to handle it.
fn shown_next_run(
    schedule: &Schedule,
    now: Timestamp,
    stored: &StoredSchedule,
) -> Option<Timestamp> {
    let next = match stored.status {
        ScheduleStatus::Active => stored.next_run_at?,
        ScheduleStatus::Paused | ScheduleStatus::Finished => return None,
    };
    let resumed_at = state_of(stored).progress.resumed_at;
    match resumed_at.is_some_and(|resumed| next < resumed) {
        true => schedule.next_after(now, stored.created_at),
        false => Some(next),
    }
}
