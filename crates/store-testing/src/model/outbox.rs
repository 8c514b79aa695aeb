//! Notifications and emails in the model.
//!
//! Implements the queue of notifications, the gathering of failures per endpoint, and the emails that are
//! collected, claimed and settled. A due time that is too far ahead of the clock counts as due, because the clock
//! was set back.

use posthaste_core::dispatcher::News;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::tables::{NotificationRow, Tables, TenantVersion};
use super::{ModelStore, answer};
use posthaste_store::rules::DELIVERY_FAILED;
use posthaste_store::rules::{EmailAfterSend, StoredEmail, by_recipient, too_far_ahead};
use posthaste_store::{
    Answer, AuditEntry, CreateResult, EmailLine, MAX_PENDING_NOTIFICATIONS, MaxEmailDelay,
    Notification, Outbox, PendingEmail, Posted, Scope,
};

impl Outbox for ModelStore {
    fn notices(&self, after: u64, limit: usize) -> Answer<Vec<Notification>> {
        answer(self.read(|tables| {
            let rows = tables.notices.iter();
            let later = rows.filter(|row| row.notice.number > after);
            later.take(limit).map(|row| row.notice.clone()).collect()
        }))
    }

    fn keep_act(&self, notice: u64, act: AuditEntry) -> Answer<CreateResult> {
        answer(self.write(|tables| {
            let mut rows = tables.notices.iter();
            let owner = match rows.find(|row| row.notice.number == notice) {
                Some(row) => row.owner,
                None => return CreateResult::Taken,
            };
            tables.add_audit(owner, act)
        }))
    }

    fn gather_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize> {
        answer(self.write(|tables| tables.gather(now, before, limit)))
    }

    fn told(&self) -> Answer<u64> {
        answer(self.read(|tables| tables.told))
    }

    fn tell(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, EmailLine)>,
        due_at: Timestamp,
    ) -> Answer<bool> {
        answer(self.write(|tables| {
            if tables.told != from {
                return false;
            }
            tables.told = up_to;
            tables.notices.retain(|row| row.notice.number > up_to);
            for (recipient, lines) in by_recipient(lines) {
                let kept = tables
                    .letters
                    .entry(recipient.clone())
                    .or_insert_with(|| StoredEmail::new(recipient, now));
                for line in lines {
                    kept.add(now, due_at, line);
                }
            }
            true
        }))
    }

    fn claim_letters(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Answer<Vec<PendingEmail>> {
        answer(self.write(|tables| tables.claim_letters(now, until, longest, limit)))
    }

    fn settle_letter(&self, recipient: String, revision: u64, posted: Posted) -> Answer<bool> {
        answer(self.write(|tables| {
            let Some(kept) = tables.letters.get(&recipient) else {
                return false;
            };
            match kept.clone().settle(revision, &posted) {
                EmailAfterSend::Kept(kept) => {
                    tables.letters.insert(recipient, kept);
                }
                EmailAfterSend::Gone => {
                    tables.letters.remove(&recipient);
                }
                EmailAfterSend::Another => return false,
            }
            true
        }))
    }
}

impl Tables {
    /// Stores a notification about a tenant's object. Above the maximum, the oldest is removed.
    pub(super) fn notice(
        &mut self,
        at: Timestamp,
        (scope, owner): (Scope, Option<TenantVersion>),
        name: &str,
        detail: Value,
    ) {
        self.last_notice += 1;
        let notice = Notification {
            number: self.last_notice,
            scope,
            at,
            name: name.to_owned(),
            detail,
        };
        self.notices.push(NotificationRow { owner, notice });
        let oldest = self.last_notice.saturating_sub(MAX_PENDING_NOTIFICATIONS);
        let over = self
            .notices
            .partition_point(|row| row.notice.number <= oldest);
        self.notices.drain(..over);
    }

    /// Returns the scope of an endpoint and its tenant.
    fn about(&self, endpoint: EndpointId) -> (Scope, Option<TenantVersion>) {
        let owner = self.endpoints.get(&endpoint).map(|it| it.owner);
        (Scope::Endpoint(endpoint), owner)
    }

    pub(super) fn news(&mut self, at: Timestamp, endpoint: EndpointId, news: News) {
        let detail = match news {
            News::BreakerTripped(reason) => json!({ "reason": reason }),
            News::Recovered => json!({}),
            News::DisableWarning(cause) | News::Disabled(cause) => json!({ "cause": cause }),
        };
        self.notice(at, self.about(endpoint), news.name(), detail);
    }

    fn gather(&mut self, now: Timestamp, before: Timestamp, limit: usize) -> usize {
        let after = too_far_ahead(now, before);
        let taken = self.failures.take_outside(before, after, limit);
        let notices = taken.notices();
        let count = notices.len();
        for (endpoint, last_at, detail) in notices {
            self.notice(last_at, self.about(endpoint), DELIVERY_FAILED, detail);
        }
        count
    }

    fn claim_letters(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Vec<PendingEmail> {
        self.letters
            .retain(|_, kept| !kept.is_due(now, longest) || !kept.is_empty());
        let due = self
            .letters
            .values()
            .filter(|kept| kept.is_due(now, longest));
        let mut due: Vec<StoredEmail> = due.cloned().collect();
        due.sort_by_key(|kept| (kept.due_at, kept.letter.recipient.clone()));
        due.truncate(limit);
        for kept in &due {
            let claimed = self.letters.get_mut(&kept.letter.recipient);
            claimed.expect("the email was found above").due_at = until;
        }
        due.into_iter().map(StoredEmail::into_letter).collect()
    }
}
