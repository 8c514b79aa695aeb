//! Reads tenants and API keys.
//!
//! Admin keys have no tenant; they are stored under a number that no tenant has. Deleted tenants keep their row, and
//! are not returned.

use posthaste_core::id::{KeyId, TenantId};
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;

use crate::codes::{at, ms};
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, from_json, json_or_default, parse};
use crate::{ApiKey, KeyHash, Page, PageRequest, Tenant};

/// The tenant number of admin keys. No tenant has it.
const ADMIN_KEYS_TENANT: i64 = 0;

/// Returns the number of a tenant, unless it is deleted.
pub(in crate::postgres) async fn live_tenant(
    conn: &PgConnection,
    tenant: &TenantId,
) -> Result<Option<i64>, DbError> {
    let row = conn
        .query_opt(
            "SELECT no FROM tenants WHERE id = $1 AND NOT deleted",
            &[&tenant.as_str()],
        )
        .await?;
    Ok(row.map(|row| row.get(0)))
}

const TENANT_COLUMNS: &str = "id, name, policy, limits, created_at, revision, plan, endpoint_defaults, protection, sealed_keys";

fn read_tenant(row: &Row) -> Result<Tenant, DbError> {
    let policy: Option<&str> = row.get(2);
    Ok(Tenant {
        id: parse(row.get(0))?,
        name: row.get(1),
        default_retry_policy: policy.map(from_json).transpose()?,
        limits: from_json(row.get(3))?,
        created_at: at(row.get(4)),
        revision: row.get::<_, i64>(5) as u64,
        plan: row.get(6),
        endpoint_defaults: json_or_default(row.get(7))?,
        protection: json_or_default(row.get(8))?,
        sealed_keys: row.get(9),
    })
}

/// Returns a tenant.
pub(in crate::postgres) async fn tenant(
    conn: &PgConnection,
    tenant: &TenantId,
) -> Result<Option<Tenant>, DbError> {
    let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE id = $1 AND NOT deleted");
    let row = conn.query_opt(&sql, &[&tenant.as_str()]).await?;
    row.as_ref().map(read_tenant).transpose()
}

/// Lists tenants, the newest first.
pub(in crate::postgres) async fn tenants(
    conn: &PgConnection,
    page: &PageRequest<(Timestamp, TenantId)>,
) -> Result<Page<Tenant, (Timestamp, TenantId)>, DbError> {
    let order = "ORDER BY created_at DESC, id DESC LIMIT";
    let limit = one_more(page.limit);
    let rows = match &page.before {
        None => {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE NOT deleted {order} $1");
            conn.query(&sql, &[&limit]).await?
        }
        Some((created_at, id)) => {
            let sql = format!(
                "SELECT {TENANT_COLUMNS} FROM tenants WHERE NOT deleted \
                 AND (created_at, id) < ($1, $2) {order} $3"
            );
            conn.query(&sql, &[&ms(*created_at), &id.as_str(), &limit])
                .await?
        }
    };
    let items = rows
        .iter()
        .map(read_tenant)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| {
        (last.created_at, last.id.clone())
    }))
}

/// Returns the tenant number of keys: that of the tenant, or that of admin keys.
pub(in crate::postgres) async fn scope_of(
    conn: &PgConnection,
    tenant: Option<&TenantId>,
) -> Result<Option<i64>, DbError> {
    match tenant {
        None => Ok(Some(ADMIN_KEYS_TENANT)),
        Some(tenant) => live_tenant(conn, tenant).await,
    }
}

const KEY_COLUMNS: &str = "k.id, t.id, k.name, k.hash, k.created_at \
    FROM keys k LEFT JOIN tenants t ON t.no = k.tenant_no";

pub(in crate::postgres) fn hash_of(row: &Row, column: usize) -> Result<KeyHash, DbError> {
    let bytes: &[u8] = row.get(column);
    let hash = bytes.try_into();
    hash.map(KeyHash)
        .map_err(|_| DbError::Corrupt("the hash of a key".to_owned()))
}

fn read_key(row: &Row) -> Result<ApiKey, DbError> {
    let tenant: Option<&str> = row.get(1);
    Ok(ApiKey {
        id: KeyId(row.get::<_, Id>(0).0),
        tenant: tenant.map(parse).transpose()?,
        name: row.get(2),
        hash: hash_of(row, 3)?,
        created_at: at(row.get(4)),
    })
}

/// Returns the key with this hash.
pub(in crate::postgres) async fn key(
    conn: &PgConnection,
    hash: KeyHash,
) -> Result<Option<ApiKey>, DbError> {
    let sql = format!("SELECT {KEY_COLUMNS} WHERE k.hash = $1");
    let row = conn.query_opt(&sql, &[&hash.0.as_slice()]).await?;
    row.as_ref().map(read_key).transpose()
}

/// Lists the keys of a tenant, or the admin keys, the newest first.
pub(in crate::postgres) async fn keys(
    conn: &PgConnection,
    tenant: Option<&TenantId>,
    page: PageRequest<KeyId>,
) -> Result<Page<ApiKey, KeyId>, DbError> {
    let scope = scope_of(conn, tenant).await?;
    let sql = format!(
        "SELECT {KEY_COLUMNS} WHERE k.tenant_no = $1 AND k.id < $2 ORDER BY k.id DESC LIMIT $3"
    );
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    let rows = conn
        .query(&sql, &[&scope, &before, &one_more(page.limit)])
        .await?;
    let items = rows.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}
