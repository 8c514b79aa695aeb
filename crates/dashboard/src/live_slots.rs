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
    max_slots: usize,
    usage: Mutex<SlotUsage>,
    render_permits: Semaphore,
}

#[derive(Default)]
struct SlotUsage {
    total: usize,
    by_tenant: FxHashMap<TenantId, usize>,
}

/// A slot in use. Dropping it frees the slot.
pub(super) struct LiveSlot {
    slots: Arc<LiveSlots>,
    tenant: Option<TenantId>,
}

impl LiveSlots {
    /// Creates the slots of a server with this connection limit. They use at most half of the connections.
    pub(super) fn for_connections(connections: usize) -> LiveSlots {
        LiveSlots {
            max_slots: MAX_LIVE_STREAMS.min(connections / 2),
            usage: Mutex::default(),
            render_permits: Semaphore::new(MAX_RENDERED_AT_ONCE),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotUsage> {
        // No code panics while it holds the lock half-way through a change.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot for the caller, or returns `None` if its share is used up.
    pub(super) fn take(self: &Arc<LiveSlots>, caller: &Caller) -> Option<LiveSlot> {
        let tenant = match caller {
            Caller::Tenant(_, tenant) => Some(tenant.clone()),
            Caller::Admin(_) => None,
            Caller::Anonymous => return None,
        };
        let mut usage = self.lock();
        if usage.total >= self.max_slots {
            return None;
        }
        if let Some(tenant) = &tenant {
            let of_all_tenants: usize = usage.by_tenant.values().sum();
            let own = usage.by_tenant.get(tenant).copied().unwrap_or_default();
            if own >= MAX_LIVE_STREAMS_PER_TENANT
                || of_all_tenants >= self.max_slots - self.max_slots / 4
            {
                return None;
            }
            usage.by_tenant.insert(tenant.clone(), own + 1);
        }
        usage.total += 1;
        drop(usage);
        Some(LiveSlot {
            slots: self.clone(),
            tenant,
        })
    }

    /// Waits for permission to render a page. Dropping the permit admits the next page.
    pub(super) async fn render_permit(&self) -> SemaphorePermit<'_> {
        let permit = self.render_permits.acquire().await;
        permit.expect("the semaphore is never closed")
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        let mut usage = self.slots.lock();
        usage.total -= 1;
        let Some(tenant) = &self.tenant else {
            return;
        };
        match usage.by_tenant.get_mut(tenant) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => {
                usage.by_tenant.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_api::auth::Credential;
    use posthaste_core::id::SessionId;

    fn caller_of(tenant: &str) -> Caller {
        let tenant = tenant.parse().expect("a valid tenant id");
        Caller::Tenant(Credential::Link(SessionId(1)), tenant)
    }

    fn take_all(slots: &Arc<LiveSlots>, caller: &Caller) -> Vec<LiveSlot> {
        std::iter::from_fn(|| slots.take(caller)).collect()
    }

    #[test]
    fn tenants_and_admins_keep_their_reserved_slots() {
        let slots = Arc::new(LiveSlots::for_connections(100_000));
        let acme = take_all(&slots, &caller_of("acme"));
        assert_eq!(acme.len(), MAX_LIVE_STREAMS_PER_TENANT);
        let many = (0..50).map(|number| take_all(&slots, &caller_of(&format!("t{number}"))));
        let many: Vec<LiveSlot> = many.flatten().collect();
        assert_eq!(acme.len() + many.len(), MAX_LIVE_STREAMS / 4 * 3);
        let admin = Caller::Admin(Credential::Configured);
        assert_eq!(take_all(&slots, &admin).len(), MAX_LIVE_STREAMS / 4);
        drop(many);
        drop(acme);
        assert_eq!(
            take_all(&slots, &caller_of("acme")).len(),
            MAX_LIVE_STREAMS_PER_TENANT
        );
        assert_eq!(take_all(&slots, &admin).len(), MAX_LIVE_STREAMS);
        let usage = slots.lock();
        assert_eq!((usage.total, usage.by_tenant.len()), (0, 0));
    }

    #[test]
    fn slots_use_at_most_half_of_the_connections() {
        let slots = Arc::new(LiveSlots::for_connections(10));
        let admin = Caller::Admin(Credential::Configured);
        assert_eq!(take_all(&slots, &admin).len(), 5);
    }
}
