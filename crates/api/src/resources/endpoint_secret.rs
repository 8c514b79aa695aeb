//! The signing secrets of an endpoint.

use posthaste_core::sign::{SigningKey, VerifyingKey};
use posthaste_core::time::Timestamp;
use posthaste_engine::signing_keys::{SigningKeyring, reveal};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::endpoint::{EXAMPLE_SECRET, PUBLIC_KEY};
use super::schema::{Schema, named, object_requiring, text, time, with_examples};

/// The signing secret, and previous ones that still sign.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSecret {
    /// The signing secret.
    pub secret: String,
    /// The public key that receivers verify with, if the secret is a key pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Previous secrets.
    pub previous: Vec<PreviousSecret>,
}

/// A previous secret that still signs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    /// The secret.
    pub secret: String,
    /// Its public key, if it is a key pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The time until which it signs.
    pub valid_until: String,
}

impl EndpointSecret {
    /// Reveals the secrets that sign at `now`.
    pub fn reveal(keyring: &SigningKeyring, now: Timestamp) -> EndpointSecret {
        let previous = keyring.earlier(now).map(|(key, until)| PreviousSecret {
            secret: reveal(key),
            public_key: public_key(key),
            valid_until: until.to_string(),
        });
        EndpointSecret {
            secret: reveal(keyring.newest()),
            public_key: public_key(keyring.newest()),
            previous: previous.collect(),
        }
    }
}

/// Returns the public key that receivers verify with, if the key is a key pair.
pub(crate) fn public_key(key: &SigningKey) -> Option<String> {
    match key.verifying_key() {
        VerifyingKey::Shared(_) => None,
        VerifyingKey::Public(key) => Some(key.to_string()),
    }
}

/// Returns the schema of [`EndpointSecret`].
pub(crate) fn schema() -> Schema {
    let public_key = json!({"type": "string", "description": PUBLIC_KEY});
    let previous = object_requiring(
        &["secret", "valid_until"],
        json!({"secret": text(), "public_key": public_key, "valid_until": time()}),
    );
    let previous = named("PreviousSecret", previous);
    let shape = object_requiring(
        &["secret", "previous"],
        json!({
            "secret": text(),
            "public_key": public_key,
            "previous": {"type": "array", "items": previous},
        }),
    );
    Schema {
        name: "EndpointSecret",
        shape: with_examples(shape, json!([{"secret": EXAMPLE_SECRET, "previous": []}])),
    }
}
