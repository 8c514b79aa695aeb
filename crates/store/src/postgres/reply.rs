//! Answers that cannot be forgotten, and the end of the store.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::oneshot;

use super::fault::stopped;
use crate::{Answer, Done, StoreError};

/// Somebody waits for this. If nobody answers, dropping it does.
pub(super) struct Reply<T>(Option<Done<T>>);

impl<T> Reply<T> {
    /// To be answered by `done`.
    pub(super) fn new(done: Done<T>) -> Reply<T> {
        Reply(Some(done))
    }

    /// Answers.
    pub(super) fn give(mut self, result: Result<T, StoreError>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // Whoever waits must not wait for ever, not even if the thread panics.
        if let Some(done) = self.0.take() {
            done(Err(stopped()));
        }
    }
}

/// An answer, and how to give it.
pub(super) fn promise<T: Send + 'static>() -> (Done<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // Whoever asked may have gone.
        let _ = sender.send(result);
    });
    let answer = Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(stopped())) });
    (done, answer)
}

/// Tells whoever closes the store that it is closed.
#[derive(Default)]
pub(super) struct Closed {
    door: Mutex<Door>,
    broken: OnceLock<StoreError>,
}

#[derive(Default)]
struct Door {
    /// Whoever waits for the end of the thread.
    waits: Option<Done<()>>,
    /// The thread has ended.
    gone: bool,
}

impl Closed {
    /// Answers when the thread has ended, which may be now.
    pub(super) fn when_closed(&self, done: Done<()>) {
        let mut door = self.lock();
        if !door.gone {
            door.waits = Some(done);
            return;
        }
        drop(door);
        done(self.verdict());
    }

    /// Nothing can be promised any more. Says whether this is news.
    pub(super) fn broke(&self, why: StoreError) -> bool {
        self.broken.set(why).is_ok()
    }

    /// The thread ends here.
    pub(super) fn end(&self) {
        let waits = {
            let mut door = self.lock();
            door.gone = true;
            door.waits.take()
        };
        if let Some(done) = waits {
            done(self.verdict());
        }
    }

    fn verdict(&self) -> Result<(), StoreError> {
        self.broken.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
