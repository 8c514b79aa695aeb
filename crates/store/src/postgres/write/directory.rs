//! Creates, changes and deletes tenants and API keys.
//!
//! A change needs the revision that it is based on. Each change is added to the change log, so that other nodes drop
//! their copies. A deleted tenant keeps its row, because others refer to it.

use posthaste_core::id::{EndpointId, KeyId, TenantId};

use super::write_context::WriteContext;
use super::{schedules, sessions};
use crate::codes::ms;
use crate::limit_columns::{defaults_column, protection_column};
use crate::postgres::connection::Params;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::{hash_of, live_tenant, scope_of};
use crate::postgres::schema::columns::{Id, to_json};
use crate::{ApiKey, Change, CreateResult, ReplaceResult, Tenant};

/// Creates a tenant.
pub(in crate::postgres) async fn create_tenant(
    context: &mut WriteContext,
    tenant: &Tenant,
) -> Result<CreateResult, DbError> {
    context.plan_directory_change().await?;
    if context.tenant(&tenant.id).is_some() {
        return Ok(CreateResult::Taken);
    }
    let no = context.next_number().await?;
    let sql = "INSERT INTO tenants (no, id, name, policy, limits, created_at, revision, deleted, plan, \
         endpoint_defaults, protection, sealed_keys) \
         VALUES ($1, $2, $3, $4, $5, $6, 0, false, $7, $8, $9, $10)";
    let new = tenant.clone();
    context.write_last(sql, move |conn| async move {
        let params: Params<'_> = &[
            &no,
            &new.id.as_str(),
            &new.name,
            &new.default_retry_policy.as_ref().map(to_json),
            &to_json(&new.limits),
            &ms(new.created_at),
            &new.plan,
            &defaults_column(&new.endpoint_defaults),
            &protection_column(&new.protection),
            &new.sealed_keys,
        ];
        conn.execute(sql, params).await?;
        Ok(())
    });
    context.change(Change::Tenant(tenant.id.clone()));
    Ok(CreateResult::Created)
}

/// Replaces a tenant's settings.
pub(in crate::postgres) async fn replace_tenant(
    context: &mut WriteContext,
    tenant: &Tenant,
) -> Result<ReplaceResult, DbError> {
    context.plan_directory_change().await?;
    let Some(routes) = context.tenant(&tenant.id) else {
        return Ok(ReplaceResult::NotFound);
    };
    let sql = "SELECT 1 FROM tenants WHERE no = $1 AND revision = $2";
    let revision = tenant.revision as i64;
    let current = context
        .conn
        .query_opt(sql, &[&routes.no, &revision])
        .await?;
    if current.is_none() {
        return Ok(ReplaceResult::Outdated);
    }
    let sql = "UPDATE tenants SET name = $3, policy = $4, limits = $5, plan = $6, endpoint_defaults = $7, \
         protection = $8, sealed_keys = $9, revision = revision + 1 \
         WHERE no = $1 AND revision = $2";
    let (no, new) = (routes.no, tenant.clone());
    context.write_last(sql, move |conn| async move {
        let params: Params<'_> = &[
            &no,
            &revision,
            &new.name,
            &new.default_retry_policy.as_ref().map(to_json),
            &to_json(&new.limits),
            &new.plan,
            &defaults_column(&new.endpoint_defaults),
            &protection_column(&new.protection),
            &new.sealed_keys,
        ];
        conn.execute(sql, params).await?;
        Ok(())
    });
    context.change(Change::Tenant(tenant.id.clone()));
    Ok(ReplaceResult::Done)
}

/// Deletes a tenant. Its row stays, because other rows still refer to it, but reads do not return it.
pub(in crate::postgres) async fn delete_tenant(
    context: &mut WriteContext,
    tenant: &TenantId,
) -> Result<Option<Vec<EndpointId>>, DbError> {
    let conn = context.conn.clone();
    let Some(no) = live_tenant(&conn, tenant).await? else {
        return Ok(None);
    };
    let keys = conn
        .query(
            "SELECT hash FROM keys WHERE tenant_no = $1 ORDER BY hash",
            &[&no],
        )
        .await?;
    let keys = keys
        .iter()
        .map(|row| hash_of(row, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let sql = "SELECT id FROM endpoints WHERE tenant_no = $1 AND standing <> 3 ORDER BY id";
    let endpoints = conn.query(sql, &[&no]).await?;
    let deleted: Vec<EndpointId> = endpoints
        .iter()
        .map(|row| EndpointId(row.get::<_, Id>(0).0))
        .collect();
    context.lock_directory_last();
    context.write_last(DELETE_TENANT, move |conn| async move {
        conn.execute(DELETE_TENANT, &[&no]).await?;
        Ok(())
    });
    let hashes = keys.clone();
    context.write_last(DELETE_KEYS, move |conn| async move {
        let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.as_slice()).collect();
        conn.execute(DELETE_KEYS, &[&no, &hashes]).await?;
        Ok(())
    });
    let ids: Vec<Id> = deleted.iter().map(|id| Id(id.0)).collect();
    context.write_last(DELETE_ENDPOINTS, move |conn| async move {
        conn.execute(DELETE_ENDPOINTS, &[&no, &ids]).await?;
        Ok(())
    });
    sessions::delete_of_tenant(context, no);
    schedules::delete_of_tenant(context, no);
    sessions::delete_of_keys(context, &keys);
    context.change(Change::Tenant(tenant.clone()));
    for endpoint in &deleted {
        context.change(Change::Endpoint(*endpoint));
    }
    for key in keys {
        context.change(Change::Key(key));
    }
    Ok(Some(deleted))
}

/// Marks a tenant as deleted, unless another node has.
const DELETE_TENANT: &str = "WITH gone AS (UPDATE tenants SET deleted = true WHERE no = $1 AND NOT deleted RETURNING 1) \
    SELECT demand(count(*) = 1) FROM gone";
/// Deletes the keys of a tenant, if they are those that were read, in their order.
const DELETE_KEYS: &str = "WITH gone AS (DELETE FROM keys WHERE tenant_no = $1 RETURNING hash) \
    SELECT demand(coalesce(array_agg(hash ORDER BY hash), '{}') = $2::bytea[]) FROM gone";
/// Deletes the endpoints of a tenant, if they are those that were read, in their order.
const DELETE_ENDPOINTS: &str = "WITH gone AS (UPDATE endpoints SET standing = 3, reason = NULL \
    WHERE tenant_no = $1 AND standing <> 3 RETURNING id) \
    SELECT demand(coalesce(array_agg(id ORDER BY id), '{}') = $2::uuid[]) FROM gone";

/// Creates a key.
pub(in crate::postgres) async fn create_key(
    context: &mut WriteContext,
    key: &ApiKey,
) -> Result<CreateResult, DbError> {
    // Deleting a tenant deletes its keys, so the tenant must not be deleted while a key is added.
    context.lock_directory_shared().await?;
    let Some(scope) = scope_of(&context.conn, key.tenant.as_ref()).await? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let sql = "INSERT INTO keys (id, tenant_no, name, hash, created_at) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let (id, hash, created_at) = (Id(key.id.0), key.hash.0.as_slice(), ms(key.created_at));
    let added = context
        .conn
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
    context: &mut WriteContext,
    tenant: Option<&TenantId>,
    key: KeyId,
) -> Result<bool, DbError> {
    let conn = context.conn.clone();
    let Some(scope) = scope_of(&conn, tenant).await? else {
        return Ok(false);
    };
    let sql = "SELECT hash FROM keys WHERE id = $1 AND tenant_no = $2";
    let Some(row) = conn.query_opt(sql, &[&Id(key.0), &scope]).await? else {
        return Ok(false);
    };
    let hash = hash_of(&row, 0)?;
    context.lock_directory_last();
    context.write_last(DELETE_KEY, move |conn| async move {
        conn.execute(DELETE_KEY, &[&Id(key.0), &scope]).await?;
        Ok(())
    });
    sessions::delete_of_keys(context, &[hash]);
    context.change(Change::Key(hash));
    Ok(true)
}

/// Deletes a key, unless another node has.
const DELETE_KEY: &str = "WITH gone AS (DELETE FROM keys WHERE id = $1 AND tenant_no = $2 RETURNING 1) \
    SELECT demand(count(*) = 1) FROM gone";
