//! Maintenance: retention runs, and re-encryption after a change of the master key.
//!
//! [`start`] deletes expired data in the background. [`reseal`] encrypts all secrets with the newest master key.

mod retention_throttle;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    PageRequest, ReplaceResult, Retention, RetentionStepResult, Store, StoreError, Tenant,
};
use posthaste_system::clock::Clock;
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::retention_throttle::{RetentionThrottle, StepResult};
use crate::owner_router::OwnerRouter;
use crate::tenant_keys;
use crate::vault::Vault;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::housekeeping";

/// Interval at which a node that does not own the first shard checks its ownership.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Page size for reading tenants and endpoints.
const PAGE: usize = 250;
/// Minimum age of an origin endpoint that is deleted. A younger one may be about to get its first delivery.
const MIN_ORIGIN_AGE: Span = Span::from_hours(1);
/// Maximum number of origin endpoints that are deleted after one retention run.
const MAX_ORIGINS_DELETED: usize = 100;

/// Deletes expired data in small steps until `stopped` is true. The throttle decides the size of each step; the step
/// size in `retention` is ignored.
pub fn start(
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Retention,
    owner_router: Arc<OwnerRouter>,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let mut task = RetentionTask {
        store,
        clock,
        retention,
        owner_router,
        throttle: RetentionThrottle::default(),
    };
    tokio::spawn(async move { repeat(&mut task, stopped).await })
}

/// Makes the retention runs, on the node that owns the first shard.
struct RetentionTask {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Retention,
    owner_router: Arc<OwnerRouter>,
    throttle: RetentionThrottle,
}

impl PeriodicTask for RetentionTask {
    /// Makes one step.
    async fn round(&mut self) -> ControlFlow<(), Duration> {
        let first_shard = Shard::all().next().expect("there is at least one shard");
        if !self.owner_router.is_mine(first_shard) {
            return ControlFlow::Continue(OWNERSHIP_CHECK_INTERVAL);
        }
        let retention = Retention {
            step: self.throttle.step(),
            ..self.retention.clone()
        };
        let began = Instant::now();
        let now = self.clock.wall();
        ControlFlow::Continue(match self.step(now, retention).await {
            Ok(step) => self.throttle.after(StepResult {
                took: began.elapsed(),
                removed: step.events + step.payloads + step.attempts > 0,
                more: step.more,
            }),
            Err(StoreError::Closed) => return ControlFlow::Break(()),
            Err(error) => {
                let pause = self.throttle.after_failure();
                let again_ms = pause.as_millis() as u64;
                tracing::warn!(target: LOG_TARGET, %error, again_ms, "retention run failed; retrying");
                pause
            }
        })
    }
}

impl RetentionTask {
    /// Makes one step of a retention run. The last step also deletes origin endpoints that have no deliveries any more.
    async fn step(
        &self,
        now: Timestamp,
        retention: Retention,
    ) -> Result<RetentionStepResult, StoreError> {
        let step = self.store.step_retention(now, retention).await?;
        if !step.more {
            let before = Timestamp(now.0.saturating_sub(MIN_ORIGIN_AGE.as_millis()));
            self.store
                .delete_idle_origins(now, before, MAX_ORIGINS_DELETED)
                .await?;
        }
        Ok(step)
    }
}

/// Result of the re-encryption, as numbers of endpoints and tenants.
#[derive(Default)]
struct Resealed {
    done: u64,
    unreadable: u64,
}

/// Encrypts with the newest master key all secrets that are encrypted with an older one, so that the older key can be
/// removed.
pub async fn reseal(store: &dyn Store, vault: &Vault, clock: &Clock) -> Result<(), StoreError> {
    let mut resealed = Resealed::default();
    let mut before = None;
    loop {
        let page = PageRequest {
            limit: PAGE,
            before,
        };
        let tenants = store.tenants(page).await?;
        for tenant in tenants.items {
            reseal_tenant_keys(store, vault, clock, &tenant, &mut resealed).await?;
            reseal_tenant(store, vault, clock, tenant.id, &mut resealed).await?;
        }
        before = tenants.next;
        if before.is_none() {
            break;
        }
    }
    if resealed.done > 0 && resealed.unreadable == 0 {
        let endpoints = resealed.done;
        tracing::info!(target: LOG_TARGET,
            endpoints,
            "all secrets are encrypted with the newest master key; older keys can be removed"
        );
    }
    Ok(())
}

/// Encrypts the tenant's own keys with the newest master key.
async fn reseal_tenant_keys(
    store: &dyn Store,
    vault: &Vault,
    clock: &Clock,
    tenant: &Tenant,
    resealed: &mut Resealed,
) -> Result<(), StoreError> {
    match tenant_keys::reseal(vault, &tenant.id, &tenant.sealed_keys) {
        Ok(None) => {}
        Ok(Some(sealed_keys)) => {
            let changed = Tenant {
                sealed_keys,
                ..tenant.clone()
            };
            match store.replace_tenant(clock.wall(), changed).await? {
                ReplaceResult::Done => resealed.done += 1,
                // As for an endpoint.
                ReplaceResult::Outdated | ReplaceResult::NotFound => {}
            }
        }
        Err(error) => {
            resealed.unreadable += 1;
            let tenant = &tenant.id;
            tracing::error!(target: LOG_TARGET, %tenant, %error, "cannot decrypt the keys of a tenant: none of its one-off requests is sent until the master key they were encrypted with is available");
        }
    }
    Ok(())
}

async fn reseal_tenant(
    store: &dyn Store,
    vault: &Vault,
    clock: &Clock,
    tenant: TenantId,
    resealed: &mut Resealed,
) -> Result<(), StoreError> {
    let mut before = None;
    loop {
        let page = PageRequest {
            limit: PAGE,
            before,
        };
        let endpoints = store.endpoints(tenant.clone(), page).await?;
        for row in endpoints.items {
            let endpoint = row.endpoint.id;
            match vault.reseal_endpoint(&row.endpoint) {
                Ok(None) => {}
                Ok(Some(sealed)) => {
                    let replaced = store.replace_endpoint(clock.wall(), sealed).await?;
                    match replaced {
                        ReplaceResult::Done => {
                            resealed.done += 1;
                            tracing::debug!(target: LOG_TARGET, %endpoint, "encrypted secrets with the newest master key");
                        }
                        // No other writer is active yet. If one were, its version would be encrypted with the newest
                        // key.
                        ReplaceResult::Outdated | ReplaceResult::NotFound => {}
                    }
                }
                Err(error) => {
                    resealed.unreadable += 1;
                    tracing::error!(target: LOG_TARGET, %endpoint, %error, "cannot decrypt the secrets of an endpoint: nothing is sent to it until the master key they were encrypted with is available");
                }
            }
        }
        before = endpoints.next;
        if before.is_none() {
            return Ok(());
        }
    }
}
