//! Every attempt of a delivery: those that were made, each to be looked into, and those that may come.

use maud::{Markup, html};
use posthaste_core::delivery::Status;
use posthaste_core::time::Timestamp;

use super::shape::{Attempt, Delivery, Upcoming};
use super::words;
use crate::dashboard::parts::{Mood, badge, duration, time};
use crate::picture::journey::{Coming, Journey, Tried};

/// The attempts as a picture. One that is held or being sent shows only what was: what follows is counted
/// from a moment that nobody knows yet.
pub(super) fn journey(delivery: &Delivery) -> Journey {
    let coming: &[Upcoming] = match is_scheduled(delivery) {
        true => &delivery.timeline,
        false => &[],
    };
    let first = delivery.attempts.first();
    let first = first.map(|attempt| attempt.started_at.as_str());
    let due = first
        .or(coming.first().map(|upcoming| upcoming.earliest_at.as_str()))
        .unwrap_or(&delivery.created_at);
    let start = ms(due);
    let since = |at: &str| ms(at).saturating_sub(start);
    let past = delivery.attempts.iter().map(|attempt| Tried {
        number: attempt.number,
        at_ms: since(&attempt.started_at),
        delivered: attempt.delivered(),
        ended: outcome(attempt),
    });
    let windows = coming.iter().map(|upcoming| Coming {
        number: upcoming.number,
        earliest_ms: since(&upcoming.earliest_at),
        expected_ms: since(&upcoming.expected_at),
        latest_ms: since(&upcoming.latest_at),
    });
    Journey {
        title: "The attempts of this delivery".to_owned(),
        description: description(delivery, coming.len()),
        past: past.collect(),
        coming: windows.collect(),
        gives_up_ms: Some(since(&delivery.give_up_at)),
    }
}

/// Whether it is known when the next attempts come.
fn is_scheduled(delivery: &Delivery) -> bool {
    match delivery.status {
        Status::Pending | Status::Retrying => true,
        Status::Held
        | Status::InProgress
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled => false,
    }
}

fn description(delivery: &Delivery, coming: usize) -> String {
    let mut parts = Vec::new();
    for attempt in &delivery.attempts {
        parts.push(format!("attempt {}: {}", attempt.number, outcome(attempt)));
    }
    parts.push(match coming {
        0 => "none is scheduled".to_owned(),
        1 => "1 may still come".to_owned(),
        count => format!("{count} may still come"),
    });
    format!("{}. The tables below say the same.", parts.join("; "))
}

/// How an attempt ended, in a word or two.
fn outcome(attempt: &Attempt) -> String {
    match (attempt.status_code, attempt.error_kind) {
        (Some(status), None) => format!("delivered, {status}"),
        (None, None) => "delivered".to_owned(),
        (Some(status), Some(_)) => format!("{status}"),
        (None, Some(kind)) => words::kind(kind).to_owned(),
    }
}

fn ms(at: &str) -> u64 {
    at.parse::<Timestamp>().map_or(0, |at| at.0)
}

/// Those that were made.
pub(super) fn past(delivery: &Delivery, content_type: &str) -> Markup {
    if delivery.attempts.is_empty() {
        return html! { p.empty { "None has been made yet." } };
    }
    html! {
        table.stack.attempts {
            caption { "Attempts that were made" }
            thead {
                tr {
                    th.number scope="col" { "No." }
                    th scope="col" { "Began" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Status" }
                    th.number scope="col" { "Took" }
                    th scope="col" { "Tried" }
                    th scope="col" { "Led to" }
                }
            }
            tbody {
                @for attempt in &delivery.attempts {
                    (line(attempt, delivery))
                    tr.more { td colspan="7" { (inside(attempt, delivery, content_type)) } }
                }
            }
        }
    }
}

fn line(attempt: &Attempt, delivery: &Delivery) -> Markup {
    html! {
        tr {
            th.number scope="row" { span.unseen { "Attempt " } (attempt.number) }
            td data-label="Began" { (time(&attempt.started_at)) }
            td data-label="Outcome" {
                @match attempt.error_kind {
                    None => (badge(Mood::Good, "delivered")),
                    Some(kind) => (badge(Mood::Bad, words::kind(kind))),
                }
            }
            td data-label="Status" {
                @match attempt.status_code { Some(code) => (code), None => "none" }
            }
            td.number data-label="Took" { (took(attempt.latency_ms)) }
            td data-label="Tried" { (words::why_tried(attempt.trigger)) }
            td data-label="Led to" { (led_to(attempt, delivery)) }
        }
    }
}

/// How long an attempt took.
fn took(ms: u64) -> String {
    match ms {
        0 => "under 1ms".to_owned(),
        ms => duration(ms),
    }
}

/// What came of an attempt.
fn led_to(attempt: &Attempt, delivery: &Delivery) -> Markup {
    let is_last = delivery
        .attempts
        .last()
        .is_some_and(|last| last.number == attempt.number);
    html! {
        @if attempt.delivered() { "done" }
        @else if let Some(at) = &attempt.next_attempt_at {
            "another at " (time(at))
            @if let Some(asked) = attempt.retry_after_ms {
                ", since the receiver asked to wait " (duration(asked))
            }
        }
        @else if is_last && delivery.status == Status::Failed { (words::why_given_up(delivery.reason)) }
        @else { "given up" }
    }
}

/// What was sent and what came back.
fn inside(attempt: &Attempt, delivery: &Delivery, content_type: &str) -> Markup {
    html! {
        details #{ "attempt-" (attempt.number) } {
            summary { "What was sent and what came back" span.unseen { " at attempt " (attempt.number) } }
            h3 { "Answer" }
            @match &attempt.response_snippet {
                Some(snippet) => pre tabindex="0" aria-label="How the answer began" { (snippet) },
                None => p.soft { "No content is kept of it." },
            }
            @match &attempt.response_headers {
                Some(headers) if !headers.is_empty() => {
                    h3 { "Headers of the answer" }
                    dl.facts.mono { @for (name, value) in headers { dt { (name) } dd { (value) } } }
                }
                Some(_) | None => p.soft { "No headers are kept of it." },
            }
            h3 { "Headers that were sent" }
            dl.facts.mono {
                @for (name, value) in sent(attempt, delivery, content_type) { dt { (name) } dd { (value) } }
            }
            p.hint {
                "Beside these went the endpoint's own headers and the signature, which is not stored: it is made "
                "anew for each attempt."
            }
        }
    }
}

/// The headers of an attempt, as far as they follow from what is known.
fn sent(attempt: &Attempt, delivery: &Delivery, content_type: &str) -> Vec<(&'static str, String)> {
    let seconds = ms(&attempt.started_at) / 1_000;
    let mut headers = headers(delivery, content_type, attempt.number);
    headers.push(("webhook-timestamp", seconds.to_string()));
    headers
}

/// The headers of any attempt of a delivery.
pub(super) fn headers(
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

/// Those that may come.
pub(super) fn coming(delivery: &Delivery) -> Markup {
    let Some(first) = delivery.timeline.first() else {
        return html! {};
    };
    if !is_scheduled(delivery) {
        return coming_once_let_go(delivery, first);
    }
    html! {
        table.stack.coming {
            caption { "Attempts still to come, if each before fails" }
            thead {
                tr {
                    th.number scope="col" { "No." }
                    th scope="col" { "Earliest" }
                    th scope="col" { "Expected" }
                    th scope="col" { "Latest" }
                }
            }
            tbody {
                @for upcoming in &delivery.timeline {
                    tr {
                        th.number scope="row" { span.unseen { "Attempt " } (upcoming.number) }
                        td data-label="Earliest" { (time(&upcoming.earliest_at)) }
                        td data-label="Expected" { (time(&upcoming.expected_at)) }
                        td data-label="Latest" { (time(&upcoming.latest_at)) }
                    }
                }
            }
        }
        p.hint { "Given up at " (time(&delivery.give_up_at)) " at the latest." }
    }
}

/// What follows a moment that is not known yet: told by how long after it.
fn coming_once_let_go(delivery: &Delivery, first: &Upcoming) -> Markup {
    let start = ms(&first.earliest_at);
    let after = |at: &str| duration(ms(at).saturating_sub(start));
    let caption = match delivery.status {
        Status::InProgress => "Attempts still to come, if this one fails",
        Status::Held
        | Status::Pending
        | Status::Retrying
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled => "Attempts still to come, once it is let go",
    };
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
                @for upcoming in &delivery.timeline {
                    tr {
                        th.number scope="row" { span.unseen { "Attempt " } (upcoming.number) }
                        td data-label="Earliest" { (after(&upcoming.earliest_at)) }
                        td data-label="Expected" { (after(&upcoming.expected_at)) }
                        td data-label="Latest" { (after(&upcoming.latest_at)) }
                    }
                }
            }
        }
        p.hint {
            "Times are counted from the first of these. Given up at " (time(&delivery.give_up_at)) " at the latest."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivery;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_picture_counts_from_the_first_attempt() {
        let journey = journey(&delivery(json!({})));
        assert_eq!(journey.past.len(), 1);
        assert_eq!(
            (journey.past[0].at_ms, journey.past[0].ended.as_str()),
            (0, "503")
        );
        let coming = journey.coming.iter();
        let coming: Vec<u64> = coming.map(|coming| coming.expected_ms).collect();
        assert_eq!(coming, [60_000, 120_000]);
        assert_eq!(journey.gives_up_ms, Some(3_590_000));
        assert!(
            journey
                .description
                .contains("attempt 3: 503; 2 may still come")
        );
    }

    #[test]
    fn what_is_held_or_being_sent_says_nothing_that_changes_by_itself() {
        for status in ["held", "in_progress"] {
            let at = |shift: u64| {
                let at = |ms: u64| Timestamp(1_794_744_000_000 + shift + ms).to_string();
                let upcoming = |number: u32, ms: u64| {
                    json!({
                        "number": number, "earliest_at": at(ms), "expected_at": at(ms + 500),
                        "latest_at": at(ms + 1_000),
                    })
                };
                let timeline = json!([upcoming(4, 0), upcoming(5, 60_000)]);
                delivery(json!({"status": status, "next_attempt_at": null, "timeline": timeline}))
            };
            let (now, later) = (at(0), at(7_321));
            assert_eq!(coming(&now).0, coming(&later).0, "{status}");
            let drawn = |delivery: &Delivery| journey(delivery).draw().write();
            assert_eq!(drawn(&now), drawn(&later), "{status}");
            assert!(coming(&now).0.contains("1m 1s"), "{}", coming(&now).0);
        }
    }

    #[test]
    fn an_attempt_shows_what_was_sent_and_what_came_back_as_text() {
        let mut delivery = delivery(json!({}));
        let attempt = &mut delivery.attempts[0];
        attempt.response_snippet = Some("<script>alert(1)</script>".to_owned());
        attempt.response_headers = Some([("server".to_owned(), "<b>".to_owned())].into());
        let shown = past(&delivery, "application/json").0;
        assert!(shown.contains("&lt;script&gt;alert(1)"), "{shown}");
        assert!(
            shown.contains("<dt>server</dt><dd>&lt;b&gt;</dd>"),
            "{shown}"
        );
        assert!(
            shown.contains("<dt>webhook-timestamp</dt><dd>1794744010</dd>"),
            "{shown}"
        );
        assert!(
            shown.contains("<dt>posthaste-attempt</dt><dd>3</dd>"),
            "{shown}"
        );
        assert!(shown.contains("asked to wait 2s"), "{shown}");
        assert!(!shown.contains("<script>"), "{shown}");
    }
}
