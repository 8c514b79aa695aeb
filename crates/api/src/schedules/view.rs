//! Describes stored schedules.

use posthaste_core::schedule::{
    DEFAULT_ZONE, MissedRuns, Overlap, Schedule, ScheduleDefinition, ScheduleProgress,
    ScheduleState, ScheduleStatus, ScheduleTarget, ScheduleTiming,
};
use posthaste_core::time::Timestamp;
use posthaste_store::{StoredSchedule, Tenant};
use serde_json::Value;

use super::target::{show_event, show_request};
use crate::App;
use crate::code::Code;
use crate::problem::Problem;
use crate::resources;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::schedules";

/// Reads the definition of a stored schedule and prepares it.
pub(super) fn prepared(stored: &StoredSchedule) -> Result<Schedule, Problem> {
    read_definition(stored).map_err(|error| {
        log_unreadable(stored, &error);
        Problem::new(Code::WrongState, UNREADABLE_DEFINITION)
    })
}

fn read_definition(stored: &StoredSchedule) -> Result<Schedule, String> {
    let definition =
        ScheduleDefinition::read(&stored.definition).map_err(|error| error.to_string())?;
    Schedule::new(definition).map_err(|error| error.to_string())
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

/// Describes a schedule. Of one that cannot be read, what can be read is shown, with the reason.
pub(super) async fn describe(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    stored: &StoredSchedule,
) -> Result<resources::Schedule, Problem> {
    let schedule = match read_definition(stored) {
        Ok(schedule) => schedule,
        Err(error) => return Ok(describe_unreadable(stored, &error)),
    };
    let definition = schedule.definition();
    let (cron, every, at) = match &definition.timing {
        ScheduleTiming::Cron(text) => (Some(text.clone()), None, None),
        ScheduleTiming::Every(interval) => (None, Some(interval.to_string()), None),
        ScheduleTiming::At(times) => (None, None, Some(resources::times(times))),
    };
    let mut error = None;
    let (event, request) = match &definition.target {
        ScheduleTarget::Event(target) => (Some(show_event(target)), None),
        ScheduleTarget::Request(target) => {
            let (shown, problem) = show_request(app, tenant, target).await?;
            if let Some(problem) = problem {
                log_unreadable(stored, &problem.cause);
                error = Some(problem.shown.to_owned());
            }
            (None, Some(shown))
        }
    };
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    Ok(resources::Schedule {
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
        next_run_at: time(shown_next_run(&schedule, now, stored)),
        description: schedule.description(),
        error,
        ..columns_of(stored)
    })
}

/// The reason shown if the definition cannot be read.
const UNREADABLE_DEFINITION: &str =
    "the stored definition cannot be read; delete the schedule and create it again";

fn log_unreadable(stored: &StoredSchedule, error: &dyn std::fmt::Display) {
    let (tenant, schedule) = (&stored.tenant, &stored.id);
    tracing::error!(target: LOG_TARGET, %tenant, %schedule, %error, "a schedule cannot be read");
}

/// Describes a schedule whose definition cannot be read.
fn describe_unreadable(
    stored: &StoredSchedule,
    error: &dyn std::fmt::Display,
) -> resources::Schedule {
    log_unreadable(stored, error);
    let document = serde_json::from_str(&stored.definition).unwrap_or(Value::Null);
    let name = document["name"].as_str().filter(|name| !name.is_empty());
    let columns = columns_of(stored);
    resources::Schedule {
        name: name.unwrap_or(&columns.id).to_owned(),
        error: Some(UNREADABLE_DEFINITION.to_owned()),
        ..columns
    }
}

/// Returns what the columns of a stored schedule say, without its definition.
fn columns_of(stored: &StoredSchedule) -> resources::Schedule {
    let next_run_at = stored.due_at();
    resources::Schedule {
        id: stored.id.to_string(),
        name: String::new(),
        cron: None,
        every: None,
        at: None,
        timezone: DEFAULT_ZONE.to_owned(),
        event: None,
        request: None,
        overlap: Overlap::default(),
        missed: MissedRuns::default(),
        starts_at: None,
        ends_at: None,
        max_runs: None,
        status: stored.status,
        next_run_at: next_run_at.map(|at| at.to_string()),
        last_run_at: stored.last_run_at.map(|at| at.to_string()),
        run_count: stored.run_count,
        created_at: stored.created_at.to_string(),
        description: "Unreadable".to_owned(),
        failed_runs: stored.failed_runs,
        error: None,
    }
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
