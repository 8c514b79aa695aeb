//! What people are to be told.

use posthaste_core::id::EndpointId;
use tokio_postgres::Row;

use super::columns::{Id, at, from_json, most, parse};
use super::fault::Fault;
use super::link::Link;
use crate::{NoticeEntry, Scope};

/// What a row is about, from columns that begin here: the endpoint's id, then the tenant's.
pub(super) fn scope(row: &Row, first: usize) -> Result<Scope, Fault> {
    if let Some(endpoint) = row.get::<_, Option<Id>>(first) {
        return Ok(Scope::Endpoint(EndpointId(endpoint.0)));
    }
    match row.get::<_, Option<&str>>(first + 1) {
        Some(tenant) => Ok(Scope::Tenant(parse(tenant)?)),
        None => Ok(Scope::Everything),
    }
}

/// Notices past a number.
pub(super) async fn notices(
    link: &Link,
    after: u64,
    limit: usize,
) -> Result<Vec<NoticeEntry>, Fault> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = link
        .query(
            "SELECT n.number, n.at, n.name, n.detail, e.id, t.id FROM notices n \
             LEFT JOIN endpoints e ON e.no = n.scope LEFT JOIN tenants t ON t.no = n.scope \
             WHERE n.number > $1 ORDER BY n.number LIMIT $2",
            &[&after, &most(limit)],
        )
        .await?;
    let entry = |row: &Row| {
        Ok(NoticeEntry {
            number: row.get::<_, i64>(0) as u64,
            scope: scope(row, 4)?,
            at: at(row.get(1)),
            name: row.get(2),
            detail: from_json(row.get(3))?,
        })
    };
    rows.iter().map(entry).collect()
}
