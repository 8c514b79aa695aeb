//! The write queue in front of a writer: a [`FairQueue`] that the writer waits for.
//!
//! It is bounded: an operation that finds no room is refused immediately. The writer takes one operation after the
//! other ([`WriteQueue::next`]) and says what it cost ([`WriteQueue::charge`]), so tenants take turns by the rows that
//! are written for them, and an operation that arrives now does not wait behind a flood.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::operation::Operation;
use crate::fair_queue::{DequeuedItem, FairQueue, QueueClass};
use crate::{StoreError, WriteQueueState};

/// Operations that wait to be written.
pub(in crate::postgres) struct WriteQueue {
    inner: Mutex<Inner>,
    filled: Notify,
}

struct Inner {
    waiting: FairQueue<Operation>,
    /// Operations that are written before all waiting ones.
    ahead: VecDeque<Operation>,
    /// Set once an operation was added.
    used: bool,
    /// The error for new operations, once the queue is shut.
    shut: Option<StoreError>,
}

/// The position at which an operation is added.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QueuePosition {
    /// Behind all others of its class, if there is room.
    InTurn(QueueClass),
    /// Behind all other internal operations.
    Last,
    /// Before all others.
    First,
}

impl WriteQueue {
    /// Creates a queue for at most `limit` waiting operations of tenants, and as many others.
    pub(in crate::postgres) fn new(limit: usize) -> WriteQueue {
        WriteQueue {
            inner: Mutex::new(Inner {
                waiting: FairQueue::new(limit),
                ahead: VecDeque::new(),
                used: false,
                shut: None,
            }),
            filled: Notify::new(),
        }
    }

    /// Adds an operation, or refuses it immediately.
    pub(in crate::postgres) fn push(&self, class: QueueClass, operation: Operation) {
        self.add(operation, QueuePosition::InTurn(class));
    }

    /// Adds an operation behind all internal ones, even if there is no room. For rare internal operations only.
    pub(in crate::postgres) fn push_last(&self, operation: Operation) {
        self.add(operation, QueuePosition::Last);
    }

    /// Adds an operation that runs as soon as the current batch is written, before all others.
    pub(in crate::postgres) fn push_first(&self, operation: Operation) {
        self.add(operation, QueuePosition::First);
    }

    fn add(&self, operation: Operation, position: QueuePosition) {
        let refused = {
            let mut inner = self.lock();
            match &inner.shut {
                Some(why) => Err((operation, why.clone())),
                None => inner.add(operation, position),
            }
        };
        match refused {
            Ok(true) => self.filled.notify_one(),
            Ok(false) => {}
            Err((operation, why)) => operation.refuse(why),
        }
    }

    /// Waits until there is an operation. Returns false when the queue is closed and empty.
    pub(in crate::postgres) async fn wait(&self) -> bool {
        loop {
            {
                let inner = self.lock();
                if !inner.is_empty() {
                    return true;
                }
                if inner.shut.is_some() {
                    return false;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Returns the operation whose turn it is. Its class was charged one row.
    pub(in crate::postgres) fn next(&self) -> Option<DequeuedItem<Operation>> {
        let mut inner = self.lock();
        match inner.ahead.pop_front() {
            Some(first) => Some(DequeuedItem {
                class: QueueClass::Internal,
                since: Instant::now().into_std(),
                item: first,
            }),
            None => inner.waiting.pop(),
        }
    }

    /// Puts back an operation for which the batch has no room. It stays before all others of its class.
    pub(in crate::postgres) fn put_back(&self, popped: DequeuedItem<Operation>) {
        self.lock().waiting.put_back(popped);
    }

    /// Charges the class of an operation for the rows that it writes, in addition to the first.
    pub(in crate::postgres) fn charge(&self, class: &QueueClass, rows: u64) {
        if rows > 0 {
            self.lock().waiting.charge(class, rows);
        }
    }

    /// Returns the state of the queue.
    pub(in crate::postgres) fn state(&self) -> WriteQueueState {
        self.lock().waiting.state(Instant::now().into_std())
    }

    /// Closes the queue. Operations that wait already are still written.
    pub(in crate::postgres) fn close(&self) {
        let mut inner = self.lock();
        if inner.shut.is_none() {
            inner.shut = Some(StoreError::Closed);
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// Returns whether an operation was ever added. If not, its writer has never started to write.
    pub(in crate::postgres) fn is_used(&self) -> bool {
        self.lock().used
    }

    /// Returns whether the queue was closed.
    pub(in crate::postgres) fn is_closed(&self) -> bool {
        self.lock().shut == Some(StoreError::Closed)
    }

    /// Shuts the queue with this error, and answers all waiting operations with it.
    pub(in crate::postgres) fn fail(&self, why: &StoreError) {
        let waiting = {
            let mut inner = self.lock();
            if inner.shut != Some(StoreError::Closed) {
                inner.shut = Some(why.clone());
            }
            let ahead = std::mem::take(&mut inner.ahead);
            ahead.into_iter().chain(inner.waiting.drain())
        };
        for operation in waiting {
            operation.refuse(why.clone());
        }
        self.filled.notify_one();
    }

    /// Refuses every waiting operation that arrived before a failed attempt to connect was started. An operation that
    /// arrived later waits for the next attempt.
    pub(in crate::postgres) fn refuse_older(&self, tried_at: Instant, why: &StoreError) {
        let refused = self.lock().waiting.remove_before(tried_at.into_std());
        for operation in refused {
            operation.refuse(why.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ahead.is_empty()
    }

    /// Adds an operation, and returns whether nothing waited before. Returns the operation if there is no room.
    fn add(
        &mut self,
        operation: Operation,
        position: QueuePosition,
    ) -> Result<bool, (Operation, StoreError)> {
        let was_empty = self.is_empty();
        let now = Instant::now().into_std();
        match position {
            QueuePosition::InTurn(class) => {
                if let Err(operation) = self.waiting.push(class, now, operation) {
                    return Err((operation, StoreError::Overloaded));
                }
            }
            QueuePosition::Last => self
                .waiting
                .push_always(QueueClass::Internal, now, operation),
            QueuePosition::First => self.ahead.push_back(operation),
        }
        self.used = true;
        Ok(was_empty)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::operation::Task;
    use super::super::write_context::WriteContext;
    use super::*;

    /// Creates an operation that records its number when it is answered.
    fn operation(number: usize, answered: &Arc<Mutex<Vec<usize>>>) -> Operation {
        let answered = answered.clone();
        let refused = Box::new(move |_: Result<(), StoreError>| {
            answered.lock().expect("no panic").push(number);
        });
        Task::boxed(async |_: &mut WriteContext| Ok(()), refused)
    }

    /// Takes all waiting operations, and returns their numbers.
    fn taken(queue: &WriteQueue, answered: &Arc<Mutex<Vec<usize>>>) -> Vec<usize> {
        answered.lock().expect("no panic").clear();
        while let Some(popped) = queue.next() {
            popped.item.refuse(StoreError::Closed);
        }
        answered.lock().expect("no panic").clone()
    }

    #[tokio::test]
    async fn a_full_queue_accepts_operations_that_must_not_be_refused() {
        let (queue, refused) = (WriteQueue::new(1), Arc::default());
        queue.push(QueueClass::Internal, operation(1, &refused));
        queue.push(QueueClass::Internal, operation(2, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2]);
        queue.push_last(operation(3, &refused));
        queue.push_first(operation(4, &refused));
        queue.push_first(operation(5, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2]);
        assert!(queue.wait().await);
        assert_eq!(taken(&queue, &refused), [4, 5, 1, 3]);
        assert_eq!(queue.state().internal.refused, 1);
    }

    #[tokio::test]
    async fn a_failed_connect_refuses_only_the_operations_waiting_for_it() {
        let (queue, refused) = (WriteQueue::new(9), Arc::default());
        queue.push(QueueClass::Internal, operation(1, &refused));
        queue.push(QueueClass::Internal, operation(2, &refused));
        let pushed_by = Instant::now();
        let mut tried_at = pushed_by;
        while tried_at == pushed_by {
            tried_at = Instant::now();
        }
        queue.push(QueueClass::Internal, operation(3, &refused));
        queue.refuse_older(tried_at, &StoreError::Overloaded);
        assert_eq!(*refused.lock().expect("no panic"), [1, 2]);
        assert_eq!(taken(&queue, &refused), [3]);
    }

    #[tokio::test]
    async fn a_failure_is_returned_to_all_waiting_operations() {
        let (queue, refused) = (WriteQueue::new(9), Arc::default());
        queue.push(QueueClass::Internal, operation(1, &refused));
        queue.push_first(operation(2, &refused));
        queue.fail(&StoreError::Overloaded);
        assert_eq!(*refused.lock().expect("no panic"), [2, 1]);
        queue.push_first(operation(3, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2, 1, 3]);
        assert!(!queue.wait().await);
    }

    #[tokio::test]
    async fn an_operation_waits_for_one_turn_of_a_flooding_tenant() {
        let (queue, refused) = (WriteQueue::new(100), Arc::default());
        let class = |tenant: &str| QueueClass::Tenant(tenant.parse().expect("an id"));
        for number in 0..40 {
            queue.push(class("flood"), operation(number, &refused));
        }
        let first = queue.next().expect("it waits");
        queue.charge(&first.class, 1_000);
        queue.push(class("quiet"), operation(100, &refused));
        queue.push(class("quiet"), operation(101, &refused));
        let next: Vec<usize> = taken(&queue, &refused).into_iter().take(3).collect();
        assert_eq!(next, [100, 101, 1]);
    }
}
