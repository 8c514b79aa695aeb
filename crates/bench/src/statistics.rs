//! Statistics: percentiles, medians, and the busiest second.
//!
//! All values are exact. A percentile is always one of the measured values, so a p99 is a latency that really
//! occurred.

use serde::Serialize;

/// Median and 99th percentile, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    /// Computes the percentiles of values in nanoseconds, in any order; `None` if there are no values.
    pub fn of_nanos(mut nanos: Vec<u64>) -> Option<Percentiles> {
        nanos.sort_unstable();
        let ms = |share| Some(percentile(&nanos, share)? as f64 / 1e6);
        Some(Percentiles {
            p50: ms(0.50)?,
            p99: ms(0.99)?,
        })
    }

    /// Returns the median of each percentile over several rounds.
    pub fn median(rounds: &[Percentiles]) -> Option<Percentiles> {
        let of = |pick: fn(&Percentiles) -> f64| median(rounds.iter().map(pick));
        Some(Percentiles {
            p50: of(|percentiles| percentiles.p50)?,
            p99: of(|percentiles| percentiles.p99)?,
        })
    }
}

/// Returns the smallest value such that at least this share of all values is not above it. The values must be sorted.
pub fn percentile(sorted: &[u64], share: f64) -> Option<u64> {
    debug_assert!(sorted.is_sorted() && (0.0..=1.0).contains(&share));
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Returns the median; the mean of the two middle values if their number is even.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

/// Returns `this / of`, or `None` if it is not finite.
pub fn ratio(this: f64, of: f64) -> Option<f64> {
    let ratio = this / of;
    ratio.is_finite().then_some(ratio)
}

/// Returns the maximum number of times in any window of this length. A window includes its start and excludes its
/// end. The times must be sorted.
pub fn busiest_window(sorted: &[u64], length: u64) -> usize {
    debug_assert!(sorted.is_sorted());
    let mut oldest = 0;
    let mut max = 0;
    for (index, time) in sorted.iter().enumerate() {
        while sorted[oldest].saturating_add(length) <= *time {
            oldest += 1;
        }
        max = max.max(index + 1 - oldest);
    }
    max
}

/// Counts the times in consecutive windows of this length, beginning at `start`. Earlier times are ignored.
pub fn series(arrival_times: &[u64], start: u64, length: u64) -> Vec<u64> {
    let mut counts = Vec::new();
    for time in arrival_times.iter().filter(|time| **time >= start) {
        let window = ((time - start) / length) as usize;
        if counts.len() <= window {
            counts.resize(window + 1, 0);
        }
        counts[window] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_is_a_measured_value() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 0.50), Some(50));
        assert_eq!(percentile(&hundred, 0.99), Some(99));
        assert_eq!(percentile(&hundred, 1.0), Some(100));
        assert_eq!(percentile(&hundred, 0.0), Some(1));
        assert_eq!(percentile(&[7], 0.99), Some(7));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn percentiles_are_in_milliseconds() {
        let percentiles = Percentiles::of_nanos(vec![3_000_000, 1_000_000, 2_500_000]);
        assert_eq!(percentiles, Some(Percentiles { p50: 2.5, p99: 3.0 }));
        assert_eq!(Percentiles::of_nanos(vec![]), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_ratio_to_zero_is_none() {
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(0.0, 0.0), None);
    }

    #[test]
    fn the_busiest_second_may_start_within_a_second() {
        // Two in each whole second, but four within the second that begins at 900.
        let arrival_times = [100, 900, 950, 1_100, 1_899, 1_900, 2_950];
        assert_eq!(busiest_window(&arrival_times, 1_000), 4);
        assert_eq!(series(&arrival_times, 0, 1_000), [3, 3, 1]);
        assert_eq!(series(&arrival_times, 950, 1_000), [4, 0, 1]);
        assert_eq!(busiest_window(&[], 1_000), 0);
    }

    #[test]
    fn a_window_excludes_its_end() {
        assert_eq!(busiest_window(&[0, 1_000], 1_000), 1);
        assert_eq!(busiest_window(&[0, 999], 1_000), 2);
        assert_eq!(busiest_window(&[5, 5, 5], 1_000), 3);
    }

    proptest! {
        #[test]
        fn the_busiest_window_agrees_with_a_check_of_each(
            mut arrival_times in prop::collection::vec(0u64..2_000, 0..60),
            length in 1u64..500,
        ) {
            arrival_times.sort_unstable();
            let from = |start: u64| {
                let within = |time: &&u64| (start..start + length).contains(*time);
                arrival_times.iter().filter(within).count()
            };
            let expected = arrival_times.iter().map(|start| from(*start)).max().unwrap_or(0);
            prop_assert_eq!(busiest_window(&arrival_times, length), expected);
        }
    }
}
