//! Texts for one notification.
//!
//! Text from third parties (endpoint URLs, names, responses) is shown without line breaks and invisible or
//! bidirectional characters, and is truncated.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_store::EmailLine;
use serde_json::Value;

use crate::notifications::public_url::place;

/// Maximum length of an endpoint URL, in characters.
const MAX_URL_CHARS: usize = 200;
/// Maximum length of any other text, in characters.
const MAX_WORD_CHARS: usize = 120;
/// Maximum number of details of one notification.
const MAX_DETAILS: usize = 8;

/// Kind of a notification, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NotificationKind {
    /// An endpoint was disabled.
    Disabled,
    /// An endpoint is about to be disabled.
    DisableWarning,
    /// An alert was raised.
    AlertRaised,
    /// An endpoint's breaker tripped.
    BreakerTripped,
    /// Deliveries were dead-lettered.
    DeliveryFailed,
    /// A kind that only a newer version knows.
    Unknown,
    /// An endpoint has recovered.
    Recovered,
    /// An alert was resolved.
    AlertResolved,
}

impl NotificationKind {
    pub(super) fn of(line: &EmailLine) -> NotificationKind {
        match line.name.as_str() {
            "endpoint.disabled" => NotificationKind::Disabled,
            "endpoint.disable_warning" => NotificationKind::DisableWarning,
            "alert.raised" => NotificationKind::AlertRaised,
            "endpoint.breaker_tripped" => NotificationKind::BreakerTripped,
            "delivery.failed" => NotificationKind::DeliveryFailed,
            "endpoint.recovered" => NotificationKind::Recovered,
            "alert.resolved" => NotificationKind::AlertResolved,
            _ => NotificationKind::Unknown,
        }
    }
}

/// Returns the subject of a notification, such as `Endpoint https://hooks.example.com/in of acme`.
pub(super) fn about(line: &EmailLine) -> String {
    let place = line.endpoint_url.as_deref().map(shown_url);
    let endpoint = place.or_else(|| line.endpoint.as_deref().map(word));
    let tenant = line.tenant.as_deref().map(word);
    let scope = match (endpoint, tenant) {
        (Some(endpoint), Some(tenant)) => Some(format!("endpoint {endpoint} of {tenant}")),
        (Some(endpoint), None) => Some(format!("endpoint {endpoint}")),
        (None, Some(tenant)) => Some(format!("tenant {tenant}")),
        (None, None) => None,
    };
    match (alert_name(line), scope) {
        (Some(alert), Some(scope)) => format!("Alert {alert}, {scope}"),
        (Some(alert), None) => format!("Alert {alert}"),
        (None, Some(scope)) => capitalised(&scope),
        (None, None) => "Server".to_owned(),
    }
}

/// Describes what happened in a few words. Merges several notifications of the same kind and subject.
pub(super) fn happened(lines: &[&EmailLine]) -> String {
    let Some(last) = lines.last() else {
        return String::new();
    };
    let times = match lines.len() {
        1 => String::new(),
        count => format!(" {} times", grouped(count as u64)),
    };
    match NotificationKind::of(last) {
        NotificationKind::Disabled => {
            let why = because(last, "cause", cause);
            format!("it was disabled{times}{why}; nothing is sent to it until it is enabled again")
        }
        NotificationKind::DisableWarning => {
            let why = because(last, "cause", cause);
            format!("it will be disabled if this goes on{why}")
        }
        NotificationKind::BreakerTripped => {
            let why = because(last, "reason", reason);
            format!("its breaker tripped{times}{why}; deliveries to it wait, and are not lost")
        }
        NotificationKind::Recovered => format!("it takes deliveries again{}", again(lines.len())),
        NotificationKind::DeliveryFailed => failed(lines),
        NotificationKind::AlertRaised => format!("raised{times}{}", alert_words(last)),
        NotificationKind::AlertResolved => format!("over{}", again(lines.len())),
        NotificationKind::Unknown => {
            let details = listed(&details(&last.detail, &[]));
            format!("{}{times}{details}", word(&last.name))
        }
    }
}

fn again(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" ({} times)", grouped(count as u64)),
    }
}

/// Sums up the failed deliveries of these notifications, with their reasons.
fn failed(lines: &[&EmailLine]) -> String {
    let mut count: u64 = 0;
    // Number by reason and by error kind.
    let mut tables: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for line in lines {
        let own = line.detail.get("count").and_then(Value::as_u64);
        count = count.saturating_add(own.unwrap_or(1));
        for (name, table) in line.detail.as_object().into_iter().flatten() {
            for (kind, own) in table.as_object().into_iter().flatten() {
                let sums = tables.entry(name).or_default();
                let sum = sums.entry(kind).or_default();
                *sum = sum.saturating_add(own.as_u64().unwrap_or(0));
            }
        }
    }
    let what = match count {
        1 => "1 delivery failed".to_owned(),
        count => format!("{} deliveries failed", grouped(count)),
    };
    let tables = tables.into_values().take(MAX_DETAILS).map(|table| {
        let mut kinds: Vec<(&str, u64)> = table.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds = kinds
            .into_iter()
            .map(|(kind, count)| format!("{} {}", word(kind), grouped(count)));
        shortened(&kinds.collect::<Vec<_>>())
    });
    let tables: Vec<String> = tables.collect();
    match tables.is_empty() {
        true => what,
        false => format!("{what} ({})", tables.join("; ")),
    }
}

/// Formats ` (this, that)`, or an empty string.
fn listed(items: &[String]) -> String {
    match items.is_empty() {
        true => String::new(),
        false => format!(" ({})", shortened(items)),
    }
}

/// Joins the first items, and adds the number of the others.
fn shortened(items: &[String]) -> String {
    let more = items.len().saturating_sub(MAX_DETAILS);
    let shown = items[..items.len() - more].join(", ");
    match more {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

/// Formats the scalar members of a detail, except those in `without`.
fn details(detail: &Value, without: &[&str]) -> Vec<String> {
    let members = detail.as_object().into_iter().flatten();
    let single = members.filter_map(|(name, value)| {
        let shown = match value {
            Value::String(text) => word(text),
            Value::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() => {
                    format!("{}", (float * 1_000.0).round() / 1_000.0)
                }
                Some(_) | None => number.to_string(),
            },
            Value::Bool(truth) => truth.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        (!without.contains(&name.as_str())).then(|| format!("{} {shown}", word(name)))
    });
    single.collect()
}

/// Returns the name of the alert, if the notification is about one.
fn alert_name(line: &EmailLine) -> Option<String> {
    if !line.name.starts_with("alert.") {
        return None;
    }
    let name = line.detail.get("name").and_then(Value::as_str);
    Some(word(name.unwrap_or("unknown")))
}

/// Returns the alert, if this version knows its name.
pub(super) fn alert(line: &EmailLine) -> Option<AlertName> {
    alert_name(line)?.parse().ok()
}

/// Describes the meaning of an alert and its values.
fn alert_words(line: &EmailLine) -> String {
    let meaning = alert(line).map_or_else(String::new, |name| format!(": {}", meaning(name)));
    let said_elsewhere = ["alert", "name", "notice", "raised_at"];
    format!(
        "{meaning}{}",
        listed(&details(&line.detail, &said_elsewhere))
    )
}

fn meaning(name: AlertName) -> &'static str {
    match name {
        AlertName::RetryRatio => "too many attempts are repetitions",
        AlertName::DeadLetterRatio => "too many deliveries are given up",
        AlertName::AttemptsPerSuccess => "a success takes too many attempts",
        AlertName::SecondAttemptSuccessRatio => "too few second attempts succeed",
        AlertName::RetryingOver24h => {
            "too many deliveries have been in retry for longer than a day"
        }
        AlertName::DeadLettersGrowing => "many deliveries were given up lately",
        AlertName::BreakerTripped => "it keeps failing, and is left alone for a while",
        AlertName::DisableWarning => "it will be disabled if this goes on",
        AlertName::EndpointDisabled => "posthaste disabled it",
        AlertName::QueueAge => "something that could be sent has been waiting for too long",
        AlertName::StoreSlow => "the store takes long to write",
        AlertName::StoreNearlyFull => "the store has little room left",
        AlertName::NotificationsStuck => "notices cannot be told",
    }
}

/// Formats `: why`, in plain words for a known code.
fn because(line: &EmailLine, member: &str, words: fn(&str) -> Option<&'static str>) -> String {
    let Some(code) = line.detail.get(member).and_then(Value::as_str) else {
        return String::new();
    };
    let why = words(code).map_or_else(|| word(code), str::to_owned);
    format!(": {why}")
}

fn reason(code: &str) -> Option<&'static str> {
    match code {
        "failure_ratio" => Some("too large a share of recent requests failed"),
        "consecutive_failures" => Some("too many requests failed in a row"),
        "exhausted_deliveries" => Some("too many deliveries were given up within a day"),
        _ => None,
    }
}

fn cause(code: &str) -> Option<&'static str> {
    match code {
        "gone" => Some("it answered 410 Gone"),
        "permanent_failures" => Some("too many deliveries in a row were refused for good"),
        "failing_for_days" => Some("nothing but failure for days"),
        _ => None,
    }
}

/// Returns an endpoint URL without user, password, query and fragment, because emails are read by people who must not
/// know a token.
pub(super) fn shown_url(text: &str) -> String {
    let place = place(text);
    place.map_or("that cannot be shown".to_owned(), |place| {
        clean(&place, MAX_URL_CHARS)
    })
}

/// Sanitises a short text from a third party.
fn word(text: &str) -> String {
    clean(text, MAX_WORD_CHARS)
}

/// Sanitises text: it stays on one line and in one direction, and is truncated.
pub(super) fn clean(text: &str, max_chars: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(max_chars)
        .map(|c| if is_tricky(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(max_chars).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns true for characters that break lines, are invisible or change the text direction.
fn is_tricky(c: char) -> bool {
    let hidden = [
        '\u{ad}', '\u{61c}', '\u{180e}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}',
        '\u{200f}', '\u{feff}',
    ];
    c.is_control()
        || hidden.contains(&c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2060}'..='\u{206f}').contains(&c)
}

/// Formats a number with thousands separators.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::time::Timestamp;
    use serde_json::json;

    fn line(name: &str, detail: Value) -> EmailLine {
        EmailLine {
            at: Timestamp(0),
            name: name.to_owned(),
            tenant: Some("acme".to_owned()),
            endpoint: Some("ep_1".to_owned()),
            endpoint_url: Some("https://hooks.example.com/in".to_owned()),
            detail,
        }
    }

    fn told(name: &str, detail: Value) -> String {
        let line = line(name, detail);
        format!("{}: {}", about(&line), happened(&[&line]))
    }

    #[test]
    fn every_notice_has_its_words() {
        let endpoint = "Endpoint https://hooks.example.com/in of acme";
        for (name, detail, words) in [
            (
                "endpoint.breaker_tripped",
                json!({"reason": "consecutive_failures"}),
                "its breaker tripped: too many requests failed in a row; deliveries to it wait, and are not lost",
            ),
            ("endpoint.recovered", json!({}), "it takes deliveries again"),
            (
                "endpoint.disable_warning",
                json!({"cause": "failing_for_days"}),
                "it will be disabled if this goes on: nothing but failure for days",
            ),
            (
                "endpoint.disabled",
                json!({"cause": "gone"}),
                "it was disabled: it answered 410 Gone; nothing is sent to it until it is enabled again",
            ),
            (
                "delivery.failed",
                json!({"count": 1_000, "reasons": {"exhausted": 1_000}, "error_kinds": {"timeout": 10, "http": 990},
                       "delivery_id": "dlv_1"}),
                "1,000 deliveries failed (http 990, timeout 10; exhausted 1,000)",
            ),
            ("delivery.failed", json!({}), "1 delivery failed"),
            (
                "endpoint.renamed",
                json!({"to": "x", "n": 2, "list": []}),
                "endpoint.renamed (to x, n 2)",
            ),
        ] {
            assert_eq!(told(name, detail), format!("{endpoint}: {words}"));
        }
    }

    #[test]
    fn an_alert_says_what_is_wrong_with_what() {
        let raised = json!({"alert": "al_1", "name": "retry_ratio", "raised_at": "2026-11-15T03:04:05.678Z",
                            "value": 0.23456, "threshold": 0.2, "window": "1h"});
        assert_eq!(
            told("alert.raised", raised),
            "Alert retry_ratio, endpoint https://hooks.example.com/in of acme: raised: too many attempts are \
             repetitions (value 0.235, threshold 0.2, window 1h)"
        );
        let everywhere = EmailLine {
            tenant: None,
            endpoint: None,
            endpoint_url: None,
            ..line(
                "alert.resolved",
                json!({"alert": "al_1", "name": "queue_age"}),
            )
        };
        assert_eq!(about(&everywhere), "Alert queue_age");
        assert_eq!(happened(&[&everywhere]), "over");
        for name in AlertName::ALL {
            let words = told("alert.raised", json!({"name": name.name()}));
            assert!(words.contains(meaning(name)), "{words}");
        }
    }

    #[test]
    fn several_are_told_as_one() {
        let failed = |count: u64| {
            line(
                "delivery.failed",
                json!({"count": count, "error_kinds": {"http": count}}),
            )
        };
        let (one, other) = (failed(999), failed(1));
        assert_eq!(
            happened(&[&one, &other]),
            "1,000 deliveries failed (http 1,000)"
        );
        let tripped = line("endpoint.breaker_tripped", json!({}));
        let words = happened(&[&tripped, &tripped]);
        assert!(words.starts_with("its breaker tripped 2 times;"), "{words}");
        let back = line("endpoint.recovered", json!({}));
        assert_eq!(
            happened(&[&back, &back]),
            "it takes deliveries again (2 times)"
        );
    }

    #[test]
    fn an_address_keeps_its_secrets() {
        for (url, shown) in [
            ("https://user:hunter2@a.example/x", "https://a.example/x"),
            ("https://a.example/x?token=hunter2#y", "https://a.example/x"),
            ("https://a.example:8443", "https://a.example:8443/"),
            ("not a url hunter2", "that cannot be shown"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
        let long = shown_url(&format!("https://a.example/{}", "x".repeat(5_000)));
        assert_eq!(long.chars().count(), MAX_URL_CHARS + 1);
    }

    #[test]
    fn nothing_breaks_its_line_or_turns_round() {
        let hostile = "a\r\nBcc: x\u{202e}\u{2028}\u{200b}\u{1b}[2J";
        let shown = clean(hostile, 100);
        assert!(!shown.contains(is_tricky), "{shown:?}");
        assert_eq!(shown.chars().count(), hostile.chars().count());
        let told = told("delivery.failed\r\nBcc: x", json!({"\r\na": "\u{202e}"}));
        assert!(!told.contains(is_tricky), "{told:?}");
        let many: serde_json::Map<String, Value> = (0..1_000)
            .map(|n| (format!("k{n}"), json!("x".repeat(9_999))))
            .collect();
        let words = happened(&[&line("new.thing", Value::Object(many))]);
        assert!(
            words.ends_with("and 992 more)") && words.len() < 2_000,
            "{}",
            words.len()
        );
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), shown);
        }
    }
}
