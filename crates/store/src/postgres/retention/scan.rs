//! Deletes rows of a large day that expire before the day is dropped.
//!
//! A tenant with a shorter retention than others on the same day does not wait for the whole day. If such tenants are
//! few, their rows are found by an index on the tenant; otherwise the whole day is scanned. Both go in small steps,
//! and each row is judged by the present settings of its tenant.

use posthaste_core::time::Timestamp;

use super::partition_plan::{MAX_CLOCK_LAG, ScanResult, ScanScope, ScanStep, early};
use super::run::{EVENT_COLUMNS, ScannedEvent, a_step, delete_expired, kept_of_events};
use crate::codes::sql_limit;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::partitions::Day;
use crate::postgres::write::write_context::WriteContext;
use crate::{Retention, RetentionStepResult};

/// Runs one step. Returns what was deleted, and the position.
pub(super) async fn run_scan_step(
    context: &mut WriteContext,
    now: Timestamp,
    retention: &Retention,
    day: Day,
    scan_step: ScanStep,
) -> Result<(RetentionStepResult, ScanResult), DbError> {
    let (events, more) = read_events(&context.conn, day, scan_step, retention.step).await?;
    let kept = kept_of_events(&context.conn, &events, retention).await?;
    let last = events.last().map(|event| event.id);
    let settled = last_safe_id(&events, now);
    let kept = |event: &ScannedEvent| early(kept[&event.tenant_no], scan_step.whole);
    let (deleted, until) = delete_expired(context, now, events, kept).await?;
    let scanned = ScanResult {
        last,
        settled,
        more,
        until,
    };
    Ok((deleted, scanned))
}

/// Returns the last of these events before which no other can be inserted any more.
pub(super) fn last_safe_id(events: &[ScannedEvent], now: Timestamp) -> Option<Id> {
    let settled = now.0.saturating_sub(MAX_CLOCK_LAG.as_millis());
    let older = |event: &&ScannedEvent| ((event.id.0 >> 80) as u64) < settled;
    events.iter().rev().find(older).map(|event| event.id)
}

async fn read_events(
    conn: &PgConnection,
    day: Day,
    scan_step: ScanStep,
    count: usize,
) -> Result<(Vec<ScannedEvent>, bool), DbError> {
    let name = day.partition("events");
    let rows = match scan_step.scope {
        ScanScope::Tenant(no) => {
            let sql = format!(
                "SELECT {EVENT_COLUMNS} FROM {name} WHERE tenant_no = $1 AND id > $2 \
                 ORDER BY tenant_no, id LIMIT $3"
            );
            conn.query(&sql, &[&no, &scan_step.above, &sql_limit(count)])
                .await?
        }
        ScanScope::AllTenants => {
            let sql =
                format!("SELECT {EVENT_COLUMNS} FROM {name} WHERE id > $1 ORDER BY id LIMIT $2");
            conn.query(&sql, &[&scan_step.above, &sql_limit(count)])
                .await?
        }
    };
    Ok(a_step(&rows, count))
}
