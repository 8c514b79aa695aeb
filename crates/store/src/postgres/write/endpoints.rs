//! Endpoints: configuration, status and health.

use posthaste_core::cluster::Shard;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{Health, RateLimit, Standing};
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::Span;
use tokio_postgres::Row;

use super::directory::{cut, live_tenant, one_more};
use super::routing_table::{policy, read_patterns};
use super::write_context::WriteContext;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{
    EnumCode, Id, at, from_json, most, ms, parse, to_json, word,
};
use crate::{
    Change, CreateResult, DisabledReason, Endpoint, EndpointRow, Page, PageRequest, ReplaceResult,
};

/// Creates an endpoint.
pub(in crate::postgres) async fn create(
    scene: &mut WriteContext,
    endpoint: &Endpoint,
    at_most: u32,
) -> Result<CreateResult, DbError> {
    scene.lock_directory().await?;
    let Some(tenant) = scene.tenant(&endpoint.tenant) else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let link = scene.link.clone();
    if find(&link, endpoint.id).await?.is_some() {
        return Ok(CreateResult::Taken);
    }
    if tenant.endpoints.len() >= at_most as usize {
        return Ok(CreateResult::TooMany);
    }
    let no = scene.next_number().await?;
    let shard = Shard::of(endpoint.id).number() as i16;
    let (id, created_at) = (Id(endpoint.id.0), ms(endpoint.created_at));
    link.execute(
        "INSERT INTO endpoints (no, id, shard, tenant_no, standing, url, description, event_types, \
         timeout_ms, max_in_flight, per_second, burst, ordered, sealed_headers, sealed_keys, \
         signature_style, sealed_credentials, created_at, revision) \
         VALUES ($1, $2, $3, $4, 0, '', '', '[]', 0, 0, 0, 0, false, '', '', 0, '', $5, 0)",
        &[&no, &id, &shard, &tenant.no, &created_at],
    )
    .await?;
    configure(&link, no, endpoint).await?;
    link.execute(
        "INSERT INTO healths (endpoint_no, revision, tripped, health) VALUES ($1, 0, false, $2)",
        &[&no, &to_json(&Health::default())],
    )
    .await?;
    scene.change(Change::Endpoint(endpoint.id));
    Ok(CreateResult::Created)
}

/// Replaces the configuration of an endpoint.
pub(in crate::postgres) async fn replace(
    scene: &mut WriteContext,
    endpoint: &Endpoint,
) -> Result<ReplaceResult, DbError> {
    scene.lock_directory().await?;
    let link = scene.link.clone();
    let found = find(&link, endpoint.id).await?;
    let Some(found) = found.filter(|found| found.standing != Standing::Deleted) else {
        return Ok(ReplaceResult::NotFound);
    };
    if found.revision != endpoint.revision {
        return Ok(ReplaceResult::Outdated);
    }
    configure(&link, found.no, endpoint).await?;
    let sql = "UPDATE endpoints SET revision = revision + 1 WHERE no = $1";
    link.execute(sql, &[&found.no]).await?;
    scene.change(Change::Endpoint(endpoint.id));
    Ok(ReplaceResult::Done)
}

async fn configure(link: &PgConnection, no: i64, endpoint: &Endpoint) -> Result<(), DbError> {
    let patterns: Vec<String> = endpoint
        .event_types
        .iter()
        .map(ToString::to_string)
        .collect();
    link.execute(
        "UPDATE endpoints SET url = $2, description = $3, event_types = $4, policy = $5, \
         timeout_ms = $6, max_in_flight = $7, per_second = $8, burst = $9, ordered = $10, \
         sealed_headers = $11, sealed_keys = $12, owner_email = $13, signature_style = $14, \
         sealed_credentials = $15 WHERE no = $1",
        &[
            &no,
            &endpoint.url,
            &endpoint.description,
            &to_json(&patterns),
            &endpoint.retry_policy.as_ref().map(to_json),
            &(endpoint.timeout.as_millis() as i64),
            &i64::from(endpoint.max_in_flight),
            &endpoint.rate.per_second,
            &i64::from(endpoint.rate.burst),
            &endpoint.ordered,
            &endpoint.sealed_headers,
            &endpoint.sealed_keys,
            &endpoint.owner_email,
            &EnumCode(endpoint.signature_style),
            &endpoint.sealed_credentials,
        ],
    )
    .await?;
    Ok(())
}

/// The columns of an endpoint that writes need.
pub(in crate::postgres) struct Found {
    pub(in crate::postgres) no: i64,
    pub(in crate::postgres) tenant_no: i64,
    pub(in crate::postgres) standing: Standing,
    pub(in crate::postgres) revision: u64,
}

/// Returns the endpoint with this id, deleted or not.
pub(in crate::postgres) async fn find(
    link: &PgConnection,
    id: EndpointId,
) -> Result<Option<Found>, DbError> {
    let row = link
        .query_opt(
            "SELECT no, tenant_no, standing, revision FROM endpoints WHERE id = $1",
            &[&Id(id.0)],
        )
        .await?;
    let read = |row: Row| {
        Ok(Found {
            no: row.get(0),
            tenant_no: row.get(1),
            standing: word(&row, 2)?,
            revision: row.get::<_, i64>(3) as u64,
        })
    };
    row.map(read).transpose()
}

/// Sets the status of an endpoint, unless it is deleted, and its health if that is newer.
pub(in crate::postgres) async fn set_standing(
    scene: &mut WriteContext,
    endpoint: EndpointId,
    standing: Standing,
    reason: Option<DisabledReason>,
    health: Option<&Health>,
) -> Result<bool, DbError> {
    let Some(found) = find(&scene.link, endpoint).await? else {
        return Ok(false);
    };
    if let Some(health) = health {
        remember(&scene.link, found.no, health).await?;
    }
    stand(scene, endpoint, standing, reason).await?;
    Ok(true)
}

/// Changes the status of an endpoint. A deleted endpoint stays deleted. The caller must hold the directory
/// exclusively.
pub(in crate::postgres) async fn stand(
    scene: &mut WriteContext,
    endpoint: EndpointId,
    standing: Standing,
    reason: Option<DisabledReason>,
) -> Result<(), DbError> {
    let reason = reason.filter(|_| standing == Standing::Disabled);
    let reason = reason.as_ref().map(to_json);
    let sql = "UPDATE endpoints SET standing = $2, reason = $3 WHERE id = $1 AND standing <> 3";
    let changed = scene
        .link
        .execute(sql, &[&Id(endpoint.0), &EnumCode(standing), &reason])
        .await?;
    if changed == 1 {
        scene.change(Change::Endpoint(endpoint));
    }
    Ok(())
}

/// Writes the health of an endpoint, if it is newer than the stored one.
pub(in crate::postgres) async fn remember(
    link: &PgConnection,
    no: i64,
    health: &Health,
) -> Result<(), DbError> {
    link.execute(
        "UPDATE healths SET health = $2, revision = $3, tripped = $4 \
         WHERE endpoint_no = $1 AND revision < $3",
        &[
            &no,
            &to_json(health),
            &i64::try_from(health.revision).unwrap_or(i64::MAX),
            &health.trip.is_some(),
        ],
    )
    .await?;
    Ok(())
}

const COLUMNS: &str = "e.id, t.id, e.url, e.description, e.event_types, e.policy, e.timeout_ms, \
    e.max_in_flight, e.per_second, e.burst, e.ordered, e.sealed_headers, e.sealed_keys, \
    e.owner_email, e.created_at, e.revision, e.standing, e.reason, h.health, \
    e.signature_style, e.sealed_credentials \
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
            timeout: Span::from_millis(row.get::<_, i64>(6) as u64),
            max_in_flight: small(7),
            rate: RateLimit {
                per_second: row.get(8),
                burst: small(9),
            },
            ordered: row.get(10),
            sealed_headers: row.get(11),
            sealed_keys: row.get(12),
            signature_style: word::<SignatureStyle>(row, 19)?,
            sealed_credentials: row.get(20),
            owner_email: row.get(13),
            created_at: at(row.get(14)),
            revision: row.get::<_, i64>(15) as u64,
        },
        standing: word(row, 16)?,
        disabled_reason: reason.map(from_json).transpose()?,
        health: from_json(row.get(18))?,
    })
}

/// Returns an endpoint, also if it is deleted.
pub(in crate::postgres) async fn endpoint(
    link: &PgConnection,
    endpoint: EndpointId,
) -> Result<Option<EndpointRow>, DbError> {
    let sql = format!("SELECT {COLUMNS} WHERE e.id = $1");
    let row = link.query_opt(&sql, &[&Id(endpoint.0)]).await?;
    row.as_ref().map(read).transpose()
}

/// Lists the endpoints of a tenant that are not deleted, the newest first.
pub(in crate::postgres) async fn endpoints(
    link: &PgConnection,
    tenant: &TenantId,
    page: PageRequest<EndpointId>,
) -> Result<Page<EndpointRow, EndpointId>, DbError> {
    let tenant_no = live_tenant(link, tenant).await?;
    let sql = format!(
        "SELECT {COLUMNS} WHERE e.tenant_no = $1 AND e.standing <> 3 AND e.id < $2 \
         ORDER BY e.id DESC LIMIT $3"
    );
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    let rows = link
        .query(&sql, &[&tenant_no, &before, &one_more(page.limit)])
        .await?;
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.endpoint.id))
}

/// Returns endpoints that need attention, of one tenant or of all. Paused endpoints come last.
pub(in crate::postgres) async fn troubled(
    link: &PgConnection,
    tenant: Option<&TenantId>,
    limit: usize,
) -> Result<Vec<EndpointRow>, DbError> {
    let tenant_no = match tenant {
        None => None,
        Some(tenant) => match live_tenant(link, tenant).await? {
            Some(no) => Some(no),
            None => return Ok(Vec::new()),
        },
    };
    let sql = format!(
        "SELECT {COLUMNS} WHERE e.no = ANY(ARRAY(SELECT no FROM endpoints WHERE \
         (standing = 1 OR standing = 2 AND reason <> '\"manual\"') \
         AND ($1::bigint IS NULL OR tenant_no = $1) UNION SELECT endpoint_no FROM healths WHERE tripped)) \
         AND (e.standing IN (0, 1) OR e.standing = 2 AND e.reason <> '\"manual\"') \
         AND ($1::bigint IS NULL OR e.tenant_no = $1) ORDER BY e.standing = 1, e.id DESC LIMIT $2"
    );
    let rows = link.query(&sql, &[&tenant_no, &most(limit)]).await?;
    rows.iter().map(read).collect()
}
