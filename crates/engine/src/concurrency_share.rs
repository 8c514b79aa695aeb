//! Shares the concurrency limits of tenants with the other nodes.
//!
//! A limited tenant's limit applies to all nodes together. [`share_limits`] repeatedly asks the engine what it uses and
//! wants, reports that to the store, and applies the concurrency share that the store answers. Without limited tenants
//! it does not query the store. A node stops using slots before it reports them as returned, so the attempts in flight
//! on all nodes together never exceed the tenant's limit.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{Ask, ShareGrant};
use posthaste_core::dispatcher::{Input, TenantDemand};
use posthaste_core::id::TenantId;
use posthaste_store::Cluster;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::handle::{Engine, EngineError};
use super::task::Shell;

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
const IDLE: Ask = Ask {
    in_force: 0,
    under_way: 0,
    wants: 0,
};

impl Shell {
    /// Applies the concurrency shares that the store granted.
    pub(super) fn make_room(&mut self, losses: u64, rooms: &[(TenantId, u32)]) {
        // After a lease loss, shares granted before it belong to other nodes.
        if losses != self.losses {
            return;
        }
        for (tenant, usable) in rooms {
            self.dispatcher.grant(tenant, *usable);
        }
        self.dispatch(Input::Tick);
    }
}

/// Tenants of which this node may hold slots, with their limits. An entry exists from the first request until the store
/// reports that no slots are held. So slots granted in a lost answer are still returned.
#[derive(Default)]
struct HeldShares(FxHashMap<TenantId, Holding>);

#[derive(Clone, Copy)]
struct Holding {
    most: u32,
    /// Last time at which attempts were in flight or wanted.
    busy_at: Instant,
}

impl HeldShares {
    /// Returns the requests to the store: for tenants that want slots, and for tenants that have slots to return.
    fn ask(&mut self, now: Instant, mut crowds: Vec<TenantDemand>) -> Vec<TenantDemand> {
        crowds.retain(|crowd| crowd.ask != IDLE || self.0.contains_key(&crowd.tenant));
        let here: FxHashSet<TenantId> = crowds.iter().map(|crowd| crowd.tenant.clone()).collect();
        let gone = self.0.iter().filter(|(tenant, _)| !here.contains(*tenant));
        crowds.extend(gone.map(|(tenant, holding)| TenantDemand {
            tenant: tenant.clone(),
            most: holding.most,
            ask: IDLE,
        }));
        for crowd in &mut crowds {
            let most = crowd.most;
            let holding = Holding { most, busy_at: now };
            let holding = self.0.entry(crowd.tenant.clone()).or_insert(holding);
            holding.most = most;
            if crowd.ask.wants > 0 {
                holding.busy_at = now;
            } else if crowd.ask.in_force > 0 && now - holding.busy_at < KEEP_IDLE_SLOT {
                // Only while the node holds a slot, so that this never takes a slot from a node that needs it.
                crowd.ask.wants = 1;
            }
        }
        crowds
    }

    /// Applies the store's answer. Returns the usable slots of each tenant.
    fn answered(
        &mut self,
        crowds: Vec<TenantDemand>,
        rooms: Vec<ShareGrant>,
    ) -> Vec<(TenantId, u32)> {
        let mut usable = Vec::with_capacity(rooms.len());
        for (crowd, room) in crowds.into_iter().zip(rooms) {
            if room.slots == 0 {
                self.0.remove(&crowd.tenant);
            }
            usable.push((crowd.tenant, room.usable));
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
fn mood(crowds: &[TenantDemand], rooms: &[ShareGrant]) -> Urgency {
    let moods = crowds.iter().zip(rooms).map(|(crowd, room)| {
        if room.usable >= crowd.ask.wants {
            Urgency::Content
        } else if room.usable >= room.fair && room.usable == room.slots {
            Urgency::Settled
        } else {
            Urgency::Urgent
        }
    });
    moods.max().unwrap_or(Urgency::Content)
}

/// Waits until it is time for the next request, or until a tenant starts to wait.
async fn wait_for_next_request(bell: &Notify, mood: Urgency) {
    let least = match mood {
        Urgency::Content => MIN_INTERVAL,
        // A tenant that keeps wanting more does not shorten the interval.
        Urgency::Settled => URGENT_INTERVAL,
        Urgency::Urgent => return sleep(URGENT_INTERVAL).await,
    };
    sleep(least).await;
    let _ = timeout(CALM_INTERVAL - least, bell.notified()).await;
}

/// Shares the limits with the other nodes until the engine has stopped.
pub(super) async fn share_limits(engine: Engine, cluster: Arc<dyn Cluster>) {
    let mut held = HeldShares::default();
    let mut mood_now = Urgency::Content;
    loop {
        wait_for_next_request(&engine.shared.room_bell, mood_now).await;
        let (losses, crowds) = match engine.crowds().await {
            Ok(crowds) => crowds,
            Err(EngineError::Stopped) => return,
            Err(EngineError::NotOwner | EngineError::Store(_)) => continue,
        };
        let crowds = held.ask(Instant::now(), crowds);
        mood_now = Urgency::Content;
        if crowds.is_empty() {
            continue;
        }
        let Ok(rooms) = cluster.share_room(crowds.clone()).await else {
            // Shares granted before stay valid as long as the lease.
            mood_now = Urgency::Urgent;
            continue;
        };
        mood_now = mood(&crowds, &rooms);
        engine.make_room(losses, held.answered(crowds, rooms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(tenant: &str, ask: Ask) -> TenantDemand {
        TenantDemand {
            tenant: tenant.parse().expect("a name"),
            most: 5,
            ask,
        }
    }

    #[test]
    fn what_may_have_been_granted_is_given_back() {
        let wants = Ask { wants: 2, ..IDLE };
        let room = |slots| ShareGrant {
            slots,
            usable: slots,
            fair: slots,
        };
        let (mut held, now) = (HeldShares::default(), Instant::now());
        assert_eq!(held.ask(now, vec![crowd("acme", IDLE)]), []);
        let asked = vec![crowd("acme", wants)];
        assert_eq!(held.ask(now, asked.clone()), asked);
        // The answer was lost, and the tenant has no attempts on this node any more.
        let idle = vec![crowd("acme", IDLE)];
        assert_eq!(held.ask(now, Vec::new()), idle);
        assert_eq!(held.ask(now, idle.clone()), idle);
        let usable = held.answered(idle.clone(), vec![room(2)]);
        assert_eq!(usable, [(idle[0].tenant.clone(), 2)]);
        assert_eq!(held.ask(now, Vec::new()), idle, "it is still held");
        held.answered(idle, vec![room(0)]);
        assert_eq!(held.ask(now, Vec::new()), []);
    }

    #[test]
    fn one_slot_is_kept_for_a_while() {
        let begun = Instant::now();
        let mut held = HeldShares::default();
        let wanted = |held: &mut HeldShares, after, ask| {
            held.ask(begun + after, vec![crowd("acme", ask)])[0]
                .ask
                .wants
        };
        let busy = Ask {
            in_force: 3,
            under_way: 3,
            wants: 3,
        };
        let done = Ask {
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
    async fn who_begins_to_wait_is_heard_by_who_is_content() {
        let bell = Notify::new();
        let still_rings = async || timeout(Duration::ZERO, bell.notified()).await.is_ok();
        for calm in [Urgency::Content, Urgency::Settled] {
            bell.notify_one();
            wait_for_next_request(&bell, calm).await;
            assert!(!still_rings().await, "it was heard");
        }
        // An urgent node asks often anyway and ignores the notification.
        bell.notify_one();
        wait_for_next_request(&bell, Urgency::Urgent).await;
        assert!(still_rings().await);
    }

    #[test]
    fn only_who_has_less_than_its_due_hurries() {
        let wants = |wants| crowd("acme", Ask { wants, ..IDLE });
        let room = |slots, usable, fair| ShareGrant {
            slots,
            usable,
            fair,
        };
        assert_eq!(mood(&[], &[]), Urgency::Content);
        assert_eq!(mood(&[wants(5)], &[room(5, 5, 2)]), Urgency::Content);
        assert_eq!(mood(&[wants(5)], &[room(2, 2, 2)]), Urgency::Settled);
        assert_eq!(mood(&[wants(5)], &[room(1, 1, 2)]), Urgency::Urgent);
        // Another node waits for the slots that must be returned.
        assert_eq!(mood(&[wants(5)], &[room(5, 2, 2)]), Urgency::Urgent);
        let both = mood(&[wants(5), wants(5)], &[room(2, 2, 2), room(0, 0, 1)]);
        assert_eq!(both, Urgency::Urgent);
    }
}
