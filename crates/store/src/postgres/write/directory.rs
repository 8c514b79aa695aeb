//! Tenants and API keys.

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;

use super::sessions;
use super::write_context::WriteContext;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, at, from_json, most, ms, parse, to_json};
use crate::{ApiKey, Change, CreateResult, KeyHash, Page, PageRequest, ReplaceResult, Tenant};

/// The tenant number of admin keys. No tenant has it.
const ADMIN_KEYS_TENANT: i64 = 0;

/// Returns the number of a tenant, unless it is deleted.
pub(in crate::postgres) async fn live_tenant(
    link: &PgConnection,
    tenant: &TenantId,
) -> Result<Option<i64>, DbError> {
    let row = link
        .query_opt(
            "SELECT no FROM tenants WHERE id = $1 AND NOT deleted",
            &[&tenant.as_str()],
        )
        .await?;
    Ok(row.map(|row| row.get(0)))
}

/// Creates a tenant.
pub(in crate::postgres) async fn create_tenant(
    scene: &mut WriteContext,
    tenant: &Tenant,
) -> Result<CreateResult, DbError> {
    scene.lock_directory().await?;
    if scene.tenant(&tenant.id).is_some() {
        return Ok(CreateResult::Taken);
    }
    let no = scene.next_number().await?;
    let sql = "INSERT INTO tenants (no, id, name, policy, limits, created_at, revision, deleted, plan) \
         VALUES ($1, $2, $3, $4, $5, $6, 0, false, $7)";
    let policy = tenant.default_retry_policy.as_ref().map(to_json);
    let limits = to_json(&tenant.limits);
    let (id, created_at) = (tenant.id.as_str(), ms(tenant.created_at));
    scene
        .link
        .execute(
            sql,
            &[
                &no,
                &id,
                &tenant.name,
                &policy,
                &limits,
                &created_at,
                &tenant.plan,
            ],
        )
        .await?;
    scene.change(Change::Tenant(tenant.id.clone()));
    Ok(CreateResult::Created)
}

/// Replaces a tenant's settings.
pub(in crate::postgres) async fn replace_tenant(
    scene: &mut WriteContext,
    tenant: &Tenant,
) -> Result<ReplaceResult, DbError> {
    scene.lock_directory().await?;
    let Some(routes) = scene.tenant(&tenant.id) else {
        return Ok(ReplaceResult::NotFound);
    };
    let sql = "UPDATE tenants SET name = $3, policy = $4, limits = $5, plan = $6, revision = revision + 1 \
         WHERE no = $1 AND revision = $2";
    let policy = tenant.default_retry_policy.as_ref().map(to_json);
    let limits = to_json(&tenant.limits);
    let revision = tenant.revision as i64;
    let changed = scene
        .link
        .execute(
            sql,
            &[
                &routes.no,
                &revision,
                &tenant.name,
                &policy,
                &limits,
                &tenant.plan,
            ],
        )
        .await?;
    if changed == 0 {
        return Ok(ReplaceResult::Outdated);
    }
    scene.change(Change::Tenant(tenant.id.clone()));
    Ok(ReplaceResult::Done)
}

/// Deletes a tenant. Its row stays, because other rows still refer to it, but reads do not return it.
pub(in crate::postgres) async fn delete_tenant(
    scene: &mut WriteContext,
    tenant: &TenantId,
) -> Result<Option<Vec<EndpointId>>, DbError> {
    scene.lock_directory().await?;
    let Some(no) = scene.tenant(tenant).map(|routes| routes.no) else {
        return Ok(None);
    };
    let link = scene.link.clone();
    link.execute("UPDATE tenants SET deleted = true WHERE no = $1", &[&no])
        .await?;
    let sql = "DELETE FROM keys WHERE tenant_no = $1 RETURNING hash";
    let keys = link.query(sql, &[&no]).await?;
    let sql = "UPDATE endpoints SET standing = 3, reason = NULL \
         WHERE tenant_no = $1 AND standing <> 3 RETURNING id";
    let endpoints = link.query(sql, &[&no]).await?;
    let mut deleted: Vec<EndpointId> = endpoints
        .iter()
        .map(|row| EndpointId(row.get::<_, Id>(0).0))
        .collect();
    deleted.sort_unstable();
    scene.change(Change::Tenant(tenant.clone()));
    for endpoint in &deleted {
        scene.change(Change::Endpoint(*endpoint));
    }
    sessions::delete_of_tenant(&link, no).await?;
    let keys = keys
        .iter()
        .map(|row| hash_of(row, 0))
        .collect::<Result<Vec<_>, _>>()?;
    sessions::delete_of_keys(&link, &keys).await?;
    for key in keys {
        scene.change(Change::Key(key));
    }
    Ok(Some(deleted))
}

const TENANT_COLUMNS: &str = "id, name, policy, limits, created_at, revision, plan";

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
    })
}

/// Returns a tenant.
pub(in crate::postgres) async fn tenant(
    link: &PgConnection,
    tenant: &TenantId,
) -> Result<Option<Tenant>, DbError> {
    let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE id = $1 AND NOT deleted");
    let row = link.query_opt(&sql, &[&tenant.as_str()]).await?;
    row.as_ref().map(read_tenant).transpose()
}

/// Lists tenants, the newest first.
pub(in crate::postgres) async fn tenants(
    link: &PgConnection,
    page: &PageRequest<(Timestamp, TenantId)>,
) -> Result<Page<Tenant, (Timestamp, TenantId)>, DbError> {
    let order = "ORDER BY created_at DESC, id DESC LIMIT";
    let limit = one_more(page.limit);
    let rows = match &page.before {
        None => {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE NOT deleted {order} $1");
            link.query(&sql, &[&limit]).await?
        }
        Some((created_at, id)) => {
            let sql = format!(
                "SELECT {TENANT_COLUMNS} FROM tenants WHERE NOT deleted \
                 AND (created_at, id) < ($1, $2) {order} $3"
            );
            link.query(&sql, &[&ms(*created_at), &id.as_str(), &limit])
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
async fn scope_of(link: &PgConnection, tenant: Option<&TenantId>) -> Result<Option<i64>, DbError> {
    match tenant {
        None => Ok(Some(ADMIN_KEYS_TENANT)),
        Some(tenant) => live_tenant(link, tenant).await,
    }
}

/// Creates a key.
pub(in crate::postgres) async fn create_key(
    scene: &mut WriteContext,
    key: &ApiKey,
) -> Result<CreateResult, DbError> {
    // Deleting a tenant deletes its keys, so the tenant must not be deleted while a key is added.
    scene.lock_directory_shared().await?;
    let Some(scope) = scope_of(&scene.link, key.tenant.as_ref()).await? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let sql = "INSERT INTO keys (id, tenant_no, name, hash, created_at) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let (id, hash, created_at) = (Id(key.id.0), key.hash.0.as_slice(), ms(key.created_at));
    let added = scene
        .link
        .execute(sql, &[&id, &scope, &key.name, &hash, &created_at])
        .await?;
    Ok(if added == 1 {
        CreateResult::Created
    } else {
        CreateResult::Taken
    })
}

/// Revokes a key.
pub(in crate::postgres) async fn revoke_key(
    scene: &mut WriteContext,
    tenant: Option<&TenantId>,
    key: KeyId,
) -> Result<bool, DbError> {
    scene.lock_directory().await?;
    let Some(scope) = scope_of(&scene.link, tenant).await? else {
        return Ok(false);
    };
    let sql = "DELETE FROM keys WHERE id = $1 AND tenant_no = $2 RETURNING hash";
    let removed = scene.link.query_opt(sql, &[&Id(key.0), &scope]).await?;
    let Some(row) = removed else {
        return Ok(false);
    };
    let hash = hash_of(&row, 0)?;
    sessions::delete_of_keys(&scene.link, &[hash]).await?;
    scene.change(Change::Key(hash));
    Ok(true)
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
    link: &PgConnection,
    hash: KeyHash,
) -> Result<Option<ApiKey>, DbError> {
    let sql = format!("SELECT {KEY_COLUMNS} WHERE k.hash = $1");
    let row = link.query_opt(&sql, &[&hash.0.as_slice()]).await?;
    row.as_ref().map(read_key).transpose()
}

/// Lists the keys of a tenant, or the admin keys, the newest first.
pub(in crate::postgres) async fn keys(
    link: &PgConnection,
    tenant: Option<&TenantId>,
    page: PageRequest<KeyId>,
) -> Result<Page<ApiKey, KeyId>, DbError> {
    let scope = scope_of(link, tenant).await?;
    let sql = format!(
        "SELECT {KEY_COLUMNS} WHERE k.tenant_no = $1 AND k.id < $2 ORDER BY k.id DESC LIMIT $3"
    );
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    let rows = link
        .query(&sql, &[&scope, &before, &one_more(page.limit)])
        .await?;
    let items = rows.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// One row more than fits on a page shows whether there is another page.
pub(in crate::postgres) fn one_more(limit: usize) -> i64 {
    most(limit).saturating_add(1)
}

/// Makes a page of rows that were read with [`one_more`].
pub(in crate::postgres) fn cut<T, K>(
    mut items: Vec<T>,
    limit: usize,
    name: impl Fn(&T) -> K,
) -> Page<T, K> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(name);
    Page { items, next }
}
