//! Dead letters, grouped by endpoint and failure kind.

use posthaste_core::classify::FailureKind;
use posthaste_core::policy::RetryPolicy;
use posthaste_store::{BoundedCount, MAX_GROUP_COUNT};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::held_back::DeliveryHold;

use super::EndpointStatus;
use super::delivery::DeliverySummary;
use super::schema::{Schema, choice, described, failure_kind, nullable, object, reference, text};

/// The dead letters of one endpoint with one failure kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterGroup {
    /// Id of the endpoint.
    pub endpoint_id: String,
    /// Current URL of the endpoint.
    pub endpoint_url: String,
    /// Current status of the endpoint.
    pub endpoint_status: EndpointStatus,
    /// Failure kind of the last attempt of each.
    pub error_kind: Option<FailureKind>,
    /// Number of deliveries; if it is not exact, there are more.
    pub count: u64,
    /// True if `count` is the exact number.
    pub count_is_exact: bool,
    /// The time at which the event of the newest was accepted.
    pub newest_at: String,
    /// The time at which the event of the oldest was accepted.
    pub oldest_at: String,
    /// The newest.
    pub newest: DeliverySummary,
}

impl DeadLetterGroup {
    /// Describes a group. `policy` is the effective retry policy of the endpoint.
    pub fn new(group: posthaste_store::DeadLetterGroup, policy: &RetryPolicy) -> DeadLetterGroup {
        let (count, count_is_exact) = match group.count {
            BoundedCount::Exactly(count) => (count, true),
            BoundedCount::MoreThan(count) => (count, false),
        };
        DeadLetterGroup {
            endpoint_id: group.endpoint.to_string(),
            endpoint_url: group.url,
            endpoint_status: group.status,
            error_kind: group.error_kind,
            count: count as u64,
            count_is_exact,
            newest_at: group.newest.created_at.to_string(),
            oldest_at: group.oldest_at.to_string(),
            // A dead-lettered delivery is not in flight.
            newest: DeliverySummary::new(
                &group.newest,
                false,
                policy,
                DeliveryHold::none(group.oldest_at),
            ),
        }
    }
}

/// Returns the schema of [`DeadLetterGroup`].
pub(crate) fn schemas() -> Vec<Schema> {
    let time = |about| json!({"type": "string", "format": "date-time", "description": about});
    vec![Schema {
        name: "DeadLetterGroup",
        shape: object(json!({
            "endpoint_id": text(),
            "endpoint_url": {"type": "string", "description": "Current URL of the endpoint."},
            "endpoint_status": described(
                choice("DeadLetterEndpointStatus", ["enabled", "paused", "disabled", "deleted"]),
                "Deliveries to a disabled or deleted endpoint cannot be replayed.",
            ),
            "error_kind": described(nullable(failure_kind()), "Kind of their last failure."),
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_GROUP_COUNT,
                "description": "Number of deliveries; a lower bound unless `count_is_exact`.",
            },
            "count_is_exact": {"type": "boolean"},
            "newest_at": time("Time when the newest event was accepted."),
            "oldest_at": time("Time when the oldest event was accepted."),
            "newest": reference("DeliverySummary"),
        })),
    }]
}
