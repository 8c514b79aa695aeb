//! Sends emails that are due.
//!
//! [`Mailer`] claims an email before it sends it, and records the result afterwards. If the process dies in between,
//! the email is sent again when the claim expires. So an email may arrive twice, with the same `Message-ID`, but is
//! never lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::{Span, Timestamp};
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::{MaxEmailDelay, PendingEmail, Posted, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::notification_counters::EmailOutcome;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::herald::dispatching_shard;
use super::mail::{EmailError, SendEmail};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::letters";

/// Interval at which due emails are looked for.
const LOOKING: Duration = Duration::from_secs(2);
/// Maximum number of emails sent at once.
const AT_ONCE: usize = 8;
/// Duration of a claim. Longer than sending takes.
const CLAIM: Span = Span::from_secs(150);
/// Pause before the first retry; doubles with each retry.
const FIRST_PAUSE: Span = Span::from_mins(1);
/// Longest pause between retries.
const LONGEST_PAUSE: Span = Span::from_hours(1);
/// Time after which an email is no longer retried.
pub(super) const MAX_RETRY_TIME: Span = Span::from_days(5);

/// Sends emails.
pub(super) struct Mailer {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) switchboard: Arc<OwnerRouter>,
    pub(super) post: Arc<dyn SendEmail>,
    /// Minimum interval between two emails to one recipient.
    pub(super) every: Span,
    /// Time for which lines are collected before an email is sent.
    pub(super) gather: Span,
    /// The operator's addresses, which may appear in logs.
    pub(super) operator: Vec<String>,
    pub(super) observe: Arc<Metrics>,
}

impl Mailer {
    /// Sends until `stopped` is true. Emails being sent at that time are completed.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let mut pause = LOOKING;
            if self.switchboard.is_mine(dispatching_shard()) {
                match self.round().await {
                    Ok(true) => pause = Duration::ZERO,
                    Ok(false) => {}
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(target: LOG_TARGET, %error, "letters could not be looked after; they are kept");
                    }
                }
            }
            let stopping = stopped.wait_for(|stopping| *stopping);
            if timeout(pause, stopping).await.is_ok() {
                return;
            }
        }
    }

    /// Sends some of the due emails. Returns true if there may be more. A failure of one email does not affect the
    /// others.
    pub(super) async fn round(&self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let (until, longest) = (now.after(CLAIM), self.longest());
        let letters = self.store.claim_letters(now, until, longest, AT_ONCE);
        let letters = letters.await?;
        let more = letters.len() == AT_ONCE;
        let mut sending = JoinSet::new();
        let mut under_way = BTreeMap::new();
        for letter in letters {
            let (post, given) = (self.post.clone(), letter.clone());
            let task = sending.spawn(async move { post.send(&given, now).await });
            under_way.insert(task.id(), letter);
        }
        let mut first_error = None;
        while let Some(ended) = sending.join_next_with_id().await {
            let (task, sent) = ended.unwrap_or_else(|panicked| {
                let why = "it could not be written, which is a fault of posthaste".to_owned();
                (panicked.id(), Err(EmailError::Later(why)))
            });
            let letter = under_way.remove(&task).expect("it was put there");
            if let Err(error) = self.settle(letter, sent).await {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            None => Ok(more),
            Some(error) => Err(error),
        }
    }

    /// Returns the longest time that an email of this configuration can wait.
    fn longest(&self) -> MaxEmailDelay {
        MaxEmailDelay {
            untried: self.every.max(self.gather).max(CLAIM),
            tried: LONGEST_PAUSE.max(CLAIM),
        }
    }

    /// Records the result of sending an email.
    async fn settle(
        &self,
        letter: PendingEmail,
        sent: Result<(), EmailError>,
    ) -> Result<(), StoreError> {
        let (posted, outcome) = judge(&letter, &sent, self.clock.wall(), self.every);
        self.observe.notices.letter(outcome);
        let recipient = match self.operator.contains(&letter.recipient) {
            true => letter.recipient.as_str(),
            false => "the owner of an endpoint",
        };
        let lines = letter.lines.len();
        match &sent {
            Ok(()) => tracing::info!(target: LOG_TARGET, recipient, lines, "a letter was sent"),
            Err(why) => {
                let tries = letter.tries + 1;
                let outcome = outcome.name();
                tracing::warn!(target: LOG_TARGET, recipient, lines, tries, outcome, %why, "a letter was not taken");
            }
        }
        let (recipient, revision) = (letter.recipient, letter.revision);
        // If the email is not found, another node has already recorded its result.
        self.store
            .settle_letter(recipient, revision, posted)
            .await?;
        Ok(())
    }
}

/// Decides what happens to an email after a send.
fn judge(
    letter: &PendingEmail,
    sent: &Result<(), EmailError>,
    now: Timestamp,
    every: Span,
) -> (Posted, EmailOutcome) {
    match sent {
        Ok(()) => {
            let quiet_until = now.after(every);
            (Posted::Sent { quiet_until }, EmailOutcome::Sent)
        }
        Err(EmailError::Never(_)) => (Posted::Dropped, EmailOutcome::Dropped),
        Err(EmailError::Later(_)) if letter.first_at.after(MAX_RETRY_TIME) <= now => {
            (Posted::Dropped, EmailOutcome::Dropped)
        }
        Err(EmailError::Later(_)) => {
            let at = now.after(pause(letter.tries));
            (Posted::Later { at }, EmailOutcome::Later)
        }
    }
}

/// Returns the pause after this number of retries.
fn pause(tries: u32) -> Span {
    let doubled = FIRST_PAUSE.as_millis() << tries.min(16);
    Span::from_millis(doubled.min(LONGEST_PAUSE.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(tries: u32) -> PendingEmail {
        PendingEmail {
            recipient: "ops@example.com".to_owned(),
            revision: 1,
            first_at: Timestamp(0),
            tries,
            lines: Vec::new(),
            omitted: 0,
        }
    }

    #[test]
    fn a_letter_is_tried_for_days_and_then_dropped() {
        let later = Err(EmailError::Later("busy".to_owned()));
        let (mut now, mut tries) = (Timestamp(0), 0);
        loop {
            match judge(&letter(tries), &later, now, Span::ZERO).0 {
                Posted::Later { at } => {
                    assert!(at > now && at <= now.after(LONGEST_PAUSE));
                    (now, tries) = (at, tries + 1);
                }
                Posted::Dropped => break,
                Posted::Sent { .. } => panic!("it was not"),
            }
        }
        assert!(now >= Timestamp(MAX_RETRY_TIME.as_millis()));
        assert!((100..200).contains(&tries), "{tries}");
    }

    #[test]
    fn what_was_sent_is_followed_by_quiet_and_what_was_refused_by_nothing() {
        let every = Span::from_mins(10);
        let sent = judge(&letter(3), &Ok(()), Timestamp(5), every);
        let quiet_until = Timestamp(600_005);
        assert_eq!(sent, (Posted::Sent { quiet_until }, EmailOutcome::Sent));
        let refused = Err(EmailError::Never("no such user".to_owned()));
        let refused = judge(&letter(0), &refused, Timestamp(5), every);
        assert_eq!(refused, (Posted::Dropped, EmailOutcome::Dropped));
    }
}
