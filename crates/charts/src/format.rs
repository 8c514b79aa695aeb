//! Formats numbers and durations for people.
//!
//! Durations have at most two units, unless several that are shown together would get the same text
//! ([`durations`]).

use std::collections::{BTreeMap, BTreeSet};

/// Units from large to small.
const UNITS: [(&str, u64); 4] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
];
/// Rounding steps of a duration, from coarse to exact.
const STEPS_MS: [u64; 5] = [3_600_000, 60_000, 1_000, 100, 1];

/// Formats a duration in its two largest units: `250ms`, `8.5s`, `42m 40s`, `1d 10h`.
pub fn duration(ms: u64) -> String {
    rounded(ms, two_unit_step(ms))
}

/// Formats durations that are shown together: each as short as [`duration`] does, but with more units if two
/// different ones would have the same text.
pub fn durations(all_ms: &[u64]) -> Vec<String> {
    let mut steps: Vec<usize> = all_ms.iter().map(|ms| two_unit_step(*ms)).collect();
    loop {
        let texts: Vec<String> = all_ms
            .iter()
            .zip(&steps)
            .map(|(ms, step)| rounded(*ms, *step))
            .collect();
        let mut durations_by_text: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (text, ms) in texts.iter().zip(all_ms) {
            durations_by_text.entry(text).or_default().insert(*ms);
        }
        if durations_by_text.values().all(|all| all.len() == 1) {
            return texts;
        }
        for (step, text) in steps.iter_mut().zip(&texts) {
            if durations_by_text[&**text].len() > 1 {
                *step = (*step + 1).min(STEPS_MS.len() - 1);
            }
        }
    }
}

/// Returns the index of the rounding step that leaves two units.
fn two_unit_step(ms: u64) -> usize {
    match ms {
        0..1_000 => 4,
        1_000..10_000 => 3,
        10_000..3_600_000 => 2,
        3_600_000..86_400_000 => 1,
        86_400_000.. => 0,
    }
}

fn rounded(ms: u64, step: usize) -> String {
    let step_ms = STEPS_MS[step];
    exact((ms.saturating_add(step_ms / 2)) / step_ms * step_ms)
}

fn exact(ms: u64) -> String {
    match ms {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{ms}ms"),
        1_000.. => {}
    }
    let mut parts = Vec::new();
    let mut rest_ms = ms;
    for (unit, unit_ms) in UNITS {
        let (whole, left_ms) = (rest_ms / unit_ms, rest_ms % unit_ms);
        rest_ms = left_ms;
        if unit == "s" && left_ms > 0 {
            let thousandths = format!("{left_ms:03}");
            parts.push(format!("{whole}.{}s", thousandths.trim_end_matches('0')));
        } else if whole > 0 {
            parts.push(format!("{whole}{unit}"));
        }
    }
    parts.join(" ")
}

/// Formats an interval for use after "every": `minute`, `90s`.
pub fn every(ms: u64) -> String {
    match ms {
        1_000 => "second".to_owned(),
        60_000 => "minute".to_owned(),
        3_600_000 => "hour".to_owned(),
        86_400_000 => "day".to_owned(),
        other => duration(other),
    }
}

/// Formats a count with thousands separators: `1,305,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate per second, minute or hour, the first of them that needs few digits: `50/s`, `0.5/s`, `10/m`.
pub fn rate(per_second: f64) -> String {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    for (unit, seconds) in units {
        let number = per_second * seconds;
        let rounded_number = three_digits(number);
        if (rounded_number - number).abs() <= number * 1e-9 {
            return format!("{}/{unit}", decimal(rounded_number));
        }
    }
    format!("{}/s", decimal(three_digits(per_second)))
}

/// Rounds a number to three digits, or to a whole number if that has more digits.
fn three_digits(number: f64) -> f64 {
    if number <= 0.0 {
        return 0.0;
    }
    let magnitude = number.log10().floor() as i32;
    let places = (2 - magnitude).max(0);
    let power = 10f64.powi(places);
    (number * power).round() / power
}

fn decimal(number: f64) -> String {
    if number.fract() == 0.0 {
        count(number as u64)
    } else {
        number.to_string()
    }
}

/// Formats a ratio: `1.5 times`, `200 times`.
pub fn times(ratio: f64) -> String {
    if ratio < 9.95 {
        format!("{} times", (ratio * 10.0).round() / 10.0)
    } else {
        format!("{} times", count(ratio.round() as u64))
    }
}

/// Shortens text to `max_chars` characters: a file name may be long.
pub fn shortened(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_two_largest_units() {
        for (ms, text) in [
            (0, "0s"),
            (1, "1ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (8_500, "8.5s"),
            (9_960, "10s"),
            (12_400, "12s"),
            (59_499, "59s"),
            (59_500, "1m"),
            (90_000, "1m 30s"),
            (2_560_000, "42m 40s"),
            (3_599_700, "1h"),
            (9_760_000, "2h 43m"),
            (86_399_999, "1d"),
            (124_960_000, "1d 11h"),
            (259_200_000, "3d"),
            (2_592_000_000, "30d"),
        ] {
            assert_eq!(duration(ms), text, "{ms}");
        }
    }

    #[test]
    fn every_duration_is_normalised() {
        for ms in (0..400_000_000).step_by(7_919) {
            let text = duration(ms);
            assert!(!text.contains("60s") && !text.contains("60m") && !text.contains("24h"));
        }
        assert!(duration(u64::MAX / 2).contains('d'));
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("naïve", 5), "naïve");
        assert_eq!(shortened("naïvely", 5), "naïv…");
    }

    #[test]
    fn different_durations_have_different_texts() {
        let day_ms = 86_400_000;
        assert_eq!(durations(&[day_ms, day_ms + 269_000]), ["1d", "1d 4m"]);
        assert_eq!(
            durations(&[day_ms, day_ms + 5_000, 5_000]),
            ["1d", "1d 5s", "5s"]
        );
        assert_eq!(durations(&[day_ms, day_ms]), ["1d", "1d"]);
        assert_eq!(durations(&[12_400, 12_401]), ["12.4s", "12.401s"]);
        assert_eq!(
            durations(&[3_599_700, 3_600_000, 9_760_000]),
            ["59m 59.7s", "1h", "2h 43m"]
        );
        assert!(durations(&[]).is_empty());
        let close: Vec<u64> = (0..40).map(|step| day_ms + step * 599_999).collect();
        let texts: BTreeSet<String> = durations(&close).into_iter().collect();
        assert_eq!(texts.len(), close.len());
    }

    #[test]
    fn rates_have_few_digits() {
        for (per_second, text) in [
            (50.0, "50/s"),
            (1_500.0, "1,500/s"),
            (0.5, "0.5/s"),
            (1.5, "1.5/s"),
            (0.001, "0.001/s"),
            (10.0 / 60.0, "10/m"),
            (100.0 / 60.0, "100/m"),
            (7.0 / 3_600.0, "7/h"),
            (1_000_000.0, "1,000,000/s"),
            (std::f64::consts::PI, "3.14/s"),
            (0.0, "0/s"),
        ] {
            assert_eq!(rate(per_second), text);
        }
    }

    #[test]
    fn counts_and_ratios() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_305_000), "1,305,000");
        assert_eq!(times(1.5), "1.5 times");
        assert_eq!(times(9.96), "10 times");
        assert_eq!(times(20_000.0), "20,000 times");
    }
}
