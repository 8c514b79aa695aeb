//! The rate limit of one endpoint.
//!
//! [`RateBucket`] implements the generic cell rate algorithm (GCRA). Its state is one number, the *theoretical
//! arrival time*: when the next request would arrive if all were evenly spaced. In any period of `t` seconds it
//! admits at most `burst + t × rate` requests. It returns the exact time at which the next request is admitted, so
//! callers need not poll.
//!
//! The limit is what the tenant configured. Two things lower the rate below it: after an interruption the pace restarts
//! at a fifth of the limit and rises with each success; and [`Backpressure`](super::Backpressure) sets a maximum while
//! the receiver is overloaded.

use serde::{Deserialize, Serialize};

use crate::time::Tick;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SECOND: f64 = 1e9;

/// Minimum rate: one request in about three hours.
pub const MIN_PER_SECOND: f64 = 0.0001;
/// Maximum rate, in requests per second.
pub const MAX_PER_SECOND: f64 = 100_000.0;
/// Maximum burst size, in requests.
pub const MAX_BURST: u32 = 100_000;

/// The rate limit of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Sustained rate, in requests per second.
    pub per_second: f64,
    /// Burst size: requests allowed at once after an idle period.
    pub burst: u32,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit {
            per_second: 100.0,
            burst: 200,
        }
    }
}

impl RateLimit {
    /// Returns the default burst of a rate: the requests of two seconds, as in the default limit.
    pub fn usual_burst(per_second: f64) -> u32 {
        (per_second * 2.0).ceil().clamp(1.0, f64::from(MAX_BURST)) as u32
    }

    fn interval_ns(self) -> u64 {
        // A value that is not a number must not become an interval of zero.
        let per_second = if self.per_second.is_nan() {
            MIN_PER_SECOND
        } else {
            self.per_second.clamp(MIN_PER_SECOND, MAX_PER_SECOND)
        };
        // Rounded up, so that the rate never exceeds the limit.
        (NS_PER_SECOND / per_second).ceil() as u64
    }

    fn tolerance_ns(self) -> u64 {
        let spare = u64::from(self.burst.clamp(1, MAX_BURST) - 1);
        self.interval_ns().saturating_mul(spare)
    }
}

/// The full pace: the limit itself. Paces are counted in millionths of it.
const FULL_PACE: u64 = 1_000_000;
/// The pace after an interruption: a fifth of the limit.
const RESTART_PACE: u64 = FULL_PACE / 5;
/// The increase of the pace by each success.
const PACE_STEP_UP: u64 = FULL_PACE / 200;

/// The state of one endpoint's rate limit.
#[derive(Clone, Debug)]
pub struct RateBucket {
    interval_ns: u64,
    tolerance_ns: u64,
    theoretical_arrival_ns: u64,
    pace: u64,
    /// Minimum time between requests while the receiver is overloaded; 0 if there is none.
    backpressure_ns: u64,
}

impl RateBucket {
    /// Creates a bucket that is just used up, because the process that ran before may have used it up. It is full
    /// again after about `burst / rate` seconds. The first request waits at most one second, even with a low rate.
    pub fn new(limit: RateLimit) -> RateBucket {
        let (interval_ns, tolerance_ns) = (limit.interval_ns(), limit.tolerance_ns());
        let mut bucket = RateBucket {
            interval_ns,
            tolerance_ns,
            theoretical_arrival_ns: 0,
            pace: FULL_PACE,
            backpressure_ns: 0,
        };
        bucket.exhaust(Tick::START);
        bucket
    }

    /// Counts the bucket as used up at `at`, because the previous owner of the endpoint may have used it up.
    pub fn exhaust(&mut self, at: Tick) {
        let first_ns = self.interval_ns.min(NS_PER_SECOND as u64);
        let used_up_ns = nanoseconds(at)
            .saturating_add(self.tolerance_ns)
            .saturating_add(first_ns);
        self.theoretical_arrival_ns = self.theoretical_arrival_ns.max(used_up_ns);
    }

    /// Changes the limit. Capacity that was used up under the old limit stays used up.
    pub fn set_limit(&mut self, limit: RateLimit, now: Tick) {
        self.interval_ns = limit.interval_ns();
        self.tolerance_ns = limit.tolerance_ns();
        let empty_ns = nanoseconds(now)
            .saturating_add(self.tolerance_ns)
            .saturating_add(self.interval_ns);
        self.theoretical_arrival_ns = self.theoretical_arrival_ns.min(empty_ns);
    }

    /// Returns the time from which the next request may be sent.
    pub fn opens_at(&self) -> Tick {
        rounded_up(
            self.theoretical_arrival_ns
                .saturating_sub(self.tolerance_ns),
        )
    }

    /// Returns the time at which the whole burst is available again.
    pub fn full_at(&self) -> Tick {
        rounded_up(self.theoretical_arrival_ns)
    }

    /// Spends one request.
    ///
    /// # Panics
    ///
    /// If the bucket is not open. The caller must have checked [`RateBucket::opens_at`].
    pub fn spend(&mut self, now: Tick) {
        assert!(
            self.opens_at() <= now,
            "an attempt was started that the rate limit does not allow"
        );
        self.theoretical_arrival_ns = self
            .theoretical_arrival_ns
            .max(nanoseconds(now))
            .saturating_add(self.paced_interval_ns());
    }

    /// Returns the rate limit of the endpoint, in requests per second.
    pub fn limit_per_second(&self) -> f64 {
        NS_PER_SECOND / self.interval_ns as f64
    }

    /// Returns the rate in force, in requests per second.
    pub fn per_second(&self) -> f64 {
        NS_PER_SECOND / self.paced_interval_ns() as f64
    }

    /// Returns true while the rate in force is below the limit.
    pub fn is_reduced(&self) -> bool {
        self.paced_interval_ns() > self.interval_ns
    }

    /// Sets or removes the maximum rate that the receiver's overload imposes.
    pub fn set_backpressure(&mut self, max_per_second: Option<f64>) {
        self.backpressure_ns = max_per_second.map_or(0, |per_second| {
            let burst = 1;
            RateLimit { per_second, burst }.interval_ns()
        });
    }

    /// Raises the pace a little, because the receiver accepted a request.
    pub fn speed_up(&mut self) {
        self.pace = (self.pace + PACE_STEP_UP).min(FULL_PACE);
    }

    /// Restarts after an interruption that ends at `at`: no burst, and a fifth of the limit at first.
    pub fn restart(&mut self, at: Tick) {
        self.pace = self.pace.min(RESTART_PACE);
        self.drain(at);
    }

    /// Undoes a [`RateBucket::drain`] at a future time: the bucket is then drained as of `now`.
    pub fn limit_drain(&mut self, now: Tick) {
        let drained_ns = nanoseconds(now).saturating_add(self.tolerance_ns);
        self.theoretical_arrival_ns = self.theoretical_arrival_ns.min(drained_ns);
    }

    fn paced_interval_ns(&self) -> u64 {
        let paced = u128::from(self.interval_ns) * u128::from(FULL_PACE) / u128::from(self.pace);
        let paced = u64::try_from(paced).unwrap_or(u64::MAX);
        paced.max(self.backpressure_ns)
    }

    /// Drops the burst available at `at`: from then on requests are evenly spaced.
    pub fn drain(&mut self, at: Tick) {
        let drained_ns = nanoseconds(at).saturating_add(self.tolerance_ns);
        self.theoretical_arrival_ns = self.theoretical_arrival_ns.max(drained_ns);
    }
}

fn nanoseconds(tick: Tick) -> u64 {
    tick.0.saturating_mul(NS_PER_MS)
}

fn rounded_up(ns: u64) -> Tick {
    Tick(ns.div_ceil(NS_PER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATER: Tick = Tick(3_600_000);

    fn full(per_second: f64, burst: u32) -> RateBucket {
        let bucket = RateBucket::new(RateLimit { per_second, burst });
        assert!(bucket.full_at() <= LATER);
        bucket
    }

    fn take_all(bucket: &mut RateBucket, now: Tick) -> u32 {
        let mut taken = 0;
        while bucket.opens_at() <= now {
            bucket.spend(now);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_full_bucket_allows_its_burst_and_then_its_rate() {
        let mut bucket = full(50.0, 100);
        assert_eq!(take_all(&mut bucket, LATER), 100);
        assert_eq!(bucket.opens_at(), Tick(LATER.0 + 20));
        assert_eq!(take_all(&mut bucket, Tick(LATER.0 + 1_000)), 50);
    }

    #[test]
    fn a_restart_does_not_repeat_the_burst() {
        let mut bucket = RateBucket::new(RateLimit {
            per_second: 50.0,
            burst: 100,
        });
        assert_eq!(take_all(&mut bucket, Tick::START), 0);
        assert_eq!(take_all(&mut bucket, Tick(1_000)), 50);
    }

    #[test]
    fn a_low_rate_does_not_wait_for_hours_after_a_restart() {
        let hourly = RateLimit {
            per_second: 1.0 / 3_600.0,
            burst: 1,
        };
        assert_eq!(RateBucket::new(hourly).opens_at(), Tick(1_000));
    }

    #[test]
    fn a_rate_of_nan_is_the_minimum() {
        for per_second in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
            let bucket = RateBucket::new(RateLimit {
                per_second,
                burst: 1,
            });
            assert_eq!(bucket.paced_interval_ns(), 10_000_000_000_000);
        }
    }

    #[test]
    fn an_empty_bucket_spaces_attempts_evenly() {
        let mut bucket = full(50.0, 100);
        bucket.drain(LATER);
        assert_eq!(take_all(&mut bucket, LATER), 1);
        assert_eq!(take_all(&mut bucket, Tick(LATER.0 + 1_000)), 50);
    }

    #[test]
    fn backpressure_lowers_the_rate_and_never_raises_it() {
        let second = |bucket: &mut RateBucket, from: u64| {
            let ticks = (LATER.0 + from..LATER.0 + from + 1_000).map(Tick);
            ticks.map(|now| take_all(bucket, now)).sum::<u32>()
        };
        let mut bucket = full(50.0, 100);
        bucket.drain(LATER);
        bucket.set_backpressure(Some(10.0));
        assert!(bucket.is_reduced());
        assert!((10..=11).contains(&second(&mut bucket, 0)));
        bucket.set_backpressure(Some(1_000.0));
        assert!(!bucket.is_reduced());
        assert!((49..=51).contains(&second(&mut bucket, 1_000)));
        bucket.set_backpressure(None);
        assert!((49..=51).contains(&second(&mut bucket, 2_000)));
    }

    #[test]
    fn after_an_idle_time_the_rate_starts_at_a_fifth() {
        let mut bucket = full(50.0, 100);
        bucket.restart(LATER);
        let sent: u32 = (0..1_000)
            .map(|ms| take_all(&mut bucket, Tick(LATER.0 + ms)))
            .sum();
        assert_eq!(sent, 10);
    }

    #[test]
    fn a_lower_limit_drops_the_old_debt() {
        let mut bucket = full(1.0, 1_000);
        take_all(&mut bucket, LATER);
        bucket.set_limit(
            RateLimit {
                per_second: 1.0,
                burst: 1,
            },
            LATER,
        );
        assert!(bucket.opens_at() <= Tick(LATER.0 + 1_000));
    }

    proptest! {
        #[test]
        fn no_second_ever_exceeds_burst_and_rate(
            per_second in 0.5..500.0f64,
            burst in 1u32..50,
            pauses in prop::collection::vec(0u64..700, 1..120),
            drains in prop::collection::vec(any::<bool>(), 120),
        ) {
            let mut bucket = RateBucket::new(RateLimit { per_second, burst });
            let mut now = Tick::START;
            let mut sent: Vec<Tick> = Vec::new();
            for (pause, drain) in pauses.into_iter().zip(drains) {
                now = Tick(now.0 + pause);
                if drain {
                    bucket.drain(now);
                }
                let taken = take_all(&mut bucket, now);
                sent.extend((0..taken).map(|_| now));
                // The returned time is exact: the bucket opens at that tick, and not before.
                prop_assert!(bucket.opens_at() > now);
            }
            for (index, first) in sent.iter().enumerate() {
                let within = sent[index..].iter().take_while(|at| at.0 < first.0 + 1_000).count();
                prop_assert!(within as f64 <= f64::from(burst) + per_second, "{within} attempts in a second");
            }
        }

        #[test]
        fn every_wait_ends(per_second in MIN_PER_SECOND..MAX_PER_SECOND, burst in 1u32..MAX_BURST) {
            let mut bucket = RateBucket::new(RateLimit { per_second, burst });
            for _ in 0..20 {
                let opens = bucket.opens_at();
                bucket.spend(opens);
                prop_assert!(bucket.opens_at().0 - opens.0 <= (1_000.0 / per_second).ceil() as u64 + 1);
            }
        }
    }
}
