//! Tenants as the API shows them: the name, the limits and the settings that their endpoints inherit.

use posthaste_core::lane::ProtectionOverrides;
use posthaste_store::Limits;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::limits;
use super::protection::EndpointDefaults;
use super::schema::{
    Schema, nullable, nullable_text, object, reference, text, time, with_examples,
};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Default retry policy of its endpoints, as it was written.
    pub default_retry_policy: Option<Value>,
    /// Name of its plan.
    pub plan: Option<String>,
    /// Its own limits.
    pub limits: Limits,
    /// Limits of its endpoints that set none.
    pub endpoint_defaults: Option<EndpointDefaults>,
    /// Thresholds of its endpoints that override those of the server.
    pub protection: Option<ProtectionOverrides>,
    /// The time at which it was created.
    pub created_at: String,
}

impl From<&posthaste_store::Tenant> for Tenant {
    fn from(tenant: &posthaste_store::Tenant) -> Tenant {
        Tenant {
            id: tenant.id.to_string(),
            name: tenant.name.clone(),
            default_retry_policy: tenant.default_retry_policy.clone(),
            plan: tenant.plan.clone(),
            limits: tenant.limits,
            endpoint_defaults: EndpointDefaults::of(&tenant.endpoint_defaults),
            protection: Some(tenant.protection).filter(|own| !own.is_empty()),
            created_at: tenant.created_at.to_string(),
        }
    }
}

/// Returns the schema of [`Tenant`].
pub(crate) fn schema() -> Schema {
    let shape = object(json!({
        "id": text(),
        "name": text(),
        "default_retry_policy": nullable(reference("RetryPolicy")),
        "plan": nullable_text(),
        "limits": reference("Limits"),
        "endpoint_defaults": nullable(reference("EndpointDefaults")),
        "protection": nullable(reference("Protection")),
        "created_at": time(),
    }));
    let example = json!({
        "id": "acme", "name": "Acme", "default_retry_policy": null,
        "plan": null, "limits": limits::example(), "endpoint_defaults": null, "protection": null,
        "created_at": "2026-01-02T03:04:05.678Z",
    });
    Schema {
        name: "Tenant",
        shape: with_examples(shape, json!([example])),
    }
}
