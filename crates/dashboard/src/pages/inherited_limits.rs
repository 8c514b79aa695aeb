//! The limits that an endpoint inherits: those of its tenant, or else of the server. Forms show them as values.

use posthaste_api::problem::Problem;
use posthaste_api::resources::Tenant;

use crate::page_request::PageRequest;

/// Limits with their origin in words, as a form shows them.
pub(super) struct InheritedLimits {
    pub(super) timeout: String,
    pub(super) max_in_flight: String,
    pub(super) per_second: String,
    pub(super) burst: String,
    /// The retry policy and its origin.
    pub(super) policy: String,
}

impl InheritedLimits {
    /// Returns the limits of endpoints of this tenant that set none.
    pub(super) async fn load(request: &PageRequest) -> Result<InheritedLimits, Problem> {
        let tenant: Tenant = request.tenant_get("").await?;
        let settings = &request.dashboard.app.settings;
        let server = &settings.endpoint_defaults;
        let own = tenant.endpoint_defaults;
        let own = own.as_ref();
        let rate = own.and_then(|own| own.rate_limit.as_ref());
        let timeout = own.and_then(|own| own.timeout.clone());
        let max_in_flight = own.and_then(|own| own.max_in_flight);
        let (policy, origin) = match &tenant.default_retry_policy {
            Some(policy) => (policy, "tenant"),
            None => (&settings.default_policy.1, "server"),
        };
        let preset = policy["preset"].as_str().unwrap_or("custom policy");
        Ok(InheritedLimits {
            timeout: timeout.unwrap_or_else(|| server.timeout.to_string()),
            max_in_flight: max_in_flight.unwrap_or(server.max_in_flight).to_string(),
            per_second: rate
                .map_or(server.rate_limit.per_second, |rate| rate.per_second)
                .to_string(),
            burst: rate
                .map_or(server.rate_limit.burst, |rate| rate.burst)
                .to_string(),
            policy: format!("{preset} ({origin})"),
        })
    }

    /// Returns the inherited value of a form field.
    pub(super) fn of(&self, name: &str) -> &str {
        match name {
            "timeout" => &self.timeout,
            "max_in_flight" => &self.max_in_flight,
            "per_second" => &self.per_second,
            "burst" => &self.burst,
            _ => "",
        }
    }
}
