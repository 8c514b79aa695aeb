//! Sessions (table `passes`): creates, finds, ends and deletes them.
//!
//! Any node does so. A session ends with its tenant or its key, in the same transaction.

use posthaste_core::id::{SessionId, TenantId};
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;

use super::write_context::WriteContext;
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::{hash_of, live_tenant};
use crate::postgres::schema::columns::{Id, parse};
use crate::{CreateResult, KeyHash, LoginSession, Page, PageRequest, SessionIdentity};

/// Creates a session.
pub(in crate::postgres) async fn create(
    context: &mut WriteContext,
    session: &LoginSession,
) -> Result<CreateResult, DbError> {
    let (tenant_no, key) = match &session.holder {
        SessionIdentity::Key(hash) => (None, Some(hash.0.as_slice())),
        SessionIdentity::Tenant(tenant) => {
            // Deleting a tenant deletes its sessions, so the tenant must not be deleted while a session is added.
            context.lock_directory_shared().await?;
            let Some(no) = live_tenant(&context.conn, tenant).await? else {
                return Ok(CreateResult::NoSuchTenant);
            };
            (Some(no), None)
        }
    };
    let sql = "INSERT INTO passes (id, hash, tenant_no, key_hash, created_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let (id, hash) = (Id(session.id.0), session.hash.0.as_slice());
    let (created_at, expires_at) = (ms(session.created_at), ms(session.expires_at));
    let added = context
        .conn
        .execute(
            sql,
            &[&id, &hash, &tenant_no, &key, &created_at, &expires_at],
        )
        .await?;
    Ok(if added == 1 {
        CreateResult::Created
    } else {
        CreateResult::Taken
    })
}

/// Ends a session: of this tenant, or of any if no tenant is given.
pub(in crate::postgres) async fn end(
    context: &mut WriteContext,
    now: Timestamp,
    tenant: Option<&TenantId>,
    session: SessionId,
) -> Result<bool, DbError> {
    let conn = &context.conn;
    let (id, now) = (Id(session.0), ms(now));
    let ended = match tenant {
        None => {
            let sql = "DELETE FROM passes WHERE id = $1 AND expires_at > $2";
            conn.execute(sql, &[&id, &now]).await?
        }
        Some(tenant) => {
            let no = live_tenant(conn, tenant).await?;
            let sql = "DELETE FROM passes WHERE id = $1 AND expires_at > $2 AND tenant_no = $3";
            conn.execute(sql, &[&id, &now, &no]).await?
        }
    };
    Ok(ended == 1)
}

/// Ends the sessions of a tenant that is being deleted.
pub(super) fn delete_of_tenant(context: &mut WriteContext, tenant_no: i64) {
    let sql = "DELETE FROM passes WHERE tenant_no = $1";
    context.write_last(sql, move |conn| async move {
        conn.execute(sql, &[&tenant_no]).await?;
        Ok(())
    });
}

/// Ends the sessions of keys that are being revoked.
pub(super) fn delete_of_keys(context: &mut WriteContext, keys: &[KeyHash]) {
    let sql = "DELETE FROM passes WHERE key_hash = ANY ($1)";
    let keys = keys.to_vec();
    context.write_last(sql, move |conn| async move {
        let keys: Vec<&[u8]> = keys.iter().map(|hash| hash.0.as_slice()).collect();
        conn.execute(sql, &[&keys]).await?;
        Ok(())
    });
}

const COLUMNS: &str = "p.id, p.hash, p.key_hash, t.id, p.created_at, p.expires_at \
    FROM passes p LEFT JOIN tenants t ON t.no = p.tenant_no";

fn read(row: &Row) -> Result<LoginSession, DbError> {
    let (key, tenant): (Option<&[u8]>, Option<&str>) = (row.get(2), row.get(3));
    let holder = match (key, tenant) {
        (Some(_), _) => SessionIdentity::Key(hash_of(row, 2)?),
        (None, Some(tenant)) => SessionIdentity::Tenant(parse(tenant)?),
        (None, None) => return Err(DbError::Corrupt("a session without a holder".to_owned())),
    };
    Ok(LoginSession {
        id: SessionId(row.get::<_, Id>(0).0),
        hash: hash_of(row, 1)?,
        holder,
        created_at: at(row.get(4)),
        expires_at: at(row.get(5)),
    })
}

/// Returns the session with this hash, unless it has expired.
pub(in crate::postgres) async fn find(
    conn: &PgConnection,
    now: Timestamp,
    hash: KeyHash,
) -> Result<Option<LoginSession>, DbError> {
    let sql = format!("SELECT {COLUMNS} WHERE p.hash = $1 AND p.expires_at > $2");
    let row = conn
        .query_opt(&sql, &[&hash.0.as_slice(), &ms(now)])
        .await?;
    row.as_ref().map(read).transpose()
}

/// Lists the sessions of a tenant, the newest first.
pub(in crate::postgres) async fn list(
    conn: &PgConnection,
    now: Timestamp,
    tenant: &TenantId,
    page: PageRequest<SessionId>,
) -> Result<Page<LoginSession, SessionId>, DbError> {
    let tenant_no = live_tenant(conn, tenant).await?;
    let before = Id(page.before.map_or(u128::MAX, |id| id.0));
    // Sorted like the index; otherwise the sessions of all tenants would be read to find those of a small one.
    let sql = format!(
        "SELECT {COLUMNS} WHERE p.tenant_no IS NOT NULL AND (p.tenant_no, p.id) >= ($1, $2) \
         AND (p.tenant_no, p.id) < ($1, $3) AND p.expires_at > $4 \
         ORDER BY p.tenant_no DESC, p.id DESC LIMIT $5"
    );
    let (first, limit) = (Id(0), one_more(page.limit));
    let rows = conn
        .query(&sql, &[&tenant_no, &first, &before, &ms(now), &limit])
        .await?;
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// Deletes expired sessions. Returns their number. Rows that another node is deleting are skipped.
pub(in crate::postgres) async fn delete_expired(
    conn: &PgConnection,
    now: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    let sql = "DELETE FROM passes WHERE id IN (SELECT id FROM passes WHERE expires_at <= $1 \
               ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
    Ok(conn.execute(sql, &[&ms(now), &sql_limit(limit)]).await? as usize)
}
