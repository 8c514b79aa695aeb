//! Retention periods of finished data.
//!
//! Three periods are independent: for an event with its deliveries, for its payload, and for all attempts of a
//! delivery but the last (the last is stored with the delivery). The periods of an event and its payload start when
//! its last delivery ends, that of attempts when their delivery ends. So an event stays complete while one of its
//! deliveries waits, and is deleted together with all of them. [`Retention`] computes the periods of a tenant as
//! [`RetentionPeriods`].

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::time::{Span, Timestamp};

use crate::Limits;

/// The server's and the plans' retention periods, and the size of one step of a retention run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Of events and deliveries, unless the tenant's limits or its plan set another period.
    pub deliveries: Span,
    /// Of payloads; absent means as long as the events.
    pub payloads: Option<Span>,
    /// Of all attempts of a delivery but the last; absent means as long as the deliveries.
    pub attempts: Option<Span>,
    /// The limits of plans, by name.
    pub plans: Arc<BTreeMap<String, Limits>>,
    /// Maximum number of events examined in one step.
    pub step: usize,
}

impl Retention {
    /// Creates a retention of the same period for everything, except where the limits of a tenant set another.
    pub fn all(deliveries: Span, step: usize) -> Retention {
        Retention {
            deliveries,
            payloads: None,
            attempts: None,
            plans: Arc::default(),
            step,
        }
    }

    /// Returns the periods of a tenant: from its own limits, else from its plan, else from the server. Payloads and
    /// attempts are never kept longer than their event.
    pub fn of(&self, limits: &Limits, plan: Option<&str>) -> RetentionPeriods {
        let plan = plan.and_then(|plan| self.plans.get(plan));
        let limit =
            |read: fn(&Limits) -> Option<Span>| read(limits).or_else(|| plan.and_then(read));
        let deliveries = limit(|limits| limits.retention).unwrap_or(self.deliveries);
        let within = |own: Option<Span>| own.map_or(deliveries, |own| own.min(deliveries));
        RetentionPeriods {
            deliveries,
            payloads: within(limit(|limits| limits.payload_retention).or(self.payloads)),
            attempts: within(limit(|limits| limits.attempt_retention).or(self.attempts)),
        }
    }

    /// Returns the periods for the data of a deleted tenant: those of the server.
    pub fn of_deleted_tenant(&self) -> RetentionPeriods {
        self.of(&Limits::default(), None)
    }
}

/// The retention periods of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPeriods {
    /// Of events and deliveries.
    pub deliveries: Span,
    /// Of payloads.
    pub payloads: Span,
    /// Of all attempts of a delivery but the last.
    pub attempts: Span,
}

impl RetentionPeriods {
    /// Returns the shortest of the three periods. Younger events need not be examined.
    pub fn shortest(&self) -> Span {
        self.deliveries.min(self.payloads).min(self.attempts)
    }
}

/// Returns whether data that finished at `end` and is kept for `keep` has expired.
pub fn has_expired(end: Timestamp, keep: Span, now: Timestamp) -> bool {
    end.after(keep) <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(deliveries: Option<u64>, payloads: Option<u64>, attempts: Option<u64>) -> Limits {
        Limits {
            retention: deliveries.map(Span::from_days),
            payload_retention: payloads.map(Span::from_days),
            attempt_retention: attempts.map(Span::from_days),
            ..Limits::default()
        }
    }

    fn kept(deliveries: u64, payloads: u64, attempts: u64) -> RetentionPeriods {
        RetentionPeriods {
            deliveries: Span::from_days(deliveries),
            payloads: Span::from_days(payloads),
            attempts: Span::from_days(attempts),
        }
    }

    fn retention() -> Retention {
        let plans = [
            ("small".to_owned(), days(Some(7), Some(2), None)),
            ("large".to_owned(), days(Some(90), None, Some(60))),
        ];
        Retention {
            payloads: Some(Span::from_days(14)),
            plans: Arc::new(BTreeMap::from(plans)),
            ..Retention::all(Span::from_days(30), 1)
        }
    }

    #[test]
    fn limits_of_the_tenant_precede_its_plan_and_the_server() {
        let retention = retention();
        let nothing = Limits::default();
        assert_eq!(retention.of(&nothing, None), kept(30, 14, 30));
        assert_eq!(retention.of_deleted_tenant(), kept(30, 14, 30));
        assert_eq!(retention.of(&nothing, Some("small")), kept(7, 2, 7));
        assert_eq!(retention.of(&nothing, Some("large")), kept(90, 14, 60));
        let own = days(None, Some(3), Some(1));
        assert_eq!(retention.of(&own, Some("large")), kept(90, 3, 1));
        assert_eq!(retention.of(&own, Some("small")), kept(7, 3, 1));
        // A plan that no longer exists sets nothing.
        assert_eq!(retention.of(&nothing, Some("gone")), kept(30, 14, 30));
    }

    #[test]
    fn retention_of_parts_is_at_most_that_of_the_whole() {
        let retention = retention();
        let short = days(Some(1), Some(5), None);
        assert_eq!(retention.of(&short, None), kept(1, 1, 1));
        assert_eq!(retention.of(&short, Some("large")), kept(1, 1, 1));
        let long = days(Some(365), None, None);
        assert_eq!(
            Retention::all(Span::from_days(30), 1).of(&long, None),
            kept(365, 365, 365)
        );
    }
}
