//! Tenants: creates, changes and deletes them.
//!
//! [`GROUP`] is the part of the route table, with its handlers. A change is retried if another one came in between.
//! Deleting a tenant deletes its endpoints and keys, and is answered when no node sends to its endpoints any more.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Timestamp;
use posthaste_core::validation::{Fields, ValidationErrors};
use posthaste_engine::EngineError;
use posthaste_store::{CreateResult, Limits, ReplaceResult, Tenant};
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};

use super::auth::Caller;
use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::resources::schema::{nullable, reference};
use super::resources::{self, Schema, protection_schemas, tenant_schema};
use super::route::{
    Access, Call, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, run_to_completion,
    success,
};
use super::{App, audit_writer, body, body_fields, paging};
use crate::limits;
use crate::policy_schema;
use crate::resources::patterns;

/// Maximum length of a name.
const MAX_NAME_CHARS: usize = 200;
/// Maximum number of endpoints of a deleted tenant that are closed in parallel. They share commits.
const MAX_PARALLEL_CLOSES: usize = 256;
/// Maximum number of tries for a change that conflicts with other changes.
pub(super) const MAX_TRIES: usize = 8;

pub(super) static GROUP: Group = Group {
    name: "Tenants",
    about: "Tenants have separate events and endpoints. A tenant may have a `plan`, a set of limits in the configuration, and its own `limits`: a limit comes from the tenant, else from its plan, else from the server.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants",
            name: "create_tenant",
            summary: "Creates a tenant. You can choose the id; otherwise it is generated.",
            access: Access::Admin,
            query: &[],
            request_body: RequestBody::Json("NewTenant"),
            responses: &[success(201, "The tenant.", Content::Json("Tenant"))],
            fails: &[(409, Code::AlreadyExists)],
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants",
            name: "list_tenants",
            summary: "Lists tenants, newest first.",
            access: Access::Admin,
            query: &[LIMIT, cursor::<(Timestamp, TenantId)>()],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "A page of tenants.", Content::List("Tenant"))],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}",
            name: "get_tenant",
            summary: "Returns a tenant.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The tenant.", Content::Json("Tenant"))],
            fails: &[],
            handler: |call| Box::pin(show(call)),
        },
        Route {
            verb: Verb::Patch,
            path: "/v1/tenants/{tenant}",
            name: "update_tenant",
            summary: "Updates a tenant. Absent fields are not changed; `null` restores the default. Changing `plan` and `limits` requires an admin key.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("TenantChange"),
            responses: &[success(200, "The updated tenant.", Content::Json("Tenant"))],
            fails: &[(403, Code::Forbidden), (409, Code::Contended)],
            handler: |call| run_to_completion(change(call)),
        },
        Route {
            verb: Verb::Delete,
            path: "/v1/tenants/{tenant}",
            name: "delete_tenant",
            summary: "Deletes a tenant, its endpoints and its keys. Waiting deliveries fail. Requires an admin key.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(
                204,
                "The tenant is deleted. No more attempts of its deliveries are made.",
                Content::Nothing,
            )],
            fails: &[(403, Code::Forbidden)],
            handler: |call| run_to_completion(delete(call)),
        },
    ],
    schemas,
};

async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let now = app.clock.wall();
    let tenant = read_new(app, now, &document)?;
    match app.store.create_tenant(now, tenant.clone()).await? {
        CreateResult::Created => {
            app.forget_tenant(&tenant.id);
            let answer = body::answer(StatusCode::CREATED, &resources::Tenant::from(&tenant));
            Ok(audit_writer::with_created_id(&tenant.id, answer))
        }
        CreateResult::Taken => {
            let detail = format!(
                "The tenant {} already exists. Choose another id, or update that tenant.",
                tenant.id
            );
            Err(Problem::new(Code::AlreadyExists, detail))
        }
        CreateResult::NoSuchTenant | CreateResult::TooMany => {
            Err(Problem::internal(&"a tenant was refused for no reason"))
        }
    }
}

fn read_new(app: &App, now: Timestamp, document: &Value) -> Result<Tenant, Problem> {
    let mut errors = ValidationErrors::default();
    // A tenant's id has the format of the other ids. `TenantId` is text, so the id generator cannot make one directly.
    let made = app
        .new_id::<EndpointId>()
        .to_string()
        .replacen("ep", "ten", 1);
    let mut tenant = Tenant::new(
        made.parse().expect("a generated id is a valid tenant id"),
        String::new(),
        now,
    );
    body_fields::read(document, &mut errors, |fields| {
        match fields.text("id").map(str::parse::<TenantId>) {
            None => {}
            Some(Ok(id)) => tenant.id = id,
            Some(Err(error)) => fields.wrong("id", error.to_string()),
        }
        read_changes(app, document, fields, &mut tenant);
    });
    check(app, &mut tenant, &mut errors);
    if tenant.name.is_empty() {
        tenant.name = tenant.id.to_string();
    }
    errors.into_result(Some(tenant)).map_err(Problem::invalid)
}

/// Reads the fields of a tenant that can be changed.
fn read_changes(app: &App, document: &Value, fields: &mut Fields<'_, '_>, tenant: &mut Tenant) {
    let name = body_fields::text(fields, "name", MAX_NAME_CHARS);
    let id = tenant.id.to_string();
    body_fields::take(document, "name", name, || id, &mut tenant.name);
    let name = "default_retry_policy";
    let policy = body_fields::policy(fields, name).map(|(written, _)| written);
    body_fields::take_option(document, name, policy, &mut tenant.default_retry_policy);
    let plan = read_plan(app, fields);
    body_fields::take_option(document, "plan", plan, &mut tenant.plan);
    let defaults = &mut tenant.endpoint_defaults;
    defaults.change_object(fields, "endpoint_defaults");
    tenant.protection.change_object(fields, "protection");
    match document.get("limits") {
        Some(Value::Null) => {
            fields.value("limits");
            tenant.limits = Limits::default();
        }
        Some(limits) => {
            if let Some(inner) = fields.object("limits") {
                limits::read(limits, inner, app.settings.batch_bytes, &mut tenant.limits);
            }
        }
        None => {
            fields.value("limits");
        }
    }
}

/// Reads the name of a plan, which must be in the configuration.
fn read_plan(app: &App, fields: &mut Fields<'_, '_>) -> Option<String> {
    let plan = fields.text("plan")?;
    let named = &app.settings.plans.named;
    if !named.contains_key(plan) {
        let names: Vec<&str> = named.keys().map(String::as_str).collect();
        let message = match names.is_empty() {
            true => "must be null: the configuration has no plans".to_owned(),
            false => format!("must be null or one of the plans: {}", names.join(", ")),
        };
        fields.wrong("plan", message);
    }
    Some(plan.to_owned())
}

/// Checks fields that depend on each other.
fn check(app: &App, tenant: &mut Tenant, errors: &mut ValidationErrors) {
    let policy = tenant.default_retry_policy.as_ref();
    if let Some(Ok(policy)) = policy.map(RetryPolicy::from_json) {
        app.check_policy(&policy, tenant, "default_retry_policy", errors);
        app.make_readable(&mut tenant.default_retry_policy);
    }
}

async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let page = call.app.store.tenants(page).await?;
    Ok(paging::answer(page, |tenant| {
        resources::Tenant::from(&tenant)
    }))
}

async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let tenant = resources::Tenant::from(&call.tenant().tenant);
    Ok(body::answer(StatusCode::OK, &tenant))
}

async fn change(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let reserved = ["plan", "limits"];
    if let Some(name) = reserved.iter().find(|name| document.get(name).is_some()) {
        match call.caller {
            Caller::Admin(_) => {}
            Caller::Tenant(..) | Caller::Anonymous => {
                let detail = format!("Changing `{name}` requires an admin key.");
                return Err(Problem::new(Code::Forbidden, detail));
            }
        }
    }
    let id = &call.tenant().tenant.id;
    for _ in 0..MAX_TRIES {
        let stored = app.store.tenant(id.clone()).await?;
        let mut tenant = stored.ok_or_else(|| Problem::missing(ResourceKind::Tenant))?;
        let mut errors = ValidationErrors::default();
        body_fields::read(&document, &mut errors, |fields| {
            read_changes(app, &document, fields, &mut tenant);
        });
        check(app, &mut tenant, &mut errors);
        let tenant = errors.into_result(Some(tenant))?;
        let now = app.clock.wall();
        match app.store.replace_tenant(now, tenant.clone()).await? {
            ReplaceResult::Done => {
                app.forget_tenant(id);
                app.engine.tenant_changed(id.clone());
                return Ok(body::answer(
                    StatusCode::OK,
                    &resources::Tenant::from(&tenant),
                ));
            }
            ReplaceResult::Outdated => {}
            ReplaceResult::NotFound => return Err(Problem::missing(ResourceKind::Tenant)),
        }
    }
    Err(contended())
}

/// Concurrent changes of the same resource prevented this one.
pub(super) fn contended() -> Problem {
    Problem::new(
        Code::Contended,
        "The tenant is being changed by other requests. Nothing was changed; send the request again.",
    )
}

async fn delete(call: Call) -> Result<Response<Body>, Problem> {
    // A tenant's key gets here only for its own tenant; for it, other tenants are not found. So "forbidden"
    // reveals nothing.
    call.caller.must_be_admin()?;
    let app = &call.app;
    let id = call.tenant().tenant.id.clone();
    let now = app.clock.wall();
    let endpoints = app.store.delete_tenant(now, id.clone()).await?;
    app.forget_tenant(&id);
    app.forget_keys(|key| key.tenant.as_ref() == Some(&id));
    let endpoints = endpoints.ok_or_else(|| Problem::missing(ResourceKind::Tenant))?;
    let shut = close_endpoints(app, endpoints).await;
    shut.map(|()| body::nothing())
}

/// Informs the engine about endpoints that are already deleted in the store, so that nothing is sent to them
/// after the response. Continues with the other endpoints if one of them fails.
async fn close_endpoints(app: &App, endpoints: Vec<EndpointId>) -> Result<(), Problem> {
    let mut under_way = JoinSet::new();
    let mut first_error = Ok(());
    for endpoint in endpoints {
        if under_way.len() >= MAX_PARALLEL_CLOSES {
            first_error = first_error.and(joined(under_way.join_next().await));
        }
        let owner_router = app.owner_router.clone();
        let shut = async move {
            owner_router
                .set_status(endpoint, EndpointStatus::Deleted, None, None)
                .await
        };
        under_way.spawn(shut);
    }
    while !under_way.is_empty() {
        first_error = first_error.and(joined(under_way.join_next().await));
    }
    first_error
}

fn joined(ended: Option<Result<Result<(), EngineError>, JoinError>>) -> Result<(), Problem> {
    match ended {
        None => Ok(()),
        Some(Ok(changed)) => changed.map_err(Problem::from),
        Some(Err(error)) => Err(Problem::internal(&error)),
    }
}

fn schemas() -> Vec<Schema> {
    let fields = || {
        json!({
            "name": {"type": ["string", "null"], "maxLength": MAX_NAME_CHARS, "pattern": patterns::LINE},
            "default_retry_policy": nullable(reference("RetryPolicy")),
            "plan": {"type": ["string", "null"], "description": "One of the plans in the configuration. `GET /v1/plans` lists them."},
            "limits": nullable(reference("Limits")),
            "endpoint_defaults": nullable(reference("EndpointDefaults")),
            "protection": nullable(reference("Protection")),
        })
    };
    let mut new_fields = fields();
    new_fields["id"] = json!({
        "type": ["string", "null"], "pattern": patterns::TENANT_ID,
        "description": "Generated if absent.",
    });
    let [endpoint_defaults, protection] = protection_schemas();
    vec![
        Schema {
            name: "NewTenant",
            shape: json!({
                "type": "object",
                "properties": new_fields,
                "additionalProperties": false,
                "examples": [{"id": "acme", "name": "Acme"}, {}],
            }),
        },
        Schema {
            name: "TenantChange",
            shape: json!({
                "type": "object",
                "properties": fields(),
                "additionalProperties": false,
                "examples": [{"limits": {"events_per_second": 500}}, {"plan": null}, {"default_retry_policy": null}, {"endpoint_defaults": {"timeout": "10s"}, "protection": {"breaker": {"refusals": 20}}}],
            }),
        },
        tenant_schema(),
        endpoint_defaults,
        protection,
        Schema {
            name: "Limits",
            shape: resources::limits::shape(),
        },
        Schema {
            name: "RetryPolicy",
            shape: policy_schema::retry_policy(),
        },
    ]
}
