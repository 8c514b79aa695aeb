//! Deletes whole days by dropping their partitions.
//!
//! The rows of a day are in partitions of their own. A large day is never deleted row by row: its partitions are
//! dropped once all its rows have expired for every tenant that has some, and none of its deliveries waits. Rows of
//! other tables that belong to its events are deleted first, in small steps. Attempts are dropped as a whole before
//! that, if all tenants keep them for a shorter time. Rows that only some tenants keep for a shorter time are deleted
//! row by row ([`scan`](super::scan)). So are the expired rows of a day that a few waiting deliveries
//! keep from being dropped.
//!
//! Days that have become empty are dropped by [`empty_days`](super::empty_days).

use std::collections::BTreeMap;

use posthaste_core::id::DeliveryId;
use posthaste_core::time::{Span, Timestamp};

use super::delete_rows::{DeliverySet, lock_ended, remove_deliveries, store_last_id};
use super::partition_plan::{PartitionPlans, Task};
use super::run::retention_by_tenant;
use super::scan::run_scan_step;
use crate::codes::{ms, sql_limit};
use crate::postgres::connection::{LOCK_MS, PgConnection};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::event_rows::read_list;
use crate::postgres::schema::lock;
use crate::postgres::schema::partitions::{Day, PARTITIONED};
use crate::postgres::write::write_context::WriteContext;
use crate::retention::has_expired;
use crate::{Retention, RetentionPeriods, RetentionStepResult};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::tidy_days";

/// Lock timeout of dropping. Other transactions queue behind the lock request, so it is shorter than the server's
/// deadlock timeout.
const DROP_LOCK_MS: u32 = 100;
/// Maximum number of later added deliveries that are deleted together with their day, or in one step before it.
const ADDED_AT_ONCE: usize = 1_000;
/// Maximum number of idempotency keys that are deleted in one step.
const KEYS_AT_ONCE: i64 = 20_000;
/// Up to this number, events are counted exactly.
const COUNTED: i64 = 100_000;
/// Time before midnight in which an accepted event can have deliveries with ids of the next day. The ids of
/// deliveries directly follow the event's own id.
const MIDNIGHT_OVERLAP: Span = Span::from_secs(60);
/// Number of tenants per read of a survey.
const TENANTS_AT_ONCE: usize = 1_000;

/// The result of a step with a large day.
pub(in crate::postgres) struct Step {
    pub(in crate::postgres) deleted: RetentionStepResult,
    /// Nothing more can be done with this day for now.
    pub(in crate::postgres) over: bool,
}

impl Step {
    fn on(deleted: RetentionStepResult) -> Step {
        Step {
            deleted,
            over: false,
        }
    }
}

/// Returns the days that have partitions, the oldest first, with the size of each in bytes.
pub(in crate::postgres) async fn days(conn: &PgConnection) -> Result<Vec<(Day, u64)>, DbError> {
    let rows = conn
        .query(
            // A partition that another node is dropping has no size any more.
            "SELECT c.relname::text, coalesce(pg_relation_size(c.oid), 0) \
             + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) FROM pg_inherits i \
             JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = ANY(ARRAY['events'::regclass, 'ended'::regclass])",
            &[],
        )
        .await?;
    let mut days = BTreeMap::new();
    for row in &rows {
        if let Some(day) = day_named(row.get(0)) {
            *days.entry(day).or_insert(0) += row.get::<_, i64>(1) as u64;
        }
    }
    Ok(days.into_iter().collect())
}

/// Returns the day of the partition with this name.
fn day_named(name: &str) -> Option<Day> {
    let (_, date) = name.rsplit_once('_')?;
    let (year, month, day) = (date.get(..4)?, date.get(4..6)?, date.get(6..)?);
    let begins = format!("{year}-{month}-{day}T00:00:00Z");
    begins.parse().ok().map(Day::at)
}

/// Returns the large days, the oldest first.
pub(super) async fn large_days(context: &WriteContext) -> Result<Vec<Day>, DbError> {
    let days = days(&context.conn).await?.into_iter();
    let large = days.filter(|(_, bytes)| *bytes >= context.large_day_bytes);
    Ok(large.map(|(day, _)| day).collect())
}

/// Runs one step with a large day: drops it, or the parts that have expired for all tenants, when it is time;
/// otherwise deletes rows that some tenants keep for a shorter time than others.
pub(in crate::postgres) async fn step(
    context: &mut WriteContext,
    now: Timestamp,
    retention: &Retention,
    day: Day,
    partition_plans: &mut PartitionPlans,
) -> Result<Step, DbError> {
    let conn = context.conn.clone();
    // Small BRIN indexes show which pages of a large table can contain matching rows. The other pages must not be
    // read.
    conn.batch("SET LOCAL enable_seqscan = off").await?;
    loop {
        match partition_plans.next(day, now) {
            Task::Survey { above } => {
                let (found, above) = survey(&conn, retention, day, above).await?;
                partition_plans.surveyed(day, found, above);
                if above.is_some() {
                    return Ok(Step::on(RetentionStepResult::default()));
                }
            }
            Task::Drop { longest } => {
                let keep = longest.deliveries;
                if !has_ended(&conn, now, day, keep).await? {
                    continue;
                }
                match delete_added_deliveries(context, now, day, keep).await? {
                    AddedDeliveries::Few if !delete_idempotency_keys(&conn, day).await? => {}
                    AddedDeliveries::Held => continue,
                    AddedDeliveries::Few | AddedDeliveries::Deleted => {
                        partition_plans.try_again(day);
                        return Ok(Step::on(RetentionStepResult::default()));
                    }
                }
                if let Some(events) =
                    with_exclusive_locks(&conn, day, drop_large(context, now, day, keep)).await?
                {
                    partition_plans.forget_day(day);
                    let deleted = RetentionStepResult {
                        events,
                        ..RetentionStepResult::default()
                    };
                    return Ok(Step {
                        deleted,
                        over: true,
                    });
                }
            }
            Task::DropAttempts { longest } => {
                let keep = longest.attempts;
                if has_ended(&conn, now, day, keep).await?
                    && !has_no_attempts(&conn, day).await?
                    && let Some(attempts) =
                        with_exclusive_locks(&conn, day, drop_attempts(&conn, now, day, keep))
                            .await?
                {
                    return Ok(Step::on(RetentionStepResult {
                        attempts,
                        ..RetentionStepResult::default()
                    }));
                }
            }
            Task::ScanStep(scan_step) => {
                let (deleted, scanned) =
                    run_scan_step(context, now, retention, day, scan_step).await?;
                partition_plans.scanned(day, now, scan_step, scanned);
                if scanned.last.is_some() {
                    return Ok(Step::on(deleted));
                }
            }
            Task::Idle => {
                return Ok(Step {
                    deleted: RetentionStepResult::default(),
                    over: true,
                });
            }
        }
    }
}

/// Runs an action that needs exclusive locks. Rolls it back and returns `None` if other transactions hold locks for
/// too long.
pub(super) async fn with_exclusive_locks<T>(
    conn: &PgConnection,
    day: Day,
    act: impl Future<Output = Result<Option<T>, DbError>>,
) -> Result<Option<T>, DbError> {
    conn.batch(&format!(
        "SAVEPOINT day; SET LOCAL lock_timeout = {DROP_LOCK_MS}"
    ))
    .await?;
    match act.await {
        Ok(Some(done)) => {
            conn.batch(&format!("SET LOCAL lock_timeout = {LOCK_MS}"))
                .await?;
            Ok(Some(done))
        }
        Ok(None) => {
            conn.batch("ROLLBACK TO SAVEPOINT day").await?;
            Ok(None)
        }
        // Another transaction uses the partitions. A later step drops them.
        Err(fault) if fault.kind() == ErrorKind::Blocked => {
            conn.batch("ROLLBACK TO SAVEPOINT day").await?;
            tracing::info!(
                target: LOG_TARGET,
                day = day.partition("day"),
                "expired partitions are in use; dropping them later"
            );
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// Returns the next tenants that have rows in a day, their retention periods, and the number after which to continue
/// if there may be more.
async fn survey(
    conn: &PgConnection,
    retention: &Retention,
    day: Day,
    above: i64,
) -> Result<(Vec<(i64, RetentionPeriods)>, Option<i64>), DbError> {
    let mut tenants: Vec<i64> = Vec::new();
    let mut up_to = None;
    for table in ["events", "ended"] {
        // Jumps from one tenant to the next, independent of the number of rows of each.
        let name = day.partition(table);
        let rows = conn
            .query(
                &format!(
                    "WITH RECURSIVE t AS ((SELECT tenant_no FROM {name} WHERE tenant_no > $1 \
                     ORDER BY tenant_no LIMIT 1) \
                     UNION ALL SELECT (SELECT tenant_no FROM {name} WHERE tenant_no > t.tenant_no \
                     ORDER BY tenant_no LIMIT 1) FROM t WHERE t.tenant_no IS NOT NULL) \
                     SELECT tenant_no FROM t WHERE tenant_no IS NOT NULL LIMIT $2"
                ),
                &[&above, &sql_limit(TENANTS_AT_ONCE)],
            )
            .await?;
        let found: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if found.len() == TENANTS_AT_ONCE {
            up_to = [up_to, found.last().copied()].into_iter().flatten().min();
        }
        tenants.extend(found);
    }
    // Above the last tenant of a full read, the other table may have tenants that were not read.
    tenants.retain(|no| up_to.is_none_or(|up_to| *no <= up_to));
    tenants.sort_unstable();
    tenants.dedup();
    let kept = retention_by_tenant(conn, &tenants, retention).await?;
    let found = tenants.iter().map(|no| (*no, kept[no])).collect();
    Ok((found, up_to))
}

/// Returns whether all deliveries of a day ended at least this long ago.
async fn has_ended(
    conn: &PgConnection,
    now: Timestamp,
    day: Day,
    keep: Span,
) -> Result<bool, DbError> {
    let young = !has_expired(day.next().begins(), keep, now);
    Ok(!young && !waits(conn, day).await? && !ended_after(conn, day, now, keep).await?)
}

/// Returns whether a day has no rows in `attempts`.
async fn has_no_attempts(conn: &PgConnection, day: Day) -> Result<bool, DbError> {
    let name = day.partition("attempts");
    let sql = format!("SELECT NOT EXISTS (SELECT 1 FROM {name})");
    Ok(conn.query_one(&sql, &[]).await?.get(0))
}

/// Deletes all rows of a day in `attempts`. The last attempt of a delivery is in its own row and stays. Returns the
/// server's estimate of their number, or `None` if a delivery of the day has started to wait again.
async fn drop_attempts(
    conn: &PgConnection,
    now: Timestamp,
    day: Day,
    keep: Span,
) -> Result<Option<usize>, DbError> {
    lock_partitions(conn, day).await?;
    if !has_ended(conn, now, day, keep).await? {
        return Ok(None);
    }
    let name = day.partition("attempts");
    let sql = format!(
        "SELECT greatest(reltuples, 1)::bigint FROM pg_class WHERE oid = '{name}'::regclass"
    );
    let estimated: i64 = conn.query_one(&sql, &[]).await?.get(0);
    conn.batch(&format!("TRUNCATE {name}")).await?;
    Ok(Some(estimated as usize))
}

/// Returns whether a delivery of a day waits.
async fn waits(conn: &PgConnection, day: Day) -> Result<bool, DbError> {
    let row = conn
        .query_one(
            "SELECT EXISTS (SELECT 1 FROM waiting WHERE id >= $1 AND id < $2) OR EXISTS \
             (SELECT 1 FROM added a JOIN waiting w ON w.id = a.delivery_id \
             WHERE a.event_id >= $1 AND a.event_id < $2)",
            &[&Id(day.first_id()), &Id(day.next().first_id())],
        )
        .await?;
    Ok(row.get(0))
}

/// Returns whether a delivery of a day ended too recently to expire.
async fn ended_after(
    conn: &PgConnection,
    day: Day,
    now: Timestamp,
    keep: Span,
) -> Result<bool, DbError> {
    let name = day.partition("ended");
    let last = now.0.saturating_sub(keep.as_millis());
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {name} WHERE ended_at > $1)");
    let row = conn.query_one(&sql, &[&ms(Timestamp(last))]).await?;
    Ok(row.get(0))
}

/// Deletes some of the idempotency keys of a day. Returns false if there are none.
async fn delete_idempotency_keys(conn: &PgConnection, day: Day) -> Result<bool, DbError> {
    let gone = conn
        .execute(
            "DELETE FROM idempotency WHERE ctid = ANY(ARRAY(SELECT ctid FROM idempotency \
             WHERE event_id >= $1 AND event_id < $2 LIMIT $3))",
            &[
                &Id(day.first_id()),
                &Id(day.next().first_id()),
                &KEYS_AT_ONCE,
            ],
        )
        .await?;
    Ok(gone > 0)
}

/// The state of deliveries that were added to a day's events later.
enum AddedDeliveries {
    /// They are few, and are deleted with the day.
    Few,
    /// Some were deleted.
    Deleted,
    /// Some have not expired, or are locked.
    Held,
}

/// Deletes some of the deliveries that were added to a day's events later, if they are many. All other transactions
/// wait while the day itself is dropped, so that must be short.
async fn delete_added_deliveries(
    context: &mut WriteContext,
    now: Timestamp,
    day: Day,
    keep: Span,
) -> Result<AddedDeliveries, DbError> {
    let conn = context.conn.clone();
    let rows = conn
        .query(
            "SELECT event_id, endpoint_no, delivery_id FROM added \
             WHERE event_id >= $1 AND event_id < $2 LIMIT $3",
            &[
                &Id(day.first_id()),
                &Id(day.next().first_id()),
                &sql_limit(ADDED_AT_ONCE + 1),
            ],
        )
        .await?;
    if rows.len() <= ADDED_AT_ONCE {
        return Ok(AddedDeliveries::Few);
    }
    let events: Vec<Id> = rows.iter().map(|row| row.get(0)).collect();
    let endpoints: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
    let ids: Vec<DeliveryId> = rows
        .iter()
        .map(|row| DeliveryId(row.get::<_, Id>(2).0))
        .collect();
    let held = match DeliverySet::these(ids.iter().map(|id| Id(id.0)).collect()) {
        Some(among) => lock_ended(&conn, &among).await?.len(),
        None => 0,
    };
    if count_ended(&conn, &ids).await? != held || !have_ended(&conn, &ids, now, keep).await? {
        return Ok(AddedDeliveries::Held);
    }
    remove_deliveries(context, &ids).await?;
    conn.execute(
        "DELETE FROM added a USING unnest($1::uuid[], $2::bigint[]) AS g (event_id, endpoint_no) \
         WHERE a.event_id = g.event_id AND a.endpoint_no = g.endpoint_no",
        &[&events, &endpoints],
    )
    .await?;
    Ok(AddedDeliveries::Deleted)
}

/// Returns the number of these deliveries that have ended.
async fn count_ended(conn: &PgConnection, ids: &[DeliveryId]) -> Result<usize, DbError> {
    let Some(among) = DeliverySet::these(ids.iter().map(|id| Id(id.0)).collect()) else {
        return Ok(0);
    };
    let row = conn
        .query_one(
            "SELECT count(*) FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3",
            &[&among.ids, &among.first, &among.last],
        )
        .await?;
    Ok(row.get::<_, i64>(0) as usize)
}

/// Drops a large day. Returns the number of its events, or `None` if a delivery of the day has started to wait again.
async fn drop_large(
    context: &mut WriteContext,
    now: Timestamp,
    day: Day,
    longest: Span,
) -> Result<Option<usize>, DbError> {
    let conn = context.conn.clone();
    lock_partitions(&conn, day).await?;
    let stray = deliveries_in_other_partitions(&conn, day).await?;
    if waits(&conn, day).await?
        || ended_after(&conn, day, now, longest).await?
        || !have_ended(&conn, &stray, now, longest).await?
    {
        return Ok(None);
    }
    let events = count_events(&conn, day).await?;
    let ended = day.partition("ended");
    let sql =
        format!("SELECT endpoint_no, count(*) FROM {ended} WHERE status = 3 GROUP BY endpoint_no");
    let dead = conn.query(&sql, &[]).await?;
    let (first, past) = (Id(day.first_id()), Id(day.next().first_id()));
    conn.execute(
        "DELETE FROM added WHERE event_id >= $1 AND event_id < $2",
        &[&first, &past],
    )
    .await?;
    drop_partitions(&conn, day).await?;
    store_last_id(&conn, Id(past.0 - 1)).await?;
    remove_deliveries(context, &stray).await?;
    for row in &dead {
        let count_changes = &mut context.effects.count_changes;
        count_changes.add(row.get(0), 0, -row.get::<_, i64>(1));
    }
    context.partitions.forget();
    Ok(Some(events))
}

/// Returns the number of events of a day: exactly if they are quickly counted, otherwise as the server estimates.
async fn count_events(conn: &PgConnection, day: Day) -> Result<usize, DbError> {
    let name = day.partition("events");
    let sql = format!(
        "SELECT counted.n, (SELECT reltuples::bigint FROM pg_class WHERE oid = '{name}'::regclass) \
         FROM (SELECT count(*) AS n FROM (SELECT 1 FROM {name} LIMIT $1) few) counted"
    );
    let row = conn.query_one(&sql, &[&COUNTED]).await?;
    let (counted, estimated): (i64, i64) = (row.get(0), row.get(1));
    Ok(if counted < COUNTED {
        counted as usize
    } else {
        estimated.max(counted) as usize
    })
}

/// Locks a day's partitions against writes until the commit, and against row locks: a replay locks the events that it
/// makes deliveries of.
pub(super) async fn lock_partitions(conn: &PgConnection, day: Day) -> Result<(), DbError> {
    conn.execute("SELECT pg_advisory_xact_lock($1)", &[&lock::PARTITIONS])
        .await?;
    let names = PARTITIONED.map(|table| day.partition(table)).join(", ");
    conn.batch(&format!("LOCK TABLE {names} IN EXCLUSIVE MODE"))
        .await
}

/// Returns deliveries of a day's events that are in other partitions: those that were added later, and those of the
/// last minute before midnight.
async fn deliveries_in_other_partitions(
    conn: &PgConnection,
    day: Day,
) -> Result<Vec<DeliveryId>, DbError> {
    let past = day.next().first_id();
    let added = conn
        .query(
            "SELECT delivery_id FROM added WHERE event_id >= $1 AND event_id < $2",
            &[&Id(day.first_id()), &Id(past)],
        )
        .await?;
    let mut stray: Vec<DeliveryId> = added
        .iter()
        .map(|row| DeliveryId(row.get::<_, Id>(0).0))
        .collect();
    let late = u128::from(
        day.next()
            .begins()
            .0
            .saturating_sub(MIDNIGHT_OVERLAP.as_millis()),
    ) << 80;
    let sql = format!(
        "SELECT deliveries FROM {} WHERE id >= $1 AND substring(deliveries FROM \
         greatest(length(deliveries) - 31, 1) FOR 16) >= $2",
        day.partition("events")
    );
    let rows = conn
        .query(&sql, &[&Id(late), &past.to_be_bytes().as_slice()])
        .await?;
    for row in &rows {
        let accepted = read_list(row.get(0)).into_iter();
        stray.extend(
            accepted
                .map(|delivery| delivery.id)
                .filter(|id| id.0 >= past),
        );
    }
    Ok(stray)
}

/// Returns whether these deliveries ended at least this long ago.
async fn have_ended(
    conn: &PgConnection,
    ids: &[DeliveryId],
    now: Timestamp,
    keep: Span,
) -> Result<bool, DbError> {
    let ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else {
        return Ok(true);
    };
    let ended_by = Timestamp(now.0.saturating_sub(keep.as_millis()));
    let row = conn
        .query_one(
            "SELECT NOT EXISTS (SELECT 1 FROM waiting WHERE id = ANY($1)) AND NOT EXISTS \
             (SELECT 1 FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 AND ended_at > $4)",
            &[&ids, first, last, &ms(ended_by)],
        )
        .await?;
    Ok(row.get(0))
}

pub(super) async fn drop_partitions(conn: &PgConnection, day: Day) -> Result<(), DbError> {
    let names = PARTITIONED.map(|table| day.partition(table)).join(", ");
    conn.batch(&format!("DROP TABLE {names}")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_known_by_the_name_of_its_partition() {
        for at in [0, 951_782_400_000, 1_794_744_000_250] {
            let day = Day::at(Timestamp(at));
            assert_eq!(day_named(&day.partition("ended")), Some(day));
        }
        assert_eq!(day_named("events"), None);
        assert_eq!(day_named("events_2026"), None);
    }
}
