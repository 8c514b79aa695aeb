//! Deletes rows of a large day that expire before the day is dropped.
//!
//! A tenant with a shorter retention than others on the same day does not wait for the whole day. If such tenants are
//! few, their rows are found by an index on the tenant; otherwise the whole day is scanned. Both go in small steps,
//! and each row is judged by the present settings of its tenant.

use posthaste_core::time::Timestamp;

use super::partition_plan::{MAX_CLOCK_LAG, ScanResult, ScanScope, Walk, early};
use super::run::{EVENT_COLUMNS, EventToCheck, a_step, act, kept_of_events};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, most};
use crate::postgres::schema::partitions::Day;
use crate::postgres::write::write_context::WriteContext;
use crate::{Retention, RetentionStepResult};

/// Runs one step. Returns what was deleted, and the position.
pub(in crate::postgres) async fn stroll(
    scene: &mut WriteContext,
    now: Timestamp,
    retention: &Retention,
    day: Day,
    walk: Walk,
) -> Result<(RetentionStepResult, ScanResult), DbError> {
    let (events, more) = look_at(&scene.link, day, walk, retention.step).await?;
    let kept = kept_of_events(&scene.link, &events, retention).await?;
    let last = events.last().map(|event| event.id);
    let settled = last_safe_id(&events, now);
    let kept = |event: &EventToCheck| early(kept[&event.tenant_no], walk.whole);
    let (tidied, until) = act(scene, now, events, kept).await?;
    let walked = ScanResult {
        last,
        settled,
        more,
        until,
    };
    Ok((tidied, walked))
}

/// Returns the last of these events before which no other can be inserted any more.
pub(in crate::postgres) fn last_safe_id(events: &[EventToCheck], now: Timestamp) -> Option<Id> {
    let settled = now.0.saturating_sub(MAX_CLOCK_LAG.as_millis());
    let older = |event: &&EventToCheck| ((event.id.0 >> 80) as u64) < settled;
    events.iter().rev().find(older).map(|event| event.id)
}

async fn look_at(
    link: &PgConnection,
    day: Day,
    walk: Walk,
    count: usize,
) -> Result<(Vec<EventToCheck>, bool), DbError> {
    let name = day.partition("events");
    let rows = match walk.whose {
        ScanScope::Tenant(no) => {
            let sql = format!(
                "SELECT {EVENT_COLUMNS} FROM {name} WHERE tenant_no = $1 AND id > $2 \
                 ORDER BY tenant_no, id LIMIT $3"
            );
            link.query(&sql, &[&no, &walk.above, &most(count)]).await?
        }
        ScanScope::Everybody => {
            let sql =
                format!("SELECT {EVENT_COLUMNS} FROM {name} WHERE id > $1 ORDER BY id LIMIT $2");
            link.query(&sql, &[&walk.above, &most(count)]).await?
        }
    };
    Ok(a_step(&rows, count))
}
