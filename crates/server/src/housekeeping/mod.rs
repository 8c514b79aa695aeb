//! What has to be done now and then: removing what is old, and sealing anew after the master key was
//! changed.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_store::{PageRequest, Replaced, Retention, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::pace::{Pace, Stepped};

use crate::clock::Clock;
use crate::switchboard::Switchboard;
use crate::vault::Vault;

/// How soon a node that is not the one to tidy looks whether it is.
const UNTIL_MINE: Duration = Duration::from_secs(10);
/// How many tenants or endpoints are read at once.
const PAGE: usize = 250;

/// Removes what has been finished for longer than it is kept, a little at a time, until told to stop. Each step looks at as
/// much as its own pace allows, whatever `retention` says.
pub fn start(
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Retention,
    switchboard: Arc<Switchboard>,
    mut stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    // Of several nodes one tidies: whoever owns the first shard.
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

/// Takes one step, and says how long to leave the store alone after it. Nothing if it is closed.
async fn tidy(
    store: &dyn Store,
    clock: &Clock,
    retention: Retention,
    pace: &mut Pace,
) -> Option<Duration> {
    let began = Instant::now();
    match store.tidy(clock.wall(), retention).await {
        Ok(tidied) => Some(pace.after(Stepped {
            took: began.elapsed(),
            removed: tidied.events + tidied.payloads + tidied.attempts > 0,
            more: tidied.more,
        })),
        Err(StoreError::Closed) => None,
        Err(error) => {
            let pause = pace.after_failure();
            let again_ms = pause.as_millis() as u64;
            tracing::warn!(%error, again_ms, "what is old could not be removed; it is tried again");
            Some(pause)
        }
    }
}

/// What sealing anew came to, in endpoints.
#[derive(Default)]
struct Resealed {
    done: u64,
    shut: u64,
}

/// Seals with the newest master key whatever was sealed with an older one, so that the older one can
/// be thrown away.
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
        tracing::info!(
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
                        Replaced::Done => {
                            resealed.done += 1;
                            tracing::debug!(%endpoint, "sealed with the newest master key");
                        }
                        // Nobody else is there yet; but if so, theirs is sealed with the newest key.
                        Replaced::Outdated | Replaced::Gone => {}
                    }
                }
                Err(error) => {
                    resealed.shut += 1;
                    tracing::error!(%endpoint, %error, "the secrets of an endpoint cannot be opened: nothing is sent to it until the master key they were sealed with is given again");
                }
            }
        }
        before = endpoints.next;
        if before.is_none() {
            return Ok(());
        }
    }
}
