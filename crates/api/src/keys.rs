//! A tenant's API keys.
//!
//! A key is shown once, in the response to its creation; the store keeps only its hash. [`GROUP`] is the part of the
//! route table, with its handlers. Other nodes learn of a revoked key through the change log.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::KeyId;
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{ApiKey, CreateResult, PageRequest};
use posthaste_system::random::fresh_api_key;
use serde_json::json;

use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::quota::too_many_keys;
use super::resources::{self, Schema, api_key_schemas};
use super::route::{
    Access, Call, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, run_to_completion,
    success,
};
use super::{audit_writer, body, body_fields, paging};
use crate::hash_key;
use crate::resources::patterns;

/// Maximum length of a name.
const MAX_NAME_CHARS: usize = 200;
/// Maximum number of keys of a tenant.
const MAX_TENANT_KEYS: usize = 100;

pub(super) static GROUP: Group = Group {
    name: "Keys",
    about: "API keys of a tenant. A key gives access to its tenant only, and is shown once.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/keys",
            name: "create_key",
            summary: "Creates a key. Only this response contains it, because only its hash is stored.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("NewKey"),
            responses: &[success(
                201,
                "The key, shown once.",
                Content::Json("CreatedKey"),
            )],
            fails: &[(403, Code::QuotaExceeded)],
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/keys",
            name: "list_keys",
            summary: "Lists a tenant's keys, newest first, without their secret values.",
            access: Access::TenantKey,
            query: &[LIMIT, cursor::<KeyId>()],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "A page of keys.", Content::List("Key"))],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Delete,
            path: "/v1/tenants/{tenant}/keys/{key}",
            name: "revoke_key",
            summary: "Revokes a key.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(204, "The key is revoked.", Content::Nothing)],
            fails: &[],
            handler: |call| run_to_completion(revoke(call)),
        },
    ],
    schemas,
};

async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let mut errors = ValidationErrors::default();
    let mut name = None;
    body_fields::read(&document, &mut errors, |fields| {
        name = body_fields::text(fields, "name", MAX_NAME_CHARS);
    });
    let name = errors.into_result(Some(name.unwrap_or_default()))?;
    let app = &call.app;
    let tenant = call.tenant().tenant.id.clone();
    let all = PageRequest {
        limit: MAX_TENANT_KEYS,
        before: None,
    };
    let existing = app.store.keys(Some(tenant.clone()), all).await?;
    if existing.items.len() >= MAX_TENANT_KEYS {
        return Err(too_many_keys(MAX_TENANT_KEYS));
    }
    let plain = fresh_api_key();
    let now = app.clock.wall();
    let key = ApiKey {
        id: app.new_id(),
        tenant: Some(tenant),
        name,
        hash: hash_key(&plain),
        created_at: now,
    };
    match app.store.create_key(now, key.clone()).await? {
        CreateResult::Created => {
            let created = resources::ApiKey::from(&key).with_key(plain);
            let answer = body::answer_secret(StatusCode::CREATED, &created);
            Ok(audit_writer::with_created_id(key.id, answer))
        }
        CreateResult::NoSuchTenant => Err(Problem::missing(ResourceKind::Tenant)),
        CreateResult::Taken | CreateResult::TooMany => {
            Err(Problem::internal(&"a fresh key was refused"))
        }
    }
}

async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let tenant = call.tenant().tenant.id.clone();
    let page = call.app.store.keys(Some(tenant), page).await?;
    Ok(paging::answer(page, |key| resources::ApiKey::from(&key)))
}

async fn revoke(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let id: KeyId = call.id("key", ResourceKind::Key)?;
    let tenant = call.tenant().tenant.id.clone();
    let now = app.clock.wall();
    let revoked = app.store.revoke_key(now, Some(tenant), id).await?;
    app.forget_keys(|key| key.id == id);
    if revoked {
        Ok(body::nothing())
    } else {
        Err(Problem::missing(ResourceKind::Key))
    }
}

fn schemas() -> Vec<Schema> {
    let [created, key] = api_key_schemas();
    vec![
        Schema {
            name: "NewKey",
            shape: json!({
                "type": "object",
                "properties": {"name": {"type": ["string", "null"], "maxLength": MAX_NAME_CHARS, "pattern": patterns::LINE}},
                "additionalProperties": false,
                "examples": [{"name": "ci"}],
            }),
        },
        created,
        key,
    ]
}
