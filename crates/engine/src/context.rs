//! Dependencies and ownership state that the engine task and all attempts share.
//!
//! [`AttemptContext`] has the client, the token cache, the endpoint loader, the owned shards and the lease. It also
//! makes the permit of each request: the check, just before the first byte leaves, that the lease is valid and has not
//! been lost in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::id::EndpointId;
use posthaste_egress::{Client, SendPermit};
use posthaste_store::{Lease, Store};
use posthaste_system::clock::Clock;
use posthaste_telemetry::traces::Telemetry;

use super::endpoint_cache::{EndpointConfig, EndpointLoader};
use super::inbox::Inbox;
use super::log_rate_limit::LogLimiter;
use super::owned_shards::{LeaseLosses, OwnedShards, Ownership};
use super::tokens::TokenCache;

/// Pause before a failed read or write of the store is retried.
pub(super) const STORE_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Dependencies that all attempts share.
pub(super) struct AttemptContext {
    pub(super) client: Client,
    pub(super) tokens: Arc<TokenCache>,
    pub(super) store: Arc<dyn Store>,
    pub(super) loader: EndpointLoader,
    pub(super) inbox: Arc<Inbox>,
    pub(super) clock: Clock,
    pub(super) telemetry: Telemetry,
    /// Limits the log lines about attempts that internal errors prevented.
    pub(super) log_limiter: Mutex<LogLimiter>,
    /// The shards that this node owns.
    pub(super) owned_shards: OwnedShards,
    /// Counts the lease losses.
    pub(super) lease_losses: LeaseLosses,
    /// The lease for these shards.
    pub(super) lease: Lease,
}

impl AttemptContext {
    /// Returns true if this node certainly still owns its shards.
    pub(super) fn holds_lease(&self) -> bool {
        self.clock.now().tick < self.lease.end_by()
    }

    /// Returns a check for later: true if this node has owned the endpoint without interruption from now until the
    /// check runs.
    pub(super) fn owned_without_break(
        self: &Arc<AttemptContext>,
        endpoint: EndpointId,
    ) -> impl Fn() -> bool + use<> {
        let (context, then) = (self.clone(), self.owned_shards.of_endpoint(endpoint));
        move || {
            let is_same = match (then, context.owned_shards.of_endpoint(endpoint)) {
                (Ownership::NotOwned, _) | (_, Ownership::NotOwned) => false,
                (
                    Ownership::Owned(then) | Ownership::Releasing(then),
                    Ownership::Owned(now) | Ownership::Releasing(now),
                ) => then == now,
            };
            is_same && context.holds_lease()
        }
    }

    /// Returns the check that the client makes just before it starts a request.
    pub(super) fn permit(self: &Arc<AttemptContext>, lease_losses: u64) -> Option<SendPermit> {
        if self.lease.is_endless() {
            return None;
        }
        let context = self.clone();
        Some(SendPermit::new(move || {
            // The lease is read before the loss count: if it was renewed after a loss, the count read afterwards
            // includes that loss.
            context.clock.now().tick < context.lease.begin_by()
                && context.lease_losses.count() == lease_losses
        }))
    }

    /// Closes idle connections to an endpoint and drops its token, because the endpoint was changed or deleted.
    pub(super) fn forget(&self, before: &EndpointConfig) {
        self.client.forget(&before.pool_key);
        let request = before.request.as_ref().ok();
        if let Some(grant) = request.and_then(|request| request.grant.as_ref()) {
            self.client.forget(&grant.pool_key);
            self.tokens.forget(grant.key);
        }
    }
}
