//! Retention runs: delete data that finished long enough ago.
//!
//! A step examines the next few events in key order. Events that have expired are deleted with everything that
//! belongs to them. Of the other events, expired payloads and expired attempts (all but the last) are deleted. The
//! last step of a round deletes expired replays. Data that has not finished is never deleted, however old it is. Each
//! step also deletes a few expired sessions, audit entries, alerts, stats and months of usage.
//!
//! Old rows are adjacent, so they are deleted in key ranges, at a fraction of the cost of deleting row by row.

use std::collections::hash_map::Entry;

use posthaste_core::time::{Span, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::{FxHashMap, FxHashSet};

use super::codes::{Code, RowStatus};
use super::delivery_rows::{endpoint_id, from_json};
use super::event_rows::DeliveryList;
use super::group_commit::{WriteContext, set_number};
use super::key_ranges::{KeyRange, ranges_of};
use super::row_keys::{Key, key_of};
use super::schema::meta;
use super::staged_payloads::PayloadNo;
use super::{alerts, audit, fan_out, schedules, sessions, stats, usage};
use crate::codes::{at, ms, sql_limit};
use crate::retention::has_expired;
use crate::skip_ranges::SkipRanges;
use crate::{Limits, Retention, RetentionPeriods, RetentionStepResult};

/// Maximum number of deliveries per step, as a multiple of its events. Keeps steps short where events have many
/// deliveries.
const DELIVERIES_PER_EVENT: usize = 4;
/// Maximum number of replays examined per round.
const REPLAYS_AT_ONCE: usize = 500;
/// Maximum number of schedules examined per round.
const SCHEDULES_AT_ONCE: usize = 500;

/// The progress of the retention run.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// The key after which the next step starts.
    up_to: Key,
    /// Skip ranges, valid while the retention settings stay the same.
    skip_ranges: SkipRanges<Key>,
    kept_as: Option<Retention>,
    /// The last replay that was examined; 0 if it was the last one stored.
    replays_up_to: Key,
    /// The last schedule whose runs were examined; 0 if it was the last one with runs.
    schedules_up_to: i64,
}

impl RunProgress {
    /// Drops all skip ranges, because the retention settings of a tenant have changed.
    pub(super) fn invalidate_all(&mut self) {
        self.skip_ranges.forget();
    }

    /// Drops the skip range of an event of which a finished delivery was started again.
    pub(super) fn invalidate_event(&mut self, event: Key) {
        self.skip_ranges.invalidate_at(event);
    }

    fn keep_as(&mut self, retention: &Retention) {
        let same = |before: &Retention| {
            let step = retention.step;
            Retention {
                step,
                ..before.clone()
            } == *retention
        };
        if !self.kept_as.as_ref().is_some_and(same) {
            self.skip_ranges.forget();
        }
        self.kept_as = Some(retention.clone());
    }
}

/// An event that a step examines.
struct ScannedEvent {
    key: Key,
    tenant_no: i64,
    created_at: Timestamp,
    idempotency_key: Option<String>,
    deliveries: DeliveryList,
    payload_gone: bool,
    /// The number of its payload, if that is not in its row.
    payload_no: Option<PayloadNo>,
}

/// The events, payloads and attempts to delete.
#[derive(Default)]
struct Expired {
    events: FxHashSet<Key>,
    payloads: FxHashSet<Key>,
    attempts: FxHashSet<Key>,
    /// The earliest time at which something of the rest can expire.
    until: NextExpiry,
}

/// Runs one step.
pub(super) fn step(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    retention: &Retention,
) -> rusqlite::Result<RetentionStepResult> {
    let conn = context.conn;
    let progress = &mut context.cache.retention_progress;
    progress.keep_as(retention);
    let above = progress.skip_ranges.pass_over(progress.up_to, now);
    let (events, more) = read_events(conn, above, retention.step)?;
    let last = events.last().map_or(above, |event| event.key);
    let tenants = kept_by_tenant(conn, retention, &events)?;
    let ends = DeliveryStates::of(conn, &events, |event| {
        has_expired(event.created_at, tenants[&event.tenant_no].shortest(), now)
    })?;
    let incomplete = fan_out::incomplete_events(conn)?;
    let mut expired = Expired::default();
    for event in &events {
        let is_incomplete = |(first, last): &(Key, Key)| (first..=last).contains(&&event.key);
        if incomplete.iter().any(is_incomplete) {
            // It has not finished, although some of its deliveries may have.
            expired.until = NextExpiry::Unknown;
            continue;
        }
        select_expired(now, event, tenants[&event.tenant_no], &ends, &mut expired);
    }
    let progress = &mut context.cache.retention_progress;
    progress.up_to = if more { last } else { 0 };
    progress
        .skip_ranges
        .examined(above, last, expired.until.known());
    let mut deleted = delete_expired(context, now, &events, &ends, &expired)?;
    let replays = if more {
        0
    } else {
        let above = context.cache.retention_progress.replays_up_to;
        let (removed, up_to) = remove_replays(conn, now, retention, above)?;
        context.cache.retention_progress.replays_up_to = up_to;
        let above = context.cache.retention_progress.schedules_up_to;
        let kept_for = |tenant_no| Ok(kept_of(conn, retention, tenant_no)?.deliveries);
        context.cache.retention_progress.schedules_up_to =
            schedules::delete_expired_runs(conn, now, above, SCHEDULES_AT_ONCE, kept_for)?;
        removed
    };
    if deleted.events + replays > 0 {
        set_number(conn, meta::LAST_KEY, context.key_generator.last())?;
    }
    let sessions = sessions::delete_expired(conn, now, retention.step)?;
    let entries = audit::delete_expired(conn, now, retention.step)?;
    let alerts = alerts::delete_expired(conn, now, retention.step)?;
    let buckets = stats::delete_expired(conn, now, retention.step)?;
    let months = usage::delete_expired(conn, now, retention.step)?;
    let gone = sessions.max(entries).max(alerts).max(buckets).max(months);
    deleted.more = more || (retention.step > 0 && gone == retention.step);
    Ok(deleted)
}

/// Reads the next events. Returns them, and whether there may be more.
fn read_events(
    conn: &Connection,
    above: Key,
    count: usize,
) -> rusqlite::Result<(Vec<ScannedEvent>, bool)> {
    let mut statement = conn.prepare_cached(
        "SELECT key, tenant_no, created_at, idempotency_key, deliveries, \
         payload_removed_at IS NOT NULL, payload_no FROM events WHERE key > ?1 ORDER BY key LIMIT ?2",
    )?;
    let mut rows = statement.query((above, sql_limit(count)))?;
    let mut events: Vec<ScannedEvent> = Vec::new();
    let mut deliveries = 0;
    while let Some(row) = rows.next()? {
        let event = ScannedEvent {
            key: row.get(0)?,
            tenant_no: row.get(1)?,
            created_at: at(row.get(2)?),
            idempotency_key: row.get(3)?,
            deliveries: DeliveryList::from_bytes(row.get(4)?),
            payload_gone: row.get(5)?,
            payload_no: row.get(6)?,
        };
        deliveries += event.deliveries.iter().count();
        events.push(event);
        if deliveries >= count.saturating_mul(DELIVERIES_PER_EVENT) {
            return Ok((events, true));
        }
    }
    let more = count > 0 && events.len() == count;
    Ok((events, more))
}

/// Returns the retention periods of the tenants of these events.
fn kept_by_tenant(
    conn: &Connection,
    retention: &Retention,
    events: &[ScannedEvent],
) -> rusqlite::Result<FxHashMap<i64, RetentionPeriods>> {
    let mut tenants = FxHashMap::default();
    for event in events {
        if let Entry::Vacant(entry) = tenants.entry(event.tenant_no) {
            entry.insert(kept_of(conn, retention, event.tenant_no)?);
        }
    }
    Ok(tenants)
}

/// Returns the retention periods of a tenant; for a deleted tenant, those of the server.
fn kept_of(
    conn: &Connection,
    retention: &Retention,
    tenant_no: i64,
) -> rusqlite::Result<RetentionPeriods> {
    let found = conn
        .prepare_cached("SELECT limits, plan FROM tenants WHERE no = ?1 AND deleted = 0")?
        .query_row([tenant_no], |row| {
            let limits: Limits = from_json(row.get_ref(0)?.as_str()?)?;
            Ok(retention.of(&limits, row.get_ref(1)?.as_str_or_null()?))
        })
        .optional()?;
    Ok(found.unwrap_or_else(|| retention.of_deleted_tenant()))
}

/// The state of a delivery.
#[derive(Clone, Copy)]
struct DeliveryState {
    endpoint_no: i64,
    status: RowStatus,
    /// The time at which it ended; `None` if it waits.
    at: Option<Timestamp>,
    attempts: u32,
}

/// The states of the deliveries of some events.
struct DeliveryStates {
    found: FxHashMap<Key, DeliveryState>,
    /// All keys in the range that contains most of the deliveries, in order.
    in_range: Vec<Key>,
}

impl DeliveryStates {
    /// Reads the states for the events that `is_candidate` selects. Most deliveries are adjacent, directly after their
    /// events; those added by a replay can be anywhere.
    fn of(
        conn: &Connection,
        events: &[ScannedEvent],
        is_candidate: impl Fn(&ScannedEvent) -> bool,
    ) -> rusqlite::Result<DeliveryStates> {
        let mut ends = DeliveryStates {
            found: FxHashMap::default(),
            in_range: Vec::new(),
        };
        let events = || events.iter().filter(|event| is_candidate(event));
        let listed = || events().flat_map(|event| event.deliveries.iter());
        let accepted = || {
            listed()
                .filter(|it| !it.added_later)
                .map(|it| key_of(it.id.0))
        };
        if let (Some(first), Some(last)) = (accepted().min(), accepted().max()) {
            let enough = 2 * accepted().count() + 100;
            let mut statement = conn.prepare_cached(
                "SELECT key, endpoint_no, status, ended_at, attempts FROM deliveries \
                 WHERE key >= ?1 AND key <= ?2 ORDER BY key LIMIT ?3",
            )?;
            let mut rows = statement.query((first, last, sql_limit(enough)))?;
            while let Some(row) = rows.next()? {
                let key = row.get(0)?;
                ends.in_range.push(key);
                ends.found.insert(key, read_end(row)?);
            }
        }
        let covered = ends.in_range.last().copied();
        let mut statement = conn.prepare_cached(
            "SELECT key, endpoint_no, status, ended_at, attempts FROM deliveries WHERE key = ?1",
        )?;
        for listed in listed() {
            let key = key_of(listed.id.0);
            let examined = !listed.added_later && covered.is_some_and(|covered| key <= covered);
            if !examined && let Some(end) = statement.query_row([key], read_end).optional()? {
                ends.found.insert(key, end);
            }
        }
        Ok(ends)
    }

    /// Returns the deliveries of one event that exist.
    fn of_event<'a>(
        &'a self,
        event: &'a ScannedEvent,
    ) -> impl Iterator<Item = (Key, DeliveryState)> + 'a {
        let keys = event.deliveries.iter().map(|listed| key_of(listed.id.0));
        keys.filter_map(|key| Some((key, *self.found.get(&key)?)))
    }
}

fn read_end(row: &rusqlite::Row<'_>) -> rusqlite::Result<DeliveryState> {
    Ok(DeliveryState {
        endpoint_no: row.get(1)?,
        status: row.get::<_, Code<RowStatus>>(2)?.0,
        at: row.get::<_, Option<i64>>(3)?.map(at),
        attempts: row.get(4)?,
    })
}

/// The earliest time at which something can expire, if known.
#[derive(Clone, Copy, Debug, Default)]
enum NextExpiry {
    #[default]
    Never,
    At(Timestamp),
    Unknown,
}

impl NextExpiry {
    fn at_most(&mut self, at: Timestamp) {
        *self = match *self {
            NextExpiry::Never => NextExpiry::At(at),
            NextExpiry::At(before) => NextExpiry::At(before.min(at)),
            NextExpiry::Unknown => NextExpiry::Unknown,
        };
    }

    /// Returns the time, if known. `Never` means that everything was deleted.
    fn known(self) -> Option<Timestamp> {
        match self {
            NextExpiry::At(at) => Some(at),
            NextExpiry::Never | NextExpiry::Unknown => None,
        }
    }
}

/// Decides what of an event is deleted.
fn select_expired(
    now: Timestamp,
    event: &ScannedEvent,
    kept: RetentionPeriods,
    ends: &DeliveryStates,
    expired: &mut Expired,
) {
    if !has_expired(event.created_at, kept.shortest(), now) {
        return expired
            .until
            .at_most(event.created_at.after(kept.shortest()));
    }
    let mut last_end = Some(event.created_at);
    for (_, end) in ends.of_event(event) {
        last_end = last_end.zip(end.at).map(|(one, other)| one.max(other));
    }
    let over =
        |end: Option<Timestamp>, keep: Span| end.is_some_and(|end| has_expired(end, keep, now));
    if over(last_end, kept.deliveries) {
        expired.events.insert(event.key);
        return;
    }
    match last_end {
        // It is unknown when the event will have finished.
        None => expired.until = NextExpiry::Unknown,
        Some(end) => expired.until.at_most(end.after(kept.deliveries)),
    }
    if !event.payload_gone {
        match last_end {
            Some(end) if has_expired(end, kept.payloads, now) => {
                expired.payloads.insert(event.key);
            }
            Some(end) => expired.until.at_most(end.after(kept.payloads)),
            None => {}
        }
    }
    for (key, end) in ends.of_event(event).filter(|(_, end)| end.attempts > 1) {
        match end.at {
            Some(ended) if has_expired(ended, kept.attempts, now) => {
                expired.attempts.insert(key);
            }
            Some(ended) => expired.until.at_most(ended.after(kept.attempts)),
            None => {}
        }
    }
}

/// Deletes what was selected.
fn delete_expired(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    events: &[ScannedEvent],
    ends: &DeliveryStates,
    expired: &Expired,
) -> rusqlite::Result<RetentionStepResult> {
    let conn = context.conn;
    if !expired.events.is_empty() {
        remove(context, events, ends, &expired.events)?;
    }
    for event in events {
        let is_deleted =
            expired.events.contains(&event.key) || expired.payloads.contains(&event.key);
        if let (true, Some(no)) = (is_deleted, event.payload_no) {
            conn.prepare_cached("DELETE FROM payloads WHERE no = ?1")?
                .execute([no])?;
        }
    }
    let keys: Vec<Key> = events.iter().map(|event| event.key).collect();
    let mut payloads = 0;
    for run in ranges_of(&keys, |key| expired.payloads.contains(&key)) {
        payloads += conn
            .prepare_cached(
                "UPDATE events SET payload = x'', payload_no = NULL, payload_removed_at = ?3 \
                 WHERE key >= ?1 AND key <= ?2 AND payload_removed_at IS NULL",
            )?
            .execute((run.first, run.last, ms(now)))?;
    }
    let mut attempts = 0;
    for key in &expired.attempts {
        let gone = remove_attempts(conn, KeyRange::of(*key))?;
        attempts += usize::from(gone > 0);
    }
    Ok(RetentionStepResult {
        events: expired.events.len(),
        payloads,
        attempts,
        more: false,
    })
}

/// Deletes events with everything that belongs to them.
fn remove(
    context: &mut WriteContext<'_>,
    events: &[ScannedEvent],
    ends: &DeliveryStates,
    gone: &FxHashSet<Key>,
) -> rusqlite::Result<()> {
    let conn = context.conn;
    let mut tenant_of: FxHashMap<Key, i64> = FxHashMap::default();
    let mut scattered = Vec::new();
    for event in events.iter().filter(|event| gone.contains(&event.key)) {
        for (key, end) in ends.of_event(event) {
            tenant_of.insert(key, event.tenant_no);
            if ends.in_range.binary_search(&key).is_err() {
                scattered.push(KeyRange::of(key));
            }
            if end.status == RowStatus::Failed {
                let endpoint = conn
                    .prepare_cached("SELECT id FROM endpoints WHERE no = ?1")?
                    .query_row([end.endpoint_no], |row| endpoint_id(row, 0))?;
                context.effects.count_changes.subtract(endpoint, end.status);
            }
        }
        if let Some(key) = &event.idempotency_key {
            conn.prepare_cached(
                "DELETE FROM idempotency WHERE tenant_no = ?1 AND key = ?2 AND event_key = ?3",
            )?
            .execute((event.tenant_no, key, event.key))?;
        }
    }
    let side_by_side = ranges_of(&ends.in_range, |key| tenant_of.contains_key(&key));
    for run in side_by_side.into_iter().chain(scattered) {
        let mut scopes: FxHashSet<i64> = FxHashSet::default();
        for key in run.keys(&ends.in_range) {
            scopes.insert(tenant_of[&key]);
            scopes.insert(ends.found[&key].endpoint_no);
        }
        // Entries in an unfinished part of the history would be written again after the deletion.
        context.history.forget_deliveries(run.first..=run.last);
        remove_deliveries(conn, run, &scopes)?;
    }
    let keys: Vec<Key> = events.iter().map(|event| event.key).collect();
    for run in ranges_of(&keys, |key| gone.contains(&key)) {
        let among = events.iter().filter(|event| run.contains(event.key));
        let tenants: FxHashSet<i64> = among.map(|event| event.tenant_no).collect();
        context.history.forget_events(run.first..=run.last);
        remove_events(conn, run, &tenants)?;
    }
    Ok(())
}

/// Deletes all deliveries of a key range, which belong to these tenants and endpoints.
fn remove_deliveries(
    conn: &Connection,
    run: KeyRange,
    scopes: &FxHashSet<i64>,
) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM deliveries WHERE key >= ?1 AND key <= ?2")?
        .execute((run.first, run.last))?;
    remove_attempts(conn, run)?;
    forget(conn, "delivery_history", run, scopes)
}

/// Deletes all events of a key range, which belong to these tenants.
fn remove_events(
    conn: &Connection,
    run: KeyRange,
    tenants: &FxHashSet<i64>,
) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM events WHERE key >= ?1 AND key <= ?2")?
        .execute((run.first, run.last))?;
    forget(conn, "event_history", run, tenants)
}

fn forget(
    conn: &Connection,
    history: &str,
    run: KeyRange,
    scopes: &FxHashSet<i64>,
) -> rusqlite::Result<()> {
    let sql = format!("DELETE FROM {history} WHERE scope = ?1 AND key >= ?2 AND key <= ?3");
    let mut forget = conn.prepare_cached(&sql)?;
    for scope in scopes {
        forget.execute((scope, run.first, run.last))?;
    }
    Ok(())
}

/// Deletes the attempts of the deliveries in a key range, except the last of each, which is stored with the delivery.
fn remove_attempts(conn: &Connection, run: KeyRange) -> rusqlite::Result<usize> {
    conn.prepare_cached("DELETE FROM attempts WHERE delivery_key >= ?1 AND delivery_key <= ?2")?
        .execute((run.first, run.last))
}

/// Deletes expired replays, examining a few in each round. Returns their number and the key after which the next
/// round continues. Their target lists were deleted when they ended.
fn remove_replays(
    conn: &Connection,
    now: Timestamp,
    retention: &Retention,
    above: Key,
) -> rusqlite::Result<(usize, Key)> {
    let examined = conn
        .prepare_cached(
            "SELECT key, tenant_no, finished_at FROM replays WHERE key > ?1 ORDER BY key LIMIT ?2",
        )?
        .query_map((above, sql_limit(REPLAYS_AT_ONCE)), |row| {
            let ended_at = row.get::<_, Option<i64>>(2)?.map(at);
            Ok((row.get(0)?, row.get(1)?, ended_at))
        })?
        .collect::<rusqlite::Result<Vec<(Key, i64, Option<Timestamp>)>>>()?;
    let last = examined.last().map_or(0, |(key, _, _)| *key);
    let full = examined.len() == REPLAYS_AT_ONCE;
    let mut removed = 0;
    for (key, tenant_no, ended_at) in examined {
        let Some(ended_at) = ended_at else {
            continue;
        };
        let kept = kept_of(conn, retention, tenant_no)?;
        if has_expired(ended_at, kept.deliveries, now) {
            conn.prepare_cached("DELETE FROM replays WHERE key = ?1")?
                .execute([key])?;
            removed += 1;
        }
    }
    Ok((removed, if full { last } else { 0 }))
}
