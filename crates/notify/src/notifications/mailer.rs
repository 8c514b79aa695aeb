//! Sends emails that are due.
//!
//! [`Mailer`] claims an email before it sends it, and records the result afterwards. If the process dies in between,
//! the email is sent again when the claim expires. So an email may arrive twice, with the same `Message-ID`, but is
//! never lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    EmailAllowance, EmailResult, MaxEmailDelay, PendingEmail, Store, StoreError,
};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::notification_counters::EmailOutcome;
use tokio::task::JoinSet;

use super::mail::{EmailError, SendEmail};
use crate::shard_owner_task::ShardOwnerTask;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::letters";

/// Interval at which due emails are looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of emails sent at once.
const MAX_CONCURRENT: usize = 8;
/// Duration of a claim. Longer than sending takes.
const CLAIM_DURATION: Span = Span::from_secs(150);
/// Pause before the first retry; doubles with each retry.
const FIRST_RETRY_PAUSE: Span = Span::from_mins(1);
/// Longest pause between retries.
const MAX_RETRY_PAUSE: Span = Span::from_hours(1);
/// Time after which an email is no longer retried.
pub(super) const MAX_RETRY_TIME: Span = Span::from_days(5);

/// Sends emails.
pub(super) struct Mailer {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) sender: Arc<dyn SendEmail>,
    /// Minimum interval between two emails to one recipient.
    pub(super) min_interval: Span,
    /// Time for which lines are collected before an email is sent.
    pub(super) gather: Span,
    /// The operator's addresses, which may appear in logs.
    pub(super) operator: Vec<String>,
    /// Maximum number of emails to owners per tenant and day.
    pub(super) tenant_limit: u32,
    pub(super) metrics: Arc<Metrics>,
}

impl ShardOwnerTask for Mailer {
    fn interval(&self) -> Duration {
        POLL_INTERVAL
    }

    /// Sends some of the due emails. Returns true if there may be more. A failure of one email does not affect the
    /// others.
    async fn round(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let (until, max_delay) = (now.after(CLAIM_DURATION), self.max_delay());
        let emails = self
            .store
            .claim_emails(now, until, max_delay, MAX_CONCURRENT);
        let emails = emails.await?;
        let more = emails.len() == MAX_CONCURRENT;
        let mut sending = JoinSet::new();
        let mut in_progress = BTreeMap::new();
        let mut first_error = None;
        for email in emails {
            let within_limits = match self.within_limits(now, &email).await {
                Ok(within_limits) => within_limits,
                // It is claimed again later.
                Err(error) => {
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            let Some(allowed) = within_limits else {
                let (recipient, revision) = (email.recipient, email.revision);
                let dropped = EmailResult::Dropped;
                let recorded = self.store.record_email_result(recipient, revision, dropped);
                if let Err(error) = recorded.await {
                    first_error.get_or_insert(error);
                }
                continue;
            };
            let sender = self.sender.clone();
            let task = sending.spawn(async move { sender.send(&allowed, now).await });
            in_progress.insert(task.id(), email);
        }
        while let Some(ended) = sending.join_next_with_id().await {
            let (task, result) = ended.unwrap_or_else(|panicked| {
                let why = "internal error while composing the email".to_owned();
                (panicked.id(), Err(EmailError::Later(why)))
            });
            let email = in_progress.remove(&task).expect("every task has an email");
            if let Err(error) = self.record(email, result).await {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            None => Ok(more),
            Some(error) => Err(error),
        }
    }

    fn log_error(&self, error: &StoreError) {
        tracing::warn!(target: LOG_TARGET, %error, "cannot process emails; keeping them and retrying");
    }
}

impl Mailer {
    /// Returns the longest time that an email of this configuration can wait.
    fn max_delay(&self) -> MaxEmailDelay {
        MaxEmailDelay {
            untried: self.min_interval.max(self.gather).max(CLAIM_DURATION),
            tried: MAX_RETRY_PAUSE.max(CLAIM_DURATION),
        }
    }

    /// Counts an email to an owner for its tenants. Returns it without the lines of tenants that have reached their daily
    /// limit; `None` if nothing remains. Emails to the operator have no limit, and a retry is not counted again.
    async fn within_limits(
        &self,
        now: Timestamp,
        email: &PendingEmail,
    ) -> Result<Option<PendingEmail>, StoreError> {
        let mut allowed = email.clone();
        if self.operator.contains(&email.recipient) || email.tries > 0 || email.lines.is_empty() {
            return Ok(Some(allowed));
        }
        let tenants = email.lines.iter().filter_map(|line| line.tenant.as_deref());
        let tenants: BTreeSet<&str> = tenants.collect();
        for name in tenants {
            // A line with a name that is not an id was not written by this version.
            let Ok(tenant) = name.parse() else {
                continue;
            };
            let counted = self.store.count_owner_email(now, tenant, self.tenant_limit);
            match counted.await? {
                EmailAllowance::Within => {}
                EmailAllowance::LimitReached { is_first } => {
                    allowed
                        .lines
                        .retain(|line| line.tenant.as_deref() != Some(name));
                    self.metrics.notifications.email(EmailOutcome::Limited);
                    if is_first {
                        let limit = self.tenant_limit;
                        tracing::warn!(target: LOG_TARGET, tenant = name, limit, "dropping emails to owners of endpoints until 00:00 UTC: the tenant has reached its daily limit");
                    }
                }
            }
        }
        Ok((!allowed.lines.is_empty()).then_some(allowed))
    }

    /// Records the result of sending an email.
    async fn record(
        &self,
        email: PendingEmail,
        result: Result<(), EmailError>,
    ) -> Result<(), StoreError> {
        let (posted, outcome) = next_state(&email, &result, self.clock.wall(), self.min_interval);
        self.metrics.notifications.email(outcome);
        let recipient = match self.operator.contains(&email.recipient) {
            true => email.recipient.as_str(),
            false => "the owner of an endpoint",
        };
        let lines = email.lines.len();
        match &result {
            Ok(()) => tracing::info!(target: LOG_TARGET, recipient, lines, "email sent"),
            Err(why) => {
                let tries = email.tries + 1;
                let outcome = outcome.name();
                tracing::warn!(target: LOG_TARGET, recipient, lines, tries, outcome, %why, "email rejected");
            }
        }
        let (recipient, revision) = (email.recipient, email.revision);
        // If the email is not found, another node has already recorded its result.
        self.store
            .record_email_result(recipient, revision, posted)
            .await?;
        Ok(())
    }
}

/// Decides what happens to an email after a send.
fn next_state(
    email: &PendingEmail,
    result: &Result<(), EmailError>,
    now: Timestamp,
    min_interval: Span,
) -> (EmailResult, EmailOutcome) {
    match result {
        Ok(()) => {
            let quiet_until = now.after(min_interval);
            (EmailResult::Sent { quiet_until }, EmailOutcome::Sent)
        }
        Err(EmailError::Never(_)) => (EmailResult::Dropped, EmailOutcome::Dropped),
        Err(EmailError::Later(_)) if email.first_at.after(MAX_RETRY_TIME) <= now => {
            (EmailResult::Dropped, EmailOutcome::Dropped)
        }
        Err(EmailError::Later(_)) => {
            let at = now.after(retry_pause(email.tries));
            (EmailResult::Later { at }, EmailOutcome::Later)
        }
    }
}

/// Returns the pause after this number of retries.
fn retry_pause(tries: u32) -> Span {
    let doubled = FIRST_RETRY_PAUSE.as_millis() << tries.min(16);
    Span::from_millis(doubled.min(MAX_RETRY_PAUSE.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn email(tries: u32) -> PendingEmail {
        let mut email = testing::email(Vec::new());
        email.tries = tries;
        email
    }

    #[test]
    fn an_email_is_retried_for_days_and_then_dropped() {
        let later = Err(EmailError::Later("busy".to_owned()));
        let (mut now, mut tries) = (Timestamp(0), 0);
        loop {
            match next_state(&email(tries), &later, now, Span::ZERO).0 {
                EmailResult::Later { at } => {
                    assert!(at > now && at <= now.after(MAX_RETRY_PAUSE));
                    (now, tries) = (at, tries + 1);
                }
                EmailResult::Dropped => break,
                EmailResult::Sent { .. } => panic!("a refused email is not sent"),
            }
        }
        assert!(now >= Timestamp(MAX_RETRY_TIME.as_millis()));
        assert!((100..200).contains(&tries), "{tries}");
    }

    #[test]
    fn a_sent_email_starts_the_quiet_time_and_a_refused_one_is_dropped() {
        let every = Span::from_mins(10);
        let sent = next_state(&email(3), &Ok(()), Timestamp(5), every);
        let quiet_until = Timestamp(600_005);
        assert_eq!(
            sent,
            (EmailResult::Sent { quiet_until }, EmailOutcome::Sent)
        );
        let refused = Err(EmailError::Never("no such user".to_owned()));
        let refused = next_state(&email(0), &refused, Timestamp(5), every);
        assert_eq!(refused, (EmailResult::Dropped, EmailOutcome::Dropped));
    }
}
