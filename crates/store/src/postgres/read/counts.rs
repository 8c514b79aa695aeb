//! Counts of deliveries: waiting, dead-lettered, retrying.
//!
//! The counts of waiting and failed deliveries are sums over counter slots, so reading them does not depend on the
//! number of deliveries. Deliveries in retry are counted up to a limit.

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::directory::live_tenant;
use crate::codes::{ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::ALL_ENDPOINTS;
use crate::postgres::schema::columns::Id;
use crate::{Counts, TenantSelection};

/// Returns the total counts: the sum over all nodes' slots.
pub(in crate::postgres) async fn counts(conn: &PgConnection) -> Result<Counts, DbError> {
    let row = conn
        .query_one(
            "SELECT coalesce(sum(waiting), 0)::bigint, coalesce(sum(dead), 0)::bigint FROM tally \
             WHERE endpoint_no = $1",
            &[&ALL_ENDPOINTS],
        )
        .await?;
    Ok(Counts {
        pending: row.get::<_, i64>(0).max(0) as u64,
        dead_letters: row.get::<_, i64>(1).max(0) as u64,
    })
}

/// Returns the number of deliveries that wait for an endpoint.
pub(in crate::postgres) async fn pending(
    conn: &PgConnection,
    endpoint: EndpointId,
) -> Result<u64, DbError> {
    let row = conn
        .query_one(
            "SELECT coalesce(sum(waiting), 0)::bigint FROM tally \
             WHERE endpoint_no = (SELECT no FROM endpoints WHERE id = $1)",
            &[&Id(endpoint.0)],
        )
        .await?;
    Ok(row.get::<_, i64>(0).max(0) as u64)
}

/// Returns the number of deliveries that have been retrying since before `since`: those that were first due before it
/// in their present round of attempts.
pub(in crate::postgres) async fn retrying_since(
    conn: &PgConnection,
    tenants: &TenantSelection,
    since: Timestamp,
    limit: usize,
) -> Result<u64, DbError> {
    let (condition, no) = match tenants {
        TenantSelection::All => ("", None),
        TenantSelection::Only(tenant) => match live_tenant(conn, tenant).await? {
            Some(no) => ("AND tenant_no = $3", Some(no)),
            None => return Ok(0),
        },
        TenantSelection::Except(tenant) => match live_tenant(conn, tenant).await? {
            Some(no) => ("AND tenant_no <> $3", Some(no)),
            None => ("", None),
        },
    };
    // Sorted like the index, so that only deliveries that have been retrying for this long are read.
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE status = 1 AND first_due < $1 \
         {condition} ORDER BY first_due LIMIT $2) old"
    );
    let (since, limit) = (ms(since), sql_limit(limit));
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&since, &limit];
    params.extend(no.as_ref().map(|no| no as &(dyn ToSql + Sync)));
    let row = conn.query_one(&sql, &params).await?;
    Ok(row.get::<_, i64>(0) as u64)
}
