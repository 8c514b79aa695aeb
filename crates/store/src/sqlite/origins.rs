//! Origin endpoints: found by their URL, and deleted when nothing refers to them any more.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::delivery_rows::endpoint_id;
use super::directory::live_tenant;
use super::endpoints::{find, set_status};
use super::group_commit::WriteContext;
use super::key_scan::{Direction, Range, SearchScope, Source};
use super::row_keys::AFTER_ALL_KEYS;
use crate::codes::{ms, sql_limit};

/// Maximum number of origin endpoints that one call examines, as a multiple of those that it may delete.
const EXAMINED_PER_DELETED: usize = 8;

/// Returns the origin endpoint of a tenant with this URL, unless it is deleted.
pub(super) fn origin_endpoint(
    conn: &Connection,
    tenant: &TenantId,
    url: &str,
) -> rusqlite::Result<Option<EndpointId>> {
    let tenant_no = live_tenant(conn, tenant)?;
    conn.prepare_cached(
        "SELECT id FROM endpoints INDEXED BY origin_endpoints \
         WHERE tenant_no = ?1 AND url = ?2 AND is_origin = 1 AND standing <> 3",
    )?
    .query_row((tenant_no, url), |row| endpoint_id(row, 0))
    .optional()
}

/// Deletes up to `limit` origin endpoints without deliveries that were created before this time. Examines a bounded
/// number, and continues after them at the next call.
pub(super) fn delete_idle(
    context: &mut WriteContext<'_>,
    created_before: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<EndpointId>> {
    let conn = context.conn;
    let examined = limit.saturating_mul(EXAMINED_PER_DELETED);
    let above = context.cache.origins_up_to;
    let found = conn
        .prepare_cached(
            "SELECT no, id, created_at FROM endpoints INDEXED BY origins \
             WHERE is_origin = 1 AND standing <> 3 AND no > ?1 ORDER BY no LIMIT ?2",
        )?
        .query_map((above, sql_limit(examined)), |row| {
            Ok((row.get(0)?, endpoint_id(row, 1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, EndpointId, i64)>>>()?;
    let mut up_to = found
        .last()
        .filter(|_| found.len() == examined)
        .map_or(0, |(no, _, _)| *no);
    let mut deleted = Vec::new();
    for (no, id, created_at) in found {
        if created_at >= ms(created_before) || has_deliveries(conn, no)? {
            continue;
        }
        if deleted.len() == limit {
            up_to = no - 1;
            break;
        }
        if let Some(found) = find(conn, id)? {
            set_status(context, &found, EndpointStatus::Deleted, None)?;
            deleted.push(id);
        }
    }
    context.cache.origins_up_to = up_to;
    Ok(deleted)
}

fn has_deliveries(conn: &Connection, endpoint_no: i64) -> rusqlite::Result<bool> {
    let all = Range {
        above: -1,
        below: AFTER_ALL_KEYS,
    };
    let source = Source::Deliveries(SearchScope::Endpoint(endpoint_no));
    let keys = source.keys(conn, all, Direction::Up, 1)?;
    Ok(!keys.is_empty())
}
