//! Starts, steps and cancels replays.
//!
//! The list of targets is stored when a replay starts. Each step replays the next targets and stores the progress in
//! the same transaction, under a lock of the replay's row. So a replay continues after a restart where it stopped,
//! and no target is replayed twice, even if two nodes step the same replay. The nodes agree elsewhere on the one that
//! does.

use std::collections::BTreeSet;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{Delivery, OrderingKey, ScheduledAttempt, State, Trigger};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, ReplayId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio_postgres::Row;

use super::new_waiting::NewWaitingRows;
use super::routing_table::EndpointRoute;
use super::write_context::WriteContext;
use crate::codes::{RowStatus, at, ms, sql_limit};
use crate::delivery_state::{failed_with, status_of};
use crate::page::{cut, one_more};
use crate::postgres::connection::{Params, PgConnection};
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::live_tenant;
use crate::postgres::read::replay_targets::unpack;
pub(in crate::postgres) use crate::postgres::read::replay_targets::{
    ReplaySearch, ReplayTargets, newest_event,
};
use crate::postgres::schema::clock_skew::{clock_skew_of, store_clock_skew};
use crate::postgres::schema::columns::{EnumCode, Id, parse, word};
use crate::postgres::schema::delivery_rows::{self, DeliveryRow};
use crate::postgres::schema::event_rows::read_list;
use crate::postgres::schema::meta;
use crate::{
    Change, Page, PageRequest, Replay, ReplayFilter, ReplayScope, ReplayStatus, ReplayStep,
    StoredStatus,
};

/// Number of targets in one row.
const TARGETS_PER_ROW: usize = 4_096;

/// Starts a replay. A replay for a tenant that does not exist is done immediately and is not stored.
pub(in crate::postgres) async fn create(
    context: &mut WriteContext,
    now: Timestamp,
    tenant: &TenantId,
    filter: &ReplayFilter,
    plan: &ReplayTargets,
) -> Result<Replay, DbError> {
    let id: ReplayId = context.id_generator.borrow_mut().next(now);
    let conn = context.conn.clone();
    let tenant_no = live_tenant(&conn, tenant).await?;
    let tenant_no = tenant_no.filter(|no| plan.tenant_no == Some(*no));
    let total = tenant_no.map(|_| plan.targets.len());
    let replay = Replay::begin(id, tenant, filter, now, total);
    let Some(tenant_no) = tenant_no else {
        return Ok(replay);
    };
    // Before the directory is locked, because there may be very many, and accepts wait for that lock. No other
    // transaction waits for these rows.
    for (piece, targets) in plan.targets.chunks(TARGETS_PER_ROW).enumerate() {
        let mut packed = Vec::new();
        for target in targets {
            target.pack(&mut packed);
        }
        conn.execute(
            "INSERT INTO replay_targets (replay_id, piece, targets) VALUES ($1, $2, $3)",
            &[&Id(id.0), &(piece as i64), &packed],
        )
        .await?;
    }
    context.lock_directory_last();
    let (filter, total) = (filter.clone(), replay.total as i64);
    context.write_last(CREATE, move |conn| async move {
        let params: Params<'_> = &[
            &Id(id.0),
            &tenant_no,
            &EnumCode(filter.scope),
            &filter.endpoint.map(|endpoint| Id(endpoint.0)),
            &filter.event_type.as_ref().map(EventType::as_str),
            &filter.error_kind.map(EnumCode),
            &filter.since.map(ms),
            &filter.until.map(ms),
            &total,
            &ms(now),
        ];
        conn.execute(CREATE, params).await?;
        Ok(())
    });
    context.change(Change::Replay(id));
    Ok(replay)
}

/// Inserts a replay, if its tenant was not deleted meanwhile.
const CREATE: &str = "WITH made AS (INSERT INTO replays (id, tenant_no, status, scope, endpoint, event_type, kind, \
    since, until, total, replayed, created_at) \
    SELECT $1, no, 0, $3, $4, $5, $6, $7, $8, $9, 0, $10 FROM tenants WHERE no = $2 AND NOT deleted RETURNING 1) \
    SELECT demand(count(*) = 1) FROM made";

/// Deletes the list of targets of a replay.
async fn delete_targets(conn: &PgConnection, id: ReplayId) -> Result<(), DbError> {
    conn.execute(DELETE_TARGETS, &[&Id(id.0)]).await?;
    Ok(())
}

const DELETE_TARGETS: &str = "DELETE FROM replay_targets WHERE replay_id = $1";

/// Returns the next targets of a replay, starting at this index: events and endpoint numbers.
async fn targets(
    conn: &PgConnection,
    replay: ReplayId,
    index: usize,
    limit: usize,
) -> Result<Vec<(EventId, i64)>, DbError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let first = index / TARGETS_PER_ROW;
    let last = index.saturating_add(limit - 1) / TARGETS_PER_ROW;
    let rows = conn
        .query(
            "SELECT targets FROM replay_targets WHERE replay_id = $1 AND piece >= $2 AND piece <= $3 \
             ORDER BY piece",
            &[&Id(replay.0), &sql_limit(first), &sql_limit(last)],
        )
        .await?;
    let packed = rows.iter().map(|row| row.get::<_, &[u8]>(0));
    let from = index - first * TARGETS_PER_ROW;
    Ok(packed.flat_map(unpack).skip(from).take(limit).collect())
}

/// Replays the next targets. Counts all of them, also those that it skips.
pub(in crate::postgres) async fn step(
    context: &mut WriteContext,
    now: Timestamp,
    id: ReplayId,
    limit: usize,
) -> Result<Option<ReplayStep>, DbError> {
    context.lock_directory_shared().await?;
    let conn = context.conn.clone();
    let Some(mut replay) = find(&conn, None, id, RowLock::ForUpdate).await? else {
        return Ok(None);
    };
    let mut going = BTreeSet::new();
    match replay.status {
        ReplayStatus::Running => {
            let next = targets(&conn, id, replay.replayed as usize, limit).await?;
            replay.replayed += next.len() as u64;
            let set = replay_batch(context, now, replay.filter.scope, &next).await?;
            replay.skipped += (next.len() - set.count) as u64;
            going = set.endpoints;
            if replay.replayed >= replay.total {
                replay.status = ReplayStatus::Done;
                replay.finished_at = Some(now);
            }
            save(&conn, &replay).await?;
        }
        ReplayStatus::Done | ReplayStatus::Cancelled => {}
    }
    Ok(Some(ReplayStep {
        replay,
        endpoints: going.into_iter().collect(),
    }))
}

/// An event to replay.
struct ReplayedEvent {
    created_at: Timestamp,
    deliver_at: Option<Timestamp>,
    ordering: Option<OrderingKey>,
    event_type: String,
    tenant_no: i64,
    made: FxHashMap<EndpointId, DeliveryId>,
}

/// The deliveries that a step made due.
#[derive(Default)]
struct ReplayedBatch {
    /// Endpoints that have new work.
    endpoints: BTreeSet<EndpointId>,
    count: usize,
}

/// Replays events to endpoints that are not disabled or deleted, unless another request has already done so.
async fn replay_batch(
    context: &mut WriteContext,
    now: Timestamp,
    scope: ReplayScope,
    targets: &[(EventId, i64)],
) -> Result<ReplayedBatch, DbError> {
    let routes = routes_to(context, targets).await?;
    let originals = originals(&context.conn, targets).await?;
    let mut again = Vec::new();
    let mut anew = Vec::new();
    for (event, endpoint_no) in targets {
        let (Some(route), Some(original)) = (routes.get(endpoint_no), originals.get(event)) else {
            continue;
        };
        match original.made.get(&route.id) {
            Some(made) => again.push(*made),
            None => anew.push((*event, *endpoint_no)),
        }
    }
    let mut going = replay_ended(context, now, scope, &again, &routes).await?;
    let made = create_deliveries(context, now, &anew, &originals, &routes).await?;
    going.endpoints.extend(made.endpoints);
    going.count += made.count;
    Ok(going)
}

/// Returns the endpoints of these targets that are not disabled or deleted.
async fn routes_to(
    context: &WriteContext,
    targets: &[(EventId, i64)],
) -> Result<FxHashMap<i64, EndpointRoute>, DbError> {
    let mut numbers: Vec<i64> = targets.iter().map(|(_, no)| *no).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = context
        .conn
        .query(
            "SELECT e.no, e.id, t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
             WHERE e.no = ANY($1) AND NOT t.deleted",
            &[&numbers],
        )
        .await?;
    let mut routes = FxHashMap::default();
    for row in &rows {
        let (no, id) = (row.get(0), EndpointId(row.get::<_, Id>(1).0));
        let tenant = context.tenant(&parse(row.get(2))?);
        let route = tenant.as_ref().and_then(|tenant| tenant.endpoint(id));
        if let Some(route) = route.filter(|route| route.accepts_deliveries()) {
            routes.insert(no, route.clone());
        }
    }
    Ok(routes)
}

/// Returns the events of these targets whose payloads still exist, with their deliveries. Locks them until the
/// commit.
async fn originals(
    conn: &PgConnection,
    targets: &[(EventId, i64)],
) -> Result<FxHashMap<EventId, ReplayedEvent>, DbError> {
    let mut events: Vec<Id> = targets.iter().map(|(event, _)| Id(event.0)).collect();
    events.sort_unstable();
    events.dedup();
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Ok(FxHashMap::default());
    };
    let rows = conn
        .query(
            "SELECT id, created_at, deliver_at, ordering, type, tenant_no, deliveries FROM events \
             WHERE id = ANY($1) AND id >= $2 AND id <= $3 AND payload_removed_at IS NULL \
             ORDER BY id FOR KEY SHARE",
            &[&events, first, last],
        )
        .await?;
    let mut originals = FxHashMap::default();
    for row in &rows {
        let ordering: Option<i64> = row.get(3);
        let accepted = read_list(row.get(6)).into_iter();
        let original = ReplayedEvent {
            created_at: at(row.get(1)),
            deliver_at: row.get::<_, Option<i64>>(2).map(at),
            ordering: ordering.map(|key| OrderingKey(key as u64)),
            event_type: row.get(4),
            tenant_no: row.get(5),
            made: accepted
                .map(|delivery| (delivery.endpoint, delivery.id))
                .collect(),
        };
        originals.insert(EventId(row.get::<_, Id>(0).0), original);
    }
    let added = conn
        .query(
            "SELECT a.event_id, e.id, a.delivery_id FROM added a \
             JOIN endpoints e ON e.no = a.endpoint_no WHERE a.event_id = ANY($1)",
            &[&events],
        )
        .await?;
    for row in &added {
        let event = EventId(row.get::<_, Id>(0).0);
        if let Some(original) = originals.get_mut(&event) {
            let delivery = DeliveryId(row.get::<_, Id>(2).0);
            let endpoint = EndpointId(row.get::<_, Id>(1).0);
            original.made.insert(endpoint, delivery);
        }
    }
    Ok(originals)
}

/// Replays deliveries that have ended with the requested status.
async fn replay_ended(
    context: &mut WriteContext,
    now: Timestamp,
    scope: ReplayScope,
    ids: &[DeliveryId],
    routes: &FxHashMap<i64, EndpointRoute>,
) -> Result<ReplayedBatch, DbError> {
    let mut ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    ids.sort_unstable();
    let mut going = ReplayedBatch::default();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(going);
    };
    let conn = context.conn.clone();
    let sql = format!(
        "WITH d AS (DELETE FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 AND status = $4 \
         RETURNING *) SELECT {} FROM d JOIN endpoints e ON e.no = d.endpoint_no ORDER BY d.id",
        delivery_rows::ENDED
    );
    let status = ended_as(scope.status());
    let found = conn
        .query(&sql, &[&ids, first, last, &status.map(EnumCode)])
        .await?;
    let mut revived = NewWaitingRows::default();
    let mut kept = (Vec::new(), Vec::new(), Vec::new());
    for row in &found {
        let before = delivery_rows::read(row)?;
        let mut after = before.delivery.clone();
        let route = &routes[&before.endpoint_no];
        after
            .replay(now, route.give_up_after)
            .expect("only what has ended is asked for");
        let last_attempt = before.last_attempt()?;
        if let (Some(entry), Some(last)) = (&last_attempt, &before.last) {
            kept.0.push(Id(after.id().0));
            kept.1.push(entry.number as i32);
            kept.2.push(last.clone());
        }
        let waits = status_of(&after);
        context.count(before.endpoint_no, Some(before.status), Some(waits));
        context.notify_work(route.id, now);
        going.endpoints.insert(route.id);
        going.count += 1;
        let kind = failed_with(&after, last_attempt.and_then(|last| last.error_kind));
        revived.push(before, &after, kind);
    }
    revived.insert(&conn).await?;
    if !kept.0.is_empty() {
        // A delivery that failed without an attempt has its last attempt in the table already.
        conn.execute(
            "INSERT INTO attempts (delivery_id, number, entry) \
             SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[]) ON CONFLICT DO NOTHING",
            &[&kept.0, &kept.1, &kept.2],
        )
        .await?;
    }
    Ok(going)
}

/// Returns the stored status for a shown status that is final.
fn ended_as(status: StoredStatus) -> Option<RowStatus> {
    match status {
        StoredStatus::Succeeded => Some(RowStatus::Succeeded),
        StoredStatus::Failed => Some(RowStatus::Failed),
        StoredStatus::Cancelled => Some(RowStatus::Cancelled),
        StoredStatus::Pending | StoredStatus::Retrying | StoredStatus::Held => None,
    }
}

/// Creates deliveries of stored events, due now unless the event is scheduled for later. If another transaction
/// creates a delivery of the same event for the same endpoint at the same time, only one of them does.
async fn create_deliveries(
    context: &mut WriteContext,
    now: Timestamp,
    targets: &[(EventId, i64)],
    originals: &FxHashMap<EventId, ReplayedEvent>,
    routes: &FxHashMap<i64, EndpointRoute>,
) -> Result<ReplayedBatch, DbError> {
    let mut going = ReplayedBatch::default();
    if targets.is_empty() {
        return Ok(going);
    }
    context.make_partitions(now).await?;
    let events: Vec<Id> = targets.iter().map(|(event, _)| Id(event.0)).collect();
    let endpoints: Vec<i64> = targets.iter().map(|(_, no)| *no).collect();
    let ids: Vec<DeliveryId> = {
        let mut id_generator = context.id_generator.borrow_mut();
        targets.iter().map(|_| id_generator.next(now)).collect()
    };
    let named: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    let conn = context.conn.clone();
    let rows = conn
        .query(
            "INSERT INTO added (event_id, endpoint_no, delivery_id) \
             SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) \
             ON CONFLICT DO NOTHING RETURNING delivery_id",
            &[&events, &endpoints, &named],
        )
        .await?;
    let added: FxHashSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    let mut made = NewWaitingRows::default();
    let mut clock_skew = 0;
    for ((event, endpoint_no), id) in targets.iter().zip(ids) {
        if !added.contains(&Id(id.0)) {
            continue;
        }
        let (original, route) = (&originals[event], &routes[endpoint_no]);
        let due_at = original.deliver_at.map_or(now, |at| at.max(now));
        let scheduled = Delivery::schedule(
            id,
            *event,
            route.id,
            original.ordering,
            due_at,
            route.give_up_after,
        );
        let turn = ScheduledAttempt {
            at: due_at,
            trigger: Trigger::Manual,
        };
        let delivery = Delivery::restore(scheduled.facts().clone(), State::Pending(turn));
        let row = DeliveryRow {
            delivery,
            endpoint_no: *endpoint_no,
            tenant_no: original.tenant_no,
            created_at: original.created_at,
            event_type: original.event_type.clone(),
            status: RowStatus::Pending,
            last: None,
        };
        let delivery = row.delivery.clone();
        made.push(row, &delivery, None);
        context.count(*endpoint_no, None, Some(RowStatus::Pending));
        context.notify_work(route.id, due_at);
        going.endpoints.insert(route.id);
        going.count += 1;
        clock_skew = clock_skew.max(clock_skew_of(id.0, original.created_at));
    }
    made.insert(&conn).await?;
    store_clock_skew(&conn, meta::DELIVERY_CLOCK_SKEW, clock_skew).await?;
    Ok(going)
}

/// Cancels a replay.
pub(in crate::postgres) async fn cancel(
    context: &mut WriteContext,
    now: Timestamp,
    tenant: &TenantId,
    id: ReplayId,
) -> Result<Option<Replay>, DbError> {
    let conn = context.conn.clone();
    let Some(tenant_no) = live_tenant(&conn, tenant).await? else {
        return Ok(None);
    };
    let Some(mut replay) = find(&conn, Some(tenant_no), id, RowLock::Unlocked).await? else {
        return Ok(None);
    };
    match replay.status {
        ReplayStatus::Running => {
            replay.status = ReplayStatus::Cancelled;
            replay.finished_at = Some(now);
            context.lock_directory_last();
            context.write_last(CANCEL, move |conn| async move {
                let status = EnumCode(ReplayStatus::Cancelled);
                conn.execute(CANCEL, &[&Id(id.0), &status, &ms(now)])
                    .await?;
                Ok(())
            });
            context.write_last(DELETE_TARGETS, move |conn| async move {
                delete_targets(&conn, id).await
            });
            context.change(Change::Replay(id));
        }
        ReplayStatus::Done | ReplayStatus::Cancelled => {}
    }
    Ok(Some(replay))
}

/// Cancels a replay, if it is still running. A step may have replayed more of it than was read, and the answer may be that
/// much behind. It must not be a reason to try again: steps follow each other at once, so a node with a slow link would
/// never cancel.
const CANCEL: &str = "WITH ended AS (UPDATE replays SET status = $2, finished_at = $3 \
    WHERE id = $1 AND status = 0 RETURNING 1) SELECT demand(count(*) = 1) FROM ended";

/// Stores the progress of a replay. Deletes its list of targets when it ends.
async fn save(conn: &PgConnection, replay: &Replay) -> Result<(), DbError> {
    let id = Id(replay.id.0);
    conn.execute(
        "UPDATE replays SET status = $2, replayed = $3, finished_at = $4, skipped = $5 WHERE id = $1",
        &[
            &id,
            &EnumCode(replay.status),
            &(replay.replayed as i64),
            &replay.finished_at.map(ms),
            &(replay.skipped as i64),
        ],
    )
    .await?;
    if replay.status != ReplayStatus::Running {
        delete_targets(conn, replay.id).await?;
    }
    Ok(())
}

const COLUMNS: &str = "r.id, t.id, r.status, r.scope, r.endpoint, r.event_type, r.kind, r.since, \
    r.until, r.total, r.replayed, r.created_at, r.finished_at, r.skipped \
    FROM replays r JOIN tenants t ON t.no = r.tenant_no";

fn read(row: &Row) -> Result<Replay, DbError> {
    let time = |column: usize| row.get::<_, Option<i64>>(column).map(at);
    let endpoint: Option<Id> = row.get(4);
    let event_type: Option<&str> = row.get(5);
    let kind = match row.get::<_, Option<i16>>(6) {
        Some(_) => Some(word::<FailureKind>(row, 6)?),
        None => None,
    };
    Ok(Replay {
        id: ReplayId(row.get::<_, Id>(0).0),
        tenant: parse(row.get(1))?,
        status: word(row, 2)?,
        filter: ReplayFilter {
            scope: word(row, 3)?,
            endpoint: endpoint.map(|id| EndpointId(id.0)),
            event_type: event_type.map(parse).transpose()?,
            error_kind: kind,
            since: time(7),
            until: time(8),
        },
        total: row.get::<_, i64>(9) as u64,
        replayed: row.get::<_, i64>(10) as u64,
        created_at: at(row.get(11)),
        finished_at: time(12),
        skipped: row.get::<_, i64>(13) as u64,
    })
}

/// The way in which a replay's row is read: without a lock, or locked until the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowLock {
    Unlocked,
    ForUpdate,
}

/// Returns a replay, of this tenant or of any.
async fn find(
    conn: &PgConnection,
    tenant_no: Option<i64>,
    id: ReplayId,
    hold: RowLock,
) -> Result<Option<Replay>, DbError> {
    let held = match hold {
        RowLock::Unlocked => "",
        RowLock::ForUpdate => "FOR UPDATE OF r",
    };
    let sql = format!(
        "SELECT {COLUMNS} WHERE r.id = $1 AND ($2::bigint IS NULL OR r.tenant_no = $2) {held}"
    );
    let row = conn.query_opt(&sql, &[&Id(id.0), &tenant_no]).await?;
    row.as_ref().map(read).transpose()
}

/// Returns a replay of a tenant.
pub(in crate::postgres) async fn replay(
    conn: &PgConnection,
    tenant: &TenantId,
    id: ReplayId,
) -> Result<Option<Replay>, DbError> {
    match live_tenant(conn, tenant).await? {
        Some(no) => find(conn, Some(no), id, RowLock::Unlocked).await,
        None => Ok(None),
    }
}

/// Lists the replays of a tenant, the newest first.
pub(in crate::postgres) async fn replays(
    conn: &PgConnection,
    tenant: &TenantId,
    page: PageRequest<ReplayId>,
) -> Result<Page<Replay, ReplayId>, DbError> {
    let tenant_no = live_tenant(conn, tenant).await?;
    let sql = format!(
        "SELECT {COLUMNS} WHERE r.tenant_no = $1 AND r.id < $2 ORDER BY r.id DESC LIMIT $3"
    );
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    let rows = conn
        .query(&sql, &[&tenant_no, &before, &one_more(page.limit)])
        .await?;
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// Returns the replays that are running.
pub(in crate::postgres) async fn running(conn: &PgConnection) -> Result<Vec<ReplayId>, DbError> {
    let rows = conn
        .query("SELECT id FROM replays WHERE status = 0 ORDER BY id", &[])
        .await?;
    Ok(rows
        .iter()
        .map(|row| ReplayId(row.get::<_, Id>(0).0))
        .collect())
}
