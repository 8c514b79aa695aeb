//! [`OwnerEmails`] of a [`PostgresStore`].
//!
//! Rows are locked in this order: the directory, `email_usage`, `email_confirmations`, the number of the
//! last notification.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use serde_json::json;
use tokio_postgres::Row;

use super::PostgresStore;
use crate::codes::{at, ms};
use crate::owner_emails::{
    CONFIRMATION_INTERVAL, EMAIL_LIMIT_REACHED, EmailUsage, MAX_CONFIRMATION_PAUSE,
    StoredConfirmation, address_key, day_of,
};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::live_tenant;
use crate::postgres::schema::columns::{Id, parse};
use crate::postgres::write::notifications::{NotificationColumns, write_notifications};
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::{
    Answer, Change, ConfirmationRequest, ConfirmationResult, EmailAllowance, EmailResult, KeyHash,
    OwnerEmailLimits, OwnerEmails,
};

/// Maximum number of expired rows of each table that one claim deletes.
const MAX_EXPIRED: i64 = 100;

impl OwnerEmails for PostgresStore {
    fn is_owner_confirmed(&self, tenant: TenantId, recipient: String) -> Answer<bool> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM endpoints WHERE tenant_no = \
                       (SELECT no FROM tenants WHERE id = $1 AND NOT deleted) \
                       AND lower(owner_email COLLATE \"C\") = $2 AND owner_email IS NOT NULL \
                       AND owner_email_confirmed AND standing <> 3)";
            let address = address_key(&recipient);
            let row = conn.query_one(sql, &[&tenant.as_str(), &address]).await?;
            Ok(row.get(0))
        })
    }

    fn request_confirmation(
        &self,
        now: Timestamp,
        request: ConfirmationRequest,
        limits: OwnerEmailLimits,
    ) -> Answer<ConfirmationResult> {
        self.write_of(
            &request.tenant.clone(),
            async move |context: &mut WriteContext| {
                let conn = context.conn.clone();
                let Some(tenant_no) = live_tenant(&conn, &request.tenant).await? else {
                    return Ok(ConfirmationResult::NoSuchTenant);
                };
                // Locks the row, so that concurrent requests of the tenant are counted one after the other.
                let mut usage = locked_usage(&conn, tenant_no, now).await?;
                let before = usage;
                let stored = find(&conn, tenant_no, &address_key(&request.recipient)).await?;
                let (result, stored) =
                    StoredConfirmation::request(stored, request.clone(), now, &mut usage, limits);
                if let Some(stored) = stored {
                    keep(&conn, tenant_no, &stored).await?;
                }
                if usage != before {
                    let taken = result.allowance();
                    set_usage(&conn, tenant_no, now, usage, taken).await?;
                }
                Ok(result)
            },
        )
    }

    fn claim_confirmations(
        &self,
        now: Timestamp,
        until: Timestamp,
        tokens: Vec<KeyHash>,
    ) -> Answer<Vec<(KeyHash, ConfirmationRequest)>> {
        self.write(async move |context: &mut WriteContext| {
            let conn = context.conn.clone();
            delete_expired(&conn, now).await?;
            let mut claimed = Vec::new();
            for token in &tokens {
                let Some((tenant_no, mut stored)) = next_due(&conn, now).await? else {
                    break;
                };
                stored.claim(now, until, *token);
                keep(&conn, tenant_no, &stored).await?;
                claimed.push((*token, stored.request));
            }
            Ok(claimed)
        })
    }

    fn record_confirmation_result(&self, token: KeyHash, result: EmailResult) -> Answer<()> {
        self.write(async move |context: &mut WriteContext| {
            if let Some((tenant_no, mut stored)) = with_token(&context.conn, token, true).await? {
                stored.settle(&result);
                keep(&context.conn, tenant_no, &stored).await?;
            }
            Ok(())
        })
    }

    fn confirmation(&self, now: Timestamp, token: KeyHash) -> Answer<Option<ConfirmationRequest>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            let found = with_token(conn, token, false).await?;
            let valid = found.filter(|(_, stored)| stored.expires_at > now);
            Ok(valid.map(|(_, stored)| stored.request))
        })
    }

    fn confirm_owner(&self, now: Timestamp, token: KeyHash) -> Answer<Option<u64>> {
        self.write(async move |context: &mut WriteContext| {
            context.lock_directory().await?;
            let conn = context.conn.clone();
            let found = with_token(&conn, token, true).await?;
            let found = found.filter(|(_, stored)| stored.expires_at > now);
            let Some((tenant_no, mut stored)) = found else {
                return Ok(None);
            };
            stored.token = None;
            stored.due_at = None;
            keep(&conn, tenant_no, &stored).await?;
            let sql = "UPDATE endpoints SET owner_email_confirmed = true, revision = revision + 1 \
                       WHERE tenant_no = $1 AND lower(owner_email COLLATE \"C\") = $2 \
                       AND owner_email IS NOT NULL AND standing <> 3 RETURNING id";
            let address = address_key(&stored.request.recipient);
            let rows = conn.query(sql, &[&tenant_no, &address]).await?;
            for row in &rows {
                let id = EndpointId(row.get::<_, Id>(0).0);
                context.change(Change::Endpoint(id));
            }
            Ok(Some(rows.len() as u64))
        })
    }

    fn count_owner_email(
        &self,
        now: Timestamp,
        tenant: TenantId,
        limit: u32,
    ) -> Answer<EmailAllowance> {
        self.write(async move |context: &mut WriteContext| {
            let conn = context.conn.clone();
            let Some(tenant_no) = live_tenant(&conn, &tenant).await? else {
                return Ok(EmailAllowance::Within);
            };
            let mut usage = locked_usage(&conn, tenant_no, now).await?;
            let taken = usage.take_email(limit);
            set_usage(&conn, tenant_no, now, usage, taken).await?;
            Ok(taken)
        })
    }
}

/// Returns the usage of today, and locks its row until the commit.
async fn locked_usage(
    conn: &PgConnection,
    tenant_no: i64,
    now: Timestamp,
) -> Result<EmailUsage, DbError> {
    let day = day_of(now) as i64;
    let sql = "INSERT INTO email_usage AS u (tenant_no, day, emails, recipients, dropped) \
               VALUES ($1, $2, 0, 0, 0) ON CONFLICT (tenant_no, day) DO UPDATE SET emails = u.emails \
               RETURNING emails, recipients, dropped";
    let row = conn.query_one(sql, &[&tenant_no, &day]).await?;
    let small = |column| u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX);
    Ok(EmailUsage {
        emails: small(0),
        recipients: small(1),
        dropped: small(2),
    })
}

/// Stores the usage, and creates a notification if the limit has just been reached.
async fn set_usage(
    conn: &PgConnection,
    tenant_no: i64,
    now: Timestamp,
    usage: EmailUsage,
    taken: EmailAllowance,
) -> Result<(), DbError> {
    let sql = "UPDATE email_usage SET emails = $3, recipients = $4, dropped = $5 \
               WHERE tenant_no = $1 AND day = $2";
    let day = day_of(now) as i64;
    let [emails, recipients, dropped] =
        [usage.emails, usage.recipients, usage.dropped].map(i64::from);
    conn.execute(sql, &[&tenant_no, &day, &emails, &recipients, &dropped])
        .await?;
    if taken == (EmailAllowance::LimitReached { is_first: true }) {
        let detail = json!({"emails": usage.emails, "new_recipients": usage.recipients});
        let mut columns = NotificationColumns::default();
        columns.push(tenant_no, now, EMAIL_LIMIT_REACHED, &detail);
        write_notifications(conn, &columns).await?;
    }
    Ok(())
}

/// Columns of a confirmation `c` with its tenant, if that is not deleted.
const SELECT: &str = "SELECT c.tenant_no, t.id, c.recipient, c.endpoint, c.due_at, c.tries, c.sent_at, c.token, \
    c.expires_at FROM email_confirmations c JOIN tenants t ON t.no = c.tenant_no AND NOT t.deleted";

fn read(row: &Row) -> Result<(i64, StoredConfirmation), DbError> {
    let token: Option<&[u8]> = row.get(7);
    let token = token.map(<[u8; 32]>::try_from).transpose();
    let token = token.map_err(|_| DbError::Corrupt("a token of another length".to_owned()))?;
    let stored = StoredConfirmation {
        request: ConfirmationRequest {
            tenant: parse(row.get(1))?,
            recipient: row.get(2),
            endpoint: EndpointId(row.get::<_, Id>(3).0),
        },
        due_at: row.get::<_, Option<i64>>(4).map(at),
        tries: row.get::<_, i32>(5) as u32,
        sent_at: row.get::<_, Option<i64>>(6).map(at),
        token: token.map(KeyHash),
        expires_at: at(row.get(8)),
    };
    Ok((row.get(0), stored))
}

async fn find(
    conn: &PgConnection,
    tenant_no: i64,
    address: &str,
) -> Result<Option<StoredConfirmation>, DbError> {
    let sql = format!("{SELECT} WHERE c.tenant_no = $1 AND c.address = $2 FOR UPDATE OF c");
    let row = conn.query_opt(&sql, &[&tenant_no, &address]).await?;
    let found = row.as_ref().map(read).transpose()?;
    Ok(found.map(|(_, stored)| stored))
}

async fn with_token(
    conn: &PgConnection,
    token: KeyHash,
    locks: bool,
) -> Result<Option<(i64, StoredConfirmation)>, DbError> {
    let lock = if locks { " FOR UPDATE OF c" } else { "" };
    let sql = format!("{SELECT} WHERE c.token = $1{lock}");
    let row = conn.query_opt(&sql, &[&token.0.as_slice()]).await?;
    row.as_ref().map(read).transpose()
}

/// Returns the confirmation that is longest due and whose address got no email of another tenant lately, and locks it.
async fn next_due(
    conn: &PgConnection,
    now: Timestamp,
) -> Result<Option<(i64, StoredConfirmation)>, DbError> {
    let since = now.0.saturating_sub(CONFIRMATION_INTERVAL.as_millis()) as i64;
    let latest = ms(now.after(MAX_CONFIRMATION_PAUSE));
    let sql = format!(
        "{SELECT} WHERE c.due_at IS NOT NULL AND (c.due_at <= $1 OR c.due_at > $2) \
         AND c.expires_at > $1 AND NOT EXISTS (SELECT 1 FROM email_confirmations o \
         WHERE o.address = c.address AND o.tenant_no <> c.tenant_no AND o.sent_at > $3) \
         ORDER BY c.due_at, c.tenant_no, c.address LIMIT 1 FOR UPDATE OF c SKIP LOCKED"
    );
    let row = conn.query_opt(&sql, &[&ms(now), &latest, &since]).await?;
    row.as_ref().map(read).transpose()
}

async fn keep(
    conn: &PgConnection,
    tenant_no: i64,
    stored: &StoredConfirmation,
) -> Result<(), DbError> {
    let request = &stored.request;
    conn.execute(
        "INSERT INTO email_confirmations (tenant_no, address, recipient, endpoint, due_at, tries, sent_at, \
         token, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (tenant_no, address) DO UPDATE SET recipient = excluded.recipient, \
         endpoint = excluded.endpoint, due_at = excluded.due_at, tries = excluded.tries, \
         sent_at = excluded.sent_at, token = excluded.token, expires_at = excluded.expires_at",
        &[
            &tenant_no,
            &address_key(&request.recipient),
            &request.recipient,
            &Id(request.endpoint.0),
            &stored.due_at.map(ms),
            &(stored.tries as i32),
            &stored.sent_at.map(ms),
            &stored.token.as_ref().map(|token| token.0.as_slice()),
            &ms(stored.expires_at),
        ],
    )
    .await?;
    Ok(())
}

/// Deletes some expired confirmations, and counts of days before yesterday.
async fn delete_expired(conn: &PgConnection, now: Timestamp) -> Result<(), DbError> {
    let sql = "DELETE FROM email_confirmations WHERE (tenant_no, address) IN \
               (SELECT tenant_no, address FROM email_confirmations WHERE expires_at <= $1 LIMIT $2 \
               FOR UPDATE SKIP LOCKED)";
    conn.execute(sql, &[&ms(now), &MAX_EXPIRED]).await?;
    let first_kept = day_of(now).saturating_sub(1) as i64;
    let sql = "DELETE FROM email_usage WHERE (tenant_no, day) IN \
               (SELECT tenant_no, day FROM email_usage WHERE day < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
    conn.execute(sql, &[&first_kept, &MAX_EXPIRED]).await?;
    Ok(())
}
