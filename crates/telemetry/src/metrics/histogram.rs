//! Histograms of durations.
//!
//! [`Histogram`] counts without locks. Its buckets are fixed ([`BOUNDS`]) and closest where first attempts are
//! expected, so that percentiles are accurate there.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets: five per decade, and ten between 1 and 10 ms, where first attempts are expected, so
/// that percentiles there are precise. Each in microseconds, and in seconds as text.
pub const BOUNDS: [(u64, &str); 34] = [
    (100, "0.0001"),
    (160, "0.00016"),
    (250, "0.00025"),
    (400, "0.0004"),
    (630, "0.00063"),
    (1_000, "0.001"),
    (1_250, "0.00125"),
    (1_600, "0.0016"),
    (2_000, "0.002"),
    (2_500, "0.0025"),
    (3_200, "0.0032"),
    (4_000, "0.004"),
    (5_000, "0.005"),
    (6_300, "0.0063"),
    (8_000, "0.008"),
    (10_000, "0.01"),
    (16_000, "0.016"),
    (25_000, "0.025"),
    (40_000, "0.04"),
    (63_000, "0.063"),
    (100_000, "0.1"),
    (160_000, "0.16"),
    (250_000, "0.25"),
    (400_000, "0.4"),
    (630_000, "0.63"),
    (1_000_000, "1"),
    (1_600_000, "1.6"),
    (2_500_000, "2.5"),
    (4_000_000, "4"),
    (6_300_000, "6.3"),
    (10_000_000, "10"),
    (16_000_000, "16"),
    (30_000_000, "30"),
    (60_000_000, "60"),
];

/// Counts durations by bucket. Durations above the last bound have their own bucket.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

/// State of a histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// Number of durations that do not exceed each bound (cumulative).
    pub at_most: [u64; BOUNDS.len()],
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations, in seconds.
    pub sum_seconds: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// Creates an empty histogram.
    pub const fn new() -> Histogram {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
            sum_micros: AtomicU64::new(0),
        }
    }

    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        // Rounded up, because a duration slightly above a bound belongs to the next bucket.
        let micros = u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let index = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.counts[index].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// Returns the current state.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut so_far = 0;
        let at_most = std::array::from_fn(|index| {
            so_far += self.counts[index].load(Relaxed);
            so_far
        });
        HistogramSnapshot {
            at_most,
            count: so_far + self.counts[BOUNDS.len()].load(Relaxed),
            sum_seconds: self.sum_micros.load(Relaxed) as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_and_are_written_as_they_count() {
        assert!(BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
        for (micros, text) in BOUNDS {
            let seconds: f64 = text.parse().expect("a number");
            assert_eq!((seconds * 1e6).round() as u64, micros, "{text}");
        }
    }

    #[test]
    fn each_duration_is_counted_once_and_at_its_bound() {
        let histogram = Histogram::new();
        for micros in [0, 100, 101, 2_000, 8_001, 60_000_000, 60_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe(Duration::from_nanos(100_001));
        let snapshot = histogram.snapshot();
        let at = |text| {
            let index = BOUNDS.iter().position(|(_, bound)| *bound == text);
            snapshot.at_most[index.expect("the bound exists")]
        };
        assert_eq!(at("0.0001"), 2);
        assert_eq!(at("0.00016"), 4);
        assert_eq!(at("0.002"), 5);
        assert_eq!(at("0.008"), 5);
        assert_eq!(at("0.01"), 6);
        assert_eq!(at("60"), 7);
        assert_eq!(snapshot.count, 8);
        assert!(
            (snapshot.sum_seconds - 120.010_304).abs() < 1e-9,
            "{snapshot:?}"
        );
    }
}
