//! Schemas of endpoints.

use posthaste_core::address::MAX_URL_BYTES;
use posthaste_core::lane::{MAX_BURST, MAX_IN_FLIGHT, MAX_PER_SECOND, MIN_PER_SECOND};
use posthaste_core::subscription::MAX_PATTERNS;
use serde_json::{Value, json};

use super::auth_schemas;
use super::form::{MAX_DESCRIPTION_CHARS, MAX_EMAIL_BYTES};
use super::headers::MAX_HEADERS;
use crate::route::Schema;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const PUBLIC_KEY: &str =
    "What receivers verify with, `whpk_…`, where the secret is an ed25519 key.";

pub(super) fn all() -> Vec<Schema> {
    let mut new = writable();
    new["secret"] = json!({
        "type": ["string", "null"],
        "description": "A secret to take over: `whsec_…`, or `whsk_…` for ed25519; where `signature_style` is `github` or `stripe` also one that another sender made up. Made if absent.",
    });
    new["secret_kind"] = secret_kind();
    let mut created = readable();
    created["secret"] =
        json!({"type": "string", "description": "What signs. To be had again from `…/secret`."});
    created["public_key"] = json!({"type": "string", "description": PUBLIC_KEY});
    let mut created_example = example();
    created_example["secret"] = json!(SECRET);
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
                        "rate_limit": {"per_second": 50, "burst": 100},
                    },
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
                    {"auth": {"kind": "bearer", "token": "correct-horse-battery"}},
                    {"auth": null, "client_certificate": null},
                ],
            }),
        },
        Schema {
            name: "Endpoint",
            shape: object(readable(), READ, example()),
        },
        Schema {
            name: "CreatedEndpoint",
            shape: {
                let required: Vec<&str> = READ.iter().copied().chain(["secret"]).collect();
                object(created, &required, created_example)
            },
        },
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
                    "secret": {"type": ["string", "null"], "description": "The new secret. Made if absent."},
                    "secret_kind": secret_kind(),
                    "overlap": {"type": ["string", "null"], "description": "For how long earlier secrets sign along, at most `30d`; `24h` if absent. Not in `x-hub-signature-256`, which the new secret signs at once."},
                },
                "additionalProperties": false,
                "examples": [{"overlap": "24h"}, {"secret_kind": "ed25519", "overlap": "7d"}],
            }),
        },
        Schema {
            name: "EndpointSecret",
            shape: secret_shape(),
        },
        Schema {
            name: "EndpointHealth",
            shape: health_shape(),
        },
    ]
}

/// Properties that every endpoint in a response has.
const READ: &[&str] = &[
    "id",
    "url",
    "description",
    "event_types",
    "status",
    "disabled_reason",
    "retry_policy",
    "retry_policy_from",
    "timeout",
    "max_in_flight",
    "rate_limit",
    "ordered",
    "headers",
    "signature_style",
    "auth",
    "client_certificate",
    "owner_email",
    "created_at",
];

fn object(properties: Value, required: &[&str], example: Value) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
        "examples": [example],
    })
}

fn rate_shape() -> Value {
    json!({
        "type": "object",
        "required": ["per_second"],
        "properties": {
            "per_second": {"type": "number", "minimum": MIN_PER_SECOND, "maximum": MAX_PER_SECOND},
            "burst": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_BURST},
        },
        "additionalProperties": false,
    })
}

fn writable() -> Value {
    let policy = json!({"$ref": "#/components/schemas/RetryPolicy"});
    json!({
        "url": {"type": "string", "maxLength": MAX_URL_BYTES},
        "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION_CHARS},
        "event_types": {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": MAX_PATTERNS},
        "retry_policy": {"anyOf": [policy, {"type": "null"}]},
        "timeout": {"type": ["string", "null"], "description": "From `1s` to `60s`."},
        "max_in_flight": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_IN_FLIGHT},
        "rate_limit": {"anyOf": [rate_shape(), {"type": "null"}]},
        "ordered": {"type": ["boolean", "null"], "description": "Deliveries with the same ordering key go one after the other."},
        "headers": {
            "type": ["object", "null"], "maxProperties": MAX_HEADERS,
            "additionalProperties": {"type": "string"},
        },
        "signature_style": {
            "anyOf": [{"enum": auth_schemas::styles()}, {"type": "null"}],
            "description": "The Standard Webhooks headers are always sent; `github` adds `x-hub-signature-256`, `stripe` adds `stripe-signature`. Both need an hmac secret, and take the whole text of it, `whsec_` included, for the key. `x-hub-signature-256` has room for one signature: it is the newest secret's, whatever the overlap of a rotation.",
        },
        "auth": auth_schemas::auth(),
        "client_certificate": auth_schemas::certificate(),
        "owner_email": {"type": ["string", "null"], "maxLength": MAX_EMAIL_BYTES},
    })
}

fn readable() -> Value {
    json!({
        "id": {"type": "string", "pattern": "^ep_[0-9a-hjkmnp-tv-z]{26}$"},
        "url": {"type": "string"},
        "description": {"type": "string"},
        "event_types": {"type": "array", "items": {"type": "string"}},
        "status": {"enum": ["enabled", "paused", "disabled"]},
        "disabled_reason": {"enum": ["manual", "gone", "permanent_failures", "failing_for_days", null]},
        "retry_policy": {"$ref": "#/components/schemas/RetryPolicy"},
        "retry_policy_from": {"enum": ["endpoint", "tenant", "server"]},
        "timeout": {"type": "string"},
        "max_in_flight": {"type": "integer"},
        "rate_limit": rate_shape(),
        "ordered": {"type": "boolean"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "signature_style": {"enum": auth_schemas::styles()},
        "auth": auth_schemas::shown_auth(),
        "client_certificate": auth_schemas::shown_certificate(),
        "owner_email": {"type": ["string", "null"]},
        "created_at": {"type": "string", "format": "date-time"},
    })
}

fn example() -> Value {
    json!({
        "id": "ep_01jd2kq8z3w5x7y9a1b2c3d4e5",
        "url": "https://example.com/hooks",
        "description": "",
        "event_types": ["invoice.*"],
        "status": "enabled",
        "disabled_reason": null,
        "retry_policy": {"preset": "recommended"},
        "retry_policy_from": "server",
        "timeout": "30s",
        "max_in_flight": 10,
        "rate_limit": {"per_second": 50, "burst": 100},
        "ordered": false,
        "headers": {"X-Team": "billing"},
        "signature_style": "standard",
        "auth": {"kind": "basic", "username": "posthaste"},
        "client_certificate": null,
        "owner_email": null,
        "created_at": "2026-01-02T03:04:05.678Z",
    })
}

fn secret_kind() -> Value {
    json!({
        "enum": ["hmac", "ed25519", null],
        "description": "Which kind is made: one that both sides share, for `v1` signatures, or a key pair, for `v1a`. `hmac` if absent.",
    })
}

fn secret_shape() -> Value {
    json!({
        "type": "object",
        "required": ["secret", "previous"],
        "properties": {
            "secret": {"type": "string"},
            "public_key": {"type": "string", "description": PUBLIC_KEY},
            "previous": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["secret", "valid_until"],
                    "properties": {
                        "secret": {"type": "string"},
                        "public_key": {"type": "string", "description": PUBLIC_KEY},
                        "valid_until": {"type": "string", "format": "date-time"},
                    },
                    "additionalProperties": false,
                },
            },
        },
        "additionalProperties": false,
        "examples": [{"secret": SECRET, "previous": []}],
    })
}

fn health_shape() -> Value {
    let number = json!({"type": ["number", "null"]});
    let time = json!({"type": ["string", "null"], "format": "date-time"});
    json!({
        "type": "object",
        "required": [
            "breaker", "pending", "in_flight", "next_attempt_at", "consecutive_failures",
            "success_ratio", "latency_ms",
        ],
        "properties": {
            "breaker": {
                "type": "object",
                "required": ["state", "until", "reason"],
                "properties": {
                    "state": {"enum": ["passing", "tripped", "probing"]},
                    "until": time,
                    "reason": {"enum": ["failure_ratio", "consecutive_failures", "exhausted_deliveries", null]},
                },
                "additionalProperties": false,
            },
            "pending": {"type": "integer", "minimum": 0},
            "in_flight": {"type": "integer", "minimum": 0},
            "next_attempt_at": time,
            "consecutive_failures": {"type": "integer", "minimum": 0},
            "success_ratio": {"type": "number", "minimum": 0, "maximum": 1},
            "latency_ms": {
                "type": "object",
                "required": ["p50", "p99"],
                "properties": {"p50": number, "p99": number},
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
        "examples": [{
            "breaker": {"state": "passing", "until": null, "reason": null},
            "pending": 0, "in_flight": 0, "next_attempt_at": null, "consecutive_failures": 0,
            "success_ratio": 1.0, "latency_ms": {"p50": 12.5, "p99": 80.0},
        }],
    })
}
