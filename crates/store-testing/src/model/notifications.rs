//! Notifications and emails in the model.
//!
//! Implements the queue of notifications, the gathering of failures per endpoint, and the emails that are
//! collected, claimed and settled. A due time that is too far ahead of the clock counts as due, because the clock
//! was set back.

use posthaste_core::dispatcher::EndpointChange;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::tables::{NotificationRow, Tables, TenantVersion};
use super::{ModelStore, answer};
use posthaste_store::for_other_stores::DELIVERY_FAILED;
use posthaste_store::for_other_stores::{EmailAfterSend, StoredEmail, by_recipient, too_far_ahead};
use posthaste_store::{
    Answer, AuditEntry, CreateResult, EmailLine, EmailResult, MAX_PENDING_NOTIFICATIONS,
    MaxEmailDelay, Notification, Notifications, PendingEmail, SubjectScope,
};

impl Notifications for ModelStore {
    fn notifications(&self, after: u64, limit: usize) -> Answer<Vec<Notification>> {
        answer(self.read(|tables| {
            let rows = tables.notifications.iter();
            let later = rows.filter(|row| row.notification.number > after);
            later
                .take(limit)
                .map(|row| row.notification.clone())
                .collect()
        }))
    }

    fn audit_notification(&self, notification: u64, act: AuditEntry) -> Answer<CreateResult> {
        answer(self.write(|tables| {
            let mut rows = tables.notifications.iter();
            let owner = match rows.find(|row| row.notification.number == notification) {
                Some(row) => row.owner,
                None => return CreateResult::Taken,
            };
            tables.add_audit(owner, act)
        }))
    }

    fn collect_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize> {
        answer(self.write(|tables| tables.gather(now, before, limit)))
    }

    fn last_processed_notification(&self) -> Answer<u64> {
        answer(self.read(|tables| tables.last_processed_notification))
    }

    fn complete_notifications(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, EmailLine)>,
        due_at: Timestamp,
    ) -> Answer<bool> {
        answer(self.write(|tables| {
            if tables.last_processed_notification != from {
                return false;
            }
            tables.last_processed_notification = up_to;
            tables
                .notifications
                .retain(|row| row.notification.number > up_to);
            for (recipient, lines) in by_recipient(lines) {
                let kept = tables
                    .emails
                    .entry(recipient.clone())
                    .or_insert_with(|| StoredEmail::new(recipient, now));
                for line in lines {
                    kept.add(now, due_at, line);
                }
            }
            true
        }))
    }

    fn claim_emails(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Answer<Vec<PendingEmail>> {
        answer(self.write(|tables| tables.claim_emails(now, until, longest, limit)))
    }

    fn record_email_result(
        &self,
        recipient: String,
        revision: u64,
        posted: EmailResult,
    ) -> Answer<bool> {
        answer(self.write(|tables| {
            let Some(kept) = tables.emails.get(&recipient) else {
                return false;
            };
            match kept.clone().settle(revision, &posted) {
                EmailAfterSend::Kept(kept) => {
                    tables.emails.insert(recipient, kept);
                }
                EmailAfterSend::Delete => {
                    tables.emails.remove(&recipient);
                }
                EmailAfterSend::Unchanged => return false,
            }
            true
        }))
    }
}

impl Tables {
    /// Stores a notification about a tenant's object. Above the maximum, the oldest is removed.
    pub(super) fn add_notification(
        &mut self,
        at: Timestamp,
        (scope, owner): (SubjectScope, Option<TenantVersion>),
        name: &str,
        detail: Value,
    ) {
        self.last_notification += 1;
        let notification = Notification {
            number: self.last_notification,
            scope,
            at,
            name: name.to_owned(),
            detail,
        };
        self.notifications.push(NotificationRow {
            owner,
            notification,
        });
        let oldest = self
            .last_notification
            .saturating_sub(MAX_PENDING_NOTIFICATIONS);
        let over = self
            .notifications
            .partition_point(|row| row.notification.number <= oldest);
        self.notifications.drain(..over);
    }

    /// Returns the scope of an endpoint and its tenant.
    fn about(&self, endpoint: EndpointId) -> (SubjectScope, Option<TenantVersion>) {
        let owner = self.endpoints.get(&endpoint).map(|it| it.owner);
        (SubjectScope::Endpoint(endpoint), owner)
    }

    pub(super) fn add_endpoint_change(
        &mut self,
        at: Timestamp,
        endpoint: EndpointId,
        change: EndpointChange,
    ) {
        let detail = match change {
            EndpointChange::BreakerTripped(reason) => json!({ "reason": reason }),
            EndpointChange::Recovered => json!({}),
            EndpointChange::DisableWarning(cause) | EndpointChange::Disabled(cause) => {
                json!({ "cause": cause })
            }
        };
        self.add_notification(at, self.about(endpoint), change.name(), detail);
    }

    fn gather(&mut self, now: Timestamp, before: Timestamp, limit: usize) -> usize {
        let after = too_far_ahead(now, before);
        let taken = self.failures.take_outside(before, after, limit);
        let notifications = taken.notifications();
        let count = notifications.len();
        for (endpoint, last_at, detail) in notifications {
            self.add_notification(last_at, self.about(endpoint), DELIVERY_FAILED, detail);
        }
        count
    }

    fn claim_emails(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Vec<PendingEmail> {
        self.emails
            .retain(|_, kept| !kept.is_due(now, longest) || !kept.is_empty());
        let due = self
            .emails
            .values()
            .filter(|kept| kept.is_due(now, longest));
        let mut due: Vec<StoredEmail> = due.cloned().collect();
        due.sort_by_key(|kept| (kept.due_at, kept.email.recipient.clone()));
        due.truncate(limit);
        for kept in &due {
            let claimed = self.emails.get_mut(&kept.email.recipient);
            claimed.expect("the email was found above").due_at = until;
        }
        due.into_iter().map(StoredEmail::into_pending).collect()
    }
}
