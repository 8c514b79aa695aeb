//! The schema of limits, of a tenant and of a plan.

use posthaste_core::policy::MAX_ATTEMPTS;
use posthaste_core::schedule::MIN_INTERVAL;
use posthaste_core::time::MAX_SPAN;
use serde_json::{Value, json};

use super::schema::{described, nullable, span};
use crate::limits::{
    MAX_DELIVERIES_PER_SECOND, MAX_ENDPOINTS, MAX_EVENTS_PER_MONTH, MAX_EVENTS_PER_SECOND,
    MAX_IN_FLIGHT, MAX_SCHEDULES, MAX_SHORTEST_SCHEDULE_INTERVAL, MIN_RETENTION,
};

/// Returns the JSON schema of limits, for the API description.
pub(crate) fn shape() -> Value {
    let retention = || nullable(span("Retention", MIN_RETENTION, MAX_SPAN));
    json!({
        "type": "object",
        "description": "Limits of a tenant. A limit that is `null` or absent comes from the tenant's plan, or else from the server. `GET /v1/tenants/{tenant}/usage` shows the effective limits.",
        "properties": {
            "endpoints": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_ENDPOINTS},
            "events_per_second": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_EVENTS_PER_SECOND, "description": "The burst is the number of events of one second."},
            "deliveries_per_second": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_DELIVERIES_PER_SECOND, "description": "Deliveries that its events may create per second, counted on each node after the events were accepted. While the limit is exceeded, events are rejected."},
            "events_per_month": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_EVENTS_PER_MONTH, "description": "Per calendar month, in UTC."},
            "payload_bytes": {"type": ["integer", "null"], "minimum": 1},
            "max_attempts": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_ATTEMPTS},
            "in_flight": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_IN_FLIGHT, "description": "Concurrent attempts to all endpoints, on all nodes."},
            "retention": described(retention(), "Retention of finished deliveries."),
            "payload_retention": described(retention(), "Retention of payloads after their event is finished, if shorter."),
            "attempt_retention": described(retention(), "Retention of all attempts except the last after their delivery is finished, if shorter."),
            "schedules": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_SCHEDULES, "description": "Number of schedules, including finished ones."},
            "shortest_schedule_interval": described(nullable(span("ShortestScheduleInterval", MIN_INTERVAL, MAX_SHORTEST_SCHEDULE_INTERVAL)), "Shortest interval between two occurrences of a new or changed schedule: a duration such as `1m`."),
        },
        "additionalProperties": false,
        "examples": [example()],
    })
}

/// Returns an example of limits.
pub(crate) fn example() -> Value {
    json!({
        "endpoints": 100, "events_per_second": 500, "deliveries_per_second": 5_000, "events_per_month": null,
        "payload_bytes": 1_048_576, "max_attempts": 30, "in_flight": 200, "retention": "30d",
        "payload_retention": null, "attempt_retention": null, "schedules": 100, "shortest_schedule_interval": "1m",
    })
}
