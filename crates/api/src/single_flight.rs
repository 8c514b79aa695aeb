//! Runs an operation once for all callers that ask for its result meanwhile.
//!
//! Health checks and metrics need no key, and each of them asks the store. [`SingleFlight`] bounds what they cost: however
//! many callers ask, at most one operation is in progress. A caller that asks after its end starts the next one, so no
//! result is older than the operation that was in progress when the caller asked.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// An operation that is in progress at most once.
pub(super) struct SingleFlight<T> {
    /// The result of the last operation, once it has one.
    last: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> SingleFlight<T> {
        SingleFlight {
            last: Mutex::default(),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Returns the result of the operation in progress, or of `operation` if there is none. The operation continues if its
    /// callers disconnect. Returns `None` if it panicked.
    pub(super) async fn run(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut result = self.join_or_start(operation);
        let ended = result.wait_for(Option::is_some).await;
        ended.ok().and_then(|result| result.clone())
    }

    fn join_or_start(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> watch::Receiver<Option<T>> {
        // No operation panics before it is complete.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The sender of an operation that has ended is dropped.
        if let Some(running) = last.as_ref().filter(|it| it.has_changed().is_ok()) {
            return running.clone();
        }
        let (sender, receiver) = watch::channel(None);
        *last = Some(receiver.clone());
        tokio::spawn(async move {
            sender.send_replace(Some(operation.await));
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::sync::Semaphore;

    use super::*;

    struct Fixture {
        flight: SingleFlight<usize>,
        started: Arc<AtomicUsize>,
        permits: Arc<Semaphore>,
    }

    impl Fixture {
        fn new() -> Fixture {
            Fixture {
                flight: SingleFlight::default(),
                started: Arc::default(),
                permits: Arc::new(Semaphore::new(0)),
            }
        }

        /// Asks for the number of the operation, which ends when it gets a permit.
        async fn ask(&self) -> Option<usize> {
            let (started, permits) = (self.started.clone(), self.permits.clone());
            let operation = async move {
                let number = started.fetch_add(1, SeqCst) + 1;
                let permit = permits.acquire().await.expect("never closed");
                permit.forget();
                number
            };
            self.flight.run(operation).await
        }
    }

    #[tokio::test]
    async fn callers_that_ask_meanwhile_share_a_result() {
        let fixture = Fixture::new();
        let asked = async { tokio::join!(fixture.ask(), fixture.ask(), fixture.ask()) };
        let release = async {
            tokio::task::yield_now().await;
            fixture.permits.add_permits(1);
        };
        let (results, ()) = tokio::join!(asked, release);
        assert_eq!(results, (Some(1), Some(1), Some(1)));
        fixture.permits.add_permits(1);
        assert_eq!(fixture.ask().await, Some(2), "the next one is new");
    }

    #[tokio::test]
    async fn an_operation_continues_without_its_callers() {
        let fixture = Fixture::new();
        for _ in 0..100 {
            let asked = std::pin::pin!(fixture.ask());
            let given_up = tokio::time::timeout(std::time::Duration::ZERO, asked).await;
            assert!(given_up.is_err());
        }
        fixture.permits.add_permits(1);
        assert_eq!(fixture.ask().await, Some(1));
        assert_eq!(fixture.started.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn a_panic_is_no_result_and_the_next_operation_runs() {
        let flight: SingleFlight<usize> = SingleFlight::default();
        assert_eq!(
            flight.run(async { panic!("as it was told to") }).await,
            None
        );
        assert_eq!(flight.run(async { 2 }).await, Some(2));
    }
}
