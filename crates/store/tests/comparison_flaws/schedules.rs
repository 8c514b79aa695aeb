//! Mutations of schedules.

use std::sync::Arc;

use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::*;
use tokio::sync::Notify;

use crate::{Flaw, Flawed};

impl Schedules for Flawed {
    fn advance_schedule(
        &self,
        now: Timestamp,
        mut advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> Answer<AdvanceResult> {
        if self.has(Flaw::ForgetsProgress) {
            advance.progress = None;
        }
        if self.has(Flaw::MakesRunsAgain)
            && let Some(run) = advance.runs.last().cloned()
        {
            advance.runs.push(run);
        }
        if !self.has(Flaw::IgnoresVersions) {
            return self.inner.advance_schedule(now, advance, quotas);
        }
        let inner = self.inner.clone();
        Box::pin(async move {
            let key = (advance.tenant.clone(), advance.schedule.clone());
            if let Some(stored) = inner.schedule(key.0, key.1).await? {
                advance.version = stored.version();
            }
            inner.advance_schedule(now, advance, quotas).await
        })
    }

    fn postpone_schedule(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        version: ScheduleVersion,
        until: Timestamp,
    ) -> Answer<bool> {
        let until = match self.has(Flaw::PostponesTooLong) {
            true => until.after(Span::from_days(1)),
            false => until,
        };
        self.inner
            .postpone_schedule(tenant, schedule, version, until)
    }

    right! {
        create_schedule(now: Timestamp, schedule: StoredSchedule, at_most: u32) -> Answer<CreateResult>;
        replace_schedule(now: Timestamp, schedule: StoredSchedule) -> Answer<ReplaceResult>;
        delete_schedule(now: Timestamp, tenant: TenantId, schedule: ScheduleId) -> Answer<bool>;
        schedule(tenant: TenantId, schedule: ScheduleId) -> Answer<Option<StoredSchedule>>;
        schedules(tenant: TenantId, page: PageRequest<(Timestamp, ScheduleId)>) -> Answer<Page<StoredSchedule, (Timestamp, ScheduleId)>>;
        schedule_runs(tenant: TenantId, schedule: ScheduleId, page: PageRequest<u64>) -> Answer<Page<StoredRun, u64>>;
        due_schedules(now: Timestamp, selection: DueSelection) -> Answer<DueSchedules>;
        event_progress(events: Vec<(TenantId, EventId)>) -> Answer<Vec<EventProgress>>;
        end_postponements(latest: Timestamp) -> Answer<u64>;
        failing_schedules(limit: usize) -> Answer<u64>;
        schedule_changes() -> Arc<Notify>;
    }
}
