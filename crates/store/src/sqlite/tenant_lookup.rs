//! Looks up the tenant of an object.

use posthaste_core::id::TenantId;
use rusqlite::{Connection, OptionalExtension, Row};

use super::delivery_rows::parse;
use super::row_keys::{id_bytes, look_up};
use crate::TenantObject;

/// Returns the tenant that an object belongs to, if both exist.
pub(super) fn tenant_of(
    conn: &Connection,
    named: TenantObject,
) -> rusqlite::Result<Option<TenantId>> {
    let read = |row: &Row<'_>| parse(row.get_ref(0)?.as_str()?);
    match named {
        TenantObject::Endpoint(endpoint) => conn
            .prepare_cached(
                "SELECT t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
                 WHERE e.id = ?1 AND e.standing <> 3 AND e.is_origin = 0 AND t.deleted = 0",
            )?
            .query_row([id_bytes(endpoint.0)], read)
            .optional(),
        TenantObject::Event(event) => {
            let Some(row_key) = look_up(event.0) else {
                return Ok(None);
            };
            conn.prepare_cached(
                "SELECT t.id FROM events v JOIN tenants t ON t.no = v.tenant_no \
                 WHERE v.key = ?1 AND v.tail = ?2 AND t.deleted = 0",
            )?
            .query_row(row_key, read)
            .optional()
        }
        TenantObject::Delivery(delivery) => {
            let Some(row_key) = look_up(delivery.0) else {
                return Ok(None);
            };
            conn.prepare_cached(
                "SELECT t.id FROM deliveries d JOIN events v ON v.key = d.event_key \
                 JOIN tenants t ON t.no = v.tenant_no \
                 WHERE d.key = ?1 AND d.tail = ?2 AND t.deleted = 0",
            )?
            .query_row(row_key, read)
            .optional()
        }
    }
}
