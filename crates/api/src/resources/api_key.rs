//! API keys of a tenant.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::patterns;
use super::schema::{Schema, matching, object, text, time, with_examples};

/// An API key. Contains the key itself only in the response to its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The time at which it was created.
    pub created_at: String,
}

/// A new API key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedApiKey {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The key. Only its hash is stored.
    pub key: String,
    /// The time at which it was created.
    pub created_at: String,
}

impl From<&posthaste_store::ApiKey> for ApiKey {
    fn from(key: &posthaste_store::ApiKey) -> ApiKey {
        ApiKey {
            id: key.id.to_string(),
            name: key.name.clone(),
            created_at: key.created_at.to_string(),
        }
    }
}

impl ApiKey {
    /// Adds the key itself.
    pub fn with_key(self, key: String) -> CreatedApiKey {
        CreatedApiKey {
            id: self.id,
            name: self.name,
            key,
            created_at: self.created_at,
        }
    }
}

/// Returns the schemas of [`CreatedApiKey`] and [`ApiKey`].
pub(crate) fn schemas() -> [Schema; 2] {
    let id = matching(patterns::id("key"));
    let created = object(json!({
        "id": id,
        "name": text(),
        "key": {"type": "string", "pattern": "^ph_"},
        "created_at": time(),
    }));
    let created_example = json!({
        "id": "key_01jd2kq8z3w5x7y9a1b2c3d4e5", "name": "ci",
        "key": "ph_m5pQ0cJvXr2nTqKfVwYb8uZ1sLhDgEa3iOxN7tRk9cM",
        "created_at": "2026-01-02T03:04:05.678Z",
    });
    let key = object(json!({"id": id, "name": text(), "created_at": time()}));
    let example = json!({
        "id": "key_01jd2kq8z3w5x7y9a1b2c3d4e5", "name": "ci",
        "created_at": "2026-01-02T03:04:05.678Z",
    });
    [
        Schema {
            name: "CreatedKey",
            shape: with_examples(created, json!([created_example])),
        },
        Schema {
            name: "Key",
            shape: with_examples(key, json!([example])),
        },
    ]
}
