//! Every resource and what can be done with it.

use http::Method;

use super::action::{Action, Field, Kind, Place, Resource, Shape};

/// Every resource, in the order of the help.
pub static RESOURCES: &[Resource] = &[
    Resource {
        name: "tenants",
        noun: "TENANT",
        about: "The tenants of the server, with their plan limits",
        actions: TENANTS,
    },
    Resource {
        name: "endpoints",
        noun: "ENDPOINT",
        about: "Where events are delivered to",
        actions: ENDPOINTS,
    },
    Resource {
        name: "events",
        noun: "EVENT",
        about: "What was handed over to be delivered",
        actions: EVENTS,
    },
    Resource {
        name: "deliveries",
        noun: "DELIVERY",
        about: "Every event on its way to every endpoint",
        actions: DELIVERIES,
    },
    Resource {
        name: "replays",
        noun: "REPLAY",
        about: "Send many deliveries again",
        actions: REPLAYS,
    },
    Resource {
        name: "keys",
        noun: "KEY",
        about: "The keys of a tenant",
        actions: KEYS,
    },
    Resource {
        name: "stats",
        noun: "STATS",
        about: "Health metrics and whether they are in range, for the server or for one tenant",
        actions: STATS,
    },
];

/// The resource that `send` and `batch` belong to as well.
pub const EVENTS_NAME: &str = "events";

const ERROR_KINDS: Kind = Kind::Word(&[
    "http",
    "timeout",
    "dns",
    "tls",
    "connection",
    "validation",
    "webhook_disabled",
    "unknown",
]);

const STATUSES: Kind = Kind::Word(&[
    "pending",
    "in_progress",
    "retrying",
    "held",
    "succeeded",
    "failed",
    "cancelled",
]);

const fn query(name: &'static str, key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        name,
        place: Place::Query(key),
        kind,
        help,
    }
}

const fn body(name: &'static str, key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        name,
        place: Place::Body(key),
        kind,
        help,
    }
}

const fn bare(name: &'static str, shown: &'static str, help: &'static str) -> Field {
    Field {
        name,
        place: Place::Bare(name, shown),
        kind: Kind::Text,
        help,
    }
}

const TENANT_FIELDS: [Field; 8] = [
    body("name", "name", Kind::Text, "What people call it"),
    body(
        "retry-policy",
        "default_retry_policy",
        Kind::Policy,
        "The policy of endpoints that have none: a preset, JSON, or @FILE",
    ),
    body(
        "endpoints",
        "limits.endpoints",
        Kind::Whole,
        "At most so many endpoints",
    ),
    body(
        "events-per-second",
        "limits.events_per_second",
        Kind::Whole,
        "At most so many events a second",
    ),
    body(
        "events-per-month",
        "limits.events_per_month",
        Kind::Whole,
        "At most so many events a month",
    ),
    body(
        "payload-bytes",
        "limits.payload_bytes",
        Kind::Whole,
        "The largest payload",
    ),
    body(
        "max-attempts",
        "limits.max_attempts",
        Kind::Whole,
        "The most attempts a policy may ask for",
    ),
    body(
        "retention",
        "limits.retention",
        Kind::Duration,
        "How long what is finished is kept, such as 30d",
    ),
];

static TENANT_CREATE: [Field; 9] = {
    let [a, b, c, d, e, f, g, h] = TENANT_FIELDS;
    [
        bare("id", "TENANT", "Its id, if you want to choose it"),
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ]
};
static TENANT_UPDATE: [Field; 8] = TENANT_FIELDS;

static TENANTS: &[Action] = &[
    Action {
        name: "list",
        about: "List tenants, newest first",
        examples: &[
            "posthaste tenants list",
            "posthaste tenants list --all --json",
        ],
        method: Method::GET,
        path: "/v1/tenants",
        fields: &[],
        shape: Shape::Page(&[("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")]),
    },
    Action {
        name: "show",
        about: "Show a tenant and its limits",
        examples: &["posthaste tenants show acme"],
        method: Method::GET,
        path: "/v1/tenants/{id}",
        fields: &[],
        shape: Shape::Thing(None),
    },
    Action {
        name: "create",
        about: "Create a tenant",
        examples: &[
            "posthaste tenants create acme --name Acme",
            "posthaste tenants create --name Acme --events-per-second 100 --retention 7d",
        ],
        method: Method::POST,
        path: "/v1/tenants",
        fields: &TENANT_CREATE,
        shape: Shape::Thing(None),
    },
    Action {
        name: "update",
        about: "Change a tenant; what is not named stays",
        examples: &["posthaste tenants update acme --endpoints 500 --retry-policy patient"],
        method: Method::PATCH,
        path: "/v1/tenants/{id}",
        fields: &TENANT_UPDATE,
        shape: Shape::Thing(None),
    },
    Action {
        name: "delete",
        about: "Delete a tenant with everything it has",
        examples: &["posthaste tenants delete acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{id}",
        fields: &[],
        shape: Shape::Gone("deleted"),
    },
];

const ENDPOINT_FIELDS: [Field; 9] = [
    body("description", "description", Kind::Text, "What it is for"),
    body(
        "event-types",
        "event_types",
        Kind::List,
        "What it wants, such as invoice.paid,customer.*; everything if nothing is named",
    ),
    body(
        "retry-policy",
        "retry_policy",
        Kind::Policy,
        "A preset, JSON, or @FILE; null for the tenant's",
    ),
    body(
        "timeout",
        "timeout",
        Kind::Duration,
        "How long one attempt may take, 1s to 60s",
    ),
    body(
        "max-in-flight",
        "max_in_flight",
        Kind::Whole,
        "At most so many requests at once",
    ),
    body(
        "rate",
        "rate_limit.per_second",
        Kind::Number,
        "At most so many requests a second",
    ),
    body(
        "burst",
        "rate_limit.burst",
        Kind::Whole,
        "So many of them at once after a quiet time",
    ),
    body(
        "header",
        "headers",
        Kind::Headers,
        "A header to send, such as \"X-Team: billing\"; may be repeated",
    ),
    body(
        "owner-email",
        "owner_email",
        Kind::Text,
        "Who is told when something is wrong with it",
    ),
];

static ENDPOINT_CREATE: [Field; 10] = {
    let [a, b, c, d, e, f, g, h, i] = ENDPOINT_FIELDS;
    [bare("url", "URL", "Where it is"), a, b, c, d, e, f, g, h, i]
};
static ENDPOINT_UPDATE: [Field; 10] = {
    let [a, b, c, d, e, f, g, h, i] = ENDPOINT_FIELDS;
    [
        body("url", "url", Kind::Text, "Where it is"),
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
    ]
};

/// What is done to one endpoint by a single word.
const fn on_endpoint(
    name: &'static str,
    about: &'static str,
    examples: &'static [&'static str],
    path: &'static str,
) -> Action {
    Action {
        name,
        about,
        examples,
        method: Method::POST,
        path,
        fields: &[],
        shape: Shape::Thing(None),
    }
}

static ENDPOINTS: &[Action] = &[
    Action {
        name: "list",
        about: "List endpoints, newest first",
        examples: &["posthaste endpoints list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints",
        fields: &[],
        shape: Shape::Page(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("URL", "url"),
            ("EVENT TYPES", "event_types"),
        ]),
    },
    Action {
        name: "show",
        about: "Show an endpoint",
        examples: &["posthaste endpoints show ep_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: &[],
        shape: Shape::Thing(None),
    },
    Action {
        name: "create",
        about: "Create an endpoint, and show its signing secret",
        examples: &[
            "posthaste endpoints create https://example.com/hooks --tenant acme",
            "posthaste endpoints create https://example.com/hooks --tenant acme --event-types invoice.* --retry-policy swift --rate 20",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/endpoints",
        fields: &ENDPOINT_CREATE,
        shape: Shape::Thing(Some(
            "give the secret to whoever runs the endpoint: it proves what comes from here",
        )),
    },
    Action {
        name: "update",
        about: "Change an endpoint; what is not named stays",
        examples: &["posthaste endpoints update ep_01jd… --tenant acme --timeout 10s --rate 5"],
        method: Method::PATCH,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: &ENDPOINT_UPDATE,
        shape: Shape::Thing(None),
    },
    Action {
        name: "delete",
        about: "Delete an endpoint; what waits for it is given up",
        examples: &["posthaste endpoints delete ep_01jd… --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: &[],
        shape: Shape::Gone("deleted"),
    },
    on_endpoint(
        "enable",
        "Let a disabled endpoint take part again",
        &["posthaste endpoints enable ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/enable",
    ),
    on_endpoint(
        "disable",
        "Send nothing to an endpoint any more; what waits for it is given up",
        &["posthaste endpoints disable ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/disable",
    ),
    on_endpoint(
        "pause",
        "Hold what is for an endpoint, and lose nothing",
        &["posthaste endpoints pause ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/pause",
    ),
    on_endpoint(
        "resume",
        "Let go what was held, gently",
        &["posthaste endpoints resume ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/resume",
    ),
    on_endpoint(
        "test",
        "Send a test event to an endpoint",
        &["posthaste endpoints test ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/test",
    ),
    Action {
        name: "health",
        about: "Show how an endpoint is doing: breaker, backlog, failures, latency",
        examples: &["posthaste endpoints health ep_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints/{id}/health",
        fields: &[],
        shape: Shape::Thing(None),
    },
    Action {
        name: "secret",
        about: "Show the signing secret of an endpoint",
        examples: &["posthaste endpoints secret ep_01jd… --tenant acme --json"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints/{id}/secret",
        fields: &[],
        shape: Shape::Thing(None),
    },
    on_endpoint(
        "rotate-secret",
        "Give an endpoint a new signing secret; the old one stays valid for a while",
        &["posthaste endpoints rotate-secret ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/secret/rotate",
    ),
];

static EVENTS: &[Action] = &[
    Action {
        name: "list",
        about: "List events, newest first",
        examples: &[
            "posthaste events list --tenant acme",
            "posthaste events list --tenant acme --event-type invoice.paid --since 2h",
        ],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/events",
        fields: &[
            query("event-type", "event_type", Kind::Text, "Of this type"),
            query(
                "since",
                "since",
                Kind::Past,
                "Accepted at this time or later; 2h means two hours ago",
            ),
            query("until", "until", Kind::Past, "Accepted before this time"),
        ],
        shape: Shape::Page(&[("ID", "id"), ("TYPE", "type"), ("CREATED", "created_at")]),
    },
    Action {
        name: "show",
        about: "Show an event and its deliveries",
        examples: &["posthaste events show evt_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/events/{id}",
        fields: &[],
        shape: Shape::Thing(None),
    },
];

static DELIVERIES: &[Action] = &[
    Action {
        name: "list",
        about: "List deliveries, newest first",
        examples: &[
            "posthaste deliveries list --tenant acme --status failed --since 1d",
            "posthaste deliveries list --tenant acme --endpoint ep_01jd… --error-kind timeout",
        ],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/deliveries",
        fields: &[
            query("status", "status", STATUSES, "With this status"),
            query("endpoint", "endpoint", Kind::Text, "To this endpoint"),
            query("event", "event", Kind::Text, "Of this event"),
            query(
                "event-type",
                "event_type",
                Kind::Text,
                "Of events of this type",
            ),
            query(
                "error-kind",
                "error_kind",
                ERROR_KINDS,
                "Which failed for this",
            ),
            query(
                "since",
                "since",
                Kind::Past,
                "Accepted at this time or later; 2h means two hours ago",
            ),
            query("until", "until", Kind::Past, "Accepted before this time"),
        ],
        shape: Shape::Page(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("TRIED", "attempt_count"),
            ("TYPE", "event_type"),
            ("ERROR", "last_error.kind"),
            ("NEXT ATTEMPT", "next_attempt_at"),
            ("ENDPOINT", "endpoint_id"),
        ]),
    },
    Action {
        name: "show",
        about: "Show a delivery: every attempt so far, and those still to come",
        examples: &["posthaste deliveries show dlv_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/deliveries/{id}",
        fields: &[],
        shape: Shape::Thing(None),
    },
    Action {
        name: "retry",
        about: "Try a delivery now, or again after it has ended",
        examples: &["posthaste deliveries retry dlv_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/deliveries/{id}/retry",
        fields: &[],
        shape: Shape::Thing(None),
    },
    Action {
        name: "cancel",
        about: "Call a delivery off",
        examples: &["posthaste deliveries cancel dlv_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/deliveries/{id}/cancel",
        fields: &[],
        shape: Shape::Thing(None),
    },
];

static REPLAYS: &[Action] = &[
    Action {
        name: "create",
        about: "Send again everything that matches",
        examples: &[
            "posthaste replays create --tenant acme --status failed --since 1d --watch",
            "posthaste replays create --tenant acme --endpoint ep_01jd… --missed-since 2026-11-15T12:00:00Z",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/replays",
        fields: &[
            body(
                "status",
                "status",
                STATUSES,
                "Deliveries that ended so; failed unless told",
            ),
            body("endpoint", "endpoint", Kind::Text, "To this endpoint"),
            body(
                "event-type",
                "event_type",
                Kind::Text,
                "Of events of this type",
            ),
            body(
                "error-kind",
                "error_kind",
                ERROR_KINDS,
                "Which failed for this",
            ),
            body(
                "since",
                "since",
                Kind::Past,
                "Accepted at this time or later; 2h means two hours ago",
            ),
            body("until", "until", Kind::Past, "Accepted before this time"),
            body(
                "missed-since",
                "missed_since",
                Kind::Past,
                "Everything that the endpoint never got since then",
            ),
        ],
        shape: Shape::Replay,
    },
    Action {
        name: "list",
        about: "List replays, newest first",
        examples: &["posthaste replays list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/replays",
        fields: &[],
        shape: Shape::Page(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("REPLAYED", "replayed"),
            ("TOTAL", "total"),
        ]),
    },
    Action {
        name: "show",
        about: "Show how far a replay is",
        examples: &["posthaste replays show rpl_01jd… --tenant acme --watch"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/replays/{id}",
        fields: &[],
        shape: Shape::Replay,
    },
    Action {
        name: "cancel",
        about: "Stop a replay; what it has set going goes on",
        examples: &["posthaste replays cancel rpl_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/replays/{id}/cancel",
        fields: &[],
        shape: Shape::Thing(None),
    },
];

static KEYS: &[Action] = &[
    Action {
        name: "create",
        about: "Make a key that reaches this tenant only, and show it once",
        examples: &["posthaste keys create ci --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/keys",
        fields: &[bare("name", "NAME", "What people call it")],
        shape: Shape::Thing(Some("keep the key: it is not shown again")),
    },
    Action {
        name: "list",
        about: "List the keys of a tenant, without the keys themselves",
        examples: &["posthaste keys list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/keys",
        fields: &[],
        shape: Shape::Page(&[("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")]),
    },
    Action {
        name: "revoke",
        about: "Make a key worthless",
        examples: &["posthaste keys revoke key_01jd… --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/keys/{id}",
        fields: &[],
        shape: Shape::Gone("revoked"),
    },
];

static STATS: &[Action] = &[Action {
    name: "",
    about: "Health metrics and whether they are in range, for the server or for one tenant",
    examples: &["posthaste stats", "posthaste stats --tenant acme --json"],
    method: Method::GET,
    path: "/v1[/tenants/{tenant}]/stats",
    fields: &[],
    shape: Shape::Stats,
}];
