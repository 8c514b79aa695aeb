//! Emails while no mail server is configured.
//!
//! Existing emails are kept as long as they would be retried, in case a mail server is configured again. Then they are
//! dropped and logged. No new emails are created meanwhile.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Span;
use posthaste_store::{EmailResult, MaxEmailDelay, Store, StoreError};
use posthaste_system::clock::Clock;

use super::mailer::MAX_RETRY_TIME;
use crate::shard_owner_task::ShardOwnerTask;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::unposted";

/// Interval between rounds.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a checked email is not due. If a mail server is configured again, the email is sent after that.
const CLAIM_DURATION: Span = Span::from_mins(10);
/// Maximum number of emails per round.
const MAX_PER_ROUND: usize = 50;

/// Drops emails that cannot be sent and are too old.
pub(super) struct UnsentEmails {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
}

impl ShardOwnerTask for UnsentEmails {
    fn interval(&self) -> Duration {
        INTERVAL
    }

    /// Drops emails that are too old. Returns true if there may be more.
    async fn round(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let (until, max_delay) = (now.after(CLAIM_DURATION), MaxEmailDelay::ANY);
        let emails = self
            .store
            .claim_emails(now, until, max_delay, MAX_PER_ROUND)
            .await?;
        let more = emails.len() == MAX_PER_ROUND;
        for email in emails {
            if email.first_at.after(MAX_RETRY_TIME) > now {
                continue;
            }
            let (since, lines) = (email.first_at, email.lines.len());
            let dropped = self.store.record_email_result(
                email.recipient,
                email.revision,
                EmailResult::Dropped,
            );
            if dropped.await? {
                tracing::warn!(target: LOG_TARGET, %since, lines, "email dropped: no mail server is configured");
            }
        }
        Ok(more)
    }

    fn log_error(&self, error: &StoreError) {
        tracing::warn!(target: LOG_TARGET, %error, "cannot process emails; keeping them and retrying");
    }
}
