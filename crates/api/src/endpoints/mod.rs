//! Endpoints: the URLs that events are delivered to.
//!
//! [`GROUP`] is their part of the route table, and this module has its handlers. A change is written with the revision
//! that was read, so concurrent changes are not lost. A change of the status is passed to the owner of the endpoint,
//! and is answered when it is persisted.

mod auth;
mod auth_schemas;
mod consistency;
mod form;
pub(crate) mod headers;
mod health;
mod owner;
mod response;
pub(crate) mod schemas;
pub(crate) mod secret;

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_engine::signing_keys::{SigningKeyring, reveal};
use posthaste_store::{CreateResult, DisabledReason, Endpoint, EndpointRow, ReplaceResult};

use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::quota::too_many_endpoints;
use super::resources::{CreatedEndpoint, public_key};
use super::route::{
    Access, Call, Content, Group, Handler, LIMIT, Parameter, RequestBody, Route, SuccessResponse,
    Verb, cursor, run_to_completion, success,
};
use super::tenants::{MAX_TRIES, contended};
use super::{audit_writer, body, paging};
use response::{describe, seal_credentials, seal_headers};

const ALL: &str = "/v1/tenants/{tenant}/endpoints";
const ONE: &str = "/v1/tenants/{tenant}/endpoints/{endpoint}";

pub(super) static GROUP: Group = Group {
    name: "Endpoints",
    about: "URLs that receive a tenant's events. `event_types` selects the events; empty means all.",
    routes: &[
        route(
            Verb::Post,
            ALL,
            "create_endpoint",
            "Creates an endpoint. The response contains its signing secret; later it is shown only on request.",
            &[],
            RequestBody::Json("NewEndpoint"),
            &[success(
                201,
                "The endpoint, with its `secret`.",
                Content::Json("CreatedEndpoint"),
            )],
            &[
                (403, Code::QuotaExceeded),
                (422, Code::UnsafeDestination),
                (422, Code::InvalidUrl),
            ],
            |call| Box::pin(create(call)),
        ),
        route(
            Verb::Get,
            ALL,
            "list_endpoints",
            "Lists a tenant's endpoints, newest first.",
            &[LIMIT, cursor::<EndpointId>()],
            RequestBody::Nothing,
            &[success(
                200,
                "A page of endpoints.",
                Content::List("Endpoint"),
            )],
            &[],
            |call| Box::pin(list(call)),
        ),
        route(
            Verb::Get,
            ONE,
            "get_endpoint",
            "Returns an endpoint.",
            &[],
            RequestBody::Nothing,
            THE_ENDPOINT,
            &[],
            |call| Box::pin(show_one(call)),
        ),
        route(
            Verb::Patch,
            ONE,
            "update_endpoint",
            "Updates an endpoint. Absent fields are not changed; `null` restores the default.",
            &[],
            RequestBody::Json("EndpointChange"),
            THE_ENDPOINT,
            &[
                (409, Code::Contended),
                (422, Code::UnsafeDestination),
                (422, Code::InvalidUrl),
            ],
            |call| run_to_completion(change(call)),
        ),
        route(
            Verb::Delete,
            ONE,
            "delete_endpoint",
            "Deletes an endpoint. Waiting deliveries fail, and no more attempts are made.",
            &[],
            RequestBody::Nothing,
            &[success(204, "The endpoint is deleted.", Content::Nothing)],
            &[],
            |call| Box::pin(delete(call)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/enable",
            "enable_endpoint",
            "Enables an endpoint. Missed events can be replayed with `missed_since`.",
            &[],
            RequestBody::OptionalJson("Nothing"),
            THE_ENDPOINT,
            &[],
            |call| Box::pin(change_status(call, StatusChangeRequest::Enable)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/disable",
            "disable_endpoint",
            "Disables an endpoint. Waiting deliveries fail; attempts in progress complete.",
            &[],
            RequestBody::OptionalJson("Nothing"),
            THE_ENDPOINT,
            &[],
            |call| Box::pin(change_status(call, StatusChangeRequest::Disable)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/pause",
            "pause_endpoint",
            "Pauses an endpoint. Its deliveries are held, and none are lost.",
            &[],
            RequestBody::OptionalJson("Nothing"),
            THE_ENDPOINT,
            &[(409, Code::WrongState)],
            |call| Box::pin(change_status(call, StatusChangeRequest::Pause)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/resume",
            "resume_endpoint",
            "Resumes an endpoint: held deliveries are sent gradually, and a tripped breaker closes.",
            &[],
            RequestBody::OptionalJson("Nothing"),
            THE_ENDPOINT,
            &[(409, Code::WrongState)],
            |call| Box::pin(change_status(call, StatusChangeRequest::Resume)),
        ),
        route(
            Verb::Get,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/secret",
            "get_endpoint_secret",
            "Returns the signing secret, and old secrets that are still valid.",
            &[],
            RequestBody::Nothing,
            THE_SECRET,
            &[],
            |call| Box::pin(secret::show(call)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/secret/rotate",
            "rotate_endpoint_secret",
            "Replaces the signing secret with a generated or imported one of either kind. Old secrets stay valid for `overlap`, 24 hours by default; `0s` invalidates them immediately.",
            &[],
            RequestBody::OptionalJson("Rotation"),
            THE_SECRET,
            &[(409, Code::WrongState), (409, Code::Contended)],
            |call| run_to_completion(secret::rotate(call)),
        ),
        route(
            Verb::Post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/owner-email/confirmation",
            "send_owner_email_confirmation",
            "Sends another confirmation email to the owner. An address gets at most one per day.",
            &[],
            RequestBody::OptionalJson("Nothing"),
            THE_ENDPOINT,
            &[(409, Code::WrongState), (429, Code::QuotaExceeded)],
            |call| Box::pin(owner::send_again(call)),
        ),
        route(
            Verb::Get,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/health",
            "get_endpoint_health",
            "Returns the health of an endpoint: breaker, backlog and recent results.",
            &[],
            RequestBody::Nothing,
            &[success(200, "The health.", Content::Json("EndpointHealth"))],
            &[],
            |call| Box::pin(health::show(call)),
        ),
    ],
    schemas: schemas::all,
};

const THE_ENDPOINT: &[SuccessResponse] = &[success(
    200,
    "The updated endpoint.",
    Content::Json("Endpoint"),
)];

const THE_SECRET: &[SuccessResponse] =
    &[success(200, "The secret.", Content::Json("EndpointSecret"))];

#[expect(
    clippy::too_many_arguments,
    reason = "one for each column of the table"
)]
const fn route(
    verb: Verb,
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    query: &'static [Parameter],
    request_body: RequestBody,
    responses: &'static [SuccessResponse],
    fails: &'static [(u16, Code)],
    handler: Handler,
) -> Route {
    Route {
        verb,
        path,
        name,
        summary,
        access: Access::Tenant,
        query,
        request_body,
        responses,
        fails,
        handler,
    }
}

/// Returns the endpoint in the path, if it belongs to the tenant and is not deleted.
pub(super) async fn find(call: &Call) -> Result<EndpointRow, Problem> {
    let id: EndpointId = call.id("endpoint", ResourceKind::Endpoint)?;
    let row = call.app.store.endpoint(id).await?;
    row.filter(|row| {
        row.endpoint.tenant == call.tenant().tenant.id
            && row.status != EndpointStatus::Deleted
            && !row.endpoint.is_origin
    })
    .ok_or_else(|| Problem::missing(ResourceKind::Endpoint))
}

async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let tenant = &call.tenant().tenant;
    let now = app.clock.wall();
    let mut endpoint = Endpoint::new(app.new_id(), tenant.id.clone(), String::new(), now);
    let secret_fields = form::read(app, tenant, &document, &mut endpoint, true)?;
    let headers = secret_fields.headers.unwrap_or_default();
    endpoint.sealed_headers = seal_headers(app, &endpoint, &headers);
    if let Some(credentials) = &secret_fields.credentials {
        endpoint.sealed_credentials = seal_credentials(app, &endpoint, credentials);
    }
    let asks_owner = owner::decide(&call, &document, None, &mut endpoint).await?;
    let key = secret_fields.key.expect("a new endpoint has a key");
    let plain = reveal(&key);
    let public_key = public_key(&key);
    endpoint.sealed_keys = secret::seal(app, &endpoint, &SigningKeyring::new(key));
    let allowed = app.endpoints_allowed(tenant);
    let inserted = app.store.create_endpoint(now, endpoint.clone(), allowed);
    match inserted.await? {
        CreateResult::Created => {
            if asks_owner {
                owner::ask(app, &endpoint).await;
            }
            let row = EndpointRow {
                endpoint,
                status: EndpointStatus::Enabled,
                disabled_reason: None,
                health: Health::default(),
            };
            let created = CreatedEndpoint {
                endpoint: describe(app, tenant, &row)?,
                secret: plain,
                public_key,
            };
            let answer = body::answer_secret(StatusCode::CREATED, &created);
            Ok(audit_writer::with_created_id(row.endpoint.id, answer))
        }
        CreateResult::NoSuchTenant => Err(Problem::missing(ResourceKind::Tenant)),
        CreateResult::TooMany => Err(too_many_endpoints(allowed)),
        CreateResult::Taken => Err(Problem::internal(&"a fresh id was taken")),
    }
}

async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let tenant = &call.tenant().tenant;
    let page = call.app.store.endpoints(tenant.id.clone(), page).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for row in &page.items {
        items.push(describe(&call.app, tenant, row)?);
    }
    let page = posthaste_store::Page {
        items,
        next: page.next,
    };
    Ok(paging::answer(page, |endpoint| endpoint))
}

async fn show_one(call: Call) -> Result<Response<Body>, Problem> {
    let row = find(&call).await?;
    answer_with(&call, &row)
}

fn answer_with(call: &Call, row: &EndpointRow) -> Result<Response<Body>, Problem> {
    let endpoint = describe(&call.app, &call.tenant().tenant, row)?;
    Ok(body::answer(StatusCode::OK, &endpoint))
}

async fn change(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    for _ in 0..MAX_TRIES {
        let mut row = find(&call).await?;
        let tenant = &call.tenant().tenant;
        let owner_before = row.endpoint.owner_email.clone();
        let secret_fields = form::read(app, tenant, &document, &mut row.endpoint, false)?;
        if let Some(headers) = &secret_fields.headers {
            row.endpoint.sealed_headers = seal_headers(app, &row.endpoint, headers);
        }
        if let Some(credentials) = &secret_fields.credentials {
            row.endpoint.sealed_credentials = seal_credentials(app, &row.endpoint, credentials);
        }
        let owner_before = owner_before.as_deref();
        let asks_owner = owner::decide(&call, &document, owner_before, &mut row.endpoint).await?;
        let now = app.clock.wall();
        let replaced = app.store.replace_endpoint(now, row.endpoint.clone());
        match replaced.await? {
            ReplaceResult::Done => {
                app.engine.changed(row.endpoint.id);
                if asks_owner {
                    owner::ask(app, &row.endpoint).await;
                }
                return answer_with(&call, &row);
            }
            ReplaceResult::Outdated => {}
            ReplaceResult::NotFound => return Err(Problem::missing(ResourceKind::Endpoint)),
        }
    }
    Err(contended())
}

async fn delete(call: Call) -> Result<Response<Body>, Problem> {
    let id = find(&call).await?.endpoint.id;
    let owner_router = &call.app.owner_router;
    owner_router
        .set_status(id, EndpointStatus::Deleted, None, call.answer_by)
        .await?;
    Ok(body::nothing())
}

/// A requested change of the endpoint status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusChangeRequest {
    Enable,
    Disable,
    Pause,
    Resume,
}

async fn change_status(
    mut call: Call,
    request: StatusChangeRequest,
) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let row = find(&call).await?;
    let (status, reason) = next_status(request, &row)?;
    // The owner is asked even if the stored status is the requested one: another one may be in force or pending there.
    let owner_router = &call.app.owner_router;
    owner_router
        .set_status(row.endpoint.id, status, reason, call.answer_by)
        .await?;
    let row = find(&call).await.map_err(Problem::after_change)?;
    answer_with(&call, &row)
}

/// Returns the requested status, and the reason of a disabled endpoint.
fn next_status(
    request: StatusChangeRequest,
    row: &EndpointRow,
) -> Result<(EndpointStatus, Option<DisabledReason>), Problem> {
    match (request, row.status) {
        (_, EndpointStatus::Deleted) => Err(Problem::missing(ResourceKind::Endpoint)),
        // For an enabled endpoint, this allows a tripped breaker to close.
        (
            StatusChangeRequest::Enable,
            EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Disabled,
        )
        | (StatusChangeRequest::Resume, EndpointStatus::Enabled | EndpointStatus::Paused) => {
            Ok((EndpointStatus::Enabled, None))
        }
        // Keeps the original reason why the endpoint was disabled.
        (StatusChangeRequest::Disable, EndpointStatus::Disabled) => {
            Ok((EndpointStatus::Disabled, row.disabled_reason))
        }
        (StatusChangeRequest::Disable, EndpointStatus::Enabled | EndpointStatus::Paused) => {
            Ok((EndpointStatus::Disabled, Some(DisabledReason::Manual)))
        }
        (StatusChangeRequest::Pause, EndpointStatus::Enabled | EndpointStatus::Paused) => {
            Ok((EndpointStatus::Paused, None))
        }
        (StatusChangeRequest::Pause | StatusChangeRequest::Resume, EndpointStatus::Disabled) => {
            Err(Problem::new(
                Code::WrongState,
                "The endpoint is disabled, so no deliveries are waiting. Enable it first: POST …/enable.",
            ))
        }
    }
}
