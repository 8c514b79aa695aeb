//! Endpoints: configuration, status and health.
//!
//! A change of the configuration needs the revision that it is based on, and changes the routing table with it. A
//! deleted endpoint stays deleted, and health is only replaced by newer health.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::sign::SignatureStyle;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::codes::Code;
use super::delivery_rows::{endpoint_id, from_json, json_or_default, parse, to_json};
use super::directory::live_tenant;
use super::group_commit::WriteContext;
use super::origins::origin_endpoint;
use super::routing_table::{EndpointRoute, policy, read_patterns};
use super::row_keys::id_bytes;
use crate::codes::{at, ms, sql_limit};
use crate::limit_columns::{LimitColumns, protection_column};
use crate::page::{cut, one_more};
use crate::{
    CreateResult, DisabledReason, Endpoint, EndpointRow, Page, PageRequest, ReplaceResult,
};

/// Creates an endpoint.
pub(super) fn create(
    context: &mut WriteContext<'_>,
    endpoint: &Endpoint,
    at_most: u32,
) -> rusqlite::Result<CreateResult> {
    let Some(tenant) = context.routes.tenant(&endpoint.tenant).cloned() else {
        return Ok(CreateResult::NoSuchTenant);
    };
    if find(context.conn, endpoint.id)?.is_some() {
        return Ok(CreateResult::Taken);
    }
    if endpoint.is_origin
        && origin_endpoint(context.conn, &endpoint.tenant, &endpoint.url)?.is_some()
    {
        return Ok(CreateResult::Taken);
    }
    let same_kind = tenant.endpoints.iter();
    let same_kind = same_kind.filter(|route| route.is_origin == endpoint.is_origin);
    if same_kind.count() >= at_most as usize {
        return Ok(CreateResult::TooMany);
    }
    let no = context.next_no()?;
    context
        .conn
        .prepare_cached(
            "INSERT INTO endpoints (no, id, tenant_no, standing, tripped, health_revision, health, \
             created_at, revision, url, description, event_types, policy, timeout_ms, \
             max_in_flight, per_second, burst, ordered, sealed_headers, sealed_keys, owner_email, \
             is_origin) \
             VALUES (?1, ?2, ?3, 0, 0, 0, ?4, ?5, 0, '', '', '[]', NULL, 0, 0, 0, 0, 0, x'', x'', \
             NULL, ?6)",
        )?
        .execute(params![
            no,
            id_bytes(endpoint.id.0),
            tenant.no,
            to_json(&Health::default()),
            ms(endpoint.created_at),
            endpoint.is_origin,
        ])?;
    configure(context.conn, no, endpoint)?;
    let give_up_after = context
        .settings
        .policy_for(endpoint.retry_policy.as_ref(), tenant.policy.as_ref())
        .give_up_after;
    let route = Arc::new(EndpointRoute {
        no,
        id: endpoint.id,
        status: EndpointStatus::Enabled,
        is_origin: endpoint.is_origin,
        patterns: endpoint.event_types.clone(),
        policy: endpoint.retry_policy.clone(),
        give_up_after,
    });
    drop(tenant);
    // Numbers only grow, so the list stays sorted.
    context
        .routes
        .change(&endpoint.tenant, |routes| routes.endpoints.push(route));
    Ok(CreateResult::Created)
}

/// Replaces the configuration of an endpoint.
pub(super) fn replace(
    context: &mut WriteContext<'_>,
    endpoint: &Endpoint,
) -> rusqlite::Result<ReplaceResult> {
    let Some(found) = find(context.conn, endpoint.id)? else {
        return Ok(ReplaceResult::NotFound);
    };
    if found.status == EndpointStatus::Deleted {
        return Ok(ReplaceResult::NotFound);
    }
    if found.revision != endpoint.revision {
        return Ok(ReplaceResult::Outdated);
    }
    configure(context.conn, found.no, endpoint)?;
    context
        .conn
        .prepare_cached("UPDATE endpoints SET revision = revision + 1 WHERE no = ?1")?
        .execute([found.no])?;
    let settings = context.settings;
    let own = endpoint.retry_policy.as_ref();
    context.routes.change(&found.tenant, |routes| {
        let give_up_after = settings
            .policy_for(own, routes.policy.as_ref())
            .give_up_after;
        if let Ok(index) = routes
            .endpoints
            .binary_search_by_key(&found.no, |route| route.no)
        {
            let route = Arc::make_mut(&mut routes.endpoints[index]);
            route.patterns = endpoint.event_types.clone();
            route.policy = endpoint.retry_policy.clone();
            route.give_up_after = give_up_after;
        }
    });
    Ok(ReplaceResult::Done)
}

fn configure(conn: &Connection, no: i64, endpoint: &Endpoint) -> rusqlite::Result<()> {
    let patterns: Vec<String> = endpoint
        .event_types
        .iter()
        .map(ToString::to_string)
        .collect();
    let limits = LimitColumns::of(&endpoint.limits);
    conn.prepare_cached(
        "UPDATE endpoints SET url = ?2, description = ?3, event_types = ?4, policy = ?5, \
         timeout_ms = ?6, max_in_flight = ?7, per_second = ?8, burst = ?9, ordered = ?10, \
         sealed_headers = ?11, sealed_keys = ?12, owner_email = ?13, signature_style = ?14, \
         sealed_credentials = ?15, inherited = ?16, protection = ?17, owner_email_confirmed = ?18 \
         WHERE no = ?1",
    )?
    .execute(params![
        no,
        endpoint.url,
        endpoint.description,
        to_json(&patterns),
        endpoint.retry_policy.as_ref().map(to_json),
        limits.timeout_ms,
        limits.max_in_flight,
        limits.per_second,
        limits.burst,
        endpoint.ordered,
        endpoint.sealed_headers,
        endpoint.sealed_keys,
        endpoint.owner_email,
        Code(endpoint.signature_style),
        endpoint.sealed_credentials,
        limits.inherited,
        protection_column(&endpoint.protection),
        endpoint.owner_email_confirmed,
    ])?;
    Ok(())
}

/// The data of an endpoint that write operations need.
pub(super) struct EndpointColumns {
    pub(super) no: i64,
    pub(super) tenant_no: i64,
    pub(super) tenant: TenantId,
    pub(super) status: EndpointStatus,
    pub(super) revision: u64,
}

/// Returns the endpoint with this id, deleted or not.
pub(super) fn find(conn: &Connection, id: EndpointId) -> rusqlite::Result<Option<EndpointColumns>> {
    conn.prepare_cached(
        "SELECT e.no, t.id, e.standing, e.revision, e.tenant_no FROM endpoints e \
         JOIN tenants t ON t.no = e.tenant_no WHERE e.id = ?1",
    )?
    .query_row([id_bytes(id.0)], |row| {
        Ok(EndpointColumns {
            no: row.get(0)?,
            tenant: parse(row.get_ref(1)?.as_str()?)?,
            status: row.get::<_, Code<EndpointStatus>>(2)?.0,
            revision: row.get::<_, i64>(3)? as u64,
            tenant_no: row.get(4)?,
        })
    })
    .optional()
}

/// Sets the status of an endpoint, unless it is deleted, and its health if that is newer.
pub(super) fn set_endpoint_status(
    context: &mut WriteContext<'_>,
    endpoint: EndpointId,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
    health: Option<&Health>,
) -> rusqlite::Result<bool> {
    let Some(found) = find(context.conn, endpoint)? else {
        return Ok(false);
    };
    if let Some(health) = health {
        update_health(context.conn, found.no, health)?;
    }
    set_status(context, &found, status, reason)?;
    Ok(true)
}

/// Changes the status of an endpoint. A deleted endpoint stays deleted.
pub(super) fn set_status(
    context: &mut WriteContext<'_>,
    found: &EndpointColumns,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
) -> rusqlite::Result<()> {
    if found.status == EndpointStatus::Deleted {
        return Ok(());
    }
    let reason = reason.filter(|_| status == EndpointStatus::Disabled);
    context
        .conn
        .prepare_cached("UPDATE endpoints SET standing = ?2, reason = ?3 WHERE no = ?1")?
        .execute(params![
            found.no,
            Code(status),
            reason.as_ref().map(to_json)
        ])?;
    match status {
        EndpointStatus::Deleted => context.routes.change(&found.tenant, |routes| {
            routes.endpoints.retain(|route| route.no != found.no);
        }),
        EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Disabled => context
            .routes
            .change_endpoint(&found.tenant, found.no, |route| route.status = status),
    }
    Ok(())
}

/// Stores the health of an endpoint, if it is newer than the stored one.
pub(super) fn update_health(conn: &Connection, no: i64, health: &Health) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE endpoints SET health = ?2, health_revision = ?3, tripped = ?4 \
         WHERE no = ?1 AND health_revision < ?3",
    )?
    .execute(params![
        no,
        to_json(health),
        i64::try_from(health.revision).unwrap_or(i64::MAX),
        health.trip.is_some(),
    ])?;
    Ok(())
}

const COLUMNS: &str = "e.id, t.id, e.url, e.description, e.event_types, e.policy, e.timeout_ms, \
    e.max_in_flight, e.per_second, e.burst, e.ordered, e.sealed_headers, e.sealed_keys, \
    e.owner_email, e.created_at, e.revision, e.standing, e.reason, e.health, \
    e.signature_style, e.sealed_credentials, e.inherited, e.protection, e.owner_email_confirmed, \
    e.is_origin \
    FROM endpoints e JOIN tenants t ON t.no = e.tenant_no";

fn read(row: &Row<'_>) -> rusqlite::Result<EndpointRow> {
    Ok(EndpointRow {
        endpoint: Endpoint {
            id: endpoint_id(row, 0)?,
            tenant: parse(row.get_ref(1)?.as_str()?)?,
            url: row.get(2)?,
            description: row.get(3)?,
            event_types: read_patterns(row.get_ref(4)?.as_str()?)?,
            retry_policy: policy(row.get_ref(5)?.as_str_or_null()?)?,
            limits: LimitColumns {
                timeout_ms: row.get(6)?,
                max_in_flight: row.get(7)?,
                per_second: row.get(8)?,
                burst: row.get(9)?,
                inherited: row.get(21)?,
            }
            .limits(),
            protection: json_or_default(row.get_ref(22)?.as_str_or_null()?)?,
            ordered: row.get(10)?,
            sealed_headers: row.get(11)?,
            sealed_keys: row.get(12)?,
            signature_style: row.get::<_, Code<SignatureStyle>>(19)?.0,
            sealed_credentials: row.get(20)?,
            owner_email: row.get(13)?,
            owner_email_confirmed: row.get(23)?,
            is_origin: row.get(24)?,
            created_at: at(row.get(14)?),
            revision: row.get::<_, i64>(15)? as u64,
        },
        status: row.get::<_, Code<EndpointStatus>>(16)?.0,
        disabled_reason: row
            .get_ref(17)?
            .as_str_or_null()?
            .map(from_json)
            .transpose()?,
        health: from_json(row.get_ref(18)?.as_str()?)?,
    })
}

/// Returns an endpoint, even if it is deleted.
pub(super) fn endpoint(
    conn: &Connection,
    endpoint: EndpointId,
) -> rusqlite::Result<Option<EndpointRow>> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE e.id = ?1"))?
        .query_row([id_bytes(endpoint.0)], read)
        .optional()
}

/// Lists the endpoints of a tenant that are not deleted, newest first.
pub(super) fn endpoints(
    conn: &Connection,
    tenant: &TenantId,
    page: PageRequest<EndpointId>,
) -> rusqlite::Result<Page<EndpointRow, EndpointId>> {
    let tenant_no = live_tenant(conn, tenant)?;
    let items = conn
        .prepare_cached(&format!(
            "SELECT {COLUMNS} WHERE e.tenant_no = ?1 AND e.standing <> 3 AND e.is_origin = 0 \
             AND (?2 IS NULL OR e.id < ?2) ORDER BY e.id DESC LIMIT ?3"
        ))?
        .query_map(
            params![
                tenant_no,
                page.before.map(|id| id_bytes(id.0)),
                one_more(page.limit)
            ],
            read,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.endpoint.id))
}

/// Returns endpoints that need attention, of one tenant or of all; paused ones last.
pub(super) fn attention_list(
    conn: &Connection,
    tenant: Option<&TenantId>,
    limit: usize,
) -> rusqlite::Result<Vec<EndpointRow>> {
    let tenant_no = match tenant {
        None => None,
        Some(tenant) => match live_tenant(conn, tenant)? {
            Some(no) => Some(no),
            None => return Ok(Vec::new()),
        },
    };
    conn.prepare_cached(&attention_sql(tenant_no.is_some()))?
        .query_map((tenant_no, sql_limit(limit)), read)?
        .collect()
}

fn attention_sql(of_one: bool) -> String {
    let condition = if of_one {
        "tenant_no = ?1"
    } else {
        "?1 IS NULL"
    };
    format!(
        "SELECT {COLUMNS} WHERE e.no IN (SELECT no FROM endpoints INDEXED BY troubled WHERE {condition} \
         AND (standing = 0 AND tripped = 1 OR standing = 1 OR standing = 2 AND reason <> '\"manual\"') \
         AND is_origin = 0 ORDER BY standing = 1, id DESC LIMIT ?2) ORDER BY e.standing = 1, e.id DESC"
    )
}
