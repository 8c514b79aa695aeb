//! Deliveries as the API shows them.
//!
//! - `status` is `in_progress` while the delivery is in flight, and `held` while its endpoint is paused or
//!   its breaker is tripped. Neither is stored in its row.
//! - `max_attempts` is the number over all rounds: the attempts of earlier rounds, plus the maximum of the
//!   policy for the current one.
//! - `held_back_by` is the endpoint's, if it keeps this delivery from being sent. `next_attempt_at` and the `timeline`
//!   are never before the end of what holds it back, nor in the past.
//! - `next_attempt_at` is null for a finished delivery, while it is in flight, and while it is held, because
//!   the time is unknown. The `timeline` of a held delivery shows the attempts that would follow if it were
//!   released as soon as possible: now, or when the breaker lets the next probe pass.
//! - A delivery that is held after repeated internal errors has the status `held` and a `last_error` of kind `unknown`
//!   that says so.

use std::ops::Deref;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Delivery as DeliveryState, Status};
use posthaste_core::lane::HeldBackBy;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Timestamp;
use posthaste_store::{AttemptEntry, StoredDelivery};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::held_back::DeliveryHold;

use super::attempt::{
    Attempt, ExpectedAttempt, attempt_schema, expected_attempt_schema, failure_text,
};
use super::request_target::{self, RequestTarget};
use super::schema::{
    Schema, choice, described, failure_kind, held_back_by, integer, named, nullable,
    nullable_integer, nullable_time, object, optional, reference, text, time,
};

/// Every status, in the order of the OpenAPI document.
pub(crate) const STATUSES: [Status; 7] = [
    Status::Pending,
    Status::InProgress,
    Status::Retrying,
    Status::Held,
    Status::Succeeded,
    Status::Failed,
    Status::Cancelled,
];

/// Returns the status of a delivery, taking into account that it is in flight.
pub(crate) fn status_now(stored: &StoredDelivery, in_flight: bool) -> Status {
    let status = stored.shown_status();
    if in_flight && !status.is_terminal() {
        Status::InProgress
    } else {
        status
    }
}

/// A delivery without its attempts, as in lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverySummary {
    /// Its id.
    pub id: String,
    /// Id of its event.
    pub event_id: String,
    /// Type of its event.
    pub event_type: String,
    /// Id of its endpoint. For a one-off request, the id that the deliveries to its origin share.
    pub endpoint_id: String,
    /// Method and URL of a one-off request; absent for other deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestTarget>,
    /// Its status.
    pub status: Status,
    /// The reason why it was dead-lettered.
    pub reason: Option<DeadReason>,
    /// Number of attempts made.
    pub attempt_count: u32,
    /// Maximum number of attempts, over all rounds.
    pub max_attempts: u32,
    /// The time at which its event was accepted.
    pub created_at: String,
    /// The time of the next attempt, if it is known.
    pub next_attempt_at: Option<String>,
    /// The reason why it is not sent now; `None` if nothing does, or if it does not wait.
    pub held_back_by: Option<HeldBackBy>,
    /// The earliest time at which that can end, if it is known.
    pub held_back_until: Option<String>,
    /// Its deadline.
    pub give_up_at: String,
    /// The time at which it ended.
    pub finished_at: Option<String>,
    /// Its last failure.
    pub last_error: Option<LastError>,
}

/// The last failure of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// The failure kind.
    pub kind: FailureKind,
    /// Status of the response, if there was one.
    pub status_code: Option<u16>,
    /// The failure, in words.
    pub detail: String,
}

/// A delivery with the attempts that were made and those that are expected. Reads like its summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// All other fields.
    #[serde(flatten)]
    pub summary: DeliverySummary,
    /// The attempts that were made, oldest first.
    pub attempts: Vec<Attempt>,
    /// The attempts that follow if all fail.
    pub timeline: Vec<ExpectedAttempt>,
}

impl Deref for Delivery {
    type Target = DeliverySummary;

    fn deref(&self) -> &DeliverySummary {
        &self.summary
    }
}

impl DeliverySummary {
    /// Describes a stored delivery. `policy` is its effective retry policy, `hold` the part of its endpoint's state that
    /// applies to it.
    pub(crate) fn new(
        stored: &StoredDelivery,
        in_flight: bool,
        policy: &RetryPolicy,
        hold: DeliveryHold,
    ) -> DeliverySummary {
        let facts = stored.delivery.facts();
        let state = stored.delivery.state();
        let status = status_now(stored, in_flight);
        let next_attempt_at = match status {
            // A delivery that will be late when it may be sent has no further attempt if its policy drops it.
            Status::Pending | Status::Retrying => {
                let next_attempt_at = stored.delivery.next_attempt_at();
                let possible_at = next_attempt_at.map(|at| at.max(hold.not_before));
                possible_at.filter(|at| !stored.delivery.is_dropped_at(*at, policy))
            }
            Status::Held
            | Status::InProgress
            | Status::Succeeded
            | Status::Failed
            | Status::Cancelled => None,
        };
        DeliverySummary {
            id: facts.id.to_string(),
            event_id: facts.event.to_string(),
            event_type: stored.event_type.to_string(),
            endpoint_id: facts.endpoint.to_string(),
            request: facts.request.as_deref().map(RequestTarget::from),
            status,
            reason: state.dead_reason(),
            attempt_count: facts.attempts,
            max_attempts: facts
                .attempts
                .saturating_sub(facts.spent)
                .saturating_add(policy.max_attempts),
            created_at: stored.created_at.to_string(),
            next_attempt_at: next_attempt_at.map(|at| at.to_string()),
            held_back_by: hold.held_back.map(|it| it.by),
            held_back_until: hold
                .held_back
                .and_then(|it| it.until)
                .map(|at| at.to_string()),
            give_up_at: facts.give_up_at.to_string(),
            finished_at: state.ended_at().map(|at| at.to_string()),
            last_error: last_error(stored),
        }
    }
}

impl Delivery {
    /// Describes a stored delivery with its attempts, and the attempts that are expected at `now`.
    pub(crate) fn new(
        stored: &StoredDelivery,
        attempts: &[AttemptEntry],
        in_flight: bool,
        policy: &RetryPolicy,
        hold: DeliveryHold,
        now: Timestamp,
    ) -> Delivery {
        let upcoming = upcoming(&stored.delivery, in_flight, policy, hold, now);
        Delivery {
            summary: DeliverySummary::new(stored, in_flight, policy, hold),
            attempts: attempts.iter().map(Attempt::from).collect(),
            timeline: upcoming.iter().map(ExpectedAttempt::from).collect(),
        }
    }
}

/// Returns the expected attempts. The row does not contain that an attempt is in flight.
fn upcoming(
    delivery: &DeliveryState,
    in_flight: bool,
    policy: &RetryPolicy,
    hold: DeliveryHold,
    now: Timestamp,
) -> Vec<posthaste_core::delivery::ExpectedAttempt> {
    let mut delivery = delivery.clone();
    if in_flight {
        // If the delivery has ended in the meantime, it cannot start an attempt, and none follows.
        let _ = delivery.begin(now, false);
    }
    delivery.expected_attempts(policy, now, hold.not_before)
}

fn last_error(stored: &StoredDelivery) -> Option<LastError> {
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
            let detail = last.and_then(|last| last.detail.clone());
            return Some(LastError {
                kind,
                status_code,
                detail: detail.unwrap_or_else(|| failure_text(kind, status_code)),
            });
        }
    };
    Some(LastError {
        kind,
        status_code: None,
        detail: detail.to_owned(),
    })
}

/// Returns the schemas of deliveries.
pub(crate) fn schemas() -> Vec<Schema> {
    let mut summary = summary_properties();
    let schema = |name, properties: &Value| Schema {
        name,
        shape: optional("request", object(properties.clone())),
    };
    let summary_schema = schema("DeliverySummary", &summary);
    summary["attempts"] = json!({"type": "array", "items": attempt_schema()});
    summary["timeline"] = json!({"type": "array", "items": expected_attempt_schema()});
    vec![
        Schema {
            name: "DeliveryStatus",
            shape: json!({"type": "string", "enum": STATUSES.map(Status::name)}),
        },
        summary_schema,
        schema("Delivery", &summary),
    ]
}

fn summary_properties() -> Value {
    json!({
        "id": text(),
        "event_id": text(),
        "event_type": text(),
        "endpoint_id": text(),
        "request": request_target::schema(),
        "status": reference("DeliveryStatus"),
        "reason": described(nullable(failure_reason()), "Reason of the failure."),
        "attempt_count": integer(),
        "max_attempts": integer(),
        "created_at": time(),
        "next_attempt_at": nullable_time(),
        "held_back_by": held_back_by(),
        "held_back_until": nullable_time(),
        "give_up_at": {
            "type": "string",
            "format": "date-time",
            "description": "The deadline: no retry is scheduled after it. If the delivery is held back longer, the policy's `late` decides: `send` sends it late, `drop` fails it as `expired`.",
        },
        "finished_at": nullable_time(),
        "last_error": nullable(named("LastError", object(json!({
            "kind": failure_kind(),
            "status_code": nullable_integer(),
            "detail": text(),
        })))),
    })
}

fn failure_reason() -> Value {
    let reasons = [
        DeadReason::Permanent,
        DeadReason::Exhausted,
        DeadReason::Expired,
        DeadReason::EndpointDisabled,
        DeadReason::EndpointDeleted,
        DeadReason::UnsafeDestination,
    ];
    choice("FailureReason", reasons.map(DeadReason::name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::delivery::{DeliveryData, ScheduledAttempt, State, Trigger};
    use posthaste_core::dispatcher::FAULTS_TO_QUARANTINE;
    use posthaste_core::id::{DeliveryId, EndpointId, EventId};
    use posthaste_core::policy::{Backoff, Jitter};
    use posthaste_core::time::Span;
    use posthaste_engine::owner_router::HeldBackReport;

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
            ..RetryPolicy::default()
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
            request: None,
        };
        StoredDelivery {
            delivery: DeliveryState::restore(facts, state),
            tenant: "acme".parse().expect("a name"),
            event_type: "invoice.paid".parse().expect("a type"),
            created_at: NOON,
            is_held_by_endpoint: false,
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
    fn delivery_json_is_stable() {
        let stored = stored(retrying());
        let view = Delivery::new(
            &stored,
            &[attempt()],
            false,
            &policy(),
            DeliveryHold::none(after_secs(20)),
            after_secs(20),
        );
        let wanted = concat!(
            r#"{"id":"dlv_00000000000000000000000003","event_id":"evt_00000000000000000000000002","#,
            r#""event_type":"invoice.paid","endpoint_id":"ep_00000000000000000000000001","#,
            r#""status":"retrying","reason":null,"attempt_count":3,"max_attempts":5,"#,
            r#""created_at":"2026-11-15T12:00:00.000Z","next_attempt_at":"2026-11-15T12:01:10.000Z","#,
            r#""held_back_by":null,"held_back_until":null,"#,
            r#""give_up_at":"2026-11-15T13:00:00.000Z","finished_at":null,"#,
            r#""last_error":{"kind":"http","status_code":503,"detail":"answered 503"},"#,
            r#""attempts":[{"number":3,"trigger":"manual","started_at":"2026-11-15T12:00:10.000Z","#,
            r#""finished_at":"2026-11-15T12:00:11.000Z","latency_ms":1012,"status_code":503,"#,
            r#""error_kind":"http","detail":"answered 503","response_snippet":"busy","#,
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
    fn attempt_without_stored_headers_has_null() {
        let entry = AttemptEntry {
            response_headers: Vec::new(),
            ..attempt()
        };
        let view = serde_json::to_value(Attempt::from(&entry)).expect("JSON");
        assert_eq!(view.get("response_headers"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn every_failed_attempt_has_a_detail_and_a_success_has_none() {
        let old = AttemptEntry {
            detail: None,
            status_code: None,
            error_kind: Some(FailureKind::Tls),
            ..attempt()
        };
        let detail = Attempt::from(&old).detail;
        assert_eq!(detail.as_deref(), Some("TLS error"));
        let success = AttemptEntry {
            detail: None,
            error_kind: None,
            ..attempt()
        };
        assert_eq!(Attempt::from(&success).detail, None);
    }

    #[test]
    fn delivery_held_after_internal_errors_says_so() {
        let hold = hold(HeldBackBy::RateLimit, after_secs(130));
        let mut view = DeliverySummary::new(&stored(retrying()), false, &policy(), hold);
        assert!(!view.is_held_after_faults());
        view.hold_after_faults();
        assert!(view.is_held_after_faults());
        assert_eq!((view.status, &view.next_attempt_at), (Status::Held, &None));
        assert_eq!((view.held_back_by, &view.held_back_until), (None, &None));
        let error = view.last_error.expect("an error");
        assert_eq!(error.kind, FailureKind::Unknown);
        let held = format!("held after {FAULTS_TO_QUARANTINE} consecutive internal errors");
        assert!(error.detail.starts_with(&held), "{}", error.detail);
        // It was released since, and is in flight or has ended.
        let mut sent = DeliverySummary::new(&stored(retrying()), true, &policy(), hold);
        sent.hold_after_faults();
        assert_eq!(sent.status, Status::InProgress);
        assert_eq!(sent.last_error.expect("an error").detail, "answered 503");
    }

    #[test]
    fn delivery_in_flight_has_no_next_attempt_but_a_timeline() {
        let view = Delivery::new(
            &stored(retrying()),
            &[],
            true,
            &policy(),
            DeliveryHold::none(after_secs(80)),
            after_secs(80),
        );
        assert_eq!(view.status, Status::InProgress);
        assert_eq!(view.next_attempt_at, None);
        let numbers: Vec<u32> = view
            .timeline
            .iter()
            .map(|upcoming| upcoming.number)
            .collect();
        assert_eq!(numbers, [5]);
    }

    #[test]
    fn ended_delivery_is_not_in_progress() {
        let at = after_secs(90);
        let view = DeliverySummary::new(
            &stored(State::Succeeded { at }),
            true,
            &policy(),
            DeliveryHold::none(at),
        );
        assert_eq!(view.status, Status::Succeeded);
        assert_eq!(view.finished_at, Some(at.to_string()));
        let whole = Delivery::new(
            &stored(State::Succeeded { at }),
            &[],
            true,
            &policy(),
            DeliveryHold::none(after_secs(91)),
            after_secs(91),
        );
        assert_eq!(whole.timeline, []);
    }

    #[test]
    fn held_delivery_has_no_next_attempt() {
        let mut held = stored(retrying());
        held.is_held_by_endpoint = true;
        let view = DeliverySummary::new(&held, false, &policy(), DeliveryHold::none(NOON));
        assert_eq!((view.status, view.next_attempt_at), (Status::Held, None));
    }

    fn hold(by: HeldBackBy, until: Timestamp) -> DeliveryHold {
        DeliveryHold {
            held_back: Some(HeldBackReport {
                by,
                until: Some(until),
            }),
            not_before: until,
        }
    }

    #[test]
    fn no_attempt_is_shown_in_the_past_or_before_the_end_of_what_holds_it_back() {
        let (now, until) = (after_secs(100), after_secs(130));
        let stored = stored(retrying());
        let shown = |hold| Delivery::new(&stored, &[], false, &policy(), hold, now);
        let late = shown(DeliveryHold::none(now));
        assert_eq!(late.next_attempt_at, Some(now.to_string()));
        assert_eq!(late.timeline[0].earliest_at, now.to_string());
        assert_eq!(late.held_back_by, None);
        let limited = shown(hold(HeldBackBy::RateLimit, until));
        assert_eq!(limited.next_attempt_at, Some(until.to_string()));
        assert_eq!(limited.held_back_by, Some(HeldBackBy::RateLimit));
        assert_eq!(limited.held_back_until, Some(until.to_string()));
        let earliest: Vec<&String> = limited.timeline.iter().map(|it| &it.earliest_at).collect();
        // The retry after it follows half a minute later at the earliest.
        assert_eq!(earliest, [&until.to_string(), &after_secs(160).to_string()]);
    }

    #[test]
    fn timeline_of_a_delivery_in_flight_starts_after_the_pause_of_its_endpoint() {
        let (now, until) = (after_secs(80), after_secs(400));
        let hold = DeliveryHold {
            held_back: None,
            not_before: until,
        };
        let view = Delivery::new(&stored(retrying()), &[], true, &policy(), hold, now);
        let times: Vec<&String> = view.timeline.iter().map(|it| &it.expected_at).collect();
        assert_eq!(times, [&until.to_string()]);
    }

    #[test]
    fn last_error_names_the_disabled_or_deleted_endpoint() {
        for (reason, detail) in [
            (DeadReason::EndpointDisabled, "the endpoint was disabled"),
            (DeadReason::EndpointDeleted, "the endpoint was deleted"),
        ] {
            let at = after_secs(90);
            let view = DeliverySummary::new(
                &stored(State::Failed { at, reason }),
                false,
                &policy(),
                DeliveryHold::none(at),
            );
            let expected = LastError {
                kind: FailureKind::WebhookDisabled,
                status_code: None,
                detail: detail.to_owned(),
            };
            assert_eq!(view.last_error, Some(expected));
            assert_eq!(view.reason, Some(reason));
        }
    }
}
