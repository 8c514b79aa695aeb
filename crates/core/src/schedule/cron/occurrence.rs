//! Finds the next time at which a cron expression matches, in a time zone.
//!
//! An expression is one of two kinds:
//!
//! - If not every hour matches, it names times of the day. A local time that does not exist, because the clocks went
//!   forward, runs at the first instant after the gap. A local time that exists twice, because the clocks went back, runs
//!   the first time.
//! - If every hour matches, it names times of the hour. It runs at every instant whose local time matches, also in both
//!   passes through an hour that exists twice.

use jiff::civil::{Date, DateTime, Time};

use super::CronExpression;
use crate::schedule::zone::Zone;
use crate::time::Timestamp;

/// Maximum distance between two days that match, in years. 29 February is a given weekday at least once in 40 years.
const MAX_YEARS: i16 = 41;
/// Maximum number of changes of the offset that a search looks at. There are two
/// or four in a year.
const MAX_OFFSET_CHANGES: usize = 200;
/// An expression that matches on a day of this year or one of the [`MAX_YEARS`] after it matches again and again.
const FIRST_YEAR: i16 = 2000;

impl CronExpression {
    /// Returns true if there is a day that matches.
    pub(super) fn ever_matches(&self) -> bool {
        let from = Date::constant(FIRST_YEAR, 1, 1).to_datetime(Time::midnight());
        self.next_local(from).is_some()
    }

    /// Returns the first occurrence after `after`, or `None` if there is none within 41 years.
    pub fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        match self.is_every_hour() {
            true => self.next_instant(after, zone),
            false => self.next_time_of_day(after, zone),
        }
    }

    /// Searches the instants whose local time matches. Between two changes of the offset, local time is linear.
    fn next_instant(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut start = Timestamp(after.0.checked_add(1)?.checked_next_multiple_of(1_000)?);
        for _ in 0..MAX_OFFSET_CHANGES {
            let offset = zone.offset_at(start)?;
            let local = self.next_local(offset.to_datetime(zone.instant(start)?))?;
            let found = zone.timestamp(offset.to_timestamp(local).ok()?)?;
            match zone.next_change(start) {
                // The offset is another one at the time found, and if the clocks went back, earlier local times follow.
                Some(change) if found >= change => start = change,
                Some(_) | None => return Some(found),
            }
        }
        None
    }

    /// Searches the local times that match. Their instants never decrease.
    fn next_time_of_day(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let offset = zone.offset_at(after)?;
        let mut local = whole_second(offset.to_datetime(zone.instant(after)?))?;
        loop {
            local = self.next_local(local)?;
            let found = zone.first_instant(local)?;
            if found > after {
                return Some(found);
            }
            // After the clocks went back, the local times that exist twice have already run.
            local = next_second(local)?;
        }
    }

    /// Returns the first local time at or after `from` that matches, whether or not it exists.
    fn next_local(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().checked_add(MAX_YEARS)?;
        let mut date = from.date();
        if self.matches_day(date)
            && let Some(time) = self.next_time(from.time())
        {
            return Some(date.to_datetime(time));
        }
        loop {
            date = match self.matches_month(date.tomorrow().ok()?) {
                true => date.tomorrow().ok()?,
                false => first_of_next_month(date.tomorrow().ok()?)?,
            };
            if date.year() > last_year {
                return None;
            }
            if self.matches_day(date) {
                let time = self.next_time(Time::midnight())?;
                return Some(date.to_datetime(time));
            }
        }
    }

    /// Returns the first time of the day at or after `from` that matches.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        if is_set(self.hours, hour) {
            if is_set(self.minutes, minute)
                && let Some(second) = first_from(self.seconds, second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = first_from(self.minutes, minute + 1) {
                return time(hour, minute, first_from(self.seconds, 0)?);
            }
        }
        let hour = first_from(self.hours, hour + 1)?;
        let minute = first_from(self.minutes, 0)?;
        time(hour, minute, first_from(self.seconds, 0)?)
    }

    fn matches_month(&self, date: Date) -> bool {
        is_set(self.months, date.month())
    }

    fn matches_day(&self, date: Date) -> bool {
        if !self.matches_month(date) {
            return false;
        }
        match (self.restricts_days(), self.restricts_weekdays()) {
            (true, true) => self.matches_day_of_month(date) || self.matches_weekday(date),
            (true, false) => self.matches_day_of_month(date),
            (false, true) => self.matches_weekday(date),
            (false, false) => true,
        }
    }

    fn matches_day_of_month(&self, date: Date) -> bool {
        is_set(self.days, date.day()) || self.last_day && date.day() == date.days_in_month()
    }

    fn matches_weekday(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        let nth = usize::from(date.day().unsigned_abs() - 1) / 7;
        let is_last = date.day() + 7 > date.days_in_month();
        is_set(self.weekdays.every, weekday)
            || is_set(self.weekdays.nth[nth], weekday)
            || is_last && is_set(self.weekdays.last, weekday)
    }
}

fn is_set(bits: u64, value: i8) -> bool {
    bits >> value & 1 == 1
}

/// Returns the smallest value of the set that is not below `least`.
fn first_from(bits: u64, least: i8) -> Option<i8> {
    let rest = bits >> least << least;
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

fn time(hour: i8, minute: i8, second: i8) -> Option<Time> {
    Time::new(hour, minute, second, 0).ok()
}

fn first_of_next_month(date: Date) -> Option<Date> {
    date.last_of_month().tomorrow().ok()
}

fn whole_second(local: DateTime) -> Option<DateTime> {
    local.with().subsec_nanosecond(0).build().ok()
}

fn next_second(local: DateTime) -> Option<DateTime> {
    let second = jiff::SignedDuration::from_secs(1);
    whole_second(local)?.checked_add(second).ok()
}
