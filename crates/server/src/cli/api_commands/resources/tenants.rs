//! Commands on tenants and their keys.
//!
//! [`TENANTS`] and [`KEYS`] list each action with its path, its options and an example.

use http::Method;

use super::super::action::{Action, Field, OptionKind, Shape, body, positional};
use super::endpoints::{OVERLAP, SECRET_FILE, SECRET_KIND};
use super::protection::{DISABLE_AFTER, DISABLE_ON_GONE, DISABLE_WARN_BEFORE, REFUSALS};

const TENANT_FIELDS: [Field; 23] = [
    body("name", "name", OptionKind::Text, "Name"),
    body("plan", "plan", OptionKind::Text, "Plan"),
    body(
        "retry-policy",
        "default_retry_policy",
        OptionKind::Policy,
        "Default retry policy of endpoints: a preset, JSON, or @FILE (JSON or TOML)",
    ),
    body(
        "endpoints",
        "limits.endpoints",
        OptionKind::IntegerOrDefault,
        "Maximum number of endpoints",
    ),
    body(
        "events-per-second",
        "limits.events_per_second",
        OptionKind::IntegerOrDefault,
        "Maximum events per second",
    ),
    body(
        "deliveries-per-second",
        "limits.deliveries_per_second",
        OptionKind::IntegerOrDefault,
        "Maximum deliveries per second, on each node",
    ),
    body(
        "events-per-month",
        "limits.events_per_month",
        OptionKind::IntegerOrDefault,
        "Maximum events per month",
    ),
    body(
        "payload-bytes",
        "limits.payload_bytes",
        OptionKind::IntegerOrDefault,
        "Maximum payload size in bytes",
    ),
    body(
        "max-attempts",
        "limits.max_attempts",
        OptionKind::IntegerOrDefault,
        "Maximum number of attempts in a retry policy",
    ),
    body(
        "retention",
        "limits.retention",
        OptionKind::DurationOrDefault,
        "Retention of finished deliveries, such as 30d",
    ),
    body(
        "payload-retention",
        "limits.payload_retention",
        OptionKind::DurationOrDefault,
        "Retention of payloads, such as 7d",
    ),
    body(
        "attempt-retention",
        "limits.attempt_retention",
        OptionKind::DurationOrDefault,
        "Retention of all attempts except the last",
    ),
    body(
        "in-flight",
        "limits.in_flight",
        OptionKind::IntegerOrDefault,
        "Maximum concurrent attempts",
    ),
    body(
        "schedules",
        "limits.schedules",
        OptionKind::IntegerOrDefault,
        "Maximum number of schedules",
    ),
    body(
        "shortest-schedule-interval",
        "limits.shortest_schedule_interval",
        OptionKind::DurationOrDefault,
        "Shortest interval of schedules, such as 1m",
    ),
    body(
        "endpoint-timeout",
        "endpoint_defaults.timeout",
        OptionKind::DurationOrDefault,
        "Default timeout of endpoints, 1s to 60s",
    ),
    body(
        "endpoint-max-in-flight",
        "endpoint_defaults.max_in_flight",
        OptionKind::IntegerOrDefault,
        "Default maximum number of concurrent requests of endpoints",
    ),
    body(
        "endpoint-rate",
        "endpoint_defaults.rate_limit.per_second",
        OptionKind::Number,
        "Default maximum number of requests per second of endpoints",
    ),
    body(
        "endpoint-burst",
        "endpoint_defaults.rate_limit.burst",
        OptionKind::Integer,
        "Default burst size of endpoints",
    ),
    REFUSALS,
    DISABLE_AFTER,
    DISABLE_WARN_BEFORE,
    DISABLE_ON_GONE,
];

static TENANT_CREATE: [Field; 24] =
    with_field(0, positional("id", "TENANT", "Id; generated if omitted"));
static TENANT_UPDATE: [Field; 24] = with_field(
    2,
    body("no-plan", "plan", OptionKind::Clear, "Remove the plan"),
);

/// Returns the fields of a tenant with one more at this position.
const fn with_field(position: usize, field: Field) -> [Field; 24] {
    let mut fields = [field; 24];
    let mut index = 0;
    while index < TENANT_FIELDS.len() {
        let shift = if index < position { 0 } else { 1 };
        fields[index + shift] = TENANT_FIELDS[index];
        index += 1;
    }
    fields
}

pub(super) static TENANTS: &[Action] = &[
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
        shape: Shape::List(&[
            ("ID", "id"),
            ("NAME", "name"),
            ("PLAN", "plan"),
            ("CREATED", "created_at"),
        ]),
    },
    Action {
        name: "show",
        about: "Show a tenant and its limits",
        examples: &["posthaste tenants show acme"],
        method: Method::GET,
        path: "/v1/tenants/{id}",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "usage",
        about: "Show the limits of a tenant, their source and usage",
        examples: &["posthaste tenants usage acme"],
        method: Method::GET,
        path: "/v1/tenants/{id}/usage",
        fields: &[],
        shape: Shape::Usage,
    },
    Action {
        name: "plans",
        about: "List the plans in the configuration",
        examples: &["posthaste tenants plans"],
        method: Method::GET,
        path: "/v1/plans",
        fields: &[],
        shape: Shape::Plans,
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
        shape: Shape::Object(None),
    },
    Action {
        name: "update",
        about: "Update a tenant; settings that are not given stay unchanged",
        examples: &[
            "posthaste tenants update acme --endpoints 500 --retry-policy patient",
            "posthaste tenants update acme --events-per-second default --no-plan",
        ],
        method: Method::PATCH,
        path: "/v1/tenants/{id}",
        fields: &TENANT_UPDATE,
        shape: Shape::Object(None),
    },
    Action {
        name: "delete",
        about: "Delete a tenant with all its data",
        examples: &["posthaste tenants delete acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{id}",
        fields: &[],
        shape: Shape::NoContent("deleted"),
    },
    Action {
        name: "signing-secret",
        about: "Show the signing secret for a tenant's one-off requests",
        examples: &["posthaste tenants signing-secret acme --json"],
        method: Method::GET,
        path: "/v1/tenants/{id}/signing-secret",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "rotate-signing-secret",
        about: "Rotate the signing secret of a tenant; the old one stays valid for the overlap",
        examples: &["posthaste tenants rotate-signing-secret acme --overlap 1h"],
        method: Method::POST,
        path: "/v1/tenants/{id}/signing-secret/rotate",
        fields: &[OVERLAP, SECRET_KIND, SECRET_FILE],
        shape: Shape::Object(None),
    },
];

pub(super) static KEYS: &[Action] = &[
    Action {
        name: "create",
        about: "Create a key for this tenant and show it once",
        examples: &["posthaste keys create ci --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/keys",
        fields: &[positional("name", "NAME", "Name")],
        shape: Shape::Object(Some("save the key: it is not shown again")),
    },
    Action {
        name: "list",
        about: "List the keys of a tenant; their values are not shown",
        examples: &["posthaste keys list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/keys",
        fields: &[],
        shape: Shape::List(&[("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")]),
    },
    Action {
        name: "revoke",
        about: "Revoke a key",
        examples: &["posthaste keys revoke key_01jd… --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/keys/{id}",
        fields: &[],
        shape: Shape::NoContent("revoked"),
    },
];
