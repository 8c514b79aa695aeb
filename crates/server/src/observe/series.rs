//! A history as it is shown: bucket by bucket, stamped with the wall clock.
//!
//! Buckets begin where the wall clock shows whole minutes, quarters or hours, so those of several nodes
//! fall together and can be added up.

use posthaste_core::time::{Span, Timestamp};

use super::tally::Tally;

/// What happened in each bucket of a window, the oldest first. The last one is still being filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// How long a bucket is.
    pub bucket: Span,
    /// When each began, and what happened in it: one after the other, without a gap.
    pub buckets: Vec<(Timestamp, Tally)>,
}

impl Series {
    /// Those in which something happened, which is all that another node needs to know.
    pub fn filled(&self) -> Vec<(Timestamp, Tally)> {
        let filled = |(_, tally): &&(Timestamp, Tally)| *tally != Tally::default();
        self.buckets.iter().filter(filled).copied().collect()
    }

    /// Adds what another node has seen. What lies before the window is over; what lies beyond it is of a
    /// clock that is a little ahead, and counts as the newest.
    pub fn add(&mut self, others: &[(Timestamp, Tally)]) {
        let (Some((oldest, _)), Some(last)) = (
            self.buckets.first().copied(),
            self.buckets.len().checked_sub(1),
        ) else {
            return;
        };
        for (began, tally) in others.iter().filter(|(began, _)| *began >= oldest) {
            let place = began.since(oldest).as_millis() / self.bucket.as_millis();
            let place = usize::try_from(place).unwrap_or(last).min(last);
            self.buckets[place].1.add(tally);
        }
    }
}

/// The nearest time at which a bucket may begin.
pub(super) fn nearest(at_ms: i128, bucket: Span) -> Timestamp {
    let bucket = i128::from(bucket.as_millis());
    let nearest = (at_ms + bucket / 2).div_euclid(bucket) * bucket;
    Timestamp(u64::try_from(nearest.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn attempts(count: u32) -> Tally {
        Tally {
            attempts: count,
            ..Tally::default()
        }
    }

    #[test]
    fn what_others_saw_is_added_where_it_belongs() {
        let minute = |number: u64| Timestamp(number * MINUTE);
        let mut series = Series {
            bucket: Span::from_mins(1),
            buckets: (5..8).map(|it| (minute(it), attempts(1))).collect(),
        };
        series.add(&[
            (minute(4), attempts(1_000)),
            (minute(6), attempts(10)),
            (minute(7), attempts(20)),
            (minute(8), attempts(40)),
            (Timestamp(u64::MAX), attempts(80)),
        ]);
        let counts: Vec<u32> = series.buckets.iter().map(|(_, it)| it.attempts).collect();
        assert_eq!(counts, [1, 11, 141]);
        let mut nothing = Series {
            buckets: Vec::new(),
            ..series
        };
        nothing.add(&[(minute(6), attempts(1))]);
        assert!(nothing.buckets.is_empty());
    }

    #[test]
    fn buckets_begin_on_whole_units() {
        let bucket = Span::from_mins(15);
        for (given, expected) in [
            (0, 0),
            (449_999, 0),
            (450_000, 900_000),
            (-5, 0),
            (900_001, 900_000),
        ] {
            assert_eq!(nearest(given, bucket), Timestamp(expected), "{given}");
        }
    }
}
