//! Limits and thresholds that endpoints inherit: `endpoint_defaults` and `protection`.
//!
//! The types of requests and responses are the same. An absent value is inherited from the next level: endpoint,
//! tenant, server. The bounds are those of the core, which validates them.

use posthaste_core::lane::{
    LimitOverrides, MAX_BREAKER_SPAN, MAX_EXHAUSTED, MAX_IN_FLIGHT, MAX_THRESHOLD, MAX_TIMEOUT,
    MIN_FAILURE_RATIO, MIN_TIMEOUT, MIN_WAIT, MIN_WINDOW,
};
use posthaste_core::time::{MAX_SPAN, Span};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::endpoint::{EndpointRateLimit, rate_limit_schema};
use super::schema::{Schema, described, named, nullable, span};

/// The limits of a tenant's endpoints that set none. An absent limit comes from the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointDefaults {
    /// Maximum duration of an attempt, such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Maximum number of attempts in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// The rate limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<EndpointRateLimit>,
}

impl EndpointDefaults {
    /// Returns the limits that a tenant sets, or `None` if it sets none.
    pub(crate) fn of(limits: &LimitOverrides) -> Option<EndpointDefaults> {
        (!limits.is_empty()).then(|| EndpointDefaults {
            timeout: limits.timeout.map(|timeout| timeout.to_string()),
            max_in_flight: limits.max_in_flight,
            rate_limit: limits.rate_limit.map(EndpointRateLimit::from),
        })
    }
}

/// Returns the schema of a timeout, in requests.
pub(crate) fn timeout_schema() -> Value {
    nullable(span("AttemptTimeout", MIN_TIMEOUT, MAX_TIMEOUT))
}

/// Returns the schema of an in-flight limit, in requests.
pub(crate) fn in_flight_schema() -> Value {
    json!({"type": ["integer", "null"], "minimum": 1, "maximum": MAX_IN_FLIGHT})
}

/// Returns the schemas of [`EndpointDefaults`] and of thresholds, in requests and responses.
pub(crate) fn schemas() -> [Schema; 2] {
    let count = |most: u32, about: &str| {
        json!({
            "type": ["integer", "null"], "minimum": 1, "maximum": most, "description": about,
        })
    };
    let after = span("DisableAfter", MIN_WAIT, MAX_SPAN);
    let warn_before = span("DisableWarning", Span::ZERO, MAX_SPAN);
    let window = span("BreakerWindow", MIN_WINDOW, MAX_BREAKER_SPAN);
    let wait = |about: &str| {
        let wait = span("BreakerWait", MIN_WAIT, MAX_BREAKER_SPAN);
        described(nullable(wait), about)
    };
    let disable = json!({
        "type": "object",
        "description": "When the endpoint is disabled automatically.",
        "properties": {
            "after": described(nullable(after), "Time for which every attempt has failed. Server default `5d`."),
            "warn_before": described(nullable(warn_before), "Minimum time between the warning and the disabling, at most `after`. Server default `1d`."),
            "on_gone": {"type": ["boolean", "null"], "description": "Disable at the first 410. Server default `true`."},
        },
        "additionalProperties": false,
    });
    let breaker = json!({
        "type": "object",
        "description": "When the breaker trips, and how often a tripped breaker probes.",
        "properties": {
            "window": described(nullable(window), "Period of the failure ratio."),
            "min_samples": count(MAX_THRESHOLD, "Minimum number of results in the window for the failure ratio to count."),
            "failure_ratio": {"type": ["number", "null"], "minimum": MIN_FAILURE_RATIO, "maximum": 1, "description": "Failure ratio in the window that trips the breaker."},
            "consecutive_failures": count(MAX_THRESHOLD, "Number of consecutive failures that trips the breaker."),
            "exhausted_deliveries": count(MAX_EXHAUSTED, "Number of deliveries that failed permanently within a day that trips the breaker, if fewer than half of the finished deliveries succeeded."),
            "refusals": count(MAX_THRESHOLD, "Number of refusals without a success in between that trips the breaker."),
            "first_wait": wait("Time from the trip to the first probe."),
            "longest_wait": wait("Maximum time between two probes, at least `first_wait`."),
        },
        "additionalProperties": false,
    });
    [
        Schema {
            name: "EndpointDefaults",
            shape: json!({
                "type": "object",
                "description": "Limits of the tenant's endpoints that do not set their own. A limit that is `null` or absent comes from `[endpoint_defaults]` of the server. Changes apply immediately.",
                "properties": {
                    "timeout": timeout_schema(),
                    "max_in_flight": in_flight_schema(),
                    "rate_limit": nullable(rate_limit_schema()),
                },
                "additionalProperties": false,
                "examples": [{"timeout": "10s", "max_in_flight": 20}],
            }),
        },
        Schema {
            name: "Protection",
            shape: json!({
                "type": "object",
                "description": "Thresholds that differ from the inherited ones. A threshold that is `null` or absent is the tenant's, or else the server's.",
                "properties": {
                    "disable": nullable(named("DisableThresholds", disable)),
                    "breaker": nullable(named("BreakerThresholds", breaker)),
                },
                "additionalProperties": false,
                "examples": [
                    {"disable": {"after": "5d", "warn_before": "1d", "on_gone": true}, "breaker": {"refusals": 100}},
                    {"disable": {"on_gone": null}, "breaker": null},
                ],
            }),
        },
    ]
}
