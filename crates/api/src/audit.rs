//! Reads the audit log: who did what, from where, and with which outcome.
//!
//! An admin sees all entries, including those of deleted tenants. A tenant sees all entries about itself, and
//! none of an earlier tenant with the same id. For actions of the operator it does not see the person, the
//! key or the address.

use axum::body::Body;
use http::Response;
use posthaste_core::id::{AuditId, TenantId};
use posthaste_store::{ActionInterface, AuditEntry, AuditFilter, AuditScope};
use serde_json::json;

use super::audit_writer;
use super::auth::Caller;
use super::paging::{self, Query};
use super::problem::Problem;
use super::resources::{self, audit_schemas};
use super::route::{
    Access, Call, Content, Group, LIMIT, Parameter, RequestBody, Route, SuccessResponse, Verb,
    cursor, parameter, success,
};
use crate::resources::schema::tenant_id;

pub(super) static GROUP: Group = Group {
    name: "Audit",
    about: "Changes by users and by posthaste itself: actor, action, origin and outcome. An entry is written before the action and completed with the outcome afterwards. It never changes after that.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/audit",
            name: "list_audit",
            summary: "Lists all audit entries, newest first.",
            access: Access::Admin,
            query: &[TENANT, SINCE, UNTIL, LIMIT, cursor::<AuditId>()],
            request_body: RequestBody::Nothing,
            responses: ENTRIES,
            fails: &[],
            handler: |call| Box::pin(of_all(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/audit",
            name: "list_tenant_audit",
            summary: "Lists the audit entries of a tenant and its resources, newest first.",
            access: Access::TenantKey,
            query: &[SINCE, UNTIL, LIMIT, cursor::<AuditId>()],
            request_body: RequestBody::Nothing,
            responses: ENTRIES,
            fails: &[],
            handler: |call| Box::pin(of_tenant(call)),
        },
    ],
    schemas: audit_schemas,
};

const ENTRIES: &[SuccessResponse] = &[success(
    200,
    "A page of entries.",
    Content::List("AuditEntry"),
)];

const TENANT: Parameter = parameter(
    "tenant",
    "Only entries of this tenant id, including deleted tenants.",
    tenant_id,
);

const SINCE: Parameter = parameter(
    "since",
    "Only actions started at this time or later.",
    || json!({"type": "string", "format": "date-time"}),
);

const UNTIL: Parameter = parameter(
    "until",
    "Only actions started before this time.",
    || json!({"type": "string", "format": "date-time"}),
);

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
        Caller::Tenant(..) | Caller::Anonymous => false,
    };
    Ok(paging::answer(found, |entry| {
        let is_visible =
            audit_writer::is_by_tenant(&entry) || entry.via == ActionInterface::Posthaste;
        resources::AuditEntry::from(match sees_all || is_visible {
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
