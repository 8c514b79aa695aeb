//! Reads the audit log: who did what, from where, and with which outcome.
//!
//! An admin sees all entries, including those of deleted tenants. A tenant sees all entries about itself, and
//! none of an earlier tenant with the same id. For actions of the operator it does not see the person, the
//! key or the address.

use axum::body::Body;
use http::Response;
use posthaste_core::id::{AuditId, KeyId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{AuditEntry, AuditFilter, AuditOutcome, AuditScope, Via};
use serde::Serialize;
use serde_json::json;

use super::auth::Caller;
use super::call::Call;
use super::delivery_view::Shown;
use super::paging::{self, Query};
use super::problem::Problem;
use super::route::{
    Access, CURSOR, Content, Group, LIMIT, Parameter, RequestBody, Route, Schema, SuccessResponse,
    Verb,
};
use super::trail;

pub(super) static GROUP: Group = Group {
    name: "Audit",
    about: "Who did what, from where, and what came of it. Entries are written before the act and completed after it; \
            otherwise they never change.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/audit",
            name: "list_audit",
            summary: "Lists what was done, by anybody and to anything, the newest first.",
            access: Access::Admin,
            query: &[TENANT, SINCE, UNTIL, LIMIT, CURSOR],
            takes: RequestBody::Nothing,
            gives: ENTRIES,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/audit",
            name: "list_tenant_audit",
            summary: "Lists what was done to a tenant and to what is its own, by anybody, the newest first.",
            access: Access::TenantKey,
            query: &[SINCE, UNTIL, LIMIT, CURSOR],
            takes: RequestBody::Nothing,
            gives: ENTRIES,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas,
};

const ENTRIES: &[SuccessResponse] = &[SuccessResponse {
    status: 200,
    about: "A page of entries.",
    content: Content::List("AuditEntry"),
}];

const TENANT: Parameter = Parameter {
    name: "tenant",
    about: "Only what concerned tenants of this id, the deleted ones too.",
    shape: || json!({"type": "string"}),
};

const SINCE: Parameter = Parameter {
    name: "since",
    about: "Only what was begun at this time or later.",
    shape: || json!({"type": "string", "format": "date-time"}),
};

const UNTIL: Parameter = Parameter {
    name: "until",
    about: "Only what was begun before this time.",
    shape: || json!({"type": "string", "format": "date-time"}),
};

/// The actor that tenants see for actions of the operator.
const OPERATOR: &str = "the operator";

/// `GET /v1/audit`.
async fn of_all(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let tenant: Option<TenantId> = query.parsed("tenant");
    let of = tenant.map_or(AuditScope::All, AuditScope::AnyWithId);
    list(&call, query, of).await
}

/// `GET …/audit`.
async fn of_tenant(call: Call) -> Result<Response<Body>, Problem> {
    let of = AuditScope::Tenant(call.tenant().tenant.id.clone());
    list(&call, call.query(), of).await
}

async fn list(call: &Call, mut query: Query, of: AuditScope) -> Result<Response<Body>, Problem> {
    let filter = AuditFilter {
        of,
        since: query.parsed("since"),
        until: query.parsed("until"),
    };
    let page = query.page();
    query.finish()?;
    let found = call.app.store.audit(filter, page).await?;
    let sees_all = match call.caller {
        Caller::Admin(_) => true,
        Caller::Tenant(..) | Caller::Nobody => false,
    };
    Ok(paging::answer(found, |entry| {
        let hides_nobody = trail::is_tenants_own(&entry) || entry.via == Via::Posthaste;
        EntryView::new(match sees_all || hides_nobody {
            true => entry,
            false => AuditEntry {
                actor: OPERATOR.to_owned(),
                actor_key: None,
                from: None,
                ..entry
            },
        })
    }))
}

/// An entry in an API response.
#[derive(Serialize)]
struct EntryView {
    id: Shown<AuditId>,
    at: Shown<Timestamp>,
    actor: String,
    key_id: Option<Shown<KeyId>>,
    via: &'static str,
    from: Option<String>,
    action: String,
    tenant_id: Option<Shown<TenantId>>,
    resource: String,
    outcome: Option<&'static str>,
    code: Option<String>,
}

impl EntryView {
    fn new(entry: AuditEntry) -> EntryView {
        let (outcome, code) = match entry.outcome {
            None => (None, None),
            Some(AuditOutcome::Done) => (Some("done"), None),
            Some(AuditOutcome::Refused(code)) => (Some("refused"), Some(code)),
        };
        EntryView {
            id: Shown(entry.id),
            at: Shown(entry.at),
            actor: entry.actor,
            key_id: entry.actor_key.map(Shown),
            via: word(entry.via),
            from: entry.from,
            action: entry.action,
            tenant_id: entry.tenant.map(Shown),
            resource: entry.resource,
            outcome,
            code,
        }
    }
}

fn word(via: Via) -> &'static str {
    match via {
        Via::Api => "api",
        Via::Page => "page",
        Via::Portal => "portal",
        Via::Cli => "cli",
        Via::Posthaste => "posthaste",
    }
}

fn schemas() -> Vec<Schema> {
    let text = json!({"type": "string"});
    let maybe = json!({"type": ["string", "null"]});
    let ways = [Via::Api, Via::Page, Via::Portal, Via::Cli, Via::Posthaste].map(word);
    vec![Schema {
        name: "AuditEntry",
        shape: json!({
            "type": "object",
            "required": [
                "id", "at", "actor", "key_id", "via", "from", "action", "tenant_id", "resource",
                "outcome", "code",
            ],
            "properties": {
                "id": {"type": "string", "pattern": "^aud_[0-9a-hjkmnp-tv-z]{26}$"},
                "at": {"type": "string", "format": "date-time"},
                "actor": {
                    "type": "string",
                    "description": "Tenants read `the operator` here of whoever runs the server, and neither key nor address.",
                },
                "key_id": maybe,
                "via": {
                    "enum": ways,
                    "description": "`posthaste` is what it did by itself, such as disabling an endpoint that kept failing; the action then is the name of a notice, such as `endpoint.disabled`.",
                },
                "from": maybe,
                "action": text,
                "tenant_id": maybe,
                "resource": {
                    "type": "string",
                    "description": "The path of what it was done to; of what was made, with its id.",
                },
                "outcome": {
                    "enum": ["done", "refused", null],
                    "description": "Null while it is under way, and if nobody knows what came of it.",
                },
                "code": {
                    "type": ["string", "null"],
                    "description": "Why it was refused.",
                },
            },
            "additionalProperties": false,
            "examples": [{
                "id": "aud_01jd2kq8z3w5x7y9a1b2c3d4e5", "at": "2026-01-02T03:04:05.678Z",
                "actor": "key of acme \"ci\"", "key_id": "key_01jd2kq8z3w5x7y9a1b2c3d4e5", "via": "api",
                "from": "198.51.100.7", "action": "pause_endpoint", "tenant_id": "acme",
                "resource": "/v1/tenants/acme/endpoints/ep_01jd2kq8z3w5x7y9a1b2c3d4e5/pause",
                "outcome": "done", "code": null,
            }],
        }),
    }]
}
