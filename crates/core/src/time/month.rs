//! Calendar months in UTC, for monthly quotas.
//!
//! [`Month`] is the number of months since January of the year 0, so that months can be compared and stored as
//! numbers. [`Month::of`] returns the month of a timestamp; every timestamp is in exactly one month, from
//! `begins_at` up to but not including `ends_at`.

use super::Timestamp;
use super::rfc3339::{civil_from_days, days_since_epoch};

const MS_PER_DAY: u64 = 86_400_000;

/// A calendar month, counted from January of the year 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(pub u32);

impl Month {
    /// Returns the month that contains a time.
    pub fn of(at: Timestamp) -> Month {
        let (year, month, _) = civil_from_days((at.0 / MS_PER_DAY) as i64);
        // Saturates for years that do not fit, which no real clock shows.
        let months = year.saturating_mul(12) + month - 1;
        Month(u32::try_from(months).unwrap_or(u32::MAX))
    }

    /// Returns the start of the month.
    pub fn begins_at(self) -> Timestamp {
        let (year, month) = (i64::from(self.0 / 12), i64::from(self.0 % 12) + 1);
        let days = days_since_epoch(year, month, 1).max(0) as u64;
        Timestamp(days.saturating_mul(MS_PER_DAY))
    }

    /// Returns the end of the month: the start of the next one.
    pub fn ends_at(self) -> Timestamp {
        Month(self.0.saturating_add(1)).begins_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_month_begins_and_ends_with_the_calendar() {
        for (now, begins, ends) in [
            (
                "2026-11-15T12:00:00Z",
                "2026-11-01T00:00:00.000Z",
                "2026-12-01T00:00:00.000Z",
            ),
            (
                "2026-12-31T23:59:59.999Z",
                "2026-12-01T00:00:00.000Z",
                "2027-01-01T00:00:00.000Z",
            ),
            (
                "2028-02-29T00:00:00Z",
                "2028-02-01T00:00:00.000Z",
                "2028-03-01T00:00:00.000Z",
            ),
            (
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:00.000Z",
                "1970-02-01T00:00:00.000Z",
            ),
        ] {
            let month = Month::of(now.parse().expect("the timestamp is valid"));
            assert_eq!(month.begins_at().to_string(), begins, "{now}");
            assert_eq!(month.ends_at().to_string(), ends, "{now}");
        }
    }

    proptest! {
        #[test]
        fn every_timestamp_is_within_its_month(ms in 0u64..4_000_000_000_000) {
            let at = Timestamp(ms);
            let month = Month::of(at);
            prop_assert!(month.begins_at() <= at && at < month.ends_at());
            prop_assert_eq!(Month::of(month.begins_at()), month);
            prop_assert_eq!(Month::of(month.ends_at()), Month(month.0 + 1));
        }
    }
}
