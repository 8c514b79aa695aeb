//! The text about a delivery: its status, its next step, and the reasons for both.
//!
//! The text does not change by the second: times are absolute. A delivery that is due but is not sent yet has no time;
//! the text says what holds it back.

use maud::{Markup, html};
use posthaste_api::resources::{DeliverySummary, EndpointHealth, EndpointStatus, held_back_text};
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status, Trigger};
use posthaste_core::lane::HeldBackBy;
use posthaste_core::time::{Span, Timestamp};

use crate::components::{time, to_the_second};
use crate::pages::endpoint_lookup::EndpointSummary;

/// A delivery whose next attempt is not later than this counts as due. The API shows no attempt in the past.
const SOON: Span = Span::from_secs(1);

/// Returns whether the delivery is due. It then waits for other deliveries or for limits of its endpoint.
pub(super) fn is_due(delivery: &DeliverySummary, now: Timestamp) -> bool {
    let due = delivery.next_attempt_at.as_deref();
    let due = due.and_then(|at| at.parse::<Timestamp>().ok());
    delivery.held_back_by.is_some() || due.is_some_and(|due| due <= now.after(SOON))
}

/// Returns the next step, for a row of a list.
pub(in crate::pages) fn next_step(
    delivery: &DeliverySummary,
    endpoint: &EndpointSummary,
    now: Timestamp,
) -> Markup {
    match delivery.status {
        Status::Pending | Status::Retrying if is_due(delivery, now) => {
            match delivery.held_back_by {
                Some(by) => html! { "held back: " (held_back_text(by, None)) },
                None => html! { "due, queued behind other deliveries" },
            }
        }
        Status::Pending => {
            html! { "first attempt at " (time_or_unknown(&delivery.next_attempt_at)) }
        }
        Status::InProgress => html! { "attempt " (delivery.attempt_count + 1) " is in progress" },
        Status::Retrying => {
            html! { "next attempt at " (time_or_unknown(&delivery.next_attempt_at)) }
        }
        Status::Held if delivery.is_held_after_faults() => {
            html! { "held: repeated internal errors" }
        }
        Status::Held => html! { "held: " (held_reason(endpoint)) },
        Status::Succeeded => html! { "delivered at " (time_or_unknown(&delivery.finished_at)) },
        Status::Failed => html! { "failed: " (dead_reason_text(delivery.reason)) },
        Status::Cancelled => html! { "cancelled at " (time_or_unknown(&delivery.finished_at)) },
    }
}

/// Returns the past and the next step in one or two sentences. `health` is that of the endpoint, if something holds the
/// delivery back.
pub(super) fn summary(
    delivery: &DeliverySummary,
    endpoint: &EndpointSummary,
    health: Option<&EndpointHealth>,
    now: Timestamp,
) -> Markup {
    let attempts = after_attempts(delivery.attempt_count);
    let last_error = delivery.last_error.as_ref();
    let last_error = last_error.map(|error| without_full_stop(&error.detail));
    let remaining = delivery
        .max_attempts
        .saturating_sub(delivery.attempt_count + 1);
    let is_due = is_due(delivery, now);
    let probe_at = health.and_then(|health| health.breaker.until.as_deref());
    match delivery.status {
        Status::Pending if is_due => html! {
            "The first attempt is due. " (wait_reason(delivery, health))
        },
        Status::Retrying if is_due => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(error) = last_error { ", last error: " (error) }
            ". The next attempt is due. " (wait_reason(delivery, health))
        },
        Status::Pending => html! {
            "First attempt at " (time_or_unknown(&delivery.next_attempt_at)) "."
        },
        Status::InProgress => html! {
            "Attempt " (delivery.attempt_count + 1) " is in progress."
            @if let Some(error) = last_error { " The previous attempt failed: " (error) "." }
        },
        Status::Retrying => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(error) = last_error { ", last error: " (error) }
            ". Next attempt at " (time_or_unknown(&delivery.next_attempt_at))
            @if remaining > 0 { ", then up to " (more_attempts(remaining)) " until " (time(&delivery.give_up_at)) }
            @else { " (the last attempt)" }
            "."
        },
        Status::Held if delivery.is_held_after_faults() => html! {
            "Held " (attempts) ": repeated internal errors prevented sending. The log of the server has the cause. "
            "An operator must retry or cancel the delivery."
        },
        Status::Held => html! {
            "Held " (attempts) ": " (held_reason(endpoint)) ". " (held_until(endpoint))
            @if let Some(at) = probe_at { " The next probe is due at " (to_the_second(at)) "." }
        },
        Status::Succeeded => html! {
            "Delivered at " (time_or_unknown(&delivery.finished_at)) " on attempt " (delivery.attempt_count) "."
        },
        Status::Failed => html! {
            "Failed at " (time_or_unknown(&delivery.finished_at)) " " (attempts) ": "
            (dead_reason_text(delivery.reason)) "."
            @if let Some(error) = last_error { " Last error: " (error) "." }
        },
        Status::Cancelled => html! {
            "Cancelled at " (time_or_unknown(&delivery.finished_at)) " " (attempts) "."
        },
    }
}

/// Returns the reason why a due delivery is not sent yet, and its end if that does not change by the second.
fn wait_reason(delivery: &DeliverySummary, health: Option<&EndpointHealth>) -> Markup {
    let Some(by) = delivery.held_back_by else {
        return html! { "It is queued behind other deliveries." };
    };
    let limits = health.map(|health| &health.limits_in_force);
    let until = match by {
        HeldBackBy::RetryAfter | HeldBackBy::Breaker => delivery.held_back_until.as_deref(),
        HeldBackBy::RateLimit
        | HeldBackBy::InFlight
        | HeldBackBy::Backpressure
        | HeldBackBy::Paused
        | HeldBackBy::Disabled
        | HeldBackBy::TenantInFlight
        | HeldBackBy::ServerInFlight => None,
    };
    html! {
        "Held back: " (held_back_text(by, limits))
        @if let Some(at) = until { ", until " (to_the_second(at)) }
        "."
    }
}

/// Returns the reason why a delivery is held.
fn held_reason(endpoint: &EndpointSummary) -> &'static str {
    match endpoint.status {
        EndpointStatus::Paused => "the endpoint is paused",
        EndpointStatus::Enabled => "the endpoint's breaker is tripped",
        EndpointStatus::Disabled => "the endpoint is disabled",
        EndpointStatus::Deleted => "the endpoint is deleted",
    }
}

fn held_until(endpoint: &EndpointSummary) -> &'static str {
    match endpoint.status {
        EndpointStatus::Paused => "It is sent after the endpoint is resumed.",
        EndpointStatus::Enabled => "It is sent after a probe succeeds.",
        EndpointStatus::Disabled | EndpointStatus::Deleted => "It will fail shortly.",
    }
}

/// Returns the reason why a delivery was dead-lettered.
pub(in crate::pages) fn dead_reason_text(reason: Option<DeadReason>) -> &'static str {
    match reason {
        Some(DeadReason::Permanent) => "permanent failure",
        Some(DeadReason::Exhausted) => "no attempts left",
        Some(DeadReason::Expired) => "deadline reached",
        Some(DeadReason::EndpointDisabled) => "the endpoint was disabled",
        Some(DeadReason::EndpointDeleted) => "the endpoint was deleted",
        Some(DeadReason::UnsafeDestination) => "destination not allowed",
        None => "unknown error",
    }
}

/// Returns the trigger of an attempt, in words.
pub(super) fn trigger_text(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Automatic => "automatic",
        Trigger::Manual => "manual",
        Trigger::Probe => "probe",
    }
}

/// Returns a failure kind in words.
pub(in crate::pages) fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Http => "HTTP error",
        FailureKind::Timeout => "timeout",
        FailureKind::Dns => "DNS error",
        FailureKind::Tls => "TLS error",
        FailureKind::Connection => "connection error",
        FailureKind::Validation => "destination not allowed",
        FailureKind::WebhookDisabled => "endpoint disabled or deleted",
        FailureKind::Unknown => "unknown error",
    }
}

/// Formats a number of attempts: `1 attempt`, `3 attempts`.
pub(in crate::pages) fn attempts(count: u32) -> String {
    match count {
        0 => "no attempts".to_owned(),
        1 => "1 attempt".to_owned(),
        count => format!("{count} attempts"),
    }
}

/// Formats the attempts before an end: `after 3 attempts`, `before the first attempt`.
fn after_attempts(count: u32) -> String {
    match count {
        0 => "before the first attempt".to_owned(),
        count => format!("after {}", attempts(count)),
    }
}

fn more_attempts(count: u32) -> String {
    match count {
        1 => "1 more attempt".to_owned(),
        count => format!("{count} more attempts"),
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// Removes the full stop, so that the text can end a sentence.
fn without_full_stop(text: &str) -> &str {
    text.trim_end().trim_end_matches('.')
}

fn time_or_unknown(at: &Option<String>) -> Markup {
    match at {
        Some(at) => time(at),
        None => html! { "unknown time" },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivery;
    use super::*;
    use posthaste_api::resources::HELD_AFTER_FAULTS;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn text(markup: &Markup) -> String {
        let mut text = String::new();
        let mut is_tag = false;
        for character in markup.0.chars() {
            match character {
                '<' => is_tag = true,
                '>' => is_tag = false,
                other if !is_tag => text.push(other),
                _ => {}
            }
        }
        text
    }

    /// The health of an endpoint whose breaker is tripped.
    fn health() -> EndpointHealth {
        let health = json!({
            "breaker": {"state": "tripped", "until": "2026-11-15T12:05:00.000Z", "reason": null},
            "pending": 2, "in_flight": 0, "next_attempt_at": null, "consecutive_failures": 0,
            "success_ratio": 1.0, "latency_ms": {"p50": null, "p99": null},
            "held_back_by": null, "held_back_until": null,
            "limits_in_force": {"in_flight": 10, "per_second": 100.0}, "quiet_until": null,
        });
        serde_json::from_value(health).expect("health")
    }

    /// A time before the next attempt is due.
    const NOW: Timestamp = Timestamp(1_794_744_020_000);

    fn texts(change: serde_json::Value, status: EndpointStatus) -> (String, String) {
        texts_at(NOW, change, status)
    }

    fn texts_at(
        now: Timestamp,
        change: serde_json::Value,
        status: EndpointStatus,
    ) -> (String, String) {
        let delivery = delivery(change);
        let endpoint = EndpointSummary {
            url: Some("https://example.com/hooks".to_owned()),
            status,
            headers: BTreeMap::new(),
        };
        (
            text(&next_step(&delivery, &endpoint, now)),
            text(&summary(&delivery, &endpoint, Some(&health()), now)),
        )
    }

    #[test]
    fn retrying_delivery_shows_next_attempt_and_remaining_attempts() {
        let (next_step, summary) = texts(json!({}), EndpointStatus::Enabled);
        assert_eq!(next_step, "next attempt at 2026-11-15 12:01:10");
        assert_eq!(
            summary,
            "Failed 3 times, last error: answered 503. Next attempt at 2026-11-15 12:01:10, \
             then up to 5 more attempts until 2026-11-15 13:00:00."
        );
        let (_, summary) = texts(json!({"max_attempts": 5}), EndpointStatus::Enabled);
        assert!(
            summary.ends_with("then up to 1 more attempt until 2026-11-15 13:00:00."),
            "{summary}"
        );
        let (_, summary) = texts(json!({"max_attempts": 4}), EndpointStatus::Enabled);
        assert!(
            summary.ends_with("2026-11-15 12:01:10 (the last attempt)."),
            "{summary}"
        );
    }

    #[test]
    fn due_delivery_shows_what_it_waits_for() {
        // The API shows a due delivery with the current time.
        let due = Timestamp(1_794_744_070_000);
        let (next_step, summary) = texts_at(due, json!({}), EndpointStatus::Enabled);
        assert_eq!(next_step, "due, queued behind other deliveries");
        assert_eq!(
            summary,
            "Failed 3 times, last error: answered 503. The next attempt is due. \
             It is queued behind other deliveries."
        );
        let limited = json!({
            "held_back_by": "rate_limit", "held_back_until": "2026-11-15T12:01:10.000Z",
        });
        let (next_step, summary) = texts_at(due, limited, EndpointStatus::Enabled);
        assert_eq!(next_step, "held back: rate limit");
        // The end of a rate limit moves with every delivery, and would change the page every second.
        assert!(
            summary.ends_with("is due. Held back: rate limit (100/s)."),
            "{summary}"
        );
        let quiet = json!({
            "status": "pending", "held_back_by": "retry_after", "held_back_until": "2026-11-15T12:05:00.000Z",
        });
        let (_, summary) = texts_at(due, quiet, EndpointStatus::Enabled);
        assert_eq!(
            summary,
            "The first attempt is due. Held back: wait requested by the receiver (Retry-After), \
             until 2026-11-15 12:05:00."
        );
        let before = Timestamp(1_794_744_068_000);
        let (next_step, _) = texts_at(before, json!({}), EndpointStatus::Enabled);
        assert_eq!(next_step, "next attempt at 2026-11-15 12:01:10");
    }

    #[test]
    fn held_delivery_shows_the_reason() {
        let held = json!({"status": "held", "next_attempt_at": null});
        let (tripped, summary) = texts(held.clone(), EndpointStatus::Enabled);
        assert_eq!(tripped, "held: the endpoint's breaker is tripped");
        assert!(summary.contains("a probe"), "{summary}");
        assert!(
            summary.ends_with("due at 2026-11-15 12:05:00."),
            "{summary}"
        );
        let (disabled, summary) = texts(held.clone(), EndpointStatus::Disabled);
        assert_eq!(disabled, "held: the endpoint is disabled");
        assert!(summary.contains("fail shortly"), "{summary}");
        let (paused, summary) = texts(held, EndpointStatus::Paused);
        assert_eq!(paused, "held: the endpoint is paused");
        assert!(summary.contains("resumed"), "{summary}");
        let first = json!({"status": "held", "next_attempt_at": null, "attempt_count": 0, "last_error": null});
        let (_, summary) = texts(first, EndpointStatus::Paused);
        assert!(
            summary.starts_with("Held before the first attempt: the endpoint is paused."),
            "{summary}"
        );
    }

    #[test]
    fn delivery_held_after_internal_errors_does_not_blame_its_endpoint() {
        let held = json!({
            "status": "held", "next_attempt_at": null,
            "last_error": {"kind": "unknown", "status_code": null, "detail": HELD_AFTER_FAULTS},
        });
        let (next_step, summary) = texts(held, EndpointStatus::Enabled);
        assert_eq!(next_step, "held: repeated internal errors");
        assert!(!summary.contains("breaker"), "{summary}");
        assert!(
            summary.contains("retry or cancel the delivery"),
            "{summary}"
        );
    }

    #[test]
    fn finished_delivery_shows_its_outcome() {
        let ended = |status: &str, reason: &str| {
            let reason = (!reason.is_empty()).then_some(reason);
            let at = "2026-11-15T12:30:00.000Z";
            let change = json!({
                "status": status, "reason": reason, "finished_at": at, "next_attempt_at": null,
            });
            texts(change, EndpointStatus::Enabled)
        };
        assert_eq!(ended("succeeded", "").0, "delivered at 2026-11-15 12:30:00");
        assert_eq!(ended("cancelled", "").0, "cancelled at 2026-11-15 12:30:00");
        assert_eq!(ended("failed", "exhausted").0, "failed: no attempts left");
        let (next_step, summary) = ended("failed", "endpoint_disabled");
        assert_eq!(next_step, "failed: the endpoint was disabled");
        assert_eq!(
            summary,
            "Failed at 2026-11-15 12:30:00 after 3 attempts: the endpoint was disabled. \
             Last error: answered 503."
        );
    }
}
