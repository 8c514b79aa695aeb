//! Links to a tenant's portal.

use posthaste_store::LoginSession;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::patterns;
use super::schema::{Schema, matching, object, text, time, with_examples};

/// A portal link that has not expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalLink {
    /// Its id.
    pub id: String,
    /// The time at which it was created.
    pub created_at: String,
    /// The time at which it expires.
    pub expires_at: String,
}

/// A new portal link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedPortalLink {
    /// Its id.
    pub id: String,
    /// The link. Only the hash of its token is stored.
    pub url: String,
    /// The time at which it was created.
    pub created_at: String,
    /// The time at which it expires.
    pub expires_at: String,
}

impl From<&LoginSession> for PortalLink {
    fn from(session: &LoginSession) -> PortalLink {
        PortalLink {
            id: session.id.to_string(),
            created_at: session.created_at.to_string(),
            expires_at: session.expires_at.to_string(),
        }
    }
}

impl PortalLink {
    /// Adds the link itself.
    pub fn with_url(self, url: String) -> CreatedPortalLink {
        CreatedPortalLink {
            id: self.id,
            url,
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }
}

/// Returns the schemas of [`CreatedPortalLink`] and [`PortalLink`].
pub(crate) fn schemas() -> [Schema; 2] {
    let id = matching(patterns::id("pass"));
    let created =
        object(json!({"id": id, "url": text(), "created_at": time(), "expires_at": time()}));
    let created_example = json!({
        "id": "pass_01jd2kq8z3w5x7y9a1b2c3d4e5",
        "url": "https://hooks.example.com/portal/m5pQ0cJvXr2nTqKfVwYb8uZ1sLhDgEa3iOxN7tRk9cM",
        "created_at": "2026-01-02T03:04:05.678Z", "expires_at": "2026-01-02T04:04:05.678Z",
    });
    let link = object(json!({"id": id, "created_at": time(), "expires_at": time()}));
    let example = json!({
        "id": "pass_01jd2kq8z3w5x7y9a1b2c3d4e5",
        "created_at": "2026-01-02T03:04:05.678Z", "expires_at": "2026-01-02T04:04:05.678Z",
    });
    [
        Schema {
            name: "CreatedPortalLink",
            shape: with_examples(created, json!([created_example])),
        },
        Schema {
            name: "PortalLink",
            shape: with_examples(link, json!([example])),
        },
    ]
}
