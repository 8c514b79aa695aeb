//! Operations on notifications and emails.
//!
//! [`NotificationOperation`] covers gathering of failures, dispatching of notifications, and claiming and settling
//! of emails. Both stores must return the same notifications and the same emails with the same lines.

use posthaste_core::time::{Span, Timestamp};
use serde_json::Value;

use super::operation::Script;
use super::side::ComparedStore;
use posthaste_store::{EmailLine, EmailResult, MaxEmailDelay};

/// Longer than any list in the comparison.
const ENOUGH: usize = 100_000;

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum NotificationOperation {
    Gather {
        before: Timestamp,
        limit: usize,
    },
    CompleteNotifications {
        now: Timestamp,
        /// True if it continues after the last dispatched notification.
        current: bool,
        recipients: Vec<u64>,
        due_at: Timestamp,
    },
    ClaimEmails {
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    },
    RecordEmailResult {
        recipient: u64,
        revision: u64,
        outcome: u64,
        at: Timestamp,
    },
}

impl Script {
    pub(super) fn notification_operation(&mut self) -> NotificationOperation {
        let now = self.tick();
        match self.rng.between(0, 9) {
            0..=2 => NotificationOperation::Gather {
                before: self.some_time(),
                limit: self.limit(),
            },
            3..=5 => {
                let count = self.rng.between(0, 5);
                NotificationOperation::CompleteNotifications {
                    now,
                    current: self.rng.random_ratio(4, 5),
                    recipients: (0..count).map(|_| self.rng.between(0, 2)).collect(),
                    due_at: self.some_time(),
                }
            }
            6 | 7 => NotificationOperation::ClaimEmails {
                now: self.some_time(),
                until: self.some_time(),
                limit: self.rng.between(1, 3) as usize,
            },
            8.. => NotificationOperation::RecordEmailResult {
                recipient: self.rng.between(0, 2),
                revision: self.rng.between(0, 12),
                outcome: self.rng.between(0, 2),
                at: self.some_time(),
            },
        }
    }
}

impl ComparedStore<'_> {
    pub(super) async fn on_notifications(&self, telling: NotificationOperation) -> String {
        let store = self.store.clone();
        match telling {
            NotificationOperation::Gather { before, limit } => {
                // A few failures are further in the future than that.
                let now = before.after(Span::from_mins(30));
                let gathered = store.collect_failures(now, before, limit).await;
                self.describe(&(gathered, store.notifications(0, ENOUGH).await))
            }
            NotificationOperation::CompleteNotifications {
                now,
                current,
                recipients,
                due_at,
            } => {
                self.create_notifications(now, current, &recipients, due_at)
                    .await
            }
            NotificationOperation::ClaimEmails { now, until, limit } => {
                let longest = MaxEmailDelay {
                    untried: Span::from_mins(30),
                    tried: Span::from_mins(90),
                };
                let claimed = store.claim_emails(now, until, longest, limit);
                self.describe(&claimed.await)
            }
            NotificationOperation::RecordEmailResult {
                recipient,
                revision,
                outcome,
                at,
            } => {
                let posted = match outcome {
                    0 => EmailResult::Dropped,
                    1 => EmailResult::Later { at },
                    2.. => EmailResult::Sent { quiet_until: at },
                };
                let settled = store.record_email_result(address(recipient), revision, posted);
                self.describe(&settled.await)
            }
        }
    }

    /// Dispatches half of the notifications that are not dispatched yet.
    async fn create_notifications(
        &self,
        now: Timestamp,
        current: bool,
        recipients: &[u64],
        due_at: Timestamp,
    ) -> String {
        let last_processed = self
            .store
            .last_processed_notification()
            .await
            .expect("the store can be read");
        let notifications = self.store.notifications(last_processed, ENOUGH).await;
        let notifications = notifications.expect("the store can be read");
        let up_to = notifications
            .get(notifications.len() / 2)
            .map_or(last_processed, |it| it.number);
        let lines = recipients.iter().enumerate().map(|(index, recipient)| {
            let line = EmailLine {
                at: now,
                name: format!("line {index}"),
                tenant: None,
                endpoint: None,
                endpoint_url: None,
                detail: Value::from(up_to),
            };
            (address(*recipient), line)
        });
        let from = if current {
            last_processed
        } else {
            last_processed + 1
        };
        let moved = self
            .store
            .complete_notifications(now, from, up_to.max(from), lines.collect(), due_at)
            .await;
        self.describe(&(moved, self.store.last_processed_notification().await))
    }
}

fn address(number: u64) -> String {
    format!("{number}@example.com")
}
