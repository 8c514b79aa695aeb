//! The text about a delivery: its status, its next step, and the reasons for both.
//!
//! The text does not change by the second: times are absolute. Only when a due time has passed without an attempt,
//! the text says so.

use maud::{Markup, html};
use posthaste_api::resources::{DeliverySummary, EndpointStatus};
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status, Trigger};
use posthaste_core::time::{Span, Timestamp};

use crate::components::{time, to_the_second};
use crate::pages::endpoint_lookup::EndpointSummary;

/// Usual time from due to sent if no limit holds the delivery back.
const USUAL_DELAY: Span = Span::from_secs(2);

/// Returns whether the delivery should have been attempted by now. It then waits for other deliveries or for limits
/// of its endpoint.
pub(super) fn is_overdue(delivery: &DeliverySummary, now: Timestamp) -> bool {
    let due = delivery.next_attempt_at.as_deref();
    let due = due.and_then(|at| at.parse::<Timestamp>().ok());
    due.is_some_and(|due| now > due.after(USUAL_DELAY))
}

/// Returns the next step, for a row of a list.
pub(in crate::pages) fn next_step(
    delivery: &DeliverySummary,
    endpoint: &EndpointSummary,
    now: Timestamp,
) -> Markup {
    match delivery.status {
        Status::Pending | Status::Retrying if is_overdue(delivery, now) => html! {
            "waits for its turn, due since " (time_or_unknown(&delivery.next_attempt_at))
        },
        Status::Pending => {
            html! { "first attempt at " (time_or_unknown(&delivery.next_attempt_at)) }
        }
        Status::InProgress => html! { "attempt " (delivery.attempt_count + 1) " is under way" },
        Status::Retrying => {
            html! { "tries again at " (time_or_unknown(&delivery.next_attempt_at)) }
        }
        Status::Held => html! { "held: " (held_reason(endpoint)) },
        Status::Succeeded => html! { "delivered at " (time_or_unknown(&delivery.finished_at)) },
        Status::Failed => html! { "given up: " (dead_reason_text(delivery.reason)) },
        Status::Cancelled => html! { "called off at " (time_or_unknown(&delivery.finished_at)) },
    }
}

/// Returns the past and the next step in one or two sentences. `probe_at` is the time of the endpoint's next probe,
/// if its breaker is tripped.
pub(super) fn summary(
    delivery: &DeliverySummary,
    endpoint: &EndpointSummary,
    probe_at: Option<&str>,
    now: Timestamp,
) -> Markup {
    let attempts = attempts(delivery.attempt_count);
    let last_error = delivery.last_error.as_ref();
    let last_error = last_error.map(|error| without_full_stop(&error.detail));
    let remaining = delivery
        .max_attempts
        .saturating_sub(delivery.attempt_count + 1);
    let is_overdue = is_overdue(delivery, now);
    match delivery.status {
        Status::Pending if is_overdue => html! {
            "Its first attempt was due at " (time_or_unknown(&delivery.next_attempt_at)) ". " (OVERDUE_TEXT)
        },
        Status::Retrying if is_overdue => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(error) = last_error { ", last with: " (error) }
            ". The next attempt was due at " (time_or_unknown(&delivery.next_attempt_at)) ". " (OVERDUE_TEXT)
        },
        Status::Pending => html! {
            "Waits for its first attempt, which is due at " (time_or_unknown(&delivery.next_attempt_at)) "."
        },
        Status::InProgress => html! {
            "Attempt " (delivery.attempt_count + 1) " is under way."
            @if let Some(error) = last_error { " The one before failed: " (error) "." }
        },
        Status::Retrying => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(error) = last_error { ", last with: " (error) }
            ". It tries again at " (time_or_unknown(&delivery.next_attempt_at))
            @if remaining > 0 { ", and up to " (times(remaining)) " more before " (time(&delivery.give_up_at)) }
            @else { ", for the last time" }
            "."
        },
        Status::Held => html! {
            "Held after " (attempts) ": " (held_reason(endpoint)) ". " (held_until(endpoint))
            @if let Some(at) = probe_at { " The next probe is due at " (to_the_second(at)) "." }
        },
        Status::Succeeded => html! {
            "Delivered at " (time_or_unknown(&delivery.finished_at)) ", by attempt " (delivery.attempt_count) "."
        },
        Status::Failed => html! {
            "Given up at " (time_or_unknown(&delivery.finished_at)) " after " (attempts) ": "
            (dead_reason_text(delivery.reason)) "."
            @if let Some(error) = last_error { " The last failure: " (error) "." }
        },
        Status::Cancelled => html! {
            "Called off at " (time_or_unknown(&delivery.finished_at)) " after " (attempts) "."
        },
    }
}

/// Text for an overdue delivery.
const OVERDUE_TEXT: &str =
    "It waits for its turn: others come first, or the endpoint's limits hold.";

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
        EndpointStatus::Paused => "It goes on when somebody resumes the endpoint.",
        EndpointStatus::Enabled => "It goes on when a probe finds the receiver well again.",
        EndpointStatus::Disabled | EndpointStatus::Deleted => "It is about to be given up.",
    }
}

/// Returns the reason why a delivery was dead-lettered.
pub(in crate::pages) fn dead_reason_text(reason: Option<DeadReason>) -> &'static str {
    match reason {
        Some(DeadReason::Permanent) => "the receiver refused it for good",
        Some(DeadReason::Exhausted) => "no attempt left",
        Some(DeadReason::Expired) => "no time left for another attempt",
        Some(DeadReason::EndpointDisabled) => "the endpoint was disabled",
        Some(DeadReason::EndpointDeleted) => "the endpoint was deleted",
        Some(DeadReason::UnsafeDestination) => "the destination may not be called",
        None => "it failed",
    }
}

/// Returns the trigger of an attempt, in words.
pub(super) fn trigger_text(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Automatic => "by itself",
        Trigger::Manual => "by hand",
        Trigger::Probe => "as a probe",
    }
}

/// Returns a failure kind in words.
pub(in crate::pages) fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Http => "refused by the receiver",
        FailureKind::Timeout => "no answer in time",
        FailureKind::Dns => "name not found",
        FailureKind::Tls => "no secure connection",
        FailureKind::Connection => "connection failed",
        FailureKind::Validation => "destination not allowed",
        FailureKind::WebhookDisabled => "endpoint disabled or deleted",
        FailureKind::Unknown => "something unforeseen",
    }
}

/// Formats a number of attempts: `1 attempt`, `3 attempts`.
pub(in crate::pages) fn attempts(count: u32) -> String {
    match count {
        0 => "no attempt".to_owned(),
        1 => "1 attempt".to_owned(),
        count => format!("{count} attempts"),
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
        None => html! { "a time unknown" },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivery;
    use super::*;
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
            text(&summary(
                &delivery,
                &endpoint,
                Some("2026-11-15T12:05:00.000Z"),
                now,
            )),
        )
    }

    #[test]
    fn retrying_delivery_shows_next_attempt_and_remaining_attempts() {
        let (next_step, summary) = texts(json!({}), EndpointStatus::Enabled);
        assert_eq!(next_step, "tries again at 2026-11-15 12:01:10");
        assert_eq!(
            summary,
            "Failed 3 times, last with: answered 503. It tries again at 2026-11-15 12:01:10, \
             and up to 5 times more before 2026-11-15 13:00:00."
        );
        let (_, summary) = texts(json!({"max_attempts": 4}), EndpointStatus::Enabled);
        assert!(
            summary.ends_with("2026-11-15 12:01:10, for the last time."),
            "{summary}"
        );
    }

    #[test]
    fn overdue_delivery_shows_that_it_waits() {
        let late = Timestamp(1_794_744_090_000);
        let (next_step, summary) = texts_at(late, json!({}), EndpointStatus::Enabled);
        assert_eq!(
            next_step,
            "waits for its turn, due since 2026-11-15 12:01:10"
        );
        assert_eq!(
            summary,
            "Failed 3 times, last with: answered 503. The next attempt was due at \
             2026-11-15 12:01:10. It waits for its turn: others come first, or the endpoint's \
             limits hold."
        );
        // Within `USUAL_DELAY` of its due time a delivery is not called late.
        let due = Timestamp(1_794_744_071_000);
        let (next_step, _) = texts_at(due, json!({}), EndpointStatus::Enabled);
        assert_eq!(next_step, "tries again at 2026-11-15 12:01:10");
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
        assert!(summary.contains("about to be given up"), "{summary}");
        let (paused, summary) = texts(held, EndpointStatus::Paused);
        assert_eq!(paused, "held: the endpoint is paused");
        assert!(summary.contains("resumes"), "{summary}");
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
        assert_eq!(
            ended("cancelled", "").0,
            "called off at 2026-11-15 12:30:00"
        );
        assert_eq!(ended("failed", "exhausted").0, "given up: no attempt left");
        let (next_step, summary) = ended("failed", "endpoint_disabled");
        assert_eq!(next_step, "given up: the endpoint was disabled");
        assert_eq!(
            summary,
            "Given up at 2026-11-15 12:30:00 after 3 attempts: the endpoint was disabled. \
             The last failure: answered 503."
        );
    }
}
