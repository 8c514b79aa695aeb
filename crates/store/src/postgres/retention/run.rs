//! Deletes expired data, in small steps.
//!
//! A step reads the next few events in the order of their ids. It deletes events that have expired, with their
//! deliveries and all rows that belong to them. Of the other events it deletes payloads, and all attempts but the
//! last, as each has its own retention period. The last step of a run also deletes old replays. Deliveries that have
//! not ended are never touched, however old they are. Runs skip ranges in which nothing can expire yet. A large day
//! is not read row by row: it is dropped as a whole ([`large_days`]), and only rows of tenants with
//! a shorter retention are deleted before that.

use posthaste_core::time::{Span, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::delete_rows::{
    DeliverySet, lock_rows, name_added, remove, remove_attempts, remove_payloads, store_last_id,
};
use super::partition_plan::PartitionPlans;
use super::policy_changes::SeenSettings;
use super::scan::last_safe_id;
use super::{empty_days, large_days, policy_changes, schedule_runs};
use crate::codes::{at, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, from_json};
use crate::postgres::schema::event_rows::read_list;
use crate::postgres::schema::partitions::Day;
use crate::postgres::write::write_context::WriteContext;
use crate::postgres::write::{alerts, audit, sessions, stats};
use crate::retention::has_expired;
use crate::skip_ranges::SkipRanges;
use crate::{Limits, Retention, RetentionPeriods, RetentionStepResult};

/// Maximum number of deliveries per event, on average, that a step reads, so that a step stays short if events have
/// many deliveries.
const DELIVERIES_PER_EVENT: usize = 4;
/// Maximum number of replays that one run reads.
const REPLAYS_AT_ONCE: usize = 500;

/// The progress of a retention run.
#[derive(Debug, Default)]
pub(in crate::postgres) struct RunProgress {
    /// The last event of the previous step; `None` at the start of a run.
    pub(in crate::postgres) up_to: Option<Id>,
    /// Skip ranges of the days that are not large.
    pub(super) skip_ranges: SkipRanges<Id>,
    /// The large days, as found at the start of the run.
    pub(super) large: Option<Vec<Day>>,
    /// The partition plans of the large days.
    pub(super) partition_plans: PartitionPlans,
    /// The retention settings of the last step, and the last change of tenants that was read.
    pub(super) seen_settings: SeenSettings,
    /// The last replay that was read; `None` after the last one.
    replays_up_to: Option<Id>,
    /// The last schedule whose runs were examined; 0 after the last one.
    schedules_up_to: i64,
    /// Time of the last search for empty days.
    pub(super) emptied_at: Option<Timestamp>,
}

/// An event that a step reads.
pub(super) struct ScannedEvent {
    pub(in crate::postgres) id: Id,
    pub(in crate::postgres) tenant_no: i64,
    pub(in crate::postgres) created_at: Timestamp,
    pub(in crate::postgres) idempotency_key: Option<String>,
    pub(in crate::postgres) deliveries: Vec<Id>,
    pub(in crate::postgres) payload_gone: bool,
}

/// Runs one step.
pub(in crate::postgres) async fn step(
    context: &mut WriteContext,
    now: Timestamp,
    retention: &Retention,
) -> Result<RetentionStepResult, DbError> {
    if retention.step == 0 {
        return Ok(RetentionStepResult::default());
    }
    let mut progress = std::mem::take(&mut context.cache.retention_progress);
    // If the step fails, the run continues from here; all other knowledge is computed again.
    context.cache.retention_progress.up_to = progress.up_to;
    let deleted = step_on(context, now, retention, &mut progress).await?;
    context.effects.retention_progress = Some(progress);
    Ok(deleted)
}

async fn step_on(
    context: &mut WriteContext,
    now: Timestamp,
    retention: &Retention,
    progress: &mut RunProgress,
) -> Result<RetentionStepResult, DbError> {
    if progress.up_to.is_none() || progress.large.is_none() {
        let large = large_days::large_days(context).await?;
        progress.partition_plans.keep_only(&large);
        progress.large = Some(large);
    }
    policy_changes::apply_changes(&context.conn, now, retention, progress).await?;
    let (above, large) = progress.pass_over(now);
    if let Some(day) = large.filter(|day| day.first_id() <= above.saturating_add(1)) {
        let partition_plans = &mut progress.partition_plans;
        let step = large_days::step(context, now, retention, day, partition_plans).await?;
        if step.over {
            progress.up_to = Some(Id(day.next().first_id() - 1));
        }
        return Ok(RetentionStepResult {
            more: true,
            ..step.deleted
        });
    }
    let below = large.map_or(u128::MAX, Day::first_id);
    let passed = progress.skip_ranges.pass_over(Id(above), now);
    let above = passed.0.min(below - 1);
    let (examined, more) = read_events(&context.conn, above, below, retention.step).await?;
    let last = examined.last().map(|event| event.id);
    let up_to = last
        .filter(|_| more)
        .or(large.map(|day| Id(day.first_id() - 1)));
    let kept = kept_of_events(&context.conn, &examined, retention).await?;
    let settled = last_safe_id(&examined, now);
    let (deleted, until) =
        delete_expired(context, now, examined, |event| kept[&event.tenant_no]).await?;
    if let Some(settled) = settled {
        progress.skip_ranges.examined(Id(above), settled, until);
    }
    if up_to.is_none() {
        remove_replays(context, now, retention, progress).await?;
        let above = progress.schedules_up_to;
        progress.schedules_up_to =
            schedule_runs::delete_expired(&context.conn, now, retention, above).await?;
        progress.emptied_at = empty_days::drop_empty(context, now, progress.emptied_at).await?;
    }
    progress.up_to = up_to;
    Ok(RetentionStepResult {
        more: up_to.is_some(),
        ..deleted
    })
}

impl RunProgress {
    /// Drops all skip ranges and partition plans.
    pub(in crate::postgres) fn forget(&mut self) {
        self.skip_ranges.forget();
        self.partition_plans.forget();
    }

    /// Updates the plans after some tenants' retention periods have changed to these.
    pub(super) fn policies_changed(&mut self, to: &[RetentionPeriods]) {
        self.skip_ranges.forget();
        self.partition_plans.policies_changed(to);
    }

    /// Returns the id after which to continue, and the next large day. Skips large days in which nothing can expire
    /// yet.
    fn pass_over(&self, now: Timestamp) -> (u128, Option<Day>) {
        let mut above = self.up_to.map_or(0, |id| id.0);
        for day in self.large.iter().flatten() {
            let past = day.next().first_id() - 1;
            if past <= above {
                continue;
            }
            if day.first_id() > above.saturating_add(1) || !self.partition_plans.can_skip(*day, now)
            {
                return (above, Some(*day));
            }
            above = past;
        }
        (above, None)
    }
}

/// Deletes some expired sessions, stats, audit entries and alerts. Returns whether there may be more.
pub(in crate::postgres) async fn delete_expired_entries(
    conn: &PgConnection,
    now: Timestamp,
    step: usize,
) -> Result<bool, DbError> {
    let sessions = sessions::delete_expired(conn, now, step).await?;
    let entries = audit::delete_expired(conn, now, step).await?;
    let alerts = alerts::delete_expired(conn, now, step).await?;
    let buckets = stats::delete_expired(conn, now, step).await?;
    Ok(step > 0 && sessions.max(entries).max(alerts).max(buckets) == step)
}

/// The columns that [`read_event`] expects.
pub(super) const EVENT_COLUMNS: &str = "id, tenant_no, created_at, idempotency_key, deliveries, \
    payload_removed_at IS NOT NULL";

/// Reads an event from a row of [`EVENT_COLUMNS`].
pub(super) fn read_event(row: &tokio_postgres::Row) -> ScannedEvent {
    let accepted = read_list(row.get(4)).into_iter();
    ScannedEvent {
        id: row.get(0),
        tenant_no: row.get(1),
        created_at: at(row.get(2)),
        idempotency_key: row.get(3),
        deliveries: accepted.map(|delivery| Id(delivery.id.0)).collect(),
        payload_gone: row.get(5),
    }
}

/// Returns the events of one step, and whether there may be more.
pub(super) fn a_step(rows: &[tokio_postgres::Row], count: usize) -> (Vec<ScannedEvent>, bool) {
    let mut deliveries = 0;
    let mut events: Vec<ScannedEvent> = Vec::with_capacity(rows.len());
    for event in rows.iter().map(read_event) {
        deliveries += event.deliveries.len();
        events.push(event);
        if deliveries >= count.saturating_mul(DELIVERIES_PER_EVENT) {
            return (events, true);
        }
    }
    let more = events.len() == count;
    (events, more)
}

async fn read_events(
    conn: &PgConnection,
    above: u128,
    below: u128,
    count: usize,
) -> Result<(Vec<ScannedEvent>, bool), DbError> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3"
    );
    let rows = conn
        .query(&sql, &[&Id(above), &Id(below), &sql_limit(count)])
        .await?;
    Ok(a_step(&rows, count))
}

/// Returns the retention periods of some tenants. Data of a deleted tenant is kept for the server's default periods.
pub(super) async fn retention_by_tenant(
    conn: &PgConnection,
    tenants: &[i64],
    retention: &Retention,
) -> Result<FxHashMap<i64, RetentionPeriods>, DbError> {
    let deleted_tenant = retention.of_deleted_tenant();
    let mut kept: FxHashMap<i64, RetentionPeriods> =
        tenants.iter().map(|no| (*no, deleted_tenant)).collect();
    let rows = conn
        .query(
            "SELECT no, limits, plan FROM tenants WHERE no = ANY($1) AND NOT deleted",
            &[&tenants],
        )
        .await?;
    for row in &rows {
        let limits: Limits = from_json(row.get(1))?;
        kept.insert(row.get(0), retention.of(&limits, row.get(2)));
    }
    Ok(kept)
}

/// The same for the tenants of some events.
pub(super) async fn kept_of_events(
    conn: &PgConnection,
    events: &[ScannedEvent],
    retention: &Retention,
) -> Result<FxHashMap<i64, RetentionPeriods>, DbError> {
    let mut tenants: Vec<i64> = events.iter().map(|event| event.tenant_no).collect();
    tenants.sort_unstable();
    tenants.dedup();
    retention_by_tenant(conn, &tenants, retention).await
}

/// The parts of some events that have expired.
#[derive(Default)]
struct Expired {
    events: FxHashSet<Id>,
    payloads: FxHashSet<Id>,
    attempts: FxHashSet<Id>,
    /// The earliest time at which a part of the rest can expire; `None` if there is no rest.
    until: Option<Timestamp>,
}

/// Deletes the expired parts of some events, which must be sorted by id. Also returns the earliest time at which a
/// part of the rest can expire, or `None` if there is no rest.
pub(super) async fn delete_expired(
    context: &mut WriteContext,
    now: Timestamp,
    mut events: Vec<ScannedEvent>,
    kept: impl Fn(&ScannedEvent) -> RetentionPeriods,
) -> Result<(RetentionStepResult, Option<Timestamp>), DbError> {
    let conn = context.conn.clone();
    let (mut expired, _) = find_expired(&conn, now, &mut events, &kept).await?;
    if !expired.is_empty() {
        events.retain(|event| expired.has_part_of(event));
        // Another transaction may be replaying one of these deliveries. After these locks, a new replay finds
        // nothing.
        let deliveries = expired.deliveries(&events);
        let held = lock_rows(&conn, &mut events, deliveries).await?;
        let (again, ends) = find_expired(&conn, now, &mut events, &kept).await?;
        expired = expired.confirm(now, again, &events, |id| {
            held.contains(&id) || ends.get(&id).is_none_or(|end| end.at.is_none())
        });
    }
    let until = expired.until;
    let payloads: Vec<Id> = expired.payloads.iter().copied().collect();
    let payloads = remove_payloads(&conn, now, &payloads).await?;
    let attempts: Vec<Id> = expired.attempts.iter().copied().collect();
    remove_attempts(&conn, &attempts).await?;
    events.retain(|event| expired.events.contains(&event.id));
    remove(context, &events).await?;
    let deleted = RetentionStepResult {
        events: events.len(),
        payloads,
        attempts: attempts.len(),
        more: false,
    };
    Ok((deleted, until))
}

impl Expired {
    /// Notes that a part of the rest can expire at this time.
    fn note(&mut self, at: Option<Timestamp>) {
        let Some(at) = at else {
            return;
        };
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.payloads.is_empty() && self.attempts.is_empty()
    }

    /// Returns the deliveries of which something is deleted. If only the payload of an event is deleted, locking the
    /// event is enough.
    fn deliveries(&self, events: &[ScannedEvent]) -> Option<DeliverySet> {
        let go = |event: &&ScannedEvent| self.events.contains(&event.id);
        let gone = events.iter().filter(go).flat_map(|event| &event.deliveries);
        DeliverySet::these(gone.chain(&self.attempts).copied().collect())
    }

    /// Reduces this decision to what a second decision under locks confirms. The rest is decided again in a later
    /// run.
    fn confirm(
        mut self,
        now: Timestamp,
        again: Expired,
        events: &[ScannedEvent],
        is_held: impl Fn(Id) -> bool,
    ) -> Expired {
        let before = (self.events.len(), self.payloads.len(), self.attempts.len());
        let mut held = FxHashSet::default();
        for event in events {
            if event.deliveries.iter().all(|id| is_held(*id)) {
                held.insert(event.id);
            }
        }
        self.events
            .retain(|id| again.events.contains(id) && held.contains(id));
        self.payloads.retain(|id| again.payloads.contains(id));
        self.attempts
            .retain(|id| again.attempts.contains(id) && is_held(*id));
        if before != (self.events.len(), self.payloads.len(), self.attempts.len()) {
            self.note(Some(now));
        }
        self.note(again.until);
        self
    }

    /// Returns whether a part of an event has expired.
    fn has_part_of(&self, event: &ScannedEvent) -> bool {
        self.events.contains(&event.id)
            || self.payloads.contains(&event.id)
            || event.deliveries.iter().any(|id| self.attempts.contains(id))
    }
}

/// The end of a delivery.
struct End {
    /// `None` if it has not ended.
    at: Option<Timestamp>,
    /// Set if it has rows in `attempts`.
    has_attempts: bool,
}

/// Decides which parts of some events have expired.
async fn find_expired(
    conn: &PgConnection,
    now: Timestamp,
    events: &mut [ScannedEvent],
    kept: impl Fn(&ScannedEvent) -> RetentionPeriods,
) -> Result<(Expired, FxHashMap<Id, End>), DbError> {
    let mut expired = Expired::default();
    let mut candidates = Vec::new();
    for event in events.iter() {
        let shortest = kept(event).shortest();
        if has_expired(event.created_at, shortest, now) {
            candidates.push(event.id);
        } else {
            expired.note(Some(event.created_at.after(shortest)));
        }
    }
    name_added(conn, events, &candidates).await?;
    let is_candidate = |event: &&ScannedEvent| candidates.binary_search(&event.id).is_ok();
    let ends = ends(conn, events.iter().filter(is_candidate)).await?;
    for event in events.iter().filter(is_candidate) {
        select_expired(now, event, kept(event), &ends, &mut expired);
    }
    Ok((expired, ends))
}

fn select_expired(
    now: Timestamp,
    event: &ScannedEvent,
    kept: RetentionPeriods,
    ends: &FxHashMap<Id, End>,
    expired: &mut Expired,
) {
    let found = || {
        let ids = event.deliveries.iter();
        ids.filter_map(|id| Some((*id, ends.get(id)?)))
    };
    let mut last_end = Some(event.created_at);
    for (_, end) in found() {
        last_end = last_end.zip(end.at).map(|(one, other)| one.max(other));
    }
    let over =
        |end: Option<Timestamp>, keep: Span| end.is_some_and(|end| has_expired(end, keep, now));
    if over(last_end, kept.deliveries) {
        expired.events.insert(event.id);
        return;
    }
    // A delivery that is replayed, on any node, ends after now, so its attempts expire no earlier than one retention
    // period from now. The same holds for a waiting delivery.
    expired.note(Some(now.after(kept.attempts)));
    match last_end {
        None => expired.note(Some(now.after(kept.shortest()))),
        Some(end) => expired.note(Some(end.after(kept.deliveries))),
    }
    match last_end {
        Some(_) if event.payload_gone => {}
        Some(end) if has_expired(end, kept.payloads, now) => {
            expired.payloads.insert(event.id);
        }
        Some(end) => expired.note(Some(end.after(kept.payloads))),
        None => {}
    }
    for (id, end) in found().filter(|(_, end)| end.has_attempts) {
        match end.at {
            Some(ended) if has_expired(ended, kept.attempts, now) => {
                expired.attempts.insert(id);
            }
            Some(ended) => expired.note(Some(ended.after(kept.attempts))),
            None => {}
        }
    }
}

/// Returns the ends of the deliveries of some events.
async fn ends<'a>(
    conn: &PgConnection,
    events: impl Iterator<Item = &'a ScannedEvent>,
) -> Result<FxHashMap<Id, End>, DbError> {
    let Some(deliveries) = DeliverySet::of(events) else {
        return Ok(FxHashMap::default());
    };
    let rows = conn
        .query(
            "SELECT d.id, d.ended_at, d.attempts > 1 AND EXISTS (SELECT 1 FROM attempts a \
             WHERE a.delivery_id = d.id AND a.delivery_id >= $2 AND a.delivery_id <= $3) \
             FROM ended d WHERE d.id = ANY($1) AND d.id >= $2 AND d.id <= $3 \
             UNION ALL SELECT id, NULL, false FROM waiting WHERE id = ANY($1)",
            &[&deliveries.ids, &deliveries.first, &deliveries.last],
        )
        .await?;
    let ends = rows.iter().map(|row| {
        let end = End {
            at: row.get::<_, Option<i64>>(1).map(at),
            has_attempts: row.get(2),
        };
        (row.get(0), end)
    });
    Ok(ends.collect())
}

/// Deletes old replays, some in each run. Their lists of targets were deleted when they ended.
async fn remove_replays(
    context: &WriteContext,
    now: Timestamp,
    retention: &Retention,
    progress: &mut RunProgress,
) -> Result<(), DbError> {
    let conn = &context.conn;
    let above = progress.replays_up_to.unwrap_or(Id(0));
    let rows = conn
        .query(
            "SELECT id, tenant_no, finished_at FROM replays WHERE id > $1 ORDER BY id LIMIT $2",
            &[&above, &sql_limit(REPLAYS_AT_ONCE)],
        )
        .await?;
    let last: Option<Id> = rows.last().map(|row| row.get(0));
    progress.replays_up_to = last.filter(|_| rows.len() == REPLAYS_AT_ONCE);
    let mut tenants: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let kept = retention_by_tenant(conn, &tenants, retention).await?;
    let old = rows.iter().filter(|row| {
        let kept = kept[&row.get::<_, i64>(1)];
        let ended_at = row.get::<_, Option<i64>>(2).map(at);
        ended_at.is_some_and(|ended_at| has_expired(ended_at, kept.deliveries, now))
    });
    let old: Vec<Id> = old.map(|row| row.get(0)).collect();
    if let Some(last) = old.iter().max() {
        conn.execute("DELETE FROM replays WHERE id = ANY($1)", &[&old])
            .await?;
        store_last_id(conn, *last).await?;
    }
    Ok(())
}
