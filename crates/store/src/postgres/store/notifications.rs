//! [`Notifications`] of a [`PostgresStore`]: notifications, and emails to send.
//!
//! A claim on an email ends by itself, so a node that dies keeps none.

use posthaste_core::time::Timestamp;

use super::PostgresStore;
use crate::notifications::{EmailAfterSend, StoredEmail, by_recipient};
use crate::postgres::connection::PgConnection;
use crate::postgres::write::write_context::WriteContext;
use crate::postgres::write::{audit, notifications};
use crate::read_duration::ReadDuration;
use crate::{
    Answer, AuditEntry, CreateResult, EmailLine, EmailResult, MaxEmailDelay, Notification,
    Notifications, PendingEmail,
};

impl Notifications for PostgresStore {
    fn notifications(&self, after: u64, limit: usize) -> Answer<Vec<Notification>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            notifications::list(conn, after, limit).await
        })
    }

    fn audit_notification(&self, notification: u64, act: AuditEntry) -> Answer<CreateResult> {
        let act = act.truncated();
        self.write(async move |context: &mut WriteContext| {
            let sql = "SELECT coalesce(e.tenant_no, t.no) FROM notices n \
                       LEFT JOIN endpoints e ON e.no = n.endpoint_no \
                       LEFT JOIN tenants t ON t.no = n.endpoint_no WHERE n.number = $1";
            let found = context
                .conn
                .query_opt(sql, &[&(notification as i64)])
                .await?;
            match found {
                Some(row) => audit::insert(&context.conn, &act, row.get(0)).await,
                None => Ok(CreateResult::Taken),
            }
        })
    }

    fn collect_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize> {
        self.write(async move |context: &mut WriteContext| {
            notifications::gather(&context.conn, now, before, limit).await
        })
    }

    fn last_processed_notification(&self) -> Answer<u64> {
        self.read(ReadDuration::Quick, async |conn: &PgConnection| {
            let sql = "SELECT value FROM meta WHERE name = 'told'";
            Ok(conn.query_one(sql, &[]).await?.get::<_, i64>(0) as u64)
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
        let (from, up_to) = (from as i64, up_to as i64);
        let lines = by_recipient(lines);
        self.write(async move |context: &mut WriteContext| {
            let sql = "UPDATE meta SET value = $2 WHERE name = 'told' AND value = $1";
            if context.conn.execute(sql, &[&from, &up_to]).await? == 0 {
                return Ok(false);
            }
            let sql = "DELETE FROM notices WHERE number <= $1";
            context.conn.execute(sql, &[&up_to]).await?;
            for (recipient, lines) in &lines {
                let found = notifications::email(&context.conn, recipient).await?;
                let mut kept = found.unwrap_or_else(|| StoredEmail::new(recipient.clone(), now));
                for line in lines {
                    kept.add(now, due_at, line.clone());
                }
                notifications::keep(&context.conn, &kept).await?;
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
        self.write(async move |context: &mut WriteContext| {
            notifications::claim(&context.conn, now, until, longest, limit).await
        })
    }

    fn record_email_result(
        &self,
        recipient: String,
        revision: u64,
        posted: EmailResult,
    ) -> Answer<bool> {
        self.write(async move |context: &mut WriteContext| {
            let Some(kept) = notifications::email(&context.conn, &recipient).await? else {
                return Ok(false);
            };
            match kept.settle(revision, &posted) {
                EmailAfterSend::Kept(kept) => notifications::keep(&context.conn, &kept).await?,
                EmailAfterSend::Delete => {
                    let sql = "DELETE FROM letters WHERE recipient = $1";
                    context.conn.execute(sql, &[&recipient]).await?;
                }
                EmailAfterSend::Unchanged => return Ok(false),
            }
            Ok(true)
        })
    }
}
