//! The attempts of a delivery: past ones with details, and expected ones.
//!
//! Each list is rendered as a chart and as a table. The chart has one time axis for past and expected attempts, if the
//! time of the next one is known. Long lists are cut, and say so.

use std::collections::BTreeMap;

use maud::{Markup, html};
use posthaste_api::resources::{Attempt, Delivery, ExpectedAttempt, Headers};
use posthaste_charts::delivery::{self, DeliveryChart, PastAttempt, TimeOrigin};
use posthaste_charts::format::count;
use posthaste_core::delivery::Status;
use posthaste_core::time::Timestamp;

use super::status_text;
use crate::components::{BadgeKind, badge, duration, rounded_duration, time, time_with_ms};

/// Maximum number of attempts in the table; the newest are shown.
const MAX_SHOWN: usize = 100;
/// Maximum number of attempts in the chart's description for screen readers. The tables contain the rest.
const MAX_DESCRIBED: usize = 12;

/// Returns the attempts as charts. If the time of the next attempt is unknown, past and expected attempts have no
/// common time axis, so each gets its own chart.
pub(super) fn charts(delivery: &Delivery, now: Timestamp) -> Vec<DeliveryChart> {
    let (past, expected) = (&delivery.attempts, &delivery.timeline);
    let origin = time_origin(delivery, now);
    if origin == TimeOrigin::Due {
        let chart = chart(delivery, past, expected, origin);
        return Vec::from_iter((!past.is_empty() || !expected.is_empty()).then_some(chart));
    }
    let past = (!past.is_empty()).then(|| chart(delivery, past, &[], TimeOrigin::Due));
    let expected = (!expected.is_empty()).then(|| chart(delivery, &[], expected, origin));
    past.into_iter().chain(expected).collect()
}

fn chart(
    delivery: &Delivery,
    past: &[Attempt],
    expected: &[ExpectedAttempt],
    origin: TimeOrigin,
) -> DeliveryChart {
    let first = past.first().map(|attempt| attempt.started_at.as_str());
    let start = first
        .or(expected
            .first()
            .map(|upcoming| upcoming.earliest_at.as_str()))
        .unwrap_or(&delivery.created_at);
    let start = ms(start);
    let since = |at: &str| ms(at).saturating_sub(start);
    let attempts = past.iter().map(|attempt| PastAttempt {
        number: attempt.number,
        at_ms: since(&attempt.started_at),
        delivered: attempt.is_success(),
        ended: outcome(attempt),
    });
    let windows = expected.iter().map(|upcoming| {
        let (earliest_ms, expected_ms) =
            (since(&upcoming.earliest_at), since(&upcoming.expected_at));
        let latest_ms = match origin != TimeOrigin::Due && is_cut_by_deadline(upcoming, delivery) {
            false => since(&upcoming.latest_at),
            // If the start is unknown, the distance to the deadline shrinks with every rendering. A symmetric window
            // does not change.
            true => (2 * expected_ms).saturating_sub(earliest_ms),
        };
        delivery::ExpectedAttempt {
            number: upcoming.number,
            earliest_ms,
            expected_ms,
            latest_ms,
        }
    });
    let title = match origin {
        TimeOrigin::Due => "Attempts of this delivery",
        TimeOrigin::Released => "Expected attempts after the delivery is released",
        TimeOrigin::Overdue => "Expected attempts once the delivery is sent",
        TimeOrigin::Next => "Expected attempts if this one fails",
    };
    DeliveryChart {
        title: title.to_owned(),
        description: description(past, expected.len()),
        past: attempts.collect(),
        coming: windows.collect(),
        // A finished delivery has no deadline any more.
        gives_up_ms: (origin == TimeOrigin::Due && !delivery.status.is_terminal())
            .then(|| since(&delivery.give_up_at)),
        begins: origin,
    }
}

/// Returns whether the delivery's deadline cuts the attempt's time window short.
fn is_cut_by_deadline(upcoming: &ExpectedAttempt, delivery: &Delivery) -> bool {
    upcoming.latest_at == delivery.give_up_at
}

/// Returns the start of the time axis for the next attempts.
fn time_origin(delivery: &Delivery, now: Timestamp) -> TimeOrigin {
    match delivery.status {
        Status::Pending | Status::Retrying if status_text::is_due(delivery, now) => {
            TimeOrigin::Overdue
        }
        Status::Pending
        | Status::Retrying
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled => TimeOrigin::Due,
        Status::Held => TimeOrigin::Released,
        Status::InProgress => TimeOrigin::Next,
    }
}

fn description(past: &[Attempt], expected: usize) -> String {
    let mut parts = Vec::new();
    let omitted = past.len().saturating_sub(MAX_DESCRIBED);
    if omitted > 0 {
        parts.push(format!("{} before", status_text::attempts(omitted as u32)));
    }
    for attempt in &past[omitted..] {
        parts.push(format!("attempt {}: {}", attempt.number, outcome(attempt)));
    }
    parts.push(match expected {
        0 => "no more attempts".to_owned(),
        1 => "up to 1 more attempt".to_owned(),
        count => format!("up to {count} more attempts"),
    });
    format!("{}. The tables below have the same data.", parts.join("; "))
}

/// The outcome of an attempt in a few words.
fn outcome(attempt: &Attempt) -> String {
    match (attempt.status_code, attempt.error_kind) {
        (Some(status), None) => format!("delivered, {status}"),
        (None, None) => "delivered".to_owned(),
        (Some(status), Some(_)) => format!("{status}"),
        (None, Some(kind)) => status_text::failure_kind(kind).to_owned(),
    }
}

fn ms(at: &str) -> u64 {
    at.parse::<Timestamp>().map_or(0, |at| at.0)
}

fn removed_text(removed: u32) -> String {
    match removed {
        1 => "The first attempt was removed after its retention period.".to_owned(),
        more => format!(
            "The first {} attempts were removed after their retention period.",
            count(u64::from(more))
        ),
    }
}

/// Renders the past attempts.
pub(super) fn past_table(delivery: &Delivery, content_type: &str) -> Markup {
    if delivery.attempts.is_empty() {
        let text = match delivery.status.is_terminal() {
            true => "No attempts were made.",
            false => "No attempts yet.",
        };
        return html! { p.empty { (text) } };
    }
    let left_out = delivery.attempts.len().saturating_sub(MAX_SHOWN);
    let removed = delivery.attempts[0].number.saturating_sub(1);
    html! {
        @if removed > 0 {
            p.hint { (removed_text(removed)) }
        }
        @if left_out > 0 {
            p.hint {
                "Showing the last " (count(MAX_SHOWN as u64)) " attempts. The API also returns the "
                (count(left_out as u64)) " earlier ones."
            }
        }
        table.stack.attempts {
            caption { "Attempts made" }
            thead {
                tr {
                    th.number scope="col" { "No." }
                    th scope="col" { "Started" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Status" }
                    th.number scope="col" { "Duration" }
                    th scope="col" { "Trigger" }
                    th scope="col" { "Result" }
                }
            }
            tbody {
                @for attempt in &delivery.attempts[left_out..] {
                    (row(attempt, delivery))
                    tr.more { td colspan="7" { (request_and_response(attempt, delivery, content_type)) } }
                }
            }
        }
    }
}

fn row(attempt: &Attempt, delivery: &Delivery) -> Markup {
    html! {
        tr {
            th.number scope="row" { span.only-narrow { "Attempt " } (attempt.number) }
            td data-label="Started" { (time_with_ms(&attempt.started_at)) }
            td data-label="Outcome" {
                @match attempt.error_kind {
                    None => (badge(BadgeKind::Good, "delivered")),
                    Some(kind) => (badge(BadgeKind::Bad, status_text::failure_kind(kind))),
                }
                @if let Some(detail) = &attempt.detail { p.soft.error { (detail) } }
            }
            td data-label="Status" {
                @match attempt.status_code { Some(code) => (code), None => "none" }
            }
            td.number data-label="Duration" { (latency(attempt.latency_ms)) }
            td.terms data-label="Trigger" { (status_text::trigger_text(attempt.trigger)) }
            td.terms data-label="Result" { (consequence(attempt, delivery)) }
        }
    }
}

/// The duration of an attempt.
fn latency(ms: u64) -> String {
    match ms {
        0 => "<1 ms".to_owned(),
        ms => rounded_duration(ms),
    }
}

/// Renders the consequence of an attempt.
fn consequence(attempt: &Attempt, delivery: &Delivery) -> Markup {
    let is_last = delivery
        .attempts
        .last()
        .is_some_and(|last| last.number == attempt.number);
    html! {
        @if attempt.is_success() { "done" }
        @else if let Some(at) = &attempt.next_attempt_at {
            "next attempt at " (time(at))
            @if let Some(wait_ms) = attempt.retry_after_ms {
                " (Retry-After: " (rounded_duration(wait_ms)) ")"
            }
        }
        @else if is_last && delivery.status == Status::Failed { (status_text::dead_reason_text(delivery.reason)) }
        @else { "no retry" }
    }
}

/// Renders the request and the response of an attempt.
fn request_and_response(attempt: &Attempt, delivery: &Delivery, content_type: &str) -> Markup {
    html! {
        details #{ "attempt-" (attempt.number) } {
            summary { "Request and response" span.unseen { " of attempt " (attempt.number) } }
            h3 { "Response" }
            @match &attempt.response_snippet {
                Some(snippet) => pre tabindex="0" aria-label="Beginning of the response body" { (snippet) },
                None => p.soft { "No response body was stored." },
            }
            @match &attempt.response_headers {
                Some(headers) => {
                    h3 { "Response headers" }
                    dl.facts.mono { @for (name, value) in by_name(headers) { dt { (name) } dd { (value) } } }
                }
                None => p.soft { "No response headers were stored." },
            }
            h3 { "Request headers" }
            dl.facts.mono {
                @for (name, value) in sent_headers(attempt, delivery, content_type) { dt { (name) } dd { (value) } }
            }
            p.hint {
                "The endpoint's custom headers and the signature are not shown. The signature is computed "
                "for each attempt and not stored."
            }
        }
    }
}

/// Sorts headers by name.
fn by_name(headers: &Headers) -> BTreeMap<&str, &str> {
    let headers = headers.0.iter();
    headers
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// The headers of an attempt, as far as they can be derived from stored data.
fn sent_headers(
    attempt: &Attempt,
    delivery: &Delivery,
    content_type: &str,
) -> Vec<(&'static str, String)> {
    let seconds = ms(&attempt.started_at) / 1_000;
    let mut headers = common_headers(delivery, content_type, attempt.number);
    headers.push(("webhook-timestamp", seconds.to_string()));
    headers
}

/// The headers that all attempts of a delivery have.
pub(super) fn common_headers(
    delivery: &Delivery,
    content_type: &str,
    number: u32,
) -> Vec<(&'static str, String)> {
    vec![
        ("content-type", content_type.to_owned()),
        (
            "user-agent",
            concat!("posthaste/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        ("webhook-id", delivery.id.clone()),
        ("posthaste-event-id", delivery.event_id.clone()),
        ("posthaste-event-type", delivery.event_type.clone()),
        ("posthaste-event-time", delivery.created_at.clone()),
        ("posthaste-attempt", number.to_string()),
    ]
}

/// Renders the expected attempts.
pub(super) fn expected_table(delivery: &Delivery, now: Timestamp) -> Markup {
    let Some(first) = delivery.timeline.first() else {
        return html! {};
    };
    let origin = time_origin(delivery, now);
    let start = ms(&first.earliest_at);
    let at = |at: &str| match origin {
        TimeOrigin::Due => time(at),
        // If the start is unknown, times are shown as durations after it.
        TimeOrigin::Released | TimeOrigin::Overdue | TimeOrigin::Next => {
            html! { (duration(ms(at).saturating_sub(start))) }
        }
    };
    let caption = match origin {
        TimeOrigin::Due => "Expected attempts, if each one fails",
        TimeOrigin::Released => "Expected attempts after the delivery is released",
        TimeOrigin::Overdue => "Expected attempts once the delivery is sent",
        TimeOrigin::Next => "Expected attempts if this one fails",
    };
    let left_out = delivery.timeline.len().saturating_sub(MAX_SHOWN);
    html! {
        table.stack.coming {
            caption { (caption) }
            thead {
                tr {
                    th.number scope="col" { "No." }
                    th scope="col" { "Earliest" }
                    th scope="col" { "Expected" }
                    th scope="col" { "Latest" }
                }
            }
            tbody {
                @for upcoming in delivery.timeline.iter().take(MAX_SHOWN) {
                    tr {
                        th.number scope="row" { span.only-narrow { "Attempt " } (upcoming.number) }
                        td data-label="Earliest" { (at(&upcoming.earliest_at)) }
                        td data-label="Expected" { (at(&upcoming.expected_at)) }
                        td data-label="Latest" {
                            @if origin != TimeOrigin::Due && is_cut_by_deadline(upcoming, delivery) { "at the deadline" }
                            @else { (at(&upcoming.latest_at)) }
                        }
                    }
                }
            }
        }
        p.hint {
            @if left_out > 0 { "Up to " (count(left_out as u64)) " more attempts are not shown. " }
            @if origin != TimeOrigin::Due { "Times are relative to the first of these attempts. " }
            "No retry is scheduled after " (time(&delivery.give_up_at))
            ". If the delivery is still held back then, it is sent late or fails as expired, depending on its retry policy."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivery;
    use super::*;
    use serde_json::json;

    /// A time before the next attempt is due.
    const NOW: Timestamp = Timestamp(1_794_744_020_000);

    #[test]
    fn chart_counts_from_the_first_attempt() {
        let charts = charts(&delivery(json!({})), NOW);
        let [chart] = charts.as_slice() else {
            panic!("expected one chart");
        };
        assert_eq!(chart.past.len(), 1);
        assert_eq!(
            (chart.past[0].at_ms, chart.past[0].ended.as_str()),
            (0, "503")
        );
        let expected = chart.coming.iter();
        let expected: Vec<u64> = expected.map(|window| window.expected_ms).collect();
        assert_eq!(expected, [60_000, 120_000]);
        assert_eq!(chart.gives_up_ms, Some(3_590_000));
        assert!(
            chart
                .description
                .contains("attempt 3: 503; up to 2 more attempts")
        );
    }

    #[test]
    fn attempts_without_a_known_start_render_the_same_at_any_time() {
        let give_up_at = Timestamp(1_794_744_000_000 + 3_600_000).to_string();
        for (status, next_at, text) in [
            ("held", None, "released"),
            ("in_progress", None, "next"),
            // Overdue.
            ("retrying", Some("2026-11-15T11:59:00.000Z"), "is sent"),
            ("pending", Some("2026-11-15T11:59:00.000Z"), "is sent"),
        ] {
            let at = |shift: u64| {
                let at = |ms: u64| Timestamp(1_794_744_000_000 + shift + ms).to_string();
                let upcoming = |number: u32, ms: u64, latest_at: String| {
                    json!({
                        "number": number, "earliest_at": at(ms), "expected_at": at(ms + 500),
                        "latest_at": latest_at,
                    })
                };
                let timeline = json!([
                    upcoming(4, 0, at(1_000)),
                    upcoming(5, 60_000, at(61_000)),
                    upcoming(6, 3_580_000, give_up_at.clone()),
                ]);
                let change = json!({
                    "status": status, "next_attempt_at": next_at, "timeline": timeline,
                    "give_up_at": give_up_at,
                });
                (delivery(change), Timestamp(1_794_744_000_000 + shift))
            };
            let ((now, now_at), (later, later_at)) = (at(0), at(7_321));
            let markup = expected_table(&now, now_at).0;
            assert_eq!(markup, expected_table(&later, later_at).0, "{status}");
            assert!(markup.contains("1m 1s"), "{markup}");
            assert!(markup.contains("at the deadline"), "{markup}");
            let draw = |delivery: &Delivery, now| {
                let charts = charts(delivery, now).into_iter();
                charts.map(|chart| chart.draw().write()).collect::<Vec<_>>()
            };
            let drawn = draw(&now, now_at);
            assert_eq!(drawn, draw(&later, later_at), "{status}");
            // One chart for past attempts, one for expected attempts.
            assert_eq!(drawn.len(), 2, "{status}");
            assert!(drawn[1].contains(text), "{}", drawn[1]);
            assert!(drawn[1].contains("up to 3 more attempts"), "{}", drawn[1]);
        }
    }

    #[test]
    fn delivery_without_attempts_has_no_chart() {
        let cancelled = json!({"status": "cancelled", "attempts": [], "timeline": []});
        let cancelled = delivery(cancelled);
        assert!(charts(&cancelled, NOW).is_empty());
        assert!(
            past_table(&cancelled, "application/json")
                .0
                .contains("No attempts were made.")
        );
    }

    #[test]
    fn failed_attempt_shows_what_failed() {
        let mut delivery = delivery(json!({}));
        delivery.attempts[0].detail = Some("TLS failed: the certificate has <expired>".to_owned());
        let markup = past_table(&delivery, "application/json").0;
        let shown = "TLS failed: the certificate has &lt;expired&gt;";
        assert!(markup.contains(shown), "{markup}");
    }

    #[test]
    fn only_the_newest_attempts_are_shown() {
        let mut delivery = delivery(json!({}));
        let attempt = delivery.attempts[0].clone();
        delivery.attempts = (1..=1_000)
            .map(|number| Attempt {
                number,
                ..attempt.clone()
            })
            .collect();
        let next = delivery.timeline[0].clone();
        delivery.timeline = vec![next; 1_000];
        let markup = past_table(&delivery, "application/json").0;
        assert_eq!(markup.matches("<details").count(), MAX_SHOWN);
        assert!(markup.contains("the 900 earlier ones"), "{markup}");
        assert!(markup.contains("id=\"attempt-1000\""), "{markup}");
        let markup = expected_table(&delivery, NOW).0;
        assert_eq!(markup.matches("<tr>").count(), MAX_SHOWN + 1);
        assert!(
            markup.contains("Up to 900 more attempts are not shown."),
            "{markup}"
        );
        let described = charts(&delivery, NOW)[0].description.clone();
        assert!(
            described.starts_with("988 attempts before; attempt 989: 503"),
            "{described}"
        );
    }

    #[test]
    fn request_and_response_are_shown_as_escaped_text() {
        let mut delivery = delivery(json!({}));
        let attempt = &mut delivery.attempts[0];
        attempt.response_snippet = Some("<script>alert(1)</script>".to_owned());
        attempt.response_headers = Some(Headers(vec![("server".to_owned(), "<b>".to_owned())]));
        let markup = past_table(&delivery, "application/json").0;
        assert!(markup.contains("&lt;script&gt;alert(1)"), "{markup}");
        assert!(
            markup.contains("<dt>server</dt><dd>&lt;b&gt;</dd>"),
            "{markup}"
        );
        assert!(
            markup.contains("<dt>webhook-timestamp</dt><dd>1794744010</dd>"),
            "{markup}"
        );
        assert!(
            markup.contains("<dt>posthaste-attempt</dt><dd>3</dd>"),
            "{markup}"
        );
        assert!(markup.contains("(Retry-After: 2 s)"), "{markup}");
        assert!(!markup.contains("<script>"), "{markup}");
    }
}
