//! Schedules: recurring events, and the record of their runs.
//!
//! A [`StoredSchedule`] is a definition that the store does not interpret, and the time of its next occurrence. The scheduler
//! reads the schedules that are due ([`Schedules::due_schedules`]), decides, and writes its decision as one
//! [`ScheduleAdvance`]: the events of the occurrences, their [`StoredRun`]s and the next occurrence, in one transaction.
//! An advance applies only to the revision that was read, so every occurrence makes exactly one event, whatever crashes
//! and however many nodes decide about it.

use std::sync::Arc;

use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::schedule::ScheduleStatus;
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

use crate::{
    AcceptResult, AcceptedEvent, Answer, CreateResult, NewEvent, Page, PageRequest, Quotas,
    ReplaceResult,
};

/// Number of runs that are kept of one schedule. Older ones are deleted.
pub const MAX_RUNS_KEPT: u64 = 1_000;
/// Number of failed runs, one after the other, from which a schedule counts as failing. The stored indexes depend on it.
pub const FAILING_RUNS: u32 = 3;
/// Maximum size of the definitions of a page, in bytes, unless a single one is larger.
pub const MAX_SCHEDULE_PAGE_BYTES: usize = 4 << 20;
/// Maximum length of the reason of a run, in characters.
pub const MAX_RUN_REASON_CHARS: usize = 200;

/// A schedule, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchedule {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// Its id, unique within the tenant.
    pub id: ScheduleId,
    /// Its definition, as JSON.
    pub definition: String,
    /// The state of the planner, if it has one.
    pub progress: Option<String>,
    /// Its status.
    pub status: ScheduleStatus,
    /// The time of the next occurrence that is not decided yet.
    pub next_run_at: Option<Timestamp>,
    /// The time at which the last event was made.
    pub last_run_at: Option<Timestamp>,
    /// The event of the last run that made one.
    pub last_event: Option<EventId>,
    /// Number of runs that made an event.
    pub run_count: u64,
    /// Number of the last runs, one after the other, that have failed.
    pub failed_runs: u32,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// Number of changes since its creation. A change names the revision that it was made from.
    pub revision: u64,
}

impl StoredSchedule {
    /// Returns the time at which the scheduler has to decide about it.
    pub fn due_at(&self) -> Option<Timestamp> {
        due_at(self.status, self.next_run_at)
    }

    /// Returns the revision that a change has to name.
    pub fn version(&self) -> ScheduleVersion {
        ScheduleVersion {
            created_at: self.created_at,
            revision: self.revision,
        }
    }
}

fn due_at(status: ScheduleStatus, next_run_at: Option<Timestamp>) -> Option<Timestamp> {
    match status {
        ScheduleStatus::Active => next_run_at,
        ScheduleStatus::Paused | ScheduleStatus::Finished => None,
    }
}

/// Identifies a revision of a schedule. A later schedule with the same id has other versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleVersion {
    /// The time of the creation.
    pub created_at: Timestamp,
    /// The revision.
    pub revision: u64,
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// It made an event.
    Created,
    /// It made none: the previous run was not finished, or its event was refused.
    Skipped,
    /// It made none, because its time had passed.
    Missed,
}

/// A run: what became of one occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Its number, counted from 1 over all runs of its schedule.
    pub number: u64,
    /// The time of the occurrence.
    pub scheduled_for: Timestamp,
    /// The time at which it was decided.
    pub started_at: Timestamp,
    /// Its status.
    pub status: RunStatus,
    /// Its event, if it made one. The event may have been deleted.
    pub event: Option<EventId>,
    /// The reason why it made none.
    pub reason: Option<String>,
}

/// A run to record.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The time of the occurrence.
    pub scheduled_for: Timestamp,
    /// Its outcome.
    pub outcome: NewRunOutcome,
}

/// The decision about an occurrence.
#[derive(Clone, Debug)]
pub enum NewRunOutcome {
    /// Make this event. It has no idempotency key.
    Create(Box<NewEvent>),
    /// Make none, for this reason.
    Skip(String),
    /// Make none, because the time has passed, for this reason.
    Miss(String),
}

impl NewRunOutcome {
    /// Returns the status of the run.
    pub fn status(&self) -> RunStatus {
        match self {
            NewRunOutcome::Create(_) => RunStatus::Created,
            NewRunOutcome::Skip(_) => RunStatus::Skipped,
            NewRunOutcome::Miss(_) => RunStatus::Missed,
        }
    }
}

/// The node that decides about occurrences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvancedBy {
    /// The node that owns the schedule. In a cluster the advance is refused if another node owns it.
    Owner,
    /// Any node, for a request.
    Request,
}

/// A decision about the next occurrences of a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleAdvance {
    /// The tenant.
    pub tenant: TenantId,
    /// The schedule.
    pub schedule: ScheduleId,
    /// The version that was decided about.
    pub version: ScheduleVersion,
    /// The node that decided.
    pub by: AdvancedBy,
    /// The occurrences with their outcomes. The events among them are accepted together, so they are few.
    pub runs: Vec<NewRun>,
    /// The new status.
    pub status: ScheduleStatus,
    /// The time of the next occurrence.
    pub next_run_at: Option<Timestamp>,
    /// The time at which the last event was made.
    pub last_run_at: Option<Timestamp>,
    /// Number of runs that made an event, these included.
    pub run_count: u64,
    /// Number of the last runs that have failed.
    pub failed_runs: u32,
    /// The state of the planner.
    pub progress: Option<String>,
}

impl ScheduleAdvance {
    /// Returns the events of the runs, in their order.
    pub fn events(&self) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for run in &self.runs {
            match &run.outcome {
                NewRunOutcome::Create(event) => {
                    assert!(event.tenant == self.tenant, "events of the same tenant");
                    assert!(event.idempotency.is_none(), "no idempotency key");
                    events.push(NewEvent::clone(event));
                }
                NewRunOutcome::Skip(_) | NewRunOutcome::Miss(_) => {}
            }
        }
        events
    }

    /// Returns the time at which the scheduler has to decide about the schedule again.
    pub fn due_at(&self) -> Option<Timestamp> {
        due_at(self.status, self.next_run_at)
    }
}

/// The result of an advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdvanceResult {
    /// Everything is persisted. Contains the events, in the order of their runs.
    Done(Vec<AcceptedEvent>),
    /// The schedule has changed, has been deleted, or belongs to another node. Nothing was written.
    Superseded,
    /// Its events were not accepted. Nothing was written, and the schedule may have changed. Never [`AcceptResult::Done`].
    Refused(AcceptResult),
}

/// Counts the schedules that fit into a page or a selection.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionBudget {
    max_count: usize,
    max_bytes: usize,
    count: usize,
    bytes: usize,
}

impl DefinitionBudget {
    /// Creates a budget of this many schedules and bytes.
    pub fn new(max_count: usize, max_bytes: usize) -> DefinitionBudget {
        DefinitionBudget {
            max_count,
            max_bytes,
            count: 0,
            bytes: 0,
        }
    }

    /// Returns whether the next schedule fits, whose definition has this size. The first one fits, however large it is.
    pub fn admit(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let is_small = self.count == 0 || self.bytes <= self.max_bytes;
        let fits = self.count < self.max_count && is_small;
        self.count += usize::from(fits);
        fits
    }
}

/// Schedules that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueSchedules {
    /// The schedules, earliest due first.
    pub schedules: Vec<StoredSchedule>,
    /// The earliest time at which another one may be due: that of the next one that did not fit, which has passed, or of the
    /// first one that is due later, whether or not it was to be left out.
    pub next_due_at: Option<Timestamp>,
}

/// Selects the schedules that [`Schedules::due_schedules`] returns.
#[derive(Clone, Debug)]
pub struct DueSelection {
    /// Maximum number of schedules.
    pub limit: usize,
    /// Maximum size of their definitions, in bytes. The earliest one is always returned.
    pub max_bytes: usize,
    /// Schedules to leave out, because they are being decided about.
    pub except: Arc<[(TenantId, ScheduleId)]>,
    /// Tenants to leave out, because many of their schedules are being decided about.
    pub except_tenants: Arc<[TenantId]>,
}

/// The state of the deliveries of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventProgress {
    /// One of its deliveries has not ended.
    Unfinished,
    /// All have ended, and one of them failed.
    Failed,
    /// All have ended without failing, or there are none. Also of an event that does not exist.
    Finished,
}

/// Persists schedules and their runs.
pub trait Schedules {
    /// Creates a schedule, if its tenant then has at most `at_most`. Its revision is stored as 0, and the scheduler is
    /// notified.
    fn create_schedule(
        &self,
        now: Timestamp,
        schedule: StoredSchedule,
        at_most: u32,
    ) -> Answer<CreateResult>;

    /// Replaces a schedule, if its revision is still `schedule.revision`. The time of its creation and its runs do not
    /// change. The scheduler of the node that owns it is notified.
    fn replace_schedule(&self, now: Timestamp, schedule: StoredSchedule) -> Answer<ReplaceResult>;

    /// Deletes a schedule with its runs. Its events stay. Returns false if there is no such schedule.
    fn delete_schedule(
        &self,
        now: Timestamp,
        tenant: TenantId,
        schedule: ScheduleId,
    ) -> Answer<bool>;

    /// Returns a schedule.
    fn schedule(&self, tenant: TenantId, schedule: ScheduleId) -> Answer<Option<StoredSchedule>>;

    /// Lists the schedules of a tenant, newest first; those created in the same millisecond by descending id. A page ends
    /// early if the definitions would exceed [`MAX_SCHEDULE_PAGE_BYTES`].
    fn schedules(
        &self,
        tenant: TenantId,
        page: PageRequest<(Timestamp, ScheduleId)>,
    ) -> Answer<Page<StoredSchedule, (Timestamp, ScheduleId)>>;

    /// Lists the runs of a schedule, newest first, by their numbers. Of each schedule the last [`MAX_RUNS_KEPT`] are kept,
    /// unless the retention period of the tenant's events has passed.
    fn schedule_runs(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        page: PageRequest<u64>,
    ) -> Answer<Page<StoredRun, u64>>;

    /// Returns the schedules of this node that are due at `now`, earliest first, and when the next one is. The cost does
    /// not depend on the number of schedules that are not due.
    fn due_schedules(&self, now: Timestamp, selection: DueSelection) -> Answer<DueSchedules>;

    /// Records a decision in one transaction: accepts the events, as [`Store::accept_within`](crate::Store::accept_within)
    /// does, records the runs and sets the next occurrence. Nothing happens if the schedule no longer has the version that
    /// was decided about.
    fn advance_schedule(
        &self,
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> Answer<AdvanceResult>;

    /// Makes an active schedule due at another time, without changing its next occurrence or revision. Returns false if it
    /// no longer has this version.
    fn postpone_schedule(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        version: ScheduleVersion,
        until: Timestamp,
    ) -> Answer<bool>;

    /// Makes the schedules that were postponed to later than `latest` due at their next occurrence. Returns their number.
    /// Reads all schedules that are due after `latest`.
    fn end_postponements(&self, latest: Timestamp) -> Answer<u64>;

    /// Returns the states of the deliveries of some events, in the order of the events. An event may be given several times.
    fn event_progress(&self, events: Vec<(TenantId, EventId)>) -> Answer<Vec<EventProgress>>;

    /// Counts the active schedules of which at least the last [`FAILING_RUNS`] runs have failed. Stops counting at `limit`.
    /// The cost is proportional to the number of such schedules.
    fn failing_schedules(&self, limit: usize) -> Answer<u64>;

    /// Notified when a schedule of this node may be due earlier than known: it was created or changed, or this node owns
    /// more shards. There is one waiter.
    fn schedule_changes(&self) -> Arc<Notify>;
}
