//! Schedules, their runs, and previews.

use posthaste_core::schedule::{MissedRuns, Overlap, ScheduleStatus};
use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::event::any_json;
use super::headers::Headers;
use super::schema::{
    Schema, integer, nullable_integer, nullable_text, nullable_time, object, optional, reference,
    text, time, with_examples,
};

/// A schedule. It has one of `cron`, `every` and `at`, and one of `event` and `request`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The fixed interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The list of times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<String>>,
    /// IANA name of its time zone.
    pub timezone: String,
    /// The event that each run creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<ScheduledEvent>,
    /// The one-off request that each run creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ScheduledRequest>,
    /// The rule for an occurrence while the previous run has unfinished deliveries.
    pub overlap: Overlap,
    /// The rule for missed occurrences.
    pub missed: MissedRuns,
    /// There are no occurrences before this time.
    pub starts_at: Option<String>,
    /// There are no occurrences after this time.
    pub ends_at: Option<String>,
    /// It finishes after this many runs.
    pub max_runs: Option<u32>,
    /// Its status.
    pub status: ScheduleStatus,
    /// The next occurrence; absent unless it is active.
    pub next_run_at: Option<String>,
    /// The time at which the last event was created.
    pub last_run_at: Option<String>,
    /// Number of events that it created.
    pub run_count: u64,
    /// The time at which it was created.
    pub created_at: String,
    /// Its timing in words.
    pub description: String,
    /// Number of its last runs, one after the other, whose deliveries failed.
    pub failed_runs: u32,
    /// The reason why a part of it cannot be read, and is missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The event that each run of a schedule creates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduledEvent {
    /// Its type.
    pub r#type: String,
    /// The payload, byte for byte, if it was sent as JSON.
    #[serde(
        default,
        deserialize_with = "any_json",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Box<RawValue>>,
    /// The payload in base64, if it was sent as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Media type of the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
}

/// The one-off request that each run of a schedule creates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduledRequest {
    /// The URL.
    pub url: String,
    /// The method.
    pub method: String,
    /// Its custom headers.
    pub headers: Headers,
    /// The payload, byte for byte, if it was sent as JSON.
    #[serde(
        default,
        deserialize_with = "any_json",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Box<RawValue>>,
    /// The payload in base64, if it was sent as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Media type of the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Its retry policy, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    /// Time limit of each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
}

/// A run: the outcome of one occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRun {
    /// The occurrence.
    pub scheduled_for: String,
    /// The time at which it was handled.
    pub started_at: String,
    /// Its outcome.
    pub status: ScheduleRunStatus,
    /// The event that was created.
    pub event_id: Option<String>,
    /// The deliveries of the event, at most 100.
    pub deliveries: Vec<String>,
    /// The reason why nothing was created.
    pub reason: Option<String>,
}

/// Maximum number of deliveries that are listed with a run.
pub(crate) const MAX_RUN_DELIVERIES: usize = 100;

/// The outcome of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleRunStatus {
    /// An event or a request was created.
    Created,
    /// Nothing was created, because of another run or because a limit refused it.
    Skipped,
    /// Nothing was created, because its time had passed.
    Missed,
}

impl From<posthaste_store::RunStatus> for ScheduleRunStatus {
    fn from(status: posthaste_store::RunStatus) -> ScheduleRunStatus {
        match status {
            posthaste_store::RunStatus::Created => ScheduleRunStatus::Created,
            posthaste_store::RunStatus::Skipped => ScheduleRunStatus::Skipped,
            posthaste_store::RunStatus::Missed => ScheduleRunStatus::Missed,
        }
    }
}

/// A timing in words, with its next occurrences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePreview {
    /// The timing in words.
    pub description: String,
    /// The next occurrences.
    pub next: Vec<String>,
}

/// Returns times as text.
pub(crate) fn times(times: &[Timestamp]) -> Vec<String> {
    times.iter().map(Timestamp::to_string).collect()
}

/// Returns the schemas of schedules in responses.
pub(crate) fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "Schedule",
            shape: schedule_schema(),
        },
        Schema {
            name: "ScheduledEvent",
            shape: scheduled_event_schema(),
        },
        Schema {
            name: "ScheduledRequest",
            shape: scheduled_request_schema(),
        },
        Schema {
            name: "ScheduleRun",
            shape: run_schema(),
        },
        Schema {
            name: "SchedulePreview",
            shape: with_examples(
                object(json!({
                    "description": {"type": "string", "description": "The timing in words."},
                    "next": {"type": "array", "items": time()},
                })),
                json!([{
                    "description": "At 09:00, Monday through Friday (Europe/Berlin)",
                    "next": ["2026-11-20T08:00:00.000Z", "2026-11-23T08:00:00.000Z"],
                }]),
            ),
        },
    ]
}

fn schedule_schema() -> Value {
    let mut shape = object(json!({
        "id": text(),
        "name": text(),
        "cron": {"type": "string", "description": "Exactly one of `cron`, `every` and `at` is present."},
        "every": text(),
        "at": {"type": "array", "items": time()},
        "timezone": {"type": "string", "description": "IANA name of the time zone."},
        "event": reference("ScheduledEvent"),
        "request": reference("ScheduledRequest"),
        "overlap": overlap_schema(),
        "missed": missed_schema(),
        "starts_at": nullable_time(),
        "ends_at": nullable_time(),
        "max_runs": nullable_integer(),
        "status": {"enum": ScheduleStatus::ALL.map(ScheduleStatus::name)},
        "next_run_at": {"type": ["string", "null"], "format": "date-time", "description": "Null unless the schedule is active."},
        "last_run_at": {"type": ["string", "null"], "format": "date-time", "description": "The time at which the last event or request was created."},
        "run_count": {"type": "integer", "description": "Number of events or requests created, including those of runs started manually."},
        "created_at": time(),
        "description": {"type": "string", "description": "The timing in words."},
        "failed_runs": {"type": "integer", "description": "Number of consecutive failed runs, counted back from the last one. A run fails if one of its deliveries fails or has not ended within 15 minutes, or if its event is rejected."},
        "error": {"type": "string", "description": "Present only if a part of the stored schedule cannot be read: the reason. That part is missing, and the schedule creates no events until it is set again."},
    }));
    for name in ["cron", "every", "at", "event", "request", "error"] {
        shape = optional(name, shape);
    }
    let example = json!({
        "id": "nightly", "name": "Nightly report", "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "event": {"type": "report.due", "payload": {"report": "sales"}},
        "overlap": "allow", "missed": "run_once", "starts_at": null, "ends_at": null,
        "max_runs": null, "status": "active", "next_run_at": "2026-11-20T08:00:00.000Z",
        "last_run_at": null, "run_count": 0, "created_at": "2026-11-19T12:00:00.000Z",
        "description": "At 09:00, Monday through Friday (Europe/Berlin)", "failed_runs": 0,
    });
    with_examples(shape, json!([example]))
}

fn scheduled_event_schema() -> Value {
    let mut shape = object(json!({
        "type": text(),
        "payload": {"description": "The payload, byte for byte as received."},
        "body_base64": text(),
        "content_type": text(),
        "ordering_key": text(),
    }));
    for name in ["payload", "body_base64", "content_type", "ordering_key"] {
        shape = optional(name, shape);
    }
    shape
}

fn scheduled_request_schema() -> Value {
    let mut shape = object(json!({
        "url": text(),
        "method": text(),
        "headers": {"type": "object", "additionalProperties": text()},
        "payload": {"description": "The payload, byte for byte as received."},
        "body_base64": text(),
        "content_type": text(),
        "retry_policy": reference("RetryPolicy"),
        "timeout": text(),
        "ordering_key": text(),
    }));
    for name in [
        "payload",
        "body_base64",
        "content_type",
        "retry_policy",
        "timeout",
        "ordering_key",
    ] {
        shape = optional(name, shape);
    }
    shape
}

fn run_schema() -> Value {
    let shape = object(json!({
        "scheduled_for": time(),
        "started_at": time(),
        "status": {"enum": ["created", "skipped", "missed"]},
        "event_id": nullable_text(),
        "deliveries": {
            "type": "array", "items": text(), "maxItems": MAX_RUN_DELIVERIES,
            "description": format!("The first {MAX_RUN_DELIVERIES} deliveries of the event, as long as they are stored."),
        },
        "reason": {"type": ["string", "null"], "description": "The reason why nothing was created: `previous_unfinished`, `late`, `paused`, `many_missed` (this run represents many missed occurrences), or the code of the error with which the event was rejected."},
    }));
    let example = json!({
        "scheduled_for": "2026-11-20T08:00:00.000Z", "started_at": "2026-11-20T08:00:00.012Z",
        "status": "created", "event_id": "evt_01kb2k5x8c0000r4q0m1v9t3zz",
        "deliveries": ["dlv_01kb2k5x8c0001jx5n8h2w6c4d"], "reason": null,
    });
    with_examples(shape, json!([example]))
}

/// The names of [`Overlap`].
pub(crate) fn overlap_schema() -> Value {
    json!({"enum": ["allow", "skip"], "description": "`skip`: an occurrence is skipped while the previous run has unfinished deliveries."})
}

/// The names of [`MissedRuns`].
pub(crate) fn missed_schema() -> Value {
    json!({"enum": ["run_once", "skip", "run_all"], "description": "What happens to occurrences while the server was down or the schedule was paused: the latest of them runs, none, or all (at most 100)."})
}

/// The schema of the number of runs.
pub(crate) fn max_runs_schema() -> Value {
    let mut shape = integer();
    shape["type"] = json!(["integer", "null"]);
    shape["minimum"] = json!(1);
    shape
}
