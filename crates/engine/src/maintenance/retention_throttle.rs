//! Throttle of the retention run: step sizes and pauses.
//!
//! Deleting shares the store with sending, and yields to it. It uses a small part of the time, and more if it has been
//! deleting for long: then as much arrives as expires, and a growing file is worse than a slightly slower store. A step
//! is as large as takes a few milliseconds, because other writes wait for it. If every step is slow regardless of its
//! size, for example because commits are slow, small steps would delete next to nothing. Then the step size is chosen
//! so that a step takes about twice as long as an empty one.
//!
//! A run that keeps deleting for very long does not keep up: more expires than is deleted. Then deleting gets a growing
//! part of the time, up to one half, so that the stored data does not grow without bound. [`RetentionThrottle`] is pure: it neither
//! waits nor reads a clock.

use std::time::Duration;

use posthaste_system::backoff::Backoff;

/// Number of events that the first step looks at.
const FIRST_STEP: usize = 500;
/// Minimum and maximum number of events per step.
const SMALLEST_STEP: usize = 50;
const LARGEST_STEP: usize = 4_000;
/// Target duration of a step.
const STEP_TIME: Duration = Duration::from_millis(5);
/// Percentage of the time for deleting, once it has been deleting for that long without a break.
const SHARES: [(Duration, u32); 3] = [
    (Duration::ZERO, 5),
    (Duration::from_secs(10), 8),
    (Duration::from_secs(300), 20),
];
/// Percentage of the time for deleting, once a single run has been deleting for that long: it does not keep up.
const SHARES_BEHIND: [(Duration, u32); 2] = [
    (Duration::from_secs(30 * 60), 35),
    (Duration::from_secs(2 * 3_600), 50),
];
/// Minimum and maximum pause between two steps. The minimum prevents constant requests. The maximum is needed because a
/// store that blocks for a minute must not stop the retention for half an hour.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Minimum and maximum pause between two runs.
const SHORTEST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Pauses after failures.
const FAILURE_BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepResult {
    /// Duration of the step, including its wait in the write queue.
    pub(super) took: Duration,
    /// True if the step deleted anything.
    pub(super) removed: bool,
    /// True if there may be more to delete at once.
    pub(super) more: bool,
}

/// Size and duration of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepSample {
    step: usize,
    took: Duration,
}

impl StepSample {
    /// Returns true if the larger of two steps took hardly longer: less than half of what its size would predict.
    fn is_size_independent(self, other: StepSample) -> bool {
        let (small, large) = match self.step < other.step {
            true => (self, other),
            false => (other, self),
        };
        let longer = large.took.saturating_sub(small.took).as_nanos();
        let larger = (large.step - small.step) as u128;
        2 * longer * (small.step as u128) < larger * small.took.as_nanos()
    }
}

/// Computes step sizes and pauses.
#[derive(Debug)]
pub(super) struct RetentionThrottle {
    step: usize,
    /// Size and duration of the previous step.
    before: Option<StepSample>,
    /// Time for which steps have been deleting without a break.
    removing_for: Duration,
    /// Duration of the current run, and whether it has deleted anything.
    run: Duration,
    removed: bool,
    rest: Duration,
    /// Number of consecutive failures.
    failures: u32,
}

impl Default for RetentionThrottle {
    fn default() -> RetentionThrottle {
        RetentionThrottle {
            step: FIRST_STEP,
            before: None,
            removing_for: Duration::ZERO,
            run: Duration::ZERO,
            removed: false,
            rest: SHORTEST_REST,
            failures: 0,
        }
    }
}

impl RetentionThrottle {
    /// Returns the number of events that the next step looks at.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Returns the pause after a step.
    pub(super) fn after(&mut self, stepped: StepResult) -> Duration {
        self.failures = 0;
        let pause = pause(stepped.took, self.share_percent());
        let passed = stepped.took + pause;
        self.removed |= stepped.removed;
        self.run += passed;
        if stepped.removed {
            self.removing_for += passed;
        } else {
            self.removing_for = self.removing_for.saturating_sub(passed);
        }
        if !stepped.more {
            return self.end_run();
        }
        let this = StepSample {
            step: self.step,
            took: stepped.took,
        };
        self.step = next_step(self.before.replace(this), this);
        pause
    }

    /// Returns the pause after a failed step.
    pub(super) fn after_failure(&mut self) -> Duration {
        let pause = FAILURE_BACKOFF.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.step = SMALLEST_STEP.max(self.step / 2);
        pause
    }

    /// Ends a run, and returns the pause until the next one, which looks at everything again. If this run deleted
    /// something, more will expire soon, so the pause is as long as the run took. Otherwise the pause doubles.
    fn end_run(&mut self) -> Duration {
        self.rest = match std::mem::take(&mut self.removed) {
            true => SHORTEST_REST,
            false => (2 * self.rest).min(LONGEST_REST),
        };
        let run = std::mem::take(&mut self.run);
        if run < self.rest {
            self.removing_for = Duration::ZERO;
        }
        self.rest.max(run).min(LONGEST_REST)
    }

    fn share_percent(&self) -> u32 {
        let behind_for = self.run.min(self.removing_for);
        let usual = reached(&SHARES, self.removing_for).unwrap_or(SHARES[0].1);
        usual.max(reached(&SHARES_BEHIND, behind_for).unwrap_or(0))
    }
}

/// Returns the size of the next step, so that it takes the target duration, or its unavoidable minimum.
fn next_step(before: Option<StepSample>, this: StepSample) -> usize {
    let StepSample { step, took } = this;
    let next = if took < STEP_TIME {
        step + step / 4
    } else if took <= 2 * STEP_TIME {
        step
    } else if before.is_some_and(|before| before.is_size_independent(this)) || step == SMALLEST_STEP
    {
        // The size is not the reason for the slow step.
        2 * step
    } else {
        step / 2
    };
    next.clamp(SMALLEST_STEP, LARGEST_STEP)
}

/// Returns the last share whose time is reached.
fn reached(shares: &[(Duration, u32)], passed: Duration) -> Option<u32> {
    let reached = shares.iter().rev().find(|(after, _)| passed >= *after);
    reached.map(|(_, share)| *share)
}

/// Returns the pause that leaves all but `share` percent of the time to others.
fn pause(took: Duration, share: u32) -> Duration {
    let pause = took.saturating_mul(100 - share) / share;
    pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stepped(took_ms: u64, removed: bool, more: bool) -> StepResult {
        StepResult {
            took: Duration::from_millis(took_ms),
            removed,
            more,
        }
    }

    /// Deletes for this many seconds, and returns the part of the time that it used in the last minute.
    fn share_after(throttle: &mut RetentionThrottle, secs: u64) -> f64 {
        let (mut passed, mut busy, mut whole) = (Duration::ZERO, 0.0, 0.0);
        while passed < Duration::from_secs(secs) {
            let took = Duration::from_millis(5);
            let pause = throttle.after(stepped(5, true, true));
            passed += took + pause;
            if passed + Duration::from_secs(60) > Duration::from_secs(secs) {
                busy += took.as_secs_f64();
                whole += (took + pause).as_secs_f64();
            }
        }
        busy / whole
    }

    #[test]
    fn deleting_uses_a_small_part_of_the_time_and_more_if_it_lasts() {
        let near = |share: f64, wanted: f64| assert!((share - wanted).abs() < 0.005, "{share}");
        near(share_after(&mut RetentionThrottle::default(), 9), 0.05);
        near(share_after(&mut RetentionThrottle::default(), 200), 0.08);
        near(share_after(&mut RetentionThrottle::default(), 900), 0.20);
    }

    #[test]
    fn a_slow_step_is_followed_by_a_long_pause_and_a_smaller_step() {
        let mut throttle = RetentionThrottle::default();
        let quick = throttle.after(stepped(5, true, true));
        let slow = throttle.after(stepped(200, true, true));
        assert_eq!(quick, Duration::from_millis(95));
        assert_eq!(slow, Duration::from_millis(3_800));
        assert_eq!(throttle.step(), FIRST_STEP / 2);
        for _ in 0..20 {
            throttle.after(stepped(throttle.step() as u64, true, true));
        }
        // Larger steps are tried now and then, to see whether they are still slower.
        assert!(throttle.step() <= 2 * SMALLEST_STEP, "{}", throttle.step());
        for _ in 0..40 {
            throttle.after(stepped(1, true, true));
        }
        assert_eq!(throttle.step(), LARGEST_STEP);
    }

    /// Returns the step size if 100 events take 1 ms and each step takes `fixed_ms` in addition.
    fn step_where_each_costs(fixed_ms: u64) -> usize {
        let mut throttle = RetentionThrottle::default();
        for _ in 0..50 {
            let took_ms = fixed_ms + throttle.step() as u64 / 100;
            throttle.after(stepped(took_ms, true, true));
        }
        throttle.step()
    }

    #[test]
    fn steps_are_large_if_small_ones_are_as_slow() {
        assert!((400..=1_250).contains(&step_where_each_costs(0)));
        // Half of the target duration is enough for a few hundred events.
        assert!(step_where_each_costs(3) >= 200);
        // A step deletes as much as ten of the smallest, in less than twice the time.
        for fixed_ms in [20, 40, 100, 1_000] {
            let step = step_where_each_costs(fixed_ms);
            assert!(step >= 10 * SMALLEST_STEP, "{fixed_ms} ms: {step}");
        }
    }

    #[test]
    fn runs_that_find_nothing_become_rare() {
        let mut throttle = RetentionThrottle::default();
        let idle: Vec<u64> = (0..12)
            .map(|_| throttle.after(stepped(1, false, false)).as_secs())
            .collect();
        assert_eq!(idle[..4], [2, 4, 8, 16]);
        assert_eq!(idle[11], LONGEST_REST.as_secs());
        // A run that deleted something is soon followed by the next.
        assert_eq!(throttle.after(stepped(1, true, false)), SHORTEST_REST);
        assert_eq!(throttle.after(stepped(1, false, false)), 2 * SHORTEST_REST);
    }

    #[test]
    fn a_long_run_is_followed_by_a_pause_as_long() {
        let mut throttle = RetentionThrottle::default();
        let mut round = Duration::ZERO;
        for _ in 0..100 {
            round += Duration::from_millis(5) + throttle.after(stepped(5, false, true));
        }
        let rest = throttle.after(stepped(5, true, false));
        assert!(rest >= round && rest < round + Duration::from_secs(1));
    }

    #[test]
    fn failures_are_retried_with_backoff() {
        let mut throttle = RetentionThrottle::default();
        let waits: Vec<u64> = (0..8).map(|_| throttle.after_failure().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        throttle.after(stepped(1, false, true));
        assert_eq!(throttle.after_failure(), FAILURE_BACKOFF.first);
    }

    /// Simulates a store where `rate` events expire per second, deleting one takes `event_us` microseconds, and each
    /// step waits `wait_ms` milliseconds for its turn. Returns by how many seconds deleting is behind after each hour.
    fn behind_after(rate: u64, event_us: u64, wait_ms: u64, hours: u64) -> Vec<u64> {
        let mut throttle = RetentionThrottle::default();
        let (mut passed, mut came, mut gone) = (Duration::ZERO, 0, 0);
        let mut behind = Vec::new();
        while (behind.len() as u64) < hours {
            let removed = (throttle.step() as u64).min(came - gone);
            let took = Duration::from_micros(500 + removed * event_us + 1_000 * wait_ms);
            let more = removed == throttle.step() as u64;
            gone += removed;
            passed += took;
            passed += throttle.after(StepResult {
                took,
                removed: removed > 0,
                more,
            });
            came = passed.as_micros() as u64 * rate / 1_000_000;
            if passed.as_secs() >= 3_600 * (behind.len() as u64 + 1) {
                behind.push((came - gone) / rate.max(1));
            }
        }
        behind
    }

    #[test]
    fn expired_data_does_not_grow_without_bound() {
        for (rate, event_us, wait_ms) in [
            (1_000, 10, 0),
            // 20 % of the time is not enough, 50 % is.
            (30_000, 10, 0),
            (400, 1_000, 0),
            // Here every step waits long for its turn.
            (1_500, 10, 1_000),
        ] {
            let behind = behind_after(rate, event_us, wait_ms, 16);
            let within_bounds = behind.iter().all(|secs| *secs <= 2 * 3_600);
            assert!(within_bounds, "{rate} a second: {behind:?}");
        }
    }

    #[test]
    fn a_run_that_ends_is_not_behind() {
        // Ten minutes of every quarter of an hour, repeatedly: 20 % of the time is enough.
        let mut throttle = RetentionThrottle::default();
        for _ in 0..20 {
            let mut passed = Duration::ZERO;
            while passed < Duration::from_secs(600) {
                let took = Duration::from_millis(5);
                let pause = throttle.after(stepped(5, true, true));
                assert!(pause >= took * 4, "{pause:?}");
                passed += took + pause;
            }
            throttle.after(stepped(5, true, false));
        }
    }

    fn any_step() -> impl Strategy<Value = Option<StepResult>> {
        let took = prop_oneof![0..5_000_u64, 0..200_000_u64, 0..60_000_000_u64];
        proptest::option::weighted(0.9, (took, any::<bool>(), prop::bool::weighted(0.9))).prop_map(
            |step| {
                step.map(|(us, removed, more)| StepResult {
                    took: Duration::from_micros(us),
                    removed,
                    more,
                })
            },
        )
    }

    proptest! {
        /// For any sequence of steps: step sizes stay within their bounds, at least half of the time is left to others
        /// unless the store blocks, and the next step comes within about a minute.
        #[test]
        fn steps_and_pauses_stay_within_their_bounds(steps in prop::collection::vec(any_step(), 1..300)) {
            let mut throttle = RetentionThrottle::default();
            for step in steps {
                let waits = match step {
                    Some(step) => {
                        let waits = throttle.after(step);
                        prop_assert!(waits >= step.took.min(LONGEST_PAUSE));
                        waits
                    }
                    None => throttle.after_failure(),
                };
                prop_assert!(waits >= SHORTEST_PAUSE, "no time at all is left to others");
                prop_assert!(waits <= LONGEST_REST.max(LONGEST_PAUSE).max(FAILURE_BACKOFF.longest));
                prop_assert!((SMALLEST_STEP..=LARGEST_STEP).contains(&throttle.step()));
            }
        }

        /// A slower step never gets a shorter pause, after any sequence of steps.
        #[test]
        fn a_slower_step_never_gets_a_shorter_pause(
            steps in prop::collection::vec(any_step(), 0..100),
            quick_us in 0..100_000_u64,
            more_us in 0..100_000_u64,
        ) {
            let after = |us: u64| {
                let mut throttle = RetentionThrottle::default();
                for step in steps.iter().flatten() {
                    throttle.after(*step);
                }
                let took = Duration::from_micros(us);
                throttle.after(StepResult { took, removed: true, more: true })
            };
            prop_assert!(after(quick_us) <= after(quick_us + more_us));
        }
    }
}
