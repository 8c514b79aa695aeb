//! Callers that wait for the engine: for a status change to be persisted, or for a delivery to be cancelled.
//!
//! [`WaitingCallers`] keeps their requests by endpoint and by delivery. Every caller is answered once, and all of them
//! when the engine ends.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::EndpointStatus;
use posthaste_store::DisabledReason;
use rustc_hash::FxHashMap;

use super::reply::{CancelResult, EngineError, Reply};

/// A caller's request to change the status of an endpoint.
pub(super) struct StatusRequest {
    pub(super) status: EndpointStatus,
    pub(super) reason: Option<DisabledReason>,
    pub(super) reply: Reply<()>,
}

/// All waiting callers.
#[derive(Default)]
pub(super) struct WaitingCallers {
    status_requests: FxHashMap<EndpointId, Vec<StatusRequest>>,
    cancels: FxHashMap<DeliveryId, Vec<Reply<CancelResult>>>,
}

impl WaitingCallers {
    /// Adds a caller that waits for a status change of an endpoint.
    pub(super) fn wait_for_status(&mut self, endpoint: EndpointId, request: StatusRequest) {
        let requests = self.status_requests.entry(endpoint).or_default();
        requests.push(request);
    }

    /// Removes and returns all callers that wait for a status change of an endpoint. The status in force is the latest
    /// requested one, and it answers all earlier requests.
    pub(super) fn take_status_requests(&mut self, endpoint: EndpointId) -> Vec<StatusRequest> {
        self.status_requests.remove(&endpoint).unwrap_or_default()
    }

    /// Returns true if a caller waits for a status change of the endpoint.
    pub(super) fn wait_for_status_of(&self, endpoint: EndpointId) -> bool {
        self.status_requests.contains_key(&endpoint)
    }

    /// Answers all callers with this error.
    pub(super) fn answer_all(&mut self, error: &EngineError) {
        for request in self.status_requests.drain().flat_map(|(_, all)| all) {
            let _ = request.reply.send(Err(error.clone()));
        }
        for reply in self.cancels.drain().flat_map(|(_, all)| all) {
            let _ = reply.send(Err(error.clone()));
        }
    }

    /// Adds a caller that waits for a delivery to be cancelled.
    pub(super) fn wait_for_cancel(&mut self, delivery: DeliveryId, reply: Reply<CancelResult>) {
        self.cancels.entry(delivery).or_default().push(reply);
    }

    /// Answers all callers that want to cancel the delivery.
    pub(super) fn answer_cancel(
        &mut self,
        delivery: DeliveryId,
        answer: &Result<CancelResult, EngineError>,
    ) {
        for reply in self.cancels.remove(&delivery).into_iter().flatten() {
            // The caller may have stopped waiting, so a failed send is ignored.
            let _ = reply.send(answer.clone());
        }
    }
}
