//! The order in which waiting write operations run: fair between tenants, and between tenants and posthaste itself.
//!
//! [`FairQueue`] holds the operations of each [`QueueClass`] in the order of their arrival. Internal operations and
//! those of the tenants alternate by the number of rows that they write, so each side gets at least half of the
//! writer while both wait. Tenants take turns by start-time fair queueing: each tenant has a virtual time, which
//! advances by the rows that were written for it, and the tenant with the lowest one is next. A tenant that had nothing
//! to write starts at the current virtual time, so it neither waits behind a flood nor saves up turns. All virtual
//! times are forgotten when no tenant waits.
//!
//! The queue is bounded: see [`FairQueue::push`]. It does no I/O and reads no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use posthaste_core::id::TenantId;
use rustc_hash::FxHashMap;

use crate::{WaitingWrites, WriteQueueState};

/// Maximum number of tenants without waiting operations whose virtual time is kept.
const MAX_IDLE_TENANTS: usize = 1_024;

/// The write class of an operation: the operations of a class run in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueClass {
    /// posthaste itself: attempt records, status writes, maintenance, everything that names no tenant.
    Internal,
    /// Requests of one tenant, and requests that create, change or delete it.
    Tenant(TenantId),
}

impl QueueClass {
    /// Returns the class of a tenant's operations, or of those that belong to no tenant.
    pub(crate) fn of(tenant: Option<&TenantId>) -> QueueClass {
        tenant.map_or(QueueClass::Internal, |tenant| {
            QueueClass::Tenant(tenant.clone())
        })
    }
}

/// An operation that was taken from the queue.
#[derive(Debug)]
pub(crate) struct DequeuedItem<T> {
    pub(crate) class: QueueClass,
    /// The time since which it has waited.
    pub(crate) since: Instant,
    pub(crate) item: T,
}

/// The position among the waiting tenants: the virtual time, then the order in which they began to wait.
type Turn = (u64, u64);

/// Waiting operations. See the head of the module.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    limit: usize,
    internal: VecDeque<Waiting<T>>,
    /// The tenants with waiting operations, and those whose virtual time is ahead of the current one.
    tenants: FxHashMap<TenantId, TenantQueue<T>>,
    /// The tenants with waiting operations, in the order of their turns.
    turns: BTreeMap<Turn, TenantId>,
    /// The tenants without waiting operations, in the order in which their state is dropped.
    idle: BTreeMap<Turn, TenantId>,
    /// Number of waiting operations of all tenants.
    tenants_waiting: usize,
    /// The current virtual time: that of the tenant whose operation was returned last.
    virtual_time: u64,
    /// The last number that was used to order tenants with the same virtual time.
    last_turn: u64,
    /// Number of rows written for internal operations minus those written for tenants, while both waited.
    internal_lead: i64,
    /// Number of refused operations: internal ones, and those of tenants.
    refused: (u64, u64),
}

#[derive(Debug)]
struct Waiting<T> {
    since: Instant,
    item: T,
}

#[derive(Debug)]
struct TenantQueue<T> {
    waiting: VecDeque<Waiting<T>>,
    turn: Turn,
}

impl<T> TenantQueue<T> {
    /// Creates the state of a tenant that is in neither order yet.
    fn starting_at(virtual_time: u64) -> TenantQueue<T> {
        TenantQueue {
            waiting: VecDeque::new(),
            turn: (virtual_time, 0),
        }
    }
}

impl<T> FairQueue<T> {
    /// Creates an empty queue for at most `limit` operations of posthaste itself and as many of tenants.
    pub(crate) fn new(limit: usize) -> FairQueue<T> {
        FairQueue {
            limit: limit.max(1),
            internal: VecDeque::new(),
            tenants: FxHashMap::default(),
            turns: BTreeMap::new(),
            idle: BTreeMap::new(),
            tenants_waiting: 0,
            virtual_time: 0,
            last_turn: 0,
            internal_lead: 0,
            refused: (0, 0),
        }
    }

    /// Adds an operation, or returns it because there is no room.
    ///
    /// A tenant may hold as many of the tenants' places as are free: half of them if no other tenant has operations
    /// waiting, a third beside one other that holds as many. So there is always room for a further tenant.
    pub(crate) fn push(&mut self, class: QueueClass, now: Instant, item: T) -> Result<(), T> {
        let (has_room, refused) = match &class {
            QueueClass::Internal => (self.internal.len() < self.limit, &mut self.refused.0),
            QueueClass::Tenant(tenant) => {
                let held = self.tenants.get(tenant).map_or(0, |it| it.waiting.len());
                let has_room = held + self.tenants_waiting < self.limit;
                (has_room, &mut self.refused.1)
            }
        };
        if !has_room {
            *refused += 1;
            return Err(item);
        }
        self.push_always(class, now, item);
        Ok(())
    }

    /// Adds an operation even if there is no room. For rare internal operations, and for work that was accepted before.
    pub(crate) fn push_always(&mut self, class: QueueClass, now: Instant, item: T) {
        let waiting = Waiting { since: now, item };
        match class {
            QueueClass::Internal => self.internal.push_back(waiting),
            QueueClass::Tenant(tenant) => self.waiting_of(tenant).push_back(waiting),
        }
    }

    /// Puts an operation back that was returned by [`pop`](FairQueue::pop) and has more to write. It stays before all
    /// others of its class.
    pub(crate) fn put_back(&mut self, popped: DequeuedItem<T>) {
        let DequeuedItem { class, since, item } = popped;
        let waiting = Waiting { since, item };
        match class {
            QueueClass::Internal => self.internal.push_front(waiting),
            QueueClass::Tenant(tenant) => self.waiting_of(tenant).push_front(waiting),
        }
    }

    /// Returns the operations of a tenant that is about to get one more.
    fn waiting_of(&mut self, tenant: TenantId) -> &mut VecDeque<Waiting<T>> {
        self.tenants_waiting += 1;
        let queue = self
            .tenants
            .entry(tenant.clone())
            .or_insert_with(|| TenantQueue::starting_at(self.virtual_time));
        if queue.waiting.is_empty() {
            self.idle.remove(&queue.turn);
            self.last_turn += 1;
            queue.turn = (queue.turn.0.max(self.virtual_time), self.last_turn);
            self.turns.insert(queue.turn, tenant);
        }
        &mut queue.waiting
    }

    /// Returns the operation whose turn it is. Its class is charged one row; [`charge`](FairQueue::charge) adds the
    /// others when they are known.
    pub(crate) fn pop(&mut self) -> Option<DequeuedItem<T>> {
        let internal_is_next = match (self.internal.is_empty(), self.turns.is_empty()) {
            (true, true) => return None,
            (false, false) => self.internal_lead <= 0,
            (only_tenants, _) => {
                self.internal_lead = 0;
                !only_tenants
            }
        };
        let (class, waiting) = if internal_is_next {
            (QueueClass::Internal, self.internal.pop_front()?)
        } else {
            let tenant = self.turns.first_key_value()?.1.clone();
            let waiting = self.pop_of(&tenant)?;
            (QueueClass::Tenant(tenant), waiting)
        };
        self.charge(&class, 1);
        Some(DequeuedItem {
            class,
            since: waiting.since,
            item: waiting.item,
        })
    }

    fn pop_of(&mut self, tenant: &TenantId) -> Option<Waiting<T>> {
        let queue = self.tenants.get_mut(tenant)?;
        let waiting = queue.waiting.pop_front()?;
        self.tenants_waiting -= 1;
        self.virtual_time = queue.turn.0;
        if queue.waiting.is_empty() {
            self.turns.remove(&queue.turn);
            self.idle.insert(queue.turn, tenant.clone());
        }
        if self.turns.is_empty() {
            self.idle.clear();
            self.tenants.clear();
        }
        Some(waiting)
    }

    /// Charges rows that were written for an operation of this class.
    pub(crate) fn charge(&mut self, class: &QueueClass, rows: u64) {
        let signed = i64::try_from(rows).unwrap_or(i64::MAX);
        match class {
            QueueClass::Internal => {
                self.internal_lead = self.internal_lead.saturating_add(signed);
            }
            QueueClass::Tenant(tenant) => {
                self.internal_lead = self.internal_lead.saturating_sub(signed);
                self.charge_tenant(tenant, rows);
            }
        }
    }

    fn charge_tenant(&mut self, tenant: &TenantId, rows: u64) {
        let queue = self
            .tenants
            .entry(tenant.clone())
            .or_insert_with(|| TenantQueue::starting_at(self.virtual_time));
        let order = if queue.waiting.is_empty() {
            &mut self.idle
        } else {
            &mut self.turns
        };
        order.remove(&queue.turn);
        self.last_turn += 1;
        queue.turn = (queue.turn.0.saturating_add(rows), self.last_turn);
        order.insert(queue.turn, tenant.clone());
        self.drop_idle();
    }

    /// Drops the state of idle tenants whose virtual time has passed. If too many are left, drops those that were
    /// charged least.
    fn drop_idle(&mut self) {
        while let Some((turn, _)) = self.idle.first_key_value()
            && (turn.0 <= self.virtual_time || self.idle.len() > MAX_IDLE_TENANTS)
            && let Some((_, tenant)) = self.idle.pop_first()
        {
            self.tenants.remove(&tenant);
        }
    }

    /// Returns the number of waiting operations.
    pub(crate) fn len(&self) -> usize {
        self.internal.len() + self.tenants_waiting
    }

    /// Returns whether no operation waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the state of the queue. The cost is proportional to the number of tenants that wait.
    pub(crate) fn state(&self, now: Instant) -> WriteQueueState {
        let wait = |queue: &VecDeque<Waiting<T>>| {
            let oldest = queue.front()?;
            Some(now.saturating_duration_since(oldest.since))
        };
        let of_tenants = self.tenants.values().filter_map(|it| wait(&it.waiting));
        WriteQueueState {
            internal: WaitingWrites {
                count: self.internal.len(),
                oldest_wait: wait(&self.internal),
                refused: self.refused.0,
            },
            tenants: WaitingWrites {
                count: self.tenants_waiting,
                oldest_wait: of_tenants.max(),
                refused: self.refused.1,
            },
        }
    }

    /// Removes all waiting operations: the internal ones, then those of each tenant.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.remove(|_| true)
    }

    /// Removes the waiting operations that were added before this time.
    pub(crate) fn remove_before(&mut self, time: Instant) -> Vec<T> {
        self.remove(|since| since < time)
    }

    fn remove(&mut self, is_removed: impl Fn(Instant) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        let mut from = |queue: &mut VecDeque<Waiting<T>>| {
            for waiting in std::mem::take(queue) {
                if is_removed(waiting.since) {
                    removed.push(waiting.item);
                } else {
                    queue.push_back(waiting);
                }
            }
            queue.len()
        };
        from(&mut self.internal);
        self.tenants_waiting = 0;
        for tenant in std::mem::take(&mut self.turns).into_values() {
            if let Some(queue) = self.tenants.get_mut(&tenant) {
                let kept = from(&mut queue.waiting);
                self.tenants_waiting += kept;
                let order = if kept == 0 {
                    &mut self.idle
                } else {
                    &mut self.turns
                };
                order.insert(queue.turn, tenant);
            }
        }
        self.drop_idle();
        removed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(tenant: &str) -> QueueClass {
        match tenant {
            "" => QueueClass::Internal,
            tenant => QueueClass::Tenant(tenant.parse().expect("a tenant id")),
        }
    }

    struct Fixture {
        queue: FairQueue<u32>,
        start: Instant,
    }

    impl Fixture {
        fn new(limit: usize) -> Fixture {
            Fixture {
                queue: FairQueue::new(limit),
                start: Instant::now(),
            }
        }

        /// Adds an operation; returns whether there was room.
        fn push(&mut self, tenant: &str, item: u32) -> bool {
            let now = self.start + Duration::from_millis(u64::from(item));
            self.queue.push(of(tenant), now, item).is_ok()
        }

        /// Returns the next operation, after which `rows` were written.
        fn pop(&mut self, rows: u64) -> Option<u32> {
            let popped = self.queue.pop()?;
            self.queue.charge(&popped.class, rows - 1);
            Some(popped.item)
        }

        fn pop_all(&mut self, rows: u64) -> Vec<u32> {
            std::iter::from_fn(|| self.pop(rows)).collect()
        }

        fn states(&self) -> usize {
            let queue = &self.queue;
            assert_eq!(queue.tenants.len(), queue.turns.len() + queue.idle.len());
            queue.tenants.len()
        }
    }

    #[test]
    fn operations_of_a_class_stay_in_order() {
        let mut fixture = Fixture::new(100);
        for item in 0..20 {
            assert!(fixture.push(["a", "", "b"][item as usize % 3], item));
        }
        let mut popped = Vec::new();
        while let Some(item) = fixture.pop(1 + u64::from(popped.len() as u32 * 7 % 5)) {
            popped.push(item);
        }
        assert_eq!(popped.len(), 20);
        for class in 0..3 {
            let of_class = popped.iter().filter(|item| *item % 3 == class);
            assert!(of_class.is_sorted(), "{popped:?}");
        }
    }

    #[test]
    fn a_newcomer_does_not_wait_behind_a_flood() {
        let mut fixture = Fixture::new(1_000);
        for item in 0..400 {
            assert!(fixture.push("flood", item));
        }
        for _ in 0..100 {
            fixture.pop(1);
        }
        assert!(fixture.push("other", 1_000));
        assert!(fixture.push("other", 1_001));
        let next: Vec<u32> = (0..4).filter_map(|_| fixture.pop(1)).collect();
        let place = |item| next.iter().position(|it| *it == item);
        assert!(place(1_000) <= Some(1), "{next:?}");
        assert!(place(1_001).is_some_and(|place| place <= 3), "{next:?}");
    }

    #[test]
    fn turns_are_weighted_by_the_rows_written() {
        let mut fixture = Fixture::new(1_000);
        for item in 0..100 {
            assert!(fixture.push("large", item));
            assert!(fixture.push("small", 1_000 + item));
        }
        let mut rows = (0, 0);
        for _ in 0..80 {
            let popped = fixture.queue.pop().expect("both wait");
            if popped.item < 1_000 {
                fixture.queue.charge(&popped.class, 9);
                rows.0 += 10;
            } else {
                rows.1 += 1;
            }
        }
        assert!(rows.0 <= rows.1 + 10, "{rows:?}");
        assert!(rows.1 <= rows.0 + 1, "{rows:?}");
    }

    #[test]
    fn internal_operations_and_tenants_get_half_each() {
        for (internal_rows, tenant_rows) in [(1, 1), (1, 50), (50, 1)] {
            let mut fixture = Fixture::new(1_000);
            for item in 0..400 {
                assert!(fixture.push("", item));
                assert!(fixture.push(["a", "b"][item as usize % 2], 1_000 + item));
            }
            let (mut internal, mut tenant) = (0_u64, 0_u64);
            for _ in 0..200 {
                let class = fixture.queue.pop().expect("both wait").class;
                let rows = match &class {
                    QueueClass::Internal => internal_rows,
                    QueueClass::Tenant(_) => tenant_rows,
                };
                fixture.queue.charge(&class, rows - 1);
                match class {
                    QueueClass::Internal => internal += rows,
                    QueueClass::Tenant(_) => tenant += rows,
                }
            }
            assert!(internal.abs_diff(tenant) <= 50, "{internal} {tenant}");
        }
    }

    #[test]
    fn a_tenant_pays_later_for_what_was_written_last() {
        let mut fixture = Fixture::new(1_000);
        assert!(fixture.push("large", 1));
        assert!(fixture.push("small", 10));
        assert!(fixture.push("small", 11));
        assert!(fixture.push("small", 12));
        assert_eq!(fixture.pop(100), Some(1));
        // Its next operation arrives while the others wait.
        assert!(fixture.push("large", 2));
        assert_eq!(fixture.pop_all(1), [10, 11, 12, 2]);
        // While no tenant waits, nothing is owed.
        assert!(fixture.push("large", 3));
        assert_eq!(fixture.pop(100), Some(3));
        assert!(fixture.push("small", 13));
        assert_eq!(fixture.pop(1), Some(13));
        for item in 0..5 {
            assert!(fixture.push("small", 20 + item));
        }
        assert!(fixture.push("large", 4));
        assert!(fixture.pop_all(1)[..2].contains(&4));
    }

    #[test]
    fn what_is_put_back_stays_first_and_gives_others_a_turn() {
        let mut fixture = Fixture::new(3);
        assert!(fixture.push("a", 1));
        assert!(fixture.push("b", 9));
        let popped = fixture.queue.pop().expect("one waits");
        assert_eq!(popped.item, 1);
        fixture.queue.charge(&popped.class, 10);
        fixture
            .queue
            .push_always(popped.class.clone(), fixture.start, 2);
        fixture.queue.put_back(popped);
        let longest = fixture
            .queue
            .state(fixture.start + Duration::from_millis(5));
        assert_eq!(longest.tenants.oldest_wait, Some(Duration::from_millis(4)));
        assert_eq!(fixture.pop_all(1), [9, 1, 2]);
    }

    #[test]
    fn a_tenant_holds_as_many_places_as_are_free() {
        let mut fixture = Fixture::new(12);
        let fill = |fixture: &mut Fixture, tenant: &str| {
            (0..100)
                .take_while(|item| fixture.push(tenant, *item))
                .count()
        };
        assert_eq!(fill(&mut fixture, "a"), 6);
        assert_eq!(fill(&mut fixture, "b"), 3);
        assert_eq!(fill(&mut fixture, "c"), 2);
        assert_eq!(fill(&mut fixture, "d"), 1);
        // Internal operations have places of their own.
        assert_eq!(fill(&mut fixture, ""), 12);
        let state = fixture.queue.state(fixture.start);
        assert_eq!((state.internal.refused, state.tenants.refused), (1, 4));
        fixture
            .queue
            .push_always(QueueClass::Internal, fixture.start, 1);
        assert_eq!(fixture.queue.len(), 25);
        assert_eq!(fixture.pop_all(1).len(), 25);
        assert!(fixture.queue.is_empty());
        assert_eq!(fill(&mut fixture, "e"), 6);
    }

    #[test]
    fn the_state_of_idle_tenants_is_dropped() {
        let mut fixture = Fixture::new(10_000);
        for _ in 0..200 {
            assert!(fixture.push("busy", 1));
        }
        for number in 0..150 {
            assert!(fixture.push(&format!("t{number}"), 1));
            fixture.pop(3);
            fixture.pop(3);
            assert!(fixture.states() <= 3, "{}", fixture.states());
        }
        // The virtual time stands still as long as new tenants come.
        for number in 0..2 * MAX_IDLE_TENANTS {
            assert!(fixture.push(&format!("n{number}"), 1));
            fixture.pop(3);
            assert!(fixture.states() <= MAX_IDLE_TENANTS + 2);
        }
        fixture.pop_all(5);
        assert_eq!(fixture.states(), 1, "the last one is charged after the end");
    }

    #[test]
    fn waiting_operations_can_be_counted_and_removed() {
        let mut fixture = Fixture::new(100);
        assert_eq!(
            fixture.queue.state(fixture.start),
            WriteQueueState::default()
        );
        for (tenant, item) in [("b", 4), ("a", 2), ("", 3), ("a", 7), ("", 8)] {
            assert!(fixture.push(tenant, item));
        }
        let at = |ms| fixture.start + Duration::from_millis(ms);
        let state = fixture.queue.state(at(10));
        let waits = |ms| Some(Duration::from_millis(ms));
        assert_eq!(
            (state.internal.count, state.internal.oldest_wait),
            (2, waits(7))
        );
        assert_eq!(
            (state.tenants.count, state.tenants.oldest_wait),
            (3, waits(8))
        );
        let limit = at(5);
        let mut removed = fixture.queue.remove_before(limit);
        removed.sort_unstable();
        assert_eq!(removed, [2, 3, 4]);
        assert_eq!(fixture.queue.len(), 2);
        assert_eq!(fixture.states(), 1);
        assert!(fixture.push("b", 9));
        let mut removed = fixture.queue.drain();
        removed.sort_unstable();
        assert_eq!(removed, [7, 8, 9]);
        assert!(fixture.queue.is_empty());
        assert!(fixture.push("a", 1));
        assert_eq!(fixture.pop_all(1), [1]);
    }
}
