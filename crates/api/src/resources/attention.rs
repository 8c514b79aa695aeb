//! Endpoints that need attention.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EndpointStatus;
use super::schema::{Schema, choice, endpoint_status, named, object, text};

/// Maximum number of endpoints in a response.
pub(crate) const MAX_ATTENTION_ITEMS: usize = 100;

/// The endpoints that need attention, the most urgent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The endpoints.
    pub data: Vec<AttentionItem>,
}

/// An endpoint that needs attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionItem {
    /// Id of its tenant.
    pub tenant_id: String,
    /// Its id.
    pub endpoint_id: String,
    /// Its URL.
    pub url: String,
    /// Its status.
    pub status: EndpointStatus,
    /// The reason why it needs attention.
    pub reason: AttentionReason,
    /// The time since which all attempts failed, if it is known.
    pub since: Option<String>,
    /// The problem, in words.
    pub detail: String,
    /// Number of waiting deliveries.
    pub pending: u64,
    /// Ratio of recent attempts that succeeded; 1 if none are remembered.
    pub success_ratio: f64,
    /// The time of the last failed attempt, if one is remembered.
    pub last_failure_at: Option<String>,
}

/// The reason why an endpoint needs attention, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionReason {
    /// posthaste has disabled it. New events are not delivered to it.
    Disabled,
    /// Its breaker has tripped, and deliveries wait.
    BreakerTripped,
    /// It fails often, but the breaker has not tripped.
    Failing,
    /// A limit, not the receiver, has held its deliveries back for long.
    Limited,
    /// A person has paused it. Deliveries wait until it is resumed.
    Paused,
}

impl AttentionReason {
    /// Every reason, the most urgent first.
    pub const ALL: [AttentionReason; 5] = [
        AttentionReason::Disabled,
        AttentionReason::BreakerTripped,
        AttentionReason::Failing,
        AttentionReason::Limited,
        AttentionReason::Paused,
    ];

    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            AttentionReason::Disabled => "disabled",
            AttentionReason::BreakerTripped => "breaker_tripped",
            AttentionReason::Failing => "failing",
            AttentionReason::Limited => "limited",
            AttentionReason::Paused => "paused",
        }
    }
}

/// Returns the schema of [`Attention`].
pub(crate) fn schemas() -> Vec<Schema> {
    let time = |about: &str| json!({"type": ["string", "null"], "format": "date-time", "description": about});
    let item = object(json!({
        "tenant_id": text(),
        "endpoint_id": text(),
        "url": text(),
        "status": endpoint_status(),
        "reason": choice("AttentionReason", AttentionReason::ALL.map(AttentionReason::name)),
        "since": time("Start of uninterrupted failure, if known."),
        "detail": {"type": "string", "description": "Description of the problem."},
        "pending": {
            "type": "integer", "minimum": 0, "description": "Number of waiting deliveries.",
        },
        "success_ratio": {
            "type": "number",
            "description": "Share of recent attempts that succeeded; 1 if there are none, as after a restart.",
        },
        "last_failure_at": time("Time of the last failed attempt; null if unknown."),
    }));
    vec![Schema {
        name: "Attention",
        shape: object(json!({
            "data": {"type": "array", "maxItems": MAX_ATTENTION_ITEMS, "items": named("AttentionItem", item)},
        })),
    }]
}
