//! Quotas: the number of events that a tenant may send.
//!
//! [`Quotas`] has two limits. The limit *per second* uses the generic cell rate algorithm (GCRA). Its state
//! is one number: the theoretical arrival time of the next event if all were evenly spaced. The whole number per
//! second may arrive at once after a second without events. The limit *per calendar month* counts events.
//!
//! The module keeps no state. The caller keeps what has been used up and writes the new value in the same
//! transaction as the events. Several nodes that do this one after the other are therefore as exact as one node.

use crate::time::{Month, Span, Timestamp};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Maximum difference between the clocks of nodes. An arrival time further ahead was written by a clock that was
/// wrong and has been corrected since. It must not block the tenant for as long as the clock was wrong.
const MAX_SKEW_NS: u64 = 60 * NS_PER_SECOND;

/// The event limits of a tenant. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Maximum number of events per second, and at once.
    pub per_second: Option<u32>,
    /// Maximum number of events per calendar month, in UTC.
    pub per_month: Option<u64>,
}

/// The part of its quota that a tenant has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Theoretical arrival time of the next event, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
    /// Number of events in this month.
    pub this_month: u64,
}

/// One of the two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// The limit per second.
    PerSecond,
    /// The limit per month.
    PerMonth,
}

/// The reason why events are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The limit that is exceeded. If both are, the one with the longer wait.
    pub quota: QuotaKind,
    /// Time after which the same number of events would be accepted, if no others arrive; `None` if never.
    pub wait: Option<Span>,
}

impl Quotas {
    /// No limits.
    pub const UNLIMITED: Quotas = Quotas {
        per_second: None,
        per_month: None,
    };

    /// Returns true if there is any limit.
    pub fn is_limited(&self) -> bool {
        *self != Quotas::UNLIMITED
    }

    /// Returns what is used up after `count` more events, or the reason if not all of them can be accepted.
    pub fn take(
        &self,
        now: Timestamp,
        used: QuotaUsage,
        count: u64,
    ) -> Result<QuotaUsage, QuotaExceeded> {
        if count == 0 {
            return Ok(used);
        }
        let arrival = self.take_second(now, used.arrival_ns, count);
        let this_month = self.take_month(now, used.this_month, count);
        match (arrival, this_month) {
            (Ok(arrival_ns), Ok(this_month)) => Ok(QuotaUsage {
                arrival_ns,
                this_month,
            }),
            (Err(second), Ok(_)) => Err(second),
            (Ok(_), Err(month)) => Err(month),
            (Err(second), Err(month)) => {
                let lasts = |over: &QuotaExceeded| over.wait.map_or(u64::MAX, Span::as_millis);
                Err(if lasts(&second) > lasts(&month) {
                    second
                } else {
                    month
                })
            }
        }
    }

    fn take_second(
        &self,
        now: Timestamp,
        arrival_ns: u64,
        count: u64,
    ) -> Result<u64, QuotaExceeded> {
        let Some(per_second) = self.per_second.map(u64::from) else {
            return Ok(arrival_ns);
        };
        let over = |wait| QuotaExceeded {
            quota: QuotaKind::PerSecond,
            wait,
        };
        if count > per_second {
            return Err(over(None));
        }
        // Rounded up, so that the rate never exceeds the limit.
        let interval_ns = NS_PER_SECOND.div_ceil(per_second);
        let now_ns = now.0.saturating_mul(NS_PER_MS);
        let room_ends_ns = now_ns.saturating_add(interval_ns.saturating_mul(per_second));
        let arrival_ns = match arrival_ns {
            // A rejection is not stored, so only accepted events correct a wrong number. The cost is one extra
            // burst.
            wrong if wrong > room_ends_ns.saturating_add(MAX_SKEW_NS) => now_ns,
            arrival_ns => arrival_ns.max(now_ns),
        };
        let after_ns = arrival_ns.saturating_add(interval_ns.saturating_mul(count));
        if after_ns > room_ends_ns {
            let wait_ms = (after_ns - room_ends_ns).div_ceil(NS_PER_MS);
            return Err(over(Some(Span::from_millis(wait_ms))));
        }
        Ok(after_ns)
    }

    fn take_month(
        &self,
        now: Timestamp,
        this_month: u64,
        count: u64,
    ) -> Result<u64, QuotaExceeded> {
        let after = this_month.saturating_add(count);
        match self.per_month {
            Some(limit) if after > limit => Err(QuotaExceeded {
                quota: QuotaKind::PerMonth,
                wait: (count <= limit).then(|| Month::of(now).ends_at().since(now)),
            }),
            Some(_) | None => Ok(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    fn a_second(per_second: u32) -> Quotas {
        Quotas {
            per_second: Some(per_second),
            per_month: None,
        }
    }

    fn later(ms: u64) -> Timestamp {
        Timestamp(NOON.0 + ms)
    }

    fn refused(quota: QuotaKind, wait: Option<u64>) -> Result<QuotaUsage, QuotaExceeded> {
        Err(QuotaExceeded {
            quota,
            wait: wait.map(Span::from_millis),
        })
    }

    #[test]
    fn one_second_of_quota_at_once_and_then_at_the_rate() {
        let ten = a_second(10);
        let used = ten
            .take(NOON, QuotaUsage::default(), 10)
            .expect("a full second's quota is available at once");
        assert_eq!(
            ten.take(NOON, used, 1),
            refused(QuotaKind::PerSecond, Some(100))
        );
        assert_eq!(
            ten.take(later(99), used, 1),
            refused(QuotaKind::PerSecond, Some(1))
        );
        let used = ten
            .take(later(100), used, 1)
            .expect("one event is available after 100 ms");
        assert_eq!(
            ten.take(later(100), used, 10),
            refused(QuotaKind::PerSecond, Some(1_000))
        );
        assert!(ten.take(later(1_100), used, 10).is_ok());
    }

    #[test]
    fn a_request_that_never_fits_has_no_wait() {
        let used = QuotaUsage::default();
        let never = refused(QuotaKind::PerSecond, None);
        assert_eq!(a_second(10).take(NOON, used, 11), never);
        assert_eq!(a_second(0).take(NOON, used, 1), never);
        let monthly = |limit| Quotas {
            per_second: None,
            per_month: Some(limit),
        };
        assert_eq!(
            monthly(10).take(NOON, used, 11),
            refused(QuotaKind::PerMonth, None)
        );
        assert_eq!(
            monthly(0).take(NOON, used, 1),
            refused(QuotaKind::PerMonth, None)
        );
        let used = QuotaUsage {
            this_month: 9,
            ..used
        };
        let rest = Month::of(NOON).ends_at().0 - NOON.0;
        assert_eq!(
            monthly(10).take(NOON, used, 2),
            refused(QuotaKind::PerMonth, Some(rest))
        );
        let full = monthly(10)
            .take(NOON, used, 1)
            .expect("the last event of the month is available");
        assert_eq!(full.this_month, 10);
        // Zero events use up nothing.
        assert_eq!(monthly(10).take(NOON, full, 0), Ok(full));
        assert_eq!(a_second(0).take(NOON, full, 0), Ok(full));
    }

    #[test]
    fn the_longer_lasting_of_two_limits_is_reported() {
        let both = Quotas {
            per_second: Some(1),
            per_month: Some(1),
        };
        let used = both
            .take(NOON, QuotaUsage::default(), 1)
            .expect("the first event is within both quotas");
        let over = both
            .take(NOON, used, 1)
            .expect_err("both quotas are used up");
        assert_eq!(over.quota, QuotaKind::PerMonth);
        let never = both
            .take(NOON, used, 2)
            .expect_err("two events exceed both quotas");
        assert_eq!(never.wait, None);
    }

    #[test]
    fn usage_from_a_clock_far_ahead_is_ignored() {
        let ten = a_second(10);
        let tomorrow = Timestamp(NOON.0 + 86_400_000);
        let used = ten
            .take(tomorrow, QuotaUsage::default(), 10)
            .expect("a full second's quota is available at once");
        let used = ten
            .take(NOON, used, 10)
            .expect("usage from the future does not count");
        // From then on the result is as if the clock had always been right.
        assert_eq!(
            ten.take(NOON, used, 1),
            refused(QuotaKind::PerSecond, Some(100))
        );
        assert!(ten.take(later(100), used, 1).is_ok());
        // A node whose clock is slightly ahead does not allow the burst twice.
        let used = ten
            .take(later(5_000), QuotaUsage::default(), 10)
            .expect("a full second's quota is available at once");
        assert!(ten.take(NOON, used, 1).is_err());
    }

    proptest! {
        #[test]
        fn no_interval_accepts_more_than_the_quota(
            per_second in 1u32..200,
            steps in prop::collection::vec((0u64..400, 1u64..40), 1..150),
        ) {
            let limit = a_second(per_second);
            let (mut used, mut now) = (QuotaUsage::default(), NOON);
            let mut taken: Vec<(Timestamp, u64)> = Vec::new();
            for (pause, count) in steps {
                now = Timestamp(now.0 + pause);
                match limit.take(now, used, count) {
                    Ok(after) => {
                        used = after;
                        taken.push((now, count));
                    }
                    Err(QuotaExceeded { wait: None, .. }) => prop_assert!(count > per_second.into()),
                    Err(QuotaExceeded { wait: Some(wait), .. }) => {
                        // The returned wait is exact.
                        prop_assert!(limit.take(now.after(wait), used, count).is_ok());
                        let short = Span::from_millis(wait.as_millis() - 1);
                        prop_assert!(limit.take(now.after(short), used, count).is_err());
                    }
                }
            }
            for (index, (first, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (at, count) in &taken[index..] {
                    sum += count;
                    let passed_ms = at.0 - first.0;
                    let most = u64::from(per_second) * (1_000 + passed_ms) / 1_000;
                    prop_assert!(sum <= most, "{sum} events were accepted in {passed_ms} ms");
                }
            }
        }
    }
}
