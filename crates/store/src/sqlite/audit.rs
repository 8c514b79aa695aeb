//! The audit log: an entry is inserted before its action, and its outcome is added afterwards.
//!
//! An entry without an outcome shows an action whose result is not known, for example because the process died.

use posthaste_core::id::{AuditId, KeyId};
use posthaste_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::codes::Code;
use super::delivery_rows::parse;
use super::directory::live_tenant;
use super::group_commit::WriteContext;
use super::row_keys::id_bytes;
use super::store::SqliteStore;
use crate::audit::{OutcomeCode, first_kept, fitted};
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::read_duration::ReadDuration;
use crate::{
    ActionInterface, Answer, AuditCompletion, AuditEntry, AuditFilter, AuditLog, AuditOutcome,
    AuditScope, CreateResult, Page, PageRequest,
};

impl AuditLog for SqliteStore {
    fn begin_audit(&self, _now: Timestamp, entry: AuditEntry) -> Answer<CreateResult> {
        let entry = entry.truncated();
        self.write(move |context| begin(context, &entry))
    }

    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<AuditCompletion> {
        let (outcome, made) = (outcome.fitted(), fitted(made));
        self.write(move |context| finish(context, entry, &outcome, made.as_deref()))
    }

    fn audit(
        &self,
        filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>> {
        self.read(ReadDuration::Long, move |conn| list(conn, &filter, page))
    }
}

/// Records an action before it is executed.
pub(super) fn begin(
    context: &mut WriteContext<'_>,
    entry: &AuditEntry,
) -> rusqlite::Result<CreateResult> {
    let tenant = entry.tenant.as_ref();
    let tenant_no = tenant.and_then(|tenant| context.routes.tenant(tenant).map(|routes| routes.no));
    insert(context.conn, entry, tenant_no)
}

/// Inserts an entry for the tenant with this number.
pub(super) fn insert(
    conn: &Connection,
    entry: &AuditEntry,
    tenant_no: Option<i64>,
) -> rusqlite::Result<CreateResult> {
    let outcome = entry.outcome.as_ref().map(AuditOutcome::columns);
    let added = conn
        .prepare_cached(
            "INSERT INTO audit (id, at, actor, actor_key, via, source, action, tenant, tenant_no, \
             resource, outcome, code) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            id_bytes(entry.id.0),
            ms(entry.at),
            entry.actor,
            entry.actor_key.map(|key| id_bytes(key.0)),
            Code(entry.via),
            entry.from,
            entry.action,
            entry.tenant.as_ref().map(|tenant| tenant.as_str()),
            tenant_no,
            entry.resource,
            outcome.map(|(word, _)| Code(word)),
            outcome.and_then(|(_, code)| code),
        ])?;
    Ok(if added == 1 {
        CreateResult::Created
    } else {
        CreateResult::Taken
    })
}

/// Records the outcome of an action.
pub(super) fn finish(
    context: &mut WriteContext<'_>,
    entry: AuditId,
    outcome: &AuditOutcome,
    made: Option<&str>,
) -> rusqlite::Result<AuditCompletion> {
    let (word, code) = outcome.columns();
    let id = id_bytes(entry.0);
    let completed = context
        .conn
        .prepare_cached(
            "UPDATE audit SET outcome = ?2, code = ?3, resource = coalesce(?4, resource) \
             WHERE id = ?1 AND outcome IS NULL",
        )?
        .execute(params![id, Code(word), code, made])?;
    if completed == 1 {
        return Ok(AuditCompletion::Done);
    }
    let there = context
        .conn
        .prepare_cached("SELECT 1 FROM audit WHERE id = ?1")?
        .exists([id])?;
    Ok(match there {
        true => AuditCompletion::Already,
        false => AuditCompletion::NoSuchEntry,
    })
}

const COLUMNS: &str =
    "id, at, actor, actor_key, via, source, action, tenant, resource, outcome, code FROM audit";

fn read(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let key: Option<[u8; 16]> = row.get(3)?;
    let word: Option<Code<OutcomeCode>> = row.get(9)?;
    let code = row.get(10)?;
    Ok(AuditEntry {
        id: AuditId(u128::from_be_bytes(row.get(0)?)),
        at: at(row.get(1)?),
        actor: row.get(2)?,
        actor_key: key.map(|bytes| KeyId(u128::from_be_bytes(bytes))),
        via: row.get::<_, Code<ActionInterface>>(4)?.0,
        from: row.get(5)?,
        action: row.get(6)?,
        tenant: row.get_ref(7)?.as_str_or_null()?.map(parse).transpose()?,
        resource: row.get(8)?,
        outcome: word.map(|word| AuditOutcome::from_columns(word.0, code)),
    })
}

/// Lists entries, newest first.
pub(super) fn list(
    conn: &Connection,
    filter: &AuditFilter,
    page: PageRequest<AuditId>,
) -> rusqlite::Result<Page<AuditEntry, AuditId>> {
    let (from, below) = filter.range(page.before);
    let mut params = vec![
        Value::Blob(id_bytes(from).to_vec()),
        Value::Blob(id_bytes(below).to_vec()),
        Value::Integer(one_more(page.limit)),
    ];
    match &filter.of {
        AuditScope::All => {}
        AuditScope::AnyWithId(tenant) => params.push(Value::Text(tenant.to_string())),
        AuditScope::Tenant(tenant) => params.push(Value::from(live_tenant(conn, tenant)?)),
    }
    let items = conn
        .prepare_cached(&select(&filter.of))?
        .query_map(params_from_iter(params), read)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

fn select(of: &AuditScope) -> String {
    let theirs = match of {
        AuditScope::All => "",
        AuditScope::AnyWithId(_) => "tenant = ?4 AND ",
        AuditScope::Tenant(_) => "tenant_no = ?4 AND ",
    };
    format!("SELECT {COLUMNS} WHERE {theirs}id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3")
}

/// Deletes expired entries. Returns their number.
pub(super) fn delete_expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    conn.prepare_cached(
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < ?1 ORDER BY id LIMIT ?2)",
    )?
    .execute(params![id_bytes(first_kept(now)), sql_limit(limit)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::open_writer;

    #[test]
    fn a_tenant_does_not_scan_entries_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let conn = open_writer(&directory.path().join("a.db")).unwrap();
        let acme = || "acme".parse().unwrap();
        for (of, index) in [
            (AuditScope::All, "sqlite_autoindex_audit_1 (id>? AND id<?)"),
            (
                AuditScope::AnyWithId(acme()),
                "audit_by_name (tenant=? AND id>? AND id<?)",
            ),
            (
                AuditScope::Tenant(acme()),
                "audit_by_tenant (tenant_no=? AND id>? AND id<?)",
            ),
        ] {
            let plan = format!("EXPLAIN QUERY PLAN {}", select(&of));
            let mut plan = conn.prepare(&plan).unwrap();
            let mut rows = plan.raw_query();
            let mut steps: Vec<String> = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                steps.push(row.get(3).unwrap());
            }
            assert_eq!(steps, [format!("SEARCH audit USING INDEX {index}")]);
        }
    }
}
