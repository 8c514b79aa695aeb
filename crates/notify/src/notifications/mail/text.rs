//! Texts for one notification.
//!
//! Text from third parties (endpoint URLs, names, responses) is shown without line breaks and invisible or
//! bidirectional characters, and is truncated.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_store::{EMAIL_LIMIT_REACHED, EmailLine};
use serde_json::Value;

use crate::alert_text::message_of;
use crate::notifications::public_url::{host_of, without_secrets};

/// Maximum length of an endpoint URL, in characters.
const MAX_URL_CHARS: usize = 200;
/// Maximum length of the host of an endpoint in a subject line, in characters.
const MAX_SUBJECT_HOST_CHARS: usize = 35;
/// Maximum length of any other text, in characters.
const MAX_SHORT_TEXT_CHARS: usize = 120;
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
    /// A tenant has reached its daily limit of emails to owners.
    EmailLimitReached,
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
            EMAIL_LIMIT_REACHED => NotificationKind::EmailLimitReached,
            "endpoint.recovered" => NotificationKind::Recovered,
            "alert.resolved" => NotificationKind::AlertResolved,
            _ => NotificationKind::Unknown,
        }
    }
}

/// Returns what a notification is about, such as `Endpoint https://hooks.example.com/in of acme`.
pub(super) fn topic(line: &EmailLine) -> String {
    topic_with(line, line.endpoint_url.as_deref().map(public_url_text))
}

/// Returns the same for a subject line, where an endpoint is named by its host: a tenant can write a message into the path
/// of a URL.
pub(super) fn short_topic(line: &EmailLine) -> String {
    let host = line.endpoint_url.as_deref().map(host_of);
    topic_with(
        line,
        host.map(|host| sanitized(&host, MAX_SUBJECT_HOST_CHARS)),
    )
}

fn topic_with(line: &EmailLine, url: Option<String>) -> String {
    let endpoint = url.or_else(|| line.endpoint.as_deref().map(short_text));
    let tenant = line.tenant.as_deref().map(short_text);
    let scope = match (endpoint, tenant) {
        (Some(endpoint), Some(tenant)) => Some(format!("endpoint {endpoint} of {tenant}")),
        (Some(endpoint), None) => Some(format!("endpoint {endpoint}")),
        (None, Some(tenant)) => Some(format!("tenant {tenant}")),
        (None, None) => None,
    };
    scope.map_or_else(|| "Server".to_owned(), |scope| capitalised(&scope))
}

/// Describes what happened in a few words. Merges several notifications of the same kind and topic.
pub(super) fn describe(lines: &[&EmailLine]) -> String {
    let Some(last) = lines.last() else {
        return String::new();
    };
    let times = match lines.len() {
        1 => String::new(),
        count => format!(" {} times", with_separators(count as u64)),
    };
    match NotificationKind::of(last) {
        NotificationKind::Disabled => {
            let why = reason_suffix(last, "cause", disable_cause_text);
            format!("disabled{times}{why}; no requests are sent until it is enabled again")
        }
        NotificationKind::DisableWarning => {
            let why = reason_suffix(last, "cause", disable_cause_text);
            format!("will be disabled if it keeps failing{why}")
        }
        NotificationKind::BreakerTripped => {
            let why = reason_suffix(last, "reason", trip_reason_text);
            format!("breaker tripped{times}{why}; deliveries are held, not lost")
        }
        NotificationKind::Recovered => {
            format!("recovered{}", repeat_suffix(lines.len()))
        }
        NotificationKind::DeliveryFailed => describe_failures(lines),
        NotificationKind::EmailLimitReached => {
            "reached its daily limit of emails to endpoint owners; more are dropped until 00:00 UTC"
                .to_owned()
        }
        NotificationKind::AlertRaised => {
            format!("{}{}", alert_details(last), repeat_suffix(lines.len()))
        }
        NotificationKind::AlertResolved => {
            let what = alert(last).map(alert_meaning);
            let what = what.map_or_else(|| alert_name(last).unwrap_or_default(), str::to_owned);
            format!("resolved: {what}{}", repeat_suffix(lines.len()))
        }
        NotificationKind::Unknown => {
            let details = in_brackets(&details(&last.detail, &[]));
            format!("{}{times}{details}", short_text(&last.name))
        }
    }
}

fn repeat_suffix(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" ({} times)", with_separators(count as u64)),
    }
}

/// Sums up the failed deliveries of these notifications, with their reasons.
fn describe_failures(lines: &[&EmailLine]) -> String {
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
        count => format!("{} deliveries failed", with_separators(count)),
    };
    let tables = tables.into_values().take(MAX_DETAILS).map(|table| {
        let mut kinds: Vec<(&str, u64)> = table.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds = kinds
            .into_iter()
            .map(|(kind, count)| format!("{} {}", short_text(kind), with_separators(count)));
        joined(&kinds.collect::<Vec<_>>())
    });
    let tables: Vec<String> = tables.collect();
    match tables.is_empty() {
        true => what,
        false => format!("{what} ({})", tables.join("; ")),
    }
}

/// Formats ` (this, that)`, or an empty string.
fn in_brackets(items: &[String]) -> String {
    match items.is_empty() {
        true => String::new(),
        false => format!(" ({})", joined(items)),
    }
}

/// Joins the first items, and adds the number of the others.
fn joined(items: &[String]) -> String {
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
        let text = match value {
            Value::String(text) => short_text(text),
            Value::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() => {
                    format!("{}", (float * 1_000.0).round() / 1_000.0)
                }
                Some(_) | None => number.to_string(),
            },
            Value::Bool(truth) => truth.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        (!without.contains(&name.as_str())).then(|| format!("{} {text}", short_text(name)))
    });
    single.collect()
}

/// Returns the name of the alert, if the notification is about one.
pub(super) fn alert_name(line: &EmailLine) -> Option<String> {
    if !line.name.starts_with("alert.") {
        return None;
    }
    let name = line.detail.get("name").and_then(Value::as_str);
    Some(short_text(name.unwrap_or("unknown")))
}

/// Returns the alert, if this version knows its name.
fn alert(line: &EmailLine) -> Option<AlertName> {
    alert_name(line)?.parse().ok()
}

/// Returns the alert whose section of the runbook says what to do about a notification.
pub(super) fn runbook_alert(line: &EmailLine) -> Option<AlertName> {
    match NotificationKind::of(line) {
        NotificationKind::AlertRaised | NotificationKind::AlertResolved => alert(line),
        NotificationKind::Disabled => Some(AlertName::EndpointDisabled),
        NotificationKind::DisableWarning => Some(AlertName::DisableWarning),
        NotificationKind::BreakerTripped => Some(AlertName::BreakerTripped),
        NotificationKind::DeliveryFailed => Some(AlertName::DeadLettersGrowing),
        NotificationKind::EmailLimitReached
        | NotificationKind::Unknown
        | NotificationKind::Recovered => None,
    }
}

/// Describes an alert and its values.
fn alert_details(line: &EmailLine) -> String {
    match alert(line) {
        Some(name) => {
            let message = message_of(name, &line.detail);
            short_text(&uncapitalised(message.trim_end_matches('.')))
        }
        None => {
            let shown_elsewhere = ["alert", "name", "notice", "raised_at"];
            let details = in_brackets(&details(&line.detail, &shown_elsewhere));
            format!("alert {}{details}", alert_name(line).unwrap_or_default())
        }
    }
}

fn alert_meaning(name: AlertName) -> &'static str {
    match name {
        AlertName::RetryRatio => "retry rate too high",
        AlertName::DeadLetterRatio => "dead-letter rate too high",
        AlertName::AttemptsPerSuccess => "too many attempts per successful delivery",
        AlertName::SecondAttemptSuccessRatio => "second-attempt success rate too low",
        AlertName::RetryingOver24h => "too many deliveries retrying for over 24 hours",
        AlertName::DeadLettersGrowing => "too many dead letters",
        AlertName::BreakerTripped => "endpoint down, deliveries held",
        AlertName::DisableWarning => "endpoint will be disabled if it keeps failing",
        AlertName::EndpointDisabled => "endpoint disabled automatically",
        AlertName::QueueAge => "due deliveries are waiting too long",
        AlertName::HeldBack => "deliveries held back by a limit for too long",
        AlertName::StoreSlow => "slow store writes",
        AlertName::StoreNearlyFull => "store nearly full",
        AlertName::NotificationsStuck => "notifications are not being sent",
        AlertName::HeldAfterFaults => "deliveries are held after repeated internal errors",
        AlertName::OutboxUnreachable => "an outbox cannot be read",
        AlertName::SchedulesFailing => "schedules keep failing",
    }
}

/// Formats `: why`, in plain words for a known code.
fn reason_suffix(
    line: &EmailLine,
    member: &str,
    text_of: fn(&str) -> Option<&'static str>,
) -> String {
    let Some(code) = line.detail.get(member).and_then(Value::as_str) else {
        return String::new();
    };
    let why = text_of(code).map_or_else(|| short_text(code), str::to_owned);
    format!(": {why}")
}

fn trip_reason_text(code: &str) -> Option<&'static str> {
    match code {
        "failure_ratio" => Some("too many recent requests failed"),
        "consecutive_failures" => Some("too many consecutive failures"),
        "exhausted_deliveries" => Some("too many deliveries failed within a day"),
        "refusals" => Some("too many deliveries in a row were rejected"),
        _ => None,
    }
}

fn disable_cause_text(code: &str) -> Option<&'static str> {
    match code {
        "gone" => Some("the receiver responded with 410 Gone"),
        "permanent_failures" => Some("too many deliveries in a row were permanently rejected"),
        "failing_for_days" => Some("all attempts failed for days"),
        _ => None,
    }
}

/// Returns an endpoint URL without user, password, query and fragment, because emails are read by people who must not
/// know a token.
pub(super) fn public_url_text(text: &str) -> String {
    let url = without_secrets(text);
    url.map_or("(URL not shown)".to_owned(), |url| {
        sanitized(&url, MAX_URL_CHARS)
    })
}

/// Sanitises a short text from a third party.
fn short_text(text: &str) -> String {
    sanitized(text, MAX_SHORT_TEXT_CHARS)
}

/// Sanitises text: it stays on one line and in one direction, and is truncated.
pub(super) fn sanitized(text: &str, max_chars: usize) -> String {
    let mut sanitized: String = text
        .chars()
        .take(max_chars)
        .map(|c| if is_unsafe(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(max_chars).is_some() {
        sanitized.push('…');
    }
    sanitized
}

/// Returns true for characters that break lines, are invisible or change the text direction.
fn is_unsafe(c: char) -> bool {
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
pub(super) fn with_separators(number: u64) -> String {
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

fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
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

    fn text_of(name: &str, detail: Value) -> String {
        let line = line(name, detail);
        format!("{}: {}", topic(&line), describe(&[&line]))
    }

    #[test]
    fn every_kind_has_a_text() {
        let endpoint = "Endpoint https://hooks.example.com/in of acme";
        for (name, detail, expected) in [
            (
                "endpoint.breaker_tripped",
                json!({"reason": "consecutive_failures"}),
                "breaker tripped: too many consecutive failures; deliveries are held, not lost",
            ),
            ("endpoint.recovered", json!({}), "recovered"),
            (
                "endpoint.disable_warning",
                json!({"cause": "failing_for_days"}),
                "will be disabled if it keeps failing: all attempts failed for days",
            ),
            (
                "endpoint.disabled",
                json!({"cause": "gone"}),
                "disabled: the receiver responded with 410 Gone; no requests are sent until it is enabled again",
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
            assert_eq!(text_of(name, detail), format!("{endpoint}: {expected}"));
        }
    }

    #[test]
    fn an_alert_names_its_meaning_and_its_values() {
        let raised = json!({"alert": "al_1", "name": "retry_ratio", "raised_at": "2026-11-15T03:04:05.678Z",
                            "value": 0.23456, "threshold": 0.2, "window": "1h"});
        assert_eq!(
            text_of("alert.raised", raised),
            "Endpoint https://hooks.example.com/in of acme: retry rate is 23.5 % over the last hour (threshold 20 %)"
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
        assert_eq!(topic(&everywhere), "Server");
        let resolved = "resolved: due deliveries are waiting too long";
        assert_eq!(describe(&[&everywhere]), resolved);
        for name in AlertName::ALL {
            let text = text_of("alert.resolved", json!({"name": name.name()}));
            assert!(text.contains(alert_meaning(name)), "{text}");
            let text = text_of("alert.raised", json!({"name": name.name()}));
            assert!(text.len() > topic(&everywhere).len() + 4, "{text}");
        }
    }

    #[test]
    fn several_notifications_are_merged() {
        let failed = |count: u64| {
            line(
                "delivery.failed",
                json!({"count": count, "error_kinds": {"http": count}}),
            )
        };
        let (one, other) = (failed(999), failed(1));
        assert_eq!(
            describe(&[&one, &other]),
            "1,000 deliveries failed (http 1,000)"
        );
        let tripped = line("endpoint.breaker_tripped", json!({}));
        let text = describe(&[&tripped, &tripped]);
        assert!(text.starts_with("breaker tripped 2 times;"), "{text}");
        let back = line("endpoint.recovered", json!({}));
        assert_eq!(describe(&[&back, &back]), "recovered (2 times)");
    }

    #[test]
    fn secrets_of_a_url_are_removed() {
        for (url, shown) in [
            ("https://user:hunter2@a.example/x", "https://a.example/x"),
            ("https://a.example/x?token=hunter2#y", "https://a.example/x"),
            ("https://a.example:8443", "https://a.example:8443/"),
            ("not a url hunter2", "(URL not shown)"),
        ] {
            assert_eq!(public_url_text(url), shown);
        }
        let long = public_url_text(&format!("https://a.example/{}", "x".repeat(5_000)));
        assert_eq!(long.chars().count(), MAX_URL_CHARS + 1);
    }

    #[test]
    fn hostile_text_stays_on_one_line_and_is_bounded() {
        let hostile = "a\r\nBcc: x\u{202e}\u{2028}\u{200b}\u{1b}[2J";
        let shown = sanitized(hostile, 100);
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        assert_eq!(shown.chars().count(), hostile.chars().count());
        let text = text_of("delivery.failed\r\nBcc: x", json!({"\r\na": "\u{202e}"}));
        assert!(!text.contains(is_unsafe), "{text:?}");
        let many: serde_json::Map<String, Value> = (0..1_000)
            .map(|n| (format!("k{n}"), json!("x".repeat(9_999))))
            .collect();
        let text = describe(&[&line("new.thing", Value::Object(many))]);
        assert!(
            text.ends_with("and 992 more)") && text.len() < 2_000,
            "{}",
            text.len()
        );
    }

    #[test]
    fn numbers_have_thousands_separators() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_separators(number), shown);
        }
    }
}
