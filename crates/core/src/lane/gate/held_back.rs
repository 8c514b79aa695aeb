//! The reason why due deliveries of an endpoint are not sent now, and the limits in force.
//!
//! [`Gate::held_back`] names the first of the gate's checks that fails, as [`HeldBackBy`], with the earliest time at
//! which it can pass ([`HeldBack`]). The dispatcher adds the limits of the tenant and of the server, which are checked
//! after the gate. [`LimitedSince`] measures for how long limits other than the receiver's have held deliveries back.

use serde::{Deserialize, Serialize};

use super::{Admission, EndpointStatus, Gate};
use crate::lane::breaker::BreakerState;
use crate::time::{Span, Tick};

/// The reason why due deliveries of an endpoint are not sent now. The names are part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBackBy {
    /// The endpoint's rate limit.
    RateLimit,
    /// The endpoint's in-flight limit.
    InFlight,
    /// The rate or the in-flight window, lowered because of the receiver's answers.
    Backpressure,
    /// A pause that the receiver asked for with `Retry-After`.
    RetryAfter,
    /// The endpoint's breaker, which has tripped.
    Breaker,
    /// The endpoint is paused.
    Paused,
    /// The endpoint is disabled or deleted.
    Disabled,
    /// The tenant's in-flight limit.
    TenantInFlight,
    /// The server's in-flight limit, or the tenant's part of it.
    ServerInFlight,
}

impl HeldBackBy {
    /// Every reason.
    pub const ALL: [HeldBackBy; 9] = [
        HeldBackBy::RateLimit,
        HeldBackBy::InFlight,
        HeldBackBy::Backpressure,
        HeldBackBy::RetryAfter,
        HeldBackBy::Breaker,
        HeldBackBy::Paused,
        HeldBackBy::Disabled,
        HeldBackBy::TenantInFlight,
        HeldBackBy::ServerInFlight,
    ];

    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            HeldBackBy::RateLimit => "rate_limit",
            HeldBackBy::InFlight => "in_flight",
            HeldBackBy::Backpressure => "backpressure",
            HeldBackBy::RetryAfter => "retry_after",
            HeldBackBy::Breaker => "breaker",
            HeldBackBy::Paused => "paused",
            HeldBackBy::Disabled => "disabled",
            HeldBackBy::TenantInFlight => "tenant_in_flight",
            HeldBackBy::ServerInFlight => "server_in_flight",
        }
    }

    /// Returns true if the reason is a configured limit, and neither the receiver nor a decision of a person.
    pub const fn is_limit(self) -> bool {
        match self {
            HeldBackBy::RateLimit
            | HeldBackBy::InFlight
            | HeldBackBy::TenantInFlight
            | HeldBackBy::ServerInFlight => true,
            HeldBackBy::Backpressure
            | HeldBackBy::RetryAfter
            | HeldBackBy::Breaker
            | HeldBackBy::Paused
            | HeldBackBy::Disabled => false,
        }
    }

    /// Returns true if the reason holds every waiting delivery, also one that is due later. The other reasons hold due
    /// deliveries only.
    pub const fn holds_all(self) -> bool {
        match self {
            HeldBackBy::Breaker | HeldBackBy::Paused | HeldBackBy::Disabled => true,
            HeldBackBy::RateLimit
            | HeldBackBy::InFlight
            | HeldBackBy::Backpressure
            | HeldBackBy::RetryAfter
            | HeldBackBy::TenantInFlight
            | HeldBackBy::ServerInFlight => false,
        }
    }
}

/// A reason that holds deliveries back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The reason.
    pub by: HeldBackBy,
    /// The earliest time at which it can end, if it is known.
    pub until: Option<Tick>,
}

impl HeldBack {
    /// Returns a reason whose end depends on an event, not on the time.
    pub fn until_event(by: HeldBackBy) -> HeldBack {
        HeldBack { by, until: None }
    }
}

/// The limits of an endpoint after adaptive protection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitsInForce {
    /// The size of the in-flight window.
    pub in_flight: u32,
    /// The rate, in requests per second.
    pub per_second: f64,
}

impl Gate {
    /// Returns what keeps due deliveries from being sent now: the first of the gate's checks that fails. A breaker that
    /// lets a probe pass still holds all other deliveries.
    pub fn held_back(&self, now: Tick) -> Option<HeldBack> {
        let until = match self.check(now) {
            Admission::Admit { probe: false } => return None,
            Admission::Wait(until) => Some(until),
            Admission::Admit { probe: true } | Admission::Full | Admission::Shut => None,
        };
        let by = self.failed_check(now);
        Some(HeldBack { by, until })
    }

    /// Returns the limits in force. `limit_per_second` is the configured rate.
    pub fn limits_in_force(&self, limit_per_second: f64) -> LimitsInForce {
        LimitsInForce {
            in_flight: self.window.size(),
            // The bucket counts in whole nanoseconds, so its rate differs a little from the configured one.
            per_second: match self.rate.is_reduced() {
                true => self.rate.per_second().min(limit_per_second),
                false => limit_per_second,
            },
        }
    }

    /// Returns the first check that fails, in the order of [`Gate::check`]. The last one fails if no other does.
    fn failed_check(&self, now: Tick) -> HeldBackBy {
        match self.status {
            EndpointStatus::Enabled => {}
            EndpointStatus::Paused => return HeldBackBy::Paused,
            EndpointStatus::Disabled | EndpointStatus::Deleted => return HeldBackBy::Disabled,
        }
        match self.breaker.state() {
            BreakerState::Passing => {}
            BreakerState::Tripped { .. } | BreakerState::Probing { .. } => {
                return HeldBackBy::Breaker;
            }
        }
        if self.quiet_until > now {
            return HeldBackBy::RetryAfter;
        }
        if !self.window.has_room() {
            return match self.window.has_room_for_probe() {
                // The endpoint's own limit would allow one more attempt.
                true => HeldBackBy::Backpressure,
                false => HeldBackBy::InFlight,
            };
        }
        match self.rate.is_reduced() {
            true => HeldBackBy::Backpressure,
            false => HeldBackBy::RateLimit,
        }
    }
}

/// The time since which limits have held deliveries of an endpoint back without interruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedSince(Option<Limited>);

/// The state while limits hold deliveries back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limited {
    since: Tick,
    /// The limit that was noted last.
    by: HeldBackBy,
}

impl LimitedSince {
    /// Notes the state of the endpoint. `has_due_work` is true while due deliveries wait.
    ///
    /// While they wait and nothing holds them back, the time goes on: a limit admits one delivery after the other, so
    /// for a moment in between it holds nothing back.
    pub fn note(&mut self, now: Tick, has_due_work: bool, held_back_by: Option<HeldBackBy>) {
        match held_back_by {
            _ if !has_due_work => self.0 = None,
            None => {}
            Some(by) if by.is_limit() => {
                let since = self.0.map_or(now, |limited| limited.since);
                self.0 = Some(Limited { since, by });
            }
            Some(_) => self.0 = None,
        }
    }

    /// Returns the limit, and the time for which limits have held deliveries back; `None` if they do not.
    pub fn duration(self, now: Tick) -> Option<(HeldBackBy, Span)> {
        self.0.map(|limited| (limited.by, now.since(limited.since)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lane::{AttemptFeedback, Breaker, BreakerSettings, RateLimit, Signal, TripReason};
    use crate::rng::Rng;

    const NOW: Tick = Tick(1_000_000);
    const LATER: Tick = Tick(1_060_000);
    const TWICE_PER_SECOND: RateLimit = RateLimit {
        per_second: 2.0,
        burst: 1,
    };

    fn gate(max_in_flight: u32) -> Gate {
        Gate::new(EndpointStatus::Enabled, max_in_flight, TWICE_PER_SECOND)
    }

    fn tripped(until: Tick) -> Breaker {
        Breaker::tripped(until, TripReason::Refusals, 0)
    }

    fn held_back(gate: &Gate) -> Option<(HeldBackBy, Option<Tick>)> {
        gate.held_back(NOW).map(|it| (it.by, it.until))
    }

    fn leave(gate: &mut Gate, signal: Signal, probe: bool) {
        let back = AttemptFeedback {
            signal,
            probe,
            started_at: NOW,
            failures_in_a_row: 0,
            refusals_in_a_row: 0,
            overloaded: false,
        };
        gate.leave(NOW, back, &BreakerSettings::default(), &mut Rng::seeded(3));
    }

    #[test]
    fn nothing_holds_back_what_the_gate_admits() {
        assert_eq!(held_back(&gate(10)), None);
    }

    #[test]
    fn rate_limit_holds_until_the_next_request() {
        let mut gate = gate(10);
        gate.admit(NOW);
        let next = Tick(NOW.0 + 500);
        assert_eq!(held_back(&gate), Some((HeldBackBy::RateLimit, Some(next))));
    }

    #[test]
    fn full_window_of_the_configured_size_is_the_in_flight_limit() {
        let mut gate = gate(1);
        gate.admit(NOW);
        // The rate limit would hold the next delivery too, but the gate checks the window first.
        assert_eq!(held_back(&gate), Some((HeldBackBy::InFlight, None)));
    }

    #[test]
    fn full_window_below_the_limit_is_backpressure() {
        let mut gate = gate(10);
        gate.window.restart();
        gate.admit(NOW);
        assert_eq!(held_back(&gate), Some((HeldBackBy::Backpressure, None)));
    }

    #[test]
    fn lowered_rate_is_backpressure() {
        let mut gate = gate(10);
        gate.rate.set_backpressure(Some(0.5));
        gate.admit(NOW);
        let next = Tick(NOW.0 + 2_000);
        let expected = (HeldBackBy::Backpressure, Some(next));
        assert_eq!(held_back(&gate), Some(expected));
        let limits = gate.limits_in_force(2.0);
        assert_eq!((limits.in_flight, limits.per_second), (10, 0.5));
    }

    #[test]
    fn retry_after_holds_until_its_end() {
        let mut gate = gate(10);
        gate.pause_for(NOW, Span::from_secs(60));
        assert_eq!(
            held_back(&gate),
            Some((HeldBackBy::RetryAfter, Some(LATER)))
        );
    }

    #[test]
    fn breaker_holds_until_its_probe_and_while_it_is_in_flight() {
        let mut gate = gate(10);
        gate.restore_breaker(tripped(LATER));
        assert_eq!(held_back(&gate), Some((HeldBackBy::Breaker, Some(LATER))));
        gate.restore_breaker(tripped(NOW));
        // The probe may be sent, but no other delivery.
        assert_eq!(held_back(&gate), Some((HeldBackBy::Breaker, None)));
        gate.admit(NOW);
        assert_eq!(held_back(&gate), Some((HeldBackBy::Breaker, None)));
        leave(&mut gate, Signal::Up, true);
        let by = held_back(&gate).map(|(by, _)| by);
        assert_eq!(by, Some(HeldBackBy::Backpressure), "it restarts slowly");
    }

    #[test]
    fn breaker_and_retry_after_hold_until_both_are_over() {
        let mut gate = gate(10);
        gate.restore_breaker(tripped(Tick(NOW.0 + 5_000)));
        gate.pause_for(NOW, Span::from_secs(60));
        assert_eq!(held_back(&gate), Some((HeldBackBy::Breaker, Some(LATER))));
    }

    #[test]
    fn first_failing_check_is_named() {
        let mut gate = gate(1);
        gate.admit(NOW);
        let mut found = vec![held_back(&gate)];
        gate.pause_for(NOW, Span::from_secs(60));
        found.push(held_back(&gate));
        gate.restore_breaker(tripped(Tick(NOW.0 + 90_000)));
        found.push(held_back(&gate));
        for status in [
            EndpointStatus::Paused,
            EndpointStatus::Disabled,
            EndpointStatus::Deleted,
        ] {
            gate.set_status(status, NOW);
            found.push(held_back(&gate));
        }
        let found: Vec<HeldBackBy> = found.into_iter().flatten().map(|(by, _)| by).collect();
        let expected = [
            HeldBackBy::InFlight,
            HeldBackBy::RetryAfter,
            HeldBackBy::Breaker,
            HeldBackBy::Paused,
            HeldBackBy::Disabled,
            HeldBackBy::Disabled,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn limits_in_force_are_exactly_the_configured_ones_while_nothing_lowers_them() {
        // A third of a second is no whole number of nanoseconds.
        let rate = RateLimit {
            per_second: 3.0,
            burst: 1,
        };
        let gate = Gate::new(EndpointStatus::Enabled, 7, rate);
        let limits = gate.limits_in_force(3.0);
        assert_eq!((limits.in_flight, limits.per_second), (7, 3.0));
    }

    #[test]
    fn names_are_those_of_the_wire_format() {
        for by in HeldBackBy::ALL {
            let json = serde_json::to_value(by).expect("a name");
            assert_eq!(json, by.name());
        }
    }

    #[test]
    fn limited_time_goes_on_between_two_deliveries_and_ends_with_the_work() {
        let mut limited = LimitedSince::default();
        let at = |seconds: u64| Tick(NOW.0 + 1_000 * seconds);
        limited.note(at(0), true, Some(HeldBackBy::RateLimit));
        limited.note(at(1), true, None);
        limited.note(at(2), true, Some(HeldBackBy::InFlight));
        let expected = (HeldBackBy::InFlight, Span::from_secs(2));
        assert_eq!(limited.duration(at(2)), Some(expected));
        limited.note(at(3), false, None);
        assert_eq!(limited.duration(at(3)), None);
        limited.note(at(4), true, None);
        assert_eq!(limited.duration(at(4)), None, "nothing has held it back");
    }

    #[test]
    fn limited_time_ends_when_something_else_holds_deliveries_back() {
        for by in HeldBackBy::ALL {
            let mut limited = LimitedSince::default();
            limited.note(NOW, true, Some(HeldBackBy::TenantInFlight));
            limited.note(LATER, true, Some(by));
            assert_eq!(limited.duration(LATER).is_some(), by.is_limit(), "{by:?}");
        }
    }

    proptest! {
        #[test]
        fn something_is_named_exactly_while_the_gate_admits_nothing(
            steps in prop::collection::vec((0u8..8, 0u64..900), 0..200),
        ) {
            let mut gate = gate(3);
            let mut now = NOW;
            for (step, pause_ms) in steps {
                now = Tick(now.0 + pause_ms);
                match step {
                    0..=2 => { gate.admit(now); }
                    3 => gate.pause_for(now, Span::from_secs(2)),
                    4 => gate.set_status(EndpointStatus::Paused, now),
                    5 => gate.set_status(EndpointStatus::Enabled, now),
                    6 => gate.restore_breaker(tripped(Tick(now.0 + 700))),
                    _ => gate.rate.set_backpressure(Some(0.7)),
                }
                let admits = gate.check(now) == Admission::Admit { probe: false };
                prop_assert_eq!(gate.held_back(now).is_none(), admits);
                if let Some(until) = gate.held_back(now).and_then(|it| it.until) {
                    prop_assert!(until > now);
                }
            }
        }
    }
}
