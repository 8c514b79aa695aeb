//! Waits for the commit of events.
//!
//! A caller may disconnect while its events are in the store's write queue. They are committed all the same, so
//! [`CommitWait`] keeps waiting for them in the background: their memory stays reserved, and the accept stays in
//! progress, until the store has answered.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use posthaste_store::{Answer, StoreError};
use posthaste_system::clock::Clock;
use tokio::runtime::Handle;

use crate::accept_watch::AcceptGuard;
use crate::body_budget::BodyReservation;

/// The store's answer to events, and everything that is held until then.
pub(super) struct CommitWait<T: Send + 'static> {
    /// `None` after the answer.
    waiting: Option<Waiting<T>>,
}

struct Waiting<T> {
    answer: Answer<T>,
    accept: AcceptGuard,
    clock: Clock,
    _reservation: Option<BodyReservation>,
}

impl<T: Send + 'static> CommitWait<T> {
    /// Waits for `answer`.
    pub(super) fn new(
        answer: Answer<T>,
        accept: AcceptGuard,
        clock: Clock,
        reservation: Option<BodyReservation>,
    ) -> CommitWait<T> {
        CommitWait {
            waiting: Some(Waiting {
                answer,
                accept,
                clock,
                _reservation: reservation,
            }),
        }
    }
}

impl<T> Waiting<T> {
    fn end(self, answer: &Result<T, StoreError>) {
        if answer.is_ok() {
            let now = self.clock.now().tick;
            self.accept.committed(now);
        }
    }
}

impl<T: Send + 'static> Future for CommitWait<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = self.waiting.as_mut();
        let waiting = waiting.expect("a future is not polled after its end");
        let answer = ready!(waiting.answer.as_mut().poll(context));
        if let Some(waiting) = self.waiting.take() {
            waiting.end(&answer);
        }
        Poll::Ready(answer)
    }
}

impl<T: Send + 'static> Drop for CommitWait<T> {
    fn drop(&mut self) {
        if let Some(mut waiting) = self.waiting.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                let answer = waiting.answer.as_mut().await;
                waiting.end(&answer);
            });
        }
    }
}
