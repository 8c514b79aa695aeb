//! The queue in front of the writer: bounded, and whoever finds it full is told at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::operation::Operation;
use crate::StoreError;

/// How many operations one transaction takes at most.
const MAX_GROUP: usize = 1_024;
/// How many bytes one transaction takes at most, unless a single operation brings more.
const MAX_GROUP_BYTES: usize = 8 * 1_024 * 1_024;

/// What waits to be written.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    filled: Notify,
    limit: usize,
}

struct Inner {
    waiting: VecDeque<Operation>,
    /// Something was added once.
    used: bool,
    /// Why nothing is taken any more.
    shut: Option<StoreError>,
}

impl Queue {
    /// A queue in which at most `limit` operations wait.
    pub(super) fn new(limit: usize) -> Queue {
        Queue {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                used: false,
                shut: None,
            }),
            filled: Notify::new(),
            limit: limit.max(1),
        }
    }

    /// Adds an operation, or answers it at once.
    pub(super) fn push(&self, operation: Operation) {
        let refused = {
            let mut inner = self.lock();
            if let Some(why) = &inner.shut {
                Err((operation, why.clone()))
            } else if inner.waiting.len() >= self.limit {
                Err((operation, StoreError::Overloaded))
            } else {
                inner.waiting.push_back(operation);
                inner.used = true;
                Ok(inner.waiting.len() == 1)
            }
        };
        match refused {
            Ok(true) => self.filled.notify_one(),
            Ok(false) => {}
            Err((operation, why)) => operation.refuse(why),
        }
    }

    /// Takes what has gathered, in the order it came, once something has. Nothing when it is closed and
    /// empty.
    pub(super) async fn take(&self) -> Option<Vec<Operation>> {
        loop {
            {
                let mut inner = self.lock();
                if !inner.waiting.is_empty() {
                    return Some(first_group(&mut inner.waiting));
                }
                if inner.shut.is_some() {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Takes nothing more. What waits already is still written.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        if inner.shut.is_none() {
            inner.shut = Some(StoreError::Closed);
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// Whether anything was ever added: otherwise nobody has begun to write what comes through it.
    pub(super) fn is_used(&self) -> bool {
        self.lock().used
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
            operation.refuse(why.clone());
        }
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn first_group(waiting: &mut VecDeque<Operation>) -> Vec<Operation> {
    let mut bytes = 0;
    let mut count = 0;
    for operation in waiting.iter().take(MAX_GROUP) {
        bytes += operation.bytes();
        if count > 0 && bytes > MAX_GROUP_BYTES {
            break;
        }
        count += 1;
    }
    waiting.drain(..count).collect()
}
