//! Confirmations of owner addresses, and the number of emails per tenant and day.
//!
//! The decisions are in `owner_emails` of the crate; this module reads and writes the rows. Expired rows are deleted a
//! few at a time, with each claim.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::delivery_rows::{endpoint_id, parse};
use super::directory::live_tenant;
use super::notifications::add_notification;
use super::row_keys::id_bytes;
use super::store::SqliteStore;
use crate::codes::{at, ms};
use crate::owner_emails::{
    CONFIRMATION_INTERVAL, EMAIL_LIMIT_REACHED, EmailUsage, MAX_CONFIRMATION_PAUSE,
    StoredConfirmation, address_key, day_of,
};
use crate::read_duration::ReadDuration;
use crate::{
    Answer, ConfirmationRequest, ConfirmationResult, EmailAllowance, EmailResult, KeyHash,
    OwnerEmailLimits, OwnerEmails,
};

/// Maximum number of expired rows of each table that one claim deletes.
const MAX_EXPIRED: i64 = 100;

impl OwnerEmails for SqliteStore {
    fn is_owner_confirmed(&self, tenant: TenantId, recipient: String) -> Answer<bool> {
        self.read(ReadDuration::Quick, move |conn| {
            conn.prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM endpoints WHERE tenant_no = \
                 (SELECT no FROM tenants WHERE id = ?1 AND deleted = 0) AND lower(owner_email) = ?2 \
                 AND owner_email IS NOT NULL AND owner_email_confirmed = 1 AND standing <> 3)",
            )?
            .query_row(params![tenant.as_str(), address_key(&recipient)], |row| {
                row.get(0)
            })
        })
    }

    fn request_confirmation(
        &self,
        now: Timestamp,
        request: ConfirmationRequest,
        limits: OwnerEmailLimits,
    ) -> Answer<ConfirmationResult> {
        self.write_of(&request.tenant.clone(), move |context| {
            let conn = context.conn;
            let Some(tenant_no) = live_tenant(conn, &request.tenant)? else {
                return Ok(ConfirmationResult::NoSuchTenant);
            };
            let stored = find(conn, tenant_no, &address_key(&request.recipient))?;
            let mut usage = usage(conn, tenant_no, now)?;
            let before = usage;
            let (result, stored) =
                StoredConfirmation::request(stored, request.clone(), now, &mut usage, limits);
            if let Some(stored) = stored {
                keep(conn, tenant_no, &stored)?;
            }
            if usage != before {
                let taken = result.allowance();
                set_usage(conn, tenant_no, now, usage, taken)?;
            }
            Ok(result)
        })
    }

    fn claim_confirmations(
        &self,
        now: Timestamp,
        until: Timestamp,
        tokens: Vec<KeyHash>,
    ) -> Answer<Vec<(KeyHash, ConfirmationRequest)>> {
        self.write(move |context| {
            let conn = context.conn;
            delete_expired(conn, now)?;
            let mut claimed = Vec::new();
            for token in &tokens {
                let Some((tenant_no, mut stored)) = next_due(conn, now)? else {
                    break;
                };
                stored.claim(now, until, *token);
                keep(conn, tenant_no, &stored)?;
                claimed.push((*token, stored.request));
            }
            Ok(claimed)
        })
    }

    fn record_confirmation_result(&self, token: KeyHash, result: EmailResult) -> Answer<()> {
        self.write(move |context| {
            if let Some((tenant_no, mut stored)) = with_token(context.conn, token)? {
                stored.settle(&result);
                keep(context.conn, tenant_no, &stored)?;
            }
            Ok(())
        })
    }

    fn confirmation(&self, now: Timestamp, token: KeyHash) -> Answer<Option<ConfirmationRequest>> {
        self.read(ReadDuration::Quick, move |conn| {
            let found = with_token(conn, token)?;
            let valid = found.filter(|(_, stored)| stored.expires_at > now);
            Ok(valid.map(|(_, stored)| stored.request))
        })
    }

    fn confirm_owner(&self, now: Timestamp, token: KeyHash) -> Answer<Option<u64>> {
        self.write(move |context| {
            let conn = context.conn;
            let found = with_token(conn, token)?.filter(|(_, stored)| stored.expires_at > now);
            let Some((tenant_no, mut stored)) = found else {
                return Ok(None);
            };
            stored.token = None;
            stored.due_at = None;
            keep(conn, tenant_no, &stored)?;
            let confirmed = conn
                .prepare_cached(
                    "UPDATE endpoints SET owner_email_confirmed = 1, revision = revision + 1 \
                     WHERE tenant_no = ?1 AND lower(owner_email) = ?2 AND owner_email IS NOT NULL \
                     AND standing <> 3",
                )?
                .execute(params![tenant_no, address_key(&stored.request.recipient)])?;
            Ok(Some(confirmed as u64))
        })
    }

    fn count_owner_email(
        &self,
        now: Timestamp,
        tenant: TenantId,
        limit: u32,
    ) -> Answer<EmailAllowance> {
        self.write(move |context| {
            let Some(tenant_no) = live_tenant(context.conn, &tenant)? else {
                return Ok(EmailAllowance::Within);
            };
            let mut usage = usage(context.conn, tenant_no, now)?;
            let taken = usage.take_email(limit);
            set_usage(context.conn, tenant_no, now, usage, taken)?;
            Ok(taken)
        })
    }
}

fn usage(conn: &Connection, tenant_no: i64, now: Timestamp) -> rusqlite::Result<EmailUsage> {
    let found = conn
        .prepare_cached(
            "SELECT emails, recipients, dropped FROM email_usage WHERE tenant_no = ?1 AND day = ?2",
        )?
        .query_row(params![tenant_no, day_of(now) as i64], |row| {
            Ok(EmailUsage {
                emails: row.get(0)?,
                recipients: row.get(1)?,
                dropped: row.get(2)?,
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// Stores the usage, and creates a notification if the limit has just been reached.
fn set_usage(
    conn: &Connection,
    tenant_no: i64,
    now: Timestamp,
    usage: EmailUsage,
    taken: EmailAllowance,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO email_usage (tenant_no, day, emails, recipients, dropped) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant_no, day) DO UPDATE SET \
         emails = excluded.emails, recipients = excluded.recipients, dropped = excluded.dropped",
    )?
    .execute(params![
        tenant_no,
        day_of(now) as i64,
        usage.emails,
        usage.recipients,
        usage.dropped,
    ])?;
    if taken == (EmailAllowance::LimitReached { is_first: true }) {
        let detail = json!({"emails": usage.emails, "new_recipients": usage.recipients});
        add_notification(conn, now, tenant_no, EMAIL_LIMIT_REACHED, &detail)?;
    }
    Ok(())
}

/// Columns of a confirmation `c` with its tenant, if that is not deleted.
const SELECT: &str = "SELECT c.tenant_no, t.id, c.recipient, c.endpoint, c.due_at, c.tries, c.sent_at, c.token, \
    c.expires_at FROM email_confirmations c JOIN tenants t ON t.no = c.tenant_no AND t.deleted = 0";

fn read(row: &Row<'_>) -> rusqlite::Result<(i64, StoredConfirmation)> {
    let token: Option<[u8; 32]> = row.get(7)?;
    let endpoint: EndpointId = endpoint_id(row, 3)?;
    let stored = StoredConfirmation {
        request: ConfirmationRequest {
            tenant: parse(row.get_ref(1)?.as_str()?)?,
            recipient: row.get(2)?,
            endpoint,
        },
        due_at: row.get::<_, Option<i64>>(4)?.map(at),
        tries: row.get(5)?,
        sent_at: row.get::<_, Option<i64>>(6)?.map(at),
        token: token.map(KeyHash),
        expires_at: at(row.get(8)?),
    };
    Ok((row.get(0)?, stored))
}

fn find(
    conn: &Connection,
    tenant_no: i64,
    address: &str,
) -> rusqlite::Result<Option<StoredConfirmation>> {
    let found = conn
        .prepare_cached(&format!(
            "{SELECT} WHERE c.tenant_no = ?1 AND c.address = ?2"
        ))?
        .query_row(params![tenant_no, address], read)
        .optional()?;
    Ok(found.map(|(_, stored)| stored))
}

fn with_token(
    conn: &Connection,
    token: KeyHash,
) -> rusqlite::Result<Option<(i64, StoredConfirmation)>> {
    conn.prepare_cached(&format!("{SELECT} WHERE c.token = ?1"))?
        .query_row([token.0], read)
        .optional()
}

/// Returns the confirmation that is longest due and whose address got no email of another tenant lately.
fn next_due(
    conn: &Connection,
    now: Timestamp,
) -> rusqlite::Result<Option<(i64, StoredConfirmation)>> {
    let since = now.0.saturating_sub(CONFIRMATION_INTERVAL.as_millis());
    let latest = now.after(MAX_CONFIRMATION_PAUSE);
    conn.prepare_cached(&format!(
        "{SELECT} WHERE c.due_at IS NOT NULL AND (c.due_at <= ?1 OR c.due_at > ?2) \
         AND c.expires_at > ?1 AND NOT EXISTS (SELECT 1 FROM email_confirmations o \
         WHERE o.address = c.address AND o.tenant_no <> c.tenant_no AND o.sent_at > ?3) \
         ORDER BY c.due_at, c.tenant_no, c.address LIMIT 1"
    ))?
    .query_row(params![ms(now), ms(latest), since as i64], read)
    .optional()
}

fn keep(conn: &Connection, tenant_no: i64, stored: &StoredConfirmation) -> rusqlite::Result<()> {
    let request = &stored.request;
    conn.prepare_cached(
        "INSERT INTO email_confirmations (tenant_no, address, recipient, endpoint, due_at, tries, sent_at, \
         token, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
         ON CONFLICT (tenant_no, address) DO UPDATE SET recipient = excluded.recipient, \
         endpoint = excluded.endpoint, due_at = excluded.due_at, tries = excluded.tries, \
         sent_at = excluded.sent_at, token = excluded.token, expires_at = excluded.expires_at",
    )?
    .execute(params![
        tenant_no,
        address_key(&request.recipient),
        request.recipient,
        id_bytes(request.endpoint.0),
        stored.due_at.map(ms),
        stored.tries,
        stored.sent_at.map(ms),
        stored.token.map(|token| token.0),
        ms(stored.expires_at),
    ])?;
    Ok(())
}

/// Deletes some expired confirmations, and counts of days before yesterday.
fn delete_expired(conn: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM email_confirmations WHERE rowid IN \
         (SELECT rowid FROM email_confirmations WHERE expires_at <= ?1 LIMIT ?2)",
    )?
    .execute(params![ms(now), MAX_EXPIRED])?;
    let first_kept = day_of(now).saturating_sub(1) as i64;
    conn.prepare_cached(
        "DELETE FROM email_usage WHERE rowid IN \
         (SELECT rowid FROM email_usage WHERE day < ?1 LIMIT ?2)",
    )?
    .execute(params![first_kept, MAX_EXPIRED])?;
    Ok(())
}
