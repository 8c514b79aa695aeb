//! Limits on live pages.
//!
//! Every live page occupies a connection and is rendered again and again. [`LiveSlots`] limits the number of live pages
//! in total and per tenant. All tenants together get three quarters of the slots; the rest is reserved for the
//! operator. Only [`MAX_RENDERED_AT_ONCE`] pages are rendered at the same time; others wait for a permit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_api::auth::Caller;
use posthaste_core::id::TenantId;
use rustc_hash::FxHashMap;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of live pages on one node.
const MAX_LIVE_STREAMS: usize = 200;
/// Maximum number of live pages of one tenant.
const MAX_LIVE_STREAMS_PER_TENANT: usize = 20;
/// Maximum number of pages that are rendered at the same time.
const MAX_RENDERED_AT_ONCE: usize = 4;

/// The slots for live pages.
pub(super) struct LiveSlots {
    most: usize,
    taken: Mutex<SlotUsage>,
    turns: Semaphore,
}

#[derive(Default)]
struct SlotUsage {
    all: usize,
    of_tenants: FxHashMap<TenantId, usize>,
}

/// A slot in use. Dropping it frees the slot.
pub(super) struct LiveSlot {
    places: Arc<LiveSlots>,
    tenant: Option<TenantId>,
}

impl LiveSlots {
    /// Creates the slots of a server with this connection limit. They use at most half of the connections.
    pub(super) fn for_connections(connections: usize) -> LiveSlots {
        LiveSlots {
            most: MAX_LIVE_STREAMS.min(connections / 2),
            taken: Mutex::default(),
            turns: Semaphore::new(MAX_RENDERED_AT_ONCE),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotUsage> {
        // No code panics while it holds the lock half-way through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot for the caller, or returns `None` if its share is used up.
    pub(super) fn take(self: &Arc<LiveSlots>, caller: &Caller) -> Option<LiveSlot> {
        let tenant = match caller {
            Caller::Tenant(_, tenant) => Some(tenant.clone()),
            Caller::Admin(_) => None,
            Caller::Nobody => return None,
        };
        let mut taken = self.lock();
        if taken.all >= self.most {
            return None;
        }
        if let Some(tenant) = &tenant {
            let of_all: usize = taken.of_tenants.values().sum();
            let own = taken.of_tenants.get(tenant).copied().unwrap_or_default();
            if own >= MAX_LIVE_STREAMS_PER_TENANT || of_all >= self.most - self.most / 4 {
                return None;
            }
            taken.of_tenants.insert(tenant.clone(), own + 1);
        }
        taken.all += 1;
        drop(taken);
        Some(LiveSlot {
            places: self.clone(),
            tenant,
        })
    }

    /// Waits for permission to render a page. Dropping the permit admits the next page.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.turns.acquire().await;
        turn.expect("nobody closes the semaphore")
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        let Some(tenant) = &self.tenant else {
            return;
        };
        match taken.of_tenants.get_mut(tenant) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => {
                taken.of_tenants.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_api::auth::Credential;
    use posthaste_core::id::PassId;

    fn somebody(tenant: &str) -> Caller {
        let tenant = tenant.parse().expect("an id");
        Caller::Tenant(Credential::Link(PassId(1)), tenant)
    }

    fn take_all(places: &Arc<LiveSlots>, caller: &Caller) -> Vec<LiveSlot> {
        std::iter::from_fn(|| places.take(caller)).collect()
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let places = Arc::new(LiveSlots::for_connections(100_000));
        let acme = take_all(&places, &somebody("acme"));
        assert_eq!(acme.len(), MAX_LIVE_STREAMS_PER_TENANT);
        let many = (0..50).map(|number| take_all(&places, &somebody(&format!("t{number}"))));
        let many: Vec<LiveSlot> = many.flatten().collect();
        assert_eq!(acme.len() + many.len(), MAX_LIVE_STREAMS / 4 * 3);
        let admin = Caller::Admin(Credential::Configured);
        assert_eq!(take_all(&places, &admin).len(), MAX_LIVE_STREAMS / 4);
        drop(many);
        drop(acme);
        assert_eq!(
            take_all(&places, &somebody("acme")).len(),
            MAX_LIVE_STREAMS_PER_TENANT
        );
        assert_eq!(take_all(&places, &admin).len(), MAX_LIVE_STREAMS);
        let taken = places.lock();
        assert_eq!((taken.all, taken.of_tenants.len()), (0, 0));
    }

    #[test]
    fn connections_are_left_for_everything_else() {
        let places = Arc::new(LiveSlots::for_connections(10));
        let admin = Caller::Admin(Credential::Configured);
        assert_eq!(take_all(&places, &admin).len(), 5);
    }
}
