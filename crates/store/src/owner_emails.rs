//! Email addresses of endpoint owners: their confirmation, and the limits of emails to them.
//!
//! An address that a tenant sets gets no email until its owner has confirmed it. [`OwnerEmails`] persists the requests
//! ([`ConfirmationRequest`]) and the tokens of the links, of which only hashes are stored. A confirmation applies to one
//! tenant and one address, and to all endpoints of the tenant that have this address. [`EmailUsage`] counts the emails
//! of a tenant per day (UTC). [`StoredConfirmation`] and [`EmailUsage`] hold the rules; all stores share them.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Span, Timestamp};

use crate::{Answer, EmailResult, KeyHash};

/// Time for which an address gets no second confirmation email.
pub const CONFIRMATION_INTERVAL: Span = Span::from_days(1);
/// Validity of the link in a confirmation email.
pub const CONFIRMATION_LIFE: Span = Span::from_days(3);
/// Time for which a request waits for its email to be sent. It is longer than [`CONFIRMATION_LIFE`], because several
/// tenants may wait for the same address.
pub const MAX_CONFIRMATION_WAIT: Span = Span::from_days(7);
/// Maximum number of failed tries to send a confirmation email that are repeated.
pub const MAX_CONFIRMATION_TRIES: u32 = 100;
/// Maximum time between two tries to send a confirmation email. A later due time was set before the clock was set back.
pub const MAX_CONFIRMATION_PAUSE: Span = Span::from_hours(1);
/// Name of the notification about a tenant that has reached its daily limit of emails.
pub const EMAIL_LIMIT_REACHED: &str = "email.limit_reached";

/// Length of a day, in milliseconds.
const DAY_MS: u64 = Span::from_days(1).as_millis();

/// Limits of a tenant's emails to owners, per day (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerEmailLimits {
    /// Maximum number of emails, confirmation emails included.
    pub emails: u32,
    /// Maximum number of addresses that are asked to confirm.
    pub recipients: u32,
}

/// A request for a confirmation email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationRequest {
    /// The tenant that set the address.
    pub tenant: TenantId,
    /// The address.
    pub recipient: String,
    /// The endpoint that it was set for.
    pub endpoint: EndpointId,
}

/// The result of requesting a confirmation email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationResult {
    /// The email will be sent.
    Queued,
    /// The address got an email less than [`CONFIRMATION_INTERVAL`] ago. The next one can be requested at this time.
    TooSoon(Timestamp),
    /// The tenant has reached a daily limit.
    LimitReached {
        /// True for the first email of the day above a limit.
        is_first: bool,
    },
    /// There is no such tenant.
    NoSuchTenant,
}

/// The result of counting an email to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailAllowance {
    /// It is within the limit, and counted.
    Within,
    /// The limit is reached: the email must not be sent.
    LimitReached {
        /// True for the first email of the day above a limit.
        is_first: bool,
    },
}

impl ConfirmationResult {
    /// Returns whether the email was counted as one above the limit, and as the first.
    pub fn allowance(self) -> EmailAllowance {
        match self {
            ConfirmationResult::LimitReached { is_first } => {
                EmailAllowance::LimitReached { is_first }
            }
            ConfirmationResult::Queued
            | ConfirmationResult::TooSoon(_)
            | ConfirmationResult::NoSuchTenant => EmailAllowance::Within,
        }
    }
}

/// Persists confirmations of owner addresses, and the number of emails per tenant and day.
pub trait OwnerEmails {
    /// Returns true if an endpoint of the tenant that is not deleted has this address confirmed. Upper and lower case
    /// are the same address.
    fn is_owner_confirmed(&self, tenant: TenantId, recipient: String) -> Answer<bool>;

    /// Enqueues a confirmation email, if it is within the limits. A request that already waits is not counted again.
    fn request_confirmation(
        &self,
        now: Timestamp,
        request: ConfirmationRequest,
        limits: OwnerEmailLimits,
    ) -> Answer<ConfirmationResult>;

    /// Claims due confirmation emails, longest due first, one for each of the tokens. The token of an email that was
    /// claimed before is invalid from then on. A claimed email becomes due again at `until` if no result is recorded by
    /// then. An address that got an email of another tenant less than [`CONFIRMATION_INTERVAL`] ago has to wait. Also
    /// deletes a few expired confirmations and old counts.
    fn claim_confirmations(
        &self,
        now: Timestamp,
        until: Timestamp,
        tokens: Vec<KeyHash>,
    ) -> Answer<Vec<(KeyHash, ConfirmationRequest)>>;

    /// Records the result of sending the email with this token.
    fn record_confirmation_result(&self, token: KeyHash, result: EmailResult) -> Answer<()>;

    /// Returns the confirmation that this token is for, unless it was used or has expired.
    fn confirmation(&self, now: Timestamp, token: KeyHash) -> Answer<Option<ConfirmationRequest>>;

    /// Confirms the address that this token is for, and invalidates the token. Returns the number of endpoints with this
    /// address, or `None` if the token is unknown, was used or has expired. Changes the revision of these endpoints.
    fn confirm_owner(&self, now: Timestamp, token: KeyHash) -> Answer<Option<u64>>;

    /// Counts an email to an owner for the tenant. The first email above the limit on a day creates a notification
    /// ([`EMAIL_LIMIT_REACHED`]). Emails of a deleted tenant are not counted.
    fn count_owner_email(
        &self,
        now: Timestamp,
        tenant: TenantId,
        limit: u32,
    ) -> Answer<EmailAllowance>;
}

/// Returns the form of an address in which addresses are compared.
pub fn address_key(recipient: &str) -> String {
    recipient.to_ascii_lowercase()
}

/// Returns the number of the day (UTC) that emails are counted for.
pub fn day_of(now: Timestamp) -> u64 {
    now.0 / DAY_MS
}

/// Number of emails of a tenant on one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmailUsage {
    /// Emails to owners, confirmation emails included.
    pub emails: u32,
    /// Addresses that were asked to confirm.
    pub recipients: u32,
    /// Emails above the limit.
    pub dropped: u32,
}

impl EmailUsage {
    /// Counts an email.
    pub fn take_email(&mut self, limit: u32) -> EmailAllowance {
        if self.emails >= limit {
            return self.drop_email();
        }
        self.emails += 1;
        EmailAllowance::Within
    }

    /// Counts a confirmation email.
    pub fn take_confirmation(&mut self, limits: OwnerEmailLimits) -> EmailAllowance {
        if self.recipients >= limits.recipients {
            return self.drop_email();
        }
        let taken = self.take_email(limits.emails);
        self.recipients += u32::from(taken == EmailAllowance::Within);
        taken
    }

    fn drop_email(&mut self) -> EmailAllowance {
        self.dropped = self.dropped.saturating_add(1);
        let is_first = self.dropped == 1;
        EmailAllowance::LimitReached { is_first }
    }
}

/// A confirmation as stores persist it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConfirmation {
    /// The address, tenant and endpoint.
    pub request: ConfirmationRequest,
    /// The time of the next try to send it, if it is not sent yet.
    pub due_at: Option<Timestamp>,
    /// Number of failed tries.
    pub tries: u32,
    /// The time at which it was last sent.
    pub sent_at: Option<Timestamp>,
    /// Hash of the token in the link, if it is valid.
    pub token: Option<KeyHash>,
    /// The time after which it is deleted.
    pub expires_at: Timestamp,
}

impl StoredConfirmation {
    /// Decides about a request, given the stored confirmation of the same tenant and address. Returns the result and
    /// what is to be stored, if that changes.
    pub fn request(
        stored: Option<StoredConfirmation>,
        request: ConfirmationRequest,
        now: Timestamp,
        usage: &mut EmailUsage,
        limits: OwnerEmailLimits,
    ) -> (ConfirmationResult, Option<StoredConfirmation>) {
        let stored = stored.filter(|stored| stored.expires_at > now);
        let waits = stored.as_ref().is_some_and(|it| it.due_at.is_some());
        if let Some(stored) = stored.clone().filter(|_| waits) {
            return (ConfirmationResult::Queued, Some(Self { request, ..stored }));
        }
        let sent_at = stored.as_ref().and_then(|stored| stored.sent_at);
        if let Some(next_at) = sent_at.and_then(|at| next_allowed(now, at)) {
            return (ConfirmationResult::TooSoon(next_at), None);
        }
        match usage.take_confirmation(limits) {
            EmailAllowance::LimitReached { is_first } => {
                (ConfirmationResult::LimitReached { is_first }, None)
            }
            EmailAllowance::Within => {
                let queued = StoredConfirmation {
                    request,
                    due_at: Some(now),
                    tries: 0,
                    sent_at: None,
                    // A link that was sent before stays valid until the next one is sent.
                    token: stored.and_then(|stored| stored.token),
                    expires_at: now.after(MAX_CONFIRMATION_WAIT),
                };
                (ConfirmationResult::Queued, Some(queued))
            }
        }
    }

    /// Returns true if its email can be sent now.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let latest = now.after(MAX_CONFIRMATION_PAUSE);
        self.expires_at > now && self.due_at.is_some_and(|at| at <= now || at > latest)
    }

    /// Marks it as being sent with this token.
    pub fn claim(&mut self, now: Timestamp, until: Timestamp, token: KeyHash) {
        self.token = Some(token);
        self.sent_at = Some(now);
        self.due_at = Some(until);
        self.expires_at = now.after(CONFIRMATION_LIFE);
    }

    /// Records the result of sending it.
    pub fn settle(&mut self, result: &EmailResult) {
        match result {
            EmailResult::Sent { quiet_until: _ } => self.due_at = None,
            EmailResult::Later { at } if self.tries < MAX_CONFIRMATION_TRIES => {
                self.due_at = Some(*at);
                self.tries += 1;
                self.sent_at = None;
                self.token = None;
            }
            // Not requested again within the interval, although it has not arrived.
            EmailResult::Later { .. } | EmailResult::Dropped => {
                self.due_at = None;
                self.token = None;
            }
        }
    }
}

/// Returns the earliest time of the next confirmation email after one that was sent at `sent_at`, if that is later than
/// now. A time in the future was stored before the clock was set back.
pub fn next_allowed(now: Timestamp, sent_at: Timestamp) -> Option<Timestamp> {
    let next_at = sent_at.min(now).after(CONFIRMATION_INTERVAL);
    (next_at > now).then_some(next_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: OwnerEmailLimits = OwnerEmailLimits {
        emails: 3,
        recipients: 2,
    };

    fn request() -> ConfirmationRequest {
        ConfirmationRequest {
            tenant: "acme".parse().expect("a tenant id"),
            recipient: "Owner@example.com".to_owned(),
            endpoint: EndpointId(1),
        }
    }

    fn at(hours: u64) -> Timestamp {
        Timestamp(0).after(Span::from_hours(1_000 + hours))
    }

    #[test]
    fn an_address_is_asked_once_a_day() {
        let mut usage = EmailUsage::default();
        let mut ask =
            |stored, now| StoredConfirmation::request(stored, request(), now, &mut usage, LIMITS);
        let (result, stored) = ask(None, at(0));
        assert_eq!(result, ConfirmationResult::Queued);
        let (result, mut stored) = ask(stored, at(1));
        assert_eq!(result, ConfirmationResult::Queued, "it waits already");
        let sent = stored.as_mut().expect("a confirmation");
        sent.claim(at(2), at(3), KeyHash([1; 32]));
        let quiet_until = at(2);
        sent.settle(&EmailResult::Sent { quiet_until });
        assert_eq!(
            ask(stored.clone(), at(3)),
            (ConfirmationResult::TooSoon(at(26)), None)
        );
        let (result, again) = ask(stored, at(26));
        assert_eq!(result, ConfirmationResult::Queued);
        let again = again.expect("a confirmation");
        assert_eq!(again.token, Some(KeyHash([1; 32])), "the first link works");
        assert_eq!((usage.emails, usage.recipients), (2, 2));
    }

    #[test]
    fn a_tenant_has_daily_limits() {
        let mut usage = EmailUsage::default();
        let within = EmailAllowance::Within;
        let above = |is_first| EmailAllowance::LimitReached { is_first };
        assert_eq!(usage.take_confirmation(LIMITS), within);
        assert_eq!(usage.take_confirmation(LIMITS), within);
        assert_eq!(usage.take_confirmation(LIMITS), above(true));
        assert_eq!(usage.take_email(LIMITS.emails), within);
        assert_eq!(usage.take_email(LIMITS.emails), above(false));
        let expected = EmailUsage {
            emails: 3,
            recipients: 2,
            dropped: 2,
        };
        assert_eq!(usage, expected);
        assert_eq!(day_of(Timestamp(DAY_MS - 1)) + 1, day_of(Timestamp(DAY_MS)));
    }

    #[test]
    fn an_email_that_was_not_taken_gets_a_new_token() {
        let mut usage = EmailUsage::default();
        let (_, stored) = StoredConfirmation::request(None, request(), at(0), &mut usage, LIMITS);
        let mut stored = stored.expect("a confirmation");
        assert!(stored.is_due(at(0)));
        stored.claim(at(0), at(1), KeyHash([1; 32]));
        stored.settle(&EmailResult::Later { at: at(1) });
        assert_eq!(
            (stored.token, stored.sent_at, stored.tries),
            (None, None, 1)
        );
        assert!(stored.is_due(at(1)));
        stored.claim(at(1), at(2), KeyHash([2; 32]));
        assert_eq!(stored.expires_at, at(1).after(CONFIRMATION_LIFE));
        stored.tries = MAX_CONFIRMATION_TRIES;
        stored.settle(&EmailResult::Later { at: at(2) });
        assert!(stored.due_at.is_none() && stored.token.is_none());
    }

    #[test]
    fn a_clock_set_back_does_not_extend_the_wait() {
        let next = next_allowed(at(0), at(500)).expect("a time");
        assert_eq!(next, at(24));
        let mut usage = EmailUsage::default();
        let (_, stored) = StoredConfirmation::request(None, request(), at(500), &mut usage, LIMITS);
        assert!(stored.expect("a confirmation").is_due(at(0)));
    }
}
