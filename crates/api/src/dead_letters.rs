//! Dead letters, grouped by endpoint and failure kind.
//!
//! `POST …/replays` sends a group again, with `{"status": "failed", "endpoint": …, "error_kind": …}`.

use axum::body::Body;
use http::Response;
use posthaste_core::id::EndpointId;
use posthaste_store::DeadLetterGroupKey;

use super::deliveries::Policies;
use super::paging;
use super::problem::Problem;
use super::resources::{DeadLetterGroup, dead_letter_schemas};
use super::route::{
    Access, Call, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, parameter, success,
};
use crate::resources::schema::endpoint_id;

pub(super) static GROUP: Group = Group {
    name: "Dead letters",
    about: "Failed deliveries, grouped by endpoint and kind of failure.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/v1/tenants/{tenant}/dead-letters",
        name: "list_dead_letters",
        summary: "Lists groups of failed deliveries by endpoint and kind of failure, newest endpoint first.",
        access: Access::Tenant,
        query: &[
            LIMIT,
            cursor::<DeadLetterGroupKey>(),
            parameter("endpoint", "Only deliveries to this endpoint.", endpoint_id),
        ],
        request_body: RequestBody::Nothing,
        responses: &[success(
            200,
            "A page of groups.",
            Content::List("DeadLetterGroup"),
        )],
        fails: &[],
        handler: |call| Box::pin(list(call)),
    }],
    schemas: dead_letter_schemas,
};

/// `GET …/dead-letters`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    let endpoint: Option<EndpointId> = query.parsed("endpoint");
    query.finish()?;
    let app = &call.app;
    let tenant = &call.tenant().tenant;
    let found = app
        .store
        .dead_letter_groups(tenant.id.clone(), endpoint, page)
        .await?;
    let mut policies = Policies::new(app, tenant);
    for group in &found.items {
        policies.look_up(group.endpoint).await?;
    }
    Ok(paging::answer(found, |group| {
        let policy = policies.of_endpoint(group.endpoint);
        DeadLetterGroup::new(group, policy)
    }))
}
