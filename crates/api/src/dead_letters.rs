//! Dead letters, grouped by endpoint and failure kind.
//!
//! `POST …/replays` sends a group again, with `{"status": "failed", "endpoint": …, "error_kind": …}`.

use axum::body::Body;
use http::Response;
use posthaste_core::classify::FailureKind;
use posthaste_core::id::EndpointId;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Timestamp;
use posthaste_store::{BoundedCount, DeadGroup, MAX_GROUP_COUNT};
use serde::Serialize;
use serde_json::json;

use super::call::Call;
use super::deliveries::Policies;
use super::delivery_view::{DeliveryView, Shown};
use super::endpoints::status_name;
use super::paging;
use super::problem::Problem;
use super::route::{
    Access, CURSOR, Content, Group, LIMIT, Parameter, RequestBody, Route, Schema, SuccessResponse,
    Verb,
};

pub(super) static GROUP: Group = Group {
    name: "Dead letters",
    about: "Deliveries that were given up, gathered by where they were to go and what was wrong.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/v1/tenants/{tenant}/dead-letters",
        name: "list_dead_letters",
        summary: "Lists groups of failed deliveries, by endpoint and kind of failure. The newest endpoint comes first.",
        access: Access::Tenant,
        query: &[
            LIMIT,
            CURSOR,
            Parameter {
                name: "endpoint",
                about: "Only to this endpoint.",
                shape: || json!({"type": "string"}),
            },
        ],
        takes: RequestBody::Nothing,
        gives: &[SuccessResponse {
            status: 200,
            about: "A page of groups.",
            content: Content::List("DeadLetterGroup"),
        }],
        fails: &[],
        handler: |call| Box::pin(list(call)),
    }],
    schemas,
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
        .dead_groups(tenant.id.clone(), endpoint, page)
        .await?;
    let mut policies = Policies::new(app, tenant);
    for group in &found.items {
        policies.look_up(group.endpoint).await?;
    }
    Ok(paging::answer(found, |group| {
        let policy = policies.of(group.endpoint);
        GroupView::new(group, policy)
    }))
}

/// A group in an API response.
#[derive(Serialize)]
struct GroupView {
    endpoint_id: Shown<EndpointId>,
    endpoint_url: String,
    endpoint_status: &'static str,
    error_kind: Option<FailureKind>,
    count: usize,
    count_is_exact: bool,
    newest_at: Shown<Timestamp>,
    oldest_at: Shown<Timestamp>,
    newest: DeliveryView,
}

impl GroupView {
    fn new(group: DeadGroup, policy: &RetryPolicy) -> GroupView {
        let (count, count_is_exact) = match group.count {
            BoundedCount::Exactly(count) => (count, true),
            BoundedCount::MoreThan(count) => (count, false),
        };
        GroupView {
            endpoint_id: Shown(group.endpoint),
            endpoint_url: group.url,
            endpoint_status: status_name(group.standing),
            error_kind: group.error_kind,
            count,
            count_is_exact,
            newest_at: Shown(group.newest.created_at),
            oldest_at: Shown(group.oldest_at),
            // A dead-lettered delivery is not in flight.
            newest: DeliveryView::brief(&group.newest, false, policy),
        }
    }
}

fn schemas() -> Vec<Schema> {
    let mut kinds = FailureKind::ALL.map(|kind| json!(kind.name())).to_vec();
    kinds.push(json!(null));
    let time = |about| json!({"type": "string", "format": "date-time", "description": about});
    let properties = json!({
        "endpoint_id": {"type": "string"},
        "endpoint_url": {"type": "string", "description": "The URL it has now."},
        "endpoint_status": {
            "enum": ["enabled", "paused", "disabled", "deleted"],
            "description": "To one that is disabled or deleted nothing can be sent again.",
        },
        "error_kind": {"enum": kinds, "description": "What all of them failed with last."},
        "count": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_GROUP_COUNT,
            "description": "How many there are; or, unless it is exact, than how many there are more.",
        },
        "count_is_exact": {"type": "boolean"},
        "newest_at": time("When the event of the newest was accepted."),
        "oldest_at": time("When the event of the oldest was accepted."),
        "newest": {"$ref": "#/components/schemas/DeliverySummary"},
    });
    let names: Vec<&String> = properties.as_object().expect("an object").keys().collect();
    vec![Schema {
        name: "DeadLetterGroup",
        shape: json!({
            "type": "object",
            "required": names,
            "properties": properties,
            "additionalProperties": false,
        }),
    }]
}
