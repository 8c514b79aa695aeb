//! Timestamps in the format of the API: RFC 3339, in UTC, with milliseconds.
//!
//! [`Timestamp`] prints as `2026-11-15T12:00:00.000Z`. Parsing accepts every time of RFC 3339, with any offset and any
//! fraction. An earlier time than 1970 means 1970, and a later one than the year 9999 its last millisecond.
//! What is printed parses back to the same value, and the texts sort like the values. The calendar computation is exact
//! and needs no time zone data.

use std::fmt;
use std::str::FromStr;

use super::Timestamp;

const MS_PER_SECOND: u64 = 1_000;
const MS_PER_DAY: u64 = 86_400_000;
const DAYS_PER_ERA: i64 = 146_097;
const YEARS_PER_ERA: i64 = 400;
/// Number of days from 1 March of the year 0 to 1 January 1970.
const DAYS_TO_EPOCH: i64 = 719_468;
/// The first time that RFC 3339 cannot represent: the year 10000.
const END_OF_FORMAT: Timestamp = Timestamp(253_402_300_800_000);

/// The text is not a point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a time as in RFC 3339, such as 2026-11-15T12:00:00Z or 2026-11-15T13:00:00.250+01:00"
)]
pub struct TimestampError;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.min(END_OF_FORMAT.0 - 1);
        let (year, month, day) = civil_from_days((ms / MS_PER_DAY) as i64);
        let in_day = ms % MS_PER_DAY;
        let (seconds, millis) = (in_day / MS_PER_SECOND, in_day % MS_PER_SECOND);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Accepts any offset. Times before 1970 and after 9999 become the nearest time in between. Fractions beyond the millisecond are cut off. A leap
    /// second becomes the second after it.
    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        parse(text).ok_or(TimestampError)
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let mut reader = Reader(text.as_bytes());
    let year = reader.digits(4)? as i64;
    reader.one_of(b"-")?;
    let month = reader.within(1, 12)?;
    reader.one_of(b"-")?;
    let day = reader.within(1, days_in(year, month))?;
    reader.one_of(b"Tt ")?;
    let hour = reader.within(0, 23)?;
    reader.one_of(b":")?;
    let minute = reader.within(0, 59)?;
    reader.one_of(b":")?;
    let second = reader.within(0, 60)?;
    let millis = reader.fraction_ms()?;
    let offset_ms = reader.offset_ms()?;
    if !reader.0.is_empty() {
        return None;
    }
    let days = days_since_epoch(year, month as i64, day as i64);
    let seconds = (hour * 60 + minute) * 60 + second;
    let local_ms = days * MS_PER_DAY as i64 + (seconds * MS_PER_SECOND + millis) as i64;
    let ms = u64::try_from(local_ms - offset_ms).unwrap_or(0);
    Some(Timestamp(ms.min(END_OF_FORMAT.0 - 1)))
}

/// Parses a text from left to right.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn digits(&mut self, count: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(
            digits
                .iter()
                .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
        )
    }

    fn within(&mut self, least: u64, most: u64) -> Option<u64> {
        self.digits(2)
            .filter(|number| (least..=most).contains(number))
    }

    fn one_of(&mut self, choices: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        if !choices.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(*first)
    }

    /// Reads a fraction of a second, if there is one.
    fn fraction_ms(&mut self) -> Option<u64> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.0.split_at(count);
        let first = digits.first()?;
        let digit_at = |index: usize| u64::from(digits.get(index).map_or(0, |digit| digit - b'0'));
        self.0 = rest;
        Some(u64::from(first - b'0') * 100 + digit_at(1) * 10 + digit_at(2))
    }

    fn offset_ms(&mut self) -> Option<i64> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            0..=u8::MAX => return Some(0),
        };
        let hours = self.within(0, 23)?;
        self.one_of(b":")?;
        let minutes = self.within(0, 59)?;
        Some(sign * ((hours * 60 + minutes) * 60_000) as i64)
    }
}

/// Returns the date (year, month, day) that is `days` days after 1 January 1970. Years are counted from March, so
/// that the leap day comes last and needs no special case.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * YEARS_PER_ERA + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil_from_days`].
pub(super) fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(YEARS_PER_ERA);
    let year_of_era = year.rem_euclid(YEARS_PER_ERA);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
}

fn days_in(year: i64, month: u64) -> u64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        0..=12 => 31,
        13.. => unreachable!("a month is between 1 and 12"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_timestamps_print_and_parse() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_744_000_250, "2026-11-15T12:00:00.250Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(ms)), "{text}");
        }
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn offsets_and_fractions_are_parsed() {
        let noon = Ok(Timestamp(1_794_744_000_000));
        for text in [
            "2026-11-15T12:00:00Z",
            "2026-11-15t12:00:00z",
            "2026-11-15 12:00:00.0Z",
            "2026-11-15T13:30:00+01:30",
            "2026-11-14T23:00:00.000000-13:00",
            "2026-11-15T11:59:60Z",
        ] {
            assert_eq!(text.parse(), noon, "{text}");
        }
        assert_eq!("1970-01-01T00:00:00.1239Z".parse(), Ok(Timestamp(123)));
    }

    #[test]
    fn times_out_of_range_become_the_nearest_time() {
        for text in ["1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z"] {
            assert_eq!(text.parse(), Ok(Timestamp(0)), "{text}");
        }
        let last = Timestamp(END_OF_FORMAT.0 - 1);
        assert_eq!("9999-12-31T23:59:59-01:00".parse(), Ok(last));
    }

    #[test]
    fn invalid_timestamps_are_refused() {
        for text in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T12:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-31T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T12:60:00Z",
            "2026-11-15T12:00:00.Z",
            "2026-11-15T12:00:00+0100",
            "2026-11-15T12:00:00Zx",
            "+026-11-15T12:00:00Z",
            "２026-11-15T12:00:00Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(TimestampError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_timestamps_parse_back_and_keep_their_order(
            a in 0..END_OF_FORMAT.0,
            b in 0..END_OF_FORMAT.0,
        ) {
            let (a, b) = (Timestamp(a), Timestamp(b));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        }

        /// Compares with another implementation of the calendar.
        #[test]
        fn agrees_with_the_httpdate_crate(seconds in 0u64..253_402_300_800) {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let http = httpdate::fmt_http_date(at);
            let ours = Timestamp(seconds * 1_000).to_string();
            prop_assert_eq!(&http[5..7], &ours[8..10], "days differ: {} and {}", http, ours);
            prop_assert_eq!(&http[12..16], &ours[0..4], "years differ: {} and {}", http, ours);
            prop_assert_eq!(&http[17..25], &ours[11..19], "times differ: {} and {}", http, ours);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Timestamp>();
        }
    }
}
