//! Records attempts, cancellations, expired deliveries, manual retries and sweeps.
//!
//! A record is written only if its delivery has not changed since; otherwise the answer is that it is superseded. A
//! sweep is made in steps, because its rows are all over the file.

use std::sync::Arc;

use posthaste_core::delivery::{DeadReason, Delivery};
use posthaste_core::dispatcher::{AttemptRecord, EndpointChange, Record};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};

use super::codes::{Code, RowStatus};
use super::delivery_rows::{self, DeliveryRow, RoundChange, to_json};
use super::endpoints::{self, find};
use super::group_commit::{WriteContext, is_unreadable};
use super::row_keys::{Key, key_of, look_up};
use super::{event_rows, notifications, stats};
use crate::codes::sql_limit;
use crate::delivery_state::{
    MAX_UNREADABLE_ROWS, expired_now, fail_waiting, failed_with, status_of,
};
use crate::stats::{of_attempt, of_dead_letter};
use crate::{AttemptDetail, AttemptEntry, DisabledReason, RetryResult, SweepResult, Written};

/// Maximum number of deliveries that one step of a sweep fails. Their rows are in different places of the file.
const MAX_SWEPT_AT_ONCE: usize = 256;

/// Writes a record, unless its delivery has changed since.
pub(super) fn record(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    record: &Record,
    detail: &AttemptDetail,
) -> rusqlite::Result<Written> {
    match record {
        Record::Attempt(attempt) => record_attempt(context, now, attempt, detail),
        Record::Cancel { delivery, at } => {
            let Some(row) = delivery_rows::find(context.conn, *delivery)? else {
                return Ok(Written::Superseded);
            };
            let mut after = row.delivery.clone();
            if after.cancel(*at).is_err() {
                return Ok(Written::Superseded);
            }
            put(context, &row, &after)?;
            Ok(Written::Applied)
        }
        Record::Expire(expired) => {
            let row = delivery_rows::find(context.conn, expired.id())?;
            let Some((row, after)) = row.and_then(|row| {
                let after = expired_now(&row.delivery, expired)?;
                Some((row, after))
            }) else {
                return Ok(Written::Superseded);
            };
            put(context, &row, &after)?;
            Ok(Written::Applied)
        }
    }
}

/// The part of a row that must be read before an attempt is written. The rest is overwritten.
struct PreviousState {
    endpoint_no: i64,
    status: RowStatus,
    attempts: u32,
}

fn before(conn: &Connection, id: DeliveryId) -> rusqlite::Result<Option<(Key, PreviousState)>> {
    let Some((key, tail)) = look_up(id.0) else {
        return Ok(None);
    };
    conn.prepare_cached(
        "SELECT endpoint_no, status, attempts FROM deliveries WHERE key = ?1 AND tail = ?2",
    )?
    .query_row((key, tail), |row| {
        let before = PreviousState {
            endpoint_no: row.get(0)?,
            status: row.get::<_, Code<RowStatus>>(1)?.0,
            attempts: row.get(2)?,
        };
        Ok((key, before))
    })
    .optional()
}

fn record_attempt(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    attempt: &AttemptRecord,
    detail: &AttemptDetail,
) -> rusqlite::Result<Written> {
    let after = &attempt.delivery;
    let Some((key, before)) = before(context.conn, after.id())? else {
        return Ok(Written::Superseded);
    };
    if !before.status.is_waiting() || before.attempts.checked_add(1) != Some(after.facts().attempts)
    {
        return Ok(Written::Superseded);
    }
    if before.attempts > 0 {
        // Only the last attempt is stored with its delivery.
        context
            .conn
            .prepare_cached(
                "INSERT INTO attempts (delivery_key, number, entry) \
                 SELECT key, attempts, last FROM deliveries WHERE key = ?1 AND last IS NOT NULL",
            )?
            .execute([key])?;
    }
    let entry = AttemptEntry::new(&attempt.settlement, detail.clone());
    let kind = failed_with(after, entry.error_kind);
    let entry = to_json(&entry);
    delivery_rows::update(context.conn, after, Some(&entry), kind, RoundChange::GoesOn)?;
    let failures = &mut context.effects.failures;
    failures.note(before.endpoint_no, after, kind);
    let counters = of_attempt(attempt, detail.latency);
    let ended_at = attempt.settlement.finished_at;
    stats::count(context, before.endpoint_no, ended_at, &counters)?;
    let endpoint = after.facts().endpoint;
    let changes = &mut context.effects.count_changes;
    changes.subtract(endpoint, before.status);
    changes.add(endpoint, status_of(after));
    if let Some(health) = &attempt.health {
        endpoints::update_health(context.conn, before.endpoint_no, health)?;
    }
    if let Some(cause) = attempt.disable
        && let Some(found) = find(context.conn, endpoint)?
    {
        let reason = DisabledReason::Automatic(cause);
        endpoints::set_status(context, &found, EndpointStatus::Disabled, Some(reason))?;
    }
    for change in &attempt.endpoint_changes {
        let detail = detail_of(*change);
        notifications::add_notification(
            context.conn,
            now,
            before.endpoint_no,
            change.name(),
            &detail,
        )?;
    }
    Ok(Written::Applied)
}

/// Writes a delivery that has changed without an attempt, and counts it.
pub(super) fn put(
    context: &mut WriteContext<'_>,
    before: &DeliveryRow,
    after: &Delivery,
) -> rusqlite::Result<()> {
    let last = before.last_error_kind();
    let kind = failed_with(after, last);
    let last = before.last.as_deref();
    delivery_rows::update(context.conn, after, last, kind, RoundChange::MayBegin)?;
    let failures = &mut context.effects.failures;
    failures.note(before.endpoint_no, after, kind);
    if let Some((at, counters)) = of_dead_letter(after) {
        stats::count(context, before.endpoint_no, at, &counters)?;
    }
    let endpoint = after.facts().endpoint;
    let changes = &mut context.effects.count_changes;
    changes.subtract(endpoint, before.status);
    changes.add(endpoint, status_of(after));
    Ok(())
}

fn detail_of(change: EndpointChange) -> Value {
    match change {
        EndpointChange::BreakerTripped(reason) => json!({ "reason": reason }),
        EndpointChange::Recovered => json!({}),
        EndpointChange::DisableWarning(cause) | EndpointChange::Disabled(cause) => {
            json!({ "cause": cause })
        }
    }
}

/// Handles a manual request for another attempt.
pub(super) fn retry(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    tenant: &TenantId,
    delivery: DeliveryId,
) -> rusqlite::Result<RetryResult> {
    let Some(row) = delivery_rows::find(context.conn, delivery)? else {
        return Ok(RetryResult::NoSuchDelivery);
    };
    let endpoint = row.delivery.facts().endpoint;
    let route = match context.routes.tenant(tenant) {
        None => return Ok(RetryResult::NoSuchDelivery),
        Some(routes) => routes.endpoint_no(row.endpoint_no).cloned(),
    };
    let Some(route) = route else {
        let found = find(context.conn, endpoint)?;
        let tenant_no = context.routes.tenant(tenant).map(|routes| routes.no);
        let ours = found.is_some_and(|found| Some(found.tenant_no) == tenant_no);
        return Ok(if ours {
            RetryResult::EndpointDeleted
        } else {
            RetryResult::NoSuchDelivery
        });
    };
    if !route.accepts_deliveries() {
        return Ok(RetryResult::EndpointDisabled);
    }
    let mut after = row.delivery.clone();
    let retried = if after.make_due(now).is_ok() {
        RetryResult::DueNow { endpoint }
    } else {
        let event = key_of(row.delivery.facts().event.0);
        if event_rows::payload_gone(context.conn, event)? == Some(true) {
            return Ok(RetryResult::PayloadDeleted);
        }
        context.cache.retention_progress.invalidate_event(event);
        after
            .replay(now, route.give_up_after)
            .expect("what does not wait has ended");
        RetryResult::Replayed { endpoint }
    };
    put(context, &row, &after)?;
    Ok(retried)
}

/// Fails some of the waiting deliveries of an endpoint.
pub(super) fn sweep(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    endpoint: EndpointId,
    reason: DeadReason,
    except: &Arc<[DeliveryId]>,
    limit: usize,
) -> rusqlite::Result<SweepResult> {
    let Some(found) = find(context.conn, endpoint)? else {
        return Ok(SweepResult {
            ended: 0,
            more: false,
        });
    };
    let limit = limit.min(MAX_SWEPT_AT_ONCE);
    let row_limit = limit
        .saturating_add(except.len())
        .saturating_add(MAX_UNREADABLE_ROWS + 1);
    let keys = context
        .conn
        .prepare_cached(
            "SELECT key FROM deliveries INDEXED BY due \
             WHERE endpoint_no = ?1 AND due IS NOT NULL ORDER BY due, key LIMIT ?2",
        )?
        .query_map((found.no, sql_limit(row_limit)), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<Key>>>()?;
    let spared: rustc_hash::FxHashSet<Key> = except.iter().map(|id| key_of(id.0)).collect();
    let mut ended = 0;
    let mut more = false;
    for key in keys.into_iter().filter(|key| !spared.contains(key)) {
        if ended == limit {
            more = true;
            break;
        }
        let row = match delivery_rows::at_key(context.conn, key) {
            Ok(Some(row)) => row,
            // An unreadable row must not keep the others waiting for ever.
            Err(error) if is_unreadable(&error) => continue,
            Ok(None) => continue,
            Err(error) => return Err(error),
        };
        let after = fail_waiting(&row.delivery, now, reason);
        put(context, &row, &after)?;
        ended += 1;
    }
    Ok(SweepResult { ended, more })
}
