//! Parses rates such as `50/s`, `50` and `600/m`.

use posthaste_core::lane::{MAX_PER_SECOND, MIN_PER_SECOND};

/// Minimum capacity of a simulated receiver, in requests per second: fewer than four per hour.
pub const MIN_CAPACITY: f64 = 0.001;
/// Maximum capacity of a simulated receiver, in requests per second.
pub const MAX_CAPACITY: f64 = 1_000_000.0;

/// Parses the capacity of a receiver.
pub fn capacity(text: &str) -> Result<f64, String> {
    within(per_second(text)?, MIN_CAPACITY, MAX_CAPACITY)
}

/// Parses the rate limit of an endpoint.
pub fn limit(text: &str) -> Result<f64, String> {
    within(per_second(text)?, MIN_PER_SECOND, MAX_PER_SECOND)
}

fn within(per_second: f64, least: f64, most: f64) -> Result<f64, String> {
    if (least..=most).contains(&per_second) {
        Ok(per_second)
    } else {
        Err(format!("must be from {least}/s to {most}/s"))
    }
}

fn per_second(text: &str) -> Result<f64, String> {
    let (number, seconds) = match text.split_once('/') {
        None | Some((_, "s")) => (text.trim_end_matches("/s"), 1.0),
        Some((number, "m")) => (number, 60.0),
        Some((number, "h")) => (number, 3_600.0),
        Some(_) => return Err(form()),
    };
    // Rust also parses "inf", "1e9" and "-1" as numbers; they are not valid rates.
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let count: f64 = number.parse().map_err(|_| form())?;
    if plain {
        Ok(count / seconds)
    } else {
        Err(form())
    }
}

fn form() -> String {
    "not a rate: write a number and a unit (s, m or h), such as \"50/s\", \"50\" or \"600/m\""
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_rate_formats_are_parsed() {
        for (text, per_second) in [
            ("50/s", 50.0),
            ("50", 50.0),
            ("600/m", 10.0),
            ("7200/h", 2.0),
            ("0.5/s", 0.5),
            ("30/m", 0.5),
        ] {
            assert_eq!(limit(text), Ok(per_second), "{text}");
        }
    }

    #[test]
    fn other_formats_are_refused_with_a_hint() {
        for text in [
            "", "/s", "fast", "50/", "50/d", "50 /s", "-5", "-5/s", "+5", "inf", "nan", "1e3/s",
            "5/s/s", "50/s/m", ".", "1.2.3",
        ] {
            let error = limit(text).expect_err(text);
            assert!(error.contains("\"600/m\""), "{text}: {error}");
        }
    }

    #[test]
    fn rates_have_bounds() {
        assert_eq!(
            limit("100001"),
            Err("must be from 0.0001/s to 100000/s".to_owned())
        );
        assert!(limit("0").is_err());
        assert_eq!(capacity("1000000"), Ok(MAX_CAPACITY));
        assert!(capacity("1000001").is_err());
        assert_eq!(
            capacity("0"),
            Err("must be from 0.001/s to 1000000/s".to_owned())
        );
        assert_eq!(capacity("1.5/s"), Ok(1.5));
        assert_eq!(capacity("90/m"), Ok(1.5));
        assert_eq!(capacity("0.001"), Ok(MIN_CAPACITY));
    }
}
