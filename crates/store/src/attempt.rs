//! The stored form of an attempt.
//!
//! [`AttemptEntry`] joins the settlement of the core with the [`AttemptDetail`] of the attempt runner. It is stored
//! as JSON with short field names.

use std::fmt;
use std::time::Duration;

use posthaste_core::classify::{Classification, FailureKind, HttpStatus};
use posthaste_core::delivery::{SettledAttempt, Trigger};
use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes kept of a response body.
pub const MAX_SNIPPET_BYTES: usize = 1_024;
/// Maximum number of response headers kept.
pub const MAX_RESPONSE_HEADERS: usize = 32;
/// Maximum length of a header name; headers with longer names are dropped.
pub const MAX_HEADER_NAME_CHARS: usize = 64;
/// Maximum number of characters kept of a header value.
pub const MAX_HEADER_VALUE_CHARS: usize = 200;
/// Maximum total size of the kept headers, names and values together.
pub const MAX_RESPONSE_HEADER_BYTES: usize = 2_048;
/// Maximum length of the description of a failure.
pub const MAX_DETAIL_CHARS: usize = 500;

/// The part of an attempt that only the attempt runner knows. The rest is in the settlement. The debug output hides
/// the response.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AttemptDetail {
    /// Duration, by the monotonic clock.
    pub latency: Duration,
    /// Description of the failure; never contains an address or a secret.
    pub detail: Option<String>,
    /// The beginning of the response body.
    pub response_snippet: Option<String>,
    /// The headers of a response that explains a failure. Empty for a success, to keep the row of a successful
    /// delivery small.
    pub response_headers: Vec<(String, String)>,
}

impl fmt::Debug for AttemptDetail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AttemptDetail")
            .field("latency", &self.latency)
            .field("detail", &self.detail)
            .field("snippet_bytes", &length_of(&self.response_snippet))
            .field("headers", &self.response_headers.len())
            .finish_non_exhaustive()
    }
}

fn length_of(snippet: &Option<String>) -> Option<usize> {
    snippet.as_ref().map(String::len)
}

/// An attempt as it is stored. The debug output hides the response.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEntry {
    /// The number of the attempt, over all rounds of the delivery.
    #[serde(rename = "n")]
    pub number: u32,
    /// The reason for the attempt: automatic, manual or a probe.
    #[serde(rename = "by")]
    pub trigger: Trigger,
    /// The time at which it started.
    #[serde(rename = "start")]
    pub started_at: Timestamp,
    /// The time at which it ended.
    #[serde(rename = "end")]
    pub finished_at: Timestamp,
    /// Duration in milliseconds.
    #[serde(rename = "ms")]
    pub latency_ms: u64,
    /// The status code of the response, if one arrived.
    #[serde(rename = "status", default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// The failure kind, if it failed.
    #[serde(rename = "kind", default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<FailureKind>,
    /// Description of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The beginning of the response body.
    #[serde(rename = "body", default, skip_serializing_if = "Option::is_none")]
    pub response_snippet: Option<String>,
    /// The headers of the response, if it was a failure.
    #[serde(rename = "head", default, skip_serializing_if = "Vec::is_empty")]
    pub response_headers: Vec<(String, String)>,
    /// The time for which the next attempt was scheduled, if any.
    #[serde(rename = "next", default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// The wait that the receiver asked for, in milliseconds.
    #[serde(rename = "after", default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl fmt::Debug for AttemptEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AttemptEntry")
            .field("number", &self.number)
            .field("trigger", &self.trigger)
            .field("started_at", &self.started_at)
            .field("finished_at", &self.finished_at)
            .field("latency_ms", &self.latency_ms)
            .field("status_code", &self.status_code)
            .field("error_kind", &self.error_kind)
            .field("detail", &self.detail)
            .field("snippet_bytes", &length_of(&self.response_snippet))
            .field("headers", &self.response_headers.len())
            .field("next_attempt_at", &self.next_attempt_at)
            .field("retry_after_ms", &self.retry_after_ms)
            .finish_non_exhaustive()
    }
}

impl AttemptEntry {
    /// Joins the data of the core and of the attempt runner.
    pub fn new(settlement: &SettledAttempt, detail: AttemptDetail) -> AttemptEntry {
        AttemptEntry {
            number: settlement.number,
            trigger: settlement.trigger,
            started_at: settlement.started_at,
            finished_at: settlement.finished_at,
            latency_ms: u64::try_from(detail.latency.as_millis()).unwrap_or(u64::MAX),
            status_code: settlement.outcome.status().map(HttpStatus::code),
            error_kind: match settlement.meaning {
                Classification::Success => None,
                Classification::Failure(failure) => Some(failure.kind),
            },
            detail: detail.detail,
            response_snippet: detail.response_snippet,
            response_headers: detail.response_headers,
            next_attempt_at: settlement.next_attempt_at,
            retry_after_ms: settlement.retry_after.map(|span| span.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE_HEADERS: &str = r#"{"n":1,"by":"automatic","start":5,"end":9,"ms":4,"status":503,"kind":"http","body":"no"}"#;

    #[test]
    fn an_attempt_from_before_headers_were_kept_has_none_and_costs_no_byte_more() {
        let entry: AttemptEntry = serde_json::from_str(BEFORE_HEADERS).expect("an old row");
        assert_eq!(entry.response_headers, []);
        let written = serde_json::to_string(&entry).expect("JSON");
        assert_eq!(written, BEFORE_HEADERS);
    }

    #[test]
    fn headers_come_back_in_their_order_and_are_not_shown() {
        let mut entry: AttemptEntry = serde_json::from_str(BEFORE_HEADERS).expect("an old row");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        entry.response_headers = vec![header("x-b", "canary"), header("content-type", "a/b")];
        let written = serde_json::to_string(&entry).expect("JSON");
        assert!(
            written.contains(r#""head":[["x-b","canary"],["content-type","a/b"]]"#),
            "{written}"
        );
        let read: AttemptEntry = serde_json::from_str(&written).expect("what was written");
        assert_eq!(read, entry);
        let detail = AttemptDetail {
            response_headers: entry.response_headers.clone(),
            ..AttemptDetail::default()
        };
        for shown in [format!("{entry:?}"), format!("{detail:?}")] {
            assert!(!shown.contains("canary"), "{shown}");
            assert!(shown.contains("headers: 2"), "{shown}");
        }
    }
}
