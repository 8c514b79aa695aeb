//! The tenant that an id belongs to.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{Schema, choice, object, text, with_examples};

/// The resource that an id names, and the tenant that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantOfId {
    /// The kind of resource: `delivery`, `event` or `endpoint`.
    pub kind: String,
    /// The id.
    pub id: String,
    /// Id of the tenant.
    pub tenant_id: String,
}

/// Returns the schema of [`TenantOfId`].
pub(crate) fn schemas() -> Vec<Schema> {
    let shape = object(json!({
        "kind": choice("ResourceKind", ["delivery", "event", "endpoint"]),
        "id": text(),
        "tenant_id": text(),
    }));
    let example = json!({
        "kind": "delivery", "id": "dlv_01jd2kq8z3w5x7y9a1b2c3d4e5", "tenant_id": "acme",
    });
    vec![Schema {
        name: "Found",
        shape: with_examples(shape, json!([example])),
    }]
}
