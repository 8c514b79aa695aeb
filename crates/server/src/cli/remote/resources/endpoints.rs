//! Commands on endpoints.
//!
//! [`ENDPOINTS`] lists each action with its path, its options and an example. Nothing here runs; `args` makes the
//! command line of it and `build` the request.

use http::Method;

use super::super::action::{Action, Field, Kind, Shape, body, positional};
use super::protection::{DISABLE_AFTER, DISABLE_ON_GONE, DISABLE_WARN_BEFORE, REFUSALS};

pub(super) const SECRET_KIND: Field = body(
    "secret-kind",
    "secret_kind",
    Kind::OneOf(&["hmac", "ed25519"]),
    "Which kind of signing secret is made",
);

pub(super) const SECRET_FILE: Field = body(
    "secret-file",
    "secret",
    Kind::SecretFile,
    "A signing secret to take over, in a file; - reads standard input",
);

/// The fields that creating and updating an endpoint have in common, between those that differ.
macro_rules! endpoint_fields {
    ([$($before:expr),*], [$($after:expr),*]) => {
        [
            $($before,)*
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
                Kind::DurationOrDefault,
                "Maximum duration of an attempt, 1s to 60s",
            ),
            body(
                "max-in-flight",
                "max_in_flight",
                Kind::IntegerOrDefault,
                "Maximum number of requests in flight",
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
                Kind::Integer,
                "So many of them at once after a quiet time",
            ),
            body(
                "ordered",
                "ordered",
                Kind::Bool,
                "Deliveries with the same ordering key go one after the other; --ordered=false ends it",
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
            body(
                "signature-style",
                "signature_style",
                Kind::OneOf(&["standard", "github", "stripe"]),
                "Which signature it gets besides the standard one",
            ),
            body(
                "auth-file",
                "auth",
                Kind::Json,
                "What it is called with, as JSON in a file, such as {\"kind\":\"bearer\",\"token\":\"…\"}; /docs has the other kinds; - reads standard input",
            ),
            body(
                "client-certificate",
                "client_certificate.certificate",
                Kind::TextFile,
                "What is shown to it if it asks for a certificate, as a PEM file",
            ),
            body(
                "client-key",
                "client_certificate.private_key",
                Kind::TextFile,
                "The certificate's private key, as a PEM file",
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
    [positional("url", "URL", "Where it is")],
    [SECRET_KIND, SECRET_FILE]
);
static ENDPOINT_UPDATE: &[Field] = &endpoint_fields!(
    [body("url", "url", Kind::Text, "Where it is")],
    [
        body(
            "no-auth",
            "auth",
            Kind::Clear,
            "Call it without authorization from now on",
        ),
        body(
            "no-client-certificate",
            "client_certificate",
            Kind::Clear,
            "Show it no certificate from now on",
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
        about: "Create an endpoint, and show its signing secret",
        examples: &[
            "posthaste endpoints create https://example.com/hooks --tenant acme",
            "posthaste endpoints create https://example.com/hooks --tenant acme --event-types 'invoice.*'",
            "posthaste endpoints create https://example.com/hooks --tenant acme --auth-file auth.json",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/endpoints",
        fields: ENDPOINT_CREATE,
        shape: Shape::Object(Some(
            "give the secret to whoever runs the endpoint: it proves what comes from here",
        )),
    },
    Action {
        name: "update",
        about: "Change an endpoint; what is not named stays",
        examples: &["posthaste endpoints update ep_01jd… --tenant acme --timeout 10s --rate 5"],
        method: Method::PATCH,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: ENDPOINT_UPDATE,
        shape: Shape::Object(None),
    },
    Action {
        name: "delete",
        about: "Delete an endpoint; what waits for it is given up",
        examples: &["posthaste endpoints delete ep_01jd… --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/endpoints/{id}",
        fields: &[],
        shape: Shape::NoContent("deleted"),
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
    on_endpoint(
        "send-confirmation",
        "Send the owner's address another email to confirm it",
        &["posthaste endpoints send-confirmation ep_01jd… --tenant acme"],
        "/v1/tenants/{tenant}/endpoints/{id}/owner-email/confirmation",
    ),
    Action {
        name: "health",
        about: "Show how an endpoint is doing: breaker, backlog, failures, latency",
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
        about: "Give an endpoint a new signing secret; the old one signs along for a while",
        examples: &[
            "posthaste endpoints rotate-secret ep_01jd… --tenant acme",
            "posthaste endpoints rotate-secret ep_01jd… --tenant acme --overlap 1h",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/endpoints/{id}/secret/rotate",
        fields: &[
            body(
                "overlap",
                "overlap",
                Kind::Duration,
                "How long the old one signs along, 24h unless said; 0s ends it at once",
            ),
            SECRET_KIND,
            SECRET_FILE,
        ],
        shape: Shape::Object(None),
    },
];
