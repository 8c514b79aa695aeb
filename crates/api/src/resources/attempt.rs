//! Attempts of a delivery: those that were made, and those that are expected.
//!
//! [`Attempt`] is a recorded attempt, and [`ExpectedAttempt`] a future one, for the case that all earlier ones fail.
//! [`failure_detail`] gives each failed attempt a text, also those that were stored without one.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Trigger;
use posthaste_store::{AttemptEntry, MAX_RESPONSE_HEADERS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::headers::Headers;
use super::schema::{
    choice, described, failure_kind, integer, named, nullable, nullable_integer, nullable_text,
    nullable_time, object, text, time,
};

/// An attempt that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1, over all rounds of the delivery.
    pub number: u32,
    /// Its trigger.
    pub trigger: Trigger,
    /// The time at which it started.
    pub started_at: String,
    /// The time at which it ended.
    pub finished_at: String,
    /// Its duration, in milliseconds.
    pub latency_ms: u64,
    /// Status of the response, if there was one.
    pub status_code: Option<u16>,
    /// The failure; `None` for a success.
    pub error_kind: Option<FailureKind>,
    /// The failure, in words; `None` for a success. Never contains an address or a secret.
    #[serde(default)]
    pub detail: Option<String>,
    /// The beginning of the response body.
    pub response_snippet: Option<String>,
    /// Headers of the response; `None` for a success, for an attempt without a response, and for old attempts.
    pub response_headers: Option<Headers>,
    /// True if another attempt was planned after it.
    pub will_retry: bool,
    /// The time of that attempt.
    pub next_attempt_at: Option<String>,
    /// The wait that the receiver asked for with `Retry-After`, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// An attempt that is expected if all earlier ones fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedAttempt {
    /// Its number, from 1, over all rounds of the delivery.
    pub number: u32,
    /// Its earliest time.
    pub earliest_at: String,
    /// Its expected time.
    pub expected_at: String,
    /// Its latest time.
    pub latest_at: String,
}

impl Attempt {
    /// Returns true if the attempt succeeded.
    pub fn is_success(&self) -> bool {
        self.error_kind.is_none()
    }
}

impl From<&AttemptEntry> for Attempt {
    fn from(entry: &AttemptEntry) -> Attempt {
        let headers = &entry.response_headers;
        Attempt {
            number: entry.number,
            trigger: entry.trigger,
            started_at: entry.started_at.to_string(),
            finished_at: entry.finished_at.to_string(),
            latency_ms: entry.latency_ms,
            status_code: entry.status_code,
            error_kind: entry.error_kind,
            detail: entry.error_kind.map(|kind| failure_detail(entry, kind)),
            response_snippet: entry.response_snippet.clone(),
            response_headers: (!headers.is_empty()).then(|| Headers(headers.clone())),
            will_retry: entry.next_attempt_at.is_some(),
            next_attempt_at: entry.next_attempt_at.map(|at| at.to_string()),
            retry_after_ms: entry.retry_after_ms,
        }
    }
}

/// Returns what failed, in words. Every new failed attempt is stored with a detail; the kind describes older ones.
pub(super) fn failure_detail(entry: &AttemptEntry, kind: FailureKind) -> String {
    let detail = entry.detail.clone();
    detail.unwrap_or_else(|| failure_text(kind, entry.status_code))
}

/// Describes a failure of which only the kind and the status are known.
pub(super) fn failure_text(kind: FailureKind, status_code: Option<u16>) -> String {
    if let Some(status) = status_code {
        return format!("the receiver responded with {status}");
    }
    let text = match kind {
        FailureKind::Http => "the receiver did not respond with 2xx",
        FailureKind::Timeout => "timeout",
        FailureKind::Dns => "DNS error",
        FailureKind::Tls => "TLS error",
        FailureKind::Connection => "connection error",
        FailureKind::Validation => "destination not allowed",
        FailureKind::WebhookDisabled => "the endpoint was disabled",
        FailureKind::Unknown => "unknown error",
    };
    text.to_owned()
}

impl From<&posthaste_core::delivery::ExpectedAttempt> for ExpectedAttempt {
    fn from(upcoming: &posthaste_core::delivery::ExpectedAttempt) -> ExpectedAttempt {
        ExpectedAttempt {
            number: upcoming.number,
            earliest_at: upcoming.earliest_at.to_string(),
            expected_at: upcoming.expected_at.to_string(),
            latest_at: upcoming.latest_at.to_string(),
        }
    }
}

/// Returns the schema of [`Attempt`].
pub(super) fn attempt_schema() -> Value {
    let response_headers = named(
        "ResponseHeaders",
        json!({
            "type": "object", "additionalProperties": text(), "maxProperties": MAX_RESPONSE_HEADERS,
        }),
    );
    let shape = object(json!({
        "number": integer(),
        "trigger": choice("AttemptTrigger", ["automatic", "manual", "probe"]),
        "started_at": time(),
        "finished_at": time(),
        "latency_ms": integer(),
        "status_code": nullable_integer(),
        "error_kind": nullable(failure_kind()),
        "detail": {
            "type": ["string", "null"],
            "description": "Description of the failure, for example the failed TLS check or the phase of a timeout. Null for a success. Contains no address.",
        },
        "response_snippet": nullable_text(),
        "response_headers": described(
            nullable(response_headers),
            "The response headers if the status was not 2xx, by lower-case name: repeated headers joined by a comma, long values truncated, without cookies and credentials. Null for a success, for an attempt without a response, and if none were stored.",
        ),
        "will_retry": {"type": "boolean"},
        "next_attempt_at": nullable_time(),
        "retry_after_ms": nullable_integer(),
    }));
    named("Attempt", shape)
}

/// Returns the schema of [`ExpectedAttempt`].
pub(super) fn expected_attempt_schema() -> Value {
    let shape = object(json!({
        "number": integer(),
        "earliest_at": time(),
        "expected_at": time(),
        "latest_at": time(),
    }));
    named("ExpectedAttempt", shape)
}
