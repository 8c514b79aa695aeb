//! Schedules and their runs as rows.
//!
//! The number of a schedule distinguishes it from an earlier one with the same id, so that the runs of a deleted tenant's
//! schedules, which a retention run deletes, belong to no other. `advances` writes decisions about them.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::schedule::ScheduledRun;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::Notify;

use super::accept::AcceptTask;
use super::codes::{Code, RowStatus};
use super::delivery_rows::parse;
use super::directory::live_tenant;
use super::event_rows::deliveries_of;
use super::group_commit::WriteContext;
use super::row_keys::id_bytes;
use super::store::SqliteStore;
use crate::codes::{at, ms, sql_limit};
use crate::fair_queue::QueueClass;
use crate::page::{cut, one_more};
use crate::read_duration::ReadDuration;
use crate::reply::reply_channel;
use crate::retention::has_expired;
use crate::{
    AdvanceResult, Answer, CreateResult, DefinitionBudget, DueSchedules, DueSelection,
    EventProgress, MAX_SCHEDULE_PAGE_BYTES, Page, PageRequest, Quotas, ReplaceResult,
    ScheduleAdvance, ScheduleVersion, Schedules, StoredRun, StoredSchedule,
};

const COLUMNS: &str = "s.id, s.definition, s.progress, s.status, s.next_run_at, s.last_run_at, \
    s.last_event, s.run_count, s.failed_runs, s.created_at, s.revision";

impl Schedules for SqliteStore {
    fn create_schedule(
        &self,
        _now: Timestamp,
        schedule: StoredSchedule,
        at_most: u32,
    ) -> Answer<CreateResult> {
        let created = self.write_of(&schedule.tenant.clone(), move |context| {
            create(context, &schedule, at_most)
        });
        self.then_notify(created)
    }

    fn replace_schedule(&self, _now: Timestamp, schedule: StoredSchedule) -> Answer<ReplaceResult> {
        let replaced = self.write_of(&schedule.tenant.clone(), move |context| {
            replace(context, &schedule)
        });
        self.then_notify(replaced)
    }

    fn delete_schedule(
        &self,
        _now: Timestamp,
        tenant: TenantId,
        schedule: ScheduleId,
    ) -> Answer<bool> {
        self.write_of(&tenant.clone(), move |context| {
            delete(context, &tenant, &schedule)
        })
    }

    fn schedule(&self, tenant: TenantId, schedule: ScheduleId) -> Answer<Option<StoredSchedule>> {
        self.read(ReadDuration::Quick, move |conn| {
            let sql =
                format!("SELECT {COLUMNS} FROM schedules s WHERE s.tenant_no = ?1 AND s.id = ?2");
            let tenant_no = live_tenant(conn, &tenant)?;
            conn.prepare_cached(&sql)?
                .query_row((tenant_no, schedule.as_str()), |row| {
                    read(row, tenant.clone())
                })
                .optional()
        })
    }

    fn schedules(
        &self,
        tenant: TenantId,
        page: PageRequest<(Timestamp, ScheduleId)>,
    ) -> Answer<Page<StoredSchedule, (Timestamp, ScheduleId)>> {
        self.read(ReadDuration::Long, move |conn| list(conn, &tenant, &page))
    }

    fn schedule_runs(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        page: PageRequest<u64>,
    ) -> Answer<Page<StoredRun, u64>> {
        self.read(ReadDuration::Quick, move |conn| {
            runs(conn, &tenant, &schedule, page)
        })
    }

    fn due_schedules(&self, now: Timestamp, selection: DueSelection) -> Answer<DueSchedules> {
        self.read(ReadDuration::Quick, move |conn| due(conn, now, &selection))
    }

    fn advance_schedule(
        &self,
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> Answer<AdvanceResult> {
        let (done, answer) = reply_channel();
        let class = QueueClass::of(Some(&advance.tenant));
        let task = AcceptTask::advance(now, advance, quotas, done);
        self.queue.push(class, Box::new(task));
        answer
    }

    fn postpone_schedule(
        &self,
        tenant: TenantId,
        schedule: ScheduleId,
        version: ScheduleVersion,
        until: Timestamp,
    ) -> Answer<bool> {
        self.write(move |context| {
            let tenant_no = live_tenant(context.conn, &tenant)?;
            let postponed = context
                .conn
                .prepare_cached(
                    "UPDATE schedules SET due = ?5 WHERE tenant_no = ?1 AND id = ?2 \
                     AND created_at = ?3 AND revision = ?4 AND due IS NOT NULL",
                )?
                .execute(params![
                    tenant_no,
                    schedule.as_str(),
                    ms(version.created_at),
                    version.revision as i64,
                    ms(until),
                ])?;
            Ok(postponed == 1)
        })
    }

    fn end_postponements(&self, latest: Timestamp) -> Answer<u64> {
        self.write(move |context| {
            let ended = context
                .conn
                .prepare_cached(
                    "UPDATE schedules SET due = next_run_at WHERE due > ?1 AND due > next_run_at",
                )?
                .execute([ms(latest)])?;
            Ok(ended as u64)
        })
    }

    fn event_progress(&self, events: Vec<(TenantId, EventId)>) -> Answer<Vec<EventProgress>> {
        self.read(ReadDuration::Long, move |conn| {
            let events = events.iter();
            events
                .map(|(tenant, event)| progress_of(conn, tenant, *event))
                .collect()
        })
    }

    fn failing_schedules(&self, limit: usize) -> Answer<u64> {
        self.read(ReadDuration::Long, move |conn| {
            // The condition of the index; 0 is the status of an active schedule.
            conn.prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM schedules WHERE failed_runs > 2 AND status = 0 LIMIT ?1)",
            )?
            .query_row([sql_limit(limit)], |row| row.get::<_, i64>(0))
            .map(|count| count as u64)
        })
    }

    fn schedule_changes(&self) -> Arc<Notify> {
        self.schedule_changes.clone()
    }
}

impl SqliteStore {
    /// Notifies the scheduler when the write has succeeded.
    fn then_notify<T: Send + 'static>(&self, written: Answer<T>) -> Answer<T> {
        let changes = self.schedule_changes.clone();
        Box::pin(async move {
            let result = written.await?;
            changes.notify_one();
            Ok(result)
        })
    }
}

fn read(row: &Row<'_>, tenant: TenantId) -> rusqlite::Result<StoredSchedule> {
    Ok(StoredSchedule {
        tenant,
        id: parse(row.get_ref(0)?.as_str()?)?,
        definition: row.get(1)?,
        progress: row.get(2)?,
        status: row.get::<_, Code<_>>(3)?.0,
        next_run_at: row.get::<_, Option<i64>>(4)?.map(at),
        last_run_at: row.get::<_, Option<i64>>(5)?.map(at),
        last_event: event_id(row, 6)?,
        run_count: row.get::<_, i64>(7)? as u64,
        failed_runs: row.get(8)?,
        created_at: at(row.get(9)?),
        revision: row.get::<_, i64>(10)? as u64,
    })
}

fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<EventId>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(|bytes| EventId(u128::from_be_bytes(bytes))))
}

fn create(
    context: &mut WriteContext<'_>,
    schedule: &StoredSchedule,
    at_most: u32,
) -> rusqlite::Result<CreateResult> {
    let conn = context.conn;
    let Some(tenant_no) = live_tenant(conn, &schedule.tenant)? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    if number_of(conn, tenant_no, &schedule.id)?.is_some() {
        return Ok(CreateResult::Taken);
    }
    let counted = conn
        .prepare_cached(
            "UPDATE tenants SET schedules = schedules + 1 WHERE no = ?1 AND schedules < ?2",
        )?
        .execute((tenant_no, at_most))?;
    if counted == 0 {
        return Ok(CreateResult::TooMany);
    }
    conn.prepare_cached(
        "INSERT INTO schedules (tenant_no, id, status, due, next_run_at, last_run_at, last_event, \
         run_count, failed_runs, runs, created_at, revision, progress, definition) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, 0, ?11, ?12)",
    )?
    .execute(params![
        tenant_no,
        schedule.id.as_str(),
        Code(schedule.status),
        schedule.due_at().map(ms),
        schedule.next_run_at.map(ms),
        schedule.last_run_at.map(ms),
        schedule.last_event.map(|event| id_bytes(event.0)),
        schedule.run_count as i64,
        schedule.failed_runs,
        ms(schedule.created_at),
        schedule.progress,
        schedule.definition,
    ])?;
    Ok(CreateResult::Created)
}

fn replace(
    context: &mut WriteContext<'_>,
    schedule: &StoredSchedule,
) -> rusqlite::Result<ReplaceResult> {
    let conn = context.conn;
    let tenant_no = live_tenant(conn, &schedule.tenant)?;
    let Some(no) = tenant_no
        .map(|tenant_no| number_of(conn, tenant_no, &schedule.id))
        .transpose()?
        .flatten()
    else {
        return Ok(ReplaceResult::NotFound);
    };
    let replaced = conn
        .prepare_cached(
            "UPDATE schedules SET status = ?4, due = ?5, next_run_at = ?6, last_run_at = ?7, \
             last_event = ?8, run_count = ?9, failed_runs = ?10, progress = ?11, definition = ?12, \
             revision = revision + 1 WHERE no = ?1 AND revision = ?2 AND created_at = ?3",
        )?
        .execute(params![
            no,
            schedule.revision as i64,
            ms(schedule.created_at),
            Code(schedule.status),
            schedule.due_at().map(ms),
            schedule.next_run_at.map(ms),
            schedule.last_run_at.map(ms),
            schedule.last_event.map(|event| id_bytes(event.0)),
            schedule.run_count as i64,
            schedule.failed_runs,
            schedule.progress,
            schedule.definition,
        ])?;
    Ok(match replaced {
        0 => ReplaceResult::Outdated,
        _ => ReplaceResult::Done,
    })
}

fn delete(
    context: &mut WriteContext<'_>,
    tenant: &TenantId,
    schedule: &ScheduleId,
) -> rusqlite::Result<bool> {
    let conn = context.conn;
    let Some(tenant_no) = live_tenant(conn, tenant)? else {
        return Ok(false);
    };
    let Some(no) = number_of(conn, tenant_no, schedule)? else {
        return Ok(false);
    };
    for sql in [
        "DELETE FROM schedules WHERE no = ?1",
        "DELETE FROM schedule_runs WHERE schedule_no = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([no])?;
    }
    conn.prepare_cached("UPDATE tenants SET schedules = schedules - 1 WHERE no = ?1")?
        .execute([tenant_no])?;
    Ok(true)
}

/// Deletes the schedules of a tenant. A retention run deletes their runs.
pub(super) fn delete_of_tenant(conn: &Connection, tenant_no: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM schedules WHERE tenant_no = ?1")?
        .execute([tenant_no])?;
    Ok(())
}

fn number_of(
    conn: &Connection,
    tenant_no: i64,
    schedule: &ScheduleId,
) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT no FROM schedules WHERE tenant_no = ?1 AND id = ?2")?
        .query_row((tenant_no, schedule.as_str()), |row| row.get(0))
        .optional()
}

fn list(
    conn: &Connection,
    tenant: &TenantId,
    page: &PageRequest<(Timestamp, ScheduleId)>,
) -> rusqlite::Result<Page<StoredSchedule, (Timestamp, ScheduleId)>> {
    let before = page.before.as_ref();
    let mut statement = conn.prepare_cached(
        "SELECT no, octet_length(definition) FROM schedules WHERE tenant_no = ?1 \
         AND (?2 IS NULL OR (created_at, id) < (?2, ?3)) ORDER BY created_at DESC, id DESC LIMIT ?4",
    )?;
    let mut rows = statement.query(params![
        live_tenant(conn, tenant)?,
        before.map(|(created_at, _)| ms(*created_at)),
        before.map(|(_, id)| id.as_str()),
        one_more(page.limit),
    ])?;
    let mut budget = DefinitionBudget::new(page.limit, MAX_SCHEDULE_PAGE_BYTES);
    let mut found = Page {
        items: Vec::new(),
        next: None,
    };
    while let Some(row) = rows.next()? {
        if !budget.admit(row.get::<_, i64>(1)? as usize) {
            let last = found.items.last();
            found.next = last.map(|last: &StoredSchedule| (last.created_at, last.id.clone()));
            break;
        }
        found
            .items
            .push(numbered(conn, row.get(0)?, tenant.clone())?);
    }
    Ok(found)
}

/// Reads the schedule with this number.
fn numbered(conn: &Connection, no: i64, tenant: TenantId) -> rusqlite::Result<StoredSchedule> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM schedules s WHERE s.no = ?1"
    ))?
    .query_row([no], |row| read(row, tenant))
}

fn runs(
    conn: &Connection,
    tenant: &TenantId,
    schedule: &ScheduleId,
    page: PageRequest<u64>,
) -> rusqlite::Result<Page<StoredRun, u64>> {
    let no = match live_tenant(conn, tenant)? {
        Some(tenant_no) => number_of(conn, tenant_no, schedule)?,
        None => None,
    };
    let before = page.before.map_or(i64::MAX, |before| before as i64);
    let items = conn
        .prepare_cached(
            "SELECT number, scheduled_for, started_at, status, event, reason FROM schedule_runs \
             WHERE schedule_no = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3",
        )?
        .query_map((no, before, one_more(page.limit)), |row| {
            Ok(StoredRun {
                number: row.get::<_, i64>(0)? as u64,
                scheduled_for: at(row.get(1)?),
                started_at: at(row.get(2)?),
                status: row.get::<_, Code<_>>(3)?.0,
                event: event_id(row, 4)?,
                reason: row.get(5)?,
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.number))
}

/// The schedules that are due. A large definition is not read before it is known to fit.
const DUE: &str = "SELECT s.no, s.due, s.id, t.id, octet_length(s.definition) FROM schedules s \
    JOIN tenants t ON t.no = s.tenant_no WHERE s.due <= ?1 ORDER BY s.due, s.no";
/// The due time of the first schedule that is not due.
const NEXT_DUE: &str = "SELECT min(due) FROM schedules WHERE due > ?1";

fn due(
    conn: &Connection,
    now: Timestamp,
    selection: &DueSelection,
) -> rusqlite::Result<DueSchedules> {
    let except: HashSet<(&str, &str)> = selection
        .except
        .iter()
        .map(|(tenant, schedule)| (tenant.as_str(), schedule.as_str()))
        .collect();
    let mut statement = conn.prepare_cached(DUE)?;
    let mut rows = statement.query([ms(now)])?;
    let mut budget = DefinitionBudget::new(selection.limit, selection.max_bytes);
    let mut found = DueSchedules::default();
    while let Some(row) = rows.next()? {
        let key = (row.get_ref(3)?.as_str()?, row.get_ref(2)?.as_str()?);
        let mut tenants = selection.except_tenants.iter();
        if except.contains(&key) || tenants.any(|tenant| tenant.as_str() == key.0) {
            continue;
        }
        if !budget.admit(row.get::<_, i64>(4)? as usize) {
            found.next_due_at = Some(at(row.get(1)?));
            return Ok(found);
        }
        let tenant = parse(key.0)?;
        found.schedules.push(numbered(conn, row.get(0)?, tenant)?);
    }
    let next: Option<i64> = conn
        .prepare_cached(NEXT_DUE)?
        .query_row([ms(now)], |row| row.get(0))?;
    found.next_due_at = next.map(at);
    Ok(found)
}

fn progress_of(
    conn: &Connection,
    tenant: &TenantId,
    event: EventId,
) -> rusqlite::Result<EventProgress> {
    let Some(tenant_no) = live_tenant(conn, tenant)? else {
        return Ok(EventProgress::Finished);
    };
    let incomplete = super::fan_out::incomplete_events(conn)?;
    let key = super::row_keys::key_of(event.0);
    if incomplete
        .iter()
        .any(|(first, last)| (first..=last).contains(&&key))
    {
        return Ok(EventProgress::Unfinished);
    }
    let mut statement = conn.prepare_cached("SELECT status FROM deliveries WHERE key = ?1")?;
    let mut progress = EventProgress::Finished;
    for delivery in deliveries_of(conn, tenant_no, event)? {
        let status = statement
            .query_row([delivery], |row| row.get::<_, Code<RowStatus>>(0))
            .optional()?;
        match status.map(|status| status.0) {
            Some(RowStatus::Pending | RowStatus::Retrying) => {
                return Ok(EventProgress::Unfinished);
            }
            Some(RowStatus::Failed) => progress = EventProgress::Failed,
            Some(RowStatus::Succeeded | RowStatus::Cancelled) | None => {}
        }
    }
    Ok(progress)
}

/// Deletes expired runs of the next schedules that have runs, and the runs of schedules that were deleted with their
/// tenant. `kept_for` returns how long the runs of a tenant are kept. Returns the schedule after which the next round
/// continues, or 0 if it was the last.
pub(super) fn delete_expired_runs(
    conn: &Connection,
    now: Timestamp,
    above: i64,
    examined: usize,
    mut kept_for: impl FnMut(i64) -> rusqlite::Result<posthaste_core::time::Span>,
) -> rusqlite::Result<i64> {
    let mut last = above;
    for _ in 0..examined {
        let next: Option<i64> = conn
            .prepare_cached("SELECT min(schedule_no) FROM schedule_runs WHERE schedule_no > ?1")?
            .query_row([last], |row| row.get(0))?;
        let Some(no) = next else {
            return Ok(0);
        };
        last = no;
        let tenant_no: Option<i64> = conn
            .prepare_cached("SELECT tenant_no FROM schedules WHERE no = ?1")?
            .query_row([no], |row| row.get(0))
            .optional()?;
        let Some(tenant_no) = tenant_no else {
            conn.prepare_cached("DELETE FROM schedule_runs WHERE schedule_no = ?1")?
                .execute([no])?;
            continue;
        };
        let keep = kept_for(tenant_no)?;
        let mut statement = conn.prepare_cached(
            "SELECT number, started_at FROM schedule_runs WHERE schedule_no = ?1 ORDER BY number",
        )?;
        let mut rows = statement.query([no])?;
        let mut expired = None;
        while let Some(row) = rows.next()? {
            if !has_expired(at(row.get(1)?), keep, now) {
                break;
            }
            expired = Some(row.get::<_, i64>(0)?);
        }
        drop(rows);
        if let Some(expired) = expired {
            conn.prepare_cached(
                "DELETE FROM schedule_runs WHERE schedule_no = ?1 AND number <= ?2",
            )?
            .execute((no, expired))?;
        }
    }
    Ok(last)
}

/// Reads the run of an event from two columns.
pub(super) fn scheduled_run(
    row: &Row<'_>,
    schedule: usize,
) -> rusqlite::Result<Option<ScheduledRun>> {
    let Some(id) = row.get_ref(schedule)?.as_str_or_null()? else {
        return Ok(None);
    };
    Ok(Some(ScheduledRun {
        schedule: parse(id)?,
        scheduled_for: at(row.get(schedule + 1)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of the query plan.
    fn plan(conn: &Connection, sql: &str) -> String {
        let mut statement = conn
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .expect("valid SQL");
        let steps = statement
            .query_map([0_i64], |row| row.get::<_, String>(3))
            .expect("a plan");
        let steps: Result<Vec<String>, _> = steps.collect();
        steps.expect("steps").join("\n")
    }

    #[test]
    fn schedules_that_are_not_due_are_not_read() {
        let conn = Connection::open_in_memory().expect("it opens");
        conn.execute_batch(
            "CREATE TABLE tenants (no INTEGER PRIMARY KEY, id TEXT NOT NULL); CREATE TABLE events (no INTEGER PRIMARY KEY)",
        )
        .expect("tables");
        conn.execute_batch(include_str!("schedules.sql"))
            .expect("the migration applies");
        for sql in [DUE, NEXT_DUE] {
            let plan = plan(&conn, sql);
            assert!(plan.contains("INDEX due_schedules (due"), "{sql}: {plan}");
            assert!(!plan.contains("SCAN"), "{sql}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        }
    }
}
