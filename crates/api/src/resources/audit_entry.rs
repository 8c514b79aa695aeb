//! The resource of entries of the audit log.
//!
//! [`AuditEntry`] names the actor, the action, the resource and the result. It contains no secret and no request body.

use posthaste_store::{ActionInterface, AuditOutcome};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::patterns;
use super::schema::{
    Schema, choice, described, matching, nullable, nullable_text, object, text, time, with_examples,
};

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its id.
    pub id: String,
    /// The time at which the action began.
    pub at: String,
    /// The person or key that acted.
    pub actor: String,
    /// Id of the key.
    pub key_id: Option<String>,
    /// The interface that was used.
    pub via: String,
    /// The address of the caller.
    pub from: Option<String>,
    /// The action.
    pub action: String,
    /// Id of the tenant that was concerned.
    pub tenant_id: Option<String>,
    /// Path of the resource.
    pub resource: String,
    /// The outcome: `done` or `refused`; `None` while it is unknown.
    pub outcome: Option<String>,
    /// The error code of a refused request.
    pub code: Option<String>,
}

impl From<posthaste_store::AuditEntry> for AuditEntry {
    fn from(entry: posthaste_store::AuditEntry) -> AuditEntry {
        let (outcome, code) = match entry.outcome {
            None => (None, None),
            Some(AuditOutcome::Done) => (Some("done"), None),
            Some(AuditOutcome::Refused(code)) => (Some("refused"), Some(code)),
        };
        AuditEntry {
            id: entry.id.to_string(),
            at: entry.at.to_string(),
            actor: entry.actor,
            key_id: entry.actor_key.map(|id| id.to_string()),
            via: via_name(entry.via).to_owned(),
            from: entry.from,
            action: entry.action,
            tenant_id: entry.tenant.map(|id| id.to_string()),
            resource: entry.resource,
            outcome: outcome.map(str::to_owned),
            code,
        }
    }
}

fn via_name(via: ActionInterface) -> &'static str {
    match via {
        ActionInterface::Api => "api",
        ActionInterface::Page => "page",
        ActionInterface::Portal => "portal",
        ActionInterface::Cli => "cli",
        ActionInterface::Posthaste => "posthaste",
    }
}

/// Returns the schema of [`AuditEntry`].
pub(crate) fn schemas() -> Vec<Schema> {
    let ways = [
        ActionInterface::Api,
        ActionInterface::Page,
        ActionInterface::Portal,
        ActionInterface::Cli,
        ActionInterface::Posthaste,
    ]
    .map(via_name);
    let shape = object(json!({
        "id": matching(patterns::id("aud")),
        "at": time(),
        "actor": {
            "type": "string",
            "description": "Tenants see `the operator` for actions of the operator, without key or address.",
        },
        "key_id": nullable_text(),
        "via": described(choice("AuditInterface", ways), "`posthaste` for automatic actions, such as disabling an endpoint that kept failing; the action is then the name of a notification, such as `endpoint.disabled`."),
        "from": nullable_text(),
        "action": text(),
        "tenant_id": nullable_text(),
        "resource": {
            "type": "string",
            "description": "Path of the resource; with its id if it was created.",
        },
        "outcome": described(
            nullable(choice("AuditOutcome", ["done", "refused"])),
            "Null while in progress, and if the outcome is unknown.",
        ),
        "code": {
            "type": ["string", "null"],
            "description": "Code of the error if the request was rejected.",
        },
    }));
    let example = json!({
        "id": "aud_01jd2kq8z3w5x7y9a1b2c3d4e5", "at": "2026-01-02T03:04:05.678Z",
        "actor": "key of acme \"ci\"", "key_id": "key_01jd2kq8z3w5x7y9a1b2c3d4e5", "via": "api",
        "from": "198.51.100.7", "action": "pause_endpoint", "tenant_id": "acme",
        "resource": "/v1/tenants/acme/endpoints/ep_01jd2kq8z3w5x7y9a1b2c3d4e5/pause",
        "outcome": "done", "code": null,
    });
    vec![Schema {
        name: "AuditEntry",
        shape: with_examples(shape, json!([example])),
    }]
}
