//! Notifications and emails that wait to be sent.
//!
//! [`Notifications`] persists two queues. Notifications ([`Notification`]) are numbered and processed in order by the
//! notification dispatcher. Each becomes lines ([`EmailLine`]) of emails, of which every recipient has at most one
//! pending ([`PendingEmail`]). [`StoredEmail`] holds the rules for adding lines to an email and for what remains after
//! it was sent; all stores share them.

use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Answer, AuditEntry, CreateResult, SubjectScope};

/// Maximum number of lines in an email. Further lines are only counted.
pub const MAX_EMAIL_LINES: usize = 50;

/// Maximum number of unprocessed notifications.
pub const MAX_PENDING_NOTIFICATIONS: u64 = 100_000;

/// A notification, kept until the notification dispatcher has processed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Sequence number.
    pub number: u64,
    /// The object that it is about.
    pub scope: SubjectScope,
    /// The time of the occurrence.
    pub at: Timestamp,
    /// The operational event's name, such as `endpoint.breaker_tripped`.
    pub name: String,
    /// Cause, counts and other details.
    pub detail: Value,
}

/// One notification as a line of an email. Stored as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmailLine {
    /// The time of the occurrence.
    pub at: Timestamp,
    /// The name of the notification.
    pub name: String,
    /// The tenant, if the notification is about one.
    pub tenant: Option<String>,
    /// The endpoint id in the API's format.
    pub endpoint: Option<String>,
    /// The URL of that endpoint.
    pub endpoint_url: Option<String>,
    /// Cause, counts and other details.
    pub detail: Value,
}

/// The pending email of one recipient.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingEmail {
    /// The email address of the recipient.
    pub recipient: String,
    /// Counts all lines ever added, so that lines added while the email is being sent are not lost.
    pub revision: u64,
    /// The time at which its first line was added. If the first lines were sent already, the time of the occurrence
    /// that the first remaining line reports.
    pub first_at: Timestamp,
    /// Number of failed tries to send it.
    pub tries: u32,
    /// Its lines, oldest first.
    pub lines: Vec<EmailLine>,
    /// Number of lines that did not fit. Can be the only content, if many lines came while the last email was being
    /// sent.
    pub omitted: u64,
}

/// Maximum time that an email waits before it is sent. Bounds the delay when the clock is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxEmailDelay {
    /// For an email without a failed try: while it collects lines, in the quiet time, or while it is being sent.
    pub untried: Span,
    /// For an email with a failed try: until the next try.
    pub tried: Span,
}

impl MaxEmailDelay {
    /// No bound in practice (100 years).
    pub const ANY: MaxEmailDelay = MaxEmailDelay {
        untried: Span::from_days(36_500),
        tried: Span::from_days(36_500),
    };

    /// The latest plausible due times, for emails without and with a failed try. A later due time counts as due now.
    pub(crate) fn latest(self, now: Timestamp) -> (Timestamp, Timestamp) {
        (now.after(self.untried), now.after(self.tried))
    }
}

/// Returns a time limit: failures after it were recorded before the clock was set back.
pub fn too_far_ahead(now: Timestamp, before: Timestamp) -> Timestamp {
    now.after(now.since(before))
}

/// The result of sending an email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmailResult {
    /// The mail server accepted it. The recipient gets no further email until `quiet_until`.
    Sent {
        /// The earliest time of the next email.
        quiet_until: Timestamp,
    },
    /// A temporary error: it must be sent again.
    Later {
        /// The time of the next try.
        at: Timestamp,
    },
    /// It was refused for good and will not be sent.
    Dropped,
}

/// Persists notifications and pending emails.
///
/// The notification dispatcher processes notifications in order. Its actions are idempotent, and a notification is
/// marked as processed in the same transaction that adds its lines to the emails. So a crash loses nothing and
/// repeats nothing.
///
/// Numbers have no gaps and grow in commit order. At most [`MAX_PENDING_NOTIFICATIONS`] notifications wait; beyond
/// that the oldest are deleted, which the notification dispatcher sees as a gap.
pub trait Notifications {
    /// Returns up to `limit` notifications with a number above `after`, oldest first.
    fn notifications(&self, after: u64, limit: usize) -> Answer<Vec<Notification>>;

    /// Writes the audit entry for an action that a notification reports. The entry belongs to the tenant that the
    /// notification is about: a later tenant with the same id cannot read it. If the notification is already
    /// processed, nothing is written and the result is [`CreateResult::Taken`].
    fn audit_notification(&self, notification: u64, act: AuditEntry) -> Answer<CreateResult>;

    /// Creates one `delivery.failed` notification for each endpoint whose first uncollected failure is older than
    /// `before`, with the count, the causes and an example. Takes up to `limit` endpoints, those with the oldest
    /// failures first, and returns their number. Deliveries that failed because their endpoint was deleted are not
    /// reported. A failure as far ahead of `now` as `before` is behind it was recorded before the clock was set back.
    /// It is collected at once instead of waiting until the clock reaches its time again.
    fn collect_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize>;

    /// Returns the number of the last processed notification.
    fn last_processed_notification(&self) -> Answer<u64>;

    /// Moves that number from `from` to `up_to`, adds lines to the emails of their recipients, and deletes the
    /// processed notifications. A new email is due at `due_at`, or at the end of the recipient's quiet time if that
    /// is later. Returns false and does nothing if another node has moved the number.
    fn complete_notifications(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, EmailLine)>,
        due_at: Timestamp,
    ) -> Answer<bool>;

    /// Claims up to `limit` due emails, longest due first. A claimed email becomes due again at `until` if no result
    /// is recorded by then. An email whose due time exceeds the bound in `longest` was scheduled before the clock was
    /// set back, and counts as due.
    fn claim_emails(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Answer<Vec<PendingEmail>>;

    /// Records the result of sending an email as it was at `revision`. Lines added since then stay. Returns false and
    /// does nothing if that email no longer exists.
    fn record_email_result(
        &self,
        recipient: String,
        revision: u64,
        posted: EmailResult,
    ) -> Answer<bool>;
}

/// A line as stores persist it: with the revision of the email that it was added in, to know whether it was part of
/// the email that was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEmailLine {
    /// The revision of the email that adding the line produced.
    #[serde(default)]
    pub came: u64,
    /// The content of the line.
    #[serde(flatten)]
    pub line: EmailLine,
}

/// An email as stores persist it: with its due time. Without lines it marks the recipient's quiet time, which ends at
/// the due time.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEmail {
    /// Everything but the lines.
    pub email: PendingEmail,
    /// Its lines, oldest first.
    pub lines: Vec<StoredEmailLine>,
    /// The time at which it is sent.
    pub due_at: Timestamp,
}

/// The new state of a stored email after a send result.
#[derive(Clone, Debug, PartialEq)]
pub enum EmailAfterSend {
    /// Store it in this form.
    Kept(StoredEmail),
    /// Nothing remains; delete it.
    Delete,
    /// The result belongs to an earlier email; change nothing.
    Unchanged,
}

impl StoredEmail {
    /// Creates an email without lines for a recipient that has none pending.
    pub fn new(recipient: String, now: Timestamp) -> StoredEmail {
        StoredEmail {
            email: PendingEmail {
                recipient,
                revision: 0,
                first_at: now,
                tries: 0,
                lines: Vec::new(),
                omitted: 0,
            },
            lines: Vec::new(),
            due_at: Timestamp(0),
        }
    }

    /// Returns the email in the form in which it is sent.
    pub fn into_pending(self) -> PendingEmail {
        let lines = self.lines.into_iter().map(|kept| kept.line);
        PendingEmail {
            lines: lines.collect(),
            ..self.email
        }
    }

    /// Returns whether it is due, or was scheduled before the clock was set back.
    pub fn is_due(&self, now: Timestamp, longest: MaxEmailDelay) -> bool {
        let (untried, tried) = longest.latest(now);
        let latest = match self.email.tries {
            0 => untried,
            1.. => tried,
        };
        self.due_at <= now || self.due_at > latest
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.email.omitted == 0
    }

    /// Adds a line, or only counts it if the email is full.
    pub fn add(&mut self, now: Timestamp, due_at: Timestamp, line: EmailLine) {
        if self.is_empty() {
            self.email.first_at = now;
            self.email.tries = 0;
            self.due_at = self.due_at.max(due_at);
        }
        let email = &mut self.email;
        email.revision += 1;
        if self.lines.len() < MAX_EMAIL_LINES {
            let came = email.revision;
            self.lines.push(StoredEmailLine { came, line });
        } else {
            email.omitted += 1;
        }
    }

    /// Returns what remains after the email, as it was at `revision`, was sent, failed or was refused.
    pub fn settle(mut self, revision: u64, posted: &EmailResult) -> EmailAfterSend {
        if self.is_empty() || revision > self.email.revision {
            return EmailAfterSend::Unchanged;
        }
        match posted {
            EmailResult::Sent { quiet_until } => {
                self.remove_sent_lines(revision);
                self.email.tries = 0;
                self.due_at = *quiet_until;
                EmailAfterSend::Kept(self)
            }
            EmailResult::Later { at } => {
                self.email.tries = self.email.tries.saturating_add(1);
                self.due_at = *at;
                EmailAfterSend::Kept(self)
            }
            EmailResult::Dropped => {
                self.remove_sent_lines(revision);
                self.email.tries = 0;
                match self.is_empty() {
                    true => EmailAfterSend::Delete,
                    false => EmailAfterSend::Kept(self),
                }
            }
        }
    }

    /// Removes the lines that were part of the email at `revision`, and corrects the number of omitted lines.
    /// Revisions after `revision` without a line here are lines that did not fit, so at most that many stay omitted.
    /// Omitted lines can be older than kept ones, if an email was sent in between.
    fn remove_sent_lines(&mut self, revision: u64) {
        let email = &mut self.email;
        self.lines.retain(|line| line.came > revision);
        let later = (email.revision - revision).saturating_sub(self.lines.len() as u64);
        email.omitted = email.omitted.min(later);
        if let Some(first) = self.lines.first() {
            email.first_at = first.line.at;
        }
    }
}

/// Groups lines by recipient, sorted by recipient.
pub fn by_recipient(
    lines: Vec<(String, EmailLine)>,
) -> std::collections::BTreeMap<String, Vec<EmailLine>> {
    let mut sorted: std::collections::BTreeMap<String, Vec<EmailLine>> = Default::default();
    for (recipient, line) in lines {
        sorted.entry(recipient).or_default().push(line);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64) -> EmailLine {
        EmailLine {
            at: Timestamp(number),
            name: "endpoint.recovered".to_owned(),
            tenant: None,
            endpoint: None,
            endpoint_url: None,
            detail: Value::Null,
        }
    }

    fn with(lines: std::ops::Range<u64>) -> StoredEmail {
        let mut kept = StoredEmail::new("ops@example.com".to_owned(), Timestamp(1));
        for number in lines {
            kept.add(Timestamp(5), Timestamp(9), line(number));
        }
        kept
    }

    fn sent() -> EmailResult {
        EmailResult::Sent {
            quiet_until: Timestamp(77),
        }
    }

    #[test]
    fn lines_added_while_sending_stay_even_in_a_full_email() {
        let most = MAX_EMAIL_LINES as u64;
        for (before, during) in [(1, 0), (1, 3), (most - 1, 5), (most, 2), (most + 9, 7)] {
            let mut kept = with(0..before);
            let revision = kept.email.revision;
            for number in before..before + during {
                kept.add(Timestamp(5), Timestamp(9), line(number));
            }
            let EmailAfterSend::Kept(left) = kept.settle(revision, &sent()) else {
                panic!("it stays");
            };
            assert_eq!(left.due_at, Timestamp(77));
            let email = left.into_pending();
            assert_eq!(email.lines.len() as u64 + email.omitted, during);
            for (index, line) in email.lines.iter().enumerate() {
                assert_eq!(line.at, Timestamp(before + index as u64));
            }
        }
    }

    #[test]
    fn omitted_lines_are_counted_across_emails() {
        let most = MAX_EMAIL_LINES as u64;
        let mut kept = with(0..most);
        // Seven more are added while it is sent, and do not fit.
        for number in most..most + 7 {
            kept.add(Timestamp(5), Timestamp(9), line(number));
        }
        let EmailAfterSend::Kept(mut kept) = kept.settle(most, &sent()) else {
            panic!("it stays");
        };
        assert_eq!((kept.lines.len(), kept.email.omitted), (0, 7));
        // Two fit, one of which is added while the next email is sent.
        kept.add(Timestamp(80), Timestamp(90), line(100));
        let revision = kept.email.revision;
        kept.add(Timestamp(81), Timestamp(90), line(101));
        // The result of the first email, which was taken for lost, arrives too late.
        for revision in [revision, most] {
            let EmailAfterSend::Kept(left) = kept.settle(revision, &sent()) else {
                panic!("it stays");
            };
            let email = left.clone().into_pending();
            assert_eq!((email.lines, email.omitted), (vec![line(101)], 0));
            kept = left;
        }
    }

    #[test]
    fn a_line_is_read_with_and_without_its_revision() {
        let kept = StoredEmailLine {
            came: 3,
            line: line(1),
        };
        let written = serde_json::to_string(&kept).expect("plain data");
        let read: StoredEmailLine = serde_json::from_str(&written).expect("it reads");
        assert_eq!(read, kept);
        let bare = serde_json::to_string(&kept.line).expect("plain data");
        let read: StoredEmailLine = serde_json::from_str(&bare).expect("it reads");
        assert_eq!(read, StoredEmailLine { came: 0, ..kept });
    }

    #[test]
    fn a_line_waits_for_the_end_of_the_quiet_time() {
        let mut kept = with(0..1);
        assert_eq!(kept.due_at, Timestamp(9));
        kept.add(Timestamp(6), Timestamp(10), line(1));
        assert_eq!(kept.due_at, Timestamp(9), "with the one that waits");
        let EmailAfterSend::Kept(mut quiet) = kept.settle(2, &sent()) else {
            panic!("it stays");
        };
        assert_eq!(quiet.lines, []);
        quiet.add(Timestamp(20), Timestamp(50), line(2));
        assert_eq!(quiet.due_at, Timestamp(77));
        assert_eq!(quiet.email.first_at, Timestamp(20));
    }

    #[test]
    fn a_clock_set_back_does_not_extend_the_wait() {
        let minute = |minutes: u64| Timestamp(100 * 86_400_000 + minutes * 60_000);
        let longest = MaxEmailDelay {
            untried: Span::from_mins(10),
            tried: Span::from_mins(60),
        };
        // It was sent: the quiet time of ten minutes starts, and another line is added.
        let posted = EmailResult::Sent {
            quiet_until: minute(10),
        };
        let EmailAfterSend::Kept(mut quiet) = with(0..1).settle(1, &posted) else {
            panic!("it stays");
        };
        quiet.add(minute(1), minute(2), line(1));
        // It was not accepted: it is tried again within the hour.
        let again = EmailResult::Later { at: minute(60) };
        let EmailAfterSend::Kept(tried) = with(0..1).settle(1, &again) else {
            panic!("it stays");
        };
        for back_mins in [0, 1, 5, 30, 24 * 60, 90 * 24 * 60] {
            for (kept, due, said) in [(&quiet, 10, 10), (&tried, 60, 60)] {
                let now = |passed: u64| Timestamp(minute(passed).0 - back_mins * 60_000);
                let waits = (0..=said).find(|passed| kept.is_due(now(*passed), longest));
                let waits = waits.expect("it is due in the time that was said");
                assert!(back_mins > 0 || waits == due, "and not sooner, by itself");
            }
        }
    }

    #[test]
    fn a_retried_email_is_complete_and_a_refused_one_is_deleted() {
        let again = EmailResult::Later { at: Timestamp(30) };
        let EmailAfterSend::Kept(kept) = with(0..3).settle(3, &again) else {
            panic!("it stays");
        };
        assert_eq!((kept.lines.len(), kept.email.tries), (3, 1));
        assert_eq!(kept.due_at, Timestamp(30));
        assert_eq!(
            kept.settle(3, &EmailResult::Dropped),
            EmailAfterSend::Delete
        );
        assert_eq!(with(0..3).settle(4, &sent()), EmailAfterSend::Unchanged);
        let EmailAfterSend::Kept(quiet) = with(0..1).settle(1, &sent()) else {
            panic!("it stays");
        };
        assert_eq!(quiet.settle(1, &sent()), EmailAfterSend::Unchanged);
    }
}
