//! The backlog of one endpoint: a short list in memory, the rest in the store.
//!
//! Every delivery is committed before it is added here. The list is only a copy of what is ready now, so dropping
//! entries loses nothing. The risk is to take the same delivery twice, because a fetch reads a snapshot that may be
//! out of date. [`Backlog`] therefore keeps track of the deliveries that are in memory, in flight or being
//! recorded, and of those that were settled during a fetch, each with its number of attempts.
//!
//! On an ordered lane, deliveries with the same ordering key are sent strictly one after the other. The store
//! returns only the oldest unfinished delivery of each key. A delivery that is handed over in memory is accepted
//! only if the store cannot contain an older one.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::delivery::{Delivery, OrderingKey, Status};
use crate::id::DeliveryId;
use crate::time::Timestamp;

/// Maximum number of deliveries that may be settled during one fetch. Above it, the result of the fetch is
/// discarded.
const MAX_SETTLED: usize = 1_024;
/// Attempt number of a claimed delivery. A fetch can return nothing newer than the change that is being written.
const CLAIMED: u32 = u32::MAX;

/// Result of [`Backlog::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The delivery is now claimed and may be changed.
    Claimed,
    /// The delivery was already claimed.
    Repeated,
    /// The delivery has been taken to be sent.
    Taken,
}

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Due deliveries; on an ordered lane at most the oldest one of each key.
    pub deliveries: Vec<Delivery>,
    /// Due time of the earliest remaining delivery, if any remain.
    pub next_due: Option<Timestamp>,
    /// True if further deliveries wait behind an unfinished delivery of the same key.
    pub blocked: bool,
    /// Deliveries whose rows cannot be read, as far as the fetch met them. They are not attempted; on an ordered lane those
    /// behind them wait.
    pub unreadable: Vec<DeliveryId>,
}

#[derive(Clone, Debug)]
struct Fetching {
    ticket: u64,
    settled: Vec<(DeliveryId, u32)>,
}

/// The waiting deliveries of one endpoint.
#[derive(Clone, Debug)]
pub struct Backlog {
    capacity: usize,
    ordered: bool,
    ready: VecDeque<Delivery>,
    /// Deliveries in memory, in flight or being recorded, with the number of attempts they had made.
    known: FxHashMap<DeliveryId, u32>,
    /// The earliest time at which a delivery may be due that is in the store and not in `known`.
    stored_due: Option<Timestamp>,
    fetching: Option<Fetching>,
    /// Known deliveries whose stored row is newer than the copy here.
    outdated: Vec<DeliveryId>,
    /// Number of deliveries of each key that are in flight or being recorded.
    busy_keys: FxHashMap<OrderingKey, u32>,
    /// Keys of the deliveries that are quarantined.
    held_keys: Vec<OrderingKey>,
    /// True if the store may contain an older delivery than one that is handed over.
    tangled: bool,
}

impl Backlog {
    /// Creates an empty backlog that keeps at most `capacity` deliveries in memory.
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
            held_keys: Vec::new(),
            tangled: false,
        }
    }

    /// Sets whether deliveries with the same key must stay in order. On a change, the deliveries in memory go back
    /// to the store, which returns them by the new rule.
    pub fn set_ordered(&mut self, ordered: bool, now: Timestamp) {
        if self.ordered != ordered {
            self.ordered = ordered;
            self.drop_ready();
            // A fetch by the old rule is of no use.
            self.fetching = None;
            self.tangled = true;
            self.note_stored(now);
        }
    }

    /// Returns the earliest time at which a delivery in the store may be due.
    pub fn stored_due(&self) -> Option<Timestamp> {
        self.stored_due
    }

    /// Returns the number of ready deliveries in memory.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Returns true if a delivery waits that is due at `now`, as far as is known in memory.
    pub fn has_due(&self, now: Timestamp) -> bool {
        !self.ready.is_empty()
            || self.fetching.is_some()
            || self.stored_due.is_some_and(|due| due <= now)
    }

    /// Returns true if a delivery waits, due or not, as far as is known in memory.
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty() || self.fetching.is_some() || self.stored_due.is_some()
    }

    /// Returns true if nothing waits, is in flight or is being recorded.
    pub fn is_idle(&self) -> bool {
        self.known.is_empty() && self.fetching.is_none() && self.stored_due.is_none()
    }

    /// Notes that a delivery in the store is due at `due`.
    pub fn note_stored(&mut self, due: Timestamp) {
        self.stored_due = Some(self.stored_due.map_or(due, |known| known.min(due)));
        self.tangled |= self.ordered;
    }

    /// Adds a delivery that was just accepted, if there is space and no other delivery must go first. Otherwise it
    /// stays in the store.
    pub fn offer(&mut self, delivery: Delivery, now: Timestamp) {
        let delivery = released(delivery);
        let Some(next_attempt_at) = delivery.next_attempt_at() else {
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
            && (self.tangled || self.fetching.is_some() || self.waits_for_held(&delivery));
        if next_attempt_at > now
            || self.ready.len() >= self.capacity_for_accepted(now)
            || may_overtake
        {
            self.note_stored(next_attempt_at);
        } else {
            self.push_ready(delivery);
        }
    }

    /// Returns the list length from which on a new delivery is not added any more. While a delivery in the store is
    /// due, half of the list is reserved for it. Otherwise new deliveries arriving as fast as the receiver takes
    /// them would block it for ever.
    fn capacity_for_accepted(&self, now: Timestamp) -> usize {
        let disk_waits = self.fetching.is_some() || self.stored_due.is_some_and(|due| due <= now);
        if disk_waits {
            self.capacity / 2
        } else {
            self.capacity
        }
    }

    /// Returns true if a delivery can be taken.
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
        // Counted on every lane, because the lane may become ordered while this delivery is in flight.
        if let Some(key) = delivery.facts().ordering {
            *self.busy_keys.entry(key).or_default() += 1;
        }
        Some(delivery)
    }

    /// Returns true if more deliveries should be fetched from the store at `now`.
    pub fn wants_fetch(&self, now: Timestamp) -> bool {
        let due = self.stored_due.is_some_and(|due| due <= now);
        due && self.fetching.is_none() && self.ready.len() <= self.capacity / 2
    }

    /// Starts a fetch and returns the number of deliveries to ask for: the free space, plus the known deliveries,
    /// which the fetch may return again.
    pub fn begin_fetch(&mut self, ticket: u64) -> usize {
        self.fetching = Some(Fetching {
            ticket,
            settled: Vec::new(),
        });
        self.stored_due = None;
        let room = self.capacity - self.ready.len();
        room + self.known.len()
    }

    /// Adds the result of a fetch. Returns false if the ticket is not the awaited one.
    pub fn end_fetch(&mut self, ticket: u64, fetched: Fetched) -> bool {
        let Some(fetching) = self.fetching.take_if(|fetching| fetching.ticket == ticket) else {
            return false;
        };
        self.tangled = fetched.blocked || self.stored_due.is_some();
        for delivery in fetched.deliveries {
            self.add_fetched(delivery, &fetching.settled);
        }
        if let Some(due) = fetched.next_due {
            self.note_stored(due);
        }
        true
    }

    /// Ends a failed fetch; the next one is due at `again`. Returns false if the ticket is not the awaited one.
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

    fn add_fetched(&mut self, delivery: Delivery, settled: &[(DeliveryId, u32)]) {
        let delivery = released(delivery);
        let (id, attempts) = (delivery.id(), delivery.facts().attempts);
        let Some(next_attempt_at) = delivery.next_attempt_at() else {
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
            self.push_ready(delivery);
        } else {
            self.note_stored(next_attempt_at);
        }
    }

    /// Removes a delivery that was taken and is now settled in the store: it waits there for a retry, or has ended.
    /// Returns true if that was its first attempt, in which case `Accepted` for it may still arrive.
    pub fn settled(&mut self, delivery: &Delivery, now: Timestamp) -> bool {
        let (id, ordering) = (delivery.id(), delivery.facts().ordering);
        let attempts_before = self.forget(id, now);
        if delivery.next_attempt_at().is_some() {
            self.spill_successors(ordering);
        }
        self.free_key(ordering);
        match delivery.next_attempt_at() {
            Some(at) => self.note_stored(at),
            // The next delivery of the key may go now, and only the store knows which one that is.
            None if self.ordered && self.tangled && ordering.is_some() => self.note_stored(now),
            None => {}
        }
        self.schedule_check(id, now);
        attempts_before == Some(0)
    }

    /// Ends a claim made with [`Backlog::claim`]. The delivery may have been replayed since, and deliveries behind
    /// it may go now, so the store is checked again.
    pub fn release_claim(&mut self, id: DeliveryId, now: Timestamp) {
        self.forget(id, now);
        self.note_stored(now);
        self.schedule_check(id, now);
    }

    /// Removes a delivery from `known`. If a fetch is in progress that may have seen the delivery, remembers its
    /// number of attempts until the fetch ends.
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

    /// Returns a taken delivery to the store unchanged; it is due again at `again`.
    pub fn return_unsent(&mut self, delivery: &Delivery, again: Timestamp) {
        self.known.remove(&delivery.id());
        self.spill_successors(delivery.facts().ordering);
        self.free_key(delivery.facts().ordering);
        self.note_stored(again);
        self.schedule_check(delivery.id(), again);
    }

    /// Keeps a taken delivery out of the way until [`Backlog::return_quarantined`]. It counts as taken, so no fetch
    /// returns it. On an ordered lane the deliveries behind it wait in the store.
    pub fn quarantine(&mut self, delivery: &Delivery) {
        let key = delivery.facts().ordering;
        self.spill_successors(key);
        self.held_keys.extend(key);
    }

    /// Returns a quarantined delivery to the store unchanged; it is due again at `again`.
    pub fn return_quarantined(&mut self, delivery: &Delivery, again: Timestamp) {
        let key = delivery.facts().ordering;
        let index = self.held_keys.iter().position(|held| Some(*held) == key);
        if let Some(index) = index {
            self.held_keys.swap_remove(index);
        }
        self.return_unsent(delivery, again);
    }

    fn waits_for_held(&self, delivery: &Delivery) -> bool {
        let key = delivery.facts().ordering;
        key.is_some_and(|key| self.held_keys.contains(&key))
    }

    /// Claims a delivery that is being changed in the store, so that it cannot be taken.
    pub fn claim(&mut self, id: DeliveryId) -> ClaimResult {
        if let Some(index) = self.ready.iter().position(|delivery| delivery.id() == id) {
            self.ready.remove(index);
        } else if let Some(attempts) = self.known.get(&id) {
            return if *attempts == CLAIMED {
                ClaimResult::Repeated
            } else {
                ClaimResult::Taken
            };
        }
        self.known.insert(id, CLAIMED);
        ClaimResult::Claimed
    }

    /// Drops all ready deliveries from memory; they stay in the store.
    pub fn drop_ready(&mut self) {
        while let Some(delivery) = self.ready.pop_front() {
            self.put_back(&delivery);
        }
    }

    /// Forgets the state of the store and discards a fetch in progress, because all waiting deliveries there are
    /// about to be failed or released.
    pub fn forget_stored(&mut self) {
        self.drop_ready();
        self.stored_due = None;
        self.fetching = None;
    }

    /// Returns the ids that are in flight or being recorded: known, but not ready.
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

    fn push_ready(&mut self, delivery: Delivery) {
        self.known.insert(delivery.id(), delivery.facts().attempts);
        self.ready.push_back(delivery);
    }

    fn put_back(&mut self, delivery: &Delivery) {
        self.known.remove(&delivery.id());
        if let Some(at) = delivery.next_attempt_at() {
            self.note_stored(at);
        }
    }

    /// On an ordered lane, returns the deliveries behind an unfinished one to the store, because that one must be
    /// retried first.
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

    fn schedule_check(&mut self, id: DeliveryId, now: Timestamp) {
        if let Some(index) = self.outdated.iter().position(|outdated| *outdated == id) {
            self.outdated.swap_remove(index);
            self.note_stored(now);
        }
    }
}

/// Turns a delivery that is stored as held into a waiting one: the gate decides when it may go.
fn released(mut delivery: Delivery) -> Delivery {
    if delivery.status() == Status::Held {
        delivery.release().expect("a held delivery can be released");
    }
    delivery
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
