//! Writes schedules: creates, replaces, deletes and postpones them.
//!
//! The row of the tenant is locked while one of its schedules is created or deleted, so that the number of schedules is
//! exact and the tenant exists until the commit. Every change notifies the node that owns the schedule. `advances` writes
//! the decisions about schedules.

use posthaste_core::cluster::Shard;
use posthaste_core::id::{ScheduleId, TenantId};
use posthaste_core::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::notify_message::{CLUSTER_CHANNEL, SCHEDULES};
use super::write_context::WriteContext;
use crate::codes::ms;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{EnumCode, Id};
use crate::{CreateResult, ReplaceResult, ScheduleVersion, StoredSchedule};

/// Creates a schedule.
pub(in crate::postgres) async fn create(
    context: &mut WriteContext,
    schedule: &StoredSchedule,
    at_most: u32,
) -> Result<CreateResult, DbError> {
    let conn = context.conn.clone();
    let Some((tenant_no, count)) = locked_tenant(context, &schedule.tenant).await? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let sql = "SELECT 1 FROM schedules WHERE tenant_no = $1 AND id = $2";
    let taken = conn
        .query_opt(sql, &[&tenant_no, &schedule.id.as_str()])
        .await?;
    if taken.is_some() {
        return Ok(CreateResult::Taken);
    }
    if count >= i64::from(at_most) {
        return Ok(CreateResult::TooMany);
    }
    set_count(context, tenant_no, count + 1).await?;
    let shard = Shard::of_schedule(&schedule.tenant, &schedule.id).number() as i16;
    let sql = "INSERT INTO schedules (tenant_no, id, shard, created_at, runs, revision, status, due, \
         next_run_at, last_run_at, last_event, run_count, failed_runs, progress, definition) \
         VALUES ($1, $2, $3, $4, 0, 0, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let params: [&(dyn ToSql + Sync); 13] = [
        &tenant_no,
        &schedule.id.as_str(),
        &shard,
        &ms(schedule.created_at),
        &EnumCode(schedule.status),
        &schedule.due_at().map(ms),
        &schedule.next_run_at.map(ms),
        &schedule.last_run_at.map(ms),
        &schedule.last_event.map(|event| Id(event.0)),
        &(schedule.run_count as i64),
        &(schedule.failed_runs as i32),
        &schedule.progress,
        &schedule.definition,
    ];
    conn.execute(sql, &params).await?;
    notify_owner(context, &schedule.tenant, &schedule.id).await?;
    Ok(CreateResult::Created)
}

/// Replaces a schedule.
pub(in crate::postgres) async fn replace(
    context: &mut WriteContext,
    schedule: &StoredSchedule,
) -> Result<ReplaceResult, DbError> {
    let conn = context.conn.clone();
    let sql = "SELECT s.no FROM schedules s JOIN tenants t ON t.no = s.tenant_no \
         WHERE t.id = $1 AND NOT t.deleted AND s.id = $2";
    let (tenant, id) = (schedule.tenant.as_str(), schedule.id.as_str());
    let Some(row) = conn.query_opt(sql, &[&tenant, &id]).await? else {
        return Ok(ReplaceResult::NotFound);
    };
    let no: i64 = row.get(0);
    let sql = "UPDATE schedules SET status = $4, due = $5, next_run_at = $6, last_run_at = $7, \
         last_event = $8, run_count = $9, failed_runs = $10, progress = $11, definition = $12, \
         revision = revision + 1 WHERE no = $1 AND revision = $2 AND created_at = $3";
    let params: [&(dyn ToSql + Sync); 12] = [
        &no,
        &(schedule.revision as i64),
        &ms(schedule.created_at),
        &EnumCode(schedule.status),
        &schedule.due_at().map(ms),
        &schedule.next_run_at.map(ms),
        &schedule.last_run_at.map(ms),
        &schedule.last_event.map(|event| Id(event.0)),
        &(schedule.run_count as i64),
        &(schedule.failed_runs as i32),
        &schedule.progress,
        &schedule.definition,
    ];
    if conn.execute(sql, &params).await? == 0 {
        return Ok(ReplaceResult::Outdated);
    }
    notify_owner(context, &schedule.tenant, &schedule.id).await?;
    Ok(ReplaceResult::Done)
}

/// Deletes a schedule with its runs.
pub(in crate::postgres) async fn delete(
    context: &mut WriteContext,
    tenant: &TenantId,
    schedule: &ScheduleId,
) -> Result<bool, DbError> {
    let conn = context.conn.clone();
    let Some((tenant_no, count)) = locked_tenant(context, tenant).await? else {
        return Ok(false);
    };
    let sql = "DELETE FROM schedules WHERE tenant_no = $1 AND id = $2 RETURNING no";
    let deleted = conn
        .query_opt(sql, &[&tenant_no, &schedule.as_str()])
        .await?;
    let Some(row) = deleted else {
        return Ok(false);
    };
    let no: i64 = row.get(0);
    conn.execute("DELETE FROM schedule_runs WHERE schedule_no = $1", &[&no])
        .await?;
    set_count(context, tenant_no, count - 1).await?;
    Ok(true)
}

/// Deletes the schedules of a tenant. A retention run deletes their runs.
pub(super) fn delete_of_tenant(context: &mut WriteContext, tenant_no: i64) {
    let sql = "DELETE FROM schedules WHERE tenant_no = $1";
    context.write_last(sql, move |conn| async move {
        conn.execute(sql, &[&tenant_no]).await?;
        Ok(())
    });
}

/// Makes a schedule due at another time.
pub(in crate::postgres) async fn postpone(
    context: &mut WriteContext,
    (tenant, schedule): (&TenantId, &ScheduleId),
    version: ScheduleVersion,
    until: Timestamp,
) -> Result<bool, DbError> {
    let sql = "UPDATE schedules s SET due = $5 FROM tenants t WHERE t.no = s.tenant_no AND t.id = $1 \
         AND NOT t.deleted AND s.id = $2 AND s.created_at = $3 AND s.revision = $4 AND s.due IS NOT NULL";
    let params: [&(dyn ToSql + Sync); 5] = [
        &tenant.as_str(),
        &schedule.as_str(),
        &ms(version.created_at),
        &(version.revision as i64),
        &ms(until),
    ];
    Ok(context.conn.execute(sql, &params).await? == 1)
}

/// Makes the schedules that were postponed to later than `latest` due at their next occurrence.
pub(in crate::postgres) async fn end_postponements(
    context: &mut WriteContext,
    latest: Timestamp,
) -> Result<u64, DbError> {
    let sql = "UPDATE schedules SET due = next_run_at WHERE due > $1 AND due > next_run_at";
    context.conn.execute(sql, &[&ms(latest)]).await
}

/// Locks a tenant that is not deleted. Returns its number and the number of its schedules.
async fn locked_tenant(
    context: &WriteContext,
    tenant: &TenantId,
) -> Result<Option<(i64, i64)>, DbError> {
    let sql = "SELECT no, schedules FROM tenants WHERE id = $1 AND NOT deleted FOR NO KEY UPDATE";
    let row = context.conn.query_opt(sql, &[&tenant.as_str()]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}

async fn set_count(context: &WriteContext, tenant_no: i64, count: i64) -> Result<(), DbError> {
    let sql = "UPDATE tenants SET schedules = $2 WHERE no = $1";
    context.conn.execute(sql, &[&tenant_no, &count]).await?;
    Ok(())
}

/// Notifies the node that owns a schedule, unless it is this one.
async fn notify_owner(
    context: &WriteContext,
    tenant: &TenantId,
    schedule: &ScheduleId,
) -> Result<(), DbError> {
    let shard = Shard::of_schedule(tenant, schedule).number() as i16;
    let me = context.owned_shards.me().0 as i64;
    let sql = format!(
        "SELECT pg_notify('{CLUSTER_CHANNEL}_' || owner, '{SCHEDULES}') FROM shards \
         WHERE no = $1 AND owner <> $2"
    );
    context.conn.execute(&sql, &[&shard, &me]).await?;
    Ok(())
}
