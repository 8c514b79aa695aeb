//! Round-robin scheduling of tenants and their lanes.
//!
//! Tenants take turns, and the lanes of each tenant take turns, so neither a tenant with a thousand endpoints nor
//! one with a million deliveries displaces the others. A tenant may also have only as many attempts in flight as
//! there are spare slots. A tenant whose receivers all hang thus occupies at most half of the slots. The fewer
//! slots are spare, the fewer each tenant gets, and some are reserved for tenants that have nothing in flight.
//!
//! A tenant can have a concurrency limit, of which this node may have only a share. A tenant at its limit or its share
//! leaves the ring and blocks no other tenant. It returns when one of its attempts ends, or when the limit or the
//! share is raised.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use slab::Slab;

use crate::cluster::SlotDemand;
use crate::id::TenantId;

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[derive(Debug, PartialEq, Eq)]
enum QueueState {
    Idle,
    InRing,
    Parked,
    /// The tenant has reached its concurrency limit, or this node's share of it.
    Outside,
}

#[derive(Debug)]
struct Tenant {
    id: TenantId,
    lanes: usize,
    in_flight: usize,
    /// Concurrency limit of the tenant, over all nodes.
    most: Option<usize>,
    /// This node's concurrency share of that limit, if nodes share it.
    granted: usize,
    /// True if it has been reported that the tenant wants more than its share, and the share has not changed since.
    want_reported: bool,
    ready: VecDeque<usize>,
    queue_state: QueueState,
}

impl Tenant {
    fn is_full(&self, shares: bool) -> bool {
        let most = match shares {
            true => self.most.map(|most| most.min(self.granted)),
            false => self.most,
        };
        most.is_some_and(|most| self.in_flight >= most)
    }
}

/// In-flight attempts and demand of a limited tenant on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantDemand {
    /// The tenant.
    pub tenant: TenantId,
    /// Concurrency limit of the tenant, over all nodes.
    pub most: u32,
    /// The part of the limit that this node has and wants.
    pub ask: SlotDemand,
}

/// The order in which lanes are served.
#[derive(Debug, Default)]
pub(super) struct FairScheduler {
    tenants: Slab<Tenant>,
    by_id: FxHashMap<TenantId, usize>,
    ring: VecDeque<usize>,
    /// Tenants that have used their share of the slots, the one with the fewest attempts in flight first.
    parked: BTreeSet<(usize, usize)>,
    /// True if nodes share the tenants' concurrency limits: a limited tenant starts nothing until it is granted a
    /// share.
    shares: bool,
    /// True if a tenant has left the ring that would stay in it with a larger concurrency share.
    share_wanted: bool,
}

impl FairScheduler {
    /// Creates an empty order. `shares` is true if nodes share the tenants' concurrency limits.
    pub(super) fn sharing(shares: bool) -> FairScheduler {
        FairScheduler {
            shares,
            ..FairScheduler::default()
        }
    }

    /// Returns true if nodes share the tenants' concurrency limits.
    pub(super) fn shares(&self) -> bool {
        self.shares
    }

    /// Returns true if, since the last call, a tenant has left the ring that would stay in it with a larger share.
    /// A tenant that keeps wanting more than the same share is reported once.
    pub(super) fn take_share_wanted(&mut self) -> bool {
        std::mem::take(&mut self.share_wanted)
    }

    /// Returns the number of attempts that a tenant has in flight.
    pub(super) fn in_flight_of(&self, id: &TenantId) -> usize {
        let tenant = self.by_id.get(id).map(|index| &self.tenants[*index]);
        tenant.map_or(0, |tenant| tenant.in_flight)
    }

    /// Returns true if a tenant has as many attempts in flight as its concurrency limit, or this node's share of it,
    /// allows.
    pub(super) fn is_full(&self, tenant: usize) -> bool {
        self.tenants[tenant].is_full(self.shares)
    }

    /// Returns true if a tenant has used its part of the slots, with `spare` slots left.
    pub(super) fn has_used_its_slots(&self, tenant: usize, spare: usize) -> bool {
        self.tenants[tenant].in_flight > spare
    }

    /// Returns every tenant that has a concurrency limit.
    pub(super) fn tenant_demands(&self) -> Vec<TenantDemand> {
        let mut tenant_demands = Vec::new();
        for (_, entry) in &self.tenants {
            let Some(most) = entry.most.map(count) else {
                continue;
            };
            let under_way = count(entry.in_flight);
            let wants = match entry.ready.is_empty() {
                true => under_way.min(most),
                false => most,
            };
            let ask = SlotDemand {
                in_force: count(entry.granted).min(most),
                under_way,
                wants,
            };
            tenant_demands.push(TenantDemand {
                tenant: entry.id.clone(),
                most,
                ask,
            });
        }
        tenant_demands
    }

    /// Sets this node's concurrency share of a tenant. Returns false if the tenant has no lanes here.
    pub(super) fn grant(&mut self, id: &TenantId, usable: usize) -> bool {
        let Some(tenant) = self.by_id.get(id).copied() else {
            return false;
        };
        let entry = &mut self.tenants[tenant];
        entry.want_reported &= entry.granted == usable && !entry.ready.is_empty();
        entry.granted = usable;
        self.rejoin_ring(tenant);
        true
    }

    /// Adds one lane to a tenant. Returns the tenant's index.
    pub(super) fn add_lane(&mut self, id: &TenantId) -> usize {
        let index = match self.by_id.get(id) {
            Some(index) => *index,
            None => {
                let index = self.tenants.insert(Tenant {
                    id: id.clone(),
                    lanes: 0,
                    in_flight: 0,
                    most: None,
                    granted: 0,
                    want_reported: false,
                    ready: VecDeque::new(),
                    queue_state: QueueState::Idle,
                });
                self.by_id.insert(id.clone(), index);
                index
            }
        };
        self.tenants[index].lanes += 1;
        index
    }

    /// Removes one lane from a tenant. A tenant without lanes is forgotten.
    pub(super) fn remove_lane(&mut self, tenant: usize) {
        let entry = &mut self.tenants[tenant];
        entry.lanes -= 1;
        if entry.lanes == 0 {
            assert_eq!(
                entry.in_flight, 0,
                "the tenant's last lane was removed with attempts in flight"
            );
            assert_eq!(
                entry.queue_state,
                QueueState::Idle,
                "the tenant's last lane was removed while it was queued"
            );
            let entry = self.tenants.remove(tenant);
            self.by_id.remove(&entry.id);
        }
    }

    /// Sets the concurrency limit of a tenant.
    pub(super) fn allow(&mut self, tenant: usize, most: Option<usize>) {
        self.tenants[tenant].most = most;
        self.rejoin_ring(tenant);
    }

    /// Returns a tenant that had reached its limit to the ring, if it may now have more attempts in flight.
    fn rejoin_ring(&mut self, tenant: usize) {
        let shares = self.shares;
        let entry = &mut self.tenants[tenant];
        if entry.queue_state == QueueState::Outside && !entry.is_full(shares) {
            entry.queue_state = QueueState::InRing;
            self.ring.push_back(tenant);
        }
    }

    /// Queues a lane for its turn. The caller ensures that a lane is queued only once.
    pub(super) fn enqueue(&mut self, tenant: usize, lane: usize) {
        let entry = &mut self.tenants[tenant];
        entry.ready.push_back(lane);
        if entry.queue_state == QueueState::Idle {
            entry.queue_state = QueueState::InRing;
            self.ring.push_back(tenant);
        }
    }

    /// Removes a queued lane.
    pub(super) fn withdraw(&mut self, tenant: usize, lane: usize) {
        let entry = &mut self.tenants[tenant];
        entry.ready.retain(|other| *other != lane);
        if !entry.ready.is_empty() {
            return;
        }
        match std::mem::replace(&mut entry.queue_state, QueueState::Idle) {
            QueueState::Idle | QueueState::Outside => {}
            QueueState::InRing => self.ring.retain(|other| *other != tenant),
            QueueState::Parked => {
                self.parked.remove(&(entry.in_flight, tenant));
            }
        }
    }

    /// Returns the lane whose turn it is, with `spare` slots left.
    pub(super) fn next(&mut self, spare: usize) -> Option<usize> {
        loop {
            if self.ring.is_empty() {
                self.requeue_one(spare);
            }
            let tenant = self.ring.pop_front()?;
            let shares = self.shares;
            let entry = &mut self.tenants[tenant];
            if entry.is_full(shares) {
                entry.queue_state = QueueState::Outside;
                if entry.most.is_some_and(|most| entry.in_flight < most) {
                    self.share_wanted |= !std::mem::replace(&mut entry.want_reported, true);
                }
                continue;
            }
            if entry.in_flight > spare {
                entry.queue_state = QueueState::Parked;
                self.parked.insert((entry.in_flight, tenant));
                continue;
            }
            let lane = entry.ready.pop_front();
            if entry.ready.is_empty() {
                entry.queue_state = QueueState::Idle;
            } else {
                self.ring.push_back(tenant);
            }
            if lane.is_some() {
                return lane;
            }
        }
    }

    /// Returns the parked tenant with the fewest attempts in flight to the ring, if it may have more. Only one
    /// tenant at a time, because a freed slot is enough for one tenant only.
    fn requeue_one(&mut self, spare: usize) {
        if self
            .parked
            .first()
            .is_some_and(|(in_flight, _)| *in_flight <= spare)
            && let Some((_, tenant)) = self.parked.pop_first()
        {
            self.tenants[tenant].queue_state = QueueState::InRing;
            self.ring.push_back(tenant);
        }
    }

    /// An attempt of this tenant has started.
    pub(super) fn attempt_started(&mut self, tenant: usize) {
        self.count(tenant, |in_flight| in_flight + 1);
    }

    /// An attempt of this tenant has ended, which leaves `spare` slots.
    pub(super) fn attempt_ended(&mut self, tenant: usize, spare: usize) {
        self.count(tenant, |in_flight| {
            in_flight
                .checked_sub(1)
                .expect("an attempt of the tenant is in flight")
        });
        self.rejoin_ring(tenant);
        self.requeue_one(spare);
    }

    /// A slot has become free that belonged to no tenant, which leaves `spare` slots.
    pub(super) fn slot_freed(&mut self, spare: usize) {
        self.requeue_one(spare);
    }

    fn count(&mut self, tenant: usize, change: impl Fn(usize) -> usize) {
        let entry = &mut self.tenants[tenant];
        let before = entry.in_flight;
        entry.in_flight = change(before);
        if entry.queue_state == QueueState::Parked {
            self.parked.remove(&(before, tenant));
            self.parked.insert((entry.in_flight, tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(turns: &mut FairScheduler, name: &str) -> usize {
        turns.add_lane(&name.parse().unwrap())
    }

    #[test]
    fn tenants_take_turns_whatever_the_number_of_their_lanes() {
        let mut turns = FairScheduler::default();
        let (big, small) = (tenant(&mut turns, "big"), tenant(&mut turns, "small"));
        for lane in 0..100 {
            turns.enqueue(big, lane);
        }
        turns.enqueue(small, 1_000);
        turns.enqueue(small, 1_001);
        let served: Vec<usize> = (0..6).map_while(|_| turns.next(10)).collect();
        assert_eq!(served, [0, 1_000, 1, 1_001, 2, 3]);
    }

    #[test]
    fn a_tenant_whose_attempts_never_end_leaves_slots_for_others() {
        const SLOTS: usize = 100;
        let mut turns = FairScheduler::default();
        let (hog, other) = (tenant(&mut turns, "hog"), tenant(&mut turns, "other"));
        for lane in 0..1_000 {
            turns.enqueue(hog, lane);
        }
        let mut taken = 0;
        while turns.next(SLOTS - taken).is_some() {
            turns.attempt_started(hog);
            taken += 1;
        }
        assert_eq!(taken, 51);
        turns.enqueue(other, 5_000);
        assert_eq!(turns.next(SLOTS - taken), Some(5_000));
        turns.attempt_started(other);
        taken += 1;
        assert_eq!(turns.next(SLOTS - taken), None);
        // The tenant "hog" returns when it holds no more slots than its share.
        turns.attempt_ended(hog, SLOTS - taken + 1);
        turns.attempt_ended(hog, SLOTS - taken + 2);
        assert!(turns.next(SLOTS - taken + 2).is_some());
    }

    #[test]
    fn in_flight_attempts_are_counted_with_and_without_a_limit() {
        let mut turns = FairScheduler::default();
        let (one, other) = (tenant(&mut turns, "one"), tenant(&mut turns, "other"));
        turns.attempt_started(one);
        turns.attempt_started(one);
        turns.attempt_started(other);
        turns.attempt_ended(one, 10);
        let in_flight = |name: &str| turns.in_flight_of(&name.parse().unwrap());
        assert_eq!(["one", "other", "nobody"].map(in_flight), [1, 1, 0]);
    }

    #[test]
    fn a_parked_tenant_returns_while_the_ring_is_busy() {
        let mut turns = FairScheduler::default();
        let (busy, parked) = (tenant(&mut turns, "busy"), tenant(&mut turns, "parked"));
        turns.attempt_started(parked);
        turns.attempt_started(parked);
        turns.enqueue(parked, 7);
        assert_eq!(
            turns.next(1),
            None,
            "the tenant has more attempts in flight than there are spare slots"
        );
        for lane in 0..10 {
            turns.enqueue(busy, lane);
        }
        turns.attempt_ended(parked, 1);
        let served: Vec<usize> = (0..3).map_while(|_| turns.next(1)).collect();
        assert!(served.contains(&7), "{served:?}");
    }

    #[test]
    fn a_tenant_at_its_limit_leaves_the_ring_and_returns() {
        let mut turns = FairScheduler::default();
        let (few, other) = (tenant(&mut turns, "few"), tenant(&mut turns, "other"));
        turns.allow(few, Some(2));
        for lane in 0..10 {
            turns.enqueue(few, lane);
        }
        for lane in [0, 1] {
            assert_eq!(turns.next(100), Some(lane));
            turns.attempt_started(few);
        }
        assert_eq!(turns.next(100), None);
        turns.enqueue(other, 50);
        assert_eq!(
            turns.next(100),
            Some(50),
            "a tenant at its limit does not block the others"
        );
        turns.attempt_ended(few, 100);
        assert_eq!(turns.next(100), Some(2));
        turns.attempt_started(few);
        assert_eq!(turns.next(100), None);
        // The limit is raised, and then lowered below the number in flight.
        turns.allow(few, Some(3));
        assert_eq!(turns.next(100), Some(3));
        turns.attempt_started(few);
        turns.allow(few, Some(1));
        for _ in 0..2 {
            turns.attempt_ended(few, 100);
            assert_eq!(turns.next(100), None);
        }
        turns.attempt_ended(few, 100);
        assert_eq!(turns.next(100), Some(4));
        // A tenant whose lanes are withdrawn while it is outside the ring does not come back.
        turns.attempt_started(few);
        assert_eq!(turns.next(100), None);
        for lane in 5..10 {
            turns.withdraw(few, lane);
        }
        turns.attempt_ended(few, 100);
        assert_eq!(turns.next(100), None);
        turns.allow(few, None);
        turns.enqueue(few, 11);
        assert_eq!(turns.next(100), Some(11));
    }

    #[test]
    fn a_limited_tenant_sends_only_within_its_granted_share() {
        let mut turns = FairScheduler::sharing(true);
        let (few, free) = (tenant(&mut turns, "few"), tenant(&mut turns, "free"));
        turns.allow(few, Some(5));
        for lane in 0..10 {
            turns.enqueue(few, lane);
        }
        turns.enqueue(free, 50);
        assert_eq!(
            turns.next(100),
            Some(50),
            "a tenant without a limit needs no share"
        );
        assert_eq!(turns.next(100), None);
        let id: TenantId = "few".parse().unwrap();
        let asks = |turns: &FairScheduler| {
            let tenant_demands = turns.tenant_demands();
            assert_eq!((tenant_demands.len(), tenant_demands[0].most), (1, 5));
            let SlotDemand {
                in_force,
                under_way,
                wants,
            } = tenant_demands[0].ask;
            (in_force, under_way, wants)
        };
        assert_eq!(asks(&turns), (0, 0, 5));
        assert!(
            turns.take_share_wanted(),
            "a share is wanted: five are allowed, none is granted"
        );
        assert!(!turns.take_share_wanted(), "the same want is reported once");
        assert!(turns.grant(&id, 1));
        assert_eq!(turns.next(100), Some(0));
        turns.attempt_started(few);
        assert_eq!(turns.next(100), None);
        assert_eq!(asks(&turns), (1, 1, 5));
        assert!(
            turns.take_share_wanted(),
            "a larger share is wanted: one is granted"
        );
        // A tenant that keeps wanting more under the same grant has already been reported.
        turns.grant(&id, 1);
        turns.attempt_ended(few, 100);
        assert_eq!(turns.next(100), Some(1));
        turns.attempt_started(few);
        assert_eq!(turns.next(100), None);
        assert!(!turns.take_share_wanted());
        // A share that is withdrawn is not used again after its attempts end.
        turns.grant(&id, 0);
        turns.attempt_ended(few, 100);
        assert_eq!(turns.next(100), None);
        assert_eq!(asks(&turns), (0, 0, 5));
        for lane in 2..10 {
            turns.withdraw(few, lane);
        }
        assert_eq!(asks(&turns), (0, 0, 0));
        // A tenant that wanted nothing in between is reported again.
        turns.grant(&id, 0);
        turns.enqueue(few, 2);
        assert_eq!(turns.next(100), None);
        assert!(turns.take_share_wanted());
        turns.withdraw(few, 2);
        turns.remove_lane(few);
        assert!(
            !turns.grant(&id, 1),
            "a tenant without lanes takes no grant"
        );
    }

    #[test]
    fn withdrawing_a_lane_keeps_the_order_of_the_others() {
        let mut turns = FairScheduler::default();
        let (one, other) = (tenant(&mut turns, "one"), tenant(&mut turns, "other"));
        turns.enqueue(one, 1);
        turns.enqueue(other, 2);
        turns.enqueue(other, 3);
        turns.withdraw(one, 1);
        turns.withdraw(other, 2);
        // When its last lane has left the ring, a tenant can be forgotten.
        turns.remove_lane(one);
        assert_eq!(turns.next(10), Some(3));
        turns.attempt_started(other);
        turns.attempt_started(other);
        turns.enqueue(other, 4);
        assert_eq!(turns.next(1), None, "the tenant is parked");
        turns.withdraw(other, 4);
        turns.attempt_ended(other, 1);
        turns.attempt_ended(other, 2);
        turns.remove_lane(other);
        assert_eq!(turns.next(10), None);
    }

    #[test]
    fn a_tenant_without_lanes_is_forgotten() {
        let mut turns = FairScheduler::default();
        let first = tenant(&mut turns, "acme");
        assert_eq!(tenant(&mut turns, "acme"), first);
        turns.remove_lane(first);
        turns.remove_lane(first);
        assert!(turns.tenants.is_empty() && turns.by_id.is_empty());
    }
}
