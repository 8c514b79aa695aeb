//! What waits for one endpoint: a short list in memory, the rest on disk.
//!
//! Every delivery is on disk before it is here; the list is only a copy of what is ready now. So
//! dropping from it loses nothing, and the one danger is to take the same delivery twice: a fetch
//! reads a snapshot that may be older than what has happened since. The backlog therefore knows
//! which deliveries are in memory, in flight or being recorded, and which were settled while a fetch
//! was under way, and at which attempt each of them stood.
//!
//! On an ordered lane, deliveries with the same key go strictly one after the other. The disk hands
//! out only the oldest unfinished delivery of each key; what is handed over in memory is accepted
//! only while nothing on disk could be older.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::delivery::{Delivery, OrderingKey, Status};
use crate::id::DeliveryId;
use crate::time::Timestamp;

/// How many deliveries may be settled during one fetch before its answer is not worth waiting for.
const MAX_SETTLED: usize = 1_024;
/// A claimed delivery: nothing that a fetch brings of it can be newer than what we are writing.
const CLAIMED: u32 = u32::MAX;

/// Whether a delivery could be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours to change.
    Claimed,
    /// It was claimed before.
    Repeated,
    /// It has been taken, to be sent.
    Taken,
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Deliveries that are due; on an ordered lane at most the oldest of each key.
    pub deliveries: Vec<Delivery>,
    /// When the earliest of the rest is due, if there is a rest.
    pub next_due: Option<Timestamp>,
    /// Others wait behind an unfinished delivery of the same key.
    pub blocked: bool,
}

#[derive(Clone, Debug)]
struct Fetching {
    ticket: u64,
    settled: Vec<(DeliveryId, u32)>,
}

/// What waits for one endpoint.
#[derive(Clone, Debug)]
pub struct Backlog {
    capacity: usize,
    ordered: bool,
    ready: VecDeque<Delivery>,
    /// Deliveries in memory, in flight or being recorded, and the attempts they had made then.
    known: FxHashMap<DeliveryId, u32>,
    /// When something on disk that is not known here may be due.
    stored_due: Option<Timestamp>,
    fetching: Option<Fetching>,
    /// Known deliveries whose row on disk has moved on without us.
    outdated: Vec<DeliveryId>,
    /// How many of each key are in flight or being recorded.
    busy_keys: FxHashMap<OrderingKey, u32>,
    /// Something older than what is handed over may be on disk.
    tangled: bool,
}

impl Backlog {
    /// An empty backlog that keeps at most `capacity` deliveries in memory.
    pub fn new(capacity: usize) -> Backlog {
        assert!(capacity > 0, "a lane needs room for one delivery");
        Backlog {
            capacity,
            ordered: false,
            ready: VecDeque::new(),
            known: FxHashMap::default(),
            stored_due: None,
            fetching: None,
            outdated: Vec::new(),
            busy_keys: FxHashMap::default(),
            tangled: false,
        }
    }

    /// Says whether deliveries with the same key must stay in order. What is in memory goes back to
    /// the disk when that changes, to be handed out by the new rule.
    pub fn set_ordered(&mut self, ordered: bool, now: Timestamp) {
        if self.ordered != ordered {
            self.ordered = ordered;
            self.spill();
            // An answer by the old rule is of no use.
            self.fetching = None;
            self.tangled = true;
            self.note_stored(now);
        }
    }

    /// When something on disk may be due.
    pub fn stored_due(&self) -> Option<Timestamp> {
        self.stored_due
    }

    /// How many are ready in memory.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// True when nothing waits, is in flight or is being recorded.
    pub fn is_idle(&self) -> bool {
        self.known.is_empty() && self.fetching.is_none() && self.stored_due.is_none()
    }

    /// Notes that something due at `due` waits on disk.
    pub fn note_stored(&mut self, due: Timestamp) {
        self.stored_due = Some(self.stored_due.map_or(due, |known| known.min(due)));
        self.tangled |= self.ordered;
    }

    /// Takes a delivery that was just accepted, if there is room and nothing should go before it;
    /// otherwise it stays on disk.
    pub fn offer(&mut self, delivery: Delivery, now: Timestamp) {
        let delivery = released(delivery);
        let Some(wanted_at) = delivery.wanted_at() else {
            panic!(
                "{} was accepted in state {:?}",
                delivery.id(),
                delivery.status()
            );
        };
        let id = delivery.id();
        if self.known.contains_key(&id) {
            return;
        }
        let may_overtake = self.ordered
            && delivery.facts().ordering.is_some()
            && (self.tangled || self.fetching.is_some());
        if wanted_at > now || self.ready.len() >= self.room_for_newcomers(now) || may_overtake {
            self.note_stored(wanted_at);
        } else {
            self.shelve(delivery);
        }
    }

    /// How many may be ready and yet another newcomer be taken. While something on disk is due, half
    /// of the list is kept for it: else newcomers at the speed of the receiver would keep it out for
    /// ever.
    fn room_for_newcomers(&self, now: Timestamp) -> usize {
        let disk_waits = self.fetching.is_some() || self.stored_due.is_some_and(|due| due <= now);
        if disk_waits {
            self.capacity / 2
        } else {
            self.capacity
        }
    }

    /// True if something may be taken.
    pub fn has_ready(&self) -> bool {
        if self.ordered {
            self.ready.iter().any(|delivery| self.is_free(delivery))
        } else {
            !self.ready.is_empty()
        }
    }

    /// Takes the next delivery to send.
    pub fn take(&mut self) -> Option<Delivery> {
        let index = if self.ordered {
            let free = |delivery: &Delivery| self.is_free(delivery);
            self.ready.iter().position(free)?
        } else {
            0
        };
        let delivery = self.ready.remove(index)?;
        // Counted on any lane, for it may become an ordered one while this is in flight.
        if let Some(key) = delivery.facts().ordering {
            *self.busy_keys.entry(key).or_default() += 1;
        }
        Some(delivery)
    }

    /// Whether more should be fetched from disk at `now`.
    pub fn wants_fetch(&self, now: Timestamp) -> bool {
        let due = self.stored_due.is_some_and(|due| due <= now);
        due && self.fetching.is_none() && self.ready.len() <= self.capacity / 2
    }

    /// Begins a fetch. Says how many to ask for: as many as there is room for, beyond those that
    /// are known already and would come again.
    pub fn begin_fetch(&mut self, ticket: u64) -> usize {
        self.fetching = Some(Fetching {
            ticket,
            settled: Vec::new(),
        });
        self.stored_due = None;
        let room = self.capacity - self.ready.len();
        room + self.known.len()
    }

    /// Takes in what a fetch brought. Says false to one that nobody waits for.
    pub fn end_fetch(&mut self, ticket: u64, fetched: Fetched) -> bool {
        let Some(fetching) = self.fetching.take_if(|fetching| fetching.ticket == ticket) else {
            return false;
        };
        self.tangled = fetched.blocked || self.stored_due.is_some();
        for delivery in fetched.deliveries {
            self.take_in(delivery, &fetching.settled);
        }
        if let Some(due) = fetched.next_due {
            self.note_stored(due);
        }
        true
    }

    /// Ends a fetch that failed; the disk is worth another look at `again`.
    pub fn fail_fetch(&mut self, ticket: u64, again: Timestamp) -> bool {
        let awaited = self
            .fetching
            .take_if(|fetching| fetching.ticket == ticket)
            .is_some();
        if awaited {
            self.note_stored(again);
        }
        awaited
    }

    fn take_in(&mut self, delivery: Delivery, settled: &[(DeliveryId, u32)]) {
        let delivery = released(delivery);
        let (id, attempts) = (delivery.id(), delivery.facts().attempts);
        let Some(wanted_at) = delivery.wanted_at() else {
            panic!("{id} was fetched in state {:?}", delivery.status());
        };
        if let Some(at_attempt) = self.known.get(&id) {
            if attempts > *at_attempt && !self.outdated.contains(&id) {
                self.outdated.push(id);
            }
            return;
        }
        let stale = settled
            .iter()
            .any(|(other, at_attempt)| *other == id && attempts <= *at_attempt);
        if stale {
            return;
        }
        if self.ready.len() < self.capacity {
            self.shelve(delivery);
        } else {
            self.note_stored(wanted_at);
        }
    }

    /// A delivery that was taken is settled on disk: it waits there for another turn, or has ended.
    /// Says whether that was its first attempt, in which case word of its acceptance may still be on
    /// its way.
    pub fn settled(&mut self, delivery: &Delivery, now: Timestamp) -> bool {
        let (id, ordering) = (delivery.id(), delivery.facts().ordering);
        let attempts_before = self.forget(id, now);
        if delivery.wanted_at().is_some() {
            self.spill_successors(ordering);
        }
        self.free_key(ordering);
        match delivery.wanted_at() {
            Some(at) => self.note_stored(at),
            // The next of its key may go now, and only the disk knows which that is.
            None if self.ordered && self.tangled && ordering.is_some() => self.note_stored(now),
            None => {}
        }
        self.look_again(id, now);
        attempts_before == Some(0)
    }

    /// Ends what was claimed with [`Backlog::claim`]. Somebody may have started the delivery all over
    /// since, and whatever stood behind it may go now: the disk is worth a look.
    pub fn unclaim(&mut self, id: DeliveryId, now: Timestamp) {
        self.forget(id, now);
        self.note_stored(now);
        self.look_again(id, now);
    }

    /// No longer knows a delivery, but remembers at which attempt it stood while a fetch that may
    /// have seen it there is under way.
    fn forget(&mut self, id: DeliveryId, now: Timestamp) -> Option<u32> {
        let attempts = self.known.remove(&id);
        if let (Some(fetching), Some(attempts)) = (self.fetching.as_mut(), attempts) {
            fetching.settled.push((id, attempts));
            if fetching.settled.len() > MAX_SETTLED {
                self.fetching = None;
                self.note_stored(now);
            }
        }
        attempts
    }

    /// A delivery that was taken goes back to the disk untouched, to be looked at again at `again`.
    pub fn untaken(&mut self, delivery: &Delivery, again: Timestamp) {
        self.known.remove(&delivery.id());
        self.spill_successors(delivery.facts().ordering);
        self.free_key(delivery.facts().ordering);
        self.note_stored(again);
        self.look_again(delivery.id(), again);
    }

    /// Makes sure nobody takes a delivery that is being changed on disk.
    pub fn claim(&mut self, id: DeliveryId) -> Claim {
        if let Some(index) = self.ready.iter().position(|delivery| delivery.id() == id) {
            self.ready.remove(index);
        } else if let Some(attempts) = self.known.get(&id) {
            return if *attempts == CLAIMED {
                Claim::Repeated
            } else {
                Claim::Taken
            };
        }
        self.known.insert(id, CLAIMED);
        Claim::Claimed
    }

    /// Sends everything in memory back to the disk.
    pub fn spill(&mut self) {
        while let Some(delivery) = self.ready.pop_front() {
            self.put_back(&delivery);
        }
    }

    /// Forgets what was known of the disk, and what is being read from it: everything there is about
    /// to be ended.
    pub fn clear_stored(&mut self) {
        self.spill();
        self.stored_due = None;
        self.fetching = None;
    }

    /// Ids in flight or being recorded: known, but not ready.
    pub fn taken(&self) -> Vec<DeliveryId> {
        let mut taken = self.known.clone();
        for delivery in &self.ready {
            taken.remove(&delivery.id());
        }
        let mut ids: Vec<DeliveryId> = taken.into_keys().collect();
        ids.sort_unstable();
        ids
    }

    fn is_free(&self, delivery: &Delivery) -> bool {
        delivery
            .facts()
            .ordering
            .is_none_or(|key| !self.busy_keys.contains_key(&key))
    }

    fn shelve(&mut self, delivery: Delivery) {
        self.known.insert(delivery.id(), delivery.facts().attempts);
        self.ready.push_back(delivery);
    }

    fn put_back(&mut self, delivery: &Delivery) {
        self.known.remove(&delivery.id());
        if let Some(at) = delivery.wanted_at() {
            self.note_stored(at);
        }
    }

    /// On an ordered lane, sends what stands behind an unfinished delivery back to the disk: that one
    /// must go again first.
    fn spill_successors(&mut self, key: Option<OrderingKey>) {
        if !self.ordered || key.is_none() {
            return;
        }
        let (behind, others): (Vec<_>, Vec<_>) = self
            .ready
            .drain(..)
            .partition(|delivery| delivery.facts().ordering == key);
        self.ready.extend(others);
        for delivery in behind {
            self.put_back(&delivery);
        }
    }

    fn free_key(&mut self, key: Option<OrderingKey>) {
        if let Some(key) = key
            && let Some(busy) = self.busy_keys.get_mut(&key)
        {
            *busy -= 1;
            if *busy == 0 {
                self.busy_keys.remove(&key);
            }
        }
    }

    fn look_again(&mut self, id: DeliveryId, now: Timestamp) {
        if let Some(index) = self.outdated.iter().position(|outdated| *outdated == id) {
            self.outdated.swap_remove(index);
            self.note_stored(now);
        }
    }
}

/// What is stored as held waits like any other once it is asked for: the gate is what holds it.
fn released(mut delivery: Delivery) -> Delivery {
    if delivery.status() == Status::Held {
        delivery.release().expect("what is held can be released");
    }
    delivery
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
