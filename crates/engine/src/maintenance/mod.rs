//! Maintenance: retention runs, and re-encryption after a change of the master key.
//!
//! [`start`] deletes expired data in the background. [`reseal`] encrypts all secrets with the newest master key.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_store::{PageRequest, ReplaceResult, Retention, Store, StoreError};
use posthaste_system::clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::pace::{Pace, StepResult};
use crate::owner_router::OwnerRouter;
use crate::vault::Vault;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::housekeeping";

/// Interval at which a node that does not own the first shard checks its ownership.
const UNTIL_MINE: Duration = Duration::from_secs(10);
/// Page size for reading tenants and endpoints.
const PAGE: usize = 250;

/// Deletes expired data in small steps until `stopped` is true. The pace decides the size of each step; the step size
/// in `retention` is ignored.
pub fn start(
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Retention,
    switchboard: Arc<OwnerRouter>,
    mut stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    // One node makes the retention runs: the owner of the first shard.
    let tidier = Shard::all().next().expect("there are shards");
    tokio::spawn(async move {
        let mut pace = Pace::default();
        loop {
            let pause = match switchboard.is_mine(tidier) {
                true => {
                    let step = Retention {
                        step: pace.step(),
                        ..retention.clone()
                    };
                    match tidy(&*store, &clock, step, &mut pace).await {
                        Some(pause) => pause,
                        None => return,
                    }
                }
                false => UNTIL_MINE,
            };
            let stopping = stopped.wait_for(|stopping| *stopping);
            if timeout(pause, stopping).await.is_ok() {
                return;
            }
        }
    })
}

/// Makes one step, and returns the pause after it. `None` if the store is closed.
async fn tidy(
    store: &dyn Store,
    clock: &Clock,
    retention: Retention,
    pace: &mut Pace,
) -> Option<Duration> {
    let began = Instant::now();
    match store.tidy(clock.wall(), retention).await {
        Ok(tidied) => Some(pace.after(StepResult {
            took: began.elapsed(),
            removed: tidied.events + tidied.payloads + tidied.attempts > 0,
            more: tidied.more,
        })),
        Err(StoreError::Closed) => None,
        Err(error) => {
            let pause = pace.after_failure();
            let again_ms = pause.as_millis() as u64;
            tracing::warn!(target: LOG_TARGET, %error, again_ms, "what is old could not be removed; it is tried again");
            Some(pause)
        }
    }
}

/// Result of the re-encryption, as numbers of endpoints.
#[derive(Default)]
struct Resealed {
    done: u64,
    shut: u64,
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
    if resealed.done > 0 && resealed.shut == 0 {
        let endpoints = resealed.done;
        tracing::info!(target: LOG_TARGET,
            endpoints,
            "every secret is sealed with the newest master key; the older ones can be removed"
        );
    }
    Ok(())
}

async fn reseal_tenant(
    store: &dyn Store,
    vault: &Vault,
    clock: &Clock,
    tenant: posthaste_core::id::TenantId,
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
                            tracing::debug!(target: LOG_TARGET, %endpoint, "sealed with the newest master key");
                        }
                        // No other writer is active yet. If one were, its version would be encrypted with the newest
                        // key.
                        ReplaceResult::Outdated | ReplaceResult::NotFound => {}
                    }
                }
                Err(error) => {
                    resealed.shut += 1;
                    tracing::error!(target: LOG_TARGET, %endpoint, %error, "the secrets of an endpoint cannot be opened: nothing is sent to it until the master key they were sealed with is given again");
                }
            }
        }
        before = endpoints.next;
        if before.is_none() {
            return Ok(());
        }
    }
}
