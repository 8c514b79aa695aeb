//! Recent attempts of one endpoint.
//!
//! [`RecentAttemptBuffer`] keeps the last [`RECENT_ATTEMPTS`] attempts in a ring buffer. [`EndpointStats`] and
//! [`RecentAttempts`] are summaries of it.

use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

/// Number of recent attempts that are kept.
pub(super) const RECENT_ATTEMPTS: usize = 128;
/// An endpoint with fewer attempts than this is not judged.
const MIN_TO_JUDGE: u32 = 5;
/// An endpoint with a lower success ratio than this is failing.
const HEALTHY_RATIO: f64 = 0.9;
/// Number of consecutive successes after which earlier failures are ignored.
const RECOVERED_AFTER: u32 = 10;
/// A failure older than this does not affect the judgement.
const RECENT: Span = Span::from_hours(1);

/// Success ratio and latencies of an endpoint's recent attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointStats {
    /// Ratio of recent attempts that succeeded; 1 if there were none.
    pub success_ratio: f64,
    /// Median latency.
    #[serde(default)]
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency.
    #[serde(default)]
    pub p99_ms: Option<f64>,
}

/// Summary of the recent attempts to an endpoint, for diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentAttempts {
    /// Number of attempts kept.
    pub attempts: u32,
    /// Number of them that failed.
    pub failures: u32,
    /// Number of consecutive failures up to the newest attempt.
    pub failures_in_a_row: u32,
    /// Number of consecutive successes up to the newest attempt.
    pub successes_in_a_row: u32,
    /// End of the newest attempt.
    pub last_at: Option<Timestamp>,
    /// Newest failure that this process has seen. Kept longer than the attempts.
    pub last_failure: Option<LastFailure>,
}

/// Short description of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// Time of the failure.
    pub at: Timestamp,
    /// Kind of the failure.
    pub kind: FailureKind,
    /// HTTP status of the response, if there was one.
    #[serde(default)]
    pub status_code: Option<u16>,
}

impl RecentAttempts {
    /// Returns the ratio of attempts that succeeded; 1 if there were none.
    pub fn success_ratio(&self) -> f64 {
        ratio_of_successes(self.attempts.saturating_sub(self.failures), self.attempts)
    }

    /// Returns true if the endpoint needs attention: it fails often, has failed recently, and has not recovered since.
    pub fn is_failing(&self, now: Timestamp) -> bool {
        let recent = |failure: LastFailure| now.since(failure.at) <= RECENT;
        self.attempts >= MIN_TO_JUDGE
            && self.success_ratio() < HEALTHY_RATIO
            && self.successes_in_a_row < RECOVERED_AFTER
            && self.last_failure.is_some_and(recent)
    }
}

/// Returns the ratio of attempts that succeeded, rounded to six decimals; 1 if there were none.
///
/// Nodes send the ratio to each other as JSON. So few digits are parsed exactly, so every node shows the same number.
fn ratio_of_successes(successes: u32, attempts: u32) -> f64 {
    match attempts {
        0 => 1.0,
        attempts => (f64::from(successes) / f64::from(attempts) * 1e6).round() / 1e6,
    }
}

/// The most recent attempts to one endpoint.
#[derive(Clone, Debug)]
pub(super) struct RecentAttemptBuffer {
    /// Ring buffer of latencies, in microseconds.
    micros: Box<[u32; RECENT_ATTEMPTS]>,
    /// One bit per attempt, set if it succeeded.
    succeeded: u128,
    /// Total number of attempts seen.
    count: u64,
    /// End of the last attempt.
    last_at: Option<Timestamp>,
    last_failure: Option<LastFailure>,
}

impl Default for RecentAttemptBuffer {
    fn default() -> RecentAttemptBuffer {
        RecentAttemptBuffer {
            micros: Box::new([0; RECENT_ATTEMPTS]),
            succeeded: 0,
            count: 0,
            last_at: None,
            last_failure: None,
        }
    }
}

impl RecentAttemptBuffer {
    /// Adds an attempt that ended now, and its failure if it failed.
    pub(super) fn add(&mut self, now: Timestamp, latency: Duration, failure: Option<LastFailure>) {
        let index = (self.count % RECENT_ATTEMPTS as u64) as usize;
        self.micros[index] = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        self.succeeded &= !(1 << index);
        self.succeeded |= u128::from(failure.is_none()) << index;
        self.count += 1;
        self.last_at = Some(now);
        self.last_failure = failure.or(self.last_failure);
    }

    /// Returns the summary.
    pub(super) fn summary(&self) -> RecentAttempts {
        let attempts = self.count.min(RECENT_ATTEMPTS as u64) as u32;
        // Rotated so that the newest attempt is the highest bit.
        let next = (self.count % RECENT_ATTEMPTS as u64) as u32;
        let newest_first = self.succeeded.rotate_right(next);
        RecentAttempts {
            attempts,
            failures: attempts - self.succeeded.count_ones(),
            failures_in_a_row: newest_first.leading_zeros().min(attempts),
            successes_in_a_row: newest_first.leading_ones(),
            last_at: self.last_at,
            last_failure: self.last_failure,
        }
    }

    /// Returns success ratio and latencies.
    pub(super) fn stats(&self) -> EndpointStats {
        let count = self.count.min(RECENT_ATTEMPTS as u64) as usize;
        let mut micros = self.micros[..count].to_vec();
        micros.sort_unstable();
        EndpointStats {
            success_ratio: ratio_of_successes(self.succeeded.count_ones(), count as u32),
            p50_ms: percentile_ms(&micros, 50),
            p99_ms: percentile_ms(&micros, 99),
        }
    }
}

/// Returns the smallest value that at least `percent` of the values do not exceed.
fn percentile_ms(sorted_micros: &[u32], percent: usize) -> Option<f64> {
    let rank = (sorted_micros.len() * percent).div_ceil(100);
    let micros = sorted_micros.get(rank.checked_sub(1)?)?;
    Some(f64::from(*micros) / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn timeout_at(at: Timestamp) -> LastFailure {
        LastFailure {
            at,
            kind: FailureKind::Timeout,
            status_code: None,
        }
    }

    impl RecentAttemptBuffer {
        fn note(&mut self, latency: Duration, succeeded: bool) {
            let failure = (!succeeded).then_some(timeout_at(NOON));
            self.add(NOON, latency, failure);
        }
    }

    #[test]
    fn an_empty_buffer_is_healthy() {
        let none = RecentAttemptBuffer::default().stats();
        assert_eq!(none.success_ratio, 1.0);
        assert_eq!((none.p50_ms, none.p99_ms), (None, None));
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let mut buffer = RecentAttemptBuffer::default();
        buffer.note(Duration::from_micros(1_500), true);
        let one = buffer.stats();
        assert_eq!((one.p50_ms, one.p99_ms), (Some(1.5), Some(1.5)));
        for latency in 1..=100 {
            buffer.note(ms(latency), latency % 4 != 0);
        }
        let many = buffer.stats();
        assert_eq!((many.p50_ms, many.p99_ms), (Some(50.0), Some(99.0)));
        assert_eq!(many.success_ratio, 0.752475);
    }

    #[test]
    fn only_the_last_attempts_count() {
        let mut buffer = RecentAttemptBuffer::default();
        for _ in 0..RECENT_ATTEMPTS {
            buffer.note(ms(9_000), false);
        }
        assert_eq!(buffer.stats().success_ratio, 0.0);
        for _ in 0..RECENT_ATTEMPTS {
            buffer.note(ms(2), true);
        }
        let stats = buffer.stats();
        assert_eq!(stats.success_ratio, 1.0);
        assert_eq!(stats.p99_ms, Some(2.0));
    }

    /// Returns the summary of these results, oldest first.
    fn summary(results: impl IntoIterator<Item = bool>) -> RecentAttempts {
        let mut buffer = RecentAttemptBuffer::default();
        for succeeded in results {
            buffer.note(ms(1), succeeded);
        }
        buffer.summary()
    }

    #[test]
    fn runs_are_counted_from_the_newest() {
        for before in [0, 1, 100, 127, 128, 300] {
            let quiet = std::iter::repeat_n(true, before);
            let recent = summary(quiet.clone().chain([false, true, false, false]));
            assert_eq!(recent.failures_in_a_row, 2, "after {before}");
            assert_eq!(recent.successes_in_a_row, 0);
            assert_eq!(recent.failures, 3);
            assert_eq!(recent.attempts, (before as u32 + 4).min(128));
            let recent = summary(quiet.chain([false, true, true]));
            assert_eq!(
                (recent.failures_in_a_row, recent.successes_in_a_row),
                (0, 2)
            );
        }
        let dead = summary([false; 500]);
        assert_eq!((dead.failures, dead.failures_in_a_row), (128, 128));
        assert_eq!(dead.success_ratio(), 0.0);
        assert_eq!(summary([false; 3]).failures_in_a_row, 3);
        assert_eq!(summary([true; 128]).successes_in_a_row, 128);
        assert_eq!(summary([]).success_ratio(), 1.0);
    }

    #[test]
    fn an_endpoint_fails_until_it_has_recovered_or_the_failure_is_old() {
        let failing = |results: &[bool]| summary(results.iter().copied()).is_failing(NOON);
        assert!(!failing(&[false; 4]), "too few to judge");
        assert!(failing(&[false; 5]));
        let mut results = vec![true; 91];
        results.extend([false; 9]);
        assert!(!failing(&results), "91 of 100 is well");
        results.extend([false; 6]);
        assert!(failing(&results), "91 of 106 is not");
        results.extend([true; 9]);
        assert!(failing(&results));
        results.push(true);
        assert!(!failing(&results), "ten in a row are a recovery");
        let recent = summary([false; 9]);
        let hour = Span::from_hours(1);
        assert!(recent.is_failing(NOON.after(hour)));
        assert!(!recent.is_failing(NOON.after(hour).after(Span::from_millis(1))));
    }

    #[test]
    fn the_last_failure_outlives_its_attempt() {
        let mut buffer = RecentAttemptBuffer::default();
        buffer.add(Timestamp(1), ms(1), Some(timeout_at(Timestamp(1))));
        let answered = LastFailure {
            at: Timestamp(2),
            kind: FailureKind::Http,
            status_code: Some(503),
        };
        buffer.add(Timestamp(2), ms(1), Some(answered));
        for at in 3..300 {
            buffer.add(Timestamp(at), ms(1), None);
        }
        let summary = buffer.summary();
        assert_eq!(summary.last_failure, Some(answered));
        assert_eq!(summary.last_at, Some(Timestamp(299)));
        assert_eq!(summary.failures, 0);
    }

    #[test]
    fn every_ratio_is_the_same_number_after_it_was_sent_as_json() {
        for attempts in 1..=RECENT_ATTEMPTS as u32 {
            for successes in 0..=attempts {
                let ratio = ratio_of_successes(successes, attempts);
                let text = serde_json::to_string(&ratio).expect("a ratio serializes");
                let parsed: f64 = serde_json::from_str(&text).expect("it is JSON");
                assert_eq!(parsed, ratio, "{successes} of {attempts}");
                let exact = f64::from(successes) / f64::from(attempts);
                assert!((ratio - exact).abs() < 6e-7, "{successes} of {attempts}");
            }
        }
    }
}
