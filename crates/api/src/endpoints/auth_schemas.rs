//! Schemas of credentials in requests.

use serde_json::{Value, json};

use super::auth::{
    MAX_AUDIENCE_BYTES, MAX_CERTIFICATE_BYTES, MAX_CLIENT_ID_BYTES, MAX_CLIENT_SECRET_BYTES,
    MAX_PASSWORD_BYTES, MAX_PRIVATE_KEY_BYTES, MAX_SCOPE_BYTES, MAX_TOKEN_BYTES,
    MAX_USERNAME_BYTES,
};
use super::schemas::url;
use crate::resources::schema::{described, named, nullable, object_requiring};
use crate::resources::{client_authentication, patterns};

/// The schema of `auth` in a request.
pub(super) fn auth() -> Value {
    let mut basic = object_requiring(
        &["kind", "username", "password"],
        json!({
            "kind": {"const": "basic"},
            "username": {"type": "string", "maxLength": MAX_USERNAME_BYTES, "pattern": patterns::USERNAME, "description": "Without a colon."},
            "password": {"type": "string", "maxLength": MAX_PASSWORD_BYTES, "pattern": patterns::VISIBLE_TEXT},
        }),
    );
    let bearer = object_requiring(
        &["kind", "token"],
        json!({
            "kind": {"const": "bearer"},
            "token": {"type": "string", "minLength": 1, "maxLength": MAX_TOKEN_BYTES, "pattern": patterns::TOKEN},
        }),
    );
    let oauth2 = object_requiring(
        &["kind", "token_url", "client_id", "client_secret"],
        json!({
            "kind": {"const": "oauth2"},
            "token_url": url(),
            "client_id": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_ID_BYTES, "pattern": patterns::PRINTABLE},
            "client_secret": {"type": "string", "minLength": 1, "maxLength": MAX_CLIENT_SECRET_BYTES, "pattern": patterns::PRINTABLE},
            "scope": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_SCOPE_BYTES, "pattern": patterns::PRINTABLE},
            "audience": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_AUDIENCE_BYTES, "pattern": patterns::VISIBLE_TEXT},
            "client_authentication": described(
                nullable(client_authentication()),
                "Where the token request has client id and secret: in the `Authorization` header (default) or in the body.",
            ),
        }),
    );
    basic["not"] = json!({"properties": {"username": {"const": ""}, "password": {"const": ""}}});
    let credentials = json!({
        "description": "The `Authorization` header. `oauth2` fetches a token with client credentials (RFC 6749, section 4.4), caches it and renews it before it expires. Passwords, tokens and secrets are encrypted and never shown again.",
        "anyOf": [
            named("BasicCredentials", basic),
            named("BearerCredentials", bearer),
            named("OAuth2Credentials", oauth2),
        ],
    });
    nullable(named("Credentials", credentials))
}

/// The schema of `client_certificate` in a request.
pub(super) fn certificate() -> Value {
    let mut certificate = object_requiring(
        &["certificate", "private_key"],
        json!({
            "certificate": {"type": "string", "maxLength": MAX_CERTIFICATE_BYTES},
            "private_key": {"type": "string", "maxLength": MAX_PRIVATE_KEY_BYTES},
        }),
    );
    certificate["description"] = json!(
        "Client certificate for mutual TLS. PEM; the chain starts with the certificate itself; the key has no passphrase."
    );
    nullable(named("ClientCertificate", certificate))
}
