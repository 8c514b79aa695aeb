//! Operations on notifications and emails.
//!
//! [`NotificationOperation`] covers gathering of failures, dispatching of notifications, and claiming and settling
//! of emails. Both stores must return the same notifications and the same emails with the same lines.

use posthaste_core::time::{Span, Timestamp};
use serde_json::Value;

use super::operation::Script;
use super::side::Side;
use posthaste_store::{EmailLine, MaxEmailDelay, Posted};

/// Longer than any list in the comparison.
const ENOUGH: usize = 100_000;

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum NotificationOperation {
    Gather {
        before: Timestamp,
        limit: usize,
    },
    Tell {
        now: Timestamp,
        /// True if it continues after the last dispatched notification.
        current: bool,
        recipients: Vec<u64>,
        due_at: Timestamp,
    },
    ClaimLetters {
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    },
    SettleLetter {
        recipient: u64,
        revision: u64,
        outcome: u64,
        at: Timestamp,
    },
}

impl Script {
    pub(super) fn on_the_outbox(&mut self) -> NotificationOperation {
        let now = self.tick();
        match self.dice.between(0, 9) {
            0..=2 => NotificationOperation::Gather {
                before: self.some_time(),
                limit: self.limit(),
            },
            3..=5 => {
                let count = self.dice.between(0, 5);
                NotificationOperation::Tell {
                    now,
                    current: self.dice.chance(4, 5),
                    recipients: (0..count).map(|_| self.dice.between(0, 2)).collect(),
                    due_at: self.some_time(),
                }
            }
            6 | 7 => NotificationOperation::ClaimLetters {
                now: self.some_time(),
                until: self.some_time(),
                limit: self.dice.between(1, 3) as usize,
            },
            8.. => NotificationOperation::SettleLetter {
                recipient: self.dice.between(0, 2),
                revision: self.dice.between(0, 12),
                outcome: self.dice.between(0, 2),
                at: self.some_time(),
            },
        }
    }
}

impl Side<'_> {
    pub(super) async fn on_the_outbox(&self, telling: NotificationOperation) -> String {
        let store = self.store.clone();
        match telling {
            NotificationOperation::Gather { before, limit } => {
                // A few failures are further in the future than that.
                let now = before.after(Span::from_mins(30));
                let gathered = store.gather_failures(now, before, limit).await;
                self.tell(&(gathered, store.notices(0, ENOUGH).await))
            }
            NotificationOperation::Tell {
                now,
                current,
                recipients,
                due_at,
            } => self.tell_people(now, current, &recipients, due_at).await,
            NotificationOperation::ClaimLetters { now, until, limit } => {
                let longest = MaxEmailDelay {
                    untried: Span::from_mins(30),
                    tried: Span::from_mins(90),
                };
                let claimed = store.claim_letters(now, until, longest, limit);
                self.tell(&claimed.await)
            }
            NotificationOperation::SettleLetter {
                recipient,
                revision,
                outcome,
                at,
            } => {
                let posted = match outcome {
                    0 => Posted::Dropped,
                    1 => Posted::Later { at },
                    2.. => Posted::Sent { quiet_until: at },
                };
                let settled = store.settle_letter(address(recipient), revision, posted);
                self.tell(&settled.await)
            }
        }
    }

    /// Dispatches half of the notifications that are not dispatched yet.
    async fn tell_people(
        &self,
        now: Timestamp,
        current: bool,
        recipients: &[u64],
        due_at: Timestamp,
    ) -> String {
        let told = self.store.told().await.expect("the store can be read");
        let notices = self.store.notices(told, ENOUGH).await;
        let notices = notices.expect("the store can be read");
        let up_to = notices.get(notices.len() / 2).map_or(told, |it| it.number);
        let lines = recipients.iter().enumerate().map(|(place, recipient)| {
            let line = EmailLine {
                at: now,
                name: format!("line {place}"),
                tenant: None,
                endpoint: None,
                endpoint_url: None,
                detail: Value::from(up_to),
            };
            (address(*recipient), line)
        });
        let from = if current { told } else { told + 1 };
        let moved = self
            .store
            .tell(now, from, up_to.max(from), lines.collect(), due_at)
            .await;
        self.tell(&(moved, self.store.told().await))
    }
}

fn address(number: u64) -> String {
    format!("{number}@example.com")
}
