//! Records the results of attempts, and other changes of deliveries.
//!
//! Attempts are written in batches, as columns ([`RecordedRows`]). Cancelling, expiring without an attempt, disabling
//! the endpoint, retrying by hand and sweeping are cold operations.

use std::sync::Arc;

use posthaste_core::cluster::FormatLevel;
use posthaste_core::delivery::{DeadReason, Delivery};
use posthaste_core::dispatcher::{AttemptRecord, EndpointChange, Record};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::json;

use super::count_changes::CountChanges;
use super::notifications::{self, Failed, NotificationColumns};
use super::operation::{Operation, RecordOperation, Task};
use super::owned_shards::{OwnedShards, Ownership};
use super::write_context::WriteContext;
use super::{changed_delivery, endpoints};
use crate::codes::{Coded, ms, sql_limit};
use crate::delivery_state::{
    MAX_UNREADABLE_ROWS, expired_now, fail_waiting, failed_with, status_of, stored_state,
};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{EnumCode, Id, to_json};
use crate::postgres::schema::delivery_rows::{self, granted};
use crate::reply::Reply;
use crate::stats::{of_attempt, of_dead_letter};
use crate::{AttemptDetail, AttemptEntry, DisabledReason, Done, RetryResult, SweepResult, Written};

/// The rows that a batch of attempts changes.
#[derive(Default)]
pub(super) struct RecordedRows {
    pub(in crate::postgres) ended: EndedColumns,
    pub(in crate::postgres) waiting: WaitingColumns,
    pub(super) healths: FxHashMap<i64, Health>,
    pub(in crate::postgres) failed: Failed,
    pub(in crate::postgres) notifications: NotificationColumns,
}

/// Deliveries that have ended.
#[derive(Default)]
pub(super) struct EndedColumns {
    pub(in crate::postgres) ids: Vec<Id>,
    pub(in crate::postgres) attempts: Vec<i32>,
    pub(in crate::postgres) spent: Vec<i32>,
    pub(in crate::postgres) at: Vec<i64>,
    pub(super) statuses: Vec<i16>,
    pub(super) reasons: Vec<Option<i16>>,
    pub(in crate::postgres) kinds: Vec<Option<i16>>,
    pub(super) delays: Vec<Option<i64>>,
    pub(in crate::postgres) granted: Vec<Option<String>>,
    pub(in crate::postgres) last: Vec<String>,
}

/// Deliveries that keep waiting.
#[derive(Default)]
pub(super) struct WaitingColumns {
    pub(in crate::postgres) ids: Vec<Id>,
    pub(in crate::postgres) attempts: Vec<i32>,
    pub(in crate::postgres) spent: Vec<i32>,
    pub(in crate::postgres) due: Vec<i64>,
    pub(super) statuses: Vec<i16>,
    pub(super) triggers: Vec<i16>,
    pub(in crate::postgres) kinds: Vec<Option<i16>>,
    pub(super) delays: Vec<Option<i64>>,
    pub(in crate::postgres) granted: Vec<Option<String>>,
    pub(in crate::postgres) last: Vec<String>,
}

fn code<T: Coded>(word: T) -> i16 {
    word.code() as i16
}

impl RecordedRows {
    /// Adds an attempt to the endpoint with this number.
    pub(in crate::postgres) fn add(
        &mut self,
        count_changes: &mut CountChanges,
        now: Timestamp,
        endpoint_no: i64,
        attempt: &AttemptRecord,
        detail: &AttemptDetail,
        level: FormatLevel,
    ) {
        let after = &attempt.delivery;
        let facts = after.facts();
        let entry = AttemptEntry::new(&attempt.settlement, detail.clone());
        let kind = failed_with(after, entry.error_kind);
        self.failed.note(endpoint_no, after, kind);
        let kind = kind.map(code);
        let (status, due, trigger) = stored_state(after);
        let delay = facts.previous_delay.map(|delay| delay.as_millis() as i64);
        let (id, last) = (Id(facts.id.0), to_json(&entry));
        let (attempts, spent) = (facts.attempts as i32, facts.spent as i32);
        match due {
            None => {
                let to = &mut self.ended;
                let state = after.state();
                to.ids.push(id);
                to.attempts.push(attempts);
                to.spent.push(spent);
                to.at.push(state.ended_at().map_or(0, ms));
                to.statuses.push(code(status));
                to.reasons.push(state.dead_reason().map(code));
                to.kinds.push(kind);
                to.delays.push(delay);
                to.granted.push(granted(facts));
                to.last.push(last);
                count_changes.count(
                    endpoint_no,
                    Some(crate::codes::RowStatus::Pending),
                    Some(status),
                );
            }
            Some(due) => {
                let to = &mut self.waiting;
                to.ids.push(id);
                to.attempts.push(attempts);
                to.spent.push(spent);
                to.due.push(due);
                to.statuses.push(code(status));
                to.triggers.push(code(trigger));
                to.kinds.push(kind);
                to.delays.push(delay);
                to.granted.push(granted(facts));
                to.last.push(last);
            }
        }
        if let Some(health) = &attempt.health {
            let known = self.healths.get(&endpoint_no);
            if known.is_none_or(|known| known.revision < health.revision) {
                self.healths.insert(endpoint_no, health.at(level));
            }
        }
        for change in &attempt.endpoint_changes {
            let detail = detail_of(*change, level);
            self.notifications
                .push(endpoint_no, now, change.name(), &detail);
        }
    }
}

fn detail_of(change: EndpointChange, level: FormatLevel) -> serde_json::Value {
    match change {
        EndpointChange::BreakerTripped(reason) => json!({ "reason": reason.at(level) }),
        EndpointChange::Recovered => json!({}),
        EndpointChange::DisableWarning(cause) | EndpointChange::Disabled(cause) => {
            json!({ "cause": cause })
        }
    }
}

/// Moves ended deliveries from `waiting` to `ended`. A delivery that has changed since its attempt started aborts the
/// transaction.
pub(super) const MOVE_ENDED: &str = "WITH gone AS (DELETE FROM waiting w USING unnest($1::uuid[], $2::int[], \
    $3::int[], $4::bigint[], $5::smallint[], $6::smallint[], $7::smallint[], $8::bigint[], $9::text[], \
    $10::text[]) AS g (id, attempts, spent, ended_at, status, reason, kind, delay_ms, granted, last) \
    WHERE w.id = g.id AND w.attempts = g.attempts - 1 \
    RETURNING w.id, w.event_id, w.endpoint_no, w.tenant_no, w.created_at, g.ended_at, w.first_due, \
    w.give_up_at, g.delay_ms, w.ordering, g.attempts, g.spent, g.status, g.reason, g.kind, w.type, \
    g.granted, g.last), \
    kept AS (INSERT INTO ended (id, event_id, endpoint_no, tenant_no, created_at, ended_at, first_due, \
    give_up_at, delay_ms, ordering, attempts, spent, status, reason, kind, type, granted, last) \
    SELECT * FROM gone) \
    SELECT demand(count(*) = cardinality($1)) FROM gone";

/// Updates deliveries that keep waiting, and inserts their attempts. A delivery that has changed since its attempt
/// started aborts the transaction.
pub(super) const UPDATE_WAITING: &str = "WITH moved AS (UPDATE waiting w SET attempts = g.attempts, \
    spent = g.spent, due = g.due, status = g.status, trigger = g.trigger, kind = g.kind, \
    delay_ms = g.delay_ms, granted = g.granted, last = g.last \
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[], $5::smallint[], $6::smallint[], \
    $7::smallint[], $8::bigint[], $9::text[], $10::text[]) \
    AS g (id, attempts, spent, due, status, trigger, kind, delay_ms, granted, last) \
    WHERE w.id = g.id AND w.attempts = g.attempts - 1 RETURNING w.id, w.attempts, w.last), \
    kept AS (INSERT INTO attempts (delivery_id, number, entry) SELECT * FROM moved) \
    SELECT demand(count(*) = cardinality($1)) FROM moved";

/// Writes endpoint healths that are newer than the stored ones. The rows must be sorted by endpoint.
pub(super) const WRITE_HEALTHS: &str = "INSERT INTO healths AS h (endpoint_no, revision, tripped, health) \
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::text[]) \
    ON CONFLICT (endpoint_no) DO UPDATE SET revision = excluded.revision, tripped = excluded.tripped, \
    health = excluded.health WHERE h.revision < excluded.revision";

/// Moves deliveries that have ended.
pub(super) async fn end(conn: &PgConnection, it: &EndedColumns) -> Result<(), DbError> {
    conn.execute(
        MOVE_ENDED,
        &[
            &it.ids,
            &it.attempts,
            &it.spent,
            &it.at,
            &it.statuses,
            &it.reasons,
            &it.kinds,
            &it.delays,
            &it.granted,
            &it.last,
        ],
    )
    .await?;
    Ok(())
}

/// Updates deliveries that keep waiting.
pub(super) async fn update_waiting(
    conn: &PgConnection,
    it: &WaitingColumns,
) -> Result<(), DbError> {
    conn.execute(
        UPDATE_WAITING,
        &[
            &it.ids,
            &it.attempts,
            &it.spent,
            &it.due,
            &it.statuses,
            &it.triggers,
            &it.kinds,
            &it.delays,
            &it.granted,
            &it.last,
        ],
    )
    .await?;
    Ok(())
}

/// Writes endpoint healths.
pub(super) async fn remember(
    conn: &PgConnection,
    healths: &FxHashMap<i64, Health>,
) -> Result<(), DbError> {
    let mut sorted: Vec<(&i64, &Health)> = healths.iter().collect();
    sorted.sort_unstable_by_key(|(no, _)| **no);
    let numbers: Vec<i64> = sorted.iter().map(|(no, _)| **no).collect();
    let revisions: Vec<i64> = sorted.iter().map(|(_, it)| it.revision as i64).collect();
    let tripped: Vec<bool> = sorted.iter().map(|(_, it)| it.trip.is_some()).collect();
    let texts: Vec<String> = sorted.iter().map(|(_, it)| to_json(it)).collect();
    conn.execute(WRITE_HEALTHS, &[&numbers, &revisions, &tripped, &texts])
        .await?;
    Ok(())
}

/// Creates the operation that writes a record of the dispatcher.
pub(in crate::postgres) fn operation(
    now: Timestamp,
    record: Record,
    detail: AttemptDetail,
    owned_shards: &OwnedShards,
    done: Done<Written>,
) -> Operation {
    match record {
        Record::Attempt(attempt) => {
            let ownership = owned_shards.ownership(attempt.delivery.facts().endpoint);
            recording(now, attempt, detail, ownership, done)
        }
        Record::Cancel { delivery, at } => cancelling(delivery, at, done),
        Record::Expire(expired) => {
            let ownership = owned_shards.ownership(expired.facts().endpoint);
            expiring(expired, ownership, done)
        }
    }
}

/// Creates the operation that records an attempt. An attempt that disables its endpoint changes more than rows of
/// deliveries, so it gets its own transaction.
fn recording(
    now: Timestamp,
    attempt: Box<AttemptRecord>,
    detail: AttemptDetail,
    ownership: Ownership,
    done: Done<Written>,
) -> Operation {
    if attempt.disable.is_some() {
        let run = async move |context: &mut WriteContext| {
            disable(context, now, &attempt, &detail, ownership).await
        };
        return Task::owners(Some(Written::Superseded), run, done);
    }
    Operation::Record(Box::new(RecordOperation {
        now,
        attempt: *attempt,
        detail,
        ownership,
        reply: Reply::new(done),
    }))
}

/// Creates the operation that fails a late delivery, under the ownership under which the dispatcher dropped it.
fn expiring(expired: Box<Delivery>, ownership: Ownership, done: Done<Written>) -> Operation {
    let run = async move |context: &mut WriteContext| {
        context.guard_ownership(ownership).await?;
        let row = changed_delivery::find_for_update(&context.conn, expired.id()).await?;
        let Some((row, after)) = row.and_then(|row| {
            let after = expired_now(&row.delivery, &expired)?;
            Some((row, after))
        }) else {
            return Ok(Written::Superseded);
        };
        changed_delivery::write_changed(context, &row, &after).await?;
        let last = row.last_error_kind();
        let mut failed = Failed::default();
        failed.note(row.endpoint_no, &after, failed_with(&after, last));
        notifications::fail(&context.conn, &failed).await?;
        Ok(Written::Applied)
    };
    Task::owners(Some(Written::Superseded), run, done)
}

/// Creates the operation that cancels a delivery as the owner of its endpoint.
fn cancelling(delivery: DeliveryId, at: Timestamp, done: Done<Written>) -> Operation {
    let run = async move |context: &mut WriteContext| cancel_as_owner(context, delivery, at).await;
    Task::owners(Some(Written::Superseded), run, done)
}

/// Cancels a delivery as the owner of its endpoint, if it still waits.
async fn cancel_as_owner(
    context: &mut WriteContext,
    delivery: DeliveryId,
    at: Timestamp,
) -> Result<Written, DbError> {
    let Some(row) = changed_delivery::find_for_update(&context.conn, delivery).await? else {
        return Ok(Written::Superseded);
    };
    context.guard(row.delivery.facts().endpoint).await?;
    cancel(context, &row, at).await
}

/// Cancels a delivery, if it waits. The caller must hold the row's lock.
pub(in crate::postgres) async fn cancel(
    context: &mut WriteContext,
    row: &delivery_rows::DeliveryRow,
    at: Timestamp,
) -> Result<Written, DbError> {
    let mut after = row.delivery.clone();
    if after.cancel(at).is_err() {
        return Ok(Written::Superseded);
    }
    changed_delivery::write_changed(context, row, &after).await?;
    Ok(Written::Applied)
}

/// Records an attempt that disables its endpoint, under the ownership under which it was submitted.
async fn disable(
    context: &mut WriteContext,
    now: Timestamp,
    attempt: &AttemptRecord,
    detail: &AttemptDetail,
    ownership: Ownership,
) -> Result<Written, DbError> {
    context.plan_directory_change().await?;
    let endpoint = attempt.delivery.facts().endpoint;
    // The row cannot change meanwhile: only the owner changes it, and this node is the owner at the time of the commit.
    context.guard_ownership_last(ownership);
    let id = attempt.delivery.id();
    let Some(row) = changed_delivery::find_for_update(&context.conn, id).await? else {
        return Ok(Written::Superseded);
    };
    let attempts = row.delivery.facts().attempts;
    if !row.status.is_waiting()
        || attempts.checked_add(1) != Some(attempt.delivery.facts().attempts)
    {
        return Ok(Written::Superseded);
    }
    let mut recorded = RecordedRows::default();
    let level = context.required_schema.level();
    let count_changes = &mut context.effects.count_changes;
    recorded.add(count_changes, now, row.endpoint_no, attempt, detail, level);
    let scopes = context.scopes_of(row.endpoint_no, row.tenant_no).await?;
    let counters = of_attempt(attempt, detail.latency);
    let ended_at = attempt.settlement.finished_at;
    context.effects.stats.add(ended_at, scopes, &counters);
    let RecordedRows {
        ended,
        waiting,
        healths,
        failed,
        notifications,
    } = recorded;
    if !ended.ids.is_empty() {
        context.write_last(MOVE_ENDED, |conn| async move { end(&conn, &ended).await });
    }
    if !waiting.ids.is_empty() {
        context.write_last(UPDATE_WAITING, |conn| async move {
            update_waiting(&conn, &waiting).await
        });
    }
    if !healths.is_empty() {
        context.write_last(WRITE_HEALTHS, |conn| async move {
            remember(&conn, &healths).await
        });
    }
    if let Some(cause) = attempt.disable {
        let reason = DisabledReason::Automatic(cause);
        endpoints::write_status(context, endpoint, EndpointStatus::Disabled, Some(reason));
    }
    if !failed.is_empty() {
        context.write_last(notifications::FAIL, |conn| async move {
            notifications::fail(&conn, &failed).await
        });
    }
    if !notifications.is_empty() {
        context.write_last(notifications::NOTIFICATION, |conn| async move {
            notifications::write_notifications(&conn, &notifications).await
        });
    }
    Ok(Written::Applied)
}

/// Makes a delivery due now, or replays it if it has ended, at a user's request.
pub(in crate::postgres) async fn retry(
    context: &mut WriteContext,
    now: Timestamp,
    tenant: &TenantId,
    delivery: DeliveryId,
) -> Result<RetryResult, DbError> {
    context.lock_directory_shared().await?;
    let Some(routes) = context.tenant(tenant) else {
        return Ok(RetryResult::NoSuchDelivery);
    };
    let row = changed_delivery::find_for_update(&context.conn, delivery).await?;
    let Some(row) = row.filter(|row| row.tenant_no == routes.no) else {
        return Ok(RetryResult::NoSuchDelivery);
    };
    let endpoint = row.delivery.facts().endpoint;
    let Some(route) = routes.endpoint(endpoint) else {
        return Ok(RetryResult::EndpointDeleted);
    };
    if !route.accepts_deliveries() {
        return Ok(RetryResult::EndpointDisabled);
    }
    let mut after = row.delivery.clone();
    let retried = if after.make_due(now).is_ok() {
        RetryResult::DueNow { endpoint }
    } else {
        if payload_gone(&context.conn, row.delivery.facts().event).await? {
            return Ok(RetryResult::PayloadDeleted);
        }
        after
            .replay(now, route.give_up_after)
            .expect("what does not wait has ended");
        RetryResult::Replayed { endpoint }
    };
    changed_delivery::write_changed(context, &row, &after).await?;
    context.notify_work(endpoint, after.next_attempt_at().unwrap_or(now));
    Ok(retried)
}

/// Returns whether the payload of an event has been deleted. If it has not, it stays until the commit.
async fn payload_gone(conn: &PgConnection, event: EventId) -> Result<bool, DbError> {
    let sql = "SELECT payload_removed_at IS NOT NULL FROM events WHERE id = $1 FOR KEY SHARE";
    let row = conn.query_opt(sql, &[&Id(event.0)]).await?;
    Ok(row.is_some_and(|row| row.get(0)))
}

/// Fails a number of waiting deliveries of an endpoint.
pub(in crate::postgres) async fn sweep(
    context: &mut WriteContext,
    now: Timestamp,
    endpoint: EndpointId,
    reason: DeadReason,
    except: &Arc<[DeliveryId]>,
    limit: usize,
) -> Result<SweepResult, DbError> {
    let row_limit = limit.saturating_add(MAX_UNREADABLE_ROWS + 1);
    // The rows that are left out are not locked, because the first writer may be recording their results.
    let sql = format!(
        "SELECT {} FROM waiting w JOIN endpoints e ON e.no = w.endpoint_no \
         WHERE w.endpoint_no = (SELECT no FROM endpoints WHERE id = $1) AND w.id <> ALL ($3) \
         ORDER BY w.due, w.id LIMIT $2 FOR UPDATE OF w",
        delivery_rows::WAITING
    );
    let spared: Vec<Id> = except.iter().map(|id| Id(id.0)).collect();
    let found = context
        .conn
        .query(&sql, &[&Id(endpoint.0), &sql_limit(row_limit), &spared])
        .await?;
    let mut to_fail = Vec::new();
    let mut more = false;
    for row in &found {
        let row = match delivery_rows::read(row) {
            Ok(row) => row,
            // An unreadable row must not keep the others waiting for ever.
            Err(DbError::Corrupt(_)) => continue,
            Err(fault) => return Err(fault),
        };
        if to_fail.len() == limit {
            more = true;
            break;
        }
        let after = fail_waiting(&row.delivery, now, reason);
        to_fail.push((row, after));
    }
    fail_all(context, &to_fail).await?;
    let ended = to_fail.len();
    Ok(SweepResult { ended, more })
}

/// Moves deliveries that failed for the same reason, with one statement.
async fn fail_all(
    context: &mut WriteContext,
    to_fail: &[(delivery_rows::DeliveryRow, Delivery)],
) -> Result<(), DbError> {
    let Some((_, first)) = to_fail.first() else {
        return Ok(());
    };
    let state = first.state();
    let mut ids = Vec::new();
    let mut kinds: Vec<Option<i16>> = Vec::new();
    let mut failed = Failed::default();
    for (row, after) in to_fail {
        let last = row.last_error_kind();
        ids.push(Id(after.id().0));
        let kind = failed_with(after, last);
        kinds.push(kind.map(code));
        failed.note(row.endpoint_no, after, kind);
        context.count(row.endpoint_no, Some(row.status), Some(status_of(after)));
    }
    // All of them are deliveries to one endpoint.
    let (row, _) = &to_fail[0];
    let scopes = context.scopes_of(row.endpoint_no, row.tenant_no).await?;
    for (at, counters) in to_fail
        .iter()
        .filter_map(|(_, after)| of_dead_letter(after))
    {
        context.effects.stats.add(at, scopes, &counters);
    }
    let ended_at = state.ended_at().map(ms);
    let reason = state.dead_reason().map(EnumCode);
    let status = EnumCode(status_of(first));
    context
        .conn
        .execute(
            "WITH gone AS (DELETE FROM waiting w USING unnest($1::uuid[], $2::smallint[]) AS g (id, kind) \
             WHERE w.id = g.id RETURNING w.id, w.event_id, w.endpoint_no, w.tenant_no, w.created_at, \
             w.first_due, w.give_up_at, w.delay_ms, w.ordering, w.attempts, w.spent, g.kind, w.type, \
             w.granted, w.last) \
             INSERT INTO ended (id, event_id, endpoint_no, tenant_no, created_at, first_due, give_up_at, \
             delay_ms, ordering, attempts, spent, kind, type, granted, last, ended_at, status, reason) \
             SELECT gone.*, $3::bigint, $4::smallint, $5::smallint FROM gone",
            &[&ids, &kinds, &ended_at, &status, &reason],
        )
        .await?;
    if !failed.is_empty() {
        notifications::fail(&context.conn, &failed).await?;
    }
    Ok(())
}
