//! The audit log: an entry is inserted before its action, and its outcome is added afterwards.
//!
//! Any node writes it. An entry without an outcome shows an action whose result is not known, for example because the
//! node died.

use posthaste_core::id::{AuditId, KeyId};
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::write_context::WriteContext;
use crate::audit::{OutcomeCode, first_kept};
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::live_tenant;
use crate::postgres::schema::columns::{EnumCode, Id, parse, word};
use crate::{
    ActionInterface, AuditCompletion, AuditEntry, AuditFilter, AuditOutcome, AuditScope,
    CreateResult, Page, PageRequest,
};

/// Inserts an entry before its action is executed.
pub(in crate::postgres) async fn begin(
    context: &mut WriteContext,
    entry: &AuditEntry,
) -> Result<CreateResult, DbError> {
    let theirs = "(SELECT no FROM tenants WHERE id = $8 AND NOT deleted)";
    add(&context.conn, entry, theirs, None).await
}

/// Inserts an entry for the tenant with this number.
pub(in crate::postgres) async fn insert(
    conn: &PgConnection,
    entry: &AuditEntry,
    tenant_no: Option<i64>,
) -> Result<CreateResult, DbError> {
    add(conn, entry, "$12::bigint", Some(&tenant_no)).await
}

/// Inserts an entry. `tenant_no` is the SQL expression for the tenant's number, `by` an additional parameter for it.
async fn add(
    conn: &PgConnection,
    entry: &AuditEntry,
    tenant_no: &str,
    by: Option<&(dyn ToSql + Sync)>,
) -> Result<CreateResult, DbError> {
    let outcome = entry.outcome.as_ref().map(AuditOutcome::columns);
    let sql = format!(
        "INSERT INTO audit (id, at, actor, actor_key, via, source, action, tenant, tenant_no, \
         resource, outcome, code) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {tenant_no}, $9, $10, $11) \
         ON CONFLICT DO NOTHING"
    );
    let id = Id(entry.id.0);
    let at = ms(entry.at);
    let key = entry.actor_key.map(|key| Id(key.0));
    let via = EnumCode(entry.via);
    let tenant = entry.tenant.as_ref().map(|tenant| tenant.as_str());
    let word = outcome.map(|(word, _)| EnumCode(word));
    let code = outcome.and_then(|(_, code)| code);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &id,
        &at,
        &entry.actor,
        &key,
        &via,
        &entry.from,
        &entry.action,
        &tenant,
        &entry.resource,
        &word,
        &code,
    ];
    params.extend(by);
    Ok(match conn.execute(&sql, &params).await? {
        1 => CreateResult::Created,
        _ => CreateResult::Taken,
    })
}

/// Writes the outcome of an action.
pub(in crate::postgres) async fn finish(
    context: &mut WriteContext,
    entry: AuditId,
    outcome: &AuditOutcome,
    made: Option<&str>,
) -> Result<AuditCompletion, DbError> {
    let conn = &context.conn;
    let (word, code) = outcome.columns();
    let id = Id(entry.0);
    let sql = "UPDATE audit SET outcome = $2, code = $3, resource = coalesce($4, resource) \
               WHERE id = $1 AND outcome IS NULL";
    let params: [&(dyn ToSql + Sync); 4] = [&id, &EnumCode(word), &code, &made];
    if conn.execute(sql, &params).await? == 1 {
        return Ok(AuditCompletion::Done);
    }
    let there = conn
        .query_opt("SELECT 1 FROM audit WHERE id = $1", &[&id])
        .await?;
    Ok(match there {
        Some(_) => AuditCompletion::Already,
        None => AuditCompletion::NoSuchEntry,
    })
}

const COLUMNS: &str =
    "id, at, actor, actor_key, via, source, action, tenant, resource, outcome, code FROM audit";

fn read(row: &Row) -> Result<AuditEntry, DbError> {
    let tenant: Option<&str> = row.get(7);
    let outcome = match row.get::<_, Option<i16>>(9) {
        None => None,
        Some(_) => {
            let word: OutcomeCode = word(row, 9)?;
            Some(AuditOutcome::from_columns(word, row.get(10)))
        }
    };
    Ok(AuditEntry {
        id: AuditId(row.get::<_, Id>(0).0),
        at: at(row.get(1)),
        actor: row.get(2),
        actor_key: row.get::<_, Option<Id>>(3).map(|id| KeyId(id.0)),
        via: word::<ActionInterface>(row, 4)?,
        from: row.get(5),
        action: row.get(6),
        tenant: tenant.map(parse).transpose()?,
        resource: row.get(8),
        outcome,
    })
}

/// Lists entries, the newest first.
pub(in crate::postgres) async fn list(
    conn: &PgConnection,
    filter: &AuditFilter,
    page: PageRequest<AuditId>,
) -> Result<Page<AuditEntry, AuditId>, DbError> {
    let (from, below) = filter.range(page.before);
    let (from, below, limit) = (Id(from), Id(below), one_more(page.limit));
    let rows = match &filter.of {
        AuditScope::All => {
            let sql =
                format!("SELECT {COLUMNS} WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3");
            conn.query(&sql, &[&from, &below, &limit]).await?
        }
        AuditScope::AnyWithId(tenant) => {
            conn.query(
                &select("tenant"),
                &[&from, &below, &limit, &tenant.as_str()],
            )
            .await?
        }
        AuditScope::Tenant(tenant) => {
            let no = live_tenant(conn, tenant).await?;
            conn.query(&select("tenant_no"), &[&from, &below, &limit, &no])
                .await?
        }
    };
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

/// Returns the query for entries by tenant column. It sorts like the index of that column; otherwise the entries of
/// all tenants would be read to find those of a small one.
fn select(column: &str) -> String {
    format!(
        "SELECT {COLUMNS} WHERE {column} IS NOT NULL AND ({column}, id) >= ($4, $1) \
         AND ({column}, id) < ($4, $2) ORDER BY {column} DESC, id DESC LIMIT $3"
    )
}

/// Deletes expired entries. Returns their number. Rows that another node is deleting are skipped.
pub(in crate::postgres) async fn delete_expired(
    conn: &PgConnection,
    now: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    let sql = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < $1 \
               ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)";
    let removed = conn
        .execute(sql, &[&Id(first_kept(now)), &sql_limit(limit)])
        .await?;
    Ok(removed as usize)
}
