//! Answers to callers that are given even after a panic: [`Reply`].

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
pub(super) fn reply_channel<T: Send + 'static>() -> (Done<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // The caller may have stopped waiting.
        let _ = sender.send(result);
    });
    let answer = Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(stopped())) });
    (done, answer)
}
