//! Reads endpoints: configuration, status and health.
//!
//! Each function is one statement. A deleted endpoint keeps its row: [`endpoint`] returns it, and lists leave it out.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::sign::SignatureStyle;
use tokio_postgres::Row;

use super::directory::live_tenant;
use crate::codes::{at, sql_limit};
use crate::limit_columns::LimitColumns;
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{
    Id, from_json, json_or_default, parse, policy, read_patterns, word,
};
use crate::{Endpoint, EndpointRow, Page, PageRequest};

/// The columns of an endpoint that writes need.
pub(in crate::postgres) struct EndpointColumns {
    pub(in crate::postgres) no: i64,
    pub(in crate::postgres) tenant_no: i64,
    pub(in crate::postgres) status: EndpointStatus,
    pub(in crate::postgres) revision: u64,
}

/// Returns the endpoint with this id, deleted or not.
pub(in crate::postgres) async fn find(
    conn: &PgConnection,
    id: EndpointId,
) -> Result<Option<EndpointColumns>, DbError> {
    let row = conn
        .query_opt(
            "SELECT no, tenant_no, standing, revision FROM endpoints WHERE id = $1",
            &[&Id(id.0)],
        )
        .await?;
    let read = |row: Row| {
        Ok(EndpointColumns {
            no: row.get(0),
            tenant_no: row.get(1),
            status: word(&row, 2)?,
            revision: row.get::<_, i64>(3) as u64,
        })
    };
    row.map(read).transpose()
}

const COLUMNS: &str = "e.id, t.id, e.url, e.description, e.event_types, e.policy, e.timeout_ms, \
    e.max_in_flight, e.per_second, e.burst, e.ordered, e.sealed_headers, e.sealed_keys, \
    e.owner_email, e.created_at, e.revision, e.standing, e.reason, h.health, \
    e.signature_style, e.sealed_credentials, e.inherited, e.protection, e.owner_email_confirmed, \
    e.is_origin \
    FROM endpoints e JOIN tenants t ON t.no = e.tenant_no JOIN healths h ON h.endpoint_no = e.no";

fn read(row: &Row) -> Result<EndpointRow, DbError> {
    let small = |column: usize| u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX);
    let reason: Option<&str> = row.get(17);
    Ok(EndpointRow {
        endpoint: Endpoint {
            id: EndpointId(row.get::<_, Id>(0).0),
            tenant: parse(row.get(1))?,
            url: row.get(2),
            description: row.get(3),
            event_types: read_patterns(row.get(4))?,
            retry_policy: policy(row.get(5))?,
            limits: LimitColumns {
                timeout_ms: row.get(6),
                max_in_flight: small(7),
                per_second: row.get(8),
                burst: small(9),
                inherited: row.get(21),
            }
            .limits(),
            protection: json_or_default(row.get(22))?,
            ordered: row.get(10),
            sealed_headers: row.get(11),
            sealed_keys: row.get(12),
            signature_style: word::<SignatureStyle>(row, 19)?,
            sealed_credentials: row.get(20),
            owner_email: row.get(13),
            owner_email_confirmed: row.get(23),
            is_origin: row.get(24),
            created_at: at(row.get(14)),
            revision: row.get::<_, i64>(15) as u64,
        },
        status: word(row, 16)?,
        disabled_reason: reason.map(from_json).transpose()?,
        health: from_json(row.get(18))?,
    })
}

/// Returns an endpoint, also if it is deleted.
pub(in crate::postgres) async fn endpoint(
    conn: &PgConnection,
    endpoint: EndpointId,
) -> Result<Option<EndpointRow>, DbError> {
    let sql = format!("SELECT {COLUMNS} WHERE e.id = $1");
    let row = conn.query_opt(&sql, &[&Id(endpoint.0)]).await?;
    row.as_ref().map(read).transpose()
}

/// Returns the origin endpoint of a tenant with this URL, unless it is deleted.
pub(in crate::postgres) async fn origin_endpoint(
    conn: &PgConnection,
    tenant: &TenantId,
    url: &str,
) -> Result<Option<EndpointId>, DbError> {
    let sql = "SELECT e.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
         WHERE t.id = $1 AND NOT t.deleted AND e.url = $2 AND e.is_origin AND e.standing <> 3";
    let row = conn.query_opt(sql, &[&tenant.as_str(), &url]).await?;
    Ok(row.map(|row| EndpointId(row.get::<_, Id>(0).0)))
}

/// Lists the endpoints of a tenant that are not deleted, the newest first.
pub(in crate::postgres) async fn endpoints(
    conn: &PgConnection,
    tenant: &TenantId,
    page: PageRequest<EndpointId>,
) -> Result<Page<EndpointRow, EndpointId>, DbError> {
    let tenant_no = live_tenant(conn, tenant).await?;
    let sql = format!(
        "SELECT {COLUMNS} WHERE e.tenant_no = $1 AND e.standing <> 3 AND NOT e.is_origin \
         AND e.id < $2 ORDER BY e.id DESC LIMIT $3"
    );
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    let rows = conn
        .query(&sql, &[&tenant_no, &before, &one_more(page.limit)])
        .await?;
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.endpoint.id))
}

/// Returns endpoints that need attention, of one tenant or of all. Paused endpoints come last.
pub(in crate::postgres) async fn attention_list(
    conn: &PgConnection,
    tenant: Option<&TenantId>,
    limit: usize,
) -> Result<Vec<EndpointRow>, DbError> {
    let tenant_no = match tenant {
        None => None,
        Some(tenant) => match live_tenant(conn, tenant).await? {
            Some(no) => Some(no),
            None => return Ok(Vec::new()),
        },
    };
    let sql = format!(
        "SELECT {COLUMNS} WHERE e.no = ANY(ARRAY(SELECT no FROM endpoints WHERE \
         (standing = 1 OR standing = 2 AND reason <> '\"manual\"') \
         AND ($1::bigint IS NULL OR tenant_no = $1) UNION SELECT endpoint_no FROM healths WHERE tripped)) \
         AND (e.standing IN (0, 1) OR e.standing = 2 AND e.reason <> '\"manual\"') \
         AND NOT e.is_origin AND ($1::bigint IS NULL OR e.tenant_no = $1) ORDER BY e.standing = 1, e.id DESC LIMIT $2"
    );
    let rows = conn.query(&sql, &[&tenant_no, &sql_limit(limit)]).await?;
    rows.iter().map(read).collect()
}

/// Returns the number of an endpoint, if it belongs to this tenant.
pub(super) async fn endpoint_of(
    conn: &PgConnection,
    tenant_no: i64,
    endpoint: EndpointId,
) -> Result<Option<i64>, DbError> {
    let found = find(conn, endpoint).await?;
    Ok(found
        .filter(|found| found.tenant_no == tenant_no)
        .map(|found| found.no))
}
