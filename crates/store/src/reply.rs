//! Answers to the callers of a store.
//!
//! [`reply_channel`] makes an [`Answer`] and the callback that completes it. [`Reply`] holds the callback of a request in
//! progress. It answers exactly once: if it is dropped without a result, as after a panic, the caller gets an error.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use crate::{AcceptResult, AdvanceResult, Answer, Done, StoreError};

/// The pending answer to a caller. Dropping it without an answer answers with an error.
pub(crate) struct Reply<T>(Option<Done<T>>);

impl<T> Reply<T> {
    /// Creates a reply that answers through `done`.
    pub(crate) fn new(done: Done<T>) -> Reply<T> {
        Reply(Some(done))
    }

    /// Answers the caller.
    pub(crate) fn send(mut self, result: Result<T, StoreError>) {
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

/// The pending answer to a request that accepts events.
pub(crate) enum AcceptReply {
    /// A list of events.
    Accept(Reply<AcceptResult>),
    /// A decision about a schedule.
    Advance(Reply<AdvanceResult>),
}

impl AcceptReply {
    /// Answers the caller.
    pub(crate) fn send(self, result: Result<AcceptResult, StoreError>) {
        match self {
            AcceptReply::Accept(reply) => reply.send(result),
            AcceptReply::Advance(reply) => reply.send(result.map(|accepted| match accepted {
                AcceptResult::Done(events) => {
                    AdvanceResult::Done(events.into_iter().map(|it| it.event).collect())
                }
                // The schedules of a tenant are deleted with it.
                AcceptResult::NoSuchTenant => AdvanceResult::Superseded,
                refused @ (AcceptResult::Conflict(_)
                | AcceptResult::NoSuchEndpoint
                | AcceptResult::TooManyDeliveries { .. }
                | AcceptResult::OverLimit { .. }) => AdvanceResult::Refused(refused),
            })),
        }
    }

    /// Tells the caller that the schedule has changed. A list of events is never superseded.
    pub(crate) fn supersede(self) {
        match self {
            AcceptReply::Accept(_) => {}
            AcceptReply::Advance(reply) => reply.send(Ok(AdvanceResult::Superseded)),
        }
    }
}

/// Creates an answer, and the callback that gives it.
pub(crate) fn reply_channel<T: Send + 'static>() -> (Done<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // The caller may have stopped waiting.
        let _ = sender.send(result);
    });
    let answer = Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(stopped())) });
    (done, answer)
}

/// Reports whether a caller still waits for its answer.
#[derive(Clone)]
pub(crate) struct CallerPresence(Weak<()>);

impl CallerPresence {
    /// Returns false if the caller has dropped its answer, or has it.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Creates an answer, the callback that gives it, and the presence of its caller.
pub(crate) fn watched_reply_channel<T: Send + 'static>() -> (Done<T>, Answer<T>, CallerPresence) {
    let (done, answer) = reply_channel();
    let caller = Arc::new(());
    let presence = CallerPresence(Arc::downgrade(&caller));
    let watched = async move {
        let _caller = caller;
        answer.await
    };
    (done, Box::pin(watched), presence)
}

/// Returns the error for callers after the thread of the store has stopped.
pub(crate) fn stopped() -> StoreError {
    StoreError::Unavailable("the store's thread has stopped".to_owned())
}
