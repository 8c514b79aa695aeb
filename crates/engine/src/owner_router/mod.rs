//! Owner router: passes API requests to the node that owns the endpoint.
//!
//! Every node answers every request. If a request needs the owner of an endpoint, [`OwnerRouter`] calls this node's
//! engine if this node is the owner, asks the owner if another node is, and lets the store make the change if no node
//! is. It guarantees:
//!
//! - **In force.** When a status change or a cancellation is acknowledged, it is persisted, and no node starts an
//!   attempt against it. The node that made the change was the owner at the time of the commit, or no node was.
//! - **Retries.** If the owner changes during a request, the next owner is asked, for a limited time. Then the caller
//!   gets an error and must retry.
//! - **Reads never fail because of an owner.** If the owner does not answer soon, its part of the answer is left out,
//!   and the stored data is shown.
//! - **No overhead for a single node.** Without a cluster no other node is asked.

mod lanes;
mod protocol;
mod reply;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Span;
use posthaste_store::{
    Cluster, DisabledReason, NodeInfo, NodeNo, Owner, Store, StoredDelivery, Written,
};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::{EndpointStats, Metrics};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::protocol::{NodeRequest, NodeResponse, TextId};
use crate::{CancelResult, Engine, EngineError};

pub use self::lanes::{LimitedEndpoints, MAX_LIMITED_REPORTED};
pub use self::protocol::{BreakerReport, HeldBackReport, LaneReport, LimitedReport, LimitsReport};

/// Time for which an owner is looked for and asked, before the caller gets an error and must retry.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(12);
/// Time limit for one request to another node. After that, the current owner is determined and asked again. Long enough
/// for a request and an answer over a slow link, which takes up to 2 s each way.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(4);
/// Time limit for another node to answer a read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before the owner is determined again.
const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// Time for which enabling an unowned endpoint waits for an owner. Only an owner also resets the endpoint's failure
/// history.
const ENABLE_OWNER_WAIT: Duration = Duration::from_secs(3);

/// Routes requests to the owner of an endpoint.
pub struct OwnerRouter {
    engine: Engine,
    metrics: Arc<Metrics>,
    clock: Clock,
    store: Arc<dyn Store>,
    cluster: Option<Arc<dyn Cluster>>,
    total_timeout: Duration,
}

impl OwnerRouter {
    /// Creates the router of this node. Without a cluster this node owns everything.
    pub fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        clock: Clock,
        store: Arc<dyn Store>,
        cluster: Option<Arc<dyn Cluster>>,
    ) -> OwnerRouter {
        OwnerRouter {
            engine,
            metrics,
            clock,
            store,
            cluster,
            total_timeout: TOTAL_TIMEOUT,
        }
    }

    /// Shortens the time limit, for tests.
    #[cfg(test)]
    pub(crate) fn with_short_timeout(mut self) -> OwnerRouter {
        self.total_timeout = Duration::from_millis(100);
        self
    }

    /// Returns true if cached data that other nodes may change is up to date.
    pub fn is_up_to_date(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.is_up_to_date())
    }

    /// Returns true if there can be other nodes.
    pub fn is_shared(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns true if this node owns the shard. Tasks that run on one node only are tied to a shard.
    pub fn is_mine(&self, shard: Shard) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.owner(shard) == Owner::Me)
    }

    /// Returns the number of shards that this node owns.
    pub fn shards_owned(&self) -> usize {
        Shard::all().filter(|shard| self.is_mine(*shard)).count()
    }

    /// Returns all nodes, by number. `None` if there can be no other nodes.
    pub async fn list_nodes(&self) -> Result<Option<Vec<NodeInfo>>, EngineError> {
        match &self.cluster {
            None => Ok(None),
            Some(cluster) => Ok(Some(cluster.list_nodes().await?)),
        }
    }

    /// Returns the number of this node among those that share the database.
    pub fn node_number(&self) -> Option<NodeNo> {
        self.cluster.as_ref().map(|cluster| cluster.me())
    }

    /// Returns the number of nodes, including this one.
    pub fn node_count(&self) -> usize {
        let cluster = self.cluster.as_ref();
        cluster.map_or(1, |cluster| cluster.nodes().len())
    }

    /// Enables, pauses, disables or deletes an endpoint. Returns when the change is in force and persisted: no node
    /// starts an attempt to an endpoint that is no longer enabled after the return.
    ///
    /// [`EngineError::NotOwner`] after the time limit: the change may have been made, or may still be. At `answer_by` its caller
    /// has an error and may request the opposite, so no owner is asked from then on.
    pub async fn set_status(
        &self,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        answer_by: Option<Instant>,
    ) -> Result<(), EngineError> {
        let end = self.end_of_wait(answer_by)?;
        let Some(cluster) = &self.cluster else {
            return self.engine.set_status(endpoint, status, reason).await;
        };
        let change = self.change_status(cluster, endpoint, status, reason, end);
        let changed = timeout_at(end, change).await;
        changed.unwrap_or(Err(EngineError::NotOwner))
    }

    /// Returns the time until which owners are asked for a change.
    fn end_of_wait(&self, answer_by: Option<Instant>) -> Result<Instant, EngineError> {
        let now = Instant::now();
        let end = now + self.total_timeout;
        let end = answer_by.map_or(end, |answer_by| answer_by.min(end));
        match now < end {
            true => Ok(end),
            false => Err(EngineError::NotOwner),
        }
    }

    async fn change_status(
        &self,
        cluster: &Arc<dyn Cluster>,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        end: Instant,
    ) -> Result<(), EngineError> {
        let request = NodeRequest::SetStatus {
            endpoint: TextId(endpoint),
            status: status.into(),
            reason,
        };
        let began = Instant::now();
        while Instant::now() < end {
            let result = match cluster.owner(Shard::of(endpoint)) {
                Owner::Me => self.engine.set_status(endpoint, status, reason).await,
                Owner::Other(node) => match self.ask(node, &request, within(end)).await {
                    Some(NodeResponse::StatusSet) => Ok(()),
                    other => Err(error_of(other)?),
                },
                Owner::None
                    if status == EndpointStatus::Enabled && began.elapsed() < ENABLE_OWNER_WAIT =>
                {
                    Err(EngineError::NotOwner)
                }
                Owner::None => {
                    let now = self.clock.wall();
                    let changing = cluster.set_unowned_status(now, endpoint, status, reason);
                    match changing.await? {
                        Some(_) => Ok(()),
                        None => Err(EngineError::NotOwner),
                    }
                }
            };
            match result {
                Err(EngineError::NotOwner) => sleep(RETRY_PAUSE).await,
                result => return result,
            }
        }
        Err(EngineError::NotOwner)
    }

    /// Cancels a delivery. Returns when the cancellation is persisted or known to be impossible. No owner is asked from
    /// `answer_by` on.
    pub async fn cancel(
        &self,
        endpoint: EndpointId,
        delivery: DeliveryId,
        answer_by: Option<Instant>,
    ) -> Result<CancelResult, EngineError> {
        let end = self.end_of_wait(answer_by)?;
        let Some(cluster) = &self.cluster else {
            return self.engine.cancel(endpoint, delivery).await;
        };
        let cancel = self.cancel_at_owner(cluster, endpoint, delivery, end);
        let cancelled = timeout_at(end, cancel).await;
        cancelled.unwrap_or(Err(EngineError::NotOwner))
    }

    async fn cancel_at_owner(
        &self,
        cluster: &Arc<dyn Cluster>,
        endpoint: EndpointId,
        delivery: DeliveryId,
        end: Instant,
    ) -> Result<CancelResult, EngineError> {
        let request = NodeRequest::Cancel {
            endpoint: TextId(endpoint),
            delivery: TextId(delivery),
        };
        while Instant::now() < end {
            let result = match cluster.owner(Shard::of(endpoint)) {
                Owner::Me => self.engine.cancel(endpoint, delivery).await,
                Owner::Other(node) => match self.ask(node, &request, within(end)).await {
                    Some(NodeResponse::Cancelled { outcome }) => Ok(outcome),
                    other => Err(error_of(other)?),
                },
                Owner::None => {
                    let now = self.clock.wall();
                    let cancelling = cluster.cancel_unowned(now, endpoint, delivery);
                    match cancelling.await? {
                        Some(Written::Applied) => Ok(CancelResult::Done),
                        Some(Written::Superseded) => Ok(CancelResult::Ended),
                        None => Err(EngineError::NotOwner),
                    }
                }
            };
            match result {
                Err(EngineError::NotOwner) => sleep(RETRY_PAUSE).await,
                result => return result,
            }
        }
        Err(EngineError::NotOwner)
    }

    /// Returns an endpoint's lane, if it has one and its owner answers, and a summary of its recent attempts.
    pub async fn lane_and_stats(
        &self,
        endpoint: EndpointId,
    ) -> Result<(Option<LaneReport>, EndpointStats), EngineError> {
        let owner = self
            .cluster
            .as_ref()
            .map_or(Owner::Me, |cluster| cluster.owner(Shard::of(endpoint)));
        let without_lane = || (None, self.metrics.endpoint_stats(endpoint));
        match owner {
            Owner::Me => match self.view_lane_here(endpoint).await {
                Err(EngineError::NotOwner) => Ok(without_lane()),
                result => result,
            },
            Owner::None => Ok(without_lane()),
            Owner::Other(node) => {
                let request = NodeRequest::ViewLane {
                    endpoint: TextId(endpoint),
                };
                match self.ask(node, &request, READ_TIMEOUT).await {
                    Some(NodeResponse::Lane { lane, stats }) => Ok((lane, stats)),
                    Some(_) | None => Ok(without_lane()),
                }
            }
        }
    }

    async fn view_lane_here(
        &self,
        endpoint: EndpointId,
    ) -> Result<(Option<LaneReport>, EndpointStats), EngineError> {
        let lane = self.engine.lane(endpoint).await?;
        let now = self.clock.now();
        let lane = lane.as_ref().map(|lane| LaneReport::new(lane, now));
        Ok((lane, self.metrics.endpoint_stats(endpoint)))
    }

    /// Returns those of the deliveries that are in flight on any node.
    pub async fn in_flight(&self, stored: &[StoredDelivery]) -> FxHashSet<DeliveryId> {
        let mut in_flight = FxHashSet::default();
        let mut elsewhere: FxHashMap<NodeNo, Vec<TextId<DeliveryId>>> = FxHashMap::default();
        for item in stored {
            let facts = item.delivery.facts();
            if item.delivery.status().is_terminal() {
                continue;
            }
            if self.engine.is_in_flight(facts.id) {
                in_flight.insert(facts.id);
                continue;
            }
            let cluster = self.cluster.as_ref();
            match cluster.map(|cluster| cluster.owner(Shard::of(facts.endpoint))) {
                Some(Owner::Other(node)) => {
                    elsewhere.entry(node).or_default().push(TextId(facts.id));
                }
                Some(Owner::Me | Owner::None) | None => {}
            }
        }
        let mut answers = JoinSet::new();
        for (node, deliveries) in elsewhere {
            answers.spawn(self.ask(node, &NodeRequest::InFlightOf { deliveries }, READ_TIMEOUT));
        }
        while let Some(reply) = answers.join_next().await {
            if let Ok(Some(NodeResponse::Deliveries { deliveries })) = reply {
                in_flight.extend(deliveries.into_iter().map(|TextId(id)| id));
            }
        }
        in_flight
    }

    /// Returns true if the delivery is in flight on any node.
    pub async fn is_in_flight(&self, stored: &StoredDelivery) -> bool {
        !self
            .in_flight(std::slice::from_ref(stored))
            .await
            .is_empty()
    }

    /// Returns those of the deliveries that their owner holds after repeated internal faults.
    pub async fn quarantined(&self, stored: &[StoredDelivery]) -> FxHashSet<DeliveryId> {
        let mut held = FxHashSet::default();
        let mut others: FxHashSet<NodeNo> = FxHashSet::default();
        for item in stored {
            let facts = item.delivery.facts();
            if item.delivery.status().is_terminal() {
                continue;
            }
            let cluster = self.cluster.as_ref();
            match cluster.map(|cluster| cluster.owner(Shard::of(facts.endpoint))) {
                Some(Owner::Other(node)) => {
                    others.insert(node);
                }
                Some(Owner::Me | Owner::None) | None => {
                    if self.engine.is_quarantined(facts.id) {
                        held.insert(facts.id);
                    }
                }
            }
        }
        let mut answers = JoinSet::new();
        for node in others {
            answers.spawn(self.ask(node, &NodeRequest::HeldAfterFaults, READ_TIMEOUT));
        }
        while let Some(reply) = answers.join_next().await {
            if let Ok(Some(NodeResponse::HeldAfterFaults { deliveries, .. })) = reply {
                held.extend(deliveries.into_iter().map(|TextId(id)| id));
            }
        }
        held
    }

    /// Returns the deliveries that are quarantined after repeated internal faults on any node that answers, newest
    /// first.
    pub async fn all_quarantined(&self) -> Vec<DeliveryId> {
        let mut held = self.engine.quarantined();
        for reply in self.ask_all(&NodeRequest::HeldAfterFaults).await {
            if let NodeResponse::HeldAfterFaults { deliveries, .. } = reply {
                held.extend(deliveries.into_iter().map(|TextId(id)| id));
            }
        }
        held.sort_unstable_by(|a, b| b.cmp(a));
        held.dedup();
        held
    }

    /// Returns the number of deliveries that are quarantined after repeated internal faults, or cannot be read, on all
    /// nodes that answer.
    pub async fn quarantined_count(&self) -> u64 {
        let mut held = self.engine.quarantined_count() as u64;
        for reply in self.ask_all(&NodeRequest::HeldAfterFaults).await {
            if let NodeResponse::HeldAfterFaults { count, .. } = reply {
                held += count;
            }
        }
        held
    }

    /// Returns the longest time for which a node has not been able to read one of its outboxes, over all nodes that
    /// answer. `None` if all outboxes can be read.
    pub async fn longest_unreadable_outbox(&self) -> Option<Span> {
        let mut longest = self.longest_unreadable_outbox_here();
        for reply in self.ask_all(&NodeRequest::Outboxes).await {
            if let NodeResponse::Outboxes { unreadable_ms } = reply {
                longest = longest.max(unreadable_ms.map(Span::from_millis));
            }
        }
        longest
    }

    fn longest_unreadable_outbox_here(&self) -> Option<Span> {
        self.metrics
            .outboxes
            .longest_unreadable(self.clock.now().tick)
    }

    /// Returns the number of attempts that a tenant has in flight, on all nodes that answer. `None` if this node's
    /// engine does not answer.
    pub async fn under_way(&self, tenant: &TenantId) -> Option<u64> {
        let here = timeout(READ_TIMEOUT, self.engine.tenant_in_flight(tenant.clone())).await;
        let mut attempts = here.ok()?.ok()? as u64;
        let request = NodeRequest::TenantInFlight {
            tenant: TextId(tenant.clone()),
        };
        for reply in self.ask_all(&request).await {
            if let NodeResponse::TenantInFlight { attempts: more } = reply {
                attempts += more;
            }
        }
        Some(attempts)
    }

    /// Returns every delivery in flight on any node that answers, newest first.
    pub async fn all_in_flight(&self) -> Vec<DeliveryId> {
        let mut in_flight = self.engine.deliveries_in_flight();
        for reply in self.ask_all(&NodeRequest::AllInFlight).await {
            if let NodeResponse::Deliveries { deliveries } = reply {
                in_flight.extend(deliveries.into_iter().map(|TextId(id)| id));
            }
        }
        in_flight.sort_unstable_by(|a, b| b.cmp(a));
        in_flight.dedup();
        in_flight
    }

    /// Asks all other nodes at once. Nodes that do not answer in time are left out.
    async fn ask_all(&self, request: &NodeRequest) -> Vec<NodeResponse> {
        let replies = self.ask_each(request).await.into_iter();
        replies.map(|(_, reply)| reply).collect()
    }

    /// Asks all other nodes at once, and returns the answers with their nodes.
    async fn ask_each(&self, request: &NodeRequest) -> Vec<(NodeNo, NodeResponse)> {
        let Some(cluster) = &self.cluster else {
            return Vec::new();
        };
        let me = cluster.me();
        let mut answers = JoinSet::new();
        for node in cluster.nodes().into_iter().filter(|node| *node != me) {
            let asking = self.ask(node, request, READ_TIMEOUT);
            answers.spawn(async move { Some((node, asking.await?)) });
        }
        answers.join_all().await.into_iter().flatten().collect()
    }

    /// Asks another node. `None` if it does not answer.
    fn ask(
        &self,
        node: NodeNo,
        request: &NodeRequest,
        within: Duration,
    ) -> impl Future<Output = Option<NodeResponse>> + Send + use<> {
        let request = serde_json::to_value(request).expect("a request is plain data");
        let cluster = self.cluster.clone();
        async move {
            let answer = cluster?.ask(node, request, within).await.ok()?;
            Some(serde_json::from_value(answer).unwrap_or(NodeResponse::NotUnderstood))
        }
    }
}

/// Returns the time limit for a request to the owner. It ends with the wait: a node does not execute an expired request, so it
/// does not make a change after its caller has got an error.
fn within(end: Instant) -> Duration {
    let remaining = end.saturating_duration_since(Instant::now());
    remaining.min(CHANGE_TIMEOUT)
}

/// Interprets the answer of an owner that did not make the change. Mostly the owner must be determined again.
fn error_of(reply: Option<NodeResponse>) -> Result<EngineError, EngineError> {
    match reply {
        Some(NodeResponse::Unable { why }) => Err(EngineError::Store(
            posthaste_store::StoreError::Unavailable(why),
        )),
        // A node that does not understand the request runs another version. A newer node may own the endpoint soon.
        Some(
            NodeResponse::StatusSet
            | NodeResponse::Cancelled { .. }
            | NodeResponse::Lane { .. }
            | NodeResponse::Lanes { .. }
            | NodeResponse::LimitedEndpoints { .. }
            | NodeResponse::Deliveries { .. }
            | NodeResponse::TenantInFlight { .. }
            | NodeResponse::HeldAfterFaults { .. }
            | NodeResponse::Outboxes { .. }
            | NodeResponse::UnwrittenCounters { .. }
            | NodeResponse::RecentAttempts { .. }
            | NodeResponse::NotOwner
            | NodeResponse::NotUnderstood,
        )
        | None => Ok(EngineError::NotOwner),
    }
}
