//! Regular expressions of the OpenAPI document for texts that the API accepts.
//!
//! A pattern is as strict as the validation wherever a regular expression can be. They use only what ECMAScript, Python
//! and Rust have in common, so that generated clients can use them; in particular no lookahead.

use posthaste_core::time::Span;

/// An event type.
pub(crate) const EVENT_TYPE: &str = r"^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$";
/// A pattern of event types.
pub(crate) const SUBSCRIPTION: &str = r"^(?:\*|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*(?:\.\*)?)$";
/// The id of a tenant.
pub(crate) const TENANT_ID: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// The characters after the prefix of an id: 128 bits in base 32.
const ID_DIGITS: &str = "[0-7][0-9a-hjkmnp-tv-z]{25}";
/// One line of text.
pub(crate) const LINE: &str = r"^[^\u0000-\u001F\u007F-\u009F\u2028\u2029]*$";
/// Text without control characters.
pub(crate) const VISIBLE_TEXT: &str = r"^[^\u0000-\u001F\u007F-\u009F]*$";
/// A user name, which has no colon.
pub(crate) const USERNAME: &str = r"^[^\u0000-\u001F\u007F-\u009F:]*$";
/// Visible ASCII without spaces.
pub(crate) const TOKEN: &str = "^[!-~]+$";
/// Visible ASCII and spaces.
pub(crate) const PRINTABLE: &str = "^[ -~]+$";
/// The name of a header.
pub(crate) const HEADER_NAME: &str = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
/// The value of a header.
pub(crate) const HEADER_VALUE: &str = "^(?:[!-~](?:[ -~]*[!-~])?)?$";
/// A media type.
pub(crate) const MEDIA_TYPE: &str =
    r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?: *;(?:[ -~]*[!-~])?)?$";
/// Base64 with padding (RFC 4648, section 4).
pub(crate) const BASE64: &str =
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// The path of a page in the portal.
pub(crate) const PORTAL_PATH: &str = r"^(?:/(?:[!-.0-\[\]-~][!-\[\]-~]*)?)?$";
/// The URL of a receiver. The rules for destinations depend on the configuration of the server.
pub(crate) const URL: &str = "^[Hh][Tt][Tt][Pp][Ss]?://";
/// A retryable failure in a rule of a retry policy, as text.
pub(crate) const RULE: &str =
    "^(?:[345][0-9]{2}|[345]xx|http|timeout|dns|tls|connection|validation|unknown)$";
/// The capacity of a simulated receiver.
pub(crate) const CAPACITY: &str = r"^(?:(?:[1-9][0-9]{0,5}(?:\.[0-9]+)?|0\.[0-9]{0,2}[1-9][0-9]*)(?:/s)?|[1-9][0-9]{0,6}(?:\.[0-9]+)?/m|(?:[4-9]|[1-9][0-9]{1,7})(?:\.[0-9]+)?/h)$";

/// Returns the pattern of ids with this prefix.
pub(crate) fn id(prefix: &str) -> String {
    format!("^{prefix}_{ID_DIGITS}$")
}

/// Returns the pattern of ids with one of these prefixes.
pub(crate) fn id_of_any(prefixes: &[&str]) -> String {
    format!("^(?:{})_{ID_DIGITS}$", prefixes.join("|"))
}

/// Returns the pattern of ids of deliveries, events and endpoints, and of the beginnings of the first two with at least
/// `min_chars` characters after the prefix.
pub(crate) fn id_or_beginning(min_chars: usize) -> String {
    let beginning = min_chars - 1;
    format!("^(?:(?:dlv|evt)_[0-7][0-9a-hjkmnp-tv-z]{{{beginning},25}}|ep_{ID_DIGITS})$")
}

/// Returns the pattern of base64url without padding, of a byte with the value `mark` and `count` more bytes.
pub(crate) fn base64url_after(mark: u8, count: usize) -> String {
    let bits = (count + 1) * 8;
    let first = char::from(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[usize::from(mark >> 2)],
    );
    let second = ["[A-P]", "[Q-Za-f]", "[g-v]", "[w-z0-9_-]"][usize::from(mark & 3)];
    let any = "[A-Za-z0-9_-]";
    let (middle, last) = match bits % 6 {
        0 => (bits / 6 - 2, ""),
        2 => (bits / 6 - 2, "[AQgw]"),
        _ => (bits / 6 - 2, "[AEIMQUYcgkosw048]"),
    };
    format!("{first}{second}{any}{{{middle}}}{last}")
}

/// The units of a duration with their size in milliseconds, largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Smaller units after each unit, each below the next larger one.
const REST: [&str; 5] = [
    "(?:(?:1?[0-9]|2[0-3])h)?(?:[1-5]?[0-9]m)?(?:[1-5]?[0-9]s)?(?:[1-9]?[0-9]?[0-9]ms)?",
    "(?:[1-5]?[0-9]m)?(?:[1-5]?[0-9]s)?(?:[1-9]?[0-9]?[0-9]ms)?",
    "(?:[1-5]?[0-9]s)?(?:[1-9]?[0-9]?[0-9]ms)?",
    "(?:[1-9]?[0-9]?[0-9]ms)?",
    "",
];

/// Returns the pattern of durations from `least` to `most`, in one unit (`90m`) or in several (`1h30m`).
pub(crate) fn span(least: Span, most: Span) -> String {
    let (least, most) = (least.as_millis(), most.as_millis());
    let mut choices = Vec::new();
    for ((unit, size), rest) in UNITS.into_iter().zip(REST) {
        let (first, last) = (least.div_ceil(size), most / size);
        if first <= last {
            choices.push(format!("{}{unit}", number(first, last)));
        }
        // Together, the smaller units are less than one of this unit.
        let (first, last) = (first.max(1), last.saturating_sub(1));
        if first <= last && !rest.is_empty() {
            choices.push(format!("{}{unit}{rest}", number(first, last)));
        }
    }
    format!("^(?:{})$", choices.join("|"))
}

/// Returns an expression for the whole numbers from `first` to `last`, without leading zeros.
fn number(first: u64, last: u64) -> String {
    let mut choices = Vec::new();
    let mut from = first;
    while from <= last {
        let to = end_of_block(from, last);
        choices.push(digits(from, to));
        from = to + 1;
    }
    match choices.as_slice() {
        [one] => one.clone(),
        _ => format!("(?:{})", choices.join("|")),
    }
}

/// Returns the last number of the longest block from `from` to at most `last` whose digits vary independently: `12` to
/// `19`, `20` to `99`, `100` to `999`.
fn end_of_block(from: u64, last: u64) -> u64 {
    let mut best = from;
    let mut power = 1;
    // With the lower digits of `from` all 0, they can be anything; the digit above them can grow to 9.
    while from.is_multiple_of(power) {
        let digit = from / power % 10;
        let is_lowest_number = from == 0 && power > 1;
        for top in (digit..=9).rev() {
            let end = from + (top - digit) * power + (power - 1);
            let same_length = end.checked_ilog10() == from.max(1).checked_ilog10() || end < 10;
            if end <= last && end > best && same_length && !is_lowest_number {
                best = end;
                break;
            }
        }
        let Some(next) = power.checked_mul(10).filter(|next| *next <= last) else {
            break;
        };
        power = next;
    }
    best
}

/// Returns an expression for a block of numbers that differ only in trailing digits.
fn digits(from: u64, to: u64) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    let mut text = String::new();
    let mut any = 0;
    for (low, high) in from.chars().zip(to.chars()) {
        match (low, high) {
            ('0', '9') => any += 1,
            (low, high) if low == high => text.push(low),
            (low, high) => text.push_str(&format!("[{low}-{high}]")),
        }
    }
    match any {
        0 => {}
        1 => text.push_str("[0-9]"),
        _ => text.push_str(&format!("[0-9]{{{any}}}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        regex_lite::Regex::new(pattern)
            .expect("a pattern is valid")
            .is_match(text)
    }

    #[test]
    fn durations_match_within_their_range_only() {
        let ranges = [
            (Span::from_secs(1), Span::from_secs(60)),
            (Span::from_millis(1), Span::from_days(30)),
            (Span::ZERO, Span::from_days(365)),
            (Span::from_mins(1), Span::from_days(7)),
        ];
        for (least, most) in ranges {
            let pattern = span(least, most);
            for text in [
                "0s",
                "1ms",
                "999ms",
                "1s",
                "59s",
                "59s999ms",
                "60s",
                "61s",
                "60s1ms",
                "1m",
                "1m1ms",
                "1m30s",
                "90m",
                "1h30m",
                "24h",
                "168h",
                "169h",
                "7d",
                "7d1ms",
                "6d23h",
                "29d23h59m59s999ms",
                "30d",
                "31d",
                "720h",
                "721h",
                "365d",
                "366d",
                "8760h",
                "31536000000ms",
                "31536000001ms",
            ] {
                let value: Span = text.parse().expect("a duration");
                let fits = least <= value && value <= most;
                assert_eq!(
                    matches(&pattern, text),
                    fits,
                    "{text} from {least} to {most}"
                );
            }
            for text in ["", "5", "-5s", "s", "1s1h", "1.5h", "1s "] {
                assert!(!matches(&pattern, text), "{text}");
            }
        }
    }

    #[test]
    fn number_expressions_are_exact() {
        for (first, last) in [(0, 0), (0, 9), (1, 60), (4, 168), (0, 365), (98, 1_203)] {
            let pattern = format!("^{}$", number(first, last));
            for candidate in 0..2_000 {
                let fits = (first..=last).contains(&candidate);
                assert_eq!(
                    matches(&pattern, &candidate.to_string()),
                    fits,
                    "{candidate}: {pattern}"
                );
            }
        }
    }
}
