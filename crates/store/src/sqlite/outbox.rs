//! What people are to be told.

use rusqlite::{Connection, Row};

use super::keys::{at, most};
use super::rows::{endpoint_id, from_json, parse};
use crate::{NoticeEntry, Scope};

/// What joins a scope to what it names, and the columns that [`scope`] reads.
pub(super) const SCOPE_COLUMNS: &str = "e.id, t.id";

/// What a row is about, from columns that begin here: the endpoint's id, then the tenant's.
pub(super) fn scope(row: &Row<'_>, first: usize) -> rusqlite::Result<Scope> {
    if row.get_ref(first)?.as_blob_or_null()?.is_some() {
        return Ok(Scope::Endpoint(endpoint_id(row, first)?));
    }
    match row.get_ref(first + 1)?.as_str_or_null()? {
        Some(tenant) => Ok(Scope::Tenant(parse(tenant)?)),
        None => Ok(Scope::Everything),
    }
}

/// Notices past a number.
pub(super) fn notices(
    conn: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<NoticeEntry>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    conn.prepare_cached(&format!(
        "SELECT n.number, n.at, n.name, n.detail, {SCOPE_COLUMNS} FROM notices n \
         LEFT JOIN endpoints e ON e.no = n.scope LEFT JOIN tenants t ON t.no = n.scope \
         WHERE n.number > ?1 ORDER BY n.number LIMIT ?2"
    ))?
    .query_map((after, most(limit)), |row| {
        Ok(NoticeEntry {
            number: row.get::<_, i64>(0)? as u64,
            scope: scope(row, 4)?,
            at: at(row.get(1)?),
            name: row.get(2)?,
            detail: from_json(row.get_ref(3)?.as_str()?)?,
        })
    })?
    .collect()
}
