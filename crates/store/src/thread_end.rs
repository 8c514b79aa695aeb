//! The end of the thread that runs a store, and the caller that waits for it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Done, StoreError};

/// Reports the end of the store's thread to the caller that closes the store.
#[derive(Default)]
pub(crate) struct ThreadEnd {
    state: Mutex<CloseState>,
    broken: OnceLock<StoreError>,
}

#[derive(Default)]
struct CloseState {
    /// The caller that waits for the end of the thread.
    waits: Option<Done<()>>,
    /// Set when the thread has ended.
    has_ended: bool,
}

impl ThreadEnd {
    /// Answers when the thread has ended, immediately if it already has.
    pub(crate) fn when_closed(&self, done: Done<()>) {
        let mut state = self.lock();
        if !state.has_ended {
            state.waits = Some(done);
            return;
        }
        drop(state);
        done(self.outcome());
    }

    /// Notes that the thread failed. Returns whether this is the first failure.
    pub(crate) fn broke(&self, why: StoreError) -> bool {
        self.broken.set(why).is_ok()
    }

    /// Returns whether the thread has failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Notes the end of the thread.
    pub(crate) fn end(&self) {
        let waits = {
            let mut state = self.lock();
            state.has_ended = true;
            state.waits.take()
        };
        if let Some(done) = waits {
            done(self.outcome());
        }
    }

    fn outcome(&self) -> Result<(), StoreError> {
        self.broken.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, CloseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
