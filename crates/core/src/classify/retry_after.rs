//! Parser of the `Retry-After` header.
//!
//! [`retry_after`] accepts a number of seconds or an HTTP date and returns the wait from `now`. Receivers control
//! the header, so any text is possible: an invalid or past value is ignored, and no input causes an error or a
//! panic. The result is not capped here; the caller limits it to the maximum of the endpoint.

use std::time::UNIX_EPOCH;

use crate::time::{Span, Timestamp};

/// Maximum length of the value. No HTTP date and no plausible number of seconds is longer.
const MAX_BYTES: usize = 64;

/// Parses a `Retry-After` header that arrived at `now`: whole seconds, or an HTTP date.
///
/// An invalid value (`inf`, `-5`, `1e300`, a date in the past) returns `None`, never an error or a panic. A number
/// that overflows becomes a very long wait, which the caller limits.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Span> {
    let value = value.trim_matches([' ', '\t']);
    if value.is_empty() || value.len() > MAX_BYTES {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // The value has only digits, so it can fail to parse only by being too large.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Span::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).ok()?;
    let at = Timestamp(u64::try_from(since_epoch.as_millis()).ok()?);
    (at > now).then(|| at.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-15 12:00:00 UTC.
    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    #[test]
    fn reads_seconds() {
        assert_eq!(retry_after("0", NOON), Some(Span::ZERO));
        assert_eq!(retry_after("120", NOON), Some(Span::from_secs(120)));
        assert_eq!(retry_after(" 60\t", NOON), Some(Span::from_secs(60)));
    }

    #[test]
    fn reads_all_three_kinds_of_date() {
        for date in [
            "Sun, 15 Nov 2026 12:01:30 GMT",
            "Sunday, 15-Nov-26 12:01:30 GMT",
            "Sun Nov 15 12:01:30 2026",
        ] {
            assert_eq!(retry_after(date, NOON), Some(Span::from_secs(90)), "{date}");
        }
    }

    #[test]
    fn ignores_invalid_values() {
        for value in [
            "",
            " ",
            "inf",
            "-5",
            "+5",
            "1e300",
            "1.5",
            "NaN",
            "0x10",
            "5s",
            "5, 6",
            "٣",
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Sun, 15 Nov 2026 12:00:00 GMT",
            "Sun, 15 Nov 2026 11:59:59 GMT",
            "Sun, 99 Nov 2026 12:00:00 GMT",
            "tomorrow",
        ] {
            assert_eq!(retry_after(value, NOON), None, "{value:?}");
        }
        assert_eq!(retry_after(&"9".repeat(65), NOON), None);
    }

    #[test]
    fn an_overflowing_number_is_a_long_wait() {
        let wait = retry_after(&"9".repeat(40), NOON).expect("the value is parsed as a wait");
        assert!(wait > Span::from_days(365));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_text_panics(value in ".{0,80}", now: u64) {
            let _ = retry_after(&value, Timestamp(now));
        }

        #[test]
        fn almost_dates_do_not_panic(
            value in "[A-Z][a-z]{2},? ?[0-9]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?",
        ) {
            let _ = retry_after(&value, NOON);
        }

        #[test]
        fn a_future_date_is_the_exact_wait(seconds in 1u64..4_000_000_000) {
            let date = httpdate::fmt_http_date(
                UNIX_EPOCH + std::time::Duration::from_millis(NOON.0) + std::time::Duration::from_secs(seconds),
            );
            prop_assert_eq!(retry_after(&date, NOON), Some(Span::from_secs(seconds)));
        }
    }
}
