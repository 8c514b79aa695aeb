//! Settings that every store takes when it is opened.

use std::sync::Arc;

use posthaste_core::id::TenantId;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::rng::Rng;
use serde_json::Value;

use crate::Plans;

/// Default of [`StoreSettings::max_deliveries_per_request`].
pub const DEFAULT_MAX_DELIVERIES_PER_REQUEST: u64 = 10_000;

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The retry policy of endpoints where neither the endpoint nor its tenant has one.
    pub default_policy: RetryPolicy,
    /// The plans, and the server's default limits.
    pub plans: Arc<Plans>,
    /// The RNG for ids.
    pub rng: Rng,
    /// Capacity of the write queue: of operations of posthaste itself, and as many of tenants. A tenant may hold as
    /// many of the tenants' places as are free.
    pub max_waiting_writes: usize,
    /// Maximum number of deliveries that one request may create.
    pub max_deliveries_per_request: u64,
    /// The tenant that gets the operational events. Its deliveries are in its own stats only, not in those of everything:
    /// they report on the deliveries of others, so a failing receiver of them would cause more of them.
    pub operational_tenant: Option<TenantId>,
}

impl StoreSettings {
    /// Creates the default settings.
    pub fn new(rng: Rng) -> StoreSettings {
        StoreSettings {
            default_policy: RetryPolicy::default(),
            plans: Arc::default(),
            rng,
            max_waiting_writes: 16_384,
            max_deliveries_per_request: DEFAULT_MAX_DELIVERIES_PER_REQUEST,
            operational_tenant: None,
        }
    }

    /// Returns the retry policy of an endpoint: its own, else its tenant's, else the server's.
    pub fn policy_for(&self, endpoint: Option<&Value>, tenant: Option<&Value>) -> RetryPolicy {
        // A stored policy was valid when it was stored. If a later version no longer understands it, deliveries must
        // go on.
        let read = |document: &Value| RetryPolicy::from_json(document).ok();
        let endpoint = endpoint.and_then(read);
        let tenant = tenant.and_then(read);
        endpoint
            .or(tenant)
            .unwrap_or_else(|| self.default_policy.clone())
    }
}
