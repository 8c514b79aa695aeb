//! The gate of one endpoint: decides whether an attempt may start now.
//!
//! [`Gate`] makes five checks in order: the endpoint is enabled, its breaker passes, no pause by `Retry-After` is
//! in force, its in-flight window has space, and its rate limit allows a request. The result is an [`Admission`]:
//! either to go, or the exact time or event after which to check again. So the caller never needs to poll. A
//! delivery that is not admitted uses nothing up.

mod held_back;

pub use held_back::{HeldBack, HeldBackBy, LimitedSince, LimitsInForce};

use serde::{Deserialize, Serialize};

use super::backpressure::{Adjustment, Backpressure, LoadResult};
use super::breaker::{
    Breaker, BreakerChange, BreakerDecision, BreakerEvidence, BreakerSettings, BreakerState,
    Signal, TripReason,
};
use super::rate::{RateBucket, RateLimit};
use super::window::InFlightWindow;
use crate::rng::Rng;
use crate::time::{Span, Tick};

/// The status of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointStatus {
    /// Attempts are made.
    Enabled,
    /// Deliveries are held and none is lost.
    Paused,
    /// No attempts are made; waiting deliveries fail.
    Disabled,
    /// The endpoint does not exist any more; waiting deliveries fail.
    Deleted,
}

/// The decision of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// An attempt may start.
    Admit {
        /// True if the attempt is the probe of a tripped breaker.
        probe: bool,
    },
    /// Not before this time.
    Wait(Tick),
    /// Not before an attempt in flight ends.
    Full,
    /// Not before the endpoint status changes, or the probe ends.
    Shut,
}

/// The gate of one endpoint.
#[derive(Clone, Debug)]
pub struct Gate {
    status: EndpointStatus,
    quiet_until: Tick,
    breaker: Breaker,
    window: InFlightWindow,
    rate: RateBucket,
    backpressure: Backpressure,
    last_left: Tick,
    last_success: Option<Tick>,
}

/// Time after the last result for which a gate is remembered, with its window and its recent failures.
const KEEP_AFTER_LAST_RESULT: Span = Span::from_secs(60);
/// Overload responses within this time of a success are no failures for the breaker: a receiver that has just
/// accepted a request is not down. Backpressure lowers the rate instead.
const OVERLOAD_GRACE: Span = Span::from_secs(1);

impl Gate {
    /// Creates a gate for an endpoint with this status and these limits.
    pub fn new(status: EndpointStatus, max_in_flight: u32, rate: RateLimit) -> Gate {
        Gate {
            status,
            quiet_until: Tick::START,
            breaker: Breaker::default(),
            window: InFlightWindow::new(max_in_flight),
            rate: RateBucket::new(rate),
            backpressure: Backpressure::default(),
            last_left: Tick::START,
            last_success: None,
        }
    }

    /// Restores a breaker that had tripped before the process started.
    pub fn restore_breaker(&mut self, breaker: Breaker) {
        self.breaker = breaker;
    }

    /// Counts the rate as used up at `at`, because another node sent to the endpoint until then.
    pub fn exhaust_rate(&mut self, at: Tick) {
        self.rate.exhaust(at);
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, max_in_flight: u32, rate: RateLimit, now: Tick) {
        self.window.set_limit(max_in_flight);
        self.rate.set_limit(rate, now);
    }

    /// Returns the endpoint status.
    pub fn status(&self) -> EndpointStatus {
        self.status
    }

    /// Changes the endpoint status. Enabling also closes a tripped breaker and ends a pause by `Retry-After`. The
    /// held deliveries are then sent slowly at first.
    pub fn set_status(&mut self, status: EndpointStatus, now: Tick) {
        let was = std::mem::replace(&mut self.status, status);
        if status == EndpointStatus::Enabled {
            let tripped = self.breaker.state() != BreakerState::Passing;
            let quiet = self.quiet_until > now;
            if tripped {
                self.breaker.close();
            }
            if quiet {
                self.quiet_until = now;
                self.rate.limit_drain(now);
            }
            if tripped || quiet || was != EndpointStatus::Enabled {
                self.start_slowly(now);
            }
        }
    }

    /// Returns the breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns the end of the pause that the receiver asked for with `Retry-After`.
    pub fn quiet_until(&self) -> Tick {
        self.quiet_until
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.window.in_flight()
    }

    /// Returns true while deliveries to this endpoint are held: it is paused or its breaker has tripped.
    pub fn holds(&self) -> bool {
        self.status == EndpointStatus::Paused || self.breaker.state() != BreakerState::Passing
    }

    /// Returns whether an attempt may start now, and if not, when or after which event to check again.
    pub fn check(&self, now: Tick) -> Admission {
        match self.status {
            EndpointStatus::Enabled => {}
            EndpointStatus::Paused | EndpointStatus::Disabled | EndpointStatus::Deleted => {
                return Admission::Shut;
            }
        }
        let probe = match self.breaker.decide(now) {
            BreakerDecision::Open => false,
            BreakerDecision::Probe => true,
            BreakerDecision::Wait(until) => return Admission::Wait(until.max(self.quiet_until)),
            BreakerDecision::AwaitProbe => return Admission::Shut,
        };
        if self.quiet_until > now {
            return Admission::Wait(self.quiet_until);
        }
        let room = if probe {
            self.window.has_room_for_probe()
        } else {
            self.window.has_room()
        };
        if !room {
            return Admission::Full;
        }
        let opens_at = self.rate.opens_at();
        if opens_at > now {
            return Admission::Wait(opens_at);
        }
        Admission::Admit { probe }
    }

    /// Admits one attempt, if one may start.
    pub fn admit(&mut self, now: Tick) -> Admission {
        let admission = self.check(now);
        match admission {
            Admission::Admit { probe } => {
                self.window.enter();
                self.rate.spend(now);
                if probe {
                    self.breaker.send_probe(now);
                }
            }
            Admission::Wait(_) | Admission::Full | Admission::Shut => {}
        }
        admission
    }

    /// Ends one attempt and applies its result.
    pub fn leave(
        &mut self,
        now: Tick,
        back: AttemptFeedback,
        settings: &BreakerSettings,
        rng: &mut Rng,
    ) -> Option<BreakerChange> {
        self.window.leave();
        self.last_left = now;
        let spared = self.is_overload_only(now, back.overloaded, back.probe);
        match back.signal {
            Signal::Up => {
                self.window.widen();
                self.rate.speed_up();
                self.last_success = Some(now);
            }
            Signal::Down | Signal::Refused | Signal::NoEvidence => {}
        }
        // Probes, and results that arrive after the trip, say nothing about the load.
        let adjustment = match self.breaker.state() {
            BreakerState::Passing => self.adapt(now, back),
            BreakerState::Tripped { .. } | BreakerState::Probing { .. } => Adjustment::None,
        };
        let evidence = BreakerEvidence {
            signal: if spared {
                Signal::NoEvidence
            } else {
                back.signal
            },
            failures_in_a_row: back.failures_in_a_row,
            refusals_in_a_row: back.refusals_in_a_row,
        };
        let mut change = if back.probe {
            self.breaker.probe_result(now, back.signal, settings, rng)
        } else {
            self.breaker.result(now, evidence, settings, rng)
        };
        if let Adjustment::NotLoad { share, results } = adjustment
            && share >= settings.failure_ratio
            && results >= settings.min_samples
        {
            let reason = TripReason::FailureRatio;
            change = change.or_else(|| self.trip(now, reason, settings, rng));
        }
        match change {
            Some(BreakerChange::Tripped(_)) => self.interrupt_backpressure(now),
            Some(BreakerChange::Recovered) => self.start_slowly(now),
            None => {}
        }
        change
    }

    /// Returns true if the result of an attempt shows overload only: the receiver refused it for overload, but has just
    /// accepted another one. Such a result is no failure of the destination.
    pub fn is_overload_only(&self, now: Tick, overloaded: bool, probe: bool) -> bool {
        let is_recent = |success: Tick| now.since(success) <= OVERLOAD_GRACE;
        overloaded && !probe && self.last_success.is_some_and(is_recent)
    }

    /// Adapts the rate to what the receiver accepts.
    fn adapt(&mut self, now: Tick, back: AttemptFeedback) -> Adjustment {
        let result = match back.signal {
            Signal::NoEvidence => return Adjustment::None,
            Signal::Up | Signal::Refused => LoadResult::Accepted,
            Signal::Down if back.overloaded => LoadResult::Overloaded,
            Signal::Down => LoadResult::Failed,
        };
        let limit = self.rate.limit_per_second();
        let adjustment = self
            .backpressure
            .finished(now, back.started_at, result, limit);
        self.apply_backpressure();
        match adjustment {
            Adjustment::Lowered => self.rate.drain(now),
            Adjustment::None | Adjustment::Raised | Adjustment::NotLoad { .. } => {}
        }
        adjustment
    }

    fn interrupt_backpressure(&mut self, now: Tick) {
        self.backpressure.interrupt(now);
        self.apply_backpressure();
    }

    fn apply_backpressure(&mut self) {
        self.rate
            .set_backpressure(self.backpressure.max_per_second());
    }

    /// Trips the breaker if it is passing.
    pub fn trip(
        &mut self,
        now: Tick,
        reason: TripReason,
        settings: &BreakerSettings,
        rng: &mut Rng,
    ) -> Option<BreakerChange> {
        match self.breaker.state() {
            BreakerState::Passing => {
                self.interrupt_backpressure(now);
                Some(self.breaker.trip(now, reason, settings, rng))
            }
            BreakerState::Tripped { .. } | BreakerState::Probing { .. } => None,
        }
    }

    /// Stops all attempts to the endpoint for `span`, as the receiver asked, and restarts slowly after it.
    pub fn pause_for(&mut self, now: Tick, span: Span) {
        let until = now.after(span);
        if until > self.quiet_until {
            self.quiet_until = until;
            self.start_slowly(until);
        }
    }

    /// Returns the time after which the gate holds no state that is not stored, so that it can be forgotten. `None`
    /// while an attempt is in flight.
    pub fn idle_at(&self) -> Option<Tick> {
        let at = self
            .rate
            .full_at()
            .max(self.quiet_until)
            .max(self.last_left.after(KEEP_AFTER_LAST_RESULT));
        (self.window.in_flight() == 0).then_some(at)
    }

    /// Restarts after an interruption with a window of one, a fifth of the rate and no burst.
    fn start_slowly(&mut self, from: Tick) {
        self.window.restart();
        self.rate.restart(from);
    }
}

/// The result of one attempt, as the gate needs it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptFeedback {
    /// Evidence about the destination.
    pub signal: Signal,
    /// True if it was the probe.
    pub probe: bool,
    /// Start time of the attempt.
    pub started_at: Tick,
    /// Number of failures of the destination since the last success, including this one.
    pub failures_in_a_row: u32,
    /// Number of refusals since the last success, including this one.
    pub refusals_in_a_row: u32,
    /// True if the receiver reported that it is overloaded.
    pub overloaded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    const LATER: Tick = Tick(100_000);

    fn gate() -> Gate {
        Gate::new(
            EndpointStatus::Enabled,
            10,
            RateLimit {
                per_second: 50.0,
                burst: 100,
            },
        )
    }

    fn back(signal: Signal, probe: bool) -> AttemptFeedback {
        AttemptFeedback {
            signal,
            probe,
            started_at: LATER,
            failures_in_a_row: 0,
            refusals_in_a_row: 0,
            overloaded: false,
        }
    }

    fn leave(gate: &mut Gate, now: Tick, signal: Signal, probe: bool) -> Option<BreakerChange> {
        gate.leave(
            now,
            back(signal, probe),
            &BreakerSettings::default(),
            &mut Rng::seeded(2),
        )
    }

    #[test]
    fn at_most_ten_attempts_in_flight() {
        let mut gate = gate();
        for _ in 0..10 {
            assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        }
        assert_eq!(gate.admit(LATER), Admission::Full);
        leave(&mut gate, LATER, Signal::Up, false);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
    }

    #[test]
    fn paused_disabled_and_deleted_endpoints_admit_nothing() {
        for status in [
            EndpointStatus::Paused,
            EndpointStatus::Disabled,
            EndpointStatus::Deleted,
        ] {
            let mut gate = gate();
            gate.set_status(status, LATER);
            assert_eq!(gate.admit(LATER), Admission::Shut);
        }
    }

    #[test]
    fn a_resumed_endpoint_starts_slowly() {
        let mut gate = gate();
        gate.set_status(EndpointStatus::Paused, LATER);
        gate.set_status(EndpointStatus::Enabled, LATER);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        assert_eq!(gate.admit(LATER), Admission::Full);
        leave(&mut gate, LATER, Signal::Up, false);
        // No burst is left and the rate is a fifth of the limit: the next attempt waits 100 ms.
        assert_eq!(gate.admit(LATER), Admission::Wait(Tick(LATER.0 + 100)));
    }

    #[test]
    fn enabling_an_enabled_endpoint_changes_nothing() {
        let mut gate = gate();
        gate.set_status(EndpointStatus::Enabled, LATER);
        for _ in 0..10 {
            assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        }
    }

    #[test]
    fn retry_after_pauses_the_whole_endpoint() {
        let mut gate = gate();
        gate.pause_for(LATER, Span::from_secs(30));
        gate.pause_for(LATER, Span::from_secs(10));
        let until = Tick(LATER.0 + 30_000);
        assert_eq!(gate.admit(LATER), Admission::Wait(until));
        assert_eq!(gate.admit(until), Admission::Admit { probe: false });
        assert_eq!(gate.admit(until), Admission::Full);
    }

    #[test]
    fn enabling_ends_the_retry_after_pause() {
        let mut gate = gate();
        gate.pause_for(LATER, Span::from_hours(24));
        gate.set_status(EndpointStatus::Enabled, LATER);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        leave(&mut gate, LATER, Signal::Up, false);
        assert_eq!(gate.admit(LATER), Admission::Wait(Tick(LATER.0 + 100)));
    }

    #[test]
    fn a_single_result_changes_no_limit() {
        for signal in [
            Signal::Down,
            Signal::Up,
            Signal::Refused,
            Signal::NoEvidence,
        ] {
            let mut gate = gate();
            for _ in 0..2 {
                gate.admit(LATER);
            }
            leave(&mut gate, LATER, signal, false);
            let mut admitted = 0;
            while gate.admit(LATER) == (Admission::Admit { probe: false }) {
                admitted += 1;
            }
            assert_eq!(admitted, 9, "{signal:?}");
        }
    }

    #[test]
    fn one_probe_and_then_a_slow_recovery() {
        let mut gate = gate();
        let settings = BreakerSettings::default();
        gate.trip(
            LATER,
            TripReason::FailureRatio,
            &settings,
            &mut Rng::seeded(1),
        );
        assert!(gate.holds());
        let Admission::Wait(until) = gate.admit(LATER) else {
            panic!("the breaker has not tripped")
        };
        assert_eq!(gate.admit(until), Admission::Admit { probe: true });
        assert_eq!(gate.admit(until), Admission::Shut);
        assert_eq!(
            leave(&mut gate, until, Signal::Up, true),
            Some(BreakerChange::Recovered)
        );
        assert!(!gate.holds());
        let mut arrivals = 0;
        for ms in 0..1_000 {
            let now = Tick(until.0 + ms);
            while gate.admit(now) == (Admission::Admit { probe: false }) {
                arrivals += 1;
                leave(&mut gate, now, Signal::Up, false);
            }
        }
        assert!(
            (10..=20).contains(&arrivals),
            "{arrivals} attempts in the second after recovery"
        );
    }

    #[test]
    fn a_result_from_before_the_trip_does_not_close_the_breaker() {
        let mut gate = gate();
        gate.admit(LATER);
        gate.trip(
            LATER,
            TripReason::FailureRatio,
            &BreakerSettings::default(),
            &mut Rng::seeded(1),
        );
        assert_eq!(leave(&mut gate, LATER, Signal::Up, false), None);
        assert!(gate.holds());
    }

    proptest! {
        /// The gate keeps every limit over any history, and every wait ends at the time it returned.
        #[test]
        fn limits_hold_for_random_histories(
            steps in prop::collection::vec((0u64..300, 0u8..10), 1..500),
            max_in_flight in 1u32..20,
            per_second in 1.0..200.0f64,
            burst in 1u32..40,
            seed: u64,
        ) {
            let mut gate = Gate::new(EndpointStatus::Enabled, max_in_flight, RateLimit { per_second, burst });
            let settings = BreakerSettings::default();
            let mut rng = Rng::seeded(seed);
            let mut now = Tick(0);
            let mut out: Vec<(bool, Tick)> = Vec::new();
            let mut sent: Vec<Tick> = Vec::new();
            let mut in_a_row = 0;
            for (pause, what) in steps {
                now = Tick(now.0 + pause);
                match what {
                    0..=4 => match gate.admit(now) {
                        Admission::Admit { probe } => {
                            prop_assert!(!probe || !out.iter().any(|(probe, _)| *probe), "two probes are in flight at once");
                            out.push((probe, now));
                            sent.push(now);
                        }
                        Admission::Wait(until) => {
                            prop_assert!(until > now);
                            // At that time only a full window or one further wait can remain.
                            let then = gate.check(until);
                            prop_assert!(then != Admission::Wait(until) && then != Admission::Shut);
                        }
                        Admission::Full => prop_assert!(!out.is_empty()),
                        Admission::Shut => prop_assert!(out.iter().any(|(probe, _)| *probe) || gate.status() == EndpointStatus::Paused),
                    },
                    5..=7 if !out.is_empty() => {
                        let (probe, started_at) = out.swap_remove(0);
                        let signal = [Signal::Up, Signal::Down, Signal::Refused][usize::from(what - 5)];
                        in_a_row = if signal == Signal::Down { in_a_row + 1 } else { 0 };
                        let overloaded = pause % 2 == 0;
                        let back = AttemptFeedback {
                            signal,
                            probe,
                            started_at,
                            failures_in_a_row: in_a_row,
                            refusals_in_a_row: 0,
                            overloaded,
                        };
                        gate.leave(now, back, &settings, &mut rng);
                    }
                    8 => gate.pause_for(now, Span::from_millis(pause)),
                    9 => {
                        let paused = gate.status() == EndpointStatus::Paused;
                        gate.set_status(if paused { EndpointStatus::Enabled } else { EndpointStatus::Paused }, now);
                    }
                    5..=7 | 10.. => {}
                }
                prop_assert!(out.len() <= max_in_flight as usize);
                prop_assert_eq!(gate.in_flight() as usize, out.len());
            }
            for (index, first) in sent.iter().enumerate() {
                let within = sent[index..].iter().take_while(|at| at.0 < first.0 + 1_000).count();
                prop_assert!(within as f64 <= f64::from(burst) + per_second);
            }
        }
    }
}
