//! Values of the alerts that are computed from counters.
//!
//! [`from_counters`] computes the value of each alert in [`FROM_COUNTERS`] from the sums of a window. [`buckets`]
//! chooses the stats buckets that cover the window. Pure.

use posthaste_core::alert::{AlertName, Seen};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{BucketWidth, StatCounters};

/// Alerts that are computed from counters: of all tenants, one tenant or one endpoint.
pub const FROM_COUNTERS: [AlertName; 5] = [
    AlertName::RetryRatio,
    AlertName::DeadLetterRatio,
    AlertName::AttemptsPerSuccess,
    AlertName::SecondAttemptSuccessRatio,
    AlertName::DeadLettersGrowing,
];

/// Computes the values, in the order of [`FROM_COUNTERS`].
pub fn from_counters(counters: &StatCounters) -> [(AlertName, Seen); 5] {
    let finished = counters.succeeded.saturating_add(counters.failed);
    // Before the first success, the number of attempts itself is the value.
    let attempts_per_success = match counters.attempts {
        0 => Seen::Nothing,
        attempts => Seen::Value {
            value: attempts as f64 / counters.succeeded.max(1) as f64,
            samples: attempts,
        },
    };
    let [retry, dead, attempts, second, growing] = FROM_COUNTERS;
    [
        (retry, Seen::ratio(counters.retries, counters.attempts)),
        (dead, Seen::ratio(counters.failed, finished)),
        (attempts, attempts_per_success),
        (
            second,
            Seen::ratio(counters.second_successes, counters.second_attempts),
        ),
        (growing, Seen::value(counters.failed as f64)),
    ]
}

/// Returns the buckets of a window that ends now: their width, and the start of the first one.
pub fn buckets(now: Timestamp, window: Span) -> (BucketWidth, Timestamp) {
    // The bucket in which the window begins is read too, so it must not be expired.
    let fits = |width: &BucketWidth| window.plus(width.bucket()) <= width.kept();
    let mut widths = BucketWidth::ALL.into_iter();
    let width = widths.find(fits).unwrap_or(BucketWidth::Quarter);
    let since = Timestamp(now.0.saturating_sub(window.as_millis()));
    (width, width.begin(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::settings::LONGEST_WINDOW;

    #[test]
    fn values_are_ratios_of_the_counters() {
        let counters = StatCounters {
            attempts: 120,
            retries: 30,
            second_attempts: 16,
            second_successes: 12,
            succeeded: 96,
            failed: 4,
            ..StatCounters::default()
        };
        let values = from_counters(&counters).map(|(_, seen)| seen);
        let value = |value, samples| Seen::Value { value, samples };
        let expected = [
            value(0.25, 120),
            value(0.04, 100),
            value(1.25, 120),
            value(0.75, 16),
            Seen::value(4.0),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn without_success_the_value_is_the_number_of_attempts() {
        let [retry, dead, attempts, second, growing] = from_counters(&StatCounters::default());
        for (name, seen) in [retry, dead, attempts, second] {
            assert_eq!(seen, Seen::Nothing, "{name}");
        }
        assert_eq!(growing.1, Seen::value(0.0));
        let failing = StatCounters {
            attempts: 7,
            ..StatCounters::default()
        };
        let expected = Seen::Value {
            value: 7.0,
            samples: 7,
        };
        assert_eq!(from_counters(&failing)[2].1, expected);
    }

    #[test]
    fn a_window_reads_only_buckets_that_are_kept() {
        let now = Timestamp(1_700_000_123_456);
        for minutes in [1, 5, 60, 119, 120, 600, 1_440] {
            let window = Span::from_mins(minutes);
            assert!(window <= LONGEST_WINDOW);
            let (width, since) = buckets(now, window);
            assert_eq!(width.begin(since), since, "{minutes}");
            let age = now.since(since);
            assert!(age >= window && age <= width.kept(), "{minutes}: {age:?}");
            assert_eq!(width == BucketWidth::Minute, minutes <= 119, "{minutes}");
        }
    }
}
