//! The queue in front of the writer: bounded, and whoever finds it full is told at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

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
    /// With the time at which each arrived, oldest first.
    waiting: VecDeque<(Instant, Operation)>,
    /// What goes before all of them, each by itself.
    ahead: VecDeque<Operation>,
    /// Something was added once.
    used: bool,
    /// Why nothing is taken any more.
    shut: Option<StoreError>,
}

/// Where an operation goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind all others, if there is room.
    InTurn,
    /// Behind all others.
    Last,
    /// Before all others.
    First,
}

impl Queue {
    /// A queue in which at most `limit` operations wait.
    pub(super) fn new(limit: usize) -> Queue {
        Queue {
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

    /// Adds an operation, or answers it at once.
    pub(super) fn push(&self, operation: Operation) {
        self.add(operation, Place::InTurn);
    }

    /// Adds an operation behind all others though it be full. For what is asked now and then, and by nobody outside.
    pub(super) fn push_last(&self, operation: Operation) {
        self.add(operation, Place::Last);
    }

    /// Has an operation done as soon as what is being written is, whatever else waits.
    pub(super) fn push_first(&self, operation: Operation) {
        self.add(operation, Place::First);
    }

    fn add(&self, operation: Operation, place: Place) {
        let refused = {
            let mut inner = self.lock();
            let is_full = place == Place::InTurn && inner.waiting.len() >= self.limit;
            if let Some(why) = &inner.shut {
                Err((operation, why.clone()))
            } else if is_full {
                Err((operation, StoreError::Overloaded))
            } else {
                let was_empty = inner.waiting.is_empty() && inner.ahead.is_empty();
                match place {
                    Place::InTurn | Place::Last => {
                        inner.waiting.push_back((Instant::now(), operation));
                    }
                    Place::First => inner.ahead.push_back(operation),
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

    /// Takes what has gathered, in the order it came, once something has. Nothing when it is closed and
    /// empty.
    pub(super) async fn take(&self) -> Option<Vec<Operation>> {
        loop {
            {
                let mut inner = self.lock();
                if let Some(first) = inner.ahead.pop_front() {
                    return Some(vec![first]);
                }
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

    /// Refuses every waiting operation that arrived before a failed attempt to connect was started. One that arrived
    /// later waits for the next attempt.
    pub(super) fn refuse_older(&self, tried_at: Instant, why: &StoreError) {
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

fn first_group(waiting: &mut VecDeque<(Instant, Operation)>) -> Vec<Operation> {
    let mut bytes = 0;
    let mut count = 0;
    for (_, operation) in waiting.iter().take(MAX_GROUP) {
        bytes += operation.bytes();
        if count > 0 && bytes > MAX_GROUP_BYTES {
            break;
        }
        count += 1;
    }
    waiting
        .drain(..count)
        .map(|(_, operation)| operation)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::operation::Task;
    use super::super::scene::Scene;
    use super::*;

    /// An operation that is known by its size, and says what became of it.
    fn operation(bytes: usize, told: &Arc<Mutex<Vec<usize>>>) -> Operation {
        let told = told.clone();
        let refused = Box::new(move |_: Result<(), StoreError>| {
            told.lock().expect("no panic").push(bytes);
        });
        Task::boxed(bytes, async |_: &mut Scene| Ok(()), refused)
    }

    #[tokio::test]
    async fn a_full_queue_takes_what_must_pass_through_it() {
        let (queue, refused) = (Queue::new(1), Arc::default());
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
    async fn a_failed_connect_refuses_only_what_waited_for_it() {
        let (queue, refused) = (Queue::new(9), Arc::default());
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
    async fn what_failed_answers_whatever_waits() {
        let (queue, refused) = (Queue::new(9), Arc::default());
        queue.push(operation(1, &refused));
        queue.push_first(operation(2, &refused));
        queue.fail(&StoreError::Overloaded);
        assert_eq!(*refused.lock().expect("no panic"), [2, 1]);
        queue.push_first(operation(3, &refused));
        assert_eq!(*refused.lock().expect("no panic"), [2, 1, 3]);
        assert!(queue.take().await.is_none());
    }
}
