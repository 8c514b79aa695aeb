//! Whether one endpoint may be sent to now.
//!
//! Five questions in a row: is it enabled, did it ask to be left alone, does its breaker pass, is
//! there room in its window, does its rate allow it? The answer is to go, or exactly when or after
//! what to ask again, so that nobody ever has to ask in a loop. A delivery that is not admitted
//! spends nothing.

use super::breaker::{
    Breaker, BreakerSettings, BreakerState, Passage, Signal, TripReason, Turnover,
};
use super::rate::{RateBucket, RateLimit};
use super::window::Window;
use crate::dice::Dice;
use crate::time::{Span, Tick};

/// Whether an endpoint takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is sent to.
    Enabled,
    /// Deliveries are held for it, and none is lost.
    Paused,
    /// It is sent nothing; what waits for it has failed.
    Disabled,
    /// It is gone; what waits for it has failed.
    Deleted,
}

/// The gate's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go. `probe` says that this one tests a tripped breaker.
    Admit {
        /// It is the probe.
        probe: bool,
    },
    /// Not before this.
    Wait(Tick),
    /// Not before one that is in flight is back.
    Full,
    /// Not before somebody changes the endpoint's standing, or the probe is back.
    Shut,
}

/// One endpoint's gate.
#[derive(Clone, Debug)]
pub struct Gate {
    standing: Standing,
    quiet_until: Tick,
    breaker: Breaker,
    window: Window,
    rate: RateBucket,
    last_left: Tick,
}

/// So long after the last result a gate is remembered, with its window and its recent failures.
const LINGER: Span = Span::from_secs(60);

impl Gate {
    /// A gate for an endpoint of this standing and these limits.
    pub fn new(standing: Standing, max_in_flight: u32, rate: RateLimit) -> Gate {
        Gate {
            standing,
            quiet_until: Tick::START,
            breaker: Breaker::default(),
            window: Window::new(max_in_flight),
            rate: RateBucket::new(rate),
            last_left: Tick::START,
        }
    }

    /// Takes up a breaker that had tripped before the process began.
    pub fn restore_breaker(&mut self, breaker: Breaker) {
        self.breaker = breaker;
    }

    /// Counts the rate as used up at `at`: until then somebody else had the endpoint.
    pub fn use_up_rate(&mut self, at: Tick) {
        self.rate.use_up(at);
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, max_in_flight: u32, rate: RateLimit, now: Tick) {
        self.window.set_limit(max_in_flight);
        self.rate.set_limit(rate, now);
    }

    /// The endpoint's standing.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Changes the endpoint's standing. To enable it is also to say that a tripped breaker may close
    /// and that nobody need wait any longer: what was held drains, gently.
    pub fn stand(&mut self, standing: Standing, now: Tick) {
        let was = std::mem::replace(&mut self.standing, standing);
        if standing == Standing::Enabled {
            let tripped = self.breaker.state() != BreakerState::Passing;
            let quiet = self.quiet_until > now;
            if tripped {
                self.breaker.close();
            }
            if quiet {
                self.quiet_until = now;
                self.rate.undrain(now);
            }
            if tripped || quiet || was != Standing::Enabled {
                self.start_slowly(now);
            }
        }
    }

    /// The breaker's state.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Until when the endpoint asked to be left alone.
    pub fn quiet_until(&self) -> Tick {
        self.quiet_until
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> u32 {
        self.window.in_flight()
    }

    /// True while deliveries to this endpoint are held: it is paused or its breaker has tripped.
    pub fn holds(&self) -> bool {
        self.standing == Standing::Paused || self.breaker.state() != BreakerState::Passing
    }

    /// Whether a delivery may go now, and if not, when or after what to ask again.
    pub fn outlook(&self, now: Tick) -> Admission {
        match self.standing {
            Standing::Enabled => {}
            Standing::Paused | Standing::Disabled | Standing::Deleted => return Admission::Shut,
        }
        let probe = match self.breaker.passage(now) {
            Passage::Open => false,
            Passage::Probe => true,
            Passage::Wait(until) => return Admission::Wait(until.max(self.quiet_until)),
            Passage::AwaitProbe => return Admission::Shut,
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

    /// Lets one through, if it may go.
    pub fn admit(&mut self, now: Tick) -> Admission {
        let admission = self.outlook(now);
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

    /// Takes one back, with what its result says about the destination.
    pub fn leave(
        &mut self,
        now: Tick,
        back: Back,
        settings: &BreakerSettings,
        dice: &mut Dice,
    ) -> Option<Turnover> {
        self.window.leave();
        self.last_left = now;
        match back.signal {
            Signal::Up => {
                self.window.widen();
                self.rate.speed_up();
            }
            Signal::Down => self.window.narrow(),
            Signal::Aside | Signal::Void => {}
        }
        if back.overloaded {
            self.rate.slow_down(now);
        }
        let turnover = if back.probe {
            self.breaker.probe_result(now, back.signal, settings, dice)
        } else {
            self.breaker
                .result(now, back.signal, back.failures_in_a_row, settings, dice)
        };
        if turnover == Some(Turnover::Recovered) {
            self.start_slowly(now);
        }
        turnover
    }

    /// Trips the breaker, unless it already has.
    pub fn trip(
        &mut self,
        now: Tick,
        reason: TripReason,
        settings: &BreakerSettings,
        dice: &mut Dice,
    ) -> Option<Turnover> {
        match self.breaker.state() {
            BreakerState::Passing => Some(self.breaker.trip(now, reason, settings, dice)),
            BreakerState::Tripped { .. } | BreakerState::Probing { .. } => None,
        }
    }

    /// Leaves the whole endpoint alone for `span`, as it asked, and starts slowly after that.
    pub fn keep_quiet(&mut self, now: Tick, span: Span) {
        let until = now.after(span);
        if until > self.quiet_until {
            self.quiet_until = until;
            self.start_slowly(until);
        }
    }

    /// When nothing that is not stored will matter any more, so that the gate may be forgotten;
    /// nothing while a request is in flight.
    pub fn rests_at(&self) -> Option<Tick> {
        let at = self
            .rate
            .full_at()
            .max(self.quiet_until)
            .max(self.last_left.after(LINGER));
        (self.window.in_flight() == 0).then_some(at)
    }

    /// After an absence: one at a time at first, a fifth of the rate, and no saved-up burst.
    fn start_slowly(&mut self, from: Tick) {
        self.window.restart();
        self.rate.restart(from);
    }
}

/// What came back from one request.
#[derive(Clone, Copy, Debug)]
pub struct Back {
    /// What it says about the destination.
    pub signal: Signal,
    /// It was the probe.
    pub probe: bool,
    /// Failures of the destination in a row, this one included.
    pub failures_in_a_row: u32,
    /// The destination said that it has more to do than it can.
    pub overloaded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATER: Tick = Tick(100_000);

    fn gate() -> Gate {
        Gate::new(
            Standing::Enabled,
            10,
            RateLimit {
                per_second: 50.0,
                burst: 100,
            },
        )
    }

    fn back(signal: Signal, probe: bool) -> Back {
        Back {
            signal,
            probe,
            failures_in_a_row: 0,
            overloaded: false,
        }
    }

    fn leave(gate: &mut Gate, now: Tick, signal: Signal, probe: bool) -> Option<Turnover> {
        gate.leave(
            now,
            back(signal, probe),
            &BreakerSettings::default(),
            &mut Dice::seeded(2),
        )
    }

    #[test]
    fn ten_at_once_and_no_more() {
        let mut gate = gate();
        for _ in 0..10 {
            assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        }
        assert_eq!(gate.admit(LATER), Admission::Full);
        leave(&mut gate, LATER, Signal::Up, false);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
    }

    #[test]
    fn paused_disabled_and_deleted_let_nothing_through() {
        for standing in [Standing::Paused, Standing::Disabled, Standing::Deleted] {
            let mut gate = gate();
            gate.stand(standing, LATER);
            assert_eq!(gate.admit(LATER), Admission::Shut);
        }
    }

    #[test]
    fn after_a_pause_the_backlog_starts_slowly() {
        let mut gate = gate();
        gate.stand(Standing::Paused, LATER);
        gate.stand(Standing::Enabled, LATER);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        assert_eq!(gate.admit(LATER), Admission::Full);
        leave(&mut gate, LATER, Signal::Up, false);
        // The saved-up burst is gone, and the pace is a fifth: the next one waits a tenth of a second.
        assert_eq!(gate.admit(LATER), Admission::Wait(Tick(LATER.0 + 100)));
    }

    #[test]
    fn enabling_an_enabled_endpoint_changes_nothing() {
        let mut gate = gate();
        gate.stand(Standing::Enabled, LATER);
        for _ in 0..10 {
            assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        }
    }

    #[test]
    fn retry_after_silences_the_whole_endpoint() {
        let mut gate = gate();
        gate.keep_quiet(LATER, Span::from_secs(30));
        gate.keep_quiet(LATER, Span::from_secs(10));
        let until = Tick(LATER.0 + 30_000);
        assert_eq!(gate.admit(LATER), Admission::Wait(until));
        assert_eq!(gate.admit(until), Admission::Admit { probe: false });
        assert_eq!(gate.admit(until), Admission::Full);
    }

    #[test]
    fn enabling_ends_the_quiet() {
        let mut gate = gate();
        gate.keep_quiet(LATER, Span::from_hours(24));
        gate.stand(Standing::Enabled, LATER);
        assert_eq!(gate.admit(LATER), Admission::Admit { probe: false });
        leave(&mut gate, LATER, Signal::Up, false);
        assert_eq!(gate.admit(LATER), Admission::Wait(Tick(LATER.0 + 100)));
    }

    #[test]
    fn failures_of_the_destination_narrow_the_window_and_nothing_else_does() {
        for (signal, room) in [
            (Signal::Down, 4),
            (Signal::Up, 9),
            (Signal::Aside, 9),
            (Signal::Void, 9),
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
            assert_eq!(admitted, room, "{signal:?}");
        }
    }

    #[test]
    fn one_probe_and_then_a_gentle_recovery() {
        let mut gate = gate();
        let settings = BreakerSettings::default();
        gate.trip(
            LATER,
            TripReason::FailureRatio,
            &settings,
            &mut Dice::seeded(1),
        );
        assert!(gate.holds());
        let Admission::Wait(until) = gate.admit(LATER) else {
            panic!("not tripped")
        };
        assert_eq!(gate.admit(until), Admission::Admit { probe: true });
        assert_eq!(gate.admit(until), Admission::Shut);
        assert_eq!(
            leave(&mut gate, until, Signal::Up, true),
            Some(Turnover::Recovered)
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
            "{arrivals} in the second after recovery"
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
            &mut Dice::seeded(1),
        );
        assert_eq!(leave(&mut gate, LATER, Signal::Up, false), None);
        assert!(gate.holds());
    }

    proptest! {
        /// Over any history the gate keeps every limit, and every wait it names ends as it says.
        #[test]
        fn keeps_every_limit_over_any_history(
            steps in prop::collection::vec((0u64..300, 0u8..10), 1..500),
            max_in_flight in 1u32..20,
            per_second in 1.0..200.0f64,
            burst in 1u32..40,
            seed: u64,
        ) {
            let mut gate = Gate::new(Standing::Enabled, max_in_flight, RateLimit { per_second, burst });
            let settings = BreakerSettings::default();
            let mut dice = Dice::seeded(seed);
            let mut now = Tick(0);
            let mut out: Vec<bool> = Vec::new();
            let mut sent: Vec<Tick> = Vec::new();
            let mut in_a_row = 0;
            for (pause, what) in steps {
                now = Tick(now.0 + pause);
                match what {
                    0..=4 => match gate.admit(now) {
                        Admission::Admit { probe } => {
                            prop_assert!(!probe || !out.contains(&true), "two probes at once");
                            out.push(probe);
                            sent.push(now);
                        }
                        Admission::Wait(until) => {
                            prop_assert!(until > now);
                            // By then nothing but a full window can be in the way, or one more wait.
                            let then = gate.outlook(until);
                            prop_assert!(then != Admission::Wait(until) && then != Admission::Shut);
                        }
                        Admission::Full => prop_assert!(!out.is_empty()),
                        Admission::Shut => prop_assert!(out.contains(&true) || gate.standing() == Standing::Paused),
                    },
                    5..=7 if !out.is_empty() => {
                        let probe = out.swap_remove(0);
                        let signal = [Signal::Up, Signal::Down, Signal::Aside][usize::from(what - 5)];
                        in_a_row = if signal == Signal::Down { in_a_row + 1 } else { 0 };
                        let overloaded = pause % 2 == 0;
                        let back = Back { signal, probe, failures_in_a_row: in_a_row, overloaded };
                        gate.leave(now, back, &settings, &mut dice);
                    }
                    8 => gate.keep_quiet(now, Span::from_millis(pause)),
                    9 => {
                        let paused = gate.standing() == Standing::Paused;
                        gate.stand(if paused { Standing::Enabled } else { Standing::Paused }, now);
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
