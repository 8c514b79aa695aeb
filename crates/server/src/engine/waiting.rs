//! People who wait for an answer.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::Standing;
use posthaste_store::DisabledReason;
use rustc_hash::FxHashMap;

use super::handle::{Cancelled, EngineError};
use super::inbox::Reply;

/// Somebody who wants an endpoint to stand otherwise.
pub(super) struct Petition {
    pub(super) standing: Standing,
    pub(super) reason: Option<DisabledReason>,
    pub(super) reply: Reply<()>,
}

/// Everybody who waits.
#[derive(Default)]
pub(super) struct Waiting {
    standings: FxHashMap<EndpointId, Vec<Petition>>,
    cancels: FxHashMap<DeliveryId, (EndpointId, Vec<Reply<Cancelled>>)>,
}

impl Waiting {
    /// Somebody waits for an endpoint's standing.
    pub(super) fn for_standing(&mut self, endpoint: EndpointId, petition: Petition) {
        self.standings.entry(endpoint).or_default().push(petition);
    }

    /// Everybody who has been waiting for an endpoint's standing. What stands now is the latest that
    /// was asked for, and answers all who asked before.
    pub(super) fn take_standing(&mut self, endpoint: EndpointId) -> Vec<Petition> {
        self.standings.remove(&endpoint).unwrap_or_default()
    }

    /// Whether somebody waits for an endpoint's standing.
    pub(super) fn has(&self, endpoint: EndpointId) -> bool {
        self.standings.contains_key(&endpoint)
    }

    /// Tells everybody that nothing comes of what they asked for.
    pub(super) fn answer_all(&mut self, why: &EngineError) {
        for petition in self.standings.drain().flat_map(|(_, petitions)| petitions) {
            let _ = petition.reply.send(Err(why.clone()));
        }
        for reply in self.cancels.drain().flat_map(|(_, (_, replies))| replies) {
            let _ = reply.send(Err(why.clone()));
        }
    }

    /// Somebody waits for a delivery to be called off.
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

    /// Where a delivery goes that somebody wants called off.
    pub(super) fn endpoint_of(&self, delivery: DeliveryId) -> Option<EndpointId> {
        let (endpoint, _) = self.cancels.get(&delivery)?;
        Some(*endpoint)
    }

    /// Answers everybody who wanted a delivery called off.
    pub(super) fn answer_cancel(
        &mut self,
        delivery: DeliveryId,
        answer: &Result<Cancelled, EngineError>,
    ) {
        let waiting = self.cancels.remove(&delivery);
        for reply in waiting.into_iter().flat_map(|(_, replies)| replies) {
            // Whoever has gone away does not mind.
            let _ = reply.send(answer.clone());
        }
    }
}
