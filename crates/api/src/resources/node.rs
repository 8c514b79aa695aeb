//! The resource of nodes.
//!
//! [`Node`] is one node as operators see it: its shards, its heartbeat, its clock and its round trips to the database.
//! Its schema is beside it; a test compares the two.

use posthaste_core::cluster::{Capacity, RoundTrips};
use posthaste_core::time::Span;
use posthaste_store::{NodeInfo, NodeNo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{
    Schema, choice, described, integer, named, nullable_integer, nullable_text, nullable_time,
    object, with_examples,
};

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its number. A node that was declared dead gets a new one.
    pub number: u64,
    /// Host name and process id.
    pub name: String,
    /// Its role: `all`, `api` or `worker`.
    pub role: String,
    /// Its state.
    pub state: NodeState,
    /// True for the node that answers this request.
    pub is_self: bool,
    /// Version of the program.
    pub version: Option<String>,
    /// Start of the process.
    pub started_at: Option<String>,
    /// Number of shards that it owns.
    pub shards: u64,
    /// The part of an equal share of the shards that it takes, from 0 to 1. Below 1 if its round trips are slow.
    pub capacity: Option<f64>,
    /// Time of its last heartbeat.
    pub last_heartbeat_at: Option<String>,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: Option<u64>,
    /// After this long without a heartbeat, other nodes take over its shards.
    pub lease: Option<String>,
    /// Its round trips to the database.
    pub round_trip_ms: NodeRoundTrips,
    /// Milliseconds by which the machine's clock is ahead of the database's; negative if it is behind.
    pub clock_offset_ms: Option<i64>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It sends heartbeats, and its round trips are quick enough.
    Ok,
    /// Its round trips are slower than those of other nodes, so it owns fewer shards or none.
    Slow,
    /// It has sent no heartbeat for more than half of its lease.
    Silent,
}

/// The round trips of a node to the database, in milliseconds: the median of the last three of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRoundTrips {
    /// Of heartbeats.
    pub heartbeat: Option<u64>,
    /// Of reads of due deliveries.
    pub fetch: Option<u64>,
    /// Of transactions that record attempts.
    pub record: Option<u64>,
}

impl From<RoundTrips> for NodeRoundTrips {
    fn from(round_trips: RoundTrips) -> NodeRoundTrips {
        let ms = |span: Option<Span>| span.map(Span::as_millis);
        NodeRoundTrips {
            heartbeat: ms(round_trips.heartbeat),
            fetch: ms(round_trips.fetch),
            record: ms(round_trips.record),
        }
    }
}

impl Node {
    /// Returns a node that shares a database with others. `me` answers the request.
    pub(crate) fn new(node: NodeInfo, me: Option<NodeNo>) -> Node {
        let age_ms = node.heartbeat_age.map(Span::as_millis);
        let is_silent = age_ms.is_some_and(|age_ms| age_ms > node.lease.as_millis() / 2);
        let is_slow = node.capacity.is_some_and(|it| it < Capacity::FULL);
        Node {
            number: node.node.0,
            name: node.name,
            role: node.role,
            state: match (is_silent, is_slow) {
                (true, _) => NodeState::Silent,
                (false, true) => NodeState::Slow,
                (false, false) => NodeState::Ok,
            },
            is_self: Some(node.node) == me,
            version: node.version,
            started_at: node.started_at.map(|at| at.to_string()),
            shards: node.shards,
            capacity: node.capacity.map(share),
            last_heartbeat_at: node.last_heartbeat_at.map(|at| at.to_string()),
            heartbeat_age_ms: age_ms,
            lease: Some(node.lease.to_string()),
            round_trip_ms: node.round_trips.into(),
            clock_offset_ms: node.clock_offset_ms,
        }
    }
}

/// Returns a capacity as a number from 0 to 1.
fn share(capacity: Capacity) -> f64 {
    f64::from(capacity.quarters()) / f64::from(Capacity::FULL.quarters())
}

/// Returns the schema of [`Node`].
pub(crate) fn schemas() -> Vec<Schema> {
    let shape = object(json!({
        "number": {"type": "integer", "description": "A node that was declared dead gets a new number."},
        "name": {"type": "string", "description": "Host name and process id."},
        "role": choice("NodeRole", ["all", "api", "worker"]),
        "state": described(choice("NodeState", ["ok", "slow", "silent"]), "`slow`: its round trips to the database are slower than those of other nodes, so it owns fewer shards or none. `silent`: it has sent no heartbeat for more than half of its lease."),
        "is_self": {"type": "boolean", "description": "True for the node that answers this request."},
        "version": nullable_text(),
        "started_at": nullable_time(),
        "shards": integer(),
        "capacity": {
            "type": ["number", "null"],
            "description": "Part of an equal share of the shards that the node takes, from 0 to 1.",
        },
        "last_heartbeat_at": nullable_time(),
        "heartbeat_age_ms": nullable_integer(),
        "lease": {
            "type": ["string", "null"],
            "description": "After this long without a heartbeat, other nodes take over its shards. Null if there can be no other nodes.",
        },
        "round_trip_ms": named("NodeRoundTrips", object(json!({
            "heartbeat": nullable_integer(),
            "fetch": nullable_integer(),
            "record": nullable_integer(),
        }))),
        "clock_offset_ms": {
            "type": ["integer", "null"],
            "description": "Milliseconds by which the machine's clock is ahead of the database's; negative if it is behind.",
        },
    }));
    let example = json!({
        "number": 3, "name": "web-2/1417", "role": "all", "state": "ok", "is_self": true,
        "version": "0.2.0", "started_at": "2026-01-02T03:04:05.678Z", "shards": 86, "capacity": 1.0,
        "last_heartbeat_at": "2026-01-04T09:15:00.120Z", "heartbeat_age_ms": 412, "lease": "6s",
        "round_trip_ms": {"heartbeat": 2, "fetch": 1, "record": 4}, "clock_offset_ms": -3,
    });
    vec![Schema {
        name: "Node",
        shape: with_examples(shape, json!([example])),
    }]
}
