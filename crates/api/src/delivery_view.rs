//! Deliveries in API responses.
//!
//! - `status` is `in_progress` while the delivery is in flight, and `held` while its endpoint is paused or
//!   its breaker is tripped. Neither is stored in its row.
//! - `max_attempts` is the number over all rounds: the attempts of earlier rounds, plus the maximum of the
//!   policy for the current one.
//! - `next_attempt_at` is null for a finished delivery, while it is in flight, and while it is held, because
//!   the time is unknown. The `timeline` of a held delivery shows the attempts that would follow if it were
//!   released now.

use std::fmt::Display;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Delivery, Status, Trigger, Upcoming};
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Timestamp;
use posthaste_store::{AttemptEntry, StoredDelivery};
use serde::{Serialize, Serializer};

/// Serializes a value as its `Display` text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<T>(pub T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Returns the status of a delivery, taking into account that it is in flight.
pub(super) fn status_now(stored: &StoredDelivery, in_flight: bool) -> Status {
    let status = stored.shown_status();
    if in_flight && !status.is_terminal() {
        Status::InProgress
    } else {
        status
    }
}

/// A delivery in an API response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeliveryView {
    id: Shown<DeliveryId>,
    event_id: Shown<EventId>,
    event_type: String,
    endpoint_id: Shown<EndpointId>,
    status: Status,
    reason: Option<DeadReason>,
    attempt_count: u32,
    max_attempts: u32,
    created_at: Shown<Timestamp>,
    next_attempt_at: Option<Shown<Timestamp>>,
    give_up_at: Shown<Timestamp>,
    finished_at: Option<Shown<Timestamp>>,
    last_error: Option<ErrorView>,
    #[serde(flatten)]
    history: Option<History>,
}

/// The last failure of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorView {
    kind: FailureKind,
    status_code: Option<u16>,
    detail: String,
}

/// The attempts that were made, and those that are expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct History {
    attempts: Vec<AttemptView>,
    timeline: Vec<UpcomingView>,
}

/// An attempt that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct AttemptView {
    number: u32,
    trigger: Trigger,
    started_at: Shown<Timestamp>,
    finished_at: Shown<Timestamp>,
    latency_ms: u64,
    status_code: Option<u16>,
    error_kind: Option<FailureKind>,
    response_snippet: Option<String>,
    response_headers: Option<HeadersView>,
    will_retry: bool,
    next_attempt_at: Option<Shown<Timestamp>>,
    retry_after_ms: Option<u64>,
}

/// Headers as a JSON object, in the order in which they were received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeadersView(Vec<(String, String)>);

impl HeadersView {
    /// Returns `None` if no headers were stored: for a success, for an attempt without a response, and for
    /// old attempts.
    fn of(entry: &AttemptEntry) -> Option<HeadersView> {
        let headers = &entry.response_headers;
        (!headers.is_empty()).then(|| HeadersView(headers.clone()))
    }
}

impl Serialize for HeadersView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// An expected attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct UpcomingView {
    number: u32,
    earliest_at: Shown<Timestamp>,
    expected_at: Shown<Timestamp>,
    latest_at: Shown<Timestamp>,
}

impl DeliveryView {
    /// Returns a delivery for a list. `policy` is its effective retry policy.
    pub fn brief(stored: &StoredDelivery, in_flight: bool, policy: &RetryPolicy) -> DeliveryView {
        let facts = stored.delivery.facts();
        let state = stored.delivery.state();
        let status = status_now(stored, in_flight);
        let wanted_at = match status {
            Status::Pending | Status::Retrying => stored.delivery.wanted_at(),
            Status::Held
            | Status::InProgress
            | Status::Succeeded
            | Status::Failed
            | Status::Cancelled => None,
        };
        DeliveryView {
            id: Shown(facts.id),
            event_id: Shown(facts.event),
            event_type: stored.event_type.to_string(),
            endpoint_id: Shown(facts.endpoint),
            status,
            reason: state.dead_reason(),
            attempt_count: facts.attempts,
            max_attempts: facts
                .attempts
                .saturating_sub(facts.spent)
                .saturating_add(policy.max_attempts),
            created_at: Shown(stored.created_at),
            next_attempt_at: wanted_at.map(Shown),
            give_up_at: Shown(facts.give_up_at),
            finished_at: state.ended_at().map(Shown),
            last_error: last_error(stored),
            history: None,
        }
    }

    /// Returns a delivery with all its attempts and the attempts that are expected at `now`.
    pub fn whole(
        stored: &StoredDelivery,
        attempts: &[AttemptEntry],
        in_flight: bool,
        policy: &RetryPolicy,
        now: Timestamp,
    ) -> DeliveryView {
        let upcoming = upcoming(&stored.delivery, in_flight, policy, now);
        DeliveryView {
            history: Some(History {
                attempts: attempts.iter().map(AttemptView::new).collect(),
                timeline: upcoming.iter().map(UpcomingView::new).collect(),
            }),
            ..DeliveryView::brief(stored, in_flight, policy)
        }
    }
}

/// Returns the expected attempts. The row does not contain that an attempt is in flight.
fn upcoming(
    delivery: &Delivery,
    in_flight: bool,
    policy: &RetryPolicy,
    now: Timestamp,
) -> Vec<Upcoming> {
    let mut delivery = delivery.clone();
    if in_flight {
        // If the delivery has ended in the meantime, it cannot start an attempt, and none follows.
        let _ = delivery.begin(now, false);
    }
    delivery.upcoming(policy, now)
}

fn last_error(stored: &StoredDelivery) -> Option<ErrorView> {
    let kind = stored.error_kind()?;
    let reason = stored.delivery.state().dead_reason();
    let last = stored.last_attempt.as_ref();
    // The delivery ended because its endpoint was disabled or deleted, not because of its last attempt.
    let detail = match reason {
        Some(DeadReason::EndpointDisabled) => "the endpoint was disabled",
        Some(DeadReason::EndpointDeleted) => "the endpoint was deleted",
        Some(
            DeadReason::Permanent
            | DeadReason::Exhausted
            | DeadReason::Expired
            | DeadReason::UnsafeDestination,
        )
        | None => {
            let status_code = last.and_then(|last| last.status_code);
            let said = last.and_then(|last| last.detail.clone());
            return Some(ErrorView {
                kind,
                status_code,
                detail: said.unwrap_or_else(|| in_words(kind, status_code)),
            });
        }
    };
    Some(ErrorView {
        kind,
        status_code: None,
        detail: detail.to_owned(),
    })
}

fn in_words(kind: FailureKind, status_code: Option<u16>) -> String {
    if let Some(status) = status_code {
        return format!("the receiver answered {status}");
    }
    let words = match kind {
        FailureKind::Http => "the receiver did not answer 2xx",
        FailureKind::Timeout => "no complete answer came in time",
        FailureKind::Dns => "the name did not resolve",
        FailureKind::Tls => "no secure connection came about",
        FailureKind::Connection => "the connection failed",
        FailureKind::Validation => "the destination may not be called",
        FailureKind::WebhookDisabled => "the endpoint was disabled",
        FailureKind::Unknown => "something unforeseen went wrong",
    };
    words.to_owned()
}

impl AttemptView {
    fn new(entry: &AttemptEntry) -> AttemptView {
        AttemptView {
            number: entry.number,
            trigger: entry.trigger,
            started_at: Shown(entry.started_at),
            finished_at: Shown(entry.finished_at),
            latency_ms: entry.latency_ms,
            status_code: entry.status_code,
            error_kind: entry.error_kind,
            response_snippet: entry.response_snippet.clone(),
            response_headers: HeadersView::of(entry),
            will_retry: entry.next_attempt_at.is_some(),
            next_attempt_at: entry.next_attempt_at.map(Shown),
            retry_after_ms: entry.retry_after_ms,
        }
    }
}

impl UpcomingView {
    fn new(upcoming: &Upcoming) -> UpcomingView {
        UpcomingView {
            number: upcoming.number,
            earliest_at: Shown(upcoming.earliest_at),
            expected_at: Shown(upcoming.expected_at),
            latest_at: Shown(upcoming.latest_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::delivery::{DeliveryData, ScheduledAttempt, State};
    use posthaste_core::policy::{Backoff, Jitter};
    use posthaste_core::time::Span;

    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    fn after_secs(seconds: u64) -> Timestamp {
        NOON.after(Span::from_secs(seconds))
    }

    fn policy() -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff::Fixed {
                interval: Span::from_secs(60),
            },
            jitter: Jitter::Proportional { fraction: 0.5 },
            max_attempts: 3,
            give_up_after: Span::from_hours(1),
            rules: Vec::new(),
        }
    }

    fn attempt() -> AttemptEntry {
        AttemptEntry {
            number: 3,
            trigger: Trigger::Manual,
            started_at: after_secs(10),
            finished_at: after_secs(11),
            latency_ms: 1_012,
            status_code: Some(503),
            error_kind: Some(FailureKind::Http),
            detail: Some("answered 503".to_owned()),
            response_snippet: Some("busy".to_owned()),
            response_headers: vec![
                ("server".to_owned(), "a \"b\"".to_owned()),
                ("content-type".to_owned(), "text/plain".to_owned()),
            ],
            next_attempt_at: Some(after_secs(70)),
            retry_after_ms: Some(2_000),
        }
    }

    /// In its second round: two attempts before it, one in it.
    fn stored(state: State) -> StoredDelivery {
        let facts = DeliveryData {
            id: DeliveryId(3),
            event: EventId(2),
            endpoint: EndpointId(1),
            ordering: None,
            due_at: NOON,
            give_up_at: after_secs(3_600),
            attempts: 3,
            spent: 1,
            previous_delay: Some(Span::from_secs(60)),
            granted: Vec::new(),
        };
        StoredDelivery {
            delivery: Delivery::restore(facts, state),
            tenant: "acme".parse().expect("a name"),
            event_type: "invoice.paid".parse().expect("a type"),
            created_at: NOON,
            endpoint_holds: false,
            last_attempt: Some(attempt()),
        }
    }

    fn retrying() -> State {
        State::Retrying(ScheduledAttempt {
            at: after_secs(70),
            trigger: Trigger::Automatic,
        })
    }

    #[test]
    fn a_delivery_is_shown_as_promised_to_the_letter() {
        let stored = stored(retrying());
        let view = DeliveryView::whole(&stored, &[attempt()], false, &policy(), after_secs(20));
        let wanted = concat!(
            r#"{"id":"dlv_00000000000000000000000003","event_id":"evt_00000000000000000000000002","#,
            r#""event_type":"invoice.paid","endpoint_id":"ep_00000000000000000000000001","#,
            r#""status":"retrying","reason":null,"attempt_count":3,"max_attempts":5,"#,
            r#""created_at":"2026-11-15T12:00:00.000Z","next_attempt_at":"2026-11-15T12:01:10.000Z","#,
            r#""give_up_at":"2026-11-15T13:00:00.000Z","finished_at":null,"#,
            r#""last_error":{"kind":"http","status_code":503,"detail":"answered 503"},"#,
            r#""attempts":[{"number":3,"trigger":"manual","started_at":"2026-11-15T12:00:10.000Z","#,
            r#""finished_at":"2026-11-15T12:00:11.000Z","latency_ms":1012,"status_code":503,"#,
            r#""error_kind":"http","response_snippet":"busy","#,
            r#""response_headers":{"server":"a \"b\"","content-type":"text/plain"},"will_retry":true,"#,
            r#""next_attempt_at":"2026-11-15T12:01:10.000Z","retry_after_ms":2000}],"#,
            r#""timeline":[{"number":4,"earliest_at":"2026-11-15T12:01:10.000Z","#,
            r#""expected_at":"2026-11-15T12:01:10.000Z","latest_at":"2026-11-15T12:01:10.000Z"},"#,
            r#"{"number":5,"earliest_at":"2026-11-15T12:01:40.000Z","#,
            r#""expected_at":"2026-11-15T12:02:10.000Z","latest_at":"2026-11-15T12:02:40.000Z"}]}"#,
        );
        assert_eq!(serde_json::to_string(&view).expect("JSON"), wanted);
    }

    #[test]
    fn an_attempt_of_which_no_headers_were_kept_has_null() {
        let entry = AttemptEntry {
            response_headers: Vec::new(),
            ..attempt()
        };
        let view = serde_json::to_value(AttemptView::new(&entry)).expect("JSON");
        assert_eq!(view.get("response_headers"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn what_is_being_sent_has_no_next_attempt_and_shows_what_follows() {
        let view = DeliveryView::whole(&stored(retrying()), &[], true, &policy(), after_secs(80));
        assert_eq!(view.status, Status::InProgress);
        assert_eq!(view.next_attempt_at, None);
        let numbers: Vec<u32> = view
            .history
            .expect("it is whole")
            .timeline
            .iter()
            .map(|upcoming| upcoming.number)
            .collect();
        assert_eq!(numbers, [5]);
    }

    #[test]
    fn what_has_ended_is_not_being_sent_whatever_the_engine_still_says() {
        let at = after_secs(90);
        let view = DeliveryView::brief(&stored(State::Succeeded { at }), true, &policy());
        assert_eq!(view.status, Status::Succeeded);
        assert_eq!(view.finished_at, Some(Shown(at)));
        let whole = DeliveryView::whole(
            &stored(State::Succeeded { at }),
            &[],
            true,
            &policy(),
            after_secs(91),
        );
        assert_eq!(whole.history.expect("it is whole").timeline, []);
    }

    #[test]
    fn what_is_held_has_no_next_attempt() {
        let mut held = stored(retrying());
        held.endpoint_holds = true;
        let view = DeliveryView::brief(&held, false, &policy());
        assert_eq!((view.status, view.next_attempt_at), (Status::Held, None));
    }

    #[test]
    fn an_endpoint_that_went_away_is_the_reason_and_not_the_last_answer() {
        for (reason, detail) in [
            (DeadReason::EndpointDisabled, "the endpoint was disabled"),
            (DeadReason::EndpointDeleted, "the endpoint was deleted"),
        ] {
            let at = after_secs(90);
            let view = DeliveryView::brief(&stored(State::Failed { at, reason }), false, &policy());
            let wanted = ErrorView {
                kind: FailureKind::WebhookDisabled,
                status_code: None,
                detail: detail.to_owned(),
            };
            assert_eq!(view.last_error, Some(wanted));
            assert_eq!(view.reason, Some(reason));
        }
    }
}
