//! What a tenant is allowed, and what it is told when it wants more.
//!
//! Where waiting helps, the answer is 429 with `Retry-After`; where only a change of the tenant or of its plan does, 403;
//! where the payload is too large, 413. Each names the limit, in its words and in its member `limit`.
//!
//! Which events still fit, the store decides, exactly and for all nodes together. What it has refused is remembered for
//! as long as it would refuse it again, so that whoever keeps trying costs it nothing. That is never stricter than the
//! store: only events without an idempotency key are surely new, and they are refused unasked only if they are as many as
//! all events together were that it refused.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use posthaste_core::mistakes::Mistakes;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Allowance, LimitName, Limits, Tenant};

use super::App;
use super::auth::KnownTenant;
use super::code::Code;
use super::problem::Problem;

/// What the store last refused to take in for a tenant. Forgotten with every change of the tenant.
#[derive(Debug, Default)]
pub struct Refusal {
    last: Mutex<Option<Refused>>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    limit: LimitName,
    /// So many, or more, are refused
    events: u64,
    /// from then on
    since: Timestamp,
    /// until then.
    until: Timestamp,
}

impl Refusal {
    fn remember(&self, refused: Refused) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
    }

    /// Which limit so many new events surely exceed now, and for how much longer.
    fn of(&self, now: Timestamp, events: u64) -> Option<(LimitName, Span)> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back tells nothing of what was refused later.
        let holds = |last: &Refused| events >= last.events && last.since <= now && now < last.until;
        last.filter(holds)
            .map(|last| (last.limit, last.until.since(now)))
    }
}

impl App {
    /// What a tenant is allowed: its own limits, else its plan's, else the server's.
    pub fn limits_of(&self, tenant: &Tenant) -> Limits {
        self.settings.plans.limits_of(tenant)
    }

    /// How many events may be taken in for a tenant; or why so many that are surely new will not be.
    pub fn allowance(
        &self,
        tenant: &KnownTenant,
        now: Timestamp,
        surely_new: u64,
    ) -> Result<Allowance, Problem> {
        let limits = self.limits_of(&tenant.tenant);
        match tenant.refusal.of(now, surely_new) {
            Some((limit, wait)) => Err(too_many_events(&limits, limit, Some(wait))),
            None => Ok(Allowance {
                per_second: limits.events_per_second,
                per_month: limits.events_per_month,
            }),
        }
    }

    /// What the caller is told if the store has refused so many events. How many of them were new it does not say: at
    /// most all of them, so as many that are surely new do not fit either.
    pub fn over_limit(
        &self,
        tenant: &KnownTenant,
        now: Timestamp,
        count: u64,
        (limit, wait): (LimitName, Option<Span>),
    ) -> Problem {
        if let Some(wait) = wait {
            tenant.refusal.remember(Refused {
                limit,
                events: count,
                since: now,
                until: now.after(wait),
            });
        }
        too_many_events(&self.limits_of(&tenant.tenant), limit, wait)
    }

    /// How large a payload of this tenant may be.
    pub fn payload_bytes(&self, tenant: &Tenant) -> u64 {
        let allowed = self.limits_of(tenant).payload_bytes;
        allowed.unwrap_or(self.settings.body_bytes)
    }

    /// How many endpoints a tenant may have.
    pub fn endpoints_allowed(&self, tenant: &Tenant) -> u32 {
        self.limits_of(tenant).endpoints.unwrap_or(u32::MAX)
    }

    /// Notes a mistake if a policy asks for more attempts than a tenant is allowed.
    pub fn check_policy(
        &self,
        policy: &RetryPolicy,
        tenant: &Tenant,
        field: &str,
        mistakes: &mut Mistakes,
    ) {
        let Some(allowed) = self.limits_of(tenant).max_attempts else {
            return;
        };
        if policy.max_attempts > allowed {
            let message = format!(
                "must be at most {allowed}, which is the limit max_attempts of this tenant; the policy asks for {}",
                policy.max_attempts
            );
            mistakes.note(format!("{field}.max_attempts"), message);
        }
    }
}

/// More events than a tenant may send: now, or ever if there is no wait that helps.
fn too_many_events(limits: &Limits, limit: LimitName, wait: Option<Span>) -> Problem {
    let name = limit.name();
    let most = match limit {
        LimitName::EventsPerSecond => limits.events_per_second.map(u64::from),
        LimitName::EventsPerMonth => limits.events_per_month,
        LimitName::Endpoints
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention
        | LimitName::InFlight => None,
    };
    let most = most.unwrap_or(0);
    let Some(wait) = wait else {
        let detail = match most {
            0 => format!("The limit {name} is 0: this tenant may send no events."),
            most => format!(
                "The limit {name} is {most}, and these are more at once. Nothing was accepted; send fewer events in one request, or have the limit raised."
            ),
        };
        return refused(name, detail);
    };
    let detail = match limit {
        LimitName::EventsPerMonth => format!(
            "The limit {name} is {most}, and so many were accepted in this calendar month. Nothing was accepted; send it again when the next month has begun, in UTC, or have the limit raised."
        ),
        LimitName::EventsPerSecond
        | LimitName::Endpoints
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention
        | LimitName::InFlight => format!(
            "The limit {name} is {most}. Nothing was accepted; send it again after Retry-After."
        ),
    };
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(name)
        .after(wait)
}

/// Waiting would not help, so nobody is told to.
fn refused(limit: &'static str, detail: String) -> Problem {
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(limit)
        .with_status(StatusCode::FORBIDDEN)
}

/// A payload of a tenant is larger than it may be.
pub fn payload_too_large(limit_bytes: u64) -> Problem {
    let detail = format!("The limit payload_bytes is {limit_bytes}. Send a smaller payload.");
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(LimitName::PayloadBytes.name())
        .with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// A tenant has as many endpoints as it may have.
pub fn too_many_endpoints(limit: u32) -> Problem {
    let detail =
        format!("The limit endpoints is {limit}. Delete an endpoint, or have the limit raised.");
    refused(LimitName::Endpoints.name(), detail)
}

/// A tenant has as many keys as it may have.
pub fn too_many_keys(limit: usize) -> Problem {
    let detail = format!("A tenant may have {limit} keys. Revoke one that is not used.");
    refused("keys", detail)
}

/// A tenant has as many links to its portal as it may have.
pub fn too_many_links(limit: usize) -> Problem {
    let detail = format!(
        "A tenant may have {limit} portal links at once. End one that is not used, or wait until some expire."
    );
    refused("portal_links", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_refused_again_and_nothing_else() {
        let refusal = Refusal::default();
        assert_eq!(refusal.of(Timestamp(1_000), 5), None);
        refusal.remember(Refused {
            limit: LimitName::EventsPerSecond,
            events: 3,
            since: Timestamp(1_000),
            until: Timestamp(1_500),
        });
        let again = Some((LimitName::EventsPerSecond, Span::from_millis(100)));
        assert_eq!(refusal.of(Timestamp(1_400), 3), again);
        assert_eq!(refusal.of(Timestamp(1_400), 9), again);
        assert_eq!(refusal.of(Timestamp(1_400), 2), None, "fewer may fit");
        assert_eq!(refusal.of(Timestamp(1_500), 3), None, "the wait is over");
        assert_eq!(
            refusal.of(Timestamp(999), 3),
            None,
            "the clock was set back"
        );
    }
}
