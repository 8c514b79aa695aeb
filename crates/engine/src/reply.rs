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
