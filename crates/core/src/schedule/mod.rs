//! Recurring schedules: when they run, and which runs are due.
//!
//! [`ScheduleDefinition`] holds what the caller set and is stored as JSON. [`ScheduleState`] is what changes with every
//! run. [`Schedule`] is a definition that is ready for arithmetic: it computes occurrences, and [`Schedule::plan`] decides
//! what happens to the occurrences that are due. An occurrence is a time at which a schedule says that it runs; a run is
//! what became of one occurrence: an event was created, or it was skipped or missed.
//!
//! ```text
//!  stored definition ── Schedule::new ──▶ Schedule ── first(state) ──────▶ next_run_at of a new or changed schedule
//!                                            │
//!  stored state, now, unfinished run? ───────┴────── plan ──▶ runs to write, new state
//! ```
//!
//! The store keeps the state, finds schedules that are due, and writes all runs of a plan with its new state in one
//! transaction, if the revision of the schedule is still the one that was planned with.

mod cron;
mod definition;
mod plan;
mod state;
mod timing;
mod zone;

pub use cron::{CronError, CronExpression, CronField, MAX_CRON_CHARS};
pub use definition::{
    EventTarget, HEADERS_SEALED_FOR, MAX_AT_TIMES, MIN_INTERVAL, MissedRuns, Overlap,
    RequestTarget, ScheduleDefinition, ScheduleTarget, ScheduleTiming, TargetBody,
    UnreadableDefinition,
};
pub use plan::{
    LATE_AFTER, MAX_CREATED_PER_PLAN, MAX_DUE_PER_PLAN, MissedReason, PlannedRun, RunOutcome,
    Schedule, ScheduleError, SchedulePlan, SkipReason,
};
pub use state::{ScheduleProgress, ScheduleState, ScheduleStatus, ScheduledRun, WatchedRun};
pub use timing::{Timing, TimingError};
pub use zone::{DEFAULT_ZONE, UnknownZone, Zone};

#[cfg(test)]
mod tests;
