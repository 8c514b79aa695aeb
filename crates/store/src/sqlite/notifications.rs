//! Notifications and pending emails.
//!
//! A notification is inserted in the same transaction as the change that it reports, so neither exists without the
//! other. Failed deliveries of a transaction become one notification for each endpoint.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::audit;
use super::delivery_rows::{endpoint_id, from_json, parse, to_json};
use super::group_commit::{WriteContext, number, set_number};
use super::row_keys::id_bytes;
use super::schema::meta;
use super::store::SqliteStore;
use crate::codes::{at, ms, sql_limit};
use crate::failures::{DELIVERY_FAILED, FailureCause, FailureCount, Failures};
use crate::notifications::{EmailAfterSend, StoredEmail, by_recipient, too_far_ahead};
use crate::read_duration::ReadDuration;
use crate::{
    Answer, AuditEntry, CreateResult, EmailLine, EmailResult, MAX_PENDING_NOTIFICATIONS,
    MaxEmailDelay, Notification, Notifications, PendingEmail, SubjectScope,
};

impl Notifications for SqliteStore {
    fn notifications(&self, after: u64, limit: usize) -> Answer<Vec<Notification>> {
        self.read(ReadDuration::Long, move |conn| list(conn, after, limit))
    }

    fn audit_notification(&self, notification: u64, act: AuditEntry) -> Answer<CreateResult> {
        let act = act.truncated();
        self.write(move |context| {
            let owner = context
                .conn
                .prepare_cached(
                    "SELECT coalesce(e.tenant_no, t.no) FROM notices n LEFT JOIN endpoints e ON e.no = n.scope \
                     LEFT JOIN tenants t ON t.no = n.scope WHERE n.number = ?1",
                )?
                .query_row([notification as i64], |row| row.get(0))
                .optional()?;
            match owner {
                Some(owner) => audit::insert(context.conn, &act, owner),
                None => Ok(CreateResult::Taken),
            }
        })
    }

    fn collect_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize> {
        self.write(move |context| gather(context, now, before, limit))
    }

    fn last_processed_notification(&self) -> Answer<u64> {
        self.read(ReadDuration::Quick, |conn| {
            Ok(number(conn, meta::LAST_PROCESSED_NOTIFICATION)? as u64)
        })
    }

    fn complete_notifications(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, EmailLine)>,
        due_at: Timestamp,
    ) -> Answer<bool> {
        let lines = by_recipient(lines);
        self.write(move |context| {
            if number(context.conn, meta::LAST_PROCESSED_NOTIFICATION)? as u64 != from {
                return Ok(false);
            }
            set_number(
                context.conn,
                meta::LAST_PROCESSED_NOTIFICATION,
                up_to as i64,
            )?;
            context
                .conn
                .prepare_cached("DELETE FROM notices WHERE number <= ?1")?
                .execute([up_to as i64])?;
            for (recipient, lines) in &lines {
                let found = email(context.conn, recipient)?;
                let mut kept = found.unwrap_or_else(|| StoredEmail::new(recipient.clone(), now));
                for line in lines {
                    kept.add(now, due_at, line.clone());
                }
                keep(context.conn, &kept)?;
            }
            Ok(true)
        })
    }

    fn claim_emails(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Answer<Vec<PendingEmail>> {
        self.write(move |context| claim(context.conn, now, until, longest, limit))
    }

    fn record_email_result(
        &self,
        recipient: String,
        revision: u64,
        posted: EmailResult,
    ) -> Answer<bool> {
        self.write(move |context| {
            let Some(kept) = email(context.conn, &recipient)? else {
                return Ok(false);
            };
            match kept.settle(revision, &posted) {
                EmailAfterSend::Kept(kept) => keep(context.conn, &kept)?,
                EmailAfterSend::Delete => remove(context.conn, &recipient)?,
                EmailAfterSend::Unchanged => return Ok(false),
            }
            Ok(true)
        })
    }
}

/// Adds a notification about the object with this scope number. Beyond the limit the oldest is deleted.
pub(super) fn add_notification(
    conn: &Connection,
    now: Timestamp,
    scope: i64,
    name: &str,
    detail: &Value,
) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO notices (scope, at, name, detail) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![scope, ms(now), name, to_json(detail)])?;
    conn.prepare_cached("DELETE FROM notices WHERE number <= ?1")?
        .execute([conn.last_insert_rowid() - MAX_PENDING_NOTIFICATIONS as i64])?;
    Ok(())
}

/// Writes the failures of the transaction, and clears them.
pub(super) fn write_failures(context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
    for (endpoint_no, cause, sum) in std::mem::take(&mut context.effects.failures).iter() {
        context
            .conn
            .prepare_cached(
                "INSERT INTO failures AS f (endpoint_no, reason, kind, count, first_at, last_at, example) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                 ON CONFLICT (endpoint_no, reason, kind) DO UPDATE SET count = f.count + excluded.count, \
                 first_at = min(f.first_at, excluded.first_at), \
                 last_at = max(f.last_at, excluded.last_at), example = min(f.example, excluded.example)",
            )?
            .execute(params![
                endpoint_no,
                cause.reason,
                cause.kind,
                sum.count as i64,
                ms(sum.first_at),
                ms(sum.last_at),
                id_bytes(sum.example.0),
            ])?;
    }
    Ok(())
}

/// Creates notifications of failed deliveries.
fn gather(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    write_failures(context)?;
    let mut failures: Failures<(EndpointId, i64)> = Failures::default();
    {
        let mut statement = context.conn.prepare_cached(
            "SELECT e.id, f.endpoint_no, f.reason, f.kind, f.count, f.first_at, f.last_at, f.example \
             FROM failures f JOIN endpoints e ON e.no = f.endpoint_no WHERE f.endpoint_no IN \
             (SELECT o.endpoint_no FROM failures o JOIN endpoints p ON p.no = o.endpoint_no \
             GROUP BY o.endpoint_no HAVING min(o.first_at) < ?1 OR min(o.first_at) > ?3 \
             ORDER BY min(o.first_at), p.id LIMIT ?2)",
        )?;
        let ahead = too_far_ahead(now, before);
        let mut rows = statement.query((ms(before), sql_limit(limit), ms(ahead)))?;
        while let Some(row) = rows.next()? {
            let cause = FailureCause {
                reason: row.get(2)?,
                kind: row.get(3)?,
            };
            let sum = FailureCount {
                count: row.get::<_, i64>(4)? as u64,
                first_at: at(row.get(5)?),
                last_at: at(row.get(6)?),
                example: DeliveryId(u128::from_be_bytes(row.get(7)?)),
            };
            failures.add((endpoint_id(row, 0)?, row.get(1)?), cause, sum);
        }
    }
    let notifications = failures.notifications();
    for ((_, endpoint_no), last_at, detail) in &notifications {
        add_notification(
            context.conn,
            *last_at,
            *endpoint_no,
            DELIVERY_FAILED,
            detail,
        )?;
        context
            .conn
            .prepare_cached("DELETE FROM failures WHERE endpoint_no = ?1")?
            .execute([endpoint_no])?;
    }
    Ok(notifications.len())
}

const EMAIL: &str =
    "SELECT recipient, revision, first_at, due_at, tries, omitted, lines FROM letters";

fn read_email(row: &Row<'_>) -> rusqlite::Result<StoredEmail> {
    Ok(StoredEmail {
        email: PendingEmail {
            recipient: row.get(0)?,
            revision: row.get::<_, i64>(1)? as u64,
            first_at: at(row.get(2)?),
            tries: row.get(4)?,
            lines: Vec::new(),
            omitted: row.get::<_, i64>(5)? as u64,
        },
        lines: from_json(row.get_ref(6)?.as_str()?)?,
        due_at: at(row.get(3)?),
    })
}

fn email(conn: &Connection, recipient: &str) -> rusqlite::Result<Option<StoredEmail>> {
    conn.prepare_cached(&format!("{EMAIL} WHERE recipient = ?1"))?
        .query_row([recipient], read_email)
        .optional()
}

fn keep(conn: &Connection, kept: &StoredEmail) -> rusqlite::Result<()> {
    let email = &kept.email;
    conn.prepare_cached(
        "INSERT INTO letters (recipient, revision, first_at, due_at, tries, omitted, lines) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (recipient) DO UPDATE SET \
         revision = excluded.revision, first_at = excluded.first_at, due_at = excluded.due_at, \
         tries = excluded.tries, omitted = excluded.omitted, lines = excluded.lines",
    )?
    .execute(params![
        email.recipient,
        email.revision as i64,
        ms(email.first_at),
        ms(kept.due_at),
        email.tries,
        email.omitted as i64,
        to_json(&kept.lines),
    ])?;
    Ok(())
}

fn remove(conn: &Connection, recipient: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM letters WHERE recipient = ?1")?
        .execute([recipient])?;
    Ok(())
}

/// Claims due emails, and deletes those without lines whose quiet time is over.
fn claim(
    conn: &Connection,
    now: Timestamp,
    until: Timestamp,
    longest: MaxEmailDelay,
    limit: usize,
) -> rusqlite::Result<Vec<PendingEmail>> {
    const DUE: &str = "(due_at <= ?1 OR due_at > CASE tries WHEN 0 THEN ?3 ELSE ?4 END)";
    let (untried, tried) = longest.latest(now);
    let params = (ms(now), sql_limit(limit), ms(untried), ms(tried));
    let over = format!(
        "DELETE FROM letters WHERE rowid IN \
         (SELECT rowid FROM letters WHERE {DUE} AND lines = '[]' AND omitted = 0 LIMIT ?2)"
    );
    conn.prepare_cached(&over)?.execute(params)?;
    let due = format!(
        "{EMAIL} WHERE {DUE} AND (lines <> '[]' OR omitted > 0) ORDER BY due_at, recipient LIMIT ?2"
    );
    let emails = conn
        .prepare_cached(&due)?
        .query_map(params, read_email)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for kept in &emails {
        conn.prepare_cached("UPDATE letters SET due_at = ?2 WHERE recipient = ?1")?
            .execute(params![kept.email.recipient, ms(until)])?;
    }
    Ok(emails.into_iter().map(StoredEmail::into_pending).collect())
}

/// The columns that [`scope`] reads. The query joins the scope number with endpoints `e` and tenants `t`.
pub(super) const SCOPE_COLUMNS: &str = "e.id, t.id";

/// Reads a scope from two columns: the endpoint's id, then the tenant's.
pub(super) fn scope(row: &Row<'_>, first: usize) -> rusqlite::Result<SubjectScope> {
    if row.get_ref(first)?.as_blob_or_null()?.is_some() {
        return Ok(SubjectScope::Endpoint(endpoint_id(row, first)?));
    }
    match row.get_ref(first + 1)?.as_str_or_null()? {
        Some(tenant) => Ok(SubjectScope::Tenant(parse(tenant)?)),
        None => Ok(SubjectScope::Everything),
    }
}

/// Returns notifications above a number.
fn list(conn: &Connection, after: u64, limit: usize) -> rusqlite::Result<Vec<Notification>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    conn.prepare_cached(&format!(
        "SELECT n.number, n.at, n.name, n.detail, {SCOPE_COLUMNS} FROM notices n \
         LEFT JOIN endpoints e ON e.no = n.scope LEFT JOIN tenants t ON t.no = n.scope \
         WHERE n.number > ?1 ORDER BY n.number LIMIT ?2"
    ))?
    .query_map((after, sql_limit(limit)), |row| {
        Ok(Notification {
            number: row.get::<_, i64>(0)? as u64,
            scope: scope(row, 4)?,
            at: at(row.get(1)?),
            name: row.get(2)?,
            detail: from_json(row.get_ref(3)?.as_str()?)?,
        })
    })?
    .collect()
}
