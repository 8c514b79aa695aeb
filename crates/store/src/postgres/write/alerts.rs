//! Alerts: raises, resolves and lists them.
//!
//! Any node may do so. If two nodes raise the same alert, the database lets one succeed. Resolved alerts are deleted
//! after their retention.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::AlertId;
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::notifications::{NotificationColumns, scope, write_notifications};
use super::write_context::WriteContext;
use crate::alert::{RAISED, RESOLVED};
use crate::codes::{at, ms, sql_limit};
use crate::page::{cut, one_more};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::live_tenant;
use crate::postgres::schema::columns::{Id, from_json, parse, to_json};
use crate::{ALERT_RETENTION, Alert, AlertFilter, CreateResult, Page, PageRequest, SubjectScope};

/// The scope number of everything.
const EVERYTHING: i64 = 0;

/// Returns the number of a scope that exists, and of the tenant that it belongs to.
async fn numbers(
    conn: &PgConnection,
    scope: &SubjectScope,
) -> Result<Option<(i64, Option<i64>)>, DbError> {
    match scope {
        SubjectScope::Everything => Ok(Some((EVERYTHING, None))),
        SubjectScope::Tenant(tenant) => {
            let no = live_tenant(conn, tenant).await?;
            Ok(no.map(|no| (no, Some(no))))
        }
        SubjectScope::Endpoint(endpoint) => {
            let sql = "SELECT no, tenant_no FROM endpoints WHERE id = $1 AND standing <> 3";
            let row = conn.query_opt(sql, &[&Id(endpoint.0)]).await?;
            Ok(row.map(|row| (row.get(0), row.get(1))))
        }
    }
}

pub(in crate::postgres) async fn raise(
    context: &mut WriteContext,
    now: Timestamp,
    alert: &Alert,
) -> Result<CreateResult, DbError> {
    let conn = context.conn.clone();
    let Some((scope, tenant)) = numbers(&conn, &alert.scope).await? else {
        return Ok(CreateResult::NoSuchTenant);
    };
    let sql = "INSERT INTO alerts (id, name, scope, tenant_no, raised_at, resolved_at, detail) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
    let added = conn
        .execute(
            sql,
            &[
                &Id(alert.id.0),
                &alert.name.name(),
                &scope,
                &tenant,
                &ms(alert.raised_at),
                &alert.resolved_at.map(ms),
                &to_json(&alert.detail),
            ],
        )
        .await?;
    if added == 0 {
        return Ok(CreateResult::Taken);
    }
    notify(&conn, now, scope, RAISED, alert).await?;
    Ok(CreateResult::Created)
}

pub(in crate::postgres) async fn resolve(
    context: &mut WriteContext,
    now: Timestamp,
    alert: AlertId,
) -> Result<Option<Alert>, DbError> {
    let conn = context.conn.clone();
    let sql = "UPDATE alerts SET resolved_at = $2 WHERE id = $1 AND resolved_at IS NULL";
    if conn.execute(sql, &[&Id(alert.0), &ms(now)]).await? == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT {COLUMNS}, a.scope {FROM} WHERE a.id = $1");
    let row = conn.query_one(&sql, &[&Id(alert.0)]).await?;
    let alert = read(&row)?;
    notify(&conn, now, row.get(9), RESOLVED, &alert).await?;
    Ok(Some(alert))
}

async fn notify(
    conn: &PgConnection,
    now: Timestamp,
    scope: i64,
    name: &'static str,
    alert: &Alert,
) -> Result<(), DbError> {
    let mut notification = NotificationColumns::default();
    notification.push(scope, now, name, &alert.notification_detail());
    write_notifications(conn, &notification).await
}

/// The columns that [`read`] expects: five of the alert, its tenant, whether its scope is deleted, then those of the
/// scope.
const COLUMNS: &str = "a.id, a.name, a.raised_at, a.resolved_at, a.detail, o.id, \
    coalesce(e.standing = 3, t.deleted, false), e.id, t.id";
const FROM: &str = "FROM alerts a LEFT JOIN endpoints e ON e.no = a.scope \
    LEFT JOIN tenants t ON t.no = a.scope LEFT JOIN tenants o ON o.no = a.tenant_no";

fn read(row: &Row) -> Result<Alert, DbError> {
    Ok(Alert {
        id: AlertId(row.get::<_, Id>(0).0),
        name: parse(row.get(1))?,
        scope: scope(row, 7)?,
        tenant: row.get::<_, Option<&str>>(5).map(parse).transpose()?,
        is_gone: row.get(6),
        raised_at: at(row.get(2)),
        resolved_at: row.get::<_, Option<i64>>(3).map(at),
        detail: from_json(row.get(4))?,
    })
}

pub(in crate::postgres) async fn list(
    conn: &PgConnection,
    filter: &AlertFilter,
    page: PageRequest<AlertId>,
) -> Result<Page<Alert, AlertId>, DbError> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let mut params: Vec<Box<dyn ToSql + Sync + Send>> = vec![
        Box::new(Id(page.before.map_or(u128::MAX, |id| id.0))),
        Box::new(one_more(page.limit)),
    ];
    let mut wanted = String::from("a.id < $1");
    let mut want = |condition: &str, value: Box<dyn ToSql + Sync + Send>| {
        params.push(value);
        wanted.push_str(&format!(" AND {condition} ${}", params.len()));
    };
    if let Some(tenant) = &filter.tenant {
        let Some(no) = live_tenant(conn, tenant).await? else {
            return Ok(nothing);
        };
        want("a.tenant_no =", Box::new(no));
    }
    if let Some(scope) = &filter.scope {
        let Some(no) = number(conn, scope).await? else {
            return Ok(nothing);
        };
        want("a.scope =", Box::new(no));
    }
    if let Some(name) = filter.name {
        want("a.name =", Box::new(name.name()));
    }
    if let Some(since) = filter.since {
        want("a.raised_at >=", Box::new(ms(since)));
    }
    if let Some(until) = filter.until {
        want("a.raised_at <", Box::new(ms(until)));
    }
    wanted.push_str(match filter.open {
        None => "",
        Some(true) => " AND a.resolved_at IS NULL",
        Some(false) => " AND a.resolved_at IS NOT NULL",
    });
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE {wanted} ORDER BY a.id DESC LIMIT $2");
    let params: Vec<&(dyn ToSql + Sync)> = params
        .iter()
        .map(|value| &**value as &(dyn ToSql + Sync))
        .collect();
    let rows = conn.query(&sql, &params).await?;
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(cut(items, page.limit, |last| last.id))
}

pub(in crate::postgres) async fn open(
    conn: &PgConnection,
) -> Result<BTreeMap<AlertName, u64>, DbError> {
    let sql = "SELECT name, count(*) FROM alerts WHERE resolved_at IS NULL GROUP BY name";
    let rows = conn.query(sql, &[]).await?;
    let counted = rows.iter().map(|row| {
        let count: i64 = row.get(1);
        Ok((parse(row.get(0))?, count as u64))
    });
    counted.collect()
}

/// Returns the scope number of alerts. A deleted endpoint keeps its number.
async fn number(conn: &PgConnection, scope: &SubjectScope) -> Result<Option<i64>, DbError> {
    match scope {
        SubjectScope::Everything => Ok(Some(EVERYTHING)),
        SubjectScope::Tenant(tenant) => live_tenant(conn, tenant).await,
        SubjectScope::Endpoint(endpoint) => {
            let sql = "SELECT no FROM endpoints WHERE id = $1";
            let row = conn.query_opt(sql, &[&Id(endpoint.0)]).await?;
            Ok(row.map(|row| row.get(0)))
        }
    }
}

/// Deletes alerts that were resolved long enough ago. Returns their number.
pub(in crate::postgres) async fn delete_expired(
    conn: &PgConnection,
    now: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    let Some(over) = now.0.checked_sub(ALERT_RETENTION.as_millis()) else {
        return Ok(0);
    };
    let sql = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE resolved_at <= $1 \
               ORDER BY resolved_at, id LIMIT $2)";
    let removed = conn
        .execute(sql, &[&ms(Timestamp(over)), &sql_limit(limit)])
        .await?;
    Ok(removed as usize)
}
