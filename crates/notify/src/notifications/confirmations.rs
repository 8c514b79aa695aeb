//! Sends emails that ask the owners of addresses to confirm them.
//!
//! `ConfirmationMailer` claims a confirmation with the hash of a new token, and sends the token in a link. The token is
//! kept nowhere else: if the process dies or the mail server refuses, the next try has another one. An address that its
//! endpoint does not have any more gets no email. The store bounds how many emails a tenant and an address get.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{ConfirmationRequest, EmailResult, KeyHash, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_system::random::fresh_token;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::notification_counters::EmailOutcome;
use ring::digest::{SHA256, digest};

use super::mail::compose::ConfirmationEmail;
use super::mail::{EmailError, SendEmail};
use super::public_url::host_of;
use crate::shard_owner_task::ShardOwnerTask;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste::notices::confirmations";

/// Path of the page on which an address is confirmed. The token follows it.
pub const CONFIRMATION_PATH: &str = "/confirm-email";
/// Interval at which due confirmation emails are looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of confirmation emails per round.
const MAX_PER_ROUND: usize = 4;
/// Duration of a claim. Longer than sending all emails of a round takes.
const CLAIM_DURATION: Span = Span::from_mins(10);
/// Pause before a retry. Shorter than the store's maximum.
const RETRY_PAUSE: Span = Span::from_mins(10);

/// Returns the hash of a token, which is stored.
pub fn token_hash(token: &str) -> KeyHash {
    let hash = digest(&SHA256, token.as_bytes());
    let bytes = hash.as_ref().try_into();
    KeyHash(bytes.expect("a SHA-256 hash has 32 bytes"))
}

/// Sends confirmation emails.
pub(super) struct ConfirmationMailer {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) sender: Arc<dyn SendEmail>,
    /// URL at which browsers reach this server.
    pub(super) base_url: String,
    pub(super) metrics: Arc<Metrics>,
}

impl ShardOwnerTask for ConfirmationMailer {
    fn interval(&self) -> Duration {
        POLL_INTERVAL
    }

    /// Sends some of the due emails. Returns true if there may be more.
    async fn round(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let tokens: Vec<String> = (0..MAX_PER_ROUND).map(|_| fresh_token()).collect();
        let hashes = tokens.iter().map(|token| token_hash(token)).collect();
        let until = now.after(CLAIM_DURATION);
        let claimed = self.store.claim_confirmations(now, until, hashes).await?;
        let more = claimed.len() == MAX_PER_ROUND;
        for ((hash, request), token) in claimed.into_iter().zip(&tokens) {
            let result = self.send(now, &request, token).await?;
            self.store.record_confirmation_result(hash, result).await?;
        }
        Ok(more)
    }

    fn log_error(&self, error: &StoreError) {
        tracing::warn!(target: LOG_TARGET, %error, "cannot read or record confirmation emails; retrying");
    }
}

impl ConfirmationMailer {
    async fn send(
        &self,
        now: Timestamp,
        request: &ConfirmationRequest,
        token: &str,
    ) -> Result<EmailResult, StoreError> {
        let Some(endpoint_host) = self.unconfirmed_endpoint(request).await? else {
            return Ok(EmailResult::Dropped);
        };
        let email = ConfirmationEmail {
            recipient: request.recipient.clone(),
            endpoint_host,
            link: format!("{}{CONFIRMATION_PATH}/{token}", self.base_url),
        };
        let sent = self.sender.send_confirmation(&email, now).await;
        let tenant = &request.tenant;
        match &sent {
            Ok(()) => {
                tracing::info!(target: LOG_TARGET, %tenant, endpoint = %request.endpoint, "confirmation email sent");
            }
            Err(why) => {
                tracing::warn!(target: LOG_TARGET, %tenant, endpoint = %request.endpoint, %why, "confirmation email rejected");
            }
        }
        let (result, outcome) = match sent {
            Ok(()) => {
                let quiet_until = now;
                (EmailResult::Sent { quiet_until }, EmailOutcome::Sent)
            }
            Err(EmailError::Later(_)) => {
                let at = self.clock.wall().after(RETRY_PAUSE);
                (EmailResult::Later { at }, EmailOutcome::Later)
            }
            Err(EmailError::Never(_)) => (EmailResult::Dropped, EmailOutcome::Dropped),
        };
        self.metrics.notifications.email(outcome);
        Ok(result)
    }

    /// Returns the host of the endpoint, if it still has this address and the address is not confirmed.
    async fn unconfirmed_endpoint(
        &self,
        request: &ConfirmationRequest,
    ) -> Result<Option<String>, StoreError> {
        let row = self.store.endpoint(request.endpoint).await?;
        let row = row.filter(|row| {
            let owner = row.endpoint.owner_email.as_deref();
            let is_owner = owner.is_some_and(|it| it.eq_ignore_ascii_case(&request.recipient));
            let is_deleted = row.status == EndpointStatus::Deleted;
            is_owner && !row.endpoint.owner_email_confirmed && !is_deleted
        });
        Ok(row.map(|row| host_of(&row.endpoint.url)))
    }
}
