//! Numbers and lengths of time as people read them.

/// Units from large to small, with the unit each is rounded to when it leads.
const UNITS: [(&str, u64, &str, u64); 3] = [
    ("d", 86_400_000, "h", 3_600_000),
    ("h", 3_600_000, "m", 60_000),
    ("m", 60_000, "s", 1_000),
];

/// A length of time in its two largest units: `250ms`, `8.5s`, `42m 40s`, `1d 10h`.
pub fn duration(ms: u64) -> String {
    for (large, large_ms, small, small_ms) in UNITS {
        if ms < large_ms {
            continue;
        }
        let small_per_large = large_ms / small_ms;
        let smalls = rounded(ms, small_ms);
        // Rounding may carry into the next unit: 59m 59.7s is an hour.
        if smalls * small_ms != ms && carries(smalls * small_ms, large_ms) {
            return duration(smalls * small_ms);
        }
        return match (smalls / small_per_large, smalls % small_per_large) {
            (larges, 0) => format!("{larges}{large}"),
            (larges, smalls) => format!("{larges}{large} {smalls}{small}"),
        };
    }
    below_a_minute(ms)
}

fn below_a_minute(ms: u64) -> String {
    let tenths = rounded(ms, 100);
    match ms {
        0 => "0s".to_owned(),
        1..1_000 => format!("{ms}ms"),
        1_000..59_500 if tenths >= 100 || tenths.is_multiple_of(10) => {
            format!("{}s", rounded(ms, 1_000))
        }
        1_000..59_500 => format!("{}.{}s", tenths / 10, tenths % 10),
        59_500.. => duration(60_000),
    }
}

fn rounded(ms: u64, unit_ms: u64) -> u64 {
    (ms + unit_ms / 2) / unit_ms
}

/// True when `ms` reaches the unit above the one of `large_ms`.
fn carries(ms: u64, large_ms: u64) -> bool {
    UNITS
        .iter()
        .any(|(_, above_ms, _, _)| *above_ms > large_ms && ms >= *above_ms)
}

/// A count with its thousands apart: `1,305,000`.
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

/// A rate: `50/s`, `0.5/s`.
pub fn per_second(rate: f64) -> String {
    if rate.fract() == 0.0 {
        format!("{}/s", count(rate as u64))
    } else {
        format!("{rate}/s")
    }
}

/// How many times over: `1.5 times`, `200 times`.
pub fn times(ratio: f64) -> String {
    if ratio < 9.95 {
        format!("{} times", (ratio * 10.0).round() / 10.0)
    } else {
        format!("{} times", count(ratio.round() as u64))
    }
}

/// A text cut to what fits: a file's name may be long.
pub fn shortened(text: &str, most_chars: usize) -> String {
    if text.chars().count() <= most_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most_chars - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_their_two_largest_units() {
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
    fn every_duration_has_words() {
        for ms in (0..400_000_000).step_by(7_919) {
            let text = duration(ms);
            assert!(!text.contains("60s") && !text.contains("60m") && !text.contains("24h"));
        }
        assert!(duration(u64::MAX / 2).contains('d'));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened("naïve", 5), "naïve");
        assert_eq!(shortened("naïvely", 5), "naïv…");
    }

    #[test]
    fn counts_and_rates() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_305_000), "1,305,000");
        assert_eq!(per_second(1_500.0), "1,500/s");
        assert_eq!(per_second(0.5), "0.5/s");
        assert_eq!(times(1.5), "1.5 times");
        assert_eq!(times(9.96), "10 times");
        assert_eq!(times(20_000.0), "20,000 times");
    }
}
