//! Looks up the tenant of an object.

use posthaste_core::id::TenantId;

use crate::TenantObject;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, parse};

/// Returns the tenant that an object belongs to, if neither is deleted.
pub(in crate::postgres) async fn tenant_of(
    conn: &PgConnection,
    named: TenantObject,
) -> Result<Option<TenantId>, DbError> {
    let (id, sql) = match named {
        TenantObject::Endpoint(endpoint) => (
            endpoint.0,
            "SELECT t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
             WHERE e.id = $1 AND e.standing <> 3 AND NOT e.is_origin AND NOT t.deleted",
        ),
        TenantObject::Event(event) => (
            event.0,
            "SELECT t.id FROM events v JOIN tenants t ON t.no = v.tenant_no \
             WHERE v.id = $1 AND NOT t.deleted",
        ),
        // One statement, so that a delivery that ends at this moment is found in one of the tables.
        TenantObject::Delivery(delivery) => (
            delivery.0,
            "SELECT t.id FROM (SELECT tenant_no FROM waiting WHERE id = $1 \
             UNION ALL SELECT tenant_no FROM ended WHERE id = $1) d \
             JOIN tenants t ON t.no = d.tenant_no WHERE NOT t.deleted LIMIT 1",
        ),
    };
    let row = conn.query_opt(sql, &[&Id(id)]).await?;
    row.map(|row| parse(row.get(0))).transpose()
}
