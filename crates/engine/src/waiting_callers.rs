//! Callers that wait for the engine: for a status change to be persisted, or for a delivery to be cancelled.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::Standing;
use posthaste_store::DisabledReason;
use rustc_hash::FxHashMap;

use super::handle::{Cancelled, EngineError};
use super::inbox::Reply;

/// A caller's request to change the status of an endpoint.
pub(super) struct StatusRequest {
    pub(super) standing: Standing,
    pub(super) reason: Option<DisabledReason>,
    pub(super) reply: Reply<()>,
}

/// All waiting callers.
#[derive(Default)]
pub(super) struct Waiting {
    standings: FxHashMap<EndpointId, Vec<StatusRequest>>,
    cancels: FxHashMap<DeliveryId, (EndpointId, Vec<Reply<Cancelled>>)>,
}

impl Waiting {
    /// Adds a caller that waits for a status change of an endpoint.
    pub(super) fn for_standing(&mut self, endpoint: EndpointId, petition: StatusRequest) {
        self.standings.entry(endpoint).or_default().push(petition);
    }

    /// Removes and returns all callers that wait for a status change of an endpoint. The status in force is the latest
    /// requested one, and it answers all earlier requests.
    pub(super) fn take_standing(&mut self, endpoint: EndpointId) -> Vec<StatusRequest> {
        self.standings.remove(&endpoint).unwrap_or_default()
    }

    /// Returns true if a caller waits for a status change of the endpoint.
    pub(super) fn has(&self, endpoint: EndpointId) -> bool {
        self.standings.contains_key(&endpoint)
    }

    /// Answers all callers with this error.
    pub(super) fn answer_all(&mut self, why: &EngineError) {
        for petition in self.standings.drain().flat_map(|(_, petitions)| petitions) {
            let _ = petition.reply.send(Err(why.clone()));
        }
        for reply in self.cancels.drain().flat_map(|(_, (_, replies))| replies) {
            let _ = reply.send(Err(why.clone()));
        }
    }

    /// Adds a caller that waits for a delivery to be cancelled.
    pub(super) fn for_cancel(
        &mut self,
        endpoint: EndpointId,
        delivery: DeliveryId,
        reply: Reply<Cancelled>,
    ) {
        let waiting = self.cancels.entry(delivery);
        let (_, replies) = waiting.or_insert_with(|| (endpoint, Vec::new()));
        replies.push(reply);
    }

    /// Returns the endpoint of a delivery that a caller wants to cancel.
    pub(super) fn endpoint_of(&self, delivery: DeliveryId) -> Option<EndpointId> {
        let (endpoint, _) = self.cancels.get(&delivery)?;
        Some(*endpoint)
    }

    /// Answers all callers that want to cancel the delivery.
    pub(super) fn answer_cancel(
        &mut self,
        delivery: DeliveryId,
        answer: &Result<Cancelled, EngineError>,
    ) {
        let waiting = self.cancels.remove(&delivery);
        for reply in waiting.into_iter().flat_map(|(_, replies)| replies) {
            // The caller may have stopped waiting, so a failed send is ignored.
            let _ = reply.send(answer.clone());
        }
    }
}
