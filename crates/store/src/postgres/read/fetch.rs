//! Reads deliveries that wait: the endpoints that have some, and the due deliveries of one endpoint.
//!
//! A fetch starts at the due watermark of its endpoint, so it skips the index entries of deliveries that have ended. On
//! an ordered lane it returns only the oldest unfinished delivery of each key. A row that cannot be read is reported
//! and does not block the others.

use std::sync::Arc;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::lane::Fetched;
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::due_watermarks::DueWatermarks;
use super::payload_cache::FetchedPayloadCache;
use crate::Content;
use crate::codes::{at, ms, sql_limit};
use crate::delivery_state::MAX_UNREADABLE_ROWS;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::delivery_rows::{self, COLUMN_COUNT, DUE_COLUMN, WAITING};
use crate::postgres::schema::event_rows::read_content;

/// Maximum number of blocked deliveries that a fetch reads before it searches by ordering key instead.
const MAX_BLOCKED_ROWS: usize = 4_096;
/// Maximum number of deliveries whose payloads a fetch reads along.
const MAX_CONTENTS: usize = 256;
/// Maximum total size of these payloads, in bytes. Larger payloads are read when they are sent.
const MAX_CONTENT_BYTES: i64 = 4 * 1_024 * 1_024;

/// Returns every endpoint that has waiting deliveries, with the due time of the earliest. Takes one index step per
/// endpoint.
pub(in crate::postgres) async fn endpoints_with_work(
    conn: &PgConnection,
    due_watermarks: &DueWatermarks,
) -> Result<Vec<(EndpointId, Timestamp)>, DbError> {
    let rows = conn
        .query(
            "WITH RECURSIVE walk AS ( \
             (SELECT endpoint_no, due FROM waiting ORDER BY endpoint_no, due LIMIT 1) UNION ALL \
             SELECT n.endpoint_no, n.due FROM walk, LATERAL (SELECT endpoint_no, due FROM waiting \
             WHERE endpoint_no > walk.endpoint_no ORDER BY endpoint_no, due LIMIT 1) n) \
             SELECT e.id, walk.due FROM walk JOIN endpoints e ON e.no = walk.endpoint_no",
            &[],
        )
        .await?;
    let work: Vec<(EndpointId, Timestamp)> = rows
        .iter()
        .map(|row| (EndpointId(row.get::<_, Id>(0).0), at(row.get(1))))
        .collect();
    for (endpoint, due) in &work {
        due_watermarks.lower(*endpoint, *due);
    }
    Ok(work)
}

/// Returns deliveries of an endpoint that are due, and caches their payloads.
pub(in crate::postgres) async fn fetch(
    conn: &PgConnection,
    due_watermarks: &DueWatermarks,
    contents: &FetchedPayloadCache,
    endpoint: EndpointId,
    due_by: Timestamp,
    limit: usize,
    ordered: bool,
) -> Result<Fetched, DbError> {
    let begun = due_watermarks.begin(endpoint);
    let no = conn
        .query_opt("SELECT no FROM endpoints WHERE id = $1", &[&Id(endpoint.0)])
        .await?;
    let Some(no) = no.map(|row| row.get::<_, i64>(0)) else {
        return Ok(nothing());
    };
    let window = if ordered {
        limit.saturating_add(MAX_BLOCKED_ROWS).saturating_add(1)
    } else {
        limit.saturating_add(1)
    };
    let mut found = in_order(conn, no, begun.watermark, window, ordered).await?;
    let mut whole = found.len() < window;
    let mut fetched = take_due(&found, due_by, limit)?;
    if !whole && fetched.next_due.is_none() && !fetched.unreadable.is_empty() {
        // Unreadable rows took places of the window.
        let window = window.saturating_add(MAX_UNREADABLE_ROWS);
        found = in_order(conn, no, begun.watermark, window, ordered).await?;
        whole = found.len() < window;
        fetched = take_due(&found, due_by, limit)?;
    }
    // An unreadable row counts too: a later fetch must find it again.
    let earliest = found.first().map(|row| at(row.get(DUE_COLUMN)));
    if ordered && !whole && fetched.next_due.is_none() {
        fetched = by_key(conn, no, due_by, limit).await?;
    }
    // The rest was not read, so other deliveries may be blocked.
    fetched.blocked |= ordered && (fetched.next_due.is_some() || !fetched.unreadable.is_empty());
    due_watermarks.set_after_fetch(
        endpoint,
        begun,
        earliest.unwrap_or(Timestamp(i64::MAX as u64)),
    );
    cache_payloads(conn, contents, &fetched).await?;
    Ok(fetched)
}

fn nothing() -> Fetched {
    Fetched {
        deliveries: Vec::new(),
        next_due: None,
        blocked: false,
        unreadable: Vec::new(),
    }
}

/// Returns the due deliveries of these rows, without the blocked and the unreadable ones.
fn take_due(found: &[Row], due_by: Timestamp, limit: usize) -> Result<Fetched, DbError> {
    let mut fetched = nothing();
    for row in found {
        let Some(delivery) = readable(&mut fetched, row)? else {
            continue;
        };
        let blocked: bool = row.get(COLUMN_COUNT);
        let next_attempt_at = delivery.next_attempt_at().unwrap_or_default();
        if blocked {
            fetched.blocked = true;
        } else if next_attempt_at <= due_by && fetched.deliveries.len() < limit {
            fetched.deliveries.push(delivery);
        } else {
            fetched.next_due = Some(next_attempt_at);
            break;
        }
    }
    Ok(fetched)
}

/// Reads a delivery. One that cannot be read is noted, so that it does not block the others. Returns an error after
/// [`MAX_UNREADABLE_ROWS`].
fn readable(fetched: &mut Fetched, row: &Row) -> Result<Option<Delivery>, DbError> {
    match delivery_rows::read(row) {
        Ok(row) => Ok(Some(row.delivery)),
        Err(DbError::Corrupt(_)) if fetched.unreadable.len() < MAX_UNREADABLE_ROWS => {
            fetched.unreadable.push(DeliveryId(row.get::<_, Id>(0).0));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns waiting deliveries, the earliest first, and for each one whether an older delivery with the same ordering
/// key waits too.
async fn in_order(
    conn: &PgConnection,
    endpoint_no: i64,
    watermark: Timestamp,
    window: usize,
    ordered: bool,
) -> Result<Vec<Row>, DbError> {
    let blocked = if ordered {
        "w.ordering IS NOT NULL AND EXISTS (SELECT 1 FROM waiting o WHERE o.endpoint_no = w.endpoint_no \
         AND o.ordering = w.ordering AND o.id < w.id)"
    } else {
        "false"
    };
    let sql = format!(
        "SELECT {WAITING}, {blocked} FROM waiting w JOIN endpoints e ON e.no = $1 \
         WHERE w.endpoint_no = $1 AND w.due >= $2 ORDER BY w.due, w.id LIMIT $3"
    );
    conn.query(&sql, &[&endpoint_no, &ms(watermark), &sql_limit(window)])
        .await
}

/// The same for an ordered endpoint with few ordering keys and many deliveries behind each: takes one index step per
/// key, and none for the deliveries behind it.
async fn by_key(
    conn: &PgConnection,
    endpoint_no: i64,
    due_by: Timestamp,
    limit: usize,
) -> Result<Fetched, DbError> {
    let sql = format!(
        "WITH RECURSIVE heads AS ( \
         (SELECT ordering, id FROM waiting WHERE endpoint_no = $1 AND ordering IS NOT NULL \
         ORDER BY ordering, id LIMIT 1) UNION ALL \
         SELECT n.ordering, n.id FROM heads, LATERAL (SELECT ordering, id FROM waiting \
         WHERE endpoint_no = $1 AND ordering > heads.ordering AND ordering IS NOT NULL \
         ORDER BY ordering, id LIMIT 1) n), \
         free AS (SELECT id FROM waiting WHERE endpoint_no = $1 AND ordering IS NULL \
         ORDER BY due, id LIMIT $2) \
         SELECT {WAITING} FROM (SELECT id FROM heads UNION ALL SELECT id FROM free) f \
         JOIN waiting w ON w.id = f.id JOIN endpoints e ON e.no = $1 ORDER BY w.due, w.id LIMIT $2"
    );
    let limit_read = limit.saturating_add(1).saturating_add(MAX_UNREADABLE_ROWS);
    let found = conn
        .query(&sql, &[&endpoint_no, &sql_limit(limit_read)])
        .await?;
    let mut fetched = Fetched {
        deliveries: Vec::new(),
        next_due: None,
        blocked: true,
        unreadable: Vec::new(),
    };
    for row in &found {
        let Some(delivery) = readable(&mut fetched, row)? else {
            continue;
        };
        let next_attempt_at = delivery.next_attempt_at().unwrap_or_default();
        if next_attempt_at > due_by || fetched.deliveries.len() == limit {
            fetched.next_due = Some(next_attempt_at);
            break;
        }
        fetched.deliveries.push(delivery);
    }
    Ok(fetched)
}

/// Reads the payloads of fetched deliveries that are not cached yet.
async fn cache_payloads(
    conn: &PgConnection,
    contents: &FetchedPayloadCache,
    fetched: &Fetched,
) -> Result<(), DbError> {
    let mut missing: Vec<Id> = Vec::new();
    for delivery in fetched.deliveries.iter().take(MAX_CONTENTS) {
        let event = delivery.facts().event;
        if !contents.has(event) {
            missing.push(Id(event.0));
        }
    }
    let (Some(first), Some(last)) = (missing.iter().min(), missing.iter().max()) else {
        return Ok(());
    };
    // The size limit needs no read of the payloads: PostgreSQL knows the `octet_length` of a large value without
    // fetching it. So only payloads within the limit are read.
    let sql = "SELECT id, created_at, type, content_type, payload, trace, schedule, scheduled_for FROM (SELECT id, \
         created_at, type, content_type, payload, trace, schedule, scheduled_for, sum(octet_length(payload)) OVER (ORDER BY id) AS bytes FROM events \
         WHERE id = ANY ($1) AND id >= $2 AND id <= $3) v WHERE bytes <= $4";
    let params: [&(dyn ToSql + Sync); 4] = [&missing, first, last, &MAX_CONTENT_BYTES];
    for row in &conn.query(sql, &params).await? {
        match read_content(row, 1) {
            Ok(content) => contents.keep(EventId(row.get::<_, Id>(0).0), content),
            // The attempts of this event read it themselves, and fail alone.
            Err(DbError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the payload of an event, and the time at which the event was accepted.
pub(in crate::postgres) async fn content(
    conn: &PgConnection,
    event: EventId,
) -> Result<Option<(Timestamp, Arc<Content>)>, DbError> {
    let sql = "SELECT created_at, type, content_type, payload, trace, schedule, scheduled_for FROM events \
         WHERE id = $1 AND payload_removed_at IS NULL";
    let row = conn.query_opt(sql, &[&Id(event.0)]).await?;
    row.as_ref().map(|row| read_content(row, 0)).transpose()
}
