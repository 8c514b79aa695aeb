//! Sessions (table `passes`): creates, finds, ends and deletes them.
//!
//! A session ends with its tenant or its key, in the same transaction. Expired ones are not returned, and are deleted
//! later.

use posthaste_core::id::{KeyId, SessionId, TenantId};
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::delivery_rows::parse;
use super::directory::live_tenant;
use super::group_commit::WriteContext;
use super::row_keys::id_bytes;
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::{CreateResult, KeyHash, LoginSession, Page, PageRequest, SessionIdentity};

/// Adds a session.
pub(super) fn create(
    context: &mut WriteContext<'_>,
    session: &LoginSession,
) -> rusqlite::Result<CreateResult> {
    let (tenant_no, key) = match &session.holder {
        SessionIdentity::Key(hash) => (None, Some(hash.0)),
        SessionIdentity::Tenant(tenant) => match context.routes.tenant(tenant) {
            Some(routes) => (Some(routes.no), None),
            None => return Ok(CreateResult::NoSuchTenant),
        },
    };
    let added = context
        .conn
        .prepare_cached(
            "INSERT INTO passes (id, hash, tenant_no, key_hash, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            id_bytes(session.id.0),
            session.hash.0,
            tenant_no,
            key,
            ms(session.created_at),
            ms(session.expires_at),
        ])?;
    Ok(if added == 1 {
        CreateResult::Created
    } else {
        CreateResult::Taken
    })
}

/// Ends a session of a tenant, or any session.
pub(super) fn end(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    tenant: Option<&TenantId>,
    session: SessionId,
) -> rusqlite::Result<bool> {
    let id = id_bytes(session.0);
    let ended = match tenant {
        None => context
            .conn
            .prepare_cached("DELETE FROM passes WHERE id = ?1 AND expires_at > ?2")?
            .execute(params![id, ms(now)])?,
        Some(tenant) => match context.routes.tenant(tenant) {
            None => 0,
            Some(routes) => context
                .conn
                .prepare_cached(
                    "DELETE FROM passes WHERE id = ?1 AND expires_at > ?2 AND tenant_no = ?3",
                )?
                .execute(params![id, ms(now), routes.no])?,
        },
    };
    Ok(ended == 1)
}

/// Ends the sessions of a tenant that is being deleted, and those made with its keys.
pub(super) fn end_of_tenant(conn: &Connection, tenant_no: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM passes WHERE tenant_no = ?1")?
        .execute([tenant_no])?;
    conn.prepare_cached(
        "DELETE FROM passes WHERE key_hash IN (SELECT hash FROM keys WHERE scope = ?1)",
    )?
    .execute([tenant_no])?;
    Ok(())
}

/// Ends the sessions made with a key that is being revoked.
pub(super) fn end_of_key(conn: &Connection, scope: i64, key: KeyId) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM passes WHERE key_hash = (SELECT hash FROM keys WHERE id = ?1 AND scope = ?2)",
    )?
    .execute(params![id_bytes(key.0), scope])?;
    Ok(())
}

const COLUMNS: &str = "p.id, p.hash, p.key_hash, t.id, p.created_at, p.expires_at \
    FROM passes p LEFT JOIN tenants t ON t.no = p.tenant_no";

fn read(row: &Row<'_>) -> rusqlite::Result<LoginSession> {
    let key: Option<[u8; 32]> = row.get(2)?;
    let holder = match key {
        Some(hash) => SessionIdentity::Key(KeyHash(hash)),
        None => SessionIdentity::Tenant(parse(row.get_ref(3)?.as_str()?)?),
    };
    Ok(LoginSession {
        id: SessionId(u128::from_be_bytes(row.get(0)?)),
        hash: KeyHash(row.get(1)?),
        holder,
        created_at: at(row.get(4)?),
        expires_at: at(row.get(5)?),
    })
}

/// Returns the session with this hash, unless it has expired.
pub(super) fn find(
    conn: &Connection,
    now: Timestamp,
    hash: KeyHash,
) -> rusqlite::Result<Option<LoginSession>> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} WHERE p.hash = ?1 AND p.expires_at > ?2"
    ))?
    .query_row(params![hash.0, ms(now)], read)
    .optional()
}

/// Lists the sessions that log in as a tenant, newest first.
pub(super) fn list(
    conn: &Connection,
    now: Timestamp,
    tenant: &TenantId,
    page: PageRequest<SessionId>,
) -> rusqlite::Result<Page<LoginSession, SessionId>> {
    let tenant_no = live_tenant(conn, tenant)?;
    let before = page.before.map_or(u128::MAX, |id| id.0);
    let items = conn
        .prepare_cached(&format!(
            "SELECT {COLUMNS} WHERE p.tenant_no = ?1 AND p.id < ?2 AND p.expires_at > ?3 \
             ORDER BY p.id DESC LIMIT ?4"
        ))?
        .query_map(
            params![tenant_no, id_bytes(before), ms(now), one_more(page.limit)],
            read,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// Deletes expired sessions. Returns their number.
pub(super) fn delete_expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    conn.prepare_cached(
        "DELETE FROM passes WHERE id IN \
         (SELECT id FROM passes WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
    )?
    .execute(params![ms(now), sql_limit(limit)])
}
