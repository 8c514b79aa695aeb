//! The status of a delivery and its next step, in words.
//!
//! The text does not change by the second: times are absolute. Only when a due time has passed without an attempt,
//! the text says so.

use maud::{Markup, html};
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status, Trigger};
use posthaste_core::time::{Span, Timestamp};

use super::api_types::Delivery;
use crate::pages::addresses::{EndpointStatus, EndpointSummary};
use crate::parts::{time, to_the_second};

/// Usual time from due to sent if no limit holds the delivery back.
const SOON: Span = Span::from_secs(2);

/// Returns whether the delivery should have been attempted by now. It then waits for other deliveries or for limits
/// of its endpoint.
pub(super) fn is_overdue(delivery: &Delivery, now: Timestamp) -> bool {
    let due = delivery.next_attempt_at.as_deref();
    let due = due.and_then(|at| at.parse::<Timestamp>().ok());
    due.is_some_and(|due| now > due.after(SOON))
}

/// Returns the next step, for a row of a list.
pub(in crate::pages) fn next(
    delivery: &Delivery,
    address: &EndpointSummary,
    now: Timestamp,
) -> Markup {
    match delivery.status {
        Status::Pending | Status::Retrying if is_overdue(delivery, now) => html! {
            "waits for its turn, due since " (maybe(&delivery.next_attempt_at))
        },
        Status::Pending => html! { "first attempt at " (maybe(&delivery.next_attempt_at)) },
        Status::InProgress => html! { "attempt " (delivery.attempt_count + 1) " is under way" },
        Status::Retrying => html! { "tries again at " (maybe(&delivery.next_attempt_at)) },
        Status::Held => html! { "held: " (why_held(address)) },
        Status::Succeeded => html! { "delivered at " (maybe(&delivery.finished_at)) },
        Status::Failed => html! { "given up: " (dead_reason_text(delivery.reason)) },
        Status::Cancelled => html! { "called off at " (maybe(&delivery.finished_at)) },
    }
}

/// Returns the past and the next step in one or two sentences. `probe_at` is the time of the endpoint's next probe,
/// if its breaker is tripped.
pub(super) fn story(
    delivery: &Delivery,
    address: &EndpointSummary,
    probe_at: Option<&str>,
    now: Timestamp,
) -> Markup {
    let tried = attempts(delivery.attempt_count);
    let last = delivery.last_error.as_ref();
    let last = last.map(|error| sentence(&error.detail));
    let left = delivery
        .max_attempts
        .saturating_sub(delivery.attempt_count + 1);
    let is_overdue = is_overdue(delivery, now);
    match delivery.status {
        Status::Pending if is_overdue => html! {
            "Its first attempt was due at " (maybe(&delivery.next_attempt_at)) ". " (WAITS_ITS_TURN)
        },
        Status::Retrying if is_overdue => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(last) = last { ", last with: " (last) }
            ". The next attempt was due at " (maybe(&delivery.next_attempt_at)) ". " (WAITS_ITS_TURN)
        },
        Status::Pending => html! {
            "Waits for its first attempt, which is due at " (maybe(&delivery.next_attempt_at)) "."
        },
        Status::InProgress => html! {
            "Attempt " (delivery.attempt_count + 1) " is under way."
            @if let Some(last) = last { " The one before failed: " (last) "." }
        },
        Status::Retrying => html! {
            "Failed " (times(delivery.attempt_count)) @if let Some(last) = last { ", last with: " (last) }
            ". It tries again at " (maybe(&delivery.next_attempt_at))
            @if left > 0 { ", and up to " (times(left)) " more before " (time(&delivery.give_up_at)) }
            @else { ", for the last time" }
            "."
        },
        Status::Held => html! {
            "Held after " (tried) ": " (why_held(address)) ". " (until_let_go(address))
            @if let Some(at) = probe_at { " The next probe is due at " (to_the_second(at)) "." }
        },
        Status::Succeeded => html! {
            "Delivered at " (maybe(&delivery.finished_at)) ", by attempt " (delivery.attempt_count) "."
        },
        Status::Failed => html! {
            "Given up at " (maybe(&delivery.finished_at)) " after " (tried) ": "
            (dead_reason_text(delivery.reason)) "."
            @if let Some(last) = last { " The last failure: " (last) "." }
        },
        Status::Cancelled => html! {
            "Called off at " (maybe(&delivery.finished_at)) " after " (tried) "."
        },
    }
}

/// Text for an overdue delivery.
const WAITS_ITS_TURN: &str =
    "It waits for its turn: others come first, or the endpoint's limits hold.";

/// Returns the reason why a delivery is held.
fn why_held(address: &EndpointSummary) -> &'static str {
    match address.standing {
        EndpointStatus::Paused => "the endpoint is paused",
        EndpointStatus::Enabled => "the endpoint's breaker is tripped",
        EndpointStatus::Disabled => "the endpoint is disabled",
        EndpointStatus::Unknown => "the endpoint is deleted",
    }
}

fn until_let_go(address: &EndpointSummary) -> &'static str {
    match address.standing {
        EndpointStatus::Paused => "It goes on when somebody resumes the endpoint.",
        EndpointStatus::Enabled => "It goes on when a probe finds the receiver well again.",
        EndpointStatus::Disabled | EndpointStatus::Unknown => "It is about to be given up.",
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
pub(in crate::pages) fn kind(kind: FailureKind) -> &'static str {
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
fn sentence(text: &str) -> &str {
    text.trim_end().trim_end_matches('.')
}

fn maybe(at: &Option<String>) -> Markup {
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

    fn told(change: serde_json::Value, standing: EndpointStatus) -> (String, String) {
        told_at(NOW, change, standing)
    }

    fn told_at(
        now: Timestamp,
        change: serde_json::Value,
        standing: EndpointStatus,
    ) -> (String, String) {
        let delivery = delivery(change);
        let address = EndpointSummary {
            url: Some("https://example.com/hooks".to_owned()),
            standing,
            headers: BTreeMap::new(),
        };
        (
            text(&next(&delivery, &address, now)),
            text(&story(
                &delivery,
                &address,
                Some("2026-11-15T12:05:00.000Z"),
                now,
            )),
        )
    }

    #[test]
    fn one_that_is_tried_again_says_when_and_how_often() {
        let (line, story) = told(json!({}), EndpointStatus::Enabled);
        assert_eq!(line, "tries again at 2026-11-15 12:01:10");
        assert_eq!(
            story,
            "Failed 3 times, last with: answered 503. It tries again at 2026-11-15 12:01:10, \
             and up to 5 times more before 2026-11-15 13:00:00."
        );
        let (_, last) = told(json!({"max_attempts": 4}), EndpointStatus::Enabled);
        assert!(
            last.ends_with("2026-11-15 12:01:10, for the last time."),
            "{last}"
        );
    }

    #[test]
    fn one_that_is_overdue_does_not_say_that_it_comes() {
        let late = Timestamp(1_794_744_090_000);
        let (line, story) = told_at(late, json!({}), EndpointStatus::Enabled);
        assert_eq!(line, "waits for its turn, due since 2026-11-15 12:01:10");
        assert_eq!(
            story,
            "Failed 3 times, last with: answered 503. The next attempt was due at \
             2026-11-15 12:01:10. It waits for its turn: others come first, or the endpoint's \
             limits hold."
        );
        // Within `SOON` of its due time a delivery is not called late.
        let due = Timestamp(1_794_744_071_000);
        let (line, _) = told_at(due, json!({}), EndpointStatus::Enabled);
        assert_eq!(line, "tries again at 2026-11-15 12:01:10");
    }

    #[test]
    fn one_that_is_held_says_by_what() {
        let held = json!({"status": "held", "next_attempt_at": null});
        let (tripped, story) = told(held.clone(), EndpointStatus::Enabled);
        assert_eq!(tripped, "held: the endpoint's breaker is tripped");
        assert!(story.contains("a probe"), "{story}");
        assert!(story.ends_with("due at 2026-11-15 12:05:00."), "{story}");
        let (disabled, story) = told(held.clone(), EndpointStatus::Disabled);
        assert_eq!(disabled, "held: the endpoint is disabled");
        assert!(story.contains("about to be given up"), "{story}");
        let (paused, story) = told(held, EndpointStatus::Paused);
        assert_eq!(paused, "held: the endpoint is paused");
        assert!(story.contains("resumes"), "{story}");
    }

    #[test]
    fn one_that_has_ended_says_how() {
        let ended = |status: &str, reason: &str| {
            let reason = (!reason.is_empty()).then_some(reason);
            let at = "2026-11-15T12:30:00.000Z";
            let change = json!({
                "status": status, "reason": reason, "finished_at": at, "next_attempt_at": null,
            });
            told(change, EndpointStatus::Enabled)
        };
        assert_eq!(ended("succeeded", "").0, "delivered at 2026-11-15 12:30:00");
        assert_eq!(
            ended("cancelled", "").0,
            "called off at 2026-11-15 12:30:00"
        );
        assert_eq!(ended("failed", "exhausted").0, "given up: no attempt left");
        let (line, story) = ended("failed", "endpoint_disabled");
        assert_eq!(line, "given up: the endpoint was disabled");
        assert_eq!(
            story,
            "Given up at 2026-11-15 12:30:00 after 3 attempts: the endpoint was disabled. \
             The last failure: answered 503."
        );
    }
}
