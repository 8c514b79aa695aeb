//! The write queue: bounded; an operation that finds it full is refused immediately.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::group_commit::Operation;
use crate::StoreError;
use crate::write_group::group_len;
/// Operations that wait for the writer.
pub(super) struct WriteQueue {
    inner: Mutex<Inner>,
    filled: Condvar,
    limit: usize,
}

struct Inner {
    waiting: VecDeque<Box<dyn Operation>>,
    /// The reason why new operations are refused.
    shut: Option<StoreError>,
}

/// The result of [`WriteQueue::take`].
pub(super) enum Taken {
    /// Operations in the order of their arrival.
    Group(Vec<Box<dyn Operation>>),
    /// The queue is empty, and the writer did not want to wait.
    Nothing,
    /// The queue is empty and closed.
    Closed,
}

impl WriteQueue {
    /// Creates a queue for at most `limit` operations.
    pub(super) fn new(limit: usize) -> WriteQueue {
        WriteQueue {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                shut: None,
            }),
            filled: Condvar::new(),
            limit: limit.max(1),
        }
    }

    /// Adds an operation, or answers it immediately with an error.
    pub(super) fn push(&self, operation: Box<dyn Operation>) {
        let refused = {
            let mut inner = self.lock();
            if let Some(why) = &inner.shut {
                Err((operation, why.clone()))
            } else if inner.waiting.len() >= self.limit {
                Err((operation, StoreError::Overloaded))
            } else {
                inner.waiting.push_back(operation);
                Ok(inner.waiting.len() == 1)
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
        let count = group_len(inner.waiting.iter().map(|operation| operation.bytes()));
        Taken::Group(inner.waiting.drain(..count).collect())
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
            std::mem::take(&mut inner.waiting)
        };
        for operation in waiting {
            operation.answer(Err(why.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
