//! Rate limiter for callers of the API.
//!
//! [`RateLimiter`] implements GCRA: it stores one number, the theoretical arrival time of the next request, in an
//! atomic. A check costs one exchange and no lock. A batch larger than the burst is accepted when the full
//! burst is available, and later requests wait longer for it. So the average rate holds. [`PostpaidLimiter`] is charged
//! afterwards, with what a request turned out to cost.

use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::time::{Span, Tick};

use super::settings::RequestRate;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// The state of one rate limiter.
#[derive(Debug, Default)]
pub struct RateLimiter {
    theoretical_arrival_ns: AtomicU64,
}

impl RateLimiter {
    /// Takes `count` requests from the limit, or returns the time to wait before a retry.
    pub fn spend(&self, now: Tick, rate: RequestRate, count: u32) -> Result<(), Span> {
        let interval_ns = NS_PER_SECOND / u64::from(rate.per_second.max(1));
        let burst = u64::from(rate.burst.max(1));
        let burst_ns = interval_ns * burst;
        let needed_ns = interval_ns * u64::from(count).min(burst);
        let cost_ns = interval_ns * u64::from(count);
        let now_ns = now.0.saturating_mul(NS_PER_MS);
        let spend = |arrival_ns: u64| {
            let arrival_ns = arrival_ns.max(now_ns);
            let fits = arrival_ns + needed_ns <= now_ns + burst_ns;
            fits.then_some(arrival_ns.saturating_add(cost_ns))
        };
        self.theoretical_arrival_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .map(|_| ())
            .map_err(|arrival_ns| {
                let wait_ns = (arrival_ns + needed_ns).saturating_sub(now_ns + burst_ns);
                Span::from_millis(wait_ns.div_ceil(NS_PER_MS))
            })
    }
}

/// A token bucket that is charged afterwards: it holds the tokens of one second, may go below zero, and nothing may be
/// spent while it is below zero.
#[derive(Debug, Default)]
pub struct PostpaidLimiter {
    /// The time at which the bucket is full again.
    full_at_ns: AtomicU64,
}

impl PostpaidLimiter {
    /// Returns the time until the bucket is no longer below zero; `None` if it is not.
    pub fn wait(&self, now: Tick) -> Option<Span> {
        let zero_at_ns = self.full_at_ns.load(Ordering::Relaxed);
        let zero_at_ns = zero_at_ns.saturating_sub(NS_PER_SECOND);
        let wait_ns = zero_at_ns.saturating_sub(now.0.saturating_mul(NS_PER_MS));
        (wait_ns > 0).then(|| Span::from_millis(wait_ns.div_ceil(NS_PER_MS)))
    }

    /// Takes `count` tokens out, of which `per_second` come back each second.
    pub fn charge(&self, now: Tick, per_second: u32, count: u64) {
        let interval_ns = NS_PER_SECOND.div_ceil(u64::from(per_second.max(1)));
        let now_ns = now.0.saturating_mul(NS_PER_MS);
        let charge = |full_at_ns: u64| {
            let cost_ns = interval_ns.saturating_mul(count);
            Some(full_at_ns.max(now_ns).saturating_add(cost_ns))
        };
        // The closure always returns a value.
        let _ = self
            .full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_paid_off_at_the_rate() {
        let limiter = PostpaidLimiter::default();
        assert_eq!(limiter.wait(Tick(5_000)), None);
        limiter.charge(Tick(5_000), 10, 10);
        assert_eq!(
            limiter.wait(Tick(5_000)),
            None,
            "it is empty, not below zero"
        );
        limiter.charge(Tick(5_000), 10, 25);
        assert_eq!(limiter.wait(Tick(5_000)), Some(Span::from_millis(2_500)));
        assert_eq!(limiter.wait(Tick(7_499)), Some(Span::from_millis(1)));
        assert_eq!(limiter.wait(Tick(7_500)), None);
        // At 7.5 s it is empty again, and every token more is a debt.
        limiter.charge(Tick(7_500), 10, 1);
        assert_eq!(limiter.wait(Tick(7_500)), Some(Span::from_millis(100)));
        // An idle time fills it with no more than one second's tokens.
        limiter.charge(Tick(1_000_000), 10, 11);
        assert_eq!(limiter.wait(Tick(1_000_000)), Some(Span::from_millis(100)));
        limiter.charge(Tick(2_000_000), u32::MAX, u64::MAX);
        assert!(limiter.wait(Tick(2_000_000)).is_some(), "no overflow");
    }

    const PACE: RequestRate = RequestRate {
        per_second: 10,
        burst: 5,
    };

    #[test]
    fn burst_is_followed_by_the_sustained_rate() {
        let limiter = RateLimiter::default();
        for _ in 0..5 {
            assert_eq!(limiter.spend(Tick(1_000), PACE, 1), Ok(()));
        }
        assert_eq!(
            limiter.spend(Tick(1_000), PACE, 1),
            Err(Span::from_millis(100))
        );
        assert_eq!(
            limiter.spend(Tick(1_099), PACE, 1),
            Err(Span::from_millis(1))
        );
        assert_eq!(limiter.spend(Tick(1_100), PACE, 1), Ok(()));
        assert!(limiter.spend(Tick(1_100), PACE, 1).is_err());
    }

    #[test]
    fn request_larger_than_the_burst_is_granted_once_and_charged() {
        let limiter = RateLimiter::default();
        assert_eq!(limiter.spend(Tick(0), PACE, 20), Ok(()));
        // 20 requests at 10 per second take 2 s; the burst covers part of that time.
        assert_eq!(
            limiter.spend(Tick(0), PACE, 1),
            Err(Span::from_millis(1_600))
        );
        assert_eq!(limiter.spend(Tick(1_600), PACE, 1), Ok(()));
    }

    #[test]
    fn idle_time_grants_at_most_the_burst() {
        let limiter = RateLimiter::default();
        let later = Tick(1_000_000);
        for _ in 0..5 {
            assert_eq!(limiter.spend(later, PACE, 1), Ok(()));
        }
        assert!(limiter.spend(later, PACE, 1).is_err());
    }
}
