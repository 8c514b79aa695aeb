//! Drops the partitions of old days that are empty.
//!
//! Retention runs delete most rows one by one where tenants keep them for different times. The partitions that remain
//! are dropped here, so that the number of partitions stays close to the number of days that are kept.

use posthaste_core::time::{Span, Timestamp};

use super::large_days::{days, drop_partitions, lock_partitions, with_exclusive_locks};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::partitions::Day;
use crate::postgres::write::write_context::WriteContext;

/// Minimum age of an empty day before it is dropped, so that no node drops a partition that another is about to fill.
const EMPTY_FOR: Span = Span::from_days(3);
/// Interval of looking for empty days.
const EMPTY_EVERY: Span = Span::from_hours(1);
/// Maximum number of empty days that are dropped in one step.
const EMPTY_AT_ONCE: usize = 8;

/// Drops old days that are empty, unless the last search was recent. Returns the time of the last complete search.
pub(super) async fn drop_empty(
    context: &mut WriteContext,
    now: Timestamp,
    searched_at: Option<Timestamp>,
) -> Result<Option<Timestamp>, DbError> {
    let lately = searched_at.filter(|at| (*at..at.after(EMPTY_EVERY)).contains(&now));
    if lately.is_some() {
        return Ok(lately);
    }
    let conn = context.conn.clone();
    let young = Day::at(Timestamp(now.0.saturating_sub(EMPTY_FOR.as_millis())));
    let mut dropped = 0;
    for (day, _) in days(&conn).await? {
        if day >= young || dropped == EMPTY_AT_ONCE {
            break;
        }
        if !is_empty(&conn, day).await? {
            continue;
        }
        let gone = with_exclusive_locks(&conn, day, drop_one_empty(&conn, day)).await?;
        if gone.is_none() {
            break;
        }
        dropped += 1;
    }
    if dropped > 0 {
        context.partitions.forget();
    }
    Ok((dropped < EMPTY_AT_ONCE).then_some(now))
}

/// Drops a day if it is still empty after it is locked.
async fn drop_one_empty(conn: &PgConnection, day: Day) -> Result<Option<()>, DbError> {
    lock_partitions(conn, day).await?;
    if !is_empty(conn, day).await? {
        return Ok(None);
    }
    drop_partitions(conn, day).await?;
    Ok(Some(()))
}

async fn is_empty(conn: &PgConnection, day: Day) -> Result<bool, DbError> {
    let row = conn
        .query_one(
            "SELECT NOT EXISTS (SELECT 1 FROM events WHERE id >= $1 AND id < $2) AND NOT EXISTS \
             (SELECT 1 FROM ended WHERE id >= $1 AND id < $2) AND NOT EXISTS \
             (SELECT 1 FROM attempts WHERE delivery_id >= $1 AND delivery_id < $2) AND NOT EXISTS \
             (SELECT 1 FROM waiting WHERE id >= $1 AND id < $2)",
            &[&Id(day.first_id()), &Id(day.next().first_id())],
        )
        .await?;
    Ok(row.get(0))
}
