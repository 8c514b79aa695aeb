//! The write queue in front of a writer. It is bounded: an operation that finds it full is refused immediately.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::operation::Operation;
use crate::StoreError;
use crate::write_group::group_len;
/// Operations that wait to be written.
pub(in crate::postgres) struct WriteQueue {
    inner: Mutex<Inner>,
    filled: Notify,
    limit: usize,
}

struct Inner {
    /// The waiting operations and their arrival times, oldest first.
    waiting: VecDeque<(Instant, Operation)>,
    /// Operations that are written before all waiting ones, each in its own group.
    ahead: VecDeque<Operation>,
    /// Set once an operation was added.
    used: bool,
    /// The error for new operations, once the queue is shut.
    shut: Option<StoreError>,
}

/// The position at which an operation is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueuePosition {
    /// Behind all others, if there is room.
    InTurn,
    /// Behind all others.
    Last,
    /// Before all others.
    First,
}

impl WriteQueue {
    /// Creates a queue for at most `limit` waiting operations.
    pub(in crate::postgres) fn new(limit: usize) -> WriteQueue {
        WriteQueue {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                ahead: VecDeque::new(),
                used: false,
                shut: None,
            }),
            filled: Notify::new(),
            limit: limit.max(1),
        }
    }

    /// Adds an operation, or refuses it immediately.
    pub(in crate::postgres) fn push(&self, operation: Operation) {
        self.add(operation, QueuePosition::InTurn);
    }

    /// Adds an operation behind all others, even if the queue is full. For rare internal operations only.
    pub(in crate::postgres) fn push_last(&self, operation: Operation) {
        self.add(operation, QueuePosition::Last);
    }

    /// Adds an operation that runs as soon as the current group is written, before all others.
    pub(in crate::postgres) fn push_first(&self, operation: Operation) {
        self.add(operation, QueuePosition::First);
    }

    fn add(&self, operation: Operation, position: QueuePosition) {
        let refused = {
            let mut inner = self.lock();
            let is_full = position == QueuePosition::InTurn && inner.waiting.len() >= self.limit;
            if let Some(why) = &inner.shut {
                Err((operation, why.clone()))
            } else if is_full {
                Err((operation, StoreError::Overloaded))
            } else {
                let was_empty = inner.waiting.is_empty() && inner.ahead.is_empty();
                match position {
                    QueuePosition::InTurn | QueuePosition::Last => {
                        inner.waiting.push_back((Instant::now(), operation));
                    }
                    QueuePosition::First => inner.ahead.push_back(operation),
                }
                inner.used = true;
                Ok(was_empty)
            }
        };
        match refused {
            Ok(true) => self.filled.notify_one(),
            Ok(false) => {}
            Err((operation, why)) => operation.refuse(why),
        }
    }

    /// Waits until there are operations, and returns the next group in queue order. Returns `None` when the queue is
    /// closed and empty.
    pub(in crate::postgres) async fn take(&self) -> Option<Vec<Operation>> {
        loop {
            {
                let mut inner = self.lock();
                if let Some(first) = inner.ahead.pop_front() {
                    return Some(vec![first]);
                }
                if !inner.waiting.is_empty() {
                    let sizes = inner.waiting.iter().map(|(_, operation)| operation.bytes());
                    let count = group_len(sizes);
                    let group = inner.waiting.drain(..count);
                    return Some(group.map(|(_, operation)| operation).collect());
                }
                if inner.shut.is_some() {
                    return None;
                }
            }
            self.filled.notified().await;
        }
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
            let waiting = std::mem::take(&mut inner.waiting);
            let waiting = waiting.into_iter().map(|(_, operation)| operation);
            ahead.into_iter().chain(waiting)
        };
        for operation in waiting {
            operation.refuse(why.clone());
        }
        self.filled.notify_one();
    }

    /// Refuses every waiting operation that arrived before a failed attempt to connect was started. An operation that
    /// arrived later waits for the next attempt.
    pub(in crate::postgres) fn refuse_older(&self, tried_at: Instant, why: &StoreError) {
        let refused: Vec<Operation> = {
            let mut inner = self.lock();
            let count = inner.waiting.partition_point(|(at, _)| *at < tried_at);
            let refused = inner.waiting.drain(..count);
            refused.map(|(_, operation)| operation).collect()
        };
        for operation in refused {
            operation.refuse(why.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::operation::Task;
    use super::super::write_context::WriteContext;
    use super::*;

    /// Creates an operation that is identified by its size and records that it was answered.
    fn operation(bytes: usize, answered: &Arc<Mutex<Vec<usize>>>) -> Operation {
        let answered = answered.clone();
        let refused = Box::new(move |_: Result<(), StoreError>| {
            answered.lock().expect("no panic").push(bytes);
        });
        Task::boxed(bytes, async |_: &mut WriteContext| Ok(()), refused)
    }

    #[tokio::test]
    async fn a_full_queue_accepts_operations_that_must_not_be_refused() {
        let (queue, refused) = (WriteQueue::new(1), Arc::default());
        queue.push(operation(1, &refused));
        queue.push(operation(2, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2]);
        queue.push_last(operation(3, &refused));
        queue.push_first(operation(4, &refused));
        queue.push_first(operation(5, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2]);
        let mut taken = Vec::new();
        for _ in 0..3 {
            let group = queue.take().await.expect("something waits");
            taken.push(group.iter().map(Operation::bytes).collect::<Vec<_>>());
        }
        assert_eq!(taken, [vec![4], vec![5], vec![1, 3]]);
    }

    #[tokio::test]
    async fn a_failed_connect_refuses_only_the_operations_waiting_for_it() {
        let (queue, refused) = (WriteQueue::new(9), Arc::default());
        queue.push(operation(1, &refused));
        queue.push(operation(2, &refused));
        let pushed_by = Instant::now();
        let mut tried_at = pushed_by;
        while tried_at == pushed_by {
            tried_at = Instant::now();
        }
        queue.push(operation(3, &refused));
        queue.refuse_older(tried_at, &StoreError::Overloaded);
        assert_eq!(*refused.lock().expect("no panic"), [1, 2]);
        let group = queue.take().await.expect("one still waits");
        assert_eq!(group.len(), 1);
    }

    #[tokio::test]
    async fn a_failure_is_returned_to_all_waiting_operations() {
        let (queue, refused) = (WriteQueue::new(9), Arc::default());
        queue.push(operation(1, &refused));
        queue.push_first(operation(2, &refused));
        queue.fail(&StoreError::Overloaded);
        assert_eq!(*refused.lock().expect("no panic"), [2, 1]);
        queue.push_first(operation(3, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2, 1, 3]);
        assert!(queue.take().await.is_none());
    }
}
