//! What happened, by time: in minutes for an hour, in quarters of an hour for a day.
//!
//! Time is the steady clock of this process. A tick that lies before the newest one seen counts as the
//! newest, so nothing is counted twice or lost.

use posthaste_core::delivery::Status;
use posthaste_core::time::{Span, Tick};
use serde::{Deserialize, Serialize};

use super::AttemptSeen;

/// What happened within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Attempts made.
    pub attempts: u32,
    /// Of those, attempts that were not the first of their round.
    pub retries: u32,
    /// Of those, attempts that were the second of their round.
    pub second_attempts: u32,
    /// Of those, the ones that succeeded.
    pub second_successes: u32,
    /// Deliveries that succeeded.
    pub succeeded: u32,
    /// Deliveries that were given up.
    pub failed: u32,
}

impl Tally {
    /// One attempt, and what it ended.
    pub fn of(seen: &AttemptSeen<'_>) -> Tally {
        let second = seen.round_number == 2;
        let ended = match seen.ended {
            Some(status) => Tally::ended(status, 1),
            None => Tally::default(),
        };
        Tally {
            attempts: 1,
            retries: u32::from(seen.round_number > 1),
            second_attempts: u32::from(second),
            second_successes: u32::from(second && seen.failure.is_none()),
            ..ended
        }
    }

    /// So many deliveries that ended this way. One that was called off says nothing about health.
    pub fn ended(status: Status, deliveries: u64) -> Tally {
        let deliveries = u32::try_from(deliveries).unwrap_or(u32::MAX);
        let mut tally = Tally::default();
        match status {
            Status::Succeeded => tally.succeeded = deliveries,
            Status::Failed => tally.failed = deliveries,
            Status::Cancelled
            | Status::Pending
            | Status::Retrying
            | Status::Held
            | Status::InProgress => {}
        }
        tally
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        let fields = [
            (&mut self.attempts, other.attempts),
            (&mut self.retries, other.retries),
            (&mut self.second_attempts, other.second_attempts),
            (&mut self.second_successes, other.second_successes),
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
        ];
        for (sum, more) in fields {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The times over which figures are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    Hour,
    /// A day, or as much of it as this process has lived.
    Day,
}

impl Window {
    /// Every window, the shortest first.
    pub const ALL: [Window; 3] = [Window::FiveMinutes, Window::Hour, Window::Day];

    /// The window as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Window::FiveMinutes => "5m",
            Window::Hour => "1h",
            Window::Day => "24h",
        }
    }
}

/// So many whole buckets make a window, and the one that is being filled comes on top.
const MINUTES_IN_FIVE: u64 = 5;
const MINUTES_IN_HOUR: u64 = 60;
const QUARTERS_IN_DAY: u64 = 96;
const MINUTES_KEPT: usize = 61;
const QUARTERS_KEPT: usize = 97;

/// What happened during the last hour and the last day.
#[derive(Clone, Debug)]
pub struct History {
    minutes: Ring<MINUTES_KEPT>,
    quarters: Ring<QUARTERS_KEPT>,
}

impl Default for History {
    fn default() -> History {
        History {
            minutes: Ring::new(Span::from_mins(1)),
            quarters: Ring::new(Span::from_mins(15)),
        }
    }
}

impl History {
    /// Counts what happened now.
    pub fn add(&mut self, now: Tick, tally: &Tally) {
        self.minutes.add(now, tally);
        self.quarters.add(now, tally);
    }

    /// What happened within a window that ends now. It reaches back at least as far as its name says,
    /// and at most one bucket further.
    pub fn over(&self, now: Tick, window: Window) -> Tally {
        match window {
            Window::FiveMinutes => self.minutes.over(now, MINUTES_IN_FIVE),
            Window::Hour => self.minutes.over(now, MINUTES_IN_HOUR),
            Window::Day => self.quarters.over(now, QUARTERS_IN_DAY),
        }
    }
}

/// Buckets of equal length, used again and again.
#[derive(Clone, Debug)]
struct Ring<const KEPT: usize> {
    bucket: Span,
    /// The number of the newest bucket, counted from the beginning of time.
    newest: u64,
    tallies: Box<[Tally; KEPT]>,
}

impl<const KEPT: usize> Ring<KEPT> {
    fn new(bucket: Span) -> Ring<KEPT> {
        Ring {
            bucket,
            newest: 0,
            tallies: Box::new([Tally::default(); KEPT]),
        }
    }

    fn add(&mut self, now: Tick, tally: &Tally) {
        let number = self.number(now);
        // Buckets that nothing happened in are empty, not left over from the last round.
        let passed = (number - self.newest).min(KEPT as u64);
        for step in 0..passed {
            self.tallies[place::<KEPT>(number - step)] = Tally::default();
        }
        self.newest = number;
        self.tallies[place::<KEPT>(number)].add(tally);
    }

    /// The bucket that is filled now and the `whole` ones before it.
    fn over(&self, now: Tick, whole: u64) -> Tally {
        debug_assert!(whole < KEPT as u64);
        let mut sum = Tally::default();
        let oldest = self.number(now).saturating_sub(whole);
        // What lies before the last one kept has been written over.
        let kept_since = self.newest.saturating_sub(KEPT as u64 - 1);
        for number in oldest.max(kept_since)..=self.newest {
            sum.add(&self.tallies[place::<KEPT>(number)]);
        }
        sum
    }

    fn number(&self, now: Tick) -> u64 {
        (now.0 / self.bucket.as_millis()).max(self.newest)
    }
}

fn place<const KEPT: usize>(number: u64) -> usize {
    (number % KEPT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: u64 = 60_000;

    fn attempts(count: u32) -> Tally {
        Tally {
            attempts: count,
            ..Tally::default()
        }
    }

    #[test]
    fn windows_forget_what_is_older_than_they_are() {
        let mut history = History::default();
        history.add(Tick(30_000), &attempts(1));
        history.add(Tick(4 * MINUTE), &attempts(10));
        let over = |minute: u64| {
            Window::ALL.map(|window| history.over(Tick(minute * MINUTE), window).attempts)
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
    }

    #[test]
    fn time_that_goes_back_loses_nothing_and_counts_nothing_twice() {
        let mut history = History::default();
        history.add(Tick(90 * MINUTE), &attempts(1));
        history.add(Tick(20 * MINUTE), &attempts(2));
        history.add(Tick(90 * MINUTE), &attempts(4));
        for tick in [0, 20 * MINUTE, 90 * MINUTE, 91 * MINUTE] {
            let seen = history.over(Tick(tick), Window::FiveMinutes).attempts;
            assert_eq!(seen, 7, "at {tick}");
        }
    }

    #[test]
    fn a_long_silence_leaves_nothing_behind() {
        let mut history = History::default();
        for minute in 0..200 {
            history.add(Tick(minute * MINUTE), &attempts(1));
        }
        assert_eq!(history.over(Tick(199 * MINUTE), Window::Hour).attempts, 61);
        history.add(Tick(100_000 * MINUTE), &attempts(1));
        for window in Window::ALL {
            let seen = history.over(Tick(100_000 * MINUTE), window).attempts;
            assert_eq!(seen, 1, "{window:?}");
        }
        assert_eq!(history.over(Tick(u64::MAX), Window::Day), Tally::default());
    }

    #[test]
    fn counts_stop_at_the_end() {
        let mut history = History::default();
        history.add(Tick(0), &Tally::ended(Status::Failed, u64::MAX));
        history.add(Tick(0), &Tally::ended(Status::Failed, 1));
        assert_eq!(history.over(Tick(0), Window::Day).failed, u32::MAX);
    }

    proptest! {
        /// Against a list of everything that happened.
        #[test]
        fn a_window_is_the_sum_of_its_buckets(
            steps in proptest::collection::vec((0u64..7_200_000, 1u32..5), 1..200),
            later in 0u64..7_200_000,
        ) {
            let mut history = History::default();
            let mut now = 0;
            let mut all = Vec::new();
            for (step, count) in steps {
                now += step;
                history.add(Tick(now), &attempts(count));
                all.push((now, count));
            }
            now += later;
            for (window, bucket, whole) in [
                (Window::FiveMinutes, MINUTE, 5),
                (Window::Hour, MINUTE, 60),
                (Window::Day, 15 * MINUTE, 96),
            ] {
                let oldest = (now / bucket).saturating_sub(whole);
                let expected: u32 = all
                    .iter()
                    .filter(|(at, _)| at / bucket >= oldest)
                    .map(|(_, count)| count)
                    .sum();
                prop_assert_eq!(history.over(Tick(now), window).attempts, expected);
            }
        }
    }
}
