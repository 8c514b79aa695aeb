//! All resources and their actions: the complete list of API commands.
//!
//! [`RESOURCES`] is the table that the command line, its help, the completions and the requests are made from. The
//! types of its entries are in `action`.

mod endpoints;
mod events;
mod protection;
mod schedules;
mod tenants;

use http::Method;

use super::action::{Action, OptionKind, Resource, Shape, query};
use endpoints::ENDPOINTS;
use events::{DELIVERIES, EVENTS, REPLAYS};
use schedules::SCHEDULES;
use tenants::{KEYS, TENANTS};

/// All resources, in the order of the help.
pub static RESOURCES: &[Resource] = &[
    Resource {
        name: "tenants",
        noun: "TENANT",
        about: "Manage tenants and their limits",
        actions: TENANTS,
    },
    Resource {
        name: "endpoints",
        noun: "ENDPOINT",
        about: "Manage endpoints",
        actions: ENDPOINTS,
    },
    Resource {
        name: "events",
        noun: "EVENT",
        about: "Send and list events",
        actions: EVENTS,
    },
    Resource {
        name: "deliveries",
        noun: "DELIVERY",
        about: "List, show, retry and cancel deliveries",
        actions: DELIVERIES,
    },
    Resource {
        name: "replays",
        noun: "REPLAY",
        about: "Send many deliveries again",
        actions: REPLAYS,
    },
    Resource {
        name: "schedules",
        noun: "SCHEDULE",
        about: "Manage recurring schedules",
        actions: SCHEDULES,
    },
    Resource {
        name: "keys",
        noun: "KEY",
        about: "Manage the API keys of a tenant",
        actions: KEYS,
    },
    Resource {
        name: "stats",
        noun: "STATS",
        about: "Show health metrics of the server or a tenant",
        actions: STATS,
    },
    Resource {
        name: "alerts",
        noun: "ALERT",
        about: "List alerts of the server or a tenant",
        actions: ALERTS,
    },
    Resource {
        name: "nodes",
        noun: "NODE",
        about: "List the nodes of the server",
        actions: NODES,
    },
    Resource {
        name: "audit",
        noun: "ENTRY",
        about: "Show the audit log of the server or a tenant",
        actions: AUDIT,
    },
    Resource {
        name: "find",
        noun: "ID",
        about: "Find the tenant of a delivery, an event or an endpoint",
        actions: FIND,
    },
];

/// The resource that `send` and `batch` also belong to.
pub const EVENTS_NAME: &str = "events";

static STATS: &[Action] = &[Action {
    name: "",
    about: "Show health metrics of the server or a tenant",
    examples: &["posthaste stats", "posthaste stats --tenant acme --json"],
    method: Method::GET,
    path: "/v1[/tenants/{tenant}]/stats",
    fields: &[],
    shape: Shape::Stats,
}];

static ALERTS: &[Action] = &[Action {
    name: "list",
    about: "List active and resolved alerts, newest first",
    examples: &[
        "posthaste alerts list --open",
        "posthaste alerts list --tenant acme --name retry_ratio --since 7d",
    ],
    method: Method::GET,
    path: "/v1[/tenants/{tenant}]/alerts",
    fields: &[
        query(
            "open",
            "state",
            OptionKind::Constant("open"),
            "Only active alerts",
        ),
        query(
            "resolved",
            "state",
            OptionKind::Constant("resolved"),
            "Only resolved alerts",
        ),
        query(
            "name",
            "name",
            OptionKind::Text,
            "Only alerts with this name",
        ),
        query(
            "endpoint",
            "endpoint",
            OptionKind::Text,
            "Only alerts of this endpoint",
        ),
        query(
            "since",
            "since",
            OptionKind::TimeInPast,
            "Raised at this time or later; 2h means two hours ago",
        ),
        query(
            "until",
            "until",
            OptionKind::TimeInPast,
            "Raised before this time",
        ),
    ],
    shape: Shape::List(&[
        ("SINCE", "raised_at"),
        ("ALERT", "name"),
        ("STATE", "state"),
        ("TENANT", "scope.tenant_id"),
        ("ENDPOINT", "scope.endpoint_id"),
        ("PROBLEM", "message"),
        ("RESOLVED", "resolved_at"),
    ]),
}];

static NODES: &[Action] = &[Action {
    name: "list",
    about: "List all nodes with their shards, heartbeats, round trips and versions",
    examples: &["posthaste nodes", "posthaste nodes list --json"],
    method: Method::GET,
    path: "/v1/nodes",
    fields: &[],
    shape: Shape::List(&[
        ("NODE", "number"),
        ("NAME", "name"),
        ("ROLE", "role"),
        ("STATE", "state"),
        ("SHARDS", "shards"),
        ("HEARTBEAT_MS", "round_trip_ms.heartbeat"),
        ("FETCH_MS", "round_trip_ms.fetch"),
        ("RECORD_MS", "round_trip_ms.record"),
        ("OFFSET_MS", "clock_offset_ms"),
        ("LAST_HEARTBEAT", "last_heartbeat_at"),
        ("VERSION", "version"),
        ("STARTED", "started_at"),
    ]),
}];

static AUDIT: &[Action] = &[Action {
    name: "list",
    about: "List audit log entries, newest first",
    examples: &[
        "posthaste audit list --since 1d",
        "posthaste audit list --tenant acme --all --json",
    ],
    method: Method::GET,
    path: "/v1[/tenants/{tenant}]/audit",
    fields: &[
        query(
            "since",
            "since",
            OptionKind::TimeInPast,
            "Started at this time or later; 2h means two hours ago",
        ),
        query(
            "until",
            "until",
            OptionKind::TimeInPast,
            "Started before this time",
        ),
    ],
    shape: Shape::List(&[
        ("TIME", "at"),
        ("ACTOR", "actor"),
        ("ACTION", "action"),
        ("TARGET", "resource"),
        ("VIA", "via"),
        ("ADDRESS", "from"),
        ("OUTCOME", "outcome"),
        ("CODE", "code"),
    ]),
}];

static FIND: &[Action] = &[Action {
    name: "",
    about: "Find the tenant of a delivery, an event or an endpoint",
    examples: &["posthaste find dlv_01jd…"],
    method: Method::GET,
    path: "/v1/find?id={id}",
    fields: &[],
    shape: Shape::Object(None),
}];
