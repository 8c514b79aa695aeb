//! Time windows of the stats, and the counters they are summed from.
//!
//! A window is the sum of the store's buckets. It covers at least its nominal length, and at most one bucket more.

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{BucketWidth, StatCounters};

/// Time window of the stats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsWindow {
    /// 5 minutes.
    FiveMinutes,
    /// 1 hour.
    Hour,
    /// 24 hours.
    Day,
}

impl StatsWindow {
    /// All windows, shortest first.
    pub const ALL: [StatsWindow; 3] = [
        StatsWindow::FiveMinutes,
        StatsWindow::Hour,
        StatsWindow::Day,
    ];

    /// Returns the name of the window in the API.
    pub fn name(self) -> &'static str {
        match self {
            StatsWindow::FiveMinutes => "5m",
            StatsWindow::Hour => "1h",
            StatsWindow::Day => "24h",
        }
    }

    /// Returns the length of the window.
    pub const fn length(self) -> Span {
        match self {
            StatsWindow::FiveMinutes => Span::from_mins(5),
            StatsWindow::Hour => Span::from_hours(1),
            StatsWindow::Day => Span::from_hours(24),
        }
    }

    /// Returns the width of the buckets that the window is summed from.
    pub const fn width(self) -> BucketWidth {
        match self {
            StatsWindow::FiveMinutes | StatsWindow::Hour => BucketWidth::Minute,
            StatsWindow::Day => BucketWidth::Quarter,
        }
    }

    /// Returns the start of the first bucket: as many whole buckets as the window is long, plus the one being filled.
    pub fn first(self, now: Timestamp) -> Timestamp {
        let newest = self.width().begin(now);
        Timestamp(newest.0.saturating_sub(self.length().as_millis()))
    }
}

/// Counters of a scope, from the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowCounters {
    /// The store's minutes.
    pub minutes: Vec<(Timestamp, StatCounters)>,
    /// The store's quarters of an hour. They contain the same counts as the minutes.
    pub quarters: Vec<(Timestamp, StatCounters)>,
}

impl WindowCounters {
    /// Returns the sum over a window that ends now. Counters after `now` come from a clock that is slightly ahead, and
    /// are included.
    pub fn over(&self, now: Timestamp, window: StatsWindow) -> StatCounters {
        let (width, first) = (window.width(), window.first(now));
        let stored = match width {
            BucketWidth::Minute => &self.minutes,
            BucketWidth::Quarter => &self.quarters,
        };
        let mut sum = StatCounters::default();
        for (began, totals) in stored {
            if width.begin(*began) >= first {
                sum.add(totals);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::attempts;
    use proptest::prelude::*;

    const MINUTE: u64 = 60_000;

    fn gathered(all: &[(u64, u64)]) -> WindowCounters {
        let by = |width: BucketWidth| {
            let begin = |(at, count): &(u64, u64)| (width.begin(Timestamp(*at)), attempts(*count));
            all.iter().map(begin).collect()
        };
        WindowCounters {
            minutes: by(BucketWidth::Minute),
            quarters: by(BucketWidth::Quarter),
        }
    }

    #[test]
    fn a_window_excludes_older_counters() {
        let counters = gathered(&[(30_000, 1), (4 * MINUTE, 10)]);
        let over = |minute: u64| {
            let now = Timestamp(minute * MINUTE);
            StatsWindow::ALL.map(|window| counters.over(now, window).attempts)
        };
        assert_eq!(over(4), [11, 11, 11]);
        assert_eq!(over(5), [11, 11, 11], "reaches back five whole minutes");
        assert_eq!(over(6), [10, 11, 11]);
        assert_eq!(over(10), [0, 11, 11]);
        assert_eq!(over(60), [0, 11, 11]);
        assert_eq!(over(61), [0, 10, 11]);
        assert_eq!(over(65), [0, 0, 11]);
        assert_eq!(over(24 * 60 + 14), [0, 0, 11]);
        assert_eq!(over(24 * 60 + 15), [0, 0, 0]);
        assert_eq!(over(0), [11, 11, 11], "of a clock that is ahead");
    }

    proptest! {
        /// Compares with a list of everything that happened.
        #[test]
        fn a_window_is_the_sum_of_its_buckets(
            steps in proptest::collection::vec((0u64..7_200_000, 1u64..5), 1..200),
            later in 0u64..7_200_000,
        ) {
            let mut now = 0;
            let mut all = Vec::new();
            for (step, count) in steps {
                now += step;
                all.push((now, count));
            }
            now += later;
            let counters = gathered(&all);
            for (window, bucket, whole) in [
                (StatsWindow::FiveMinutes, MINUTE, 5),
                (StatsWindow::Hour, MINUTE, 60),
                (StatsWindow::Day, 15 * MINUTE, 96),
            ] {
                let oldest = (now / bucket).saturating_sub(whole);
                let expected: u64 = all
                    .iter()
                    .filter(|(at, _)| at / bucket >= oldest)
                    .map(|(_, count)| count)
                    .sum();
                prop_assert_eq!(counters.over(Timestamp(now), window).attempts, expected);
            }
        }
    }
}
