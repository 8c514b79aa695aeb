//! Notifications and emails that are not sent yet, and the failures that become notifications.
//!
//! Rows are locked in this order: `failures`, sorted; the number of the last notification; `emails`, sorted. A
//! transaction that writes notifications keeps that number locked until its commit, so the numbers of notifications
//! follow the commit order.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Delivery;
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::codes::{at, ms, sql_limit};
use crate::failures::{DELIVERY_FAILED, FailureCause, FailureCount, Failures};
use crate::notifications::{StoredEmail, too_far_ahead};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, from_json, parse, to_json};
use crate::{MAX_PENDING_NOTIFICATIONS, MaxEmailDelay, Notification, PendingEmail, SubjectScope};

/// Notifications to insert, as columns.
#[derive(Default)]
pub(in crate::postgres) struct NotificationColumns {
    scopes: Vec<i64>,
    at: Vec<i64>,
    names: Vec<&'static str>,
    details: Vec<String>,
}

impl NotificationColumns {
    /// Adds a notification about the scope with this number.
    pub(in crate::postgres) fn push(
        &mut self,
        scope: i64,
        at: Timestamp,
        name: &'static str,
        detail: &Value,
    ) {
        self.scopes.push(scope);
        self.at.push(ms(at));
        self.names.push(name);
        self.details.push(to_json(detail));
    }

    pub(in crate::postgres) fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }
}

/// Inserts notifications, numbered in commit order. Above the limit the oldest ones are deleted.
pub(super) const NOTIFICATION: &str = "WITH last AS (UPDATE meta SET value = value + cardinality($1::bigint[]) \
    WHERE name = 'last_notice' RETURNING value), \
    dropped AS (DELETE FROM notices WHERE number <= (SELECT value FROM last) - $5) \
    INSERT INTO notices (number, endpoint_no, at, name, detail) \
    SELECT value - cardinality($1::bigint[]) + place, scope, at, name, detail FROM last, \
    unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) \
    WITH ORDINALITY AS n (scope, at, name, detail, place)";

/// Inserts notifications.
pub(in crate::postgres) async fn write_notifications(
    conn: &PgConnection,
    it: &NotificationColumns,
) -> Result<(), DbError> {
    let most = MAX_PENDING_NOTIFICATIONS as i64;
    let params: [&(dyn ToSql + Sync); 5] = [&it.scopes, &it.at, &it.names, &it.details, &most];
    conn.execute(NOTIFICATION, &params).await?;
    Ok(())
}

/// The failed deliveries of a transaction, by endpoint and cause.
#[derive(Default)]
pub(in crate::postgres) struct Failed {
    failures: Failures<i64>,
}

impl Failed {
    /// Adds a delivery, if it has failed.
    pub(in crate::postgres) fn note(
        &mut self,
        endpoint_no: i64,
        delivery: &Delivery,
        kind: Option<FailureKind>,
    ) {
        self.failures.note(endpoint_no, delivery, kind);
    }

    pub(in crate::postgres) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Adds failures, sorted by endpoint and cause.
pub(super) const FAIL: &str = "INSERT INTO failures AS f (endpoint_no, reason, kind, count, first_at, last_at, example) \
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::bigint[], $5::bigint[], \
    $6::bigint[], $7::uuid[]) ON CONFLICT (endpoint_no, reason, kind) DO UPDATE SET \
    count = f.count + excluded.count, first_at = LEAST(f.first_at, excluded.first_at), \
    last_at = GREATEST(f.last_at, excluded.last_at), example = LEAST(f.example, excluded.example)";

/// Writes failures.
pub(in crate::postgres) async fn fail(conn: &PgConnection, failed: &Failed) -> Result<(), DbError> {
    let rows: Vec<(i64, FailureCause, FailureCount)> = failed.failures.iter().collect();
    let endpoints: Vec<i64> = rows.iter().map(|(no, ..)| *no).collect();
    let reasons: Vec<i16> = rows.iter().map(|(_, it, _)| it.reason as i16).collect();
    let kinds: Vec<i16> = rows.iter().map(|(_, it, _)| it.kind as i16).collect();
    let counts: Vec<i64> = rows.iter().map(|(.., it)| it.count as i64).collect();
    let first: Vec<i64> = rows.iter().map(|(.., it)| ms(it.first_at)).collect();
    let last: Vec<i64> = rows.iter().map(|(.., it)| ms(it.last_at)).collect();
    let examples: Vec<Id> = rows.iter().map(|(.., it)| Id(it.example.0)).collect();
    let params: [&(dyn ToSql + Sync); 7] = [
        &endpoints, &reasons, &kinds, &counts, &first, &last, &examples,
    ];
    conn.execute(FAIL, &params).await?;
    Ok(())
}

/// Turns failures into notifications. Failures that are added in the meantime stay for the next call.
pub(in crate::postgres) async fn gather(
    conn: &PgConnection,
    now: Timestamp,
    before: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    let ahead = too_far_ahead(now, before);
    let rows = conn
        .query(
            "SELECT e.id, f.endpoint_no, f.reason, f.kind, f.count, f.first_at, f.last_at, f.example \
             FROM failures f JOIN endpoints e ON e.no = f.endpoint_no WHERE f.endpoint_no IN \
             (SELECT o.endpoint_no FROM failures o JOIN endpoints p ON p.no = o.endpoint_no \
             GROUP BY o.endpoint_no, p.id HAVING min(o.first_at) < $1 OR min(o.first_at) > $3 \
             ORDER BY min(o.first_at), p.id LIMIT $2) \
             ORDER BY f.endpoint_no, f.reason, f.kind FOR UPDATE OF f",
            &[&ms(before), &sql_limit(limit), &ms(ahead)],
        )
        .await?;
    let mut failures: Failures<(EndpointId, i64)> = Failures::default();
    let (mut endpoints, mut reasons, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let (endpoint_no, reason, kind): (i64, i16, i16) = (row.get(1), row.get(2), row.get(3));
        let cause = FailureCause {
            reason: reason.into(),
            kind: kind.into(),
        };
        let sum = FailureCount {
            count: row.get::<_, i64>(4) as u64,
            first_at: at(row.get(5)),
            last_at: at(row.get(6)),
            example: DeliveryId(row.get::<_, Id>(7).0),
        };
        let id = EndpointId(row.get::<_, Id>(0).0);
        failures.add((id, endpoint_no), cause, sum);
        endpoints.push(endpoint_no);
        reasons.push(reason);
        kinds.push(kind);
    }
    if failures.is_empty() {
        return Ok(0);
    }
    conn.execute(
        "DELETE FROM failures f USING unnest($1::bigint[], $2::smallint[], $3::smallint[]) \
         AS g (endpoint_no, reason, kind) \
         WHERE (f.endpoint_no, f.reason, f.kind) = (g.endpoint_no, g.reason, g.kind)",
        &[&endpoints, &reasons, &kinds],
    )
    .await?;
    let mut columns = NotificationColumns::default();
    for ((_, endpoint_no), last_at, detail) in failures.notifications() {
        columns.push(endpoint_no, last_at, DELIVERY_FAILED, &detail);
    }
    write_notifications(conn, &columns).await?;
    Ok(columns.scopes.len())
}

const SELECT_EMAIL: &str =
    "SELECT recipient, revision, first_at, due_at, tries, omitted, lines FROM letters";

fn read_email(row: &Row) -> Result<StoredEmail, DbError> {
    Ok(StoredEmail {
        email: PendingEmail {
            recipient: row.get(0),
            revision: row.get::<_, i64>(1) as u64,
            first_at: at(row.get(2)),
            tries: row.get::<_, i32>(4) as u32,
            lines: Vec::new(),
            omitted: row.get::<_, i64>(5) as u64,
        },
        lines: from_json(row.get(6))?,
        due_at: at(row.get(3)),
    })
}

/// Returns the pending email of a recipient, and locks it until the commit.
pub(in crate::postgres) async fn email(
    conn: &PgConnection,
    recipient: &str,
) -> Result<Option<StoredEmail>, DbError> {
    let sql = format!("{SELECT_EMAIL} WHERE recipient = $1 FOR UPDATE");
    let row = conn.query_opt(&sql, &[&recipient]).await?;
    row.as_ref().map(read_email).transpose()
}

pub(in crate::postgres) async fn keep(
    conn: &PgConnection,
    kept: &StoredEmail,
) -> Result<(), DbError> {
    let email = &kept.email;
    conn.execute(
        "INSERT INTO letters (recipient, revision, first_at, due_at, tries, omitted, lines) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (recipient) DO UPDATE SET \
         revision = excluded.revision, first_at = excluded.first_at, due_at = excluded.due_at, \
         tries = excluded.tries, omitted = excluded.omitted, lines = excluded.lines",
        &[
            &email.recipient,
            &(email.revision as i64),
            &ms(email.first_at),
            &ms(kept.due_at),
            &(email.tries as i32),
            &(email.omitted as i64),
            &to_json(&kept.lines),
        ],
    )
    .await?;
    Ok(())
}

/// Claims emails that are due and that no other node is claiming. Also deletes the rows of recipients that have no
/// pending email and whose pause between emails is over.
pub(in crate::postgres) async fn claim(
    conn: &PgConnection,
    now: Timestamp,
    until: Timestamp,
    longest: MaxEmailDelay,
    limit: usize,
) -> Result<Vec<PendingEmail>, DbError> {
    const DUE: &str =
        "(due_at <= $1 OR due_at > CASE tries WHEN 0 THEN $3::bigint ELSE $4::bigint END)";
    let (untried, tried) = longest.latest(now);
    let (now, most, untried, tried) = (ms(now), sql_limit(limit), ms(untried), ms(tried));
    let params: [&(dyn ToSql + Sync); 4] = [&now, &most, &untried, &tried];
    let over = format!(
        "DELETE FROM letters WHERE recipient IN (SELECT recipient FROM letters \
         WHERE {DUE} AND lines = '[]' AND omitted = 0 LIMIT $2 FOR UPDATE SKIP LOCKED)"
    );
    conn.execute(&over, &params).await?;
    let due = format!(
        "{SELECT_EMAIL} WHERE {DUE} AND (lines <> '[]' OR omitted > 0) ORDER BY due_at, recipient LIMIT $2 \
         FOR UPDATE SKIP LOCKED"
    );
    let rows = conn.query(&due, &params).await?;
    let emails: Vec<PendingEmail> = rows
        .iter()
        .map(|row| Ok(read_email(row)?.into_pending()))
        .collect::<Result<_, DbError>>()?;
    let recipients: Vec<&str> = emails.iter().map(|it| it.recipient.as_str()).collect();
    if !recipients.is_empty() {
        let sql = "UPDATE letters SET due_at = $2 WHERE recipient = ANY ($1)";
        conn.execute(sql, &[&recipients, &ms(until)]).await?;
    }
    Ok(emails)
}

/// Reads a scope from two columns, starting at this one: the endpoint's id, then the tenant's.
pub(in crate::postgres) fn scope(row: &Row, first: usize) -> Result<SubjectScope, DbError> {
    if let Some(endpoint) = row.get::<_, Option<Id>>(first) {
        return Ok(SubjectScope::Endpoint(EndpointId(endpoint.0)));
    }
    match row.get::<_, Option<&str>>(first + 1) {
        Some(tenant) => Ok(SubjectScope::Tenant(parse(tenant)?)),
        None => Ok(SubjectScope::Everything),
    }
}

/// Returns the notifications after a number.
pub(in crate::postgres) async fn list(
    conn: &PgConnection,
    after: u64,
    limit: usize,
) -> Result<Vec<Notification>, DbError> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = conn
        .query(
            "SELECT n.number, n.at, n.name, n.detail, e.id, t.id FROM notices n \
             LEFT JOIN endpoints e ON e.no = n.endpoint_no LEFT JOIN tenants t ON t.no = n.endpoint_no \
             WHERE n.number > $1 ORDER BY n.number LIMIT $2",
            &[&after, &sql_limit(limit)],
        )
        .await?;
    let entry = |row: &Row| {
        Ok(Notification {
            number: row.get::<_, i64>(0) as u64,
            scope: scope(row, 4)?,
            at: at(row.get(1)),
            name: row.get(2),
            detail: from_json(row.get(3))?,
        })
    };
    rows.iter().map(entry).collect()
}
