//! States of many endpoints at once, from the nodes that own them.
//!
//! [`OwnerRouter::lanes`] answers for a page of a list: each owner is asked once for all its endpoints of the page, and
//! an endpoint whose owner does not answer in time is left out. [`OwnerRouter::limited`] asks all nodes for the
//! endpoints that limits hold back for long.

use std::collections::hash_map::Entry;

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Span;
use posthaste_store::{NodeNo, Owner};
use rustc_hash::FxHashMap;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::protocol::{LaneReport, LimitedReport, NodeRequest, NodeResponse, TextId};
use super::{OwnerRouter, READ_TIMEOUT};
use crate::{EngineError, EnginePhase};

/// Maximum number of endpoints for which one request asks: as many as the rows of a page.
const MAX_ENDPOINTS_PER_REQUEST: usize = 250;
/// Maximum number of endpoints in the answer of one node to the question which endpoints limits hold back.
pub const MAX_LIMITED_REPORTED: usize = 1_000;

/// Endpoints that limits have held back for long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedEndpoints {
    /// The limit of each endpoint, and the time.
    pub endpoints: FxHashMap<EndpointId, LimitedReport>,
    /// True if every node answered, and none left endpoints out.
    pub is_complete: bool,
}

impl OwnerRouter {
    /// Returns the lanes of these endpoints. Endpoints without a lane are left out, and those whose owner does not
    /// answer in time.
    pub async fn lanes(&self, endpoints: &[EndpointId]) -> FxHashMap<EndpointId, LaneReport> {
        let mut here = Vec::new();
        let mut elsewhere: FxHashMap<NodeNo, Vec<TextId<EndpointId>>> = FxHashMap::default();
        for endpoint in endpoints.iter().take(MAX_ENDPOINTS_PER_REQUEST) {
            let cluster = self.cluster.as_ref();
            match cluster.map_or(Owner::Me, |cluster| cluster.owner(Shard::of(*endpoint))) {
                Owner::Me => here.push(*endpoint),
                Owner::Other(node) => elsewhere.entry(node).or_default().push(TextId(*endpoint)),
                Owner::None => {}
            }
        }
        let mut answers = JoinSet::new();
        for (node, endpoints) in elsewhere {
            answers.spawn(self.ask(node, &NodeRequest::ViewLanes { endpoints }, READ_TIMEOUT));
        }
        let mut lanes = FxHashMap::default();
        if !here.is_empty()
            && let Ok(Ok(found)) = timeout(READ_TIMEOUT, self.lanes_here(here)).await
        {
            lanes.extend(found);
        }
        while let Some(reply) = answers.join_next().await {
            if let Ok(Some(NodeResponse::Lanes { lanes: found })) = reply {
                lanes.extend(found.into_iter().map(|(TextId(id), lane)| (id, lane)));
            }
        }
        lanes
    }

    /// Returns the lanes that these endpoints have on this node.
    pub(super) async fn lanes_here(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<impl Iterator<Item = (EndpointId, LaneReport)> + use<>, EngineError> {
        let lanes = match self.engine.phase() {
            // An engine that is starting has no lanes, and does not answer yet.
            EnginePhase::Starting => Vec::new(),
            EnginePhase::Running | EnginePhase::Stopped => self.engine.lanes(endpoints).await?,
        };
        let now = self.clock.now();
        let lanes = lanes.into_iter();
        Ok(lanes.map(move |(endpoint, lane)| (endpoint, LaneReport::new(&lane, now))))
    }

    /// Returns the endpoints of all nodes that limits have held back for at least `at_least`.
    pub async fn limited(&self, at_least: Span) -> LimitedEndpoints {
        let mut limited = LimitedEndpoints {
            is_complete: true,
            ..LimitedEndpoints::default()
        };
        let here = self.engine.limited(at_least, MAX_LIMITED_REPORTED);
        match timeout(READ_TIMEOUT, here).await {
            Ok(Ok(found)) => {
                limited.is_complete &= found.len() < MAX_LIMITED_REPORTED;
                for it in found {
                    limited.add(it.endpoint, LimitedReport::new(&it));
                }
            }
            Ok(Err(_)) | Err(_) => limited.is_complete = false,
        }
        let request = NodeRequest::LimitedEndpoints {
            at_least_ms: at_least.as_millis(),
        };
        let replies = self.ask_all(&request).await;
        limited.is_complete &= replies.len() + 1 >= self.node_count();
        for reply in replies {
            let NodeResponse::LimitedEndpoints { endpoints } = reply else {
                limited.is_complete = false;
                continue;
            };
            limited.is_complete &= endpoints.len() < MAX_LIMITED_REPORTED;
            for (TextId(endpoint), report) in endpoints {
                limited.add(endpoint, report);
            }
        }
        limited
    }
}

impl LimitedEndpoints {
    /// Adds an endpoint. If its owner changed in between and two nodes reported it, the longer time counts.
    fn add(&mut self, endpoint: EndpointId, report: LimitedReport) {
        match self.endpoints.entry(endpoint) {
            Entry::Vacant(entry) => {
                entry.insert(report);
            }
            Entry::Occupied(mut entry) => {
                if entry.get().duration_ms < report.duration_ms {
                    entry.insert(report);
                }
            }
        }
    }
}
