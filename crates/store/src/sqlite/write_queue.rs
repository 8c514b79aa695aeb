//! The write queue: bounded; an operation that finds no room is refused immediately.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::group_commit::Operation;
use crate::fair_queue::{FairQueue, QueueClass};
use crate::write_group::GroupBudget;
use crate::{StoreError, WriteQueueState};

/// Operations that wait for the writer.
pub(super) struct WriteQueue {
    inner: Mutex<Inner>,
    filled: Condvar,
}

struct Inner {
    waiting: FairQueue<Box<dyn Operation>>,
    /// The reason why new operations are refused.
    shut: Option<StoreError>,
}

/// The result of [`WriteQueue::take`].
pub(super) enum Taken {
    /// Operations in the order of their turns.
    Group(Vec<Box<dyn Operation>>),
    /// The queue is empty, and the writer did not want to wait.
    Nothing,
    /// The queue is empty and closed.
    Closed,
}

impl WriteQueue {
    /// Creates a queue for at most `limit` operations of posthaste itself and as many of tenants.
    pub(super) fn new(limit: usize) -> WriteQueue {
        WriteQueue {
            inner: Mutex::new(Inner {
                waiting: FairQueue::new(limit),
                shut: None,
            }),
            filled: Condvar::new(),
        }
    }

    /// Adds an operation, or answers it immediately with an error.
    pub(super) fn push(&self, class: QueueClass, operation: Box<dyn Operation>) {
        let now = Instant::now();
        let refused = {
            let mut inner = self.lock();
            let was_empty = inner.waiting.is_empty();
            match &inner.shut {
                Some(why) => Err((operation, why.clone())),
                None => match inner.waiting.push(class, now, operation) {
                    Ok(()) => Ok(was_empty),
                    Err(operation) => Err((operation, StoreError::Overloaded)),
                },
            }
        };
        match refused {
            Ok(true) => self.filled.notify_one(),
            Ok(false) => {}
            Err((operation, why)) => operation.answer(Err(why)),
        }
    }

    /// Takes the next group. With `wait`, blocks until there is an operation.
    pub(super) fn take(&self, wait: bool) -> Taken {
        let mut inner = self.lock();
        while inner.waiting.is_empty() {
            if inner.shut == Some(StoreError::Closed) {
                return Taken::Closed;
            }
            if !wait {
                return Taken::Nothing;
            }
            inner = self
                .filled
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let mut budget = GroupBudget::new();
        let mut group = Vec::new();
        while let Some(popped) = inner.waiting.pop() {
            if !budget.take(popped.item.bytes()) {
                inner.waiting.put_back(popped);
                break;
            }
            group.push(popped.item);
        }
        Taken::Group(group)
    }

    /// Refuses new operations. Those in the queue are still written.
    pub(super) fn close(&self) {
        self.lock().shut = Some(StoreError::Closed);
        self.filled.notify_one();
    }

    /// Returns whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().shut == Some(StoreError::Closed)
    }

    /// Refuses new operations with this error, and answers those in the queue with it.
    pub(super) fn fail(&self, why: &StoreError) {
        let waiting = {
            let mut inner = self.lock();
            if inner.shut != Some(StoreError::Closed) {
                inner.shut = Some(why.clone());
            }
            inner.waiting.drain()
        };
        for operation in waiting {
            operation.answer(Err(why.clone()));
        }
    }

    /// Returns the state of the queue.
    pub(super) fn state(&self) -> WriteQueueState {
        self.lock().waiting.state(Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
