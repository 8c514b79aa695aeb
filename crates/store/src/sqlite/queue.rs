//! The queue in front of the writer: bounded, and whoever finds it full is told at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::group::Operation;
use crate::StoreError;

/// How many operations one transaction takes at most.
pub(super) const MAX_GROUP: usize = 1_024;
/// How many bytes one transaction takes at most, unless a single operation brings more.
const MAX_GROUP_BYTES: usize = 8 * 1_024 * 1_024;

/// What waits to be written.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    filled: Condvar,
    limit: usize,
}

struct Inner {
    waiting: VecDeque<Box<dyn Operation>>,
    /// Why nothing is taken any more.
    shut: Option<StoreError>,
}

/// What the writer found.
pub(super) enum Taken {
    /// These, in the order they came.
    Group(Vec<Box<dyn Operation>>),
    /// Nothing, and the caller did not want to wait.
    Nothing,
    /// Nothing, and nothing will come any more.
    Closed,
}

impl Queue {
    /// A queue in which at most `limit` operations wait.
    pub(super) fn new(limit: usize) -> Queue {
        Queue {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                shut: None,
            }),
            filled: Condvar::new(),
            limit: limit.max(1),
        }
    }

    /// Adds an operation, or answers it at once.
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

    /// Takes what has gathered. With `wait`, waits until something has.
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
        let mut bytes = 0;
        let mut count = 0;
        for operation in inner.waiting.iter().take(MAX_GROUP) {
            bytes += operation.bytes();
            if count > 0 && bytes > MAX_GROUP_BYTES {
                break;
            }
            count += 1;
        }
        Taken::Group(inner.waiting.drain(..count).collect())
    }

    /// Takes nothing more. What waits already is still written.
    pub(super) fn close(&self) {
        self.lock().shut = Some(StoreError::Closed);
        self.filled.notify_one();
    }

    /// Whether somebody has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().shut == Some(StoreError::Closed)
    }

    /// Takes nothing more, for this reason, and answers what waits with it.
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
