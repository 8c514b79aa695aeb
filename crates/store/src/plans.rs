//! Plans: named sets of limits, and the rule for which limit applies to a tenant.
//!
//! A limit comes from the tenant, else from its plan, else from the server. [`Plans`] belong to the operator's
//! configuration and are not stored: a tenant stores only the name of its plan, and the limits are looked up when
//! needed.

use std::collections::BTreeMap;

use crate::{Limits, Tenant};

/// The limits that a tenant can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    /// Number of endpoints.
    Endpoints,
    /// Events per second.
    EventsPerSecond,
    /// Deliveries per second on each node.
    DeliveriesPerSecond,
    /// Events per month.
    EventsPerMonth,
    /// Size of a payload, in bytes.
    PayloadBytes,
    /// Number of attempts that a retry policy may ask for.
    MaxAttempts,
    /// Retention period of finished events and deliveries.
    Retention,
    /// Retention period of payloads.
    PayloadRetention,
    /// Retention period of attempts.
    AttemptRetention,
    /// Number of attempts in flight.
    InFlight,
    /// Number of schedules.
    Schedules,
    /// Shortest interval between two occurrences of a schedule.
    ShortestScheduleInterval,
}

impl LimitName {
    /// All limits, in display order.
    pub const ALL: [LimitName; 12] = [
        LimitName::Endpoints,
        LimitName::EventsPerSecond,
        LimitName::DeliveriesPerSecond,
        LimitName::EventsPerMonth,
        LimitName::PayloadBytes,
        LimitName::MaxAttempts,
        LimitName::Retention,
        LimitName::PayloadRetention,
        LimitName::AttemptRetention,
        LimitName::InFlight,
        LimitName::Schedules,
        LimitName::ShortestScheduleInterval,
    ];

    /// The name in the API, the configuration and the store.
    pub fn name(self) -> &'static str {
        match self {
            LimitName::Endpoints => "endpoints",
            LimitName::EventsPerSecond => "events_per_second",
            LimitName::DeliveriesPerSecond => "deliveries_per_second",
            LimitName::EventsPerMonth => "events_per_month",
            LimitName::PayloadBytes => "payload_bytes",
            LimitName::MaxAttempts => "max_attempts",
            LimitName::Retention => "retention",
            LimitName::PayloadRetention => "payload_retention",
            LimitName::AttemptRetention => "attempt_retention",
            LimitName::InFlight => "in_flight",
            LimitName::Schedules => "schedules",
            LimitName::ShortestScheduleInterval => "shortest_schedule_interval",
        }
    }

    /// Returns whether `limits` contains this limit.
    pub fn is_in(self, limits: &Limits) -> bool {
        match self {
            LimitName::Endpoints => limits.endpoints.is_some(),
            LimitName::EventsPerSecond => limits.events_per_second.is_some(),
            LimitName::DeliveriesPerSecond => limits.deliveries_per_second.is_some(),
            LimitName::EventsPerMonth => limits.events_per_month.is_some(),
            LimitName::PayloadBytes => limits.payload_bytes.is_some(),
            LimitName::MaxAttempts => limits.max_attempts.is_some(),
            LimitName::Retention => limits.retention.is_some(),
            LimitName::PayloadRetention => limits.payload_retention.is_some(),
            LimitName::AttemptRetention => limits.attempt_retention.is_some(),
            LimitName::InFlight => limits.in_flight.is_some(),
            LimitName::Schedules => limits.schedules.is_some(),
            LimitName::ShortestScheduleInterval => limits.shortest_schedule_interval.is_some(),
        }
    }
}

/// Number of months for which usage is kept.
pub const MONTHS_KEPT: u32 = 13;

/// A tenant's usage of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Endpoints that are not deleted.
    pub endpoints: u64,
    /// Events accepted in the current calendar month (UTC), including test events and events deleted since. Events
    /// found by their idempotency key and replayed deliveries are not counted.
    pub events_this_month: u64,
    /// Schedules.
    pub schedules: u64,
}

/// The origin of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The tenant's own limits.
    Tenant,
    /// Its plan.
    Plan,
    /// The server; or there is no such limit.
    Server,
}

/// Rates that each node allows a tenant by itself, counted in memory. They protect the other tenants where no limit is
/// set. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRates {
    /// Events per second.
    pub events_per_second: Option<u32>,
    /// Deliveries per second.
    pub deliveries_per_second: Option<u32>,
}

/// The operator's plans, and the server's default limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plans {
    /// Default limits: each applies where neither the tenant nor its plan sets that limit. An absent value means no
    /// limit.
    pub server: Limits,
    /// Plans by name.
    pub named: BTreeMap<String, Limits>,
    /// Rates that apply where neither the tenant, its plan nor the server sets that limit.
    pub default_rates: NodeRates,
}

impl Plans {
    /// Returns the limits that apply to a tenant.
    pub fn limits_of(&self, tenant: &Tenant) -> Limits {
        self.limits(&tenant.limits, tenant.plan.as_deref())
    }

    /// Returns the limits that apply to a tenant with these limits and this plan.
    pub fn limits(&self, own: &Limits, plan: Option<&str>) -> Limits {
        own.or(&self.of_plan(plan)).or(&self.server)
    }

    /// Returns the rates that each node enforces for a tenant with these limits, which [`limits_of`](Plans::limits_of)
    /// returned. A limit of events that is set is not among them: the store enforces it exactly.
    pub fn node_rates(&self, limits: &Limits) -> NodeRates {
        let default = &self.default_rates;
        NodeRates {
            events_per_second: match limits.events_per_second {
                Some(_) => None,
                None => default.events_per_second,
            },
            deliveries_per_second: limits
                .deliveries_per_second
                .or(default.deliveries_per_second),
        }
    }

    /// Returns these limits with the default rates that apply where they set none.
    pub fn with_default_rates(&self, limits: &Limits) -> Limits {
        limits.or(&Limits {
            events_per_second: self.default_rates.events_per_second,
            deliveries_per_second: self.default_rates.deliveries_per_second,
            ..Limits::default()
        })
    }

    /// Returns the origin of a tenant's limit.
    pub fn source(&self, tenant: &Tenant, limit: LimitName) -> LimitSource {
        if limit.is_in(&tenant.limits) {
            LimitSource::Tenant
        } else if limit.is_in(&self.of_plan(tenant.plan.as_deref())) {
            LimitSource::Plan
        } else {
            LimitSource::Server
        }
    }

    /// Returns whether a tenant names a plan that does not exist. The operator may have removed it from the
    /// configuration. The server's limits then apply.
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
    /// Returns these limits, with absent values taken from `other`.
    fn or(&self, other: &Limits) -> Limits {
        Limits {
            endpoints: self.endpoints.or(other.endpoints),
            events_per_second: self.events_per_second.or(other.events_per_second),
            deliveries_per_second: self.deliveries_per_second.or(other.deliveries_per_second),
            events_per_month: self.events_per_month.or(other.events_per_month),
            payload_bytes: self.payload_bytes.or(other.payload_bytes),
            max_attempts: self.max_attempts.or(other.max_attempts),
            retention: self.retention.or(other.retention),
            payload_retention: self.payload_retention.or(other.payload_retention),
            attempt_retention: self.attempt_retention.or(other.attempt_retention),
            in_flight: self.in_flight.or(other.in_flight),
            schedules: self.schedules.or(other.schedules),
            shortest_schedule_interval: self
                .shortest_schedule_interval
                .or(other.shortest_schedule_interval),
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::time::{Span, Timestamp};

    use super::*;

    fn tenant(plan: Option<&str>, limits: Limits) -> Tenant {
        Tenant {
            plan: plan.map(str::to_owned),
            limits,
            ..Tenant::new(
                "acme".parse().expect("an id"),
                "Acme".to_owned(),
                Timestamp(0),
            )
        }
    }

    fn everything(number: u32) -> Limits {
        Limits {
            endpoints: Some(number),
            events_per_second: Some(number),
            deliveries_per_second: Some(number),
            events_per_month: Some(number.into()),
            payload_bytes: Some(number.into()),
            max_attempts: Some(number),
            retention: Some(Span::from_days(number.into())),
            payload_retention: Some(Span::from_days(number.into())),
            attempt_retention: Some(Span::from_days(number.into())),
            in_flight: Some(number),
            schedules: Some(number),
            shortest_schedule_interval: Some(Span::from_days(number.into())),
        }
    }

    #[test]
    fn limits_of_the_tenant_precede_its_plan_and_the_server() {
        let plans = Plans {
            server: everything(1),
            named: BTreeMap::from([("pro".to_owned(), everything(2))]),
            default_rates: NodeRates::default(),
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
    fn default_rates_apply_where_no_limit_is_set() {
        let mut plans = Plans {
            default_rates: NodeRates {
                events_per_second: Some(10),
                deliveries_per_second: Some(50),
            },
            ..Plans::default()
        };
        let none = plans.limits_of(&tenant(None, Limits::default()));
        assert_eq!(plans.node_rates(&none), plans.default_rates);
        let shown = plans.with_default_rates(&none);
        assert_eq!(shown.events_per_second, Some(10));
        assert_eq!(shown.deliveries_per_second, Some(50));
        assert_eq!(shown.endpoints, None);
        // The store enforces a limit of events that is set, whatever sets it, and each node one of deliveries.
        for own in [Limits::default(), everything(3)] {
            plans.server = everything(7);
            let limits = plans.limits_of(&tenant(None, own));
            let rates = plans.node_rates(&limits);
            assert_eq!(rates.events_per_second, None);
            assert_eq!(rates.deliveries_per_second, limits.deliveries_per_second);
            assert_eq!(plans.with_default_rates(&limits), limits);
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
