//! Commands on events, deliveries and replays.
//!
//! [`EVENTS`], [`DELIVERIES`] and [`REPLAYS`] list each action with its path, its options and an example.

use http::Method;

use super::super::action::{Action, Field, OptionKind, Shape, body, query};

const ERROR_KINDS: OptionKind = OptionKind::OneOf(&[
    "http",
    "timeout",
    "dns",
    "tls",
    "connection",
    "validation",
    "webhook_disabled",
    "unknown",
]);

/// Statuses of finished deliveries, which can be replayed.
const ENDED: OptionKind = OptionKind::OneOf(&["succeeded", "failed", "cancelled"]);

const STATUSES: OptionKind = OptionKind::OneOf(&[
    "pending",
    "in_progress",
    "retrying",
    "held",
    "succeeded",
    "failed",
    "cancelled",
]);

const SINCE: Field = query(
    "since",
    "since",
    OptionKind::TimeInPast,
    "Accepted at this time or later; 2h means two hours ago",
);

const UNTIL: Field = query(
    "until",
    "until",
    OptionKind::TimeInPast,
    "Accepted before this time",
);

pub(super) static EVENTS: &[Action] = &[
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
            query(
                "event-type",
                "event_type",
                OptionKind::Text,
                "Only events of this type",
            ),
            SINCE,
            UNTIL,
        ],
        shape: Shape::List(&[
            ("ID", "id"),
            ("TYPE", "type"),
            ("CREATED", "created_at"),
            ("DELIVERIES", "delivery_count"),
        ]),
    },
    Action {
        name: "show",
        about: "Show an event and its deliveries",
        examples: &["posthaste events show evt_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/events/{id}",
        fields: &[],
        shape: Shape::Object(None),
    },
];

pub(super) static DELIVERIES: &[Action] = &[
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
            query(
                "status",
                "status",
                STATUSES,
                "Only deliveries with this status",
            ),
            query(
                "endpoint",
                "endpoint",
                OptionKind::Text,
                "Only deliveries to this endpoint",
            ),
            query(
                "event",
                "event",
                OptionKind::Text,
                "Only deliveries of this event",
            ),
            query(
                "id",
                "id",
                OptionKind::Text,
                "Only deliveries with this id or id prefix: dlv_…, evt_…, ep_…",
            ),
            query(
                "event-type",
                "event_type",
                OptionKind::Text,
                "Only deliveries of events of this type",
            ),
            query(
                "error-kind",
                "error_kind",
                ERROR_KINDS,
                "Only deliveries with this kind of failure",
            ),
            SINCE,
            UNTIL,
        ],
        shape: Shape::List(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("ACCEPTED", "created_at"),
            ("ATTEMPTS", "attempt_count"),
            ("TYPE", "event_type"),
            ("ERROR", "last_error.kind"),
            ("REASON", "reason"),
            ("NEXT ATTEMPT", "next_attempt_at"),
            ("HELD BACK BY", "held_back_by"),
            ("ENDPOINT", "endpoint_id"),
        ]),
    },
    Action {
        name: "dead",
        about: "List failed deliveries by endpoint and cause",
        examples: &[
            "posthaste deliveries dead --tenant acme",
            "posthaste replays create --tenant acme --endpoint ep_01jd… --error-kind timeout --watch",
        ],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/dead-letters",
        fields: &[query(
            "endpoint",
            "endpoint",
            OptionKind::Text,
            "Only deliveries to this endpoint",
        )],
        shape: Shape::List(&[
            ("ENDPOINT", "endpoint_id"),
            ("STATUS", "endpoint_status"),
            ("ERROR", "error_kind"),
            ("LAST REASON", "newest.reason"),
            ("LAST CODE", "newest.last_error.status_code"),
            ("COUNT", "count"),
            ("EXACT", "count_is_exact"),
            ("OLDEST", "oldest_at"),
            ("NEWEST", "newest_at"),
            ("URL", "endpoint_url"),
        ]),
    },
    Action {
        name: "show",
        about: "Show a delivery with its past and expected attempts",
        examples: &["posthaste deliveries show dlv_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/deliveries/{id}",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "retry",
        about: "Retry a delivery now, even if it is finished",
        examples: &["posthaste deliveries retry dlv_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/deliveries/{id}/retry",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "cancel",
        about: "Cancel a delivery",
        examples: &["posthaste deliveries cancel dlv_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/deliveries/{id}/cancel",
        fields: &[],
        shape: Shape::Object(None),
    },
];

pub(super) static REPLAYS: &[Action] = &[
    Action {
        name: "create",
        about: "Send all matching deliveries again",
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
                ENDED,
                "Only deliveries with this status; default failed",
            ),
            body(
                "endpoint",
                "endpoint",
                OptionKind::Text,
                "Only deliveries to this endpoint",
            ),
            body(
                "event-type",
                "event_type",
                OptionKind::Text,
                "Only deliveries of events of this type",
            ),
            body(
                "error-kind",
                "error_kind",
                ERROR_KINDS,
                "Only deliveries with this kind of failure",
            ),
            body(
                "since",
                "since",
                OptionKind::TimeInPast,
                "Accepted at this time or later; 2h means two hours ago",
            ),
            body(
                "until",
                "until",
                OptionKind::TimeInPast,
                "Accepted before this time",
            ),
            body(
                "missed-since",
                "missed_since",
                OptionKind::TimeInPast,
                "Replay everything that the endpoint missed since this time",
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
        shape: Shape::List(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("REPLAYED", "replayed"),
            ("TOTAL", "total"),
        ]),
    },
    Action {
        name: "show",
        about: "Show the progress of a replay",
        examples: &["posthaste replays show rpl_01jd… --tenant acme --watch"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/replays/{id}",
        fields: &[],
        shape: Shape::Replay,
    },
    Action {
        name: "cancel",
        about: "Stop a replay; deliveries that it already started continue",
        examples: &["posthaste replays cancel rpl_01jd… --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/replays/{id}/cancel",
        fields: &[],
        shape: Shape::Object(None),
    },
];
