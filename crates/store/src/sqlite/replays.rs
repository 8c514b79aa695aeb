//! Starts, steps, lists and cancels replays.
//!
//! The list of what a replay will send is fixed when it starts: pairs of event and endpoint
//! ([`ReplayTarget`](super::replay_targets::ReplayTarget)), packed into a few rows. Its steps process the list in order and
//! store their position. So a replay continues after a restart, and starts nothing twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{Delivery, OrderingKey, ScheduledAttempt, State, Trigger};
use posthaste_core::id::{EndpointId, EventId, ReplayId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::accept::{add, store_clock_skew};
use super::codes::Code;
use super::delivery_rows::{self, endpoint_id, parse};
use super::directory::live_tenant;
use super::event_rows::{DeliveryList, Listed};
use super::group_commit::WriteContext;
use super::record::put;
use super::replay_targets::{ReplayTargets, TARGET_BYTES};
use super::routing_table::EndpointRoute;
use super::row_keys::{Key, id_at, id_bytes, key_of, look_up, tail_of};
use crate::codes::{at, ms};
use crate::page::{cut, one_more};
use crate::{Page, PageRequest, Replay, ReplayFilter, ReplayScope, ReplayStatus, ReplayStep};

/// Number of targets in one row.
const PIECE: usize = 4_096;

/// Starts a replay. For a tenant that does not exist it returns a finished replay, which is not stored.
pub(super) fn create(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    tenant: &TenantId,
    filter: &ReplayFilter,
    plan: &ReplayTargets,
) -> rusqlite::Result<Replay> {
    let id: ReplayId = context.key_generator.next(now);
    let tenant_no = context.routes.tenant(tenant).map(|routes| routes.no);
    let tenant_no = tenant_no.filter(|no| plan.tenant_no == Some(*no));
    let total = tenant_no.map(|_| plan.targets.len());
    let replay = Replay::begin(id, tenant, filter, now, total);
    let Some(tenant_no) = tenant_no else {
        return Ok(replay);
    };
    context
        .conn
        .prepare_cached(
            "INSERT INTO replays (key, tail, tenant_no, status, scope, endpoint, event_type, kind, \
             since, until, total, replayed, created_at) \
             VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11)",
        )?
        .execute(params![
            key_of(id.0),
            tail_of(id.0),
            tenant_no,
            Code(filter.scope),
            filter.endpoint.map(|endpoint| id_bytes(endpoint.0)),
            filter.event_type.as_ref().map(EventType::as_str),
            filter.error_kind.map(Code),
            filter.since.map(ms),
            filter.until.map(ms),
            replay.total as i64,
            ms(now),
        ])?;
    let mut insert = context.conn.prepare_cached(
        "INSERT INTO replay_targets (replay_key, piece, targets) VALUES (?1, ?2, ?3)",
    )?;
    for (piece, targets) in plan.targets.chunks(PIECE).enumerate() {
        let mut packed = Vec::with_capacity(targets.len() * TARGET_BYTES);
        for target in targets {
            packed.extend_from_slice(&target.event.to_le_bytes());
            packed.extend_from_slice(&target.endpoint_no.to_le_bytes());
        }
        insert.execute(params![key_of(id.0), piece as i64, packed])?;
    }
    Ok(replay)
}

/// Returns the next targets of a replay from this index: events and endpoint numbers.
fn targets(
    conn: &Connection,
    replay: Key,
    index: usize,
    limit: usize,
) -> rusqlite::Result<Vec<(Key, i64)>> {
    let mut found = Vec::new();
    let mut statement = conn.prepare_cached(
        "SELECT targets FROM replay_targets WHERE replay_key = ?1 AND piece = ?2",
    )?;
    let mut index = index;
    while found.len() < limit {
        let packed: Option<Vec<u8>> = statement
            .query_row((replay, (index / PIECE) as i64), |row| row.get(0))
            .optional()?;
        let Some(packed) = packed else {
            break;
        };
        let before = found.len();
        for target in packed
            .chunks_exact(TARGET_BYTES)
            .skip(index % PIECE)
            .take(limit - before)
        {
            let half = |range: std::ops::Range<usize>| {
                i64::from_le_bytes(target[range].try_into().expect("eight bytes"))
            };
            found.push((half(0..8), half(8..16)));
        }
        if found.len() == before {
            break;
        }
        index += found.len() - before;
    }
    Ok(found)
}

/// Starts the next deliveries. Every processed target is counted, including skipped ones.
pub(super) fn step(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    id: ReplayId,
    limit: usize,
) -> rusqlite::Result<Option<ReplayStep>> {
    let Some(mut replay) = find(context.conn, None, id)? else {
        return Ok(None);
    };
    let mut going = BTreeSet::new();
    match replay.status {
        ReplayStatus::Running => {
            let key = key_of(id.0);
            let next = targets(context.conn, key, replay.replayed as usize, limit)?;
            replay.replayed += next.len() as u64;
            for (event, endpoint_no) in next {
                let target = (event, endpoint_no);
                match start_delivery(context, now, replay.filter.scope, target)? {
                    Some(endpoint) => {
                        going.insert(endpoint);
                    }
                    None => replay.skipped += 1,
                }
            }
            if replay.replayed >= replay.total {
                replay.status = ReplayStatus::Done;
                replay.finished_at = Some(now);
            }
            save(context.conn, &replay)?;
        }
        ReplayStatus::Done | ReplayStatus::Cancelled => {}
    }
    Ok(Some(ReplayStep {
        replay,
        endpoints: going.into_iter().collect(),
    }))
}

/// Starts one delivery, if its endpoint is enabled or paused and no other request was faster. Returns the endpoint, or
/// `None` if the target is skipped.
fn start_delivery(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    scope: ReplayScope,
    (event, endpoint_no): (Key, i64),
) -> rusqlite::Result<Option<EndpointId>> {
    let Some(route) = route_to(context, endpoint_no)? else {
        return Ok(None);
    };
    let list: Option<Vec<u8>> = context
        .conn
        .prepare_cached(
            "SELECT deliveries FROM events WHERE key = ?1 AND payload_removed_at IS NULL",
        )?
        .query_row([event], |row| row.get(0))
        .optional()?;
    let Some(list) = list.map(DeliveryList::from_bytes) else {
        return Ok(None);
    };
    context.cache.retention_progress.invalidate_event(event);
    let made = list.iter().find(|listed| listed.endpoint_no == endpoint_no);
    let Some(made) = made else {
        make(context, now, event, &route, list)?;
        return Ok(Some(route.id));
    };
    let Some(row) = delivery_rows::find(context.conn, made.id)? else {
        return Ok(None);
    };
    if row.status.shown(false) != scope.status() {
        return Ok(None);
    }
    let mut after = row.delivery.clone();
    after
        .replay(now, route.give_up_after)
        .expect("only what has ended is asked for");
    put(context, &row, &after)?;
    Ok(Some(route.id))
}

/// Returns the endpoint with this number, if it is enabled or paused.
fn route_to(
    context: &WriteContext<'_>,
    endpoint_no: i64,
) -> rusqlite::Result<Option<Arc<EndpointRoute>>> {
    let tenant: Option<String> = context
        .conn
        .prepare_cached(
            "SELECT t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no WHERE e.no = ?1",
        )?
        .query_row([endpoint_no], |row| row.get(0))
        .optional()?;
    let Some(tenant) = tenant else {
        return Ok(None);
    };
    let route = context
        .routes
        .tenant(&parse(&tenant)?)
        .and_then(|routes| routes.endpoint_no(endpoint_no));
    Ok(route.filter(|route| route.accepts_deliveries()).cloned())
}

/// Creates a delivery of a stored event, due now unless the event asks for a later time.
fn make(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    event: Key,
    route: &EndpointRoute,
    mut list: DeliveryList,
) -> rusqlite::Result<()> {
    let (id, created_at, deliver_at, ordering) = context
        .conn
        .prepare_cached("SELECT tail, created_at, deliver_at, ordering FROM events WHERE key = ?1")?
        .query_row([event], |row| {
            Ok((
                EventId(id_at(event, row.get(0)?)),
                at(row.get(1)?),
                row.get::<_, Option<i64>>(2)?.map(at),
                row.get::<_, Option<i64>>(3)?
                    .map(|key| OrderingKey(key as u64)),
            ))
        })?;
    let due_at = deliver_at.map_or(now, |at| at.max(now));
    let scheduled = Delivery::schedule(
        context.key_generator.next(now),
        id,
        route.id,
        ordering,
        due_at,
        route.give_up_after,
    );
    let turn = ScheduledAttempt {
        at: due_at,
        trigger: Trigger::Manual,
    };
    let delivery = Delivery::restore(scheduled.facts().clone(), State::Pending(turn));
    add(context, &delivery, route.no)?;
    list.push(Listed {
        id: delivery.id(),
        endpoint_no: route.no,
        added_later: true,
    });
    context
        .conn
        .prepare_cached("UPDATE events SET deliveries = ?2 WHERE key = ?1")?
        .execute((event, list.as_bytes()))?;
    store_clock_skew(context, created_at, event, key_of(delivery.id().0))
}

/// Cancels a replay.
pub(super) fn cancel(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    tenant: &TenantId,
    id: ReplayId,
) -> rusqlite::Result<Option<Replay>> {
    let Some(tenant_no) = context.routes.tenant(tenant).map(|routes| routes.no) else {
        return Ok(None);
    };
    let Some(mut replay) = find(context.conn, Some(tenant_no), id)? else {
        return Ok(None);
    };
    match replay.status {
        ReplayStatus::Running => {
            replay.status = ReplayStatus::Cancelled;
            replay.finished_at = Some(now);
            save(context.conn, &replay)?;
        }
        ReplayStatus::Done | ReplayStatus::Cancelled => {}
    }
    Ok(Some(replay))
}

/// Stores the progress of a replay. Deletes its targets when it has ended.
fn save(conn: &Connection, replay: &Replay) -> rusqlite::Result<()> {
    let key = key_of(replay.id.0);
    conn.prepare_cached(
        "UPDATE replays SET status = ?2, replayed = ?3, finished_at = ?4, skipped = ?5 WHERE key = ?1",
    )?
    .execute(params![
        key,
        Code(replay.status),
        replay.replayed as i64,
        replay.finished_at.map(ms),
        replay.skipped as i64,
    ])?;
    if replay.status != ReplayStatus::Running {
        conn.prepare_cached("DELETE FROM replay_targets WHERE replay_key = ?1")?
            .execute([key])?;
    }
    Ok(())
}

const COLUMNS: &str = "r.key, r.tail, t.id, r.status, r.scope, r.endpoint, r.event_type, r.kind, \
    r.since, r.until, r.total, r.replayed, r.created_at, r.finished_at, r.skipped \
    FROM replays r JOIN tenants t ON t.no = r.tenant_no";

fn read(row: &Row<'_>) -> rusqlite::Result<Replay> {
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(at));
    Ok(Replay {
        id: ReplayId(id_at(row.get(0)?, row.get(1)?)),
        tenant: parse(row.get_ref(2)?.as_str()?)?,
        status: row.get::<_, Code<ReplayStatus>>(3)?.0,
        filter: ReplayFilter {
            scope: row.get::<_, Code<ReplayScope>>(4)?.0,
            endpoint: match row.get_ref(5)? {
                rusqlite::types::ValueRef::Null => None,
                rusqlite::types::ValueRef::Integer(_)
                | rusqlite::types::ValueRef::Real(_)
                | rusqlite::types::ValueRef::Text(_)
                | rusqlite::types::ValueRef::Blob(_) => Some(endpoint_id(row, 5)?),
            },
            event_type: row.get_ref(6)?.as_str_or_null()?.map(parse).transpose()?,
            error_kind: row
                .get::<_, Option<Code<FailureKind>>>(7)?
                .map(|kind| kind.0),
            since: time(8)?,
            until: time(9)?,
        },
        total: row.get::<_, i64>(10)? as u64,
        replayed: row.get::<_, i64>(11)? as u64,
        created_at: at(row.get(12)?),
        finished_at: time(13)?,
        skipped: row.get::<_, i64>(14)? as u64,
    })
}

/// Returns a replay, of this tenant or of any.
fn find(
    conn: &Connection,
    tenant_no: Option<i64>,
    id: ReplayId,
) -> rusqlite::Result<Option<Replay>> {
    let Some((key, tail)) = look_up(id.0) else {
        return Ok(None);
    };
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} WHERE r.key = ?1 AND r.tail = ?2 AND (?3 IS NULL OR r.tenant_no = ?3)"
    ))?
    .query_row((key, tail, tenant_no), read)
    .optional()
}

/// Returns a replay of a tenant.
pub(super) fn replay(
    conn: &Connection,
    tenant: &TenantId,
    id: ReplayId,
) -> rusqlite::Result<Option<Replay>> {
    match live_tenant(conn, tenant)? {
        Some(no) => find(conn, Some(no), id),
        None => Ok(None),
    }
}

/// Lists replays of a tenant, newest first.
pub(super) fn replays(
    conn: &Connection,
    tenant: &TenantId,
    page: PageRequest<ReplayId>,
) -> rusqlite::Result<Page<Replay, ReplayId>> {
    let tenant_no = live_tenant(conn, tenant)?;
    let items = conn
        .prepare_cached(&format!(
            "SELECT {COLUMNS} WHERE r.tenant_no = ?1 AND (?2 IS NULL OR r.key < ?2) \
             ORDER BY r.key DESC LIMIT ?3"
        ))?
        .query_map(
            params![
                tenant_no,
                page.before.map(|id| key_of(id.0)),
                one_more(page.limit)
            ],
            read,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// Returns the running replays.
pub(super) fn running(conn: &Connection) -> rusqlite::Result<Vec<ReplayId>> {
    conn.prepare_cached(
        "SELECT key, tail FROM replays INDEXED BY running WHERE status = 0 ORDER BY key",
    )?
    .query_map([], |row| Ok(ReplayId(id_at(row.get(0)?, row.get(1)?))))?
    .collect()
}
