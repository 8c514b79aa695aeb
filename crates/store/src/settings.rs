//! What every engine is told when it is opened.

use std::sync::Arc;

use posthaste_core::dice::Dice;
use posthaste_core::policy::RetryPolicy;
use serde_json::Value;

use crate::Plans;

/// What a store has to know.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The retry policy where neither the endpoint nor its tenant has one.
    pub default_policy: RetryPolicy,
    /// What plans there are, and what is allowed without one.
    pub plans: Arc<Plans>,
    /// Where ids take their chance from.
    pub dice: Dice,
    /// How many writes may wait at once.
    pub max_waiting_writes: usize,
}

impl StoreSettings {
    /// The usual settings.
    pub fn new(dice: Dice) -> StoreSettings {
        StoreSettings {
            default_policy: RetryPolicy::default(),
            plans: Arc::default(),
            dice,
            max_waiting_writes: 16_384,
        }
    }

    /// The policy that holds for an endpoint: its own, else its tenant's, else the server's.
    pub fn policy_for(&self, endpoint: Option<&Value>, tenant: Option<&Value>) -> RetryPolicy {
        // What is stored was valid when it was stored; what a later version no longer understands
        // must not keep anything from being delivered.
        let read = |document: &Value| RetryPolicy::from_json(document).ok();
        let endpoint = endpoint.and_then(read);
        let tenant = tenant.and_then(read);
        endpoint
            .or(tenant)
            .unwrap_or_else(|| self.default_policy.clone())
    }
}
