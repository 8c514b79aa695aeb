//! Sends letters that are due.
//!
//! A letter is claimed before it is sent, and what came of it is written down after: should the process die in
//! between, it is sent again when the claim is over. So a letter may arrive twice, with the same `Message-ID`, but is
//! never lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Letter, Longest, Posted, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::figures::LetterOutcome;
use super::herald::teller;
use super::mail::{Post, PostError};
use crate::clock::Clock;
use crate::observe::Observatory;
use crate::switchboard::Switchboard;

/// How often it looks for letters that are due.
const LOOKING: Duration = Duration::from_secs(2);
/// How many letters are sent at once.
const AT_ONCE: usize = 8;
/// For so long a claimed letter is nobody else's: longer than sending takes.
const CLAIM: Span = Span::from_secs(150);
/// How long until a letter is tried again; doubles with each try.
const FIRST_PAUSE: Span = Span::from_mins(1);
/// The longest that becomes.
const LONGEST_PAUSE: Span = Span::from_hours(1);
/// A letter is tried for so long.
pub(super) const TRIED_FOR: Span = Span::from_days(5);

/// Sends letters.
pub(super) struct Postman {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) switchboard: Arc<Switchboard>,
    pub(super) post: Arc<dyn Post>,
    /// Nobody gets more than one letter in this time.
    pub(super) every: Span,
    /// Lines gather for so long before a letter is sent.
    pub(super) gather: Span,
    /// The operator's addresses, which may be named in logs.
    pub(super) operator: Vec<String>,
    pub(super) observe: Arc<Observatory>,
}

impl Postman {
    /// Sends until told to stop. What is being sent then is finished.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let mut pause = LOOKING;
            if self.switchboard.is_mine(teller()) {
                match self.round().await {
                    Ok(true) => pause = Duration::ZERO,
                    Ok(false) => {}
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "letters could not be looked after; they are kept");
                    }
                }
            }
            let stopping = stopped.wait_for(|stopping| *stopping);
            if timeout(pause, stopping).await.is_ok() {
                return;
            }
        }
    }

    /// Sends some of what is due, and says whether there may be more. Whatever becomes of one letter, the others are
    /// seen to.
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
                (panicked.id(), Err(PostError::Later(why)))
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

    /// No letter of ours waits for longer.
    fn longest(&self) -> Longest {
        Longest {
            untried: self.every.max(self.gather).max(CLAIM),
            tried: LONGEST_PAUSE.max(CLAIM),
        }
    }

    /// Writes down what came of a letter.
    async fn settle(&self, letter: Letter, sent: Result<(), PostError>) -> Result<(), StoreError> {
        let (posted, outcome) = judge(&letter, &sent, self.clock.wall(), self.every);
        self.observe.notices.letter(outcome);
        let recipient = match self.operator.contains(&letter.recipient) {
            true => letter.recipient.as_str(),
            false => "the owner of an endpoint",
        };
        let lines = letter.lines.len();
        match &sent {
            Ok(()) => tracing::info!(recipient, lines, "a letter was sent"),
            Err(why) => {
                let tries = letter.tries + 1;
                let outcome = outcome.name();
                tracing::warn!(recipient, lines, tries, outcome, %why, "a letter was not taken");
            }
        }
        let (recipient, revision) = (letter.recipient, letter.revision);
        // If there is no such letter any more, somebody else has seen to it.
        self.store
            .settle_letter(recipient, revision, posted)
            .await?;
        Ok(())
    }
}

/// What becomes of a letter after it was, or was not, taken.
fn judge(
    letter: &Letter,
    sent: &Result<(), PostError>,
    now: Timestamp,
    every: Span,
) -> (Posted, LetterOutcome) {
    match sent {
        Ok(()) => {
            let quiet_until = now.after(every);
            (Posted::Sent { quiet_until }, LetterOutcome::Sent)
        }
        Err(PostError::Never(_)) => (Posted::Dropped, LetterOutcome::Dropped),
        Err(PostError::Later(_)) if letter.first_at.after(TRIED_FOR) <= now => {
            (Posted::Dropped, LetterOutcome::Dropped)
        }
        Err(PostError::Later(_)) => {
            let at = now.after(pause(letter.tries));
            (Posted::Later { at }, LetterOutcome::Later)
        }
    }
}

/// How long a letter rests that was tried so often before.
fn pause(tries: u32) -> Span {
    let doubled = FIRST_PAUSE.as_millis() << tries.min(16);
    Span::from_millis(doubled.min(LONGEST_PAUSE.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(tries: u32) -> Letter {
        Letter {
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
        let later = Err(PostError::Later("busy".to_owned()));
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
        assert!(now >= Timestamp(TRIED_FOR.as_millis()));
        assert!((100..200).contains(&tries), "{tries}");
    }

    #[test]
    fn what_was_sent_is_followed_by_quiet_and_what_was_refused_by_nothing() {
        let every = Span::from_mins(10);
        let sent = judge(&letter(3), &Ok(()), Timestamp(5), every);
        let quiet_until = Timestamp(600_005);
        assert_eq!(sent, (Posted::Sent { quiet_until }, LetterOutcome::Sent));
        let refused = Err(PostError::Never("no such user".to_owned()));
        let refused = judge(&letter(0), &refused, Timestamp(5), every);
        assert_eq!(refused, (Posted::Dropped, LetterOutcome::Dropped));
    }
}
