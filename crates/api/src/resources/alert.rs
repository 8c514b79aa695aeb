//! The resource of alerts.
//!
//! [`Alert`] is an open or resolved alert, with its scope, its value and its threshold. Its schema is beside it; a test
//! compares the two.

use posthaste_core::alert::AlertName;
use posthaste_notify::alert_text;
use posthaste_notify::runbook;
use posthaste_store::SubjectScope;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::patterns;
use super::schema::{
    Schema, choice, matching, named, nullable_text, nullable_time, object, time, with_examples,
};

/// An alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Its id.
    pub id: String,
    /// Its name, such as `retry_ratio`.
    pub name: String,
    /// Its subject.
    pub scope: AlertScope,
    /// Its state.
    pub state: AlertState,
    /// The time at which it was raised.
    pub raised_at: String,
    /// The time at which it was resolved.
    pub resolved_at: Option<String>,
    /// The value that raised it.
    pub value: Option<f64>,
    /// The threshold of that value.
    pub threshold: Option<f64>,
    /// The current value, if the alert is open and its value is known.
    pub current: Option<f64>,
    /// The worst value since it was raised, as far as stats are kept.
    pub peak: Option<f64>,
    /// The earliest time at which an open alert is resolved, while its value is normal.
    pub clears_at: Option<String>,
    /// The condition under which an open alert is resolved, in words.
    pub clears_when: Option<String>,
    /// The problem, in words.
    pub message: String,
    /// The section of the runbook.
    pub runbook: String,
    /// Everything that was known when it was raised.
    pub detail: Value,
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// The problem persists.
    Open,
    /// The problem is over.
    Resolved,
}

impl std::str::FromStr for AlertState {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<AlertState, &'static str> {
        match text {
            "open" => Ok(AlertState::Open),
            "resolved" => Ok(AlertState::Resolved),
            _ => Err("must be open or resolved"),
        }
    }
}

/// The subject of an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertScope {
    /// The kind of subject: `everything`, `tenant` or `endpoint`.
    pub kind: String,
    /// Id of the tenant.
    pub tenant_id: Option<String>,
    /// Id of the endpoint.
    pub endpoint_id: Option<String>,
}

impl From<posthaste_store::Alert> for Alert {
    fn from(alert: posthaste_store::Alert) -> Alert {
        let (message, runbook) = (alert_text::message(&alert), runbook::section(alert.name));
        let (kind, endpoint) = match alert.scope {
            SubjectScope::Everything => ("everything", None),
            SubjectScope::Tenant(_) => ("tenant", None),
            SubjectScope::Endpoint(endpoint) => ("endpoint", Some(endpoint)),
        };
        let number = |name: &str| alert.detail.get(name).and_then(Value::as_f64);
        Alert {
            id: alert.id.to_string(),
            name: alert.name.name().to_owned(),
            scope: AlertScope {
                kind: kind.to_owned(),
                tenant_id: alert.tenant.map(|id| id.to_string()),
                endpoint_id: endpoint.map(|id| id.to_string()),
            },
            state: match alert.resolved_at {
                None => AlertState::Open,
                Some(_) => AlertState::Resolved,
            },
            raised_at: alert.raised_at.to_string(),
            resolved_at: alert.resolved_at.map(|at| at.to_string()),
            value: number("value"),
            threshold: number("threshold"),
            current: None,
            peak: number("value"),
            clears_at: None,
            clears_when: None,
            message,
            runbook,
            detail: alert.detail,
        }
    }
}

/// Returns the schema of the name of an alert.
pub(crate) fn alert_name() -> Value {
    choice("AlertName", AlertName::ALL.map(AlertName::name))
}

/// Returns the schema of the state of an alert.
pub(crate) fn alert_state() -> Value {
    choice("AlertState", ["open", "resolved"])
}

/// Returns the schema of [`Alert`].
pub(crate) fn schemas() -> Vec<Schema> {
    let number = json!({"type": ["number", "null"]});
    let shape = object(json!({
        "id": matching(patterns::id("alr")),
        "name": alert_name(),
        "scope": named("AlertScope", object(json!({
            "kind": choice("AlertScopeKind", ["everything", "tenant", "endpoint"]),
            "tenant_id": nullable_text(),
            "endpoint_id": nullable_text(),
        }))),
        "state": alert_state(),
        "raised_at": time(),
        "resolved_at": nullable_time(),
        "value": number,
        "threshold": number,
        "current": {"type": ["number", "null"], "description": "The current value of an open alert, if it is known. For `breaker_tripped`: 1 while the breaker is tripped, 0 after it has closed."},
        "peak": {"type": ["number", "null"], "description": "The worst value since the alert was raised."},
        "clears_at": {"type": ["string", "null"], "format": "date-time", "description": "The earliest time at which an open alert is resolved, while its value is normal."},
        "clears_when": {"type": ["string", "null"], "description": "The condition under which an open alert is resolved."},
        "message": {"type": "string", "description": "Description of the problem."},
        "runbook": {"type": "string", "description": "Path of the section of the runbook on this server."},
        "detail": {"type": "object", "description": "The values when the alert was raised."},
    }));
    let example = json!({
        "id": "alr_01jd2kq8z3w5x7y9a1b2c3d4e5", "name": "retry_ratio",
        "scope": {"kind": "tenant", "tenant_id": "acme", "endpoint_id": null},
        "state": "open", "raised_at": "2026-01-02T03:04:05.678Z", "resolved_at": null,
        "value": 0.25, "threshold": 0.1, "current": 0.18, "peak": 0.31, "clears_at": null,
        "clears_when": "when the value has been at most 10 % for 5 min",
        "message": "Retry rate is 25 % over the last hour (threshold 10 %).",
        "runbook": "/docs/operations#retry_ratio",
        "detail": {"value": 0.25, "threshold": 0.1, "window": "1h", "samples": 480},
    });
    vec![Schema {
        name: "Alert",
        shape: with_examples(shape, json!([example])),
    }]
}
