//! How the rest of the program speaks to the engine.

use std::sync::Arc;

use posthaste_core::dispatcher::LaneView;
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{DisabledReason, StoreError};

/// The engine, as the rest of the program sees it. Clones speak to the same one.
#[derive(Clone)]
pub struct Engine {
    _shared: Arc<()>,
}

/// Why the engine did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It is shutting down.
    #[error("the server is shutting down")]
    Stopped,
    /// What was asked for could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of calling a delivery off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be sent.
    Done,
    /// It is being sent.
    TooLate,
    /// It had ended already.
    Ended,
}

impl Engine {
    /// Enables, pauses, disables or deletes an endpoint. Answers when that is in force and on disk: no
    /// attempt to an endpoint that was shut begins after the answer.
    pub async fn stand(
        &self,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
    ) -> Result<(), EngineError> {
        let _ = (endpoint, standing, reason);
        unreachable!("the engine is being built")
    }

    /// Calls a delivery off. Answers when that is on disk, or cannot be done.
    pub async fn cancel(
        &self,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Result<Cancelled, EngineError> {
        let _ = (endpoint, delivery);
        unreachable!("the engine is being built")
    }

    /// Something due at `due` was put on disk for an endpoint by other means than accepting it.
    pub fn work(&self, endpoint: EndpointId, due: Timestamp) {
        let _ = (endpoint, due);
    }

    /// How an endpoint is configured was changed on disk.
    pub fn changed(&self, endpoint: EndpointId) {
        let _ = endpoint;
    }

    /// A look at an endpoint's lane, if it has one at the moment.
    pub async fn lane(&self, endpoint: EndpointId) -> Result<Option<LaneView>, EngineError> {
        let _ = endpoint;
        unreachable!("the engine is being built")
    }

    /// Whether a delivery is being sent, or its result is being written down.
    pub fn is_in_flight(&self, delivery: DeliveryId) -> bool {
        let _ = delivery;
        false
    }

    /// Every delivery that is being sent, the newest first.
    pub fn flights(&self) -> Vec<DeliveryId> {
        Vec::new()
    }
}
