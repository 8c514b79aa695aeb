//! Commands on endpoints.
//!
//! [`ENDPOINTS`] lists each action with its path, its options and an example. Nothing here runs; `args` makes the
//! command line of it and `build` the request.

use http::Method;

use super::super::action::{Action, Field, OptionKind, Shape, body, positional};
use super::protection::{DISABLE_AFTER, DISABLE_ON_GONE, DISABLE_WARN_BEFORE, REFUSALS};

pub(super) const OVERLAP: Field = body(
    "overlap",
    "overlap",
    OptionKind::Duration,
    "How long the old secret stays valid, default 24h; 0s invalidates it immediately",
);
pub(super) const SECRET_KIND: Field = body(
    "secret-kind",
    "secret_kind",
    OptionKind::OneOf(&["hmac", "ed25519"]),
    "Kind of the generated signing secret",
);

pub(super) const SECRET_FILE: Field = body(
    "secret-file",
    "secret",
    OptionKind::SecretFile,
    "File with a signing secret to import; - reads standard input",
);

/// The fields that creating and updating an endpoint have in common, between those that differ.
macro_rules! endpoint_fields {
    ([$($before:expr),*], [$($after:expr),*]) => {
        [
            $($before,)*
            body("description", "description", OptionKind::Text, "Description"),
            body(
                "event-types",
                "event_types",
                OptionKind::List,
                "Event types, such as invoice.paid,customer.*; all if omitted",
            ),
            body(
                "retry-policy",
                "retry_policy",
                OptionKind::Policy,
                "Retry policy: a preset, JSON, or @FILE (JSON or TOML); null for the tenant's default",
            ),
            body(
                "timeout",
                "timeout",
                OptionKind::DurationOrDefault,
                "Timeout of an attempt, 1s to 60s",
            ),
            body(
                "max-in-flight",
                "max_in_flight",
                OptionKind::IntegerOrDefault,
                "Maximum number of concurrent requests",
            ),
            body(
                "rate",
                "rate_limit.per_second",
                OptionKind::Number,
                "Maximum number of requests per second",
            ),
            body(
                "burst",
                "rate_limit.burst",
                OptionKind::Integer,
                "Burst size: requests allowed at once after an idle period",
            ),
            body(
                "ordered",
                "ordered",
                OptionKind::Bool,
                "Send deliveries with the same ordering key in order; --ordered=false disables it",
            ),
            body(
                "header",
                "headers",
                OptionKind::Headers,
                "Custom header, such as \"X-Team: billing\"; may be repeated",
            ),
            body(
                "owner-email",
                "owner_email",
                OptionKind::Text,
                "Email address that is notified about problems",
            ),
            body(
                "signature-style",
                "signature_style",
                OptionKind::OneOf(&["standard", "github", "stripe"]),
                "Signature headers in addition to the standard ones",
            ),
            body(
                "auth-file",
                "auth",
                OptionKind::Json,
                "Authorization as a JSON file, such as {\"kind\":\"bearer\",\"token\":\"…\"}; /docs lists the other kinds; - reads standard input",
            ),
            body(
                "client-certificate",
                "client_certificate.certificate",
                OptionKind::TextFile,
                "Client certificate for mutual TLS, as a PEM file",
            ),
            body(
                "client-key",
                "client_certificate.private_key",
                OptionKind::TextFile,
                "Private key of the client certificate, as a PEM file",
            ),
            REFUSALS,
            DISABLE_AFTER,
            DISABLE_WARN_BEFORE,
            DISABLE_ON_GONE,
            $($after,)*
        ]
    };
}

static ENDPOINT_CREATE: &[Field] = &endpoint_fields!(
    [positional("url", "URL", "URL")],
    [SECRET_KIND, SECRET_FILE]
);
static ENDPOINT_UPDATE: &[Field] = &endpoint_fields!(
    [body("url", "url", OptionKind::Text, "URL")],
    [
        body(
            "no-auth",
            "auth",
            OptionKind::Clear,
            "Remove the authorization",
        ),
        body(
            "no-client-certificate",
            "client_certificate",
            OptionKind::Clear,
            "Remove the client certificate",
        )
    ]
);

/// A command on one endpoint without options.
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
        shape: Shape::Object(None),
    }
}

pub(super) static ENDPOINTS: &[Action] = &[
    Action {
        name: "list",
        about: "List endpoints, newest first",
        examples: &["posthaste endpoints list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints",
        fields: &[],
        shape: Shape::List(&[
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
        shape: Shape::Object(None),
    },
    Action {
        name: "create",
        about: "Create an endpoint and show its signing secret",
        examples: &[
            "posthaste endpoints create https://example.com/hooks --tenant acme",
            "posthaste endpoints create https://example.com/hooks --tenant acme --event-types 'invoice.*'",
            "posthaste endpoints create https://example.com/hooks --tenant acme --auth-file auth.json",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/endpoints",
        fields: ENDPOINT_CREATE,
        shape: Shape::Object(Some(
            "give the secret to the receiver, which uses it to verify deliveries",
        )),
    },
    Action {
        name: "update",
        about: "Update an endpoint; settings that are not given stay unchanged",
        examples: &["posthaste endpoints update ep_01jd… --tenant acme --timeout 10s --rate 5"],
        method: Method::PATCH,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: ENDPOINT_UPDATE,
        shape: Shape::Object(None),
    },
    Action {
        name: "delete",
        about: "Delete an endpoint; its waiting deliveries fail",
        examples: &["posthaste endpoints delete ep_01jd… --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: &[],
        shape: Shape::NoContent("deleted"),
    },
    on_endpoint(
        "enable",
        "Enable a disabled endpoint",
        &["posthaste endpoints enable ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/enable",
    ),
    on_endpoint(
        "disable",
        "Disable an endpoint; its waiting deliveries fail",
        &["posthaste endpoints disable ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/disable",
    ),
    on_endpoint(
        "pause",
        "Pause an endpoint: hold its deliveries",
        &["posthaste endpoints pause ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/pause",
    ),
    on_endpoint(
        "resume",
        "Resume an endpoint: send held deliveries gradually",
        &["posthaste endpoints resume ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/resume",
    ),
    on_endpoint(
        "test",
        "Send a test event to an endpoint",
        &["posthaste endpoints test ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/test",
    ),
    on_endpoint(
        "send-confirmation",
        "Send the confirmation email to the owner's address again",
        &["posthaste endpoints send-confirmation ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/owner-email/confirmation",
    ),
    Action {
        name: "health",
        about: "Show the health of an endpoint: breaker, backlog, failures, latency",
        examples: &["posthaste endpoints health ep_01jd… --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints/{id}/health",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "secret",
        about: "Show the signing secret of an endpoint",
        examples: &["posthaste endpoints secret ep_01jd… --tenant acme --json"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/endpoints/{id}/secret",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "rotate-secret",
        about: "Rotate the signing secret; the old one stays valid for the overlap",
        examples: &[
            "posthaste endpoints rotate-secret ep_01jd… --tenant acme",
            "posthaste endpoints rotate-secret ep_01jd… --tenant acme --overlap 1h",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/endpoints/{id}/secret/rotate",
        fields: &[OVERLAP, SECRET_KIND, SECRET_FILE],
        shape: Shape::Object(None),
    },
];
