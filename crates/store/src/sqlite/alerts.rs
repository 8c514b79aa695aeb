//! Alerts: raises, resolves and lists them.
//!
//! An object can have one open alert of each name. Resolved alerts are deleted after their retention. The size of the
//! store, which an alert watches, is read here too.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::AlertId;
use posthaste_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::delivery_rows::{from_json, parse, to_json};
use super::directory::live_tenant;
use super::group_commit::WriteContext;
use super::notifications::{self, scope};
use super::row_keys::id_bytes;
use super::store::SqliteStore;
use crate::alert::{RAISED, RESOLVED};
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::read_duration::ReadDuration;
use crate::{
    ALERT_RETENTION, Alert, AlertFilter, Alerts, Answer, CreateResult, Page, PageRequest,
    SubjectScope,
};

/// The scope number of [`SubjectScope::Everything`].
const EVERYTHING: i64 = 0;

impl Alerts for SqliteStore {
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<CreateResult> {
        self.write(move |context| raise(context, now, &alert))
    }

    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>> {
        self.write(move |context| resolve(context, now, alert))
    }

    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>> {
        self.read(ReadDuration::Long, move |conn| list(conn, &filter, page))
    }

    fn open_alerts(&self) -> Answer<BTreeMap<AlertName, u64>> {
        self.read(ReadDuration::Long, open)
    }

    fn stored_bytes(&self) -> Answer<Option<u64>> {
        self.read(ReadDuration::Quick, |conn| stored(conn).map(Some))
    }

    fn oldest_pending_notification(&self) -> Answer<Option<Timestamp>> {
        self.read(ReadDuration::Quick, pending_notifications)
    }

    fn unsent_since(&self, recipients: Vec<String>) -> Answer<Option<Timestamp>> {
        let recipients = to_json(&recipients);
        self.read(ReadDuration::Long, move |conn| unsent(conn, &recipients))
    }
}

/// Returns the number of an existing object, and that of its tenant.
fn numbers(
    conn: &Connection,
    scope: &SubjectScope,
) -> rusqlite::Result<Option<(i64, Option<i64>)>> {
    match scope {
        SubjectScope::Everything => Ok(Some((EVERYTHING, None))),
        SubjectScope::Tenant(tenant) => Ok(live_tenant(conn, tenant)?.map(|no| (no, Some(no)))),
        SubjectScope::Endpoint(endpoint) => conn
            .prepare_cached("SELECT no, tenant_no FROM endpoints WHERE id = ?1 AND standing <> 3")?
            .query_row([id_bytes(endpoint.0)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional(),
    }
}

fn raise(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    alert: &Alert,
) -> rusqlite::Result<CreateResult> {
    let conn = context.conn;
    let Some((scope, tenant)) = numbers(conn, &alert.scope)? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let added = conn
        .prepare_cached(
            "INSERT INTO alerts (id, name, scope, tenant_no, raised_at, resolved_at, detail) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            id_bytes(alert.id.0),
            alert.name.name(),
            scope,
            tenant,
            ms(alert.raised_at),
            alert.resolved_at.map(ms),
            to_json(&alert.detail),
        ])?;
    if added == 0 {
        return Ok(CreateResult::Taken);
    }
    notify(conn, now, scope, RAISED, alert)?;
    Ok(CreateResult::Created)
}

fn resolve(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    alert: AlertId,
) -> rusqlite::Result<Option<Alert>> {
    let conn = context.conn;
    let id = id_bytes(alert.0);
    let ended = conn
        .prepare_cached("UPDATE alerts SET resolved_at = ?2 WHERE id = ?1 AND resolved_at IS NULL")?
        .execute(params![id, ms(now)])?;
    if ended == 0 {
        return Ok(None);
    }
    let (alert, scope) = conn
        .prepare_cached(&format!("SELECT {COLUMNS}, a.scope {FROM} WHERE a.id = ?1"))?
        .query_row([id], |row| Ok((read(row)?, row.get(9)?)))?;
    notify(conn, now, scope, RESOLVED, &alert)?;
    Ok(Some(alert))
}

fn notify(
    conn: &Connection,
    now: Timestamp,
    scope: i64,
    name: &str,
    alert: &Alert,
) -> rusqlite::Result<()> {
    notifications::add_notification(conn, now, scope, name, &alert.notification_detail())
}

/// The columns that [`read`] needs: five of the alert, its tenant, whether its object is deleted, then those of its
/// scope.
const COLUMNS: &str = "a.id, a.name, a.raised_at, a.resolved_at, a.detail, o.id, \
    coalesce(e.standing = 3, t.deleted, 0), e.id, t.id";
const FROM: &str = "FROM alerts a LEFT JOIN endpoints e ON e.no = a.scope \
    LEFT JOIN tenants t ON t.no = a.scope LEFT JOIN tenants o ON o.no = a.tenant_no";

fn read(row: &Row<'_>) -> rusqlite::Result<Alert> {
    Ok(Alert {
        id: AlertId(u128::from_be_bytes(row.get(0)?)),
        name: parse(row.get_ref(1)?.as_str()?)?,
        scope: scope(row, 7)?,
        tenant: row.get_ref(5)?.as_str_or_null()?.map(parse).transpose()?,
        is_gone: row.get(6)?,
        raised_at: at(row.get(2)?),
        resolved_at: row.get::<_, Option<i64>>(3)?.map(at),
        detail: from_json(row.get_ref(4)?.as_str()?)?,
    })
}

fn list(
    conn: &Connection,
    filter: &AlertFilter,
    page: PageRequest<AlertId>,
) -> rusqlite::Result<Page<Alert, AlertId>> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let before = page.before.map_or(u128::MAX, |id| id.0);
    let mut params = vec![
        Value::Blob(id_bytes(before).to_vec()),
        Value::Integer(one_more(page.limit)),
    ];
    let mut wanted = String::from("a.id < ?1");
    let mut want = |condition: &str, value: Value| {
        params.push(value);
        wanted.push_str(&format!(" AND {condition} ?{}", params.len()));
    };
    if let Some(tenant) = &filter.tenant {
        let Some(no) = live_tenant(conn, tenant)? else {
            return Ok(nothing);
        };
        want("a.tenant_no =", no.into());
    }
    if let Some(scope) = &filter.scope {
        let Some(no) = number(conn, scope)? else {
            return Ok(nothing);
        };
        want("a.scope =", no.into());
    }
    if let Some(name) = filter.name {
        want("a.name =", name.name().to_owned().into());
    }
    if let Some(since) = filter.since {
        want("a.raised_at >=", ms(since).into());
    }
    if let Some(until) = filter.until {
        want("a.raised_at <", ms(until).into());
    }
    wanted.push_str(match filter.open {
        None => "",
        Some(true) => " AND a.resolved_at IS NULL",
        Some(false) => " AND a.resolved_at IS NOT NULL",
    });
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE {wanted} ORDER BY a.id DESC LIMIT ?2");
    let items = conn
        .prepare_cached(&sql)?
        .query_map(params_from_iter(params), read)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

fn open(conn: &Connection) -> rusqlite::Result<BTreeMap<AlertName, u64>> {
    conn.prepare_cached(
        "SELECT name, count(*) FROM alerts WHERE resolved_at IS NULL GROUP BY name",
    )?
    .query_map([], |row| {
        Ok((
            parse(row.get_ref(0)?.as_str()?)?,
            row.get::<_, i64>(1)? as u64,
        ))
    })?
    .collect()
}

/// Returns the size of the used pages. SQLite reuses freed pages before the file grows, so they do not count.
fn stored(conn: &Connection) -> rusqlite::Result<u64> {
    let number =
        |pragma: &str| conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok((pages.max(0) as u64).saturating_mul(number("page_size")?.max(0) as u64))
}

fn pending_notifications(conn: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let oldest: Option<i64> = conn
        .prepare_cached(
            "SELECT at FROM notices WHERE number > (SELECT value FROM meta WHERE name = 'told') \
             ORDER BY number LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(oldest.map(at))
}

/// Returns the creation time of the oldest failed email to one of these recipients, given as a JSON array.
fn unsent(conn: &Connection, recipients: &str) -> rusqlite::Result<Option<Timestamp>> {
    let oldest: Option<i64> = conn
        .prepare_cached(
            "SELECT min(first_at) FROM letters WHERE tries > 0 AND recipient IN \
             (SELECT value FROM json_each(?1))",
        )?
        .query_row([recipients], |row| row.get(0))?;
    Ok(oldest.map(at))
}

/// Returns the scope number under which an object has alerts; a deleted endpoint keeps its number.
fn number(conn: &Connection, scope: &SubjectScope) -> rusqlite::Result<Option<i64>> {
    match scope {
        SubjectScope::Everything => Ok(Some(EVERYTHING)),
        SubjectScope::Tenant(tenant) => live_tenant(conn, tenant),
        SubjectScope::Endpoint(endpoint) => conn
            .prepare_cached("SELECT no FROM endpoints WHERE id = ?1")?
            .query_row([id_bytes(endpoint.0)], |row| row.get(0))
            .optional(),
    }
}

/// Deletes alerts that were resolved long enough ago. Returns their number.
pub(super) fn delete_expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let Some(over) = now.0.checked_sub(ALERT_RETENTION.as_millis()) else {
        return Ok(0);
    };
    conn.prepare_cached(
        "DELETE FROM alerts WHERE no IN (SELECT no FROM alerts WHERE resolved_at <= ?1 \
         ORDER BY resolved_at, id LIMIT ?2)",
    )?
    .execute(params![ms(Timestamp(over)), sql_limit(limit)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::notifications::SCOPE_COLUMNS;

    #[test]
    fn the_columns_are_read_where_they_are() {
        assert!(COLUMNS.ends_with(SCOPE_COLUMNS));
    }
}
