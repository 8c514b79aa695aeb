//! Plans: named sets of limits, and which limit holds for whom.
//!
//! A limit is the tenant's own, else its plan's, else the server's. Plans are the operator's, so they are no part of
//! what is stored: a tenant names the one it is on, and what that says is looked up when it is asked for.

use std::collections::BTreeMap;

use crate::{Limits, Tenant};

/// What a tenant can be limited in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    /// How many endpoints.
    Endpoints,
    /// How many events a second.
    EventsPerSecond,
    /// How many events a month.
    EventsPerMonth,
    /// How large a payload.
    PayloadBytes,
    /// How many attempts a retry policy may ask for.
    MaxAttempts,
    /// How long what is finished is kept.
    Retention,
    /// How long what events carry is kept.
    PayloadRetention,
    /// How long attempts are kept.
    AttemptRetention,
    /// How many attempts may be under way at once.
    InFlight,
}

impl LimitName {
    /// All of them, in the order in which they are shown.
    pub const ALL: [LimitName; 9] = [
        LimitName::Endpoints,
        LimitName::EventsPerSecond,
        LimitName::EventsPerMonth,
        LimitName::PayloadBytes,
        LimitName::MaxAttempts,
        LimitName::Retention,
        LimitName::PayloadRetention,
        LimitName::AttemptRetention,
        LimitName::InFlight,
    ];

    /// What it is called, everywhere.
    pub fn name(self) -> &'static str {
        match self {
            LimitName::Endpoints => "endpoints",
            LimitName::EventsPerSecond => "events_per_second",
            LimitName::EventsPerMonth => "events_per_month",
            LimitName::PayloadBytes => "payload_bytes",
            LimitName::MaxAttempts => "max_attempts",
            LimitName::Retention => "retention",
            LimitName::PayloadRetention => "payload_retention",
            LimitName::AttemptRetention => "attempt_retention",
            LimitName::InFlight => "in_flight",
        }
    }

    /// Whether these limits say something of it.
    pub fn is_in(self, limits: &Limits) -> bool {
        match self {
            LimitName::Endpoints => limits.endpoints.is_some(),
            LimitName::EventsPerSecond => limits.events_per_second.is_some(),
            LimitName::EventsPerMonth => limits.events_per_month.is_some(),
            LimitName::PayloadBytes => limits.payload_bytes.is_some(),
            LimitName::MaxAttempts => limits.max_attempts.is_some(),
            LimitName::Retention => limits.retention.is_some(),
            LimitName::PayloadRetention => limits.payload_retention.is_some(),
            LimitName::AttemptRetention => limits.attempt_retention.is_some(),
            LimitName::InFlight => limits.in_flight.is_some(),
        }
    }
}

/// For how many months it is known how much was used.
pub const MONTHS_KEPT: u32 = 13;

/// How much a tenant uses of what it is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Endpoints that are not deleted.
    pub endpoints: u64,
    /// Events that were accepted in the calendar month, in UTC, whether they are still kept or not. Tests are among
    /// them; what is found again by its idempotency key and what a replay sends is not.
    pub events_this_month: u64,
}

/// Who says what a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The tenant's own limits.
    Tenant,
    /// Its plan.
    Plan,
    /// The server, or nobody: then there is no such limit.
    Server,
}

/// The operator's plans, and what holds where neither a tenant nor its plan says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plans {
    /// What holds otherwise. What is absent is not limited.
    pub server: Limits,
    /// By their names.
    pub named: BTreeMap<String, Limits>,
}

impl Plans {
    /// What a tenant is allowed: every limit that holds for it, whoever says so.
    pub fn limits_of(&self, tenant: &Tenant) -> Limits {
        self.limits(&tenant.limits, tenant.plan.as_deref())
    }

    /// The same of a tenant with these limits on this plan.
    pub fn limits(&self, own: &Limits, plan: Option<&str>) -> Limits {
        own.or(&self.of_plan(plan)).or(&self.server)
    }

    /// Who says what a limit of a tenant is.
    pub fn source(&self, tenant: &Tenant, limit: LimitName) -> LimitSource {
        if limit.is_in(&tenant.limits) {
            LimitSource::Tenant
        } else if limit.is_in(&self.of_plan(tenant.plan.as_deref())) {
            LimitSource::Plan
        } else {
            LimitSource::Server
        }
    }

    /// Whether a tenant is on a plan that there is not: the configuration may have lost it since. Then the server's
    /// limits hold.
    pub fn lacks_plan_of(&self, tenant: &Tenant) -> bool {
        let plan = tenant.plan.as_ref();
        plan.is_some_and(|plan| !self.named.contains_key(plan))
    }

    fn of_plan(&self, plan: Option<&str>) -> Limits {
        let plan = plan.and_then(|plan| self.named.get(plan));
        plan.copied().unwrap_or_default()
    }
}

impl Limits {
    /// These limits, and where they do not say, the others.
    fn or(&self, other: &Limits) -> Limits {
        Limits {
            endpoints: self.endpoints.or(other.endpoints),
            events_per_second: self.events_per_second.or(other.events_per_second),
            events_per_month: self.events_per_month.or(other.events_per_month),
            payload_bytes: self.payload_bytes.or(other.payload_bytes),
            max_attempts: self.max_attempts.or(other.max_attempts),
            retention: self.retention.or(other.retention),
            payload_retention: self.payload_retention.or(other.payload_retention),
            attempt_retention: self.attempt_retention.or(other.attempt_retention),
            in_flight: self.in_flight.or(other.in_flight),
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::time::{Span, Timestamp};

    use super::*;

    fn tenant(plan: Option<&str>, limits: Limits) -> Tenant {
        Tenant {
            id: "acme".parse().expect("an id"),
            name: "Acme".to_owned(),
            default_retry_policy: None,
            plan: plan.map(str::to_owned),
            limits,
            created_at: Timestamp(0),
            revision: 0,
        }
    }

    fn everything(number: u32) -> Limits {
        Limits {
            endpoints: Some(number),
            events_per_second: Some(number),
            events_per_month: Some(number.into()),
            payload_bytes: Some(number.into()),
            max_attempts: Some(number),
            retention: Some(Span::from_days(number.into())),
            payload_retention: Some(Span::from_days(number.into())),
            attempt_retention: Some(Span::from_days(number.into())),
            in_flight: Some(number),
        }
    }

    #[test]
    fn the_tenant_says_then_its_plan_then_the_server() {
        let plans = Plans {
            server: everything(1),
            named: BTreeMap::from([("pro".to_owned(), everything(2))]),
        };
        for (plan, own, holds, source) in [
            (None, Limits::default(), 1, LimitSource::Server),
            (Some("pro"), Limits::default(), 2, LimitSource::Plan),
            (Some("gone"), Limits::default(), 1, LimitSource::Server),
            (Some("pro"), everything(3), 3, LimitSource::Tenant),
            (None, everything(3), 3, LimitSource::Tenant),
        ] {
            let tenant = tenant(plan, own);
            assert_eq!(plans.limits_of(&tenant), everything(holds), "{plan:?}");
            for limit in LimitName::ALL {
                assert_eq!(plans.source(&tenant, limit), source, "{}", limit.name());
            }
            assert_eq!(plans.lacks_plan_of(&tenant), plan == Some("gone"));
        }
    }

    #[test]
    fn limits_are_named_as_they_are_stored() {
        let stored = serde_json::to_value(everything(1)).expect("limits");
        let mut stored: Vec<&str> = stored
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        stored.sort_unstable();
        let mut names = LimitName::ALL.map(LimitName::name);
        names.sort_unstable();
        assert_eq!(stored, names);
        for limit in LimitName::ALL {
            assert!(limit.is_in(&everything(1)));
            assert!(!limit.is_in(&Limits::default()));
        }
    }
}
