//! Shares the concurrency limits of tenants with the other nodes.
//!
//! A limited tenant's limit applies to all nodes together. [`share_limits`] repeatedly asks the engine what it uses and
//! wants, reports that to the store, and applies the concurrency share that the store answers. Without limited tenants
//! it does not query the store. A node stops using slots before it reports them as returned, so the attempts in flight
//! on all nodes together never exceed the tenant's limit.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{ShareGrant, SlotDemand};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::id::TenantId;
use posthaste_store::Cluster;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::handle::Engine;
use super::reply::EngineError;

/// Interval between requests while this node has less than its fair share, or must return slots.
const URGENT_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between requests while this node has its fair share and no tenant starts to wait. If there are fewer slots
/// than nodes, each node keeps a slot for about this long.
const CALM_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum interval between two requests, however often tenants start to wait.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
/// Time for which a node keeps one unused slot that no other node wants, so that the next delivery need not request it.
const KEEP_IDLE_SLOT: Duration = Duration::from_secs(5);
/// No attempt is in flight and none is wanted.
const IDLE: SlotDemand = SlotDemand {
    in_force: 0,
    under_way: 0,
    wants: 0,
};

/// Tenants of which this node may hold slots, with their limits. An entry exists from the first request until the store
/// reports that no slots are held. So slots granted in a lost answer are still returned.
#[derive(Default)]
struct GrantedShares(FxHashMap<TenantId, ShareUse>);

#[derive(Clone, Copy)]
struct ShareUse {
    most: u32,
    /// Last time at which attempts were in flight or wanted.
    busy_at: Instant,
}

impl GrantedShares {
    /// Returns the requests to the store: for tenants that want slots, and for tenants that have slots to return.
    fn ask(&mut self, now: Instant, mut demands: Vec<TenantDemand>) -> Vec<TenantDemand> {
        demands.retain(|demand| demand.ask != IDLE || self.0.contains_key(&demand.tenant));
        let present: FxHashSet<TenantId> =
            demands.iter().map(|demand| demand.tenant.clone()).collect();
        let absent = self
            .0
            .iter()
            .filter(|(tenant, _)| !present.contains(*tenant));
        demands.extend(absent.map(|(tenant, holding)| TenantDemand {
            tenant: tenant.clone(),
            most: holding.most,
            ask: IDLE,
        }));
        for demand in &mut demands {
            let most = demand.most;
            let holding = ShareUse { most, busy_at: now };
            let holding = self.0.entry(demand.tenant.clone()).or_insert(holding);
            holding.most = most;
            if demand.ask.wants > 0 {
                holding.busy_at = now;
            } else if demand.ask.in_force > 0 && now - holding.busy_at < KEEP_IDLE_SLOT {
                // Only while the node holds a slot, so that this never takes a slot from a node that needs it.
                demand.ask.wants = 1;
            }
        }
        demands
    }

    /// Applies the store's answer. Returns the usable slots of each tenant.
    fn answered(
        &mut self,
        demands: Vec<TenantDemand>,
        grants: Vec<ShareGrant>,
    ) -> Vec<(TenantId, u32)> {
        let mut usable = Vec::with_capacity(grants.len());
        for (demand, grant) in demands.into_iter().zip(grants) {
            if grant.slots == 0 {
                self.0.remove(&demand.tenant);
            }
            usable.push((demand.tenant, grant.usable));
        }
        usable
    }
}

/// Urgency of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// Every tenant has what it wants.
    Content,
    /// A tenant wants more, and gets it only when another node wants less.
    Settled,
    /// A tenant has less than its fair share, or has slots to return to another node.
    Urgent,
}

/// Derives the urgency from the store's answer.
fn urgency(demands: &[TenantDemand], grants: &[ShareGrant]) -> Urgency {
    let urgencies = demands.iter().zip(grants).map(|(demand, grant)| {
        if grant.usable >= demand.ask.wants {
            Urgency::Content
        } else if grant.usable >= grant.fair && grant.usable == grant.slots {
            Urgency::Settled
        } else {
            Urgency::Urgent
        }
    });
    urgencies.max().unwrap_or(Urgency::Content)
}

/// Waits until it is time for the next request, or until a tenant starts to wait.
async fn wait_for_next_request(wake_up: &Notify, urgency: Urgency) {
    let min_pause = match urgency {
        Urgency::Content => MIN_INTERVAL,
        // A tenant that keeps wanting more does not shorten the interval.
        Urgency::Settled => URGENT_INTERVAL,
        Urgency::Urgent => return sleep(URGENT_INTERVAL).await,
    };
    sleep(min_pause).await;
    let _ = timeout(CALM_INTERVAL - min_pause, wake_up.notified()).await;
}

/// Shares the limits with the other nodes until the engine has stopped.
pub(super) async fn share_limits(engine: Engine, cluster: Arc<dyn Cluster>) {
    let mut held = GrantedShares::default();
    let mut next_urgency = Urgency::Content;
    loop {
        wait_for_next_request(&engine.shared.share_wanted, next_urgency).await;
        let (losses, demands) = match engine.tenant_demand().await {
            Ok(demands) => demands,
            Err(EngineError::Stopped) => return,
            Err(EngineError::NotOwner | EngineError::Store(_)) => continue,
        };
        let demands = held.ask(Instant::now(), demands);
        next_urgency = Urgency::Content;
        if demands.is_empty() {
            continue;
        }
        let Ok(grants) = cluster.request_shares(demands.clone()).await else {
            // Shares granted before stay valid as long as the lease.
            next_urgency = Urgency::Urgent;
            continue;
        };
        next_urgency = urgency(&demands, &grants);
        engine.set_concurrency_shares(losses, held.answered(demands, grants));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(tenant: &str, ask: SlotDemand) -> TenantDemand {
        TenantDemand {
            tenant: tenant.parse().expect("a valid tenant id"),
            most: 5,
            ask,
        }
    }

    #[test]
    fn slots_that_may_have_been_granted_are_returned() {
        let wants = SlotDemand { wants: 2, ..IDLE };
        let grant = |slots| ShareGrant {
            slots,
            usable: slots,
            fair: slots,
        };
        let (mut held, now) = (GrantedShares::default(), Instant::now());
        assert_eq!(held.ask(now, vec![demand("acme", IDLE)]), []);
        let asked = vec![demand("acme", wants)];
        assert_eq!(held.ask(now, asked.clone()), asked);
        // The answer was lost, and the tenant has no attempts on this node any more.
        let idle = vec![demand("acme", IDLE)];
        assert_eq!(held.ask(now, Vec::new()), idle);
        assert_eq!(held.ask(now, idle.clone()), idle);
        let usable = held.answered(idle.clone(), vec![grant(2)]);
        assert_eq!(usable, [(idle[0].tenant.clone(), 2)]);
        assert_eq!(held.ask(now, Vec::new()), idle, "it is still held");
        held.answered(idle, vec![grant(0)]);
        assert_eq!(held.ask(now, Vec::new()), []);
    }

    #[test]
    fn one_idle_slot_is_kept_for_a_while() {
        let begun = Instant::now();
        let mut held = GrantedShares::default();
        let wanted = |held: &mut GrantedShares, after, ask| {
            held.ask(begun + after, vec![demand("acme", ask)])[0]
                .ask
                .wants
        };
        let busy = SlotDemand {
            in_force: 3,
            under_way: 3,
            wants: 3,
        };
        let done = SlotDemand {
            under_way: 0,
            wants: 0,
            ..busy
        };
        assert_eq!(wanted(&mut held, Duration::ZERO, busy), 3);
        assert_eq!(wanted(&mut held, KEEP_IDLE_SLOT / 2, done), 1);
        assert_eq!(wanted(&mut held, KEEP_IDLE_SLOT, done), 0);
        // A node that has lost the slot does not request it again.
        assert_eq!(wanted(&mut held, KEEP_IDLE_SLOT, busy), 3);
        assert_eq!(wanted(&mut held, KEEP_IDLE_SLOT, IDLE), 0);
    }

    #[tokio::test]
    async fn a_tenant_that_starts_to_wait_ends_the_pause() {
        let wake_up = Notify::new();
        let is_notified = async || timeout(Duration::ZERO, wake_up.notified()).await.is_ok();
        for calm in [Urgency::Content, Urgency::Settled] {
            wake_up.notify_one();
            wait_for_next_request(&wake_up, calm).await;
            assert!(!is_notified().await, "the notification was received");
        }
        // An urgent node asks often anyway and ignores the notification.
        wake_up.notify_one();
        wait_for_next_request(&wake_up, Urgency::Urgent).await;
        assert!(is_notified().await);
    }

    #[test]
    fn only_a_node_with_less_than_its_fair_share_is_urgent() {
        let wants = |wants| demand("acme", SlotDemand { wants, ..IDLE });
        let grant = |slots, usable, fair| ShareGrant {
            slots,
            usable,
            fair,
        };
        assert_eq!(urgency(&[], &[]), Urgency::Content);
        assert_eq!(urgency(&[wants(5)], &[grant(5, 5, 2)]), Urgency::Content);
        assert_eq!(urgency(&[wants(5)], &[grant(2, 2, 2)]), Urgency::Settled);
        assert_eq!(urgency(&[wants(5)], &[grant(1, 1, 2)]), Urgency::Urgent);
        // Another node waits for the slots that must be returned.
        assert_eq!(urgency(&[wants(5)], &[grant(5, 2, 2)]), Urgency::Urgent);
        let both = urgency(&[wants(5), wants(5)], &[grant(2, 2, 2), grant(0, 0, 1)]);
        assert_eq!(both, Urgency::Urgent);
    }
}
