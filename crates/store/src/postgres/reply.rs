//! Answers to callers that are given even after a panic ([`Reply`]), and the end of the store ([`Closed`]).

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::oneshot;

use super::db_error::stopped;
use crate::{Answer, Done, StoreError};

/// The pending answer to a caller. Dropping it without an answer answers with an error.
pub(super) struct Reply<T>(Option<Done<T>>);

impl<T> Reply<T> {
    /// Creates a reply that answers through `done`.
    pub(super) fn new(done: Done<T>) -> Reply<T> {
        Reply(Some(done))
    }

    /// Answers the caller.
    pub(super) fn give(mut self, result: Result<T, StoreError>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // The caller must not wait for ever, not even if the thread panics.
        if let Some(done) = self.0.take() {
            done(Err(stopped()));
        }
    }
}

/// Creates an answer, and the callback that gives it.
pub(super) fn promise<T: Send + 'static>() -> (Done<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // The caller may have stopped waiting.
        let _ = sender.send(result);
    });
    let answer = Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(stopped())) });
    (done, answer)
}

/// Reports the end of the store's thread to the caller that closes the store.
#[derive(Default)]
pub(super) struct Closed {
    door: Mutex<CloseState>,
    broken: OnceLock<StoreError>,
}

#[derive(Default)]
struct CloseState {
    /// The caller that waits for the end of the thread.
    waits: Option<Done<()>>,
    /// Set when the thread has ended.
    gone: bool,
}

impl Closed {
    /// Answers when the thread has ended, immediately if it already has.
    pub(super) fn when_closed(&self, done: Done<()>) {
        let mut door = self.lock();
        if !door.gone {
            door.waits = Some(done);
            return;
        }
        drop(door);
        done(self.outcome());
    }

    /// Notes that the thread failed. Returns whether this is the first failure.
    pub(super) fn broke(&self, why: StoreError) -> bool {
        self.broken.set(why).is_ok()
    }

    /// Notes the end of the thread.
    pub(super) fn end(&self) {
        let waits = {
            let mut door = self.lock();
            door.gone = true;
            door.waits.take()
        };
        if let Some(done) = waits {
            done(self.outcome());
        }
    }

    fn outcome(&self) -> Result<(), StoreError> {
        self.broken.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, CloseState> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
