//! Deletes expired runs of schedules, some in each retention run.
//!
//! The number of runs of a schedule is limited when runs are added; here they expire with the events of their tenant. The
//! runs of schedules that were deleted with their tenant are deleted too.

use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::run::retention_by_tenant;
use crate::Retention;
use crate::codes::ms;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// Maximum number of schedules that one retention run examines.
const SCHEDULES_AT_ONCE: i64 = 500;

/// Deletes expired runs of the next schedules that have runs. Returns the schedule after which the next retention run
/// continues, or 0 if it was the last.
pub(super) async fn delete_expired(
    conn: &PgConnection,
    now: Timestamp,
    retention: &Retention,
    above: i64,
) -> Result<i64, DbError> {
    // Takes one index step for each schedule.
    let sql = "WITH RECURSIVE walk AS ( \
         (SELECT schedule_no, 1 AS place FROM schedule_runs WHERE schedule_no > $1 \
         ORDER BY schedule_no LIMIT 1) UNION ALL \
         SELECT n.schedule_no, walk.place + 1 FROM walk, LATERAL (SELECT schedule_no FROM schedule_runs \
         WHERE schedule_no > walk.schedule_no ORDER BY schedule_no LIMIT 1) n WHERE walk.place < $2) \
         SELECT walk.schedule_no, s.tenant_no FROM walk LEFT JOIN schedules s ON s.no = walk.schedule_no \
         ORDER BY walk.schedule_no";
    let rows = conn
        .query(sql, &[&above, &(SCHEDULES_AT_ONCE as i32)])
        .await?;
    let mut tenants: Vec<i64> = rows.iter().filter_map(|row| row.get(1)).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let kept = retention_by_tenant(conn, &tenants, retention).await?;
    let latest_expired: FxHashMap<i64, i64> = kept
        .iter()
        .map(|(no, kept)| {
            (
                *no,
                ms(now).saturating_sub(kept.deliveries.as_millis() as i64),
            )
        })
        .collect();
    let (mut numbers, mut until) = (Vec::new(), Vec::new());
    for row in &rows {
        numbers.push(row.get::<_, i64>(0));
        let tenant_no: Option<i64> = row.get(1);
        until.push(tenant_no.map_or(i64::MAX, |no| latest_expired[&no]));
    }
    // Runs are deleted from the oldest to the first that has not expired.
    let sql = "DELETE FROM schedule_runs d USING unnest($1::bigint[], $2::bigint[]) AS g (no, until) \
         WHERE d.schedule_no = g.no AND d.number < coalesce((SELECT r.number FROM schedule_runs r \
         WHERE r.schedule_no = g.no AND r.started_at > g.until ORDER BY r.number LIMIT 1), \
         9223372036854775807)";
    conn.execute(sql, &[&numbers, &until]).await?;
    let is_full = rows.len() as i64 == SCHEDULES_AT_ONCE;
    Ok(numbers.last().copied().filter(|_| is_full).unwrap_or(0))
}
