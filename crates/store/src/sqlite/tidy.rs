//! Removing what has been finished for long enough.
//!
//! A step looks at the next few events in the order of their keys and removes those that are old enough,
//! with everything that hangs on them. The last step of a round removes replays that ended as long ago.
//! What has not ended is never touched, however old it is. Each step also removes a few passes, figures,
//! entries of the audit and alerts whose time is up.

use posthaste_core::time::{Span, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::codes::{Code, RowStatus};
use super::events::DeliveryList;
use super::group::{Scene, set_number};
use super::keys::{Key, at, key_of, most};
use super::rows::{endpoint_id, from_json};
use super::schema::meta;
use super::{alerts, audit, buckets, passes};
use crate::{Limits, Retention, Tidied};

/// An event that a step looks at.
struct Old {
    key: Key,
    tenant_no: i64,
    created_at: Timestamp,
    idempotency_key: Option<String>,
    deliveries: DeliveryList,
}

/// One step.
pub(super) fn step(
    scene: &mut Scene<'_>,
    now: Timestamp,
    retention: Retention,
) -> rusqlite::Result<Tidied> {
    let conn = scene.conn;
    let looked_at = look_at(conn, scene.memory.tidied_up_to, retention.step)?;
    let more = looked_at.len() == retention.step && retention.step > 0;
    scene.memory.tidied_up_to = match looked_at.last() {
        Some(last) if more => last.key,
        Some(_) | None => 0,
    };
    let mut kept_for: FxHashMap<i64, Span> = FxHashMap::default();
    let mut removed = 0;
    for event in &looked_at {
        let keep = match kept_for.get(&event.tenant_no) {
            Some(keep) => *keep,
            None => {
                let keep = retention_of(conn, event.tenant_no)?.unwrap_or(retention.default);
                kept_for.insert(event.tenant_no, keep);
                keep
            }
        };
        if event.created_at.after(keep) > now {
            continue;
        }
        if let Some(ends) = ends(conn, &event.deliveries)?
            && ends.iter().all(|end| end.at.after(keep) <= now)
        {
            // What is in a piece of the history that is being written would come back.
            scene.history.settle(conn)?;
            remove(scene, event, &ends)?;
            removed += 1;
        }
    }
    let replays = if more {
        0
    } else {
        remove_replays(conn, now, retention)?
    };
    if removed + replays > 0 {
        set_number(conn, meta::LAST_KEY, scene.presses.last())?;
    }
    let passes = passes::tidy(conn, now, retention.step)?;
    let entries = audit::tidy(conn, now, retention.step)?;
    let alerts = alerts::tidy(conn, now, retention.step)?;
    let figures = buckets::tidy(conn, now, retention.step)?;
    let gone = passes.max(entries).max(alerts).max(figures);
    Ok(Tidied {
        events: removed,
        more: more || (retention.step > 0 && gone == retention.step),
    })
}

fn look_at(conn: &Connection, above: Key, count: usize) -> rusqlite::Result<Vec<Old>> {
    conn.prepare_cached(
        "SELECT key, tenant_no, created_at, idempotency_key, deliveries FROM events \
         WHERE key > ?1 ORDER BY key LIMIT ?2",
    )?
    .query_map((above, most(count)), |row| {
        Ok(Old {
            key: row.get(0)?,
            tenant_no: row.get(1)?,
            created_at: at(row.get(2)?),
            idempotency_key: row.get(3)?,
            deliveries: DeliveryList::from_bytes(row.get(4)?),
        })
    })?
    .collect()
}

/// How long a tenant's plan keeps things. What is left of a deleted tenant takes the default.
fn retention_of(conn: &Connection, tenant_no: i64) -> rusqlite::Result<Option<Span>> {
    let limits = conn
        .prepare_cached("SELECT limits FROM tenants WHERE no = ?1 AND deleted = 0")?
        .query_row([tenant_no], |row| {
            from_json::<Limits>(row.get_ref(0)?.as_str()?)
        })
        .optional()?;
    Ok(limits.and_then(|limits| limits.retention))
}

/// How a delivery ended.
struct End {
    key: Key,
    endpoint_no: i64,
    status: RowStatus,
    at: Timestamp,
}

/// How the deliveries ended, or nothing if one of them has not.
fn ends(conn: &Connection, list: &DeliveryList) -> rusqlite::Result<Option<Vec<End>>> {
    let mut statement =
        conn.prepare_cached("SELECT status, ended_at FROM deliveries WHERE key = ?1")?;
    let mut ends = Vec::new();
    for listed in list.iter() {
        let key = key_of(listed.id.0);
        let found = statement
            .query_row([key], |row| {
                let status = row.get::<_, Code<RowStatus>>(0)?.0;
                Ok((status, row.get::<_, Option<i64>>(1)?))
            })
            .optional()?;
        match found {
            None => {}
            Some((_, None)) => return Ok(None),
            Some((status, Some(ended_at))) => ends.push(End {
                key,
                endpoint_no: listed.endpoint_no,
                status,
                at: at(ended_at),
            }),
        }
    }
    Ok(Some(ends))
}

/// Removes replays that ended long enough ago, and says how many. People begin them, so they are few, and
/// their lists went when they ended.
fn remove_replays(
    conn: &Connection,
    now: Timestamp,
    retention: Retention,
) -> rusqlite::Result<usize> {
    let ended = conn
        .prepare_cached(
            "SELECT key, tenant_no, finished_at FROM replays WHERE finished_at IS NOT NULL",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, at(row.get(2)?))))?
        .collect::<rusqlite::Result<Vec<(Key, i64, Timestamp)>>>()?;
    let mut removed = 0;
    for (key, tenant_no, ended_at) in ended {
        let keep = retention_of(conn, tenant_no)?.unwrap_or(retention.default);
        if ended_at.after(keep) <= now {
            conn.prepare_cached("DELETE FROM replays WHERE key = ?1")?
                .execute([key])?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn remove(scene: &mut Scene<'_>, event: &Old, ends: &[End]) -> rusqlite::Result<()> {
    let conn = scene.conn;
    for end in ends {
        if end.status == RowStatus::Failed {
            let endpoint = conn
                .prepare_cached("SELECT id FROM endpoints WHERE no = ?1")?
                .query_row([end.endpoint_no], |row| endpoint_id(row, 0))?;
            scene.effects.changes.went(endpoint, end.status);
        }
        conn.prepare_cached("DELETE FROM deliveries WHERE key = ?1")?
            .execute([end.key])?;
        conn.prepare_cached("DELETE FROM attempts WHERE delivery_key = ?1")?
            .execute([end.key])?;
        let mut forget =
            conn.prepare_cached("DELETE FROM delivery_history WHERE scope = ?1 AND key = ?2")?;
        forget.execute([end.endpoint_no, end.key])?;
        forget.execute([event.tenant_no, end.key])?;
    }
    if let Some(key) = &event.idempotency_key {
        conn.prepare_cached(
            "DELETE FROM idempotency WHERE tenant_no = ?1 AND key = ?2 AND event_key = ?3",
        )?
        .execute((event.tenant_no, key, event.key))?;
    }
    conn.prepare_cached("DELETE FROM event_history WHERE scope = ?1 AND key = ?2")?
        .execute([event.tenant_no, event.key])?;
    conn.prepare_cached("DELETE FROM events WHERE key = ?1")?
        .execute([event.key])?;
    Ok(())
}
