//! Answers of the engine to its callers.

use posthaste_store::StoreError;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Channel for the answer to a waiting caller.
pub(super) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// Reason why the engine did not do what the caller asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine is shutting down.
    #[error("the server is shutting down")]
    Stopped,
    /// Another node owns the endpoint, or no node does. The request must go to the owner.
    #[error("another node owns the endpoint")]
    NotOwner,
    /// The change could not be persisted.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Outcome of cancelling a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelResult {
    /// Cancelled: the delivery will not be sent.
    Done,
    /// Too late: an attempt is in flight.
    TooLate,
    /// The delivery had already ended.
    Ended,
}

impl EngineError {
    /// Returns the error of a change that is in force and not persisted yet. It is written again until that succeeds, so the
    /// caller must not be told that nothing was changed.
    pub(super) fn not_persisted_yet(error: StoreError) -> EngineError {
        EngineError::Store(match error {
            StoreError::Closed | StoreError::DatabaseTooNew(_) => error,
            StoreError::Full
            | StoreError::Overloaded
            | StoreError::Unavailable(_)
            | StoreError::Unreadable(_) => StoreError::Unavailable(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_written_again_may_have_taken_effect() {
        for error in [StoreError::Overloaded, StoreError::Full] {
            let text = error.to_string();
            let unknown = EngineError::Store(StoreError::Unavailable(text));
            assert_eq!(EngineError::not_persisted_yet(error), unknown);
        }
        let closed = EngineError::not_persisted_yet(StoreError::Closed);
        assert_eq!(closed, EngineError::Store(StoreError::Closed));
    }
}
