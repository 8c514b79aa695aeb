//! Reads schedules and their runs.
//!
//! Schedules are read in two steps: first their sizes, so that the definitions that are read then fit into the memory that
//! is allowed for them.

use std::collections::HashSet;

use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::directory::live_tenant;
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, parse, word};
use crate::postgres::schema::event_rows::read_list;
use crate::{
    DefinitionBudget, DueSchedules, DueSelection, EventProgress, MAX_SCHEDULE_PAGE_BYTES, Page,
    PageRequest, StoredRun, StoredSchedule,
};

/// Maximum number of deliveries whose states one statement reads.
const MAX_DELIVERIES_AT_ONCE: usize = 10_000;

const COLUMNS: &str = "s.id, s.definition, s.progress, s.status, s.next_run_at, s.last_run_at, \
    s.last_event, s.run_count, s.failed_runs, s.created_at, s.revision, t.id";

fn read(row: &Row) -> Result<StoredSchedule, DbError> {
    Ok(StoredSchedule {
        tenant: parse(row.get(11))?,
        id: parse(row.get(0))?,
        definition: row.get(1),
        progress: row.get(2),
        status: word(row, 3)?,
        next_run_at: row.get::<_, Option<i64>>(4).map(at),
        last_run_at: row.get::<_, Option<i64>>(5).map(at),
        last_event: row.get::<_, Option<Id>>(6).map(|id| EventId(id.0)),
        run_count: row.get::<_, i64>(7) as u64,
        failed_runs: row.get::<_, i32>(8) as u32,
        created_at: at(row.get(9)),
        revision: row.get::<_, i64>(10) as u64,
    })
}

/// Returns a schedule.
pub(in crate::postgres) async fn schedule(
    conn: &PgConnection,
    tenant: &TenantId,
    schedule: &ScheduleId,
) -> Result<Option<StoredSchedule>, DbError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM schedules s JOIN tenants t ON t.no = s.tenant_no \
         WHERE t.id = $1 AND NOT t.deleted AND s.id = $2"
    );
    let row = conn
        .query_opt(&sql, &[&tenant.as_str(), &schedule.as_str()])
        .await?;
    row.as_ref().map(read).transpose()
}

/// Lists the schedules of a tenant.
pub(in crate::postgres) async fn schedules(
    conn: &PgConnection,
    tenant: &TenantId,
    page: &PageRequest<(Timestamp, ScheduleId)>,
) -> Result<Page<StoredSchedule, (Timestamp, ScheduleId)>, DbError> {
    let Some(tenant_no) = live_tenant(conn, tenant).await? else {
        let items = Vec::new();
        return Ok(Page { items, next: None });
    };
    let (created_at, id) = match &page.before {
        Some((created_at, id)) => (ms(*created_at), Some(id.as_str())),
        None => (i64::MAX, None),
    };
    let sql = "SELECT s.no, s.created_at, s.id, octet_length(s.definition) FROM schedules s \
         WHERE s.tenant_no = $1 AND (s.created_at < $2 OR s.created_at = $2 AND s.id < $3) \
         AND s.created_at <= $2 ORDER BY s.created_at DESC, s.id DESC LIMIT $4";
    let rows = conn
        .query(sql, &[&tenant_no, &created_at, &id, &one_more(page.limit)])
        .await?;
    let mut budget = DefinitionBudget::new(page.limit, MAX_SCHEDULE_PAGE_BYTES);
    let mut numbers: Vec<i64> = Vec::new();
    let mut next = None;
    for (index, row) in rows.iter().enumerate() {
        if !budget.admit(row.get::<_, i32>(3) as usize) {
            let last = index.checked_sub(1).map(|index| &rows[index]);
            let key = |row: &Row| Ok::<_, DbError>((at(row.get(1)), parse(row.get(2))?));
            next = last.map(key).transpose()?;
            break;
        }
        numbers.push(row.get(0));
    }
    let items = numbered(conn, &numbers, "s.created_at DESC, s.id DESC").await?;
    Ok(Page { items, next })
}

/// Reads the schedules with these numbers.
async fn numbered(
    conn: &PgConnection,
    numbers: &[i64],
    order: &str,
) -> Result<Vec<StoredSchedule>, DbError> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM schedules s JOIN tenants t ON t.no = s.tenant_no \
         WHERE s.no = ANY ($1) ORDER BY {order}"
    );
    let rows = conn.query(&sql, &[&numbers]).await?;
    rows.iter().map(read).collect()
}

/// Lists the runs of a schedule.
pub(in crate::postgres) async fn runs(
    conn: &PgConnection,
    tenant: &TenantId,
    schedule: &ScheduleId,
    page: PageRequest<u64>,
) -> Result<Page<StoredRun, u64>, DbError> {
    let before = page.before.map_or(i64::MAX, |before| before as i64);
    let sql = "SELECT number, scheduled_for, started_at, status, event_id, reason FROM schedule_runs \
         WHERE schedule_no = (SELECT s.no FROM schedules s JOIN tenants t ON t.no = s.tenant_no \
         WHERE t.id = $1 AND NOT t.deleted AND s.id = $2) AND number < $3 \
         ORDER BY number DESC LIMIT $4";
    let (tenant, schedule) = (tenant.as_str(), schedule.as_str());
    let rows = conn
        .query(sql, &[&tenant, &schedule, &before, &one_more(page.limit)])
        .await?;
    let read = |row: &Row| {
        Ok(StoredRun {
            number: row.get::<_, i64>(0) as u64,
            scheduled_for: at(row.get(1)),
            started_at: at(row.get(2)),
            status: word(row, 3)?,
            event: row.get::<_, Option<Id>>(4).map(|id| EventId(id.0)),
            reason: row.get(5),
        })
    };
    let items = rows.iter().map(read).collect::<Result<Vec<_>, DbError>>()?;
    Ok(cut(items, page.limit, |last| last.number))
}

/// Returns the schedules of these shards that are due.
pub(in crate::postgres) async fn due(
    conn: &PgConnection,
    now: Timestamp,
    shards: &[i16],
    selection: &DueSelection,
) -> Result<DueSchedules, DbError> {
    let except: HashSet<(&str, &str)> = selection
        .except
        .iter()
        .map(|(tenant, schedule)| (tenant.as_str(), schedule.as_str()))
        .collect();
    // PostgreSQL knows the `octet_length` of a large value without fetching it.
    let sql = "SELECT s.no, s.due, t.id, s.id, octet_length(s.definition) FROM schedules s \
         JOIN tenants t ON t.no = s.tenant_no WHERE s.due <= $4 AND s.shard = ANY ($1) \
         AND NOT t.deleted AND t.id <> ALL ($3) ORDER BY s.due, s.no LIMIT $2";
    let limit = one_more(selection.limit.saturating_add(except.len()));
    let tenants = selection.except_tenants.iter();
    let tenants: Vec<&str> = tenants.map(TenantId::as_str).collect();
    let mut budget = DefinitionBudget::new(selection.limit, selection.max_bytes);
    let mut found = DueSchedules::default();
    let mut numbers: Vec<i64> = Vec::new();
    let params: [&(dyn ToSql + Sync); 4] = [&shards, &limit, &tenants, &ms(now)];
    for row in conn.query(sql, &params).await? {
        if except.contains(&(row.get(2), row.get(3))) {
            continue;
        }
        if !budget.admit(row.get::<_, i32>(4) as usize) {
            found.next_due_at = Some(at(row.get(1)));
            break;
        }
        numbers.push(row.get(0));
    }
    found.schedules = numbered(conn, &numbers, "s.due, s.no").await?;
    if found.next_due_at.is_none() {
        found.next_due_at = next_due(conn, now, shards).await?;
    }
    Ok(found)
}

/// Maximum number of schedules among which the next one of a node is searched.
const MAX_NEXT_SEARCHED: i64 = 1_000;

/// Returns the time at which the first schedule of these shards is due that is not due yet. If many schedules of others
/// are due earlier, it is the time of one of them, at which the search goes on.
async fn next_due(
    conn: &PgConnection,
    now: Timestamp,
    shards: &[i16],
) -> Result<Option<Timestamp>, DbError> {
    let sql = "SELECT coalesce(min(due) FILTER (WHERE shard = ANY ($2)), CASE count(*) WHEN $3 THEN max(due) END) \
         FROM (SELECT due, shard FROM schedules WHERE due > $1 ORDER BY due, no LIMIT $3) s";
    let row = conn
        .query_one(sql, &[&ms(now), &shards, &MAX_NEXT_SEARCHED])
        .await?;
    Ok(row.get::<_, Option<i64>>(0).map(at))
}

/// Counts the active schedules whose last runs have failed.
pub(in crate::postgres) async fn count_failing(
    conn: &PgConnection,
    limit: usize,
) -> Result<u64, DbError> {
    // The condition of the index; 0 is the status of an active schedule.
    let sql = "SELECT count(*) FROM (SELECT 1 FROM schedules WHERE failed_runs > 2 AND status = 0 LIMIT $1) s";
    let row = conn.query_one(sql, &[&sql_limit(limit)]).await?;
    Ok(row.get::<_, i64>(0) as u64)
}

/// Returns the states of the deliveries of some events.
pub(in crate::postgres) async fn event_progress(
    conn: &PgConnection,
    events: &[(TenantId, EventId)],
) -> Result<Vec<EventProgress>, DbError> {
    let (mut tenants, mut ids) = (Vec::new(), Vec::new());
    for (tenant, event) in events {
        tenants.push(tenant.as_str());
        ids.push(Id(event.0));
    }
    let sql = "SELECT g.place, v.deliveries, ARRAY(SELECT a.delivery_id FROM added a WHERE a.event_id = v.id) \
         FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS g (tenant, id, place) \
         JOIN events v ON v.id = g.id JOIN tenants t ON t.no = v.tenant_no \
         WHERE t.id = g.tenant AND NOT t.deleted";
    let mut deliveries: Vec<(Id, usize)> = Vec::new();
    for row in &conn.query(sql, &[&tenants, &ids]).await? {
        let place = row.get::<_, i64>(0) as usize - 1;
        let accepted = read_list(row.get(1)).into_iter().map(|it| Id(it.id.0));
        let added: Vec<Id> = row.get(2);
        deliveries.extend(accepted.chain(added).map(|id| (id, place)));
    }
    let mut progress = vec![EventProgress::Finished; events.len()];
    for piece in deliveries.chunks(MAX_DELIVERIES_AT_ONCE) {
        read_progress(conn, piece, &mut progress).await?;
    }
    Ok(progress)
}

/// Reads the states of some deliveries, each with a place of its event in `progress`.
async fn read_progress(
    conn: &PgConnection,
    deliveries: &[(Id, usize)],
    progress: &mut [EventProgress],
) -> Result<(), DbError> {
    // A delivery has several places if its event was asked for several times.
    let mut places: FxHashMap<Id, Vec<usize>> = FxHashMap::default();
    for (id, place) in deliveries {
        places.entry(*id).or_default().push(*place);
    }
    let ids: Vec<Id> = places.keys().copied().collect();
    // One statement, so that a delivery that ends at this moment is found in one of the tables. 3 is the status of a
    // failed delivery.
    let sql = "SELECT id, true FROM waiting WHERE id = ANY ($1) \
         UNION ALL SELECT id, false FROM ended WHERE id = ANY ($1) AND status = 3";
    for row in conn.query(sql, &[&ids]).await? {
        for place in &places[&row.get::<_, Id>(0)] {
            progress[*place] = match (row.get(1), progress[*place]) {
                (true, _) | (_, EventProgress::Unfinished) => EventProgress::Unfinished,
                (false, EventProgress::Failed | EventProgress::Finished) => EventProgress::Failed,
            };
        }
    }
    Ok(())
}
