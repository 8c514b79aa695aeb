//! Durations in the format that users write, such as `1h30m`.
//!
//! [`Span`] is a number of whole milliseconds. Its arithmetic saturates, so it never overflows. The text form uses
//! the units `d`, `h`, `m`, `s` and `ms` in descending order; [`MAX_SPAN`] is the longest duration that a text may
//! express. What is printed parses back to the same value. [`SpanError`] tells what is wrong with a text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quoted::quoted;

/// Maximum duration that a text may express: ten years.
pub const MAX_SPAN: Span = Span::from_days(3_650);

const MS_PER_SECOND: u64 = 1_000;
const MS_PER_MINUTE: u64 = 60 * MS_PER_SECOND;
const MS_PER_HOUR: u64 = 60 * MS_PER_MINUTE;
const MS_PER_DAY: u64 = 24 * MS_PER_HOUR;

/// Units from large to small, so that the first one that divides a span gives the shortest text.
const UNITS: [(&str, u64); 5] = [
    ("d", MS_PER_DAY),
    ("h", MS_PER_HOUR),
    ("m", MS_PER_MINUTE),
    ("s", MS_PER_SECOND),
    ("ms", 1),
];

/// A duration in whole milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// A duration of zero.
    pub const ZERO: Span = Span(0);

    /// Creates a span of `count` milliseconds.
    pub const fn from_millis(count: u64) -> Span {
        Span(count)
    }

    /// Creates a span of `count` seconds.
    pub const fn from_secs(count: u64) -> Span {
        Span(count.saturating_mul(MS_PER_SECOND))
    }

    /// Creates a span of `count` minutes.
    pub const fn from_mins(count: u64) -> Span {
        Span(count.saturating_mul(MS_PER_MINUTE))
    }

    /// Creates a span of `count` hours.
    pub const fn from_hours(count: u64) -> Span {
        Span(count.saturating_mul(MS_PER_HOUR))
    }

    /// Creates a span of `count` days.
    pub const fn from_days(count: u64) -> Span {
        Span(count.saturating_mul(MS_PER_DAY))
    }

    /// Returns the span in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the span in seconds, with a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MS_PER_SECOND as f64
    }

    /// Returns the sum of both spans.
    pub const fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Returns the span multiplied by `count`.
    pub const fn times(self, count: u64) -> Span {
        Span(self.0.saturating_mul(count))
    }

    /// Returns the span as text for a reader: rounded to two significant digits, in a suitable unit.
    pub fn about(self) -> String {
        let ms = self.0 as f64;
        let (count, unit) = match self.0 {
            0..MS_PER_SECOND => return format!("{} ms", self.0),
            MS_PER_SECOND..90_000 => (ms / MS_PER_SECOND as f64, "s"),
            90_000..5_400_000 => (ms / MS_PER_MINUTE as f64, "min"),
            5_400_000..172_800_001 => (ms / MS_PER_HOUR as f64, "hours"),
            172_800_001.. => (ms / MS_PER_DAY as f64, "days"),
        };
        let rounded = if count < 9.95 {
            (count * 10.0).round() / 10.0
        } else {
            count.round()
        };
        format!("{rounded} {unit}")
    }
}

impl fmt::Display for Span {
    /// Prints the exact value in the largest unit that divides the span: `90s`, `36h`, `3d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let (unit, size) = UNITS
            .iter()
            .find(|(_, size)| self.0.is_multiple_of(*size))
            .expect("every span is a whole number of milliseconds");
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The reason why a text is not a duration. The message shows valid forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The text does not have the form of a duration.
    #[error(
        "{0} is not a duration: write whole numbers with a unit (ms, s, m, h or d), \
         such as \"250ms\", \"30s\", \"10m\", \"2h\", \"3d\" or \"1h30m\""
    )]
    Form(String),
    /// The duration exceeds [`MAX_SPAN`].
    #[error("{0} is too long: the maximum duration is {MAX_SPAN}")]
    TooLong(String),
}

impl FromStr for Span {
    type Err = SpanError;

    /// Parses `"250ms"`, `"3d"` and sums such as `"1h30m"`, whose units must descend.
    fn from_str(text: &str) -> Result<Span, SpanError> {
        let form = || SpanError::Form(quoted(text));
        let too_long = || SpanError::TooLong(quoted(text));
        let mut rest = text;
        let mut total: u64 = 0;
        let mut smallest_so_far = u64::MAX;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return Err(form());
            }
            let (number, tail) = rest.split_at(digits);
            let letters = tail
                .bytes()
                .take_while(|byte| !byte.is_ascii_digit())
                .count();
            let (unit, tail) = tail.split_at(letters);
            let size = UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, size)| *size)
                .filter(|size| *size < smallest_so_far)
                .ok_or_else(form)?;
            // The text has only digits, so it can fail to parse only by being too large.
            let count: u64 = number.parse().map_err(|_| too_long())?;
            total = count
                .checked_mul(size)
                .and_then(|part| total.checked_add(part))
                .ok_or_else(too_long)?;
            smallest_so_far = size;
            rest = tail;
        }
        if text.is_empty() {
            return Err(form());
        }
        let span = Span(total);
        if span > MAX_SPAN {
            return Err(too_long());
        }
        Ok(span)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_common_notations() {
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
            ("1h30m", 5_400_000),
            ("1m500ms", 60_500),
            ("0s", 0),
            ("3650d", MAX_SPAN.as_millis()),
        ] {
            assert_eq!(text.parse(), Ok(Span(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_other_texts_with_a_hint() {
        for text in [
            "",
            "10",
            "s",
            "10 parsecs",
            "10 s",
            "-5s",
            "1.5h",
            "+1s",
            "30m1h",
            "1s1s",
            "1e3s",
            "10M",
            "inf",
            "٣s",
            "10µs",
            " 10s",
            "10s ",
        ] {
            let error = text.parse::<Span>().expect_err(text);
            assert!(error.to_string().contains("\"250ms\""), "{text}: {error}");
        }
        for text in ["3651d", "99999999999999999999d", "18446744073709551615d"] {
            let error = text.parse::<Span>().expect_err(text);
            assert!(matches!(error, SpanError::TooLong(_)), "{text}: {error}");
        }
    }

    #[test]
    fn prints_in_the_largest_unit_that_divides() {
        for (span, text) in [
            (Span::ZERO, "0s"),
            (Span::from_millis(250), "250ms"),
            (Span::from_secs(90), "90s"),
            (Span::from_secs(3600), "1h"),
            (Span::from_hours(72), "3d"),
            (Span::from_mins(5_184), "5184m"),
        ] {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn about_rounds_for_humans() {
        for (span, words) in [
            (Span::from_millis(250), "250 ms"),
            (Span::from_secs(10), "10 s"),
            (Span::from_secs(80), "80 s"),
            (Span::from_secs(120), "2 min"),
            (Span::from_mins(30), "30 min"),
            (Span::from_hours(2), "2 hours"),
            (Span::from_secs(124_960), "35 hours"),
            (Span::from_mins(5_184), "3.6 days"),
        ] {
            assert_eq!(span.about(), words);
        }
    }

    proptest! {
        #[test]
        fn printed_spans_parse_back(ms in 0..=MAX_SPAN.as_millis()) {
            let span = Span::from_millis(ms);
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Span>();
        }
    }
}
