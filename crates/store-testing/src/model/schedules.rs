//! Schedules in the model.
//!
//! A schedule is kept with its runs. An advance checks the version, accepts its events like any other, and then changes
//! the schedule.

use std::sync::Arc;

use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::schedule::ScheduleStatus;
use posthaste_core::time::Timestamp;
use posthaste_store::for_other_stores::has_expired;
use posthaste_store::{
    AcceptResult, AdvanceResult, Answer, CreateResult, DefinitionBudget, DueSchedules,
    DueSelection, EventProgress, FAILING_RUNS, HandedOver, MAX_RUNS_KEPT, MAX_SCHEDULE_PAGE_BYTES,
    NewRunOutcome, Page, PageRequest, Quotas, ReplaceResult, Retention, ScheduleAdvance,
    ScheduleVersion, Schedules, StoredRun, StoredSchedule,
};
use tokio::sync::Notify;

use super::tables::{ScheduleRow, Tables, page};
use super::{ModelStore, answer};

impl Schedules for ModelStore {
    fn create_schedule(
        &self,
        _now: Timestamp,
        schedule: StoredSchedule,
        at_most: u32,
    ) -> Answer<CreateResult> {
        let created = self.write(|tables| tables.create_schedule(schedule, at_most));
        self.schedule_changes.notify_one();
        answer(created)
    }

    fn replace_schedule(&self, _now: Timestamp, schedule: StoredSchedule) -> Answer<ReplaceResult> {
        let replaced = self.write(|tables| tables.replace_schedule(schedule));
        self.schedule_changes.notify_one();
        answer(replaced)
    }

    fn delete_schedule(
        &self,
        _now: Timestamp,
        tenant: TenantId,
        schedule: ScheduleId,
    ) -> Answer<bool> {
        answer(self.write(|tables| {
            let owner = tables.owner(&tenant);
            let before = tables.schedules.len();
            tables
                .schedules
                .retain(|row| Some(row.owner) != owner || row.schedule.id != schedule);
            tables.schedules.len() < before
        }))
    }

    fn schedule(&self, tenant: TenantId, schedule: ScheduleId) -> Answer<Option<StoredSchedule>> {
        answer(self.read(|tables| {
            let row = tables.schedule_row(&tenant, &schedule)?;
            Some(row.schedule.clone())
        }))
    }

    fn schedules(
        &self,
        tenant: TenantId,
        request: PageRequest<(Timestamp, ScheduleId)>,
    ) -> Answer<Page<StoredSchedule, (Timestamp, ScheduleId)>> {
        answer(self.read(|tables| {
            let owner = tables.owner(&tenant);
            let rows = tables.schedules.iter();
            let mut rows: Vec<_> = rows
                .filter(|row| Some(row.owner) == owner)
                .map(|row| {
                    let key = (row.schedule.created_at, row.schedule.id.clone());
                    (key, row.schedule.clone())
                })
                .collect();
            rows.sort_by(|(a, _), (b, _)| b.cmp(a));
            let from = request.before.clone();
            let rest = rows
                .iter()
                .filter(|(key, _)| from.as_ref().is_none_or(|from| key < from));
            let mut budget = DefinitionBudget::new(request.limit, MAX_SCHEDULE_PAGE_BYTES);
            let fitting = rest.take_while(|(_, row)| budget.admit(row.definition.len()));
            let request = PageRequest {
                limit: fitting.count(),
                ..request
            };
            page(rows.iter().cloned(), request)
        }))
    }

    fn schedule_runs(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        request: PageRequest<u64>,
    ) -> Answer<Page<StoredRun, u64>> {
        answer(self.read(|tables| {
            let row = tables.schedule_row(&tenant, &schedule);
            let runs = row.into_iter().flat_map(|row| row.runs.iter().rev());
            page(runs.map(|run| (run.number, run.clone())), request)
        }))
    }

    fn due_schedules(&self, now: Timestamp, selection: DueSelection) -> Answer<DueSchedules> {
        answer(self.read(|tables| tables.due_schedules(now, &selection)))
    }

    fn advance_schedule(
        &self,
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> Answer<AdvanceResult> {
        answer(self.write(|tables| {
            let (result, deliveries) = tables.advance_schedule(now, &advance, quotas);
            if !deliveries.is_empty() {
                self.hand_over.accepted(deliveries);
            }
            result
        }))
    }

    fn postpone_schedule(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        version: ScheduleVersion,
        until: Timestamp,
    ) -> Answer<bool> {
        answer(self.write(|tables| {
            let row = tables.schedule_row_mut(&tenant, &schedule);
            let row = row.filter(|row| row.schedule.version() == version && row.due_at.is_some());
            row.map(|row| row.due_at = Some(until)).is_some()
        }))
    }

    fn end_postponements(&self, latest: Timestamp) -> Answer<u64> {
        answer(self.write(|tables| {
            let is_late = |row: &&mut ScheduleRow| {
                let due_at = row.due_at.filter(|due_at| *due_at > latest);
                due_at > row.schedule.next_run_at
            };
            let late = tables.schedules.iter_mut().filter(is_late);
            late.map(|row| row.due_at = row.schedule.next_run_at)
                .count() as u64
        }))
    }

    fn event_progress(&self, events: Vec<(TenantId, EventId)>) -> Answer<Vec<EventProgress>> {
        answer(self.read(|tables| {
            let events = events.iter();
            events
                .map(|(tenant, event)| tables.event_progress(tenant, *event))
                .collect()
        }))
    }

    fn failing_schedules(&self, limit: usize) -> Answer<u64> {
        answer(self.read(|tables| {
            let rows = tables.schedules.iter().map(|row| &row.schedule);
            let failing = rows
                .filter(|it| it.failed_runs >= FAILING_RUNS && it.status == ScheduleStatus::Active);
            failing.take(limit).count() as u64
        }))
    }

    fn schedule_changes(&self) -> Arc<Notify> {
        self.schedule_changes.clone()
    }
}

impl Tables {
    fn schedule_row(&self, tenant: &TenantId, schedule: &ScheduleId) -> Option<&ScheduleRow> {
        let owner = self.owner(tenant)?;
        let mut rows = self.schedules.iter();
        rows.find(|row| row.owner == owner && row.schedule.id == *schedule)
    }

    fn schedule_row_mut(
        &mut self,
        tenant: &TenantId,
        schedule: &ScheduleId,
    ) -> Option<&mut ScheduleRow> {
        let owner = self.owner(tenant)?;
        let mut rows = self.schedules.iter_mut();
        rows.find(|row| row.owner == owner && row.schedule.id == *schedule)
    }

    fn create_schedule(&mut self, schedule: StoredSchedule, at_most: u32) -> CreateResult {
        let Some(owner) = self.owner(&schedule.tenant) else {
            return CreateResult::NoSuchTenant;
        };
        if self.schedule_row(&schedule.tenant, &schedule.id).is_some() {
            return CreateResult::Taken;
        }
        let count = self.schedules.iter().filter(|row| row.owner == owner);
        if count.count() >= at_most as usize {
            return CreateResult::TooMany;
        }
        self.schedules.push(ScheduleRow {
            owner,
            due_at: schedule.due_at(),
            schedule: StoredSchedule {
                revision: 0,
                ..schedule
            },
            runs: Vec::new(),
            recorded: 0,
        });
        CreateResult::Created
    }

    fn replace_schedule(&mut self, schedule: StoredSchedule) -> ReplaceResult {
        let Some(row) = self.schedule_row_mut(&schedule.tenant, &schedule.id) else {
            return ReplaceResult::NotFound;
        };
        if row.schedule.version() != schedule.version() {
            return ReplaceResult::Outdated;
        }
        row.due_at = schedule.due_at();
        row.schedule = StoredSchedule {
            revision: schedule.revision + 1,
            ..schedule
        };
        ReplaceResult::Done
    }

    fn due_schedules(&self, now: Timestamp, selection: &DueSelection) -> DueSchedules {
        let is_excepted = |row: &ScheduleRow| {
            let mut except = selection.except.iter();
            except.any(|(tenant, id)| (tenant, id) == (&row.schedule.tenant, &row.schedule.id))
                || selection.except_tenants.contains(&row.schedule.tenant)
        };
        let rows = self.schedules.iter();
        let mut rows: Vec<(Timestamp, &ScheduleRow)> =
            rows.filter_map(|row| Some((row.due_at?, row))).collect();
        // Stable: schedules that are due at the same time stay in the order of their creation.
        rows.sort_by_key(|(due_at, _)| *due_at);
        let mut due = DueSchedules::default();
        let mut budget = DefinitionBudget::new(selection.limit, selection.max_bytes);
        for (due_at, row) in rows {
            if due_at <= now && is_excepted(row) {
                continue;
            }
            if due_at > now || !budget.admit(row.schedule.definition.len()) {
                due.next_due_at = Some(due_at);
                break;
            }
            due.schedules.push(row.schedule.clone());
        }
        due
    }

    fn advance_schedule(
        &mut self,
        now: Timestamp,
        advance: &ScheduleAdvance,
        quotas: Quotas,
    ) -> (AdvanceResult, Vec<HandedOver>) {
        let row = self.schedule_row(&advance.tenant, &advance.schedule);
        if row.is_none_or(|row| row.schedule.version() != advance.version) {
            return (AdvanceResult::Superseded, Vec::new());
        }
        let (accepted, deliveries) = self.accept(now, advance.events(), quotas);
        let AcceptResult::Done(events) = accepted else {
            return (AdvanceResult::Refused(accepted), deliveries);
        };
        let events: Vec<_> = events.into_iter().map(|it| it.event).collect();
        let mut ids = events.iter().map(|event| event.id);
        let row = self
            .schedule_row_mut(&advance.tenant, &advance.schedule)
            .expect("it was found above");
        for run in &advance.runs {
            row.recorded += 1;
            let (event, reason) = match &run.outcome {
                NewRunOutcome::Create(_) => (ids.next(), None),
                NewRunOutcome::Skip(reason) | NewRunOutcome::Miss(reason) => {
                    (None, Some(reason.clone()))
                }
            };
            row.schedule.last_event = event.or(row.schedule.last_event);
            row.runs.push(StoredRun {
                number: row.recorded,
                scheduled_for: run.scheduled_for,
                started_at: now,
                status: run.outcome.status(),
                event,
                reason,
            });
        }
        let oldest = row.recorded.saturating_sub(MAX_RUNS_KEPT);
        row.runs.retain(|run| run.number > oldest);
        row.due_at = advance.due_at();
        row.schedule.status = advance.status;
        row.schedule.next_run_at = advance.next_run_at;
        row.schedule.last_run_at = advance.last_run_at;
        row.schedule.run_count = advance.run_count;
        row.schedule.failed_runs = advance.failed_runs;
        row.schedule.progress = advance.progress.clone();
        row.schedule.revision += 1;
        (AdvanceResult::Done(events), deliveries)
    }

    fn event_progress(&self, tenant: &TenantId, event: EventId) -> EventProgress {
        let row = self.events.get(&event);
        if row.is_none_or(|row| Some(row.owner) != self.owner(tenant)) {
            return EventProgress::Finished;
        }
        let deliveries = self.deliveries.values().map(|row| &row.delivery);
        let of_event = || deliveries.clone().filter(|it| it.facts().event == event);
        if of_event().any(|delivery| !delivery.status().is_terminal()) {
            return EventProgress::Unfinished;
        }
        match of_event().any(|it| it.status() == posthaste_core::delivery::Status::Failed) {
            true => EventProgress::Failed,
            false => EventProgress::Finished,
        }
    }

    /// Deletes the runs that have expired, from the oldest to the first that has not.
    pub(super) fn delete_expired_runs(&mut self, now: Timestamp, retention: &Retention) {
        for index in 0..self.schedules.len() {
            let row = &self.schedules[index];
            let keep = self
                .kept_for(retention, &row.schedule.tenant, row.owner)
                .deliveries;
            let runs = &mut self.schedules[index].runs;
            let expired = runs
                .iter()
                .take_while(|run| has_expired(run.started_at, keep, now));
            runs.drain(..expired.count());
        }
    }
}
