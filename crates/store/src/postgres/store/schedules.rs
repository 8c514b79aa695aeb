//! [`Schedules`] of a [`PostgresStore`].

use std::sync::Arc;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

use super::{EVENT_BYTES, PostgresStore};
use crate::fair_queue::QueueClass;
use crate::postgres::connection::PgConnection;
use crate::postgres::read;
use crate::postgres::write::operation::{AcceptOperation, AdvanceOperation, Operation};
use crate::postgres::write::schedules;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::reply::{AcceptReply, Reply, reply_channel};
use crate::{
    AdvanceResult, AdvancedBy, Answer, CreateResult, DueSchedules, DueSelection, EventProgress,
    Page, PageRequest, Quotas, ReplaceResult, ScheduleAdvance, ScheduleVersion, Schedules,
    StoredRun, StoredSchedule,
};

impl Schedules for PostgresStore {
    fn create_schedule(
        &self,
        _now: Timestamp,
        schedule: StoredSchedule,
        at_most: u32,
    ) -> Answer<CreateResult> {
        let created = self.write_of(
            &schedule.tenant.clone(),
            async move |context: &mut WriteContext| {
                schedules::create(context, &schedule, at_most).await
            },
        );
        self.then_notify(created)
    }

    fn replace_schedule(&self, _now: Timestamp, schedule: StoredSchedule) -> Answer<ReplaceResult> {
        let replaced = self.write_of(
            &schedule.tenant.clone(),
            async move |context: &mut WriteContext| schedules::replace(context, &schedule).await,
        );
        self.then_notify(replaced)
    }

    fn delete_schedule(
        &self,
        _now: Timestamp,
        tenant: TenantId,
        schedule: ScheduleId,
    ) -> Answer<bool> {
        self.write_of(&tenant.clone(), async move |context: &mut WriteContext| {
            schedules::delete(context, &tenant, &schedule).await
        })
    }

    fn schedule(&self, tenant: TenantId, schedule: ScheduleId) -> Answer<Option<StoredSchedule>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::schedules::schedule(conn, &tenant, &schedule).await
        })
    }

    fn schedules(
        &self,
        tenant: TenantId,
        page: PageRequest<(Timestamp, ScheduleId)>,
    ) -> Answer<Page<StoredSchedule, (Timestamp, ScheduleId)>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::schedules::schedules(conn, &tenant, &page).await
        })
    }

    fn schedule_runs(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        page: PageRequest<u64>,
    ) -> Answer<Page<StoredRun, u64>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::schedules::runs(conn, &tenant, &schedule, page).await
        })
    }

    fn due_schedules(&self, now: Timestamp, selection: DueSelection) -> Answer<DueSchedules> {
        let shards = self.membership.owned_shards.shards();
        let shards: Vec<i16> = shards.iter().map(|it| it.number() as i16).collect();
        self.read_whole(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::schedules::due(conn, now, &shards, &selection).await
        })
    }

    fn advance_schedule(
        &self,
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> Answer<AdvanceResult> {
        let events = advance.events();
        let payloads = events.iter().map(|event| event.content.payload.len());
        let bytes = payloads.map(|bytes| EVENT_BYTES + bytes).sum();
        let (done, answer) = reply_channel();
        let queue = match quotas.is_limited() && !events.is_empty() {
            true => &self.shared.metered,
            false => &self.shared.queue,
        };
        let ownership = match advance.by {
            AdvancedBy::Owner => {
                let shard = Shard::of_schedule(&advance.tenant, &advance.schedule);
                Some(self.membership.owned_shards.ownership_of(shard))
            }
            AdvancedBy::Request => None,
        };
        let class = QueueClass::of(Some(&advance.tenant));
        let accepting = AcceptOperation {
            now,
            events: events.into(),
            quotas,
            bytes,
            advance: Some(Box::new(AdvanceOperation { advance, ownership })),
            reply: AcceptReply::Advance(Reply::new(done)),
        };
        queue.push(class, Operation::Accept(accepting));
        answer
    }

    fn postpone_schedule(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        version: ScheduleVersion,
        until: Timestamp,
    ) -> Answer<bool> {
        self.write(async move |context: &mut WriteContext| {
            schedules::postpone(context, (&tenant, &schedule), version, until).await
        })
    }

    fn end_postponements(&self, latest: Timestamp) -> Answer<u64> {
        self.write(async move |context: &mut WriteContext| {
            schedules::end_postponements(context, latest).await
        })
    }

    fn event_progress(&self, events: Vec<(TenantId, EventId)>) -> Answer<Vec<EventProgress>> {
        self.read_whole(ReadDuration::Long, async move |conn: &PgConnection| {
            read::schedules::event_progress(conn, &events).await
        })
    }

    fn failing_schedules(&self, limit: usize) -> Answer<u64> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::schedules::count_failing(conn, limit).await
        })
    }

    fn schedule_changes(&self) -> Arc<Notify> {
        self.shared.schedule_changes.clone()
    }
}

impl PostgresStore {
    /// Notifies the scheduler of this node when the write has succeeded.
    fn then_notify<T: Send + 'static>(&self, written: Answer<T>) -> Answer<T> {
        let changes = self.shared.schedule_changes.clone();
        Box::pin(async move {
            let result = written.await?;
            changes.notify_one();
            Ok(result)
        })
    }
}
