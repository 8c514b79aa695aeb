//! How long what is finished is kept.
//!
//! Three things age apart: an event with its deliveries, what the event carries, and the attempts of a delivery but for
//! the last, which is part of it. Each counts from when all that it hangs on has ended: an event and what it carries
//! from the end of its last delivery, attempts from the end of theirs. So an event stays whole while one of its
//! deliveries waits, and goes with all of them at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::time::{Span, Timestamp};

use crate::Limits;

/// How long what is finished is kept, and how much is looked at in one step of removing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Events and deliveries, where neither the tenant's limits nor its plan say.
    pub deliveries: Span,
    /// What events carry; absent is as long as the events.
    pub payloads: Option<Span>,
    /// All attempts of a delivery but the last; absent is as long as the deliveries.
    pub attempts: Option<Span>,
    /// What plans say, by their names.
    pub plans: Arc<BTreeMap<String, Limits>>,
    /// At most so many events are looked at in one step.
    pub step: usize,
}

impl Retention {
    /// Everything is kept for as long, whoever it belongs to, unless their limits say otherwise.
    pub fn all(deliveries: Span, step: usize) -> Retention {
        Retention {
            deliveries,
            payloads: None,
            attempts: None,
            plans: Arc::default(),
            step,
        }
    }

    /// How long what belongs to a tenant is kept: as its own limits say, else as its plan does, else as the server
    /// does. Nothing outlives what it belongs to.
    pub fn of(&self, limits: &Limits, plan: Option<&str>) -> Kept {
        let plan = plan.and_then(|plan| self.plans.get(plan));
        let said = |say: fn(&Limits) -> Option<Span>| say(limits).or_else(|| plan.and_then(say));
        let deliveries = said(|limits| limits.retention).unwrap_or(self.deliveries);
        let within = |own: Option<Span>| own.map_or(deliveries, |own| own.min(deliveries));
        Kept {
            deliveries,
            payloads: within(said(|limits| limits.payload_retention).or(self.payloads)),
            attempts: within(said(|limits| limits.attempt_retention).or(self.attempts)),
        }
    }

    /// How long what is left of a tenant that was deleted is kept: as the server says.
    pub fn of_nobody(&self) -> Kept {
        self.of(&Limits::default(), None)
    }
}

/// How long things of one tenant are kept once they are finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Events and deliveries.
    pub deliveries: Span,
    /// What events carry.
    pub payloads: Span,
    /// All attempts of a delivery but the last.
    pub attempts: Span,
}

impl Kept {
    /// The shortest of the three: what is younger is not worth a look.
    pub fn shortest(&self) -> Span {
        self.deliveries.min(self.payloads).min(self.attempts)
    }
}

/// Whether something that ended at `end` and is kept for so long goes now.
pub fn is_over(end: Timestamp, keep: Span, now: Timestamp) -> bool {
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

    fn kept(deliveries: u64, payloads: u64, attempts: u64) -> Kept {
        Kept {
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
    fn a_tenants_own_limits_come_before_its_plan_and_that_before_the_server() {
        let retention = retention();
        let nothing = Limits::default();
        assert_eq!(retention.of(&nothing, None), kept(30, 14, 30));
        assert_eq!(retention.of_nobody(), kept(30, 14, 30));
        assert_eq!(retention.of(&nothing, Some("small")), kept(7, 2, 7));
        assert_eq!(retention.of(&nothing, Some("large")), kept(90, 14, 60));
        let own = days(None, Some(3), Some(1));
        assert_eq!(retention.of(&own, Some("large")), kept(90, 3, 1));
        assert_eq!(retention.of(&own, Some("small")), kept(7, 3, 1));
        // A plan that is no longer there says nothing.
        assert_eq!(retention.of(&nothing, Some("gone")), kept(30, 14, 30));
    }

    #[test]
    fn nothing_outlives_what_it_belongs_to() {
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
