//! Values of the alerts that are computed from counters.
//!
//! [`from_counters`] computes the value of each alert in [`FROM_COUNTERS`] from the sums of a window. [`buckets`]
//! chooses the stats buckets that cover the window. Pure.

use posthaste_core::alert::{AlertName, Reading};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{BucketWidth, StatCounters};
use posthaste_telemetry::metrics::health::Ratio;

/// Alerts that are computed from counters: of all tenants, one tenant or one endpoint.
pub const FROM_COUNTERS: [AlertName; 5] = [
    AlertName::RetryRatio,
    AlertName::DeadLetterRatio,
    AlertName::AttemptsPerSuccess,
    AlertName::SecondAttemptSuccessRatio,
    AlertName::DeadLettersGrowing,
];

/// Computes the values, in the order of [`FROM_COUNTERS`]. The ratios are those of the stats.
pub fn from_counters(counters: &StatCounters) -> [(AlertName, Reading); 5] {
    let seen = |ratio: Ratio| Reading::ratio(ratio.part, ratio.whole);
    let [retry, dead, attempts, second, growing] = FROM_COUNTERS;
    [
        (retry, seen(Ratio::retries(counters))),
        (dead, seen(Ratio::dead_letters(counters))),
        (attempts, seen(Ratio::attempts_per_success(counters))),
        (second, seen(Ratio::second_attempt_successes(counters))),
        (growing, Reading::value(counters.failed as f64)),
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
            retries: 40,
            retried_deliveries: 20,
            second_attempts: 16,
            second_successes: 12,
            succeeded: 96,
            success_attempts: 108,
            failed: 4,
            ..StatCounters::default()
        };
        let values = from_counters(&counters).map(|(_, seen)| seen);
        let value = |value, samples| Reading::Value { value, samples };
        let expected = [
            value(0.25, 80),
            value(0.04, 100),
            value(1.125, 96),
            value(0.75, 16),
            Reading::value(4.0),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn a_ratio_without_samples_is_not_read() {
        let [retry, dead, attempts, second, growing] = from_counters(&StatCounters::default());
        for (name, seen) in [retry, dead, attempts, second] {
            assert_eq!(seen, Reading::Nothing, "{name}");
        }
        assert_eq!(growing.1, Reading::value(0.0));
        let no_success = StatCounters {
            attempts: 7,
            retries: 7,
            ..StatCounters::default()
        };
        let [retry, _, attempts, _, _] = from_counters(&no_success);
        assert_eq!([retry.1, attempts.1], [Reading::Nothing; 2]);
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
