//! Counters by time bucket, for charts.
//!
//! Buckets start at whole minutes, quarters of an hour or hours of the wall clock, so the buckets of several nodes
//! coincide.

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{BucketWidth, StatCounters, SubjectScope};

use super::window::{StatsWindow, WindowCounters};

/// Counters of each bucket of a window, oldest first. The last bucket is still being filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Length of a bucket.
    pub bucket: Span,
    /// Start and counters of each bucket, without gaps.
    pub buckets: Vec<(Timestamp, StatCounters)>,
}

impl Series {
    /// Builds the series of a scope. For an endpoint, the 24-hour window uses hours, because few endpoints have enough
    /// traffic for shorter buckets.
    pub fn new(
        now: Timestamp,
        scope: &SubjectScope,
        window: StatsWindow,
        counters: &WindowCounters,
    ) -> Series {
        let width = window.width();
        let bucket = match (scope, width) {
            (SubjectScope::Endpoint(_), BucketWidth::Quarter) => Span::from_hours(1),
            (SubjectScope::Everything | SubjectScope::Tenant(_), _)
            | (SubjectScope::Endpoint(_), BucketWidth::Minute) => width.bucket(),
        };
        let mut series = Series::empty(now, window, bucket);
        series.add(match width {
            BucketWidth::Minute => &counters.minutes,
            BucketWidth::Quarter => &counters.quarters,
        });
        series
    }

    fn empty(now: Timestamp, window: StatsWindow, bucket: Span) -> Series {
        let step = bucket.as_millis();
        let newest = now.0 - now.0 % step;
        let count = window.length().as_millis() / step;
        let oldest = (newest + step).saturating_sub(count * step);
        let begins = (oldest..=newest).step_by(step as usize);
        Series {
            bucket,
            buckets: begins
                .map(|at| (Timestamp(at), StatCounters::default()))
                .collect(),
        }
    }

    /// Adds counters. Those before the window are ignored. Those after it come from a clock that is slightly ahead, and
    /// are added to the newest bucket.
    fn add(&mut self, more: &[(Timestamp, StatCounters)]) {
        let (Some((oldest, _)), Some(last)) = (
            self.buckets.first().copied(),
            self.buckets.len().checked_sub(1),
        ) else {
            return;
        };
        for (began, totals) in more.iter().filter(|(began, _)| *began >= oldest) {
            let index = began.since(oldest).as_millis() / self.bucket.as_millis();
            let index = usize::try_from(index).unwrap_or(last).min(last);
            self.buckets[index].1.add(totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::attempts;
    use posthaste_core::id::EndpointId;

    const MINUTE: u64 = 60_000;
    /// 2026-11-15T12:00:00Z.
    const NOON: u64 = 1_794_744_000_000;

    fn minute(number: u64) -> Timestamp {
        Timestamp(NOON + number * MINUTE)
    }

    fn counts(series: &Series) -> Vec<(Timestamp, u64)> {
        let counts = series.buckets.iter().map(|(at, it)| (*at, it.attempts));
        counts.collect()
    }

    #[test]
    fn counters_are_added_to_their_buckets() {
        let counters = WindowCounters {
            minutes: vec![
                (minute(4), attempts(1_000)),
                (minute(5), attempts(1)),
                (minute(6), attempts(10)),
                (minute(64), attempts(60)),
                (Timestamp(u64::MAX), attempts(80)),
            ],
            quarters: vec![
                (minute(0), attempts(1_011)),
                (minute(60), attempts(60)),
                (Timestamp(u64::MAX), attempts(80)),
            ],
        };
        let now = Timestamp(minute(64).0 + 59_999);
        let hour = Series::new(now, &SubjectScope::Everything, StatsWindow::Hour, &counters);
        assert_eq!(hour.bucket.to_string(), "1m");
        let hour = counts(&hour);
        assert_eq!(hour.len(), 60);
        assert_eq!(hour[..2], [(minute(5), 1), (minute(6), 10)]);
        assert_eq!(hour[59], (minute(64), 140));
        let day = Series::new(now, &SubjectScope::Everything, StatsWindow::Day, &counters);
        assert_eq!(day.bucket.to_string(), "15m");
        let day = counts(&day);
        assert_eq!(day.len(), 96);
        assert_eq!(day[91], (minute(0), 1_011));
        assert_eq!(day[95], (minute(60), 140));
        let one = SubjectScope::Endpoint(EndpointId(7));
        let day = Series::new(now, &one, StatsWindow::Day, &counters);
        assert_eq!(day.bucket.to_string(), "1h");
        let day = counts(&day);
        assert_eq!(
            (day.len(), day[22], day[23]),
            (24, (minute(0), 1_011), (minute(60), 140))
        );
    }

    #[test]
    fn a_window_that_starts_before_1970_is_cut_off() {
        let series = Series::new(
            Timestamp(MINUTE),
            &SubjectScope::Everything,
            StatsWindow::Hour,
            &WindowCounters::default(),
        );
        assert_eq!(counts(&series), [(Timestamp(0), 0), (Timestamp(MINUTE), 0)]);
    }
}
