//! The write queue: bounded, and fair among tenants.
//!
//! [`WriteQueue`] refuses an operation for which there is no space at once, instead of letting its caller wait. The
//! turn of each class is decided by [`FairQueue`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::group_commit::Operation;
use crate::fair_queue::{DequeuedItem, FairQueue, QueueClass};
use crate::{StoreError, WriteQueueState};

/// An operation that the writer has taken from the queue.
pub(super) type DequeuedOperation = DequeuedItem<Box<dyn Operation>>;

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

/// The result of [`WriteQueue::wait`].
pub(super) enum Waiting {
    /// This number of operations waits.
    Operations(usize),
    /// The queue is empty, and the writer did not want to wait longer.
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
            Err((operation, why)) => drop(operation.failed(why)),
        }
    }

    /// Adds an operation that was accepted earlier, even if there is no room.
    pub(super) fn push_always(&self, class: QueueClass, operation: Box<dyn Operation>) {
        self.lock()
            .waiting
            .push_always(class, Instant::now(), operation);
        self.filled.notify_one();
    }

    /// Waits until there is an operation, at most for this time; without one, for ever.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Waiting {
        let mut inner = self.lock();
        let mut is_over = at_most == Some(Duration::ZERO);
        while inner.waiting.is_empty() {
            if inner.shut == Some(StoreError::Closed) {
                return Waiting::Closed;
            }
            if is_over {
                return Waiting::Nothing;
            }
            match at_most {
                None => {
                    inner = self
                        .filled
                        .wait(inner)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Some(time) => {
                    inner = self
                        .filled
                        .wait_timeout(inner, time)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                    is_over = true;
                }
            }
        }
        Waiting::Operations(inner.waiting.len())
    }

    /// Takes the operation whose turn it is.
    pub(super) fn take(&self) -> Option<DequeuedOperation> {
        self.lock().waiting.pop()
    }

    /// Charges rows that were written for operations of this class, besides the one that taking it was charged.
    pub(super) fn charge(&self, class: &QueueClass, rows: u64) {
        self.lock().waiting.charge(class, rows);
    }

    /// Puts an operation back before all others of its class.
    pub(super) fn put_back(&self, taken: DequeuedOperation) {
        self.lock().waiting.put_back(taken);
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
            drop(operation.failed(why.clone()));
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
