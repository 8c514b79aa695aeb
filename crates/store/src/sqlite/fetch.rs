//! Waiting deliveries: which endpoints have some, and which are due.
//!
//! On an ordered lane, [`fetch`] returns only the oldest unfinished delivery of each key; if many deliveries wait
//! behind few keys, it looks up each key instead. A row that cannot be read is reported and does not block the others.

use posthaste_core::delivery::{Delivery, OrderingKey};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::Fetched;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::delivery_rows::{self, COLUMNS, endpoint_id};
use super::directory::live_tenant;
use super::group_commit::is_unreadable;
use super::row_keys::{Key, id_at, id_bytes, key_of};
use crate::TenantSelection;
use crate::codes::{at, ms, sql_limit};
use crate::delivery_state::MAX_UNREADABLE_ROWS;
use crate::page::one_more;

/// Number of blocked deliveries that [`fetch`] skips before it switches to one lookup per ordering key.
const MAX_PASSED_OVER: usize = 4_096;

/// Returns every endpoint that has waiting deliveries, with the earliest due time.
pub(super) fn unfinished(conn: &Connection) -> rusqlite::Result<Vec<(EndpointId, Timestamp)>> {
    conn.prepare_cached(
        "SELECT id, due FROM (SELECT e.id AS id, (SELECT d.due FROM deliveries d INDEXED BY due \
         WHERE d.endpoint_no = e.no AND d.due IS NOT NULL ORDER BY d.due LIMIT 1) AS due \
         FROM endpoints e) WHERE due IS NOT NULL",
    )?
    .query_map([], |row| Ok((endpoint_id(row, 0)?, at(row.get(1)?))))?
    .collect()
}

/// Returns the due deliveries of an endpoint.
pub(super) fn fetch(
    conn: &Connection,
    endpoint: EndpointId,
    due_by: Timestamp,
    limit: usize,
    ordered: bool,
) -> rusqlite::Result<Fetched> {
    let mut fetched = Fetched {
        deliveries: Vec::new(),
        next_due: None,
        blocked: false,
        unreadable: Vec::new(),
    };
    let no: Option<i64> = conn
        .prepare_cached("SELECT no FROM endpoints WHERE id = ?1")?
        .query_row([id_bytes(endpoint.0)], |row| row.get(0))
        .optional()?;
    let Some(no) = no else {
        return Ok(fetched);
    };
    let mut waiting = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM deliveries d INDEXED BY due JOIN endpoints e ON e.no = d.endpoint_no \
         WHERE d.endpoint_no = ?1 AND d.due IS NOT NULL ORDER BY d.due, d.key"
    ))?;
    let mut found = waiting.query([no])?;
    let mut passed_over = 0;
    while let Some(row) = found.next()? {
        let delivery = match delivery_rows::read(row) {
            Ok(row) => row.delivery,
            Err(error) => {
                skip_unreadable(&mut fetched, row, error)?;
                continue;
            }
        };
        let next_attempt_at = delivery.next_attempt_at().unwrap_or_default();
        if ordered && !is_oldest_of_its_key(conn, no, &delivery)? {
            fetched.blocked = true;
            passed_over += 1;
            if passed_over > MAX_PASSED_OVER {
                return fetch_by_key(conn, no, due_by, limit);
            }
        } else if next_attempt_at <= due_by && fetched.deliveries.len() < limit {
            fetched.deliveries.push(delivery);
        } else {
            fetched.next_due = Some(next_attempt_at);
            break;
        }
    }
    // The rest was not examined, so deliveries in it may be blocked.
    fetched.blocked |= ordered && (fetched.next_due.is_some() || !fetched.unreadable.is_empty());
    Ok(fetched)
}

/// Notes a delivery whose row cannot be read, so that it does not block the others. Returns any other error, and an error
/// after [`MAX_UNREADABLE_ROWS`]. `row` begins with the key of the delivery.
fn skip_unreadable(
    fetched: &mut Fetched,
    row: &Row<'_>,
    error: rusqlite::Error,
) -> rusqlite::Result<()> {
    if !is_unreadable(&error) || fetched.unreadable.len() >= MAX_UNREADABLE_ROWS {
        return Err(error);
    }
    let id = DeliveryId(id_at(row.get(0)?, row.get(1)?));
    fetched.unreadable.push(id);
    Ok(())
}

fn is_oldest_of_its_key(
    conn: &Connection,
    endpoint_no: i64,
    delivery: &Delivery,
) -> rusqlite::Result<bool> {
    let Some(OrderingKey(ordering)) = delivery.facts().ordering else {
        return Ok(true);
    };
    let oldest: Key = conn
        .prepare_cached(
            "SELECT key FROM deliveries INDEXED BY ordered WHERE endpoint_no = ?1 \
             AND ordering = ?2 AND due IS NOT NULL ORDER BY key LIMIT 1",
        )?
        .query_row((endpoint_no, ordering as i64), |row| row.get(0))?;
    Ok(oldest == key_of(delivery.id().0))
}

/// Returns the same as [`fetch`] on an ordered lane. Faster when many deliveries wait behind few ordering keys: one
/// lookup per key, none for the deliveries behind it.
fn fetch_by_key(
    conn: &Connection,
    endpoint_no: i64,
    due_by: Timestamp,
    limit: usize,
) -> rusqlite::Result<Fetched> {
    let mut next_key = conn.prepare_cached(
        "SELECT ordering, key, due FROM deliveries INDEXED BY ordered WHERE endpoint_no = ?1 \
         AND ordering > ?2 AND due IS NOT NULL ORDER BY ordering, key LIMIT 1",
    )?;
    let mut first_key = conn.prepare_cached(
        "SELECT ordering, key, due FROM deliveries INDEXED BY ordered WHERE endpoint_no = ?1 \
         AND ordering IS NOT NULL AND due IS NOT NULL ORDER BY ordering, key LIMIT 1",
    )?;
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, Key, i64)> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    };
    let mut heads: Vec<(i64, Key)> = Vec::new();
    let mut head = first_key.query_row([endpoint_no], read).optional()?;
    while let Some((ordering, key, due)) = head {
        heads.push((due, key));
        head = next_key
            .query_row((endpoint_no, ordering), read)
            .optional()?;
    }
    let mut free = conn.prepare_cached(
        "SELECT due, key FROM deliveries INDEXED BY due WHERE endpoint_no = ?1 \
         AND due IS NOT NULL AND ordering IS NULL ORDER BY due, key LIMIT ?2",
    )?;
    let free = free.query_map((endpoint_no, one_more(limit)), |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    for entry in free {
        heads.push(entry?);
    }
    heads.sort_unstable();
    let mut fetched = Fetched {
        deliveries: Vec::new(),
        next_due: None,
        blocked: true,
        unreadable: Vec::new(),
    };
    for (due, key) in heads {
        if due > ms(due_by) || fetched.deliveries.len() == limit {
            fetched.next_due = Some(at(due));
            break;
        }
        match delivery_rows::at_key(conn, key) {
            Ok(found) => fetched.deliveries.extend(found.map(|row| row.delivery)),
            Err(error) => {
                let mut unreadable =
                    conn.prepare_cached("SELECT key, tail FROM deliveries WHERE key = ?1")?;
                unreadable.query_row([key], |row| skip_unreadable(&mut fetched, row, error))?;
            }
        }
    }
    Ok(fetched)
}

/// Counts the deliveries that have been waiting for another attempt since before `since`: those that were first due
/// before it, in their current round.
pub(super) fn retrying_since(
    conn: &Connection,
    tenants: &TenantSelection,
    since: Timestamp,
    limit: usize,
) -> rusqlite::Result<u64> {
    let (since, limit) = (ms(since), sql_limit(limit));
    let of_all = || {
        conn.prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY retrying \
             WHERE status = 1 AND first_due < ?1 LIMIT ?2)",
        )?
        .query_row((since, limit), |row| row.get(0))
    };
    let of_some = |condition, no: i64| {
        conn.prepare_cached(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries d INDEXED BY retrying \
             CROSS JOIN endpoints e ON e.no = d.endpoint_no \
             WHERE d.status = 1 AND d.first_due < ?1 AND e.tenant_no {condition} ?3 LIMIT ?2)"
        ))?
        .query_row((since, limit, no), |row| row.get(0))
    };
    let count: i64 = match tenants {
        TenantSelection::All => of_all()?,
        TenantSelection::Only(tenant) => match live_tenant(conn, tenant)? {
            Some(no) => of_some("=", no)?,
            None => 0,
        },
        TenantSelection::Except(tenant) => match live_tenant(conn, tenant)? {
            Some(no) => of_some("<>", no)?,
            None => of_all()?,
        },
    };
    Ok(count as u64)
}
