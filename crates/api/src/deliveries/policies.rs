//! The endpoints of the deliveries in one response, with their retry policies.
//!
//! [`Policies`] reads each endpoint once, however many of its deliveries are in the response. A one-off delivery has
//! its own policy.

use std::borrow::Cow;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::EndpointId;
use posthaste_core::policy::RetryPolicy;
use posthaste_store::{EndpointRow, Tenant};
use rustc_hash::FxHashMap;

use crate::App;
use crate::problem::Problem;

/// Endpoints and their retry policies, read once for each endpoint.
pub(crate) struct Policies<'a> {
    app: &'a App,
    tenant: &'a Tenant,
    known: FxHashMap<EndpointId, KnownEndpoint>,
}

struct KnownEndpoint {
    policy: RetryPolicy,
    row: Option<EndpointRow>,
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
        let own = row
            .as_ref()
            .and_then(|row| row.endpoint.retry_policy.as_ref());
        let inherited = self.tenant.default_retry_policy.as_ref();
        // A stored policy that can no longer be read is skipped.
        let read = |document| RetryPolicy::from_json(document).ok();
        let policy = own
            .and_then(read)
            .or_else(|| inherited.and_then(read))
            .unwrap_or_else(|| self.app.settings.default_policy.0.clone());
        let policy = self.app.limits_of(self.tenant).bound(policy);
        self.known.insert(endpoint, KnownEndpoint { policy, row });
        Ok(())
    }

    /// Returns the policy of an endpoint.
    ///
    /// # Panics
    /// If it was not looked up.
    pub(crate) fn of_endpoint(&self, endpoint: EndpointId) -> &RetryPolicy {
        &self.known(endpoint).policy
    }

    /// Returns the policy of a delivery: that of its request, or else that of its endpoint.
    ///
    /// # Panics
    /// If its endpoint was not looked up.
    pub(crate) fn of(&self, delivery: &Delivery) -> Cow<'_, RetryPolicy> {
        delivery.policy(&self.known(delivery.facts().endpoint).policy)
    }

    /// Returns the stored row of an endpoint, if there is one.
    ///
    /// # Panics
    /// If it was not looked up.
    pub(crate) fn row_of(&self, endpoint: EndpointId) -> Option<&EndpointRow> {
        self.known(endpoint).row.as_ref()
    }

    fn known(&self, endpoint: EndpointId) -> &KnownEndpoint {
        self.known
            .get(&endpoint)
            .expect("every endpoint is looked up first")
    }
}
