//! The reasons that hold deliveries of an endpoint back, from its owner or else from its stored state.
//!
//! The owner of an endpoint knows the first of its checks that fails. An endpoint that is idle has no lane, and an owner
//! may not answer; then the stored status, breaker and pause decide ([`EndpointHold::of`]).
//! [`EndpointHold::for_delivery`] applies the result to one delivery: a limit holds it back only if it is due, a
//! tripped breaker or a pause also before.

use posthaste_core::lane::{EndpointLimits, EndpointStatus, HeldBackBy, TripReason};
use posthaste_core::time::Timestamp;
use posthaste_engine::owner_router::{BreakerReport, HeldBackReport, LaneReport, LimitsReport};
use posthaste_store::EndpointRow;

/// The breaker of an endpoint, which may have no lane at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Breaker {
    Passing,
    Tripped(Timestamp, TripReason),
    Probing(TripReason),
}

impl Breaker {
    pub(crate) fn of(lane: Option<&LaneReport>, row: &EndpointRow) -> Breaker {
        match (lane.map(|lane| lane.breaker), row.health.trip) {
            (Some(BreakerReport::Passing), _) | (None, None) => Breaker::Passing,
            (Some(BreakerReport::Tripped { until, reason }), _) => Breaker::Tripped(until, reason),
            (Some(BreakerReport::Probing { reason }), _) => Breaker::Probing(reason),
            (None, Some(trip)) => Breaker::Tripped(trip.until, trip.reason),
        }
    }
}

/// The reason why due deliveries of an endpoint are not sent now, and the pause that its receiver asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndpointHold {
    held_back: Option<HeldBackReport>,
    quiet_until: Option<Timestamp>,
}

/// The part of an endpoint's state that applies to one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryHold {
    /// The reason why the delivery is held back.
    pub(crate) held_back: Option<HeldBackReport>,
    /// No further attempt of the delivery is made before this time, which is never in the past.
    pub(crate) not_before: Timestamp,
}

impl DeliveryHold {
    /// Returns the state of a delivery that nothing holds back.
    pub(crate) fn none(now: Timestamp) -> DeliveryHold {
        DeliveryHold {
            held_back: None,
            not_before: now,
        }
    }
}

impl EndpointHold {
    /// Derives the hold from the owner's report, or else from the stored row.
    pub(crate) fn of(lane: Option<&LaneReport>, row: &EndpointRow, now: Timestamp) -> EndpointHold {
        let quiet_until = match lane {
            Some(lane) => Some(lane.quiet_until),
            None => row.health.quiet_until,
        };
        let quiet_until = quiet_until.filter(|at| *at > now);
        let reported = lane.filter(|lane| lane.limits.is_some());
        let held_back = match reported {
            Some(lane) => lane.obstacle,
            None => stored_hold(Breaker::of(lane, row), row.status, quiet_until),
        };
        let held_back = held_back.map(|it| HeldBackReport {
            until: it.until.filter(|until| *until > now),
            ..it
        });
        EndpointHold {
            held_back,
            quiet_until,
        }
    }

    /// Returns the end of the pause that the receiver asked for, if it is not over.
    pub(crate) fn quiet_until(&self) -> Option<Timestamp> {
        self.quiet_until
    }

    /// Returns what holds back an endpoint's deliveries, of which the first is due at `due`.
    pub(crate) fn for_endpoint(
        &self,
        lane: Option<&LaneReport>,
        due: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<HeldBackReport> {
        let due = due?;
        let held_back = self.held_back.filter(|it| applies(it.by, due <= now));
        match lane.filter(|lane| lane.limits.is_some()) {
            // The store's answer includes deliveries in flight, which wait for nothing.
            Some(lane) => held_back.filter(|_| lane.held_back.is_some()),
            None => held_back,
        }
    }

    /// Returns the part that applies to a delivery that is due at `due`, or `None` if it does not wait.
    pub(crate) fn for_delivery(&self, due: Option<Timestamp>, now: Timestamp) -> DeliveryHold {
        let is_due = due.is_some_and(|due| due <= now);
        let held_back = self.held_back.filter(|it| applies(it.by, is_due));
        // A limit whose end is known also moves a delivery that becomes due before it.
        let until = self.held_back.and_then(|it| it.until);
        let times = [Some(now), until, self.quiet_until];
        DeliveryHold {
            held_back: held_back.filter(|_| due.is_some()),
            not_before: times.into_iter().flatten().max().unwrap_or(now),
        }
    }
}

/// Returns true if the reason holds back a delivery that is due, or is not.
fn applies(by: HeldBackBy, is_due: bool) -> bool {
    is_due || by.holds_all()
}

/// Returns the hold that follows from the stored state.
fn stored_hold(
    breaker: Breaker,
    status: EndpointStatus,
    quiet_until: Option<Timestamp>,
) -> Option<HeldBackReport> {
    let (by, until) = match (status, breaker) {
        (EndpointStatus::Paused, _) => (HeldBackBy::Paused, None),
        (EndpointStatus::Disabled | EndpointStatus::Deleted, _) => (HeldBackBy::Disabled, None),
        (EndpointStatus::Enabled, Breaker::Tripped(until, _)) => {
            (HeldBackBy::Breaker, Some(until).max(quiet_until))
        }
        (EndpointStatus::Enabled, Breaker::Probing(_)) => (HeldBackBy::Breaker, None),
        (EndpointStatus::Enabled, Breaker::Passing) => (HeldBackBy::RetryAfter, Some(quiet_until?)),
    };
    Some(HeldBackReport { by, until })
}

/// Returns the limits in force: those that the owner reports, or else the configured ones.
pub(crate) fn limits_in_force(
    lane: Option<&LaneReport>,
    configured: &EndpointLimits,
) -> LimitsReport {
    lane.and_then(|lane| lane.limits).unwrap_or(LimitsReport {
        in_flight: configured.max_in_flight,
        per_second: configured.rate_limit.per_second,
    })
}
