//! Maintenance: retention runs, and re-encryption after a change of the master key.
//!
//! [`start`] deletes expired data in the background. [`reseal`] encrypts all secrets with the newest master key.

mod retention_throttle;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::TenantId;
use posthaste_store::{PageRequest, ReplaceResult, Retention, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::retention_throttle::{RetentionThrottle, StepResult};
use crate::owner_router::OwnerRouter;
use crate::vault::Vault;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::housekeeping";

/// Interval at which a node that does not own the first shard checks its ownership.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Page size for reading tenants and endpoints.
const PAGE: usize = 250;

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
        ControlFlow::Continue(
            match self
                .store
                .step_retention(self.clock.wall(), retention)
                .await
            {
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
            },
        )
    }
}

/// Result of the re-encryption, as numbers of endpoints.
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
