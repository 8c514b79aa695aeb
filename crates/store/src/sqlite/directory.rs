//! Tenants and API keys: creates, changes, lists and deletes them.
//!
//! A change needs the revision that it is based on. A deleted tenant keeps its row, because events and deliveries refer
//! to it, but no lookup finds it.

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::delivery_rows::{from_json, json_or_default, parse, to_json};
use super::group_commit::WriteContext;
use super::routing_table::{TenantRoutes, policy};
use super::row_keys::id_bytes;
use super::{schedules, sessions};
use crate::codes::{at, ms};
use crate::limit_columns::{defaults_column, protection_column};
use crate::page::{cut, one_more};
use crate::{ApiKey, CreateResult, KeyHash, Page, PageRequest, ReplaceResult, Tenant};

/// The scope of admin keys. No tenant has this number.
const ADMIN_SCOPE: i64 = 0;

/// Returns the number of an existing tenant.
pub(super) fn live_tenant(conn: &Connection, tenant: &TenantId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT no FROM tenants WHERE id = ?1 AND deleted = 0")?
        .query_row([tenant.as_str()], |row| row.get(0))
        .optional()
}

/// Creates a tenant.
pub(super) fn create_tenant(
    context: &mut WriteContext<'_>,
    tenant: &Tenant,
) -> rusqlite::Result<CreateResult> {
    if context.routes.tenant(&tenant.id).is_some() {
        return Ok(CreateResult::Taken);
    }
    let no = context.next_no()?;
    context
        .conn
        .prepare_cached(
            "INSERT INTO tenants (no, id, name, policy, limits, created_at, revision, deleted, plan, \
             endpoint_defaults, protection, sealed_keys) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            no,
            tenant.id.as_str(),
            tenant.name,
            tenant.default_retry_policy.as_ref().map(to_json),
            to_json(&tenant.limits),
            ms(tenant.created_at),
            tenant.plan,
            defaults_column(&tenant.endpoint_defaults),
            protection_column(&tenant.protection),
            tenant.sealed_keys,
        ])?;
    let routes = TenantRoutes::new(no, tenant.default_retry_policy.clone());
    context.routes.add(tenant.id.clone(), routes);
    Ok(CreateResult::Created)
}

/// Replaces a tenant.
pub(super) fn replace_tenant(
    context: &mut WriteContext<'_>,
    tenant: &Tenant,
) -> rusqlite::Result<ReplaceResult> {
    let Some(no) = context.routes.tenant(&tenant.id).map(|routes| routes.no) else {
        return Ok(ReplaceResult::NotFound);
    };
    context.cache.retention_progress.invalidate_all();
    let changed = context
        .conn
        .prepare_cached(
            "UPDATE tenants SET name = ?3, policy = ?4, limits = ?5, plan = ?6, endpoint_defaults = ?7, \
             protection = ?8, sealed_keys = ?9, revision = revision + 1 \
             WHERE no = ?1 AND revision = ?2",
        )?
        .execute(params![
            no,
            tenant.revision as i64,
            tenant.name,
            tenant.default_retry_policy.as_ref().map(to_json),
            to_json(&tenant.limits),
            tenant.plan,
            defaults_column(&tenant.endpoint_defaults),
            protection_column(&tenant.protection),
            tenant.sealed_keys,
        ])?;
    if changed == 0 {
        return Ok(ReplaceResult::Outdated);
    }
    let settings = context.settings;
    context.routes.change(&tenant.id, |routes| {
        routes.policy = tenant.default_retry_policy.clone();
        for route in &mut routes.endpoints {
            let policy = settings.policy_for(route.policy.as_ref(), routes.policy.as_ref());
            if route.give_up_after != policy.give_up_after {
                std::sync::Arc::make_mut(route).give_up_after = policy.give_up_after;
            }
        }
    });
    Ok(ReplaceResult::Done)
}

/// Deletes a tenant. Its row stays, because events and deliveries refer to it, but no lookup by id finds it.
pub(super) fn delete_tenant(
    context: &mut WriteContext<'_>,
    tenant: &TenantId,
) -> rusqlite::Result<Option<Vec<EndpointId>>> {
    let Some(routes) = context.routes.tenant(tenant).cloned() else {
        return Ok(None);
    };
    let conn = context.conn;
    context.cache.retention_progress.invalidate_all();
    sessions::end_of_tenant(conn, routes.no)?;
    schedules::delete_of_tenant(conn, routes.no)?;
    for sql in [
        "UPDATE tenants SET deleted = 1 WHERE no = ?1",
        "DELETE FROM keys WHERE scope = ?1",
        "UPDATE endpoints SET standing = 3, reason = NULL WHERE tenant_no = ?1 AND standing <> 3",
    ] {
        conn.prepare_cached(sql)?.execute([routes.no])?;
    }
    context.routes.remove(tenant);
    let mut deleted: Vec<EndpointId> = routes.endpoints.iter().map(|route| route.id).collect();
    deleted.sort_unstable();
    Ok(Some(deleted))
}

const TENANT_COLUMNS: &str = "id, name, policy, limits, created_at, revision, plan, endpoint_defaults, protection, sealed_keys";

fn read_tenant(row: &Row<'_>) -> rusqlite::Result<Tenant> {
    Ok(Tenant {
        id: parse(row.get_ref(0)?.as_str()?)?,
        name: row.get(1)?,
        default_retry_policy: policy(row.get_ref(2)?.as_str_or_null()?)?,
        limits: from_json(row.get_ref(3)?.as_str()?)?,
        created_at: at(row.get(4)?),
        revision: row.get::<_, i64>(5)? as u64,
        plan: row.get(6)?,
        endpoint_defaults: json_or_default(row.get_ref(7)?.as_str_or_null()?)?,
        protection: json_or_default(row.get_ref(8)?.as_str_or_null()?)?,
        sealed_keys: row.get(9)?,
    })
}

/// Returns a tenant.
pub(super) fn tenant(conn: &Connection, tenant: &TenantId) -> rusqlite::Result<Option<Tenant>> {
    conn.prepare_cached(&format!(
        "SELECT {TENANT_COLUMNS} FROM tenants WHERE id = ?1 AND deleted = 0"
    ))?
    .query_row([tenant.as_str()], read_tenant)
    .optional()
}

/// Lists tenants, newest first.
pub(super) fn tenants(
    conn: &Connection,
    page: &PageRequest<(Timestamp, TenantId)>,
) -> rusqlite::Result<Page<Tenant, (Timestamp, TenantId)>> {
    let before = page.before.as_ref();
    let items = conn
        .prepare_cached(&format!(
            "SELECT {TENANT_COLUMNS} FROM tenants WHERE deleted = 0 AND \
             (?1 IS NULL OR (created_at, id) < (?1, ?2)) ORDER BY created_at DESC, id DESC LIMIT ?3"
        ))?
        .query_map(
            params![
                before.map(|(created_at, _)| ms(*created_at)),
                before.map(|(_, id)| id.as_str()),
                one_more(page.limit),
            ],
            read_tenant,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| {
        (last.created_at, last.id.clone())
    }))
}

/// Adds an API key.
pub(super) fn create_key(
    context: &mut WriteContext<'_>,
    key: &ApiKey,
) -> rusqlite::Result<CreateResult> {
    let scope = match &key.tenant {
        None => ADMIN_SCOPE,
        Some(tenant) => match context.routes.tenant(tenant) {
            Some(routes) => routes.no,
            None => return Ok(CreateResult::NoSuchTenant),
        },
    };
    let added = context
        .conn
        .prepare_cached(
            "INSERT INTO keys (id, scope, name, hash, created_at) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            id_bytes(key.id.0),
            scope,
            key.name,
            key.hash.0,
            ms(key.created_at),
        ])?;
    Ok(if added == 1 {
        CreateResult::Created
    } else {
        CreateResult::Taken
    })
}

/// Revokes an API key.
pub(super) fn revoke_key(
    context: &mut WriteContext<'_>,
    tenant: Option<&TenantId>,
    key: KeyId,
) -> rusqlite::Result<bool> {
    let scope = match tenant {
        None => ADMIN_SCOPE,
        Some(tenant) => match context.routes.tenant(tenant) {
            Some(routes) => routes.no,
            None => return Ok(false),
        },
    };
    sessions::end_of_key(context.conn, scope, key)?;
    let removed = context
        .conn
        .prepare_cached("DELETE FROM keys WHERE id = ?1 AND scope = ?2")?
        .execute((id_bytes(key.0), scope))?;
    Ok(removed == 1)
}

const KEY_COLUMNS: &str = "k.id, t.id, k.name, k.hash, k.created_at \
    FROM keys k LEFT JOIN tenants t ON t.no = k.scope";

fn read_key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: KeyId(u128::from_be_bytes(row.get(0)?)),
        tenant: row.get_ref(1)?.as_str_or_null()?.map(parse).transpose()?,
        name: row.get(2)?,
        hash: KeyHash(row.get(3)?),
        created_at: at(row.get(4)?),
    })
}

/// Returns the key with this hash.
pub(super) fn key(conn: &Connection, hash: KeyHash) -> rusqlite::Result<Option<ApiKey>> {
    conn.prepare_cached(&format!("SELECT {KEY_COLUMNS} WHERE k.hash = ?1"))?
        .query_row([hash.0], read_key)
        .optional()
}

/// Lists the keys of a tenant, or the admin keys.
pub(super) fn keys(
    conn: &Connection,
    tenant: Option<&TenantId>,
    page: PageRequest<KeyId>,
) -> rusqlite::Result<Page<ApiKey, KeyId>> {
    let scope = match tenant {
        None => Some(ADMIN_SCOPE),
        Some(tenant) => live_tenant(conn, tenant)?,
    };
    let items = conn
        .prepare_cached(&format!(
            "SELECT {KEY_COLUMNS} WHERE k.scope = ?1 AND (?2 IS NULL OR k.id < ?2) \
             ORDER BY k.id DESC LIMIT ?3"
        ))?
        .query_map(
            params![
                scope,
                page.before.map(|id| id_bytes(id.0)),
                one_more(page.limit)
            ],
            read_key,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}
