//! Lists the nodes: shards, heartbeat, clock offset, round trips, role and version of each.
//!
//! On PostgreSQL the list is read from the database, so every node answers the same. On SQLite there is one node.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::cluster::SHARD_COUNT;
use posthaste_core::time::Timestamp;
use posthaste_system::machine::process_name;

use super::App;
use super::body;
use super::problem::Problem;
use super::resources::{ListPage, Node, NodeRoundTrips, NodeState, node_schemas};
use super::route::{
    Access, Call, Content, Group, RequestBody, Route, SuccessResponse, Verb, success,
};

pub(super) static GROUP: Group = Group {
    name: "Nodes",
    about: "The nodes that serve the API and send deliveries.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/v1/nodes",
        name: "list_nodes",
        summary: "Lists all nodes, by number.",
        access: Access::Admin,
        query: &[],
        request_body: RequestBody::Nothing,
        responses: NODES,
        fails: &[],
        handler: |call| Box::pin(list(call)),
    }],
    schemas: node_schemas,
};

const NODES: &[SuccessResponse] = &[success(
    200,
    "All nodes. There is only one page.",
    Content::List("Node"),
)];

/// `GET /v1/nodes`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    call.query().finish()?;
    let app = &call.app;
    let me = app.owner_router.node_number();
    let nodes = match app.owner_router.list_nodes().await? {
        Some(nodes) => nodes.into_iter().map(|node| Node::new(node, me)).collect(),
        None => vec![single_node(app)],
    };
    let page = ListPage {
        data: nodes,
        next_cursor: None,
    };
    Ok(body::answer(StatusCode::OK, &page))
}

/// Returns the only node of a store that no other process can open.
fn single_node(app: &App) -> Node {
    let now = app.clock.now();
    // Ticks count from the start of the process.
    let started_at = Timestamp(now.wall.0.saturating_sub(now.tick.0));
    Node {
        number: 1,
        name: process_name(),
        role: "all".to_owned(),
        state: NodeState::Ok,
        is_self: true,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        started_at: Some(started_at.to_string()),
        shards: u64::from(SHARD_COUNT),
        capacity: Some(1.0),
        last_heartbeat_at: None,
        heartbeat_age_ms: None,
        lease: None,
        round_trip_ms: NodeRoundTrips {
            heartbeat: None,
            fetch: None,
            record: None,
        },
        clock_offset_ms: app.clock.offset_ms(),
    }
}
