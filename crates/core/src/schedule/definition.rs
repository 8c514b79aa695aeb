//! The definition of a schedule: everything that the caller set, in the form in which it is stored.
//!
//! [`ScheduleDefinition`] is read from an API request elsewhere; here it is a plain value with a JSON form. The JSON has
//! no version: a field that is added later must have a default.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::delivery::OneOffRequest;
use crate::id::EndpointId;
use crate::time::{Span, Timestamp};

/// Minimum duration between two occurrences of a fixed interval.
pub const MIN_INTERVAL: Span = Span::from_secs(1);
/// Maximum number of times in a list of times.
pub const MAX_AT_TIMES: usize = 100;

/// The endpoint for which the headers of a schedule's request are encrypted. The origin endpoint of the request's URL may be
/// deleted and created again between two runs, so each run decrypts the headers and encrypts them for the origin endpoint
/// that it uses.
pub const HEADERS_SEALED_FOR: EndpointId = EndpointId(0);

/// Everything that the caller set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDefinition {
    /// Display name; may be empty.
    #[serde(default)]
    pub name: String,
    /// The occurrences.
    pub timing: ScheduleTiming,
    /// IANA name of the time zone in which a cron expression is evaluated.
    pub timezone: String,
    /// The event or request that each run creates.
    pub target: ScheduleTarget,
    /// The rule for an occurrence while the previous run has unfinished deliveries.
    #[serde(default)]
    pub overlap: Overlap,
    /// The rule for missed occurrences.
    #[serde(default)]
    pub missed: MissedRuns,
    /// There are no occurrences before this time. Fixed intervals are counted from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
    /// There are no occurrences after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// The schedule finishes when it has created this many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
}

/// The stored definition cannot be read: it was written by a later version, or damaged.
#[derive(Debug, thiserror::Error)]
#[error("the stored definition of the schedule cannot be read: {0}")]
pub struct UnreadableDefinition(serde_json::Error);

impl ScheduleDefinition {
    /// Reads the stored form.
    pub fn read(stored: &str) -> Result<ScheduleDefinition, UnreadableDefinition> {
        serde_json::from_str(stored).map_err(UnreadableDefinition)
    }

    /// Returns the stored form.
    pub fn stored(&self) -> String {
        serde_json::to_string(self).expect("a definition is always JSON")
    }
}

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleTiming {
    /// A cron expression, as the caller wrote it.
    Cron(String),
    /// A fixed interval.
    Every(Span),
    /// A list of times, ascending and without duplicates.
    At(Vec<Timestamp>),
}

/// The target of a schedule: each run creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleTarget {
    /// An event, delivered to all subscribed endpoints.
    Event(EventTarget),
    /// A one-off request.
    Request(RequestTarget),
}

impl ScheduleTarget {
    /// Returns the body of what each run creates.
    pub fn body(&self) -> &TargetBody {
        match self {
            ScheduleTarget::Event(target) => &target.body,
            ScheduleTarget::Request(target) => &target.body,
        }
    }
}

/// The event that each run creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTarget {
    /// Event type; valid.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Its payload.
    pub body: TargetBody,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
}

/// The one-off request that each run creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTarget {
    /// The request. Its headers are encrypted for [`HEADERS_SEALED_FOR`].
    pub request: OneOffRequest,
    /// Its body; empty if it has none.
    pub body: TargetBody,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
}

/// The payload of what a run creates. The debug output hides the bytes.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetBody {
    /// MIME type; absent for JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The bytes, exactly as the caller wrote them.
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
    pub bytes: Vec<u8>,
}

impl fmt::Debug for TargetBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TargetBody")
            .field("content_type", &self.content_type)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// Stored bytes: text where possible, because most payloads are JSON, and otherwise base64.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredBytes {
    Text(String),
    Base64(String),
}

fn write_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let stored = match std::str::from_utf8(bytes) {
        Ok(text) => StoredBytes::Text(text.to_owned()),
        Err(_) => StoredBytes::Base64(BASE64_STANDARD.encode(bytes)),
    };
    stored.serialize(serializer)
}

fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    match StoredBytes::deserialize(deserializer)? {
        StoredBytes::Text(text) => Ok(text.into_bytes()),
        StoredBytes::Base64(text) => BASE64_STANDARD.decode(text).map_err(de::Error::custom),
    }
}

/// The rule for an occurrence while the previous run has unfinished deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It runs.
    #[default]
    Allow,
    /// It is skipped.
    Skip,
}

/// The rule for occurrences at which the server was down or the schedule was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissedRuns {
    /// The latest of them runs.
    #[default]
    RunOnce,
    /// None of them runs.
    Skip,
    /// The latest of them run, at most [`MAX_DUE_PER_PLAN`](super::MAX_DUE_PER_PLAN).
    RunAll,
}
