//! Changes endpoints: configuration, status and health.
//!
//! Every change locks the directory and is added to the change log, so that other nodes route by it. A deleted endpoint
//! stays deleted, and health is only replaced by newer health.

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::time::Timestamp;

use super::write_context::WriteContext;
use crate::codes::{ms, sql_limit};
use crate::limit_columns::{LimitColumns, protection_column};
use crate::postgres::connection::{Params, PgConnection};
use crate::postgres::db_error::DbError;
use crate::postgres::read::endpoints::{find, origin_endpoint};
use crate::postgres::schema::columns::{EnumCode, Id, to_json};
use crate::{Change, CreateResult, DisabledReason, Endpoint, ReplaceResult};

/// Maximum number of origin endpoints that one call examines, as a multiple of those that it may delete.
const EXAMINED_PER_DELETED: usize = 8;

/// Creates an endpoint.
pub(in crate::postgres) async fn create(
    context: &mut WriteContext,
    endpoint: &Endpoint,
    at_most: u32,
) -> Result<CreateResult, DbError> {
    context.plan_directory_change().await?;
    let Some(tenant) = context.tenant(&endpoint.tenant) else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let conn = context.conn.clone();
    if find(&conn, endpoint.id).await?.is_some() {
        return Ok(CreateResult::Taken);
    }
    if endpoint.is_origin
        && origin_endpoint(&conn, &endpoint.tenant, &endpoint.url)
            .await?
            .is_some()
    {
        return Ok(CreateResult::Taken);
    }
    let same_kind = tenant.endpoints.iter();
    let same_kind = same_kind.filter(|route| route.is_origin == endpoint.is_origin);
    if same_kind.count() >= at_most as usize {
        return Ok(CreateResult::TooMany);
    }
    let no = context.next_number().await?;
    let shard = Shard::of(endpoint.id).number() as i16;
    let (id, created_at) = (Id(endpoint.id.0), ms(endpoint.created_at));
    let (tenant_no, url, is_origin) = (tenant.no, endpoint.url.clone(), endpoint.is_origin);
    context.write_last(INSERT, move |conn| async move {
        let params: Params<'_> = &[&no, &id, &shard, &tenant_no, &created_at, &url, &is_origin];
        conn.execute(INSERT, params).await?;
        Ok(())
    });
    configure(context, no, endpoint);
    let health = to_json(&Health::default());
    context.write_last(INSERT_HEALTH, move |conn| async move {
        conn.execute(INSERT_HEALTH, &[&no, &health]).await?;
        Ok(())
    });
    context.change(Change::Endpoint(endpoint.id));
    Ok(CreateResult::Created)
}

const INSERT: &str = "INSERT INTO endpoints (no, id, shard, tenant_no, standing, url, description, event_types, \
     timeout_ms, max_in_flight, per_second, burst, ordered, sealed_headers, sealed_keys, \
     signature_style, sealed_credentials, created_at, revision, is_origin) \
     VALUES ($1, $2, $3, $4, 0, $6, '', '[]', 0, 0, 0, 0, false, '', '', 0, '', $5, 0, $7)";
const INSERT_HEALTH: &str =
    "INSERT INTO healths (endpoint_no, revision, tripped, health) VALUES ($1, 0, false, $2)";

/// Replaces the configuration of an endpoint.
pub(in crate::postgres) async fn replace(
    context: &mut WriteContext,
    endpoint: &Endpoint,
) -> Result<ReplaceResult, DbError> {
    context.plan_directory_change().await?;
    let conn = context.conn.clone();
    let found = find(&conn, endpoint.id).await?;
    let Some(found) = found.filter(|found| found.status != EndpointStatus::Deleted) else {
        return Ok(ReplaceResult::NotFound);
    };
    if found.revision != endpoint.revision {
        return Ok(ReplaceResult::Outdated);
    }
    configure(context, found.no, endpoint);
    let sql = "UPDATE endpoints SET revision = revision + 1 WHERE no = $1";
    context.write_last(sql, move |conn| async move {
        conn.execute(sql, &[&found.no]).await?;
        Ok(())
    });
    context.change(Change::Endpoint(endpoint.id));
    Ok(ReplaceResult::Done)
}

const CONFIGURE: &str = "UPDATE endpoints SET url = $2, description = $3, event_types = $4, policy = $5, \
     timeout_ms = $6, max_in_flight = $7, per_second = $8, burst = $9, ordered = $10, \
     sealed_headers = $11, sealed_keys = $12, owner_email = $13, signature_style = $14, \
     sealed_credentials = $15, inherited = $16, protection = $17, owner_email_confirmed = $18 \
     WHERE no = $1";

/// Registers the write of an endpoint's configuration.
fn configure(context: &mut WriteContext, no: i64, endpoint: &Endpoint) {
    let endpoint = endpoint.clone();
    context.write_last(CONFIGURE, move |conn| async move {
        let patterns = endpoint.event_types.iter();
        let patterns: Vec<String> = patterns.map(ToString::to_string).collect();
        let limits = LimitColumns::of(&endpoint.limits);
        let protection = protection_column(&endpoint.protection);
        let params: Params<'_> = &[
            &no,
            &endpoint.url,
            &endpoint.description,
            &to_json(&patterns),
            &endpoint.retry_policy.as_ref().map(to_json),
            &limits.timeout_ms,
            &i64::from(limits.max_in_flight),
            &limits.per_second,
            &i64::from(limits.burst),
            &endpoint.ordered,
            &endpoint.sealed_headers,
            &endpoint.sealed_keys,
            &endpoint.owner_email,
            &EnumCode(endpoint.signature_style),
            &endpoint.sealed_credentials,
            &limits.inherited,
            &protection,
            &endpoint.owner_email_confirmed,
        ];
        conn.execute(CONFIGURE, params).await?;
        Ok(())
    });
}

/// Sets the status of an endpoint, unless it is deleted, and its health if that is newer.
pub(in crate::postgres) async fn set_endpoint_status(
    context: &mut WriteContext,
    endpoint: EndpointId,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
    health: Option<&Health>,
) -> Result<bool, DbError> {
    let Some(found) = find(&context.conn, endpoint).await? else {
        return Ok(false);
    };
    if let Some(health) = health {
        remember(context, found.no, health);
    }
    if found.status != EndpointStatus::Deleted {
        write_status(context, endpoint, status, reason);
    }
    Ok(true)
}

const SET_STATUS: &str =
    "UPDATE endpoints SET standing = $2, reason = $3 WHERE id = $1 AND standing <> 3";

/// Changes the status of an endpoint that is not deleted. The directory must be locked, or checked with the commit.
pub(in crate::postgres) fn write_status(
    context: &mut WriteContext,
    endpoint: EndpointId,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
) {
    let reason = reason.filter(|_| status == EndpointStatus::Disabled);
    let reason = reason.as_ref().map(to_json);
    context.write_last(SET_STATUS, move |conn| async move {
        let params: Params<'_> = &[&Id(endpoint.0), &EnumCode(status), &reason];
        conn.execute(SET_STATUS, params).await?;
        Ok(())
    });
    context.change(Change::Endpoint(endpoint));
}

const SET_HEALTH: &str = "UPDATE healths SET health = $2, revision = $3, tripped = $4 \
     WHERE endpoint_no = $1 AND revision < $3";

/// Registers the write of an endpoint's health. It does nothing if the stored one is newer.
fn remember(context: &mut WriteContext, no: i64, health: &Health) {
    let text = to_json(health);
    let revision = i64::try_from(health.revision).unwrap_or(i64::MAX);
    let is_tripped = health.trip.is_some();
    context.write_last(SET_HEALTH, move |conn| async move {
        conn.execute(SET_HEALTH, &[&no, &text, &revision, &is_tripped])
            .await?;
        Ok(())
    });
}

/// Deletes up to `limit` origin endpoints without deliveries that were created before this time. Examines a bounded
/// number, and continues after them at the next call.
pub(in crate::postgres) async fn delete_idle_origins(
    context: &mut WriteContext,
    created_before: Timestamp,
    limit: usize,
) -> Result<Vec<EndpointId>, DbError> {
    let conn = context.conn.clone();
    let above = context.cache.origins_up_to;
    let (idle, up_to) = idle_origins(&conn, created_before, above, limit).await?;
    context.cache.origins_up_to = up_to;
    if idle.is_empty() {
        return Ok(Vec::new());
    }
    // They are examined again under the lock, after which no event is routed to them.
    context.lock_directory().await?;
    let deleted = still_idle(&conn, &idle).await?;
    for endpoint in &deleted {
        write_status(context, *endpoint, EndpointStatus::Deleted, None);
    }
    Ok(deleted)
}

/// Returns some origin endpoints above this number without deliveries, and the number after which to continue.
async fn idle_origins(
    conn: &PgConnection,
    created_before: Timestamp,
    above: i64,
    limit: usize,
) -> Result<(Vec<Id>, i64), DbError> {
    let examined = limit.saturating_mul(EXAMINED_PER_DELETED);
    let sql = "SELECT e.no, e.id, e.created_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.endpoint_no = e.no) \
         AND NOT EXISTS (SELECT 1 FROM ended d WHERE d.endpoint_no = e.no) \
         FROM (SELECT no, id, created_at FROM endpoints WHERE is_origin AND standing <> 3 AND no > $2 \
         ORDER BY no LIMIT $3) e ORDER BY e.no";
    let rows = conn
        .query(sql, &[&ms(created_before), &above, &sql_limit(examined)])
        .await?;
    let last = rows.last().filter(|_| rows.len() == examined);
    let up_to = last.map_or(0, |row| row.get(0));
    let mut idle = Vec::new();
    for row in rows.iter().filter(|row| row.get(2)) {
        if idle.len() == limit {
            return Ok((idle, row.get::<_, i64>(0) - 1));
        }
        idle.push(row.get(1));
    }
    Ok((idle, up_to))
}

/// Returns those of these origin endpoints that still exist and have no deliveries.
async fn still_idle(conn: &PgConnection, origins: &[Id]) -> Result<Vec<EndpointId>, DbError> {
    let sql = "SELECT e.id FROM endpoints e WHERE e.id = ANY ($1) AND e.is_origin AND e.standing <> 3 \
         AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.endpoint_no = e.no) \
         AND NOT EXISTS (SELECT 1 FROM ended d WHERE d.endpoint_no = e.no) ORDER BY e.no";
    let rows = conn.query(sql, &[&origins]).await?;
    let ids = rows.iter().map(|row| EndpointId(row.get::<_, Id>(0).0));
    Ok(ids.collect())
}
