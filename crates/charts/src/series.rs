//! Groups requests into a bounded number of buckets.
//!
//! A [`SenderOutcome`] has one entry for each second with a request, possibly hundreds of thousands. Each request is
//! counted in exactly one [`Bucket`], and each bucket keeps its busiest second, because a mean would hide a
//! burst.

use std::collections::BTreeMap;

use posthaste_core::forecast::{Arrivals, SenderOutcome};
use serde::Serialize;

use super::ticks;

/// Maximum number of buckets in a response.
pub const MAX_BUCKETS: usize = 300;

/// The requests of one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Start of the period, from the start of the outage.
    pub from_ms: u64,
    /// End of the period, exclusive.
    pub to_ms: u64,
    /// Number of requests.
    pub arrivals: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of requests in its busiest second.
    pub peak_per_second: u64,
    /// Number of failed requests in that second. Of two equally busy seconds, the one with more failures counts.
    pub peak_failed: u64,
}

/// Returns the end of the last second with a request, from the start of the outage.
pub fn end_ms(course: &SenderOutcome) -> u64 {
    let last = course.arrivals.last_key_value();
    last.map_or(0, |(second, _)| (second + 1) * 1_000)
}

/// Returns all requests in at most [`MAX_BUCKETS`] buckets of one round length.
pub fn whole(course: &SenderOutcome) -> Vec<Bucket> {
    let end_ms = end_ms(course);
    let step_ms = ticks::time_step_ms(end_ms, MAX_BUCKETS);
    until(&course.arrivals, step_ms, end_ms)
}

/// Returns the requests before `end_ms` in buckets of `step_ms` (whole seconds), including empty buckets. The
/// last bucket may extend beyond the end.
pub fn until(arrivals: &BTreeMap<u64, Arrivals>, step_ms: u64, end_ms: u64) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = (0..end_ms.div_ceil(step_ms))
        .map(|number| Bucket {
            from_ms: number * step_ms,
            to_ms: (number + 1) * step_ms,
            arrivals: 0,
            failed: 0,
            peak_per_second: 0,
            peak_failed: 0,
        })
        .collect();
    for (second, requests) in arrivals {
        let number = second * 1_000 / step_ms;
        let Some(bucket) = buckets.get_mut(number as usize) else {
            break;
        };
        bucket.arrivals += requests.total;
        bucket.failed += requests.failed;
        let busiest = (bucket.peak_per_second, bucket.peak_failed);
        (bucket.peak_per_second, bucket.peak_failed) =
            busiest.max((requests.total, requests.failed));
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(seconds: &[(u64, u64, u64)]) -> SenderOutcome {
        let arrivals: BTreeMap<u64, Arrivals> = seconds
            .iter()
            .map(|(second, total, failed)| {
                let (total, failed) = (*total, *failed);
                (*second, Arrivals { total, failed })
            })
            .collect();
        SenderOutcome {
            attempts: arrivals.values().map(|requests| requests.total).sum(),
            arrivals,
            ..SenderOutcome::default()
        }
    }

    #[test]
    fn every_request_is_in_exactly_one_bucket() {
        for last in [0, 1, 299, 300, 301, 5_000, 700_000] {
            let seconds: Vec<(u64, u64, u64)> = (0..=last)
                .step_by(1 + last as usize / 777)
                .chain([last])
                .map(|second| (second, second % 7 + 1, second % 2))
                .collect();
            let course = course(&seconds);
            let buckets = whole(&course);
            assert!(buckets.len() <= MAX_BUCKETS, "{last}");
            let total: u64 = buckets.iter().map(|bucket| bucket.arrivals).sum();
            assert_eq!(total, course.attempts, "{last}");
            let failed: u64 = buckets.iter().map(|bucket| bucket.failed).sum();
            let expected: u64 = course
                .arrivals
                .values()
                .map(|requests| requests.failed)
                .sum();
            assert_eq!(failed, expected, "{last}");
            let ends = buckets
                .windows(2)
                .all(|pair| pair[0].to_ms == pair[1].from_ms);
            assert!(ends && buckets[0].from_ms == 0, "{last}");
        }
    }

    #[test]
    fn a_bucket_keeps_its_busiest_second() {
        let course = course(&[(0, 3, 3), (9, 50, 2), (10, 7, 1), (11, 7, 4), (25, 2, 0)]);
        let buckets = until(&course.arrivals, 10_000, 20_000);
        assert_eq!(
            buckets,
            [
                Bucket {
                    from_ms: 0,
                    to_ms: 10_000,
                    arrivals: 53,
                    failed: 5,
                    peak_per_second: 50,
                    peak_failed: 2,
                },
                Bucket {
                    from_ms: 10_000,
                    to_ms: 20_000,
                    arrivals: 14,
                    failed: 5,
                    peak_per_second: 7,
                    peak_failed: 4,
                },
            ]
        );
    }

    #[test]
    fn no_requests_make_no_buckets() {
        assert!(whole(&SenderOutcome::default()).is_empty());
    }
}
