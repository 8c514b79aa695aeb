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
        "description": "What goes into the `Authorization` header. `oauth2` fetches a token with client credentials (RFC 6749, section 4.4), keeps it while it holds and fetches another before it ends. Passwords, tokens and secrets are sealed and never shown again.",
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
                "token_url": {"type": "string", "maxLength": MAX_URL_BYTES, "description": "Judged by the same rules as `url`."},
                "client_id": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_ID_BYTES},
                "client_secret": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_SECRET_BYTES},
                "scope": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_SCOPE_BYTES},
                "audience": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_AUDIENCE_BYTES},
                "client_authentication": {
                    "enum": ["basic", "body", null],
                    "description": "Where id and secret stand in the request for a token: in its `Authorization` header, which is the default, or in its body.",
                },
            })),
        ],
    })
}

/// The schema of `client_certificate` in a request.
pub(super) fn certificate() -> Value {
    json!({
        "description": "What is shown to a receiver that asks for a certificate (mutual TLS). PEM; the chain begins with the certificate itself; the key has no passphrase.",
        "anyOf": [
            {"type": "null"},
            object_requiring(&["certificate", "private_key"], json!({
                "certificate": {"type": "string", "maxLength": MAX_CERTIFICATE_BYTES},
                "private_key": {"type": "string", "maxLength": MAX_PRIVATE_KEY_BYTES},
            })),
        ],
    })
}
