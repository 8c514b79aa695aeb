//! The resource of replays.
//!
//! [`Replay`] has the state and the progress of a replay, and [`ReplayFilter`] the filter that was requested, with
//! absent conditions left out.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_store::{ReplayScope, ReplayStatus, StoredStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::schema::{
    Schema, choice, endpoint_id, event_type, failure_kind, named, nullable, nullable_time, object,
    text, time, with_examples,
};

/// A replay and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: ReplayStatus,
    /// Number of deliveries to send, counted when it started.
    pub total: u64,
    /// Number of deliveries processed so far, started or skipped.
    pub replayed: u64,
    /// Number of those that were skipped.
    pub skipped: u64,
    /// The selection of what it sends again.
    pub filter: ReplayFilter,
    /// The time at which it started.
    pub created_at: String,
    /// The time at which it ended.
    pub finished_at: Option<String>,
}

/// The number of deliveries that a replay would send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayPreview {
    /// The number of deliveries.
    pub total: u64,
}

/// The filter of a replay, as it was requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFilter {
    /// Deliveries that ended with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Deliveries to this endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Deliveries of events of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Deliveries whose last attempt failed with this failure kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<FailureKind>,
    /// Deliveries of events that were accepted at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Deliveries of events that were accepted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Everything since this time that the endpoint did not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_since: Option<String>,
}

impl From<&posthaste_store::Replay> for Replay {
    fn from(replay: &posthaste_store::Replay) -> Replay {
        Replay {
            id: replay.id.to_string(),
            status: replay.status,
            total: replay.total,
            replayed: replay.replayed,
            skipped: replay.skipped,
            filter: ReplayFilter::from(&replay.filter),
            created_at: replay.created_at.to_string(),
            finished_at: replay.finished_at.map(|at| at.to_string()),
        }
    }
}

impl From<&posthaste_store::ReplayFilter> for ReplayFilter {
    fn from(filter: &posthaste_store::ReplayFilter) -> ReplayFilter {
        let since = filter.since.map(|at| at.to_string());
        let (status, since, missed_since) = match filter.scope {
            ReplayScope::Ended(status) => (Some(without_flight(status)), since, None),
            ReplayScope::Missed => (None, None, since),
        };
        ReplayFilter {
            status,
            endpoint: filter.endpoint.map(|id| id.to_string()),
            event_type: filter.event_type.as_ref().map(|it| it.to_string()),
            error_kind: filter.error_kind,
            since,
            until: filter.until.map(|at| at.to_string()),
            missed_since,
        }
    }
}

/// Returns a stored status as a status. The store does not know which deliveries are in flight.
fn without_flight(status: StoredStatus) -> Status {
    match status {
        StoredStatus::Pending => Status::Pending,
        StoredStatus::Retrying => Status::Retrying,
        StoredStatus::Held => Status::Held,
        StoredStatus::Succeeded => Status::Succeeded,
        StoredStatus::Failed => Status::Failed,
        StoredStatus::Cancelled => Status::Cancelled,
    }
}

/// Returns the schemas of replays.
pub(crate) fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "NewReplay",
            shape: new_replay_schema(),
        },
        Schema {
            name: "ReplayPreview",
            shape: with_examples(
                object(json!({
                    "total": {"type": "integer", "minimum": 0, "description": "Number of matching deliveries now."},
                })),
                json!([{"total": 50}]),
            ),
        },
        Schema {
            name: "Replay",
            shape: object(json!({
                "id": text(),
                "status": choice("ReplayStatus", ["running", "done", "cancelled"]),
                "total": {"type": "integer", "description": "Number of matching deliveries at the start."},
                "replayed": {"type": "integer", "description": "Number of deliveries processed so far."},
                "skipped": {"type": "integer", "description": "Number of processed deliveries that were skipped: their endpoint is disabled or deleted, they were sent again in the meantime, or their payload was removed."},
                "filter": named("ReplayFilter", filter_schema(|schema| schema)),
                "created_at": time(),
                "finished_at": nullable_time(),
            })),
        },
    ]
}

fn new_replay_schema() -> Value {
    let mut schema = filter_schema(nullable);
    let is_set = |names: &[&str]| {
        let properties = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})));
        json!({
            "required": names,
            "properties": Value::Object(properties.collect::<Map<String, Value>>()),
        })
    };
    let mut without_endpoint = is_set(&["missed_since"]);
    without_endpoint["properties"]["endpoint"] = json!({"type": "null"});
    schema["not"] = json!({"anyOf": [
        without_endpoint,
        is_set(&["missed_since", "status"]),
        is_set(&["missed_since", "error_kind"]),
        is_set(&["missed_since", "since"]),
    ]});
    schema["description"] = json!(
        "`status` is failed (default), succeeded or cancelled. `missed_since` requires `endpoint` and replays what the endpoint missed: failed deliveries, and matching events that it never received."
    );
    schema["examples"] = json!([{"status": "failed", "since": "2026-11-15T00:00:00Z"}]);
    schema
}

/// Returns the schema of a filter. `each` changes the schema of each property.
fn filter_schema(each: fn(Value) -> Value) -> Value {
    let status = choice("ReplayableStatus", ["failed", "succeeded", "cancelled"]);
    json!({
        "type": "object",
        "properties": {
            "status": each(status),
            "endpoint": each(endpoint_id()),
            "event_type": each(event_type()),
            "error_kind": each(failure_kind()),
            "since": each(time()),
            "until": each(time()),
            "missed_since": each(time()),
        },
        "additionalProperties": false,
    })
}
