//! The resource of an endpoint's health.
//!
//! [`EndpointHealth`] has its breaker, its backlog, its recent results, the reason why deliveries are held back, and
//! the limits in force after adaptive protection.

use posthaste_core::lane::{HeldBackBy, TripReason};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{
    Schema, choice, held_back_by, named, nullable, nullable_time, object, with_examples,
};

/// The breaker, the backlog and the recent results of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointHealth {
    /// Its breaker.
    pub breaker: EndpointBreaker,
    /// Number of waiting deliveries.
    pub pending: u64,
    /// Number of attempts in flight.
    pub in_flight: u32,
    /// The time of the next attempt, if it is known.
    pub next_attempt_at: Option<String>,
    /// Number of failed attempts since the last success.
    pub consecutive_failures: u32,
    /// Ratio of recent attempts that succeeded; 1 if there were none.
    pub success_ratio: f64,
    /// Latency of recent attempts.
    pub latency_ms: LatencyQuantiles,
    /// The reason why due deliveries are not sent now; `None` if none waits.
    pub held_back_by: Option<HeldBackBy>,
    /// The earliest time at which that can end, if it is known.
    pub held_back_until: Option<String>,
    /// The limits after adaptive protection.
    pub limits_in_force: LimitsInForce,
    /// The end of the pause that the receiver asked for with `Retry-After`, if it is not over.
    pub quiet_until: Option<String>,
}

/// The limits of an endpoint after adaptive protection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitsInForce {
    /// Maximum number of attempts in flight.
    pub in_flight: u32,
    /// Maximum rate, in requests per second.
    pub per_second: f64,
}

/// The breaker of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointBreaker {
    /// Its state.
    pub state: BreakerState,
    /// The time of the first probe, while it is tripped.
    pub until: Option<String>,
    /// The reason why it tripped.
    pub reason: Option<TripReason>,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts are made.
    Passing,
    /// Deliveries are held.
    Tripped,
    /// One attempt is made as a probe.
    Probing,
}

/// Quantiles of latencies, in milliseconds; `None` without attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyQuantiles {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// Returns the schema of [`EndpointHealth`].
pub(crate) fn schema() -> Schema {
    let number = json!({"type": ["number", "null"]});
    let count = json!({"type": "integer", "minimum": 0});
    let shape = object(json!({
        "breaker": named("BreakerStatus", object(json!({
            "state": choice("BreakerState", ["passing", "tripped", "probing"]),
            "until": nullable_time(),
            "reason": nullable(choice(
                "BreakerReason",
                ["failure_ratio", "consecutive_failures", "exhausted_deliveries", "refusals"],
            )),
        }))),
        "pending": count,
        "in_flight": count,
        "next_attempt_at": nullable_time(),
        "consecutive_failures": count,
        "success_ratio": {"type": "number", "minimum": 0, "maximum": 1},
        "latency_ms": named("LatencyPercentiles", object(json!({"p50": number, "p99": number}))),
        "held_back_by": held_back_by(),
        "held_back_until": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "Earliest time at which that can end, if known.",
        },
        "limits_in_force": named("LimitsInForce", object(json!({
            "in_flight": {"type": "integer", "minimum": 1},
            "per_second": {"type": "number", "minimum": 0},
        }))),
        "quiet_until": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "End of the wait that the receiver requested with Retry-After.",
        },
    }));
    let example = json!({
        "breaker": {"state": "passing", "until": null, "reason": null},
        "pending": 0, "in_flight": 0, "next_attempt_at": null, "consecutive_failures": 0,
        "success_ratio": 1.0, "latency_ms": {"p50": 12.5, "p99": 80.0},
        "held_back_by": null, "held_back_until": null,
        "limits_in_force": {"in_flight": 10, "per_second": 100.0}, "quiet_until": null,
    });
    let held_back = json!({
        "breaker": {"state": "passing", "until": null, "reason": null},
        "pending": 240, "in_flight": 1, "next_attempt_at": "2026-01-15T09:30:00.500Z", "consecutive_failures": 0,
        "success_ratio": 1.0, "latency_ms": {"p50": 12.5, "p99": 80.0},
        "held_back_by": "rate_limit", "held_back_until": "2026-01-15T09:30:00.500Z",
        "limits_in_force": {"in_flight": 10, "per_second": 2.0}, "quiet_until": null,
    });
    Schema {
        name: "EndpointHealth",
        shape: with_examples(shape, json!([example, held_back])),
    }
}
