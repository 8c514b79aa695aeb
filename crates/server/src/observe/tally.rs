//! What happened, by time: in minutes for an hour, in quarters of an hour or in hours for a day.
//!
//! Time is a steady clock. A tick that lies before the newest one seen counts as the newest, so nothing is
//! counted twice or lost. Only buckets in which something happened take room: whoever is called once an
//! hour is remembered in a few of them.

use std::collections::VecDeque;

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
    /// How long all attempts took together.
    pub latency_micros: u64,
    /// How long the slowest of them took.
    pub slowest_micros: u32,
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
            latency_micros: u64::try_from(seen.latency.as_micros()).unwrap_or(u64::MAX),
            slowest_micros: u32::try_from(seen.latency.as_micros()).unwrap_or(u32::MAX),
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
        self.latency_micros = self.latency_micros.saturating_add(other.latency_micros);
        self.slowest_micros = self.slowest_micros.max(other.slowest_micros);
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

    /// The window with this name.
    pub fn named(name: &str) -> Option<Window> {
        Window::ALL.into_iter().find(|window| window.name() == name)
    }
}

/// So many whole buckets make a window, and the one that is being filled comes on top.
const MINUTES_IN_FIVE: u32 = 5;
const MINUTES_IN_HOUR: u32 = 60;
const QUARTERS_IN_DAY: u32 = 96;
const HOURS_IN_DAY: u32 = 24;

/// What happened during the last hour and the last day.
#[derive(Clone, Debug)]
pub struct History {
    minutes: Ring,
    day: Ring,
}

/// What happened in one stretch of time after the other, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// How long each stretch is.
    pub bucket: Span,
    /// When each began, and what happened in it. The last is still being filled.
    pub buckets: Vec<(Tick, Tally)>,
}

impl Default for History {
    fn default() -> History {
        History::fine()
    }
}

impl History {
    /// A day in quarters of an hour: at most 8 KB.
    pub fn fine() -> History {
        History {
            minutes: Ring::new(Span::from_mins(1), MINUTES_IN_HOUR),
            day: Ring::new(Span::from_mins(15), QUARTERS_IN_DAY),
        }
    }

    /// A day in hours, of which many can be kept: at most 5 KB.
    pub fn coarse() -> History {
        History {
            day: Ring::new(Span::from_hours(1), HOURS_IN_DAY),
            ..History::fine()
        }
    }

    /// Counts what happened now.
    pub fn add(&mut self, now: Tick, tally: &Tally) {
        self.minutes.add(now, tally);
        self.day.add(now, tally);
    }

    /// What happened within a window that ends now. It reaches back at least as far as its name says,
    /// and at most one bucket further.
    pub fn over(&self, now: Tick, window: Window) -> Tally {
        let (ring, whole) = self.ring(window);
        ring.over(now, whole)
    }

    /// What happened in each bucket of a window that ends with the one that is being filled.
    pub fn strip(&self, now: Tick, window: Window) -> Strip {
        let (ring, count) = self.ring(window);
        ring.strip(now, count)
    }

    /// What a window is made of.
    fn ring(&self, window: Window) -> (&Ring, u32) {
        match window {
            Window::FiveMinutes => (&self.minutes, MINUTES_IN_FIVE),
            Window::Hour => (&self.minutes, self.minutes.whole),
            Window::Day => (&self.day, self.day.whole),
        }
    }
}

/// The last buckets of equal length.
#[derive(Clone, Debug)]
struct Ring {
    bucket: Span,
    /// How many are kept, beside the one that is being filled.
    whole: u32,
    /// Those in which something happened, each by its number, counted from the beginning of time.
    filled: VecDeque<(u32, Tally)>,
}

impl Ring {
    fn new(bucket: Span, whole: u32) -> Ring {
        Ring {
            bucket,
            whole,
            filled: VecDeque::new(),
        }
    }

    fn add(&mut self, now: Tick, tally: &Tally) {
        let number = self.number(now);
        match self.filled.back_mut() {
            Some((newest, sum)) if *newest == number => sum.add(tally),
            Some(_) | None => {
                let over = |(oldest, _): &(u32, Tally)| number - oldest > self.whole;
                while self.filled.front().is_some_and(over) {
                    self.filled.pop_front();
                }
                self.filled.push_back((number, *tally));
            }
        }
    }

    /// The bucket that is filled now and the `whole` ones before it.
    fn over(&self, now: Tick, whole: u32) -> Tally {
        let mut sum = Tally::default();
        for (_, tally) in self.since(self.number(now).saturating_sub(whole)) {
            sum.add(tally);
        }
        sum
    }

    /// So many buckets, of which the last is filled now. Fewer, where time has not gone on for so long.
    fn strip(&self, now: Tick, count: u32) -> Strip {
        let newest = self.number(now);
        let oldest = (newest + 1).saturating_sub(count);
        let begins = |number: u32| Tick(u64::from(number) * self.bucket.as_millis());
        let mut buckets: Vec<(Tick, Tally)> = (oldest..=newest)
            .map(|number| (begins(number), Tally::default()))
            .collect();
        for (number, tally) in self.since(oldest) {
            buckets[(number - oldest) as usize].1 = *tally;
        }
        Strip {
            bucket: self.bucket,
            buckets,
        }
    }

    fn since(&self, oldest: u32) -> impl Iterator<Item = &(u32, Tally)> {
        let newer = move |(number, _): &&(u32, Tally)| *number >= oldest;
        // Mostly all or the newest few are asked for, so it is looked for from the end.
        self.filled.iter().rev().take_while(newer)
    }

    fn number(&self, now: Tick) -> u32 {
        // Eight thousand years of minutes have passed when this stands still.
        let number = u32::try_from(now.0 / self.bucket.as_millis()).unwrap_or(u32::MAX - 1);
        let newest = self.filled.back().map_or(0, |(newest, _)| *newest);
        number.min(u32::MAX - 1).max(newest)
    }
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
        let mut history = History::fine();
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
        let mut history = History::fine();
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
        let mut history = History::fine();
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
    fn a_strip_is_a_window_bucket_by_bucket() {
        for mut history in [History::fine(), History::coarse()] {
            let days = 40 * 24 * 60 * MINUTE;
            history.add(Tick(days), &attempts(1));
            history.add(Tick(days + 3 * MINUTE + 1), &attempts(10));
            history.add(Tick(days + 3 * MINUTE + 2), &attempts(100));
            let now = Tick(days + 5 * MINUTE);
            let strip = history.strip(now, Window::Hour);
            assert_eq!(strip.bucket, Span::from_mins(1));
            assert_eq!(strip.buckets.len(), 60);
            let begins: Vec<u64> = strip.buckets.iter().map(|(at, _)| at.0).collect();
            let expected: Vec<u64> = (0..60).map(|back| now.0 - (59 - back) * MINUTE).collect();
            assert_eq!(begins, expected);
            let counts: Vec<u32> = strip.buckets.iter().map(|(_, it)| it.attempts).collect();
            assert_eq!(counts[54..], [1, 0, 0, 110, 0, 0]);
            assert_eq!(counts[..54], [0; 54]);
            // An hour after the first bucket was begun, it is in the window no more.
            let later = history.strip(Tick(days + 60 * MINUTE), Window::Hour);
            assert_eq!(later.buckets[2].1.attempts, 110);
            let sum: u32 = later.buckets.iter().map(|(_, it)| it.attempts).sum();
            assert_eq!(sum, 110);
        }
        let day = |history: History| history.strip(Tick(40 * 24 * 60 * MINUTE), Window::Day);
        assert_eq!(day(History::fine()).buckets.len(), 96);
        assert_eq!(day(History::fine()).bucket, Span::from_mins(15));
        assert_eq!(day(History::coarse()).buckets.len(), 24);
        assert_eq!(day(History::coarse()).bucket, Span::from_hours(1));
        // There is no time before its beginning.
        let young = History::fine().strip(Tick(2 * MINUTE), Window::Hour);
        assert_eq!(young.buckets.len(), 3);
    }

    #[test]
    fn the_slowest_is_the_slowest_of_all() {
        let slow = |micros: u32| Tally {
            attempts: 1,
            latency_micros: u64::from(micros),
            slowest_micros: micros,
            ..Tally::default()
        };
        let mut history = History::fine();
        history.add(Tick(0), &slow(7));
        history.add(Tick(0), &slow(9));
        history.add(Tick(2 * MINUTE), &slow(8));
        let seen = history.over(Tick(2 * MINUTE), Window::FiveMinutes);
        assert_eq!((seen.latency_micros, seen.slowest_micros), (24, 9));
    }

    #[test]
    fn little_is_kept_of_whoever_is_quiet_and_not_much_of_the_busy() {
        let (mut quiet, mut busy) = (History::coarse(), History::coarse());
        for minute in 0..3 * 24 * 60 {
            if minute % 60 == 0 {
                quiet.add(Tick(minute * MINUTE), &attempts(1));
            }
            busy.add(Tick(minute * MINUTE), &attempts(1));
        }
        let kept = |history: &History| (history.minutes.filled.len(), history.day.filled.len());
        assert_eq!(kept(&quiet), (2, 25));
        assert_eq!(kept(&busy), (61, 25));
        let bytes = size_of::<(u32, Tally)>()
            * (busy.minutes.filled.capacity() + busy.day.filled.capacity());
        assert!(bytes <= 5 * 1024, "{bytes}");
    }

    #[test]
    fn counts_stop_at_the_end() {
        let mut history = History::fine();
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
            let mut history = History::fine();
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
