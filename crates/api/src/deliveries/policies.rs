//! The retry policies of the deliveries in one response.

use posthaste_core::id::EndpointId;
use posthaste_core::policy::RetryPolicy;
use posthaste_store::Tenant;
use rustc_hash::FxHashMap;

use crate::App;
use crate::problem::Problem;

/// Retry policies, read once for each endpoint.
pub(crate) struct Policies<'a> {
    app: &'a App,
    tenant: &'a Tenant,
    known: FxHashMap<EndpointId, RetryPolicy>,
}

impl<'a> Policies<'a> {
    pub(crate) fn new(app: &'a App, tenant: &'a Tenant) -> Policies<'a> {
        Policies {
            app,
            tenant,
            known: FxHashMap::default(),
        }
    }

    /// Reads the policy of an endpoint, unless it is known.
    pub(crate) async fn look_up(&mut self, endpoint: EndpointId) -> Result<(), Problem> {
        if self.known.contains_key(&endpoint) {
            return Ok(());
        }
        let row = self.app.store.endpoint(endpoint).await?;
        let own = row.and_then(|row| row.endpoint.retry_policy);
        let inherited = self.tenant.default_retry_policy.as_ref();
        // A stored policy that can no longer be read is skipped.
        let read = |document| RetryPolicy::from_json(document).ok();
        let policy = own
            .as_ref()
            .and_then(read)
            .or_else(|| inherited.and_then(read))
            .unwrap_or_else(|| self.app.settings.default_policy.0.clone());
        let policy = self.app.limits_of(self.tenant).bound(policy);
        self.known.insert(endpoint, policy);
        Ok(())
    }

    /// Returns the policy of an endpoint.
    ///
    /// # Panics
    /// If it was not looked up.
    pub(crate) fn of(&self, endpoint: EndpointId) -> &RetryPolicy {
        self.known
            .get(&endpoint)
            .expect("the policy of every endpoint is looked up first")
    }
}
