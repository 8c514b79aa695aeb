//! Schemas of credentials in requests.

use posthaste_core::address::MAX_URL_BYTES;
use serde_json::{Value, json};

use super::auth::{
    MAX_AUDIENCE_BYTES, MAX_CERTIFICATE_BYTES, MAX_CLIENT_ID_BYTES, MAX_CLIENT_SECRET_BYTES,
    MAX_PASSWORD_BYTES, MAX_PRIVATE_KEY_BYTES, MAX_SCOPE_BYTES, MAX_TOKEN_BYTES,
    MAX_USERNAME_BYTES,
};
use crate::resources::schema::object_requiring;

/// The schema of `auth` in a request.
pub(super) fn auth() -> Value {
    json!({
        "description": "The `Authorization` header. `oauth2` fetches a token with client credentials (RFC 6749, section 4.4), caches it and renews it before it expires. Passwords, tokens and secrets are encrypted and never shown again.",
        "anyOf": [
            {"type": "null"},
            object_requiring(&["kind", "username", "password"], json!({
                "kind": {"const": "basic"},
                "username": {"type": "string", "maxLength": MAX_USERNAME_BYTES, "description": "Without a colon."},
                "password": {"type": "string", "maxLength": MAX_PASSWORD_BYTES},
            })),
            object_requiring(&["kind", "token"], json!({
                "kind": {"const": "bearer"},
                "token": {"type": "string", "minLength": 1, "maxLength": MAX_TOKEN_BYTES},
            })),
            object_requiring(&["kind", "token_url", "client_id", "client_secret"], json!({
                "kind": {"const": "oauth2"},
                "token_url": {"type": "string", "maxLength": MAX_URL_BYTES, "description": "The same rules apply as for `url`."},
                "client_id": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_ID_BYTES},
                "client_secret": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_SECRET_BYTES},
                "scope": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_SCOPE_BYTES},
                "audience": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_AUDIENCE_BYTES},
                "client_authentication": {
                    "enum": ["basic", "body", null],
                    "description": "Where the token request has client id and secret: in the `Authorization` header (default) or in the body.",
                },
            })),
        ],
    })
}

/// The schema of `client_certificate` in a request.
pub(super) fn certificate() -> Value {
    json!({
        "description": "Client certificate for mutual TLS. PEM; the chain starts with the certificate itself; the key has no passphrase.",
        "anyOf": [
            {"type": "null"},
            object_requiring(&["certificate", "private_key"], json!({
                "certificate": {"type": "string", "maxLength": MAX_CERTIFICATE_BYTES},
                "private_key": {"type": "string", "maxLength": MAX_PRIVATE_KEY_BYTES},
            })),
        ],
    })
}
