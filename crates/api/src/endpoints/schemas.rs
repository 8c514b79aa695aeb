//! Schemas of endpoints: those of requests, which have no type, and those of the resources.
//!
//! [`all`] returns them in the order of the OpenAPI document. A test compares the schemas of resources with their
//! types.

use posthaste_core::address::MAX_URL_BYTES;
use posthaste_core::subscription::{MAX_EVENT_TYPE_CHARS, MAX_PATTERNS};
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::auth_schemas;
use super::form::{MAX_DESCRIPTION_CHARS, MAX_EMAIL_BYTES};
use super::headers::{MAX_HEADERS, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use super::secret::MAX_OVERLAP;
use crate::resources::schema::{choice, described, named, nullable, reference, span};
use crate::resources::{
    Schema, endpoint_health_schema, endpoint_schemas, endpoint_secret_schema, in_flight_schema,
    patterns, rate_limit_schema, signature_style, timeout_schema,
};

/// Minimum length of a signing secret.
const MIN_SECRET_CHARS: usize = 16;

/// Returns all schemas, in the order of the OpenAPI document.
pub(super) fn all() -> Vec<Schema> {
    let mut new = writable();
    new["secret"] = json!({
        "type": ["string", "null"], "minLength": MIN_SECRET_CHARS,
        "description": "A secret to import: `whsec_…`, or `whsk_…` for ed25519; with the `signature_style` `github` or `stripe` also a secret of another sender. Generated if absent.",
    });
    new["secret_kind"] = secret_kind();
    let [endpoint, created_endpoint] = endpoint_schemas();
    vec![
        Schema {
            name: "NewEndpoint",
            shape: json!({
                "type": "object",
                "required": ["url"],
                "properties": new,
                "additionalProperties": false,
                "examples": [
                    {"url": "https://example.com/hooks"},
                    {
                        "url": "https://example.com/hooks", "event_types": ["invoice.*"],
                        "retry_policy": {"preset": "swift"}, "headers": {"X-Team": "billing"},
                        "rate_limit": {"per_second": 100, "burst": 200},
                    },
                    {"url": "https://example.com/hooks", "protection": {"disable": {"on_gone": false}, "breaker": {"refusals": 20}}},
                    {
                        "url": "https://example.com/hooks", "signature_style": "github",
                        "auth": {
                            "kind": "oauth2", "token_url": "https://login.example.com/oauth/token",
                            "client_id": "posthaste", "client_secret": "correct-horse-battery", "scope": "hooks.write",
                        },
                    },
                    {
                        "url": "https://example.com/hooks", "secret_kind": "ed25519",
                        "auth": {"kind": "basic", "username": "posthaste", "password": "correct-horse-battery"},
                    },
                ],
            }),
        },
        Schema {
            name: "EndpointChange",
            shape: json!({
                "type": "object",
                "properties": writable(),
                "additionalProperties": false,
                "examples": [
                    {"timeout": "10s", "retry_policy": null},
                    {"max_in_flight": null, "protection": {"breaker": {"refusals": null}}},
                    {"auth": {"kind": "bearer", "token": "correct-horse-battery"}},
                    {"auth": null, "client_certificate": null},
                ],
            }),
        },
        endpoint,
        created_endpoint,
        Schema {
            name: "Nothing",
            shape: json!({
                "type": "object",
                "properties": {},
                "additionalProperties": false,
                "examples": [{}],
            }),
        },
        Schema {
            name: "Rotation",
            shape: json!({
                "type": "object",
                "properties": {
                    "secret": {"type": ["string", "null"], "minLength": MIN_SECRET_CHARS, "description": "The new secret. Generated if absent."},
                    "secret_kind": secret_kind(),
                    "overlap": described(
                        nullable(span("SecretOverlap", Span::ZERO, MAX_OVERLAP)),
                        "How long old secrets stay valid; default `24h`. Not in `x-hub-signature-256`, which uses the new secret immediately.",
                    ),
                },
                "additionalProperties": false,
                "examples": [{"overlap": "24h"}, {"secret_kind": "ed25519", "overlap": "7d"}],
            }),
        },
        endpoint_secret_schema(),
        endpoint_health_schema(),
    ]
}

fn writable() -> Value {
    json!({
        "url": url(),
        "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION_CHARS, "pattern": patterns::LINE},
        "event_types": {
            "type": ["array", "null"], "maxItems": MAX_PATTERNS,
            "items": {"type": "string", "pattern": patterns::SUBSCRIPTION, "maxLength": MAX_EVENT_TYPE_CHARS},
        },
        "retry_policy": nullable(reference("RetryPolicy")),
        "timeout": timeout_schema(),
        "max_in_flight": in_flight_schema(),
        "rate_limit": nullable(rate_limit_schema()),
        "protection": nullable(reference("Protection")),
        "ordered": {"type": ["boolean", "null"], "description": "Deliveries with the same ordering key are sent in order, one at a time."},
        "headers": headers(),
        "signature_style": described(
            nullable(signature_style()),
            "The Standard Webhooks headers are always sent; `github` adds `x-hub-signature-256`, `stripe` adds `stripe-signature`. Both require an hmac secret and use its whole text, including `whsec_`, as the key. `x-hub-signature-256` contains one signature, always of the newest secret.",
        ),
        "auth": auth_schemas::auth(),
        "client_certificate": auth_schemas::certificate(),
        "owner_email": {"type": ["string", "null"], "format": "email", "maxLength": MAX_EMAIL_BYTES},
    })
}

fn secret_kind() -> Value {
    described(
        nullable(choice("SecretKind", ["hmac", "ed25519"])),
        "Kind of the generated secret: a shared secret for `v1` signatures, or a key pair for `v1a`. Default `hmac`.",
    )
}

/// Returns the schema of a URL in a request.
pub(crate) fn url() -> Value {
    named(
        "WebhookUrl",
        json!({
            "type": "string", "format": "uri", "pattern": patterns::URL, "maxLength": MAX_URL_BYTES,
            "description": "An `https://` URL of a public address. The operator can allow plain HTTP and private networks.",
        }),
    )
}

/// Returns the schema of custom headers in a request.
pub(crate) fn headers() -> Value {
    let headers = json!({
        "type": "object", "maxProperties": MAX_HEADERS,
        "description": "Custom headers. Headers that HTTP or posthaste itself sets are rejected.",
        "propertyNames": {"pattern": patterns::HEADER_NAME, "maxLength": MAX_NAME_BYTES},
        "additionalProperties": {"type": "string", "pattern": patterns::HEADER_VALUE, "maxLength": MAX_VALUE_BYTES},
    });
    nullable(named("CustomHeaders", headers))
}
