//! The breaker: stops attempts to a destination that is down.
//!
//! [`Breaker`] is `Passing`, `Tripped` or `Probing` ([`BreakerState`]). It guarantees:
//!
//! - It trips on sustained failure of the destination: too large a share of recent requests, too many failures in a
//!   row, or too many dead-lettered deliveries. It also trips on many refusals without a success: then the receiver
//!   refuses every delivery, not only some payloads.
//! - While it is tripped, nothing passes until the waiting time is over. Then one single probe passes.
//! - A successful probe closes it. A failed probe trips it again, for longer.
//! - The waiting time is randomised, so that breakers that tripped together do not probe together.

use serde::{Deserialize, Serialize};

use crate::rng::Rng;
use crate::time::{Span, Tick};

/// Thresholds and waiting times of a breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    /// The period over which the failure ratio is computed.
    pub window: Span,
    /// Minimum number of results in the window for the failure ratio to be used.
    pub min_samples: u32,
    /// The share of failures that trips the breaker.
    pub failure_ratio: f64,
    /// Number of failures in a row that trips the breaker, over any period.
    pub consecutive_failures: u32,
    /// Number of dead-lettered deliveries within a day that trips the breaker, if fewer than half of the deliveries that
    /// ended succeeded.
    pub exhausted_deliveries: u32,
    /// Number of refusals without a success that trips the breaker.
    pub refusals: u32,
    /// Time from the trip to the first probe.
    pub first_wait: Span,
    /// Maximum time between two probes. Each failed probe doubles the wait up to this value.
    pub longest_wait: Span,
}

impl Default for BreakerSettings {
    fn default() -> BreakerSettings {
        BreakerSettings {
            window: Span::from_secs(60),
            min_samples: 20,
            failure_ratio: 0.5,
            consecutive_failures: 20,
            exhausted_deliveries: 10,
            refusals: 100,
            first_wait: Span::from_secs(5),
            longest_wait: Span::from_mins(5),
        }
    }
}

/// The reason why a breaker tripped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TripReason {
    /// Too large a share of recent requests failed.
    FailureRatio,
    /// Too many requests failed in a row.
    ConsecutiveFailures,
    /// Too many deliveries were dead-lettered within a day.
    ExhaustedDeliveries,
    /// Too many deliveries were refused without a success.
    Refusals,
}

/// Evidence about the destination from one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The destination accepted the delivery.
    Up,
    /// The destination is up, but refused this delivery.
    Refused,
    /// The destination failed.
    Down,
    /// No information: an internal fault of posthaste ended the attempt.
    NoEvidence,
}

/// A result and those before it, as the breaker needs them.
#[derive(Clone, Copy, Debug)]
pub struct BreakerEvidence {
    /// Evidence about the destination.
    pub signal: Signal,
    /// Number of failures of the destination since the last success, including this one.
    pub failures_in_a_row: u32,
    /// Number of refusals since the last success, including this one.
    pub refusals_in_a_row: u32,
}

/// The breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything passes.
    Passing,
    /// Nothing passes until `until`, and then one probe.
    Tripped {
        /// The time from which a probe may be sent.
        until: Tick,
        /// The reason for the trip.
        reason: TripReason,
    },
    /// One probe is in flight; nothing else passes.
    Probing {
        /// The reason for the trip.
        reason: TripReason,
    },
}

/// The breaker's decision about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerDecision {
    /// The attempt may start.
    Open,
    /// The attempt may start as the probe.
    Probe,
    /// Not before this time.
    Wait(Tick),
    /// Not before the probe has ended.
    AwaitProbe,
}

/// A state change that causes a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// The breaker tripped.
    Tripped(TripReason),
    /// The destination is back.
    Recovered,
}

/// Number of slices that the window is divided into.
const SLICES: usize = 6;
/// Delay after which a probe that an internal fault ended is repeated.
const FAULT_WAIT: Span = Span::from_secs(1);
/// Maximum deviation of a wait in both directions, in percent.
const SPREAD_PERCENT: u64 = 20;

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    number: u64,
    up: u32,
    down: u32,
}

/// The breaker of one endpoint.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: BreakerState,
    failed_probes: u32,
    slices: [Slice; SLICES],
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker {
            state: BreakerState::Passing,
            failed_probes: 0,
            slices: [Slice::default(); SLICES],
        }
    }
}

impl Breaker {
    /// Creates a breaker that had tripped before the process started.
    pub fn tripped(until: Tick, reason: TripReason, failed_probes: u32) -> Breaker {
        Breaker {
            state: BreakerState::Tripped { until, reason },
            failed_probes,
            ..Breaker::default()
        }
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns the number of failed probes in a row.
    pub fn failed_probes(&self) -> u32 {
        self.failed_probes
    }

    /// Returns whether an attempt may pass.
    pub fn decide(&self, now: Tick) -> BreakerDecision {
        match self.state {
            BreakerState::Passing => BreakerDecision::Open,
            BreakerState::Tripped { until, .. } if until <= now => BreakerDecision::Probe,
            BreakerState::Tripped { until, .. } => BreakerDecision::Wait(until),
            BreakerState::Probing { .. } => BreakerDecision::AwaitProbe,
        }
    }

    /// Marks the probe as sent.
    ///
    /// # Panics
    ///
    /// If no probe may be sent. The caller must have checked [`Breaker::decide`].
    pub fn send_probe(&mut self, now: Tick) {
        self.state = match self.state {
            BreakerState::Tripped { until, reason } if until <= now => {
                BreakerState::Probing { reason }
            }
            BreakerState::Passing | BreakerState::Tripped { .. } | BreakerState::Probing { .. } => {
                panic!("a probe was sent that the breaker does not allow")
            }
        };
    }

    /// Applies the result of an ordinary request.
    ///
    /// The result of a request that was sent before the breaker tripped is ignored: it carries no new information.
    pub fn result(
        &mut self,
        now: Tick,
        evidence: BreakerEvidence,
        settings: &BreakerSettings,
        rng: &mut Rng,
    ) -> Option<BreakerChange> {
        match self.state {
            BreakerState::Passing => {}
            BreakerState::Tripped { .. } | BreakerState::Probing { .. } => return None,
        }
        let slice = self.slice(now, settings);
        let reason = match evidence.signal {
            Signal::Up => {
                slice.up += 1;
                return None;
            }
            Signal::Down => {
                slice.down += 1;
                self.reason_to_trip(now, evidence.failures_in_a_row, settings)?
            }
            Signal::Refused if evidence.refusals_in_a_row >= settings.refusals => {
                TripReason::Refusals
            }
            Signal::Refused | Signal::NoEvidence => return None,
        };
        Some(self.trip(now, reason, settings, rng))
    }

    /// Applies the result of the probe.
    pub fn probe_result(
        &mut self,
        now: Tick,
        signal: Signal,
        settings: &BreakerSettings,
        rng: &mut Rng,
    ) -> Option<BreakerChange> {
        let reason = match self.state {
            BreakerState::Probing { reason } => reason,
            // The endpoint was enabled by hand while the probe was in flight, which closed the breaker.
            BreakerState::Passing | BreakerState::Tripped { .. } => return None,
        };
        match signal {
            Signal::Refused if reason != TripReason::Refusals => {
                self.close();
                Some(BreakerChange::Recovered)
            }
            Signal::Up => {
                self.close();
                Some(BreakerChange::Recovered)
            }
            Signal::Refused | Signal::Down => {
                self.failed_probes = self.failed_probes.saturating_add(1);
                let until = now.after(self.wait(settings, rng));
                self.state = BreakerState::Tripped { until, reason };
                None
            }
            Signal::NoEvidence => {
                let until = now.after(FAULT_WAIT);
                self.state = BreakerState::Tripped { until, reason };
                None
            }
        }
    }

    /// Trips a passing breaker.
    pub fn trip(
        &mut self,
        now: Tick,
        reason: TripReason,
        settings: &BreakerSettings,
        rng: &mut Rng,
    ) -> BreakerChange {
        self.failed_probes = 0;
        let until = now.after(self.wait(settings, rng));
        self.state = BreakerState::Tripped { until, reason };
        BreakerChange::Tripped(reason)
    }

    /// Closes the breaker and clears its history.
    pub fn close(&mut self) {
        *self = Breaker::default();
    }

    fn wait(&self, settings: &BreakerSettings, rng: &mut Rng) -> Span {
        let doublings = self.failed_probes.min(32);
        let nominal = settings
            .first_wait
            .times(1 << doublings)
            .min(settings.longest_wait)
            .as_millis();
        let reach = nominal / 100 * SPREAD_PERCENT;
        Span::from_millis(rng.between(nominal - reach, nominal.saturating_add(reach)))
    }

    fn reason_to_trip(
        &self,
        now: Tick,
        in_a_row: u32,
        settings: &BreakerSettings,
    ) -> Option<TripReason> {
        if in_a_row >= settings.consecutive_failures {
            return Some(TripReason::ConsecutiveFailures);
        }
        let oldest = (slice_number(now, settings) + 1).saturating_sub(SLICES as u64);
        let (up, down) = self
            .slices
            .iter()
            .filter(|slice| slice.number >= oldest)
            .fold((0, 0), |(up, down), slice| {
                (up + slice.up, down + slice.down)
            });
        let samples = up + down;
        let too_many = f64::from(down) >= settings.failure_ratio * f64::from(samples);
        (samples >= settings.min_samples && too_many).then_some(TripReason::FailureRatio)
    }

    fn slice(&mut self, now: Tick, settings: &BreakerSettings) -> &mut Slice {
        let number = slice_number(now, settings);
        let slice = &mut self.slices[number as usize % SLICES];
        if slice.number != number {
            *slice = Slice {
                number,
                ..Slice::default()
            };
        }
        slice
    }
}

fn slice_number(now: Tick, settings: &BreakerSettings) -> u64 {
    now.0 / (settings.window.as_millis() / SLICES as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn feed(breaker: &mut Breaker, signals: &[(u64, Signal)]) -> Option<BreakerChange> {
        let settings = BreakerSettings::default();
        let (mut failures, mut refusals) = (0, 0);
        let mut rng = Rng::seeded(1);
        let mut change = None;
        for (ms, signal) in signals {
            (failures, refusals) = match signal {
                Signal::Down => (failures + 1, refusals),
                Signal::Up => (0, 0),
                Signal::Refused => (failures, refusals + 1),
                Signal::NoEvidence => (failures, refusals),
            };
            let evidence = BreakerEvidence {
                signal: *signal,
                failures_in_a_row: failures,
                refusals_in_a_row: refusals,
            };
            let result = breaker.result(Tick(*ms), evidence, &settings, &mut rng);
            change = change.or(result);
        }
        change
    }

    fn until(breaker: &Breaker) -> Tick {
        match breaker.state() {
            BreakerState::Tripped { until, .. } => until,
            state @ (BreakerState::Passing | BreakerState::Probing { .. }) => {
                panic!("expected a tripped breaker, got {state:?}")
            }
        }
    }

    #[test]
    fn trips_on_the_failure_rate_with_enough_samples() {
        let mixed: Vec<_> = (0..20)
            .map(|n| (n * 100, if n % 2 == 0 { Signal::Up } else { Signal::Down }))
            .collect();
        assert_eq!(feed(&mut Breaker::default(), &mixed[..19]), None);
        let tripped = Some(BreakerChange::Tripped(TripReason::FailureRatio));
        assert_eq!(feed(&mut Breaker::default(), &mixed), tripped);
        let mostly_well: Vec<_> = (0..200)
            .map(|n| (n * 10, if n % 5 == 0 { Signal::Down } else { Signal::Up }))
            .collect();
        assert_eq!(feed(&mut Breaker::default(), &mostly_well), None);
    }

    #[test]
    fn samples_older_than_the_window_are_dropped() {
        let mut history: Vec<_> = (0..19).map(|n| (n * 10, Signal::Down)).collect();
        history.push((200, Signal::Up));
        history.extend((0..18).map(|n| (70_000 + n, Signal::Down)));
        assert_eq!(feed(&mut Breaker::default(), &history), None);
    }

    #[test]
    fn trips_on_consecutive_failures_at_any_rate() {
        let slow: Vec<_> = (0..20).map(|n| (n * 3_600_000, Signal::Down)).collect();
        assert_eq!(feed(&mut Breaker::default(), &slow[..19]), None);
        let tripped = Some(BreakerChange::Tripped(TripReason::ConsecutiveFailures));
        assert_eq!(feed(&mut Breaker::default(), &slow), tripped);
    }

    #[test]
    fn trips_on_one_hundred_refusals_without_a_success() {
        let refusals = |count: u64| (0..count).map(|n| (n * 3_600_000, Signal::Refused));
        let tripped = Some(BreakerChange::Tripped(TripReason::Refusals));
        let history: Vec<_> = refusals(100).collect();
        assert_eq!(feed(&mut Breaker::default(), &history), tripped);
        let mut interrupted: Vec<_> = refusals(99).collect();
        interrupted.push((0, Signal::Up));
        interrupted.extend(refusals(99));
        assert_eq!(feed(&mut Breaker::default(), &interrupted), None);
    }

    #[test]
    fn internal_faults_never_trip_the_breaker() {
        let history: Vec<_> = (0..1_000).map(|n| (n, Signal::NoEvidence)).collect();
        assert_eq!(feed(&mut Breaker::default(), &history), None);
    }

    #[test]
    fn a_refused_probe_closes_the_breaker_unless_refusals_tripped_it() {
        let settings = BreakerSettings::default();
        let mut rng = Rng::seeded(5);
        let recovered = Some(BreakerChange::Recovered);
        for (reason, expected) in [
            (TripReason::FailureRatio, recovered),
            (TripReason::Refusals, None),
        ] {
            let mut breaker = Breaker::tripped(Tick(0), reason, 0);
            breaker.send_probe(Tick(0));
            let change = breaker.probe_result(Tick(10), Signal::Refused, &settings, &mut rng);
            assert_eq!(change, expected, "{reason:?}");
        }
    }

    #[test]
    fn the_wait_grows_with_each_failed_probe_up_to_the_maximum() {
        let settings = BreakerSettings::default();
        let mut rng = Rng::seeded(5);
        let mut breaker = Breaker::default();
        breaker.trip(Tick(0), TripReason::FailureRatio, &settings, &mut rng);
        let mut waits = Vec::new();
        let mut now = Tick(0);
        for _ in 0..9 {
            waits.push(until(&breaker).since(now).as_secs_f64());
            now = until(&breaker);
            breaker.send_probe(now);
            assert_eq!(
                breaker.probe_result(now, Signal::Down, &settings, &mut rng),
                None
            );
        }
        for (wait, nominal) in waits
            .iter()
            .zip([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0])
        {
            assert!((wait - nominal).abs() <= nominal * 0.2, "{waits:?}");
        }
        let exact: Vec<_> = waits
            .iter()
            .zip([5.0, 10.0, 20.0])
            .filter(|(w, n)| **w == *n)
            .collect();
        assert!(exact.len() < 3, "the waits have no jitter: {waits:?}");
    }

    #[test]
    fn a_probe_ended_by_an_internal_fault_does_not_count() {
        let settings = BreakerSettings::default();
        let mut rng = Rng::seeded(5);
        let mut breaker = Breaker::tripped(Tick(0), TripReason::FailureRatio, 3);
        breaker.send_probe(Tick(0));
        breaker.probe_result(Tick(10), Signal::NoEvidence, &settings, &mut rng);
        assert_eq!(breaker.failed_probes(), 3);
        assert_eq!(until(&breaker), Tick(10).after(FAULT_WAIT));
    }

    proptest! {
        /// Over any history: nothing passes while tripped, there is one probe at a time, and every wait ends.
        #[test]
        fn guarantees_hold_for_random_signals(steps in prop::collection::vec((0u64..4_000, 0u8..4), 1..600), seed: u64) {
            let settings = BreakerSettings::default();
            let mut rng = Rng::seeded(seed);
            let mut breaker = Breaker::default();
            let (mut now, mut in_a_row, mut probe_out) = (Tick(0), 0, false);
            for (pause, signal) in steps {
                now = Tick(now.0 + pause);
                let signal = [Signal::Up, Signal::Down, Signal::Down, Signal::Refused][signal as usize];
                match breaker.decide(now) {
                    BreakerDecision::Open => {
                        prop_assert_eq!(breaker.state(), BreakerState::Passing);
                        in_a_row = if signal == Signal::Down { in_a_row + 1 } else { 0 };
                        let evidence = BreakerEvidence {
                            signal,
                            failures_in_a_row: in_a_row,
                            refusals_in_a_row: 0,
                        };
                        if breaker.result(now, evidence, &settings, &mut rng).is_some() {
                            in_a_row = 0;
                        }
                    }
                    BreakerDecision::Probe => {
                        prop_assert!(!probe_out);
                        prop_assert!(until(&breaker) <= now);
                        breaker.send_probe(now);
                        probe_out = true;
                    }
                    BreakerDecision::Wait(until) => {
                        prop_assert!(until > now);
                        prop_assert!(until.since(now) <= settings.longest_wait.times(2));
                        prop_assert_eq!(breaker.decide(until), BreakerDecision::Probe);
                    }
                    BreakerDecision::AwaitProbe => {
                        prop_assert!(probe_out);
                        breaker.probe_result(now, signal, &settings, &mut rng);
                        probe_out = false;
                    }
                }
            }
        }
    }
}
