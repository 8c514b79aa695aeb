//! Between the API and whoever owns an endpoint: this node's engine, or another's.
//!
//! Every node answers every request. What only an owner can do, or knows, is done here if this node is the
//! owner, asked of the owner if another one is, and written down by the store if nobody is. It promises:
//!
//! - **In force.** When a change of standing or a calling-off is answered, it is on disk and no node begins
//!   an attempt against it: whoever said so was the owner when it was written, or nobody was.
//! - **Asked again.** If the owner changes while it is asked, the next one is asked, for a while; then the
//!   caller is told to come back.
//! - **Looks do no harm.** What is only to be shown is left out if its owner does not answer soon: what
//!   is on disk is shown then.
//! - **One process alone asks nobody.**

mod figures;
mod question;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::Standing;
use posthaste_store::{Cluster, DisabledReason, NodeNo, Owner, Store, StoredDelivery, Written};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::question::{Named, Question, Reply};
use crate::clock::Clock;
use crate::engine::{Cancelled, Engine, EngineError};
use crate::observe::{EndpointFigures, Observatory};

pub use self::question::{BreakerReport, LaneReport};

/// How long an owner is looked for, and asked, before the caller is told to come back.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long one owner may take to do something before it is asked again: it, or whoever took its place.
const DOING: Duration = Duration::from_secs(3);
/// How long another node may take to tell what is only to be shown.
const TELLING: Duration = Duration::from_secs(1);
/// How long until the next owner is looked for.
const PAUSE: Duration = Duration::from_millis(25);
/// For so long somebody is waited for who forgets an endpoint's past with its enabling.
const AWAITS_OWNER: Duration = Duration::from_secs(3);

/// Finds whoever can answer.
pub struct Switchboard {
    engine: Engine,
    observe: Arc<Observatory>,
    clock: Clock,
    store: Arc<dyn Store>,
    cluster: Option<Arc<dyn Cluster>>,
    patience: Duration,
}

impl Switchboard {
    /// A switchboard for this node, and for the others if there can be any.
    pub fn new(
        engine: Engine,
        observe: Arc<Observatory>,
        clock: Clock,
        store: Arc<dyn Store>,
        cluster: Option<Arc<dyn Cluster>>,
    ) -> Switchboard {
        Switchboard {
            engine,
            observe,
            clock,
            store,
            cluster,
            patience: PATIENCE,
        }
    }

    /// The same, for tests that cannot wait.
    #[cfg(test)]
    pub(crate) fn impatient(mut self) -> Switchboard {
        self.patience = Duration::from_millis(100);
        self
    }

    /// Whether what is remembered of what other nodes may change can be believed.
    pub fn is_informed(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.is_informed())
    }

    /// Whether there can be other nodes.
    pub fn is_shared(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether this node is the one to see to something that one node has to.
    pub fn is_mine(&self, shard: Shard) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.owner(shard) == Owner::Me)
    }

    /// How many shards are this node's.
    pub fn shards_owned(&self) -> usize {
        Shard::all().filter(|shard| self.is_mine(*shard)).count()
    }

    /// How many nodes there are, this one included.
    pub fn node_count(&self) -> usize {
        let cluster = self.cluster.as_ref();
        cluster.map_or(1, |cluster| cluster.nodes().len())
    }

    /// Enables, pauses, disables or deletes an endpoint. Answers when that is in force and on disk: no
    /// node begins an attempt to an endpoint that was shut after the answer.
    pub async fn stand(
        &self,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
    ) -> Result<(), EngineError> {
        let Some(cluster) = &self.cluster else {
            return self.engine.stand(endpoint, standing, reason).await;
        };
        let question = Question::Stand {
            endpoint: Named(endpoint),
            standing: standing.into(),
            reason,
        };
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let answered = match cluster.owner(Shard::of(endpoint)) {
                Owner::Me => {
                    self.here(self.engine.stand(endpoint, standing, reason))
                        .await
                }
                Owner::Other(node) => match self.ask(node, &question, DOING).await {
                    Some(Reply::Stands) => Ok(()),
                    other => Err(refused(other)?),
                },
                Owner::Nobody
                    if standing == Standing::Enabled && began.elapsed() < AWAITS_OWNER =>
                {
                    Err(EngineError::Elsewhere)
                }
                Owner::Nobody => {
                    let now = self.clock.wall();
                    let stood = cluster.stand_unowned(now, endpoint, standing, reason);
                    match stood.await? {
                        Some(_) => Ok(()),
                        None => Err(EngineError::Elsewhere),
                    }
                }
            };
            match answered {
                Err(EngineError::Elsewhere) => sleep(PAUSE).await,
                answered => return answered,
            }
        }
        Err(EngineError::Elsewhere)
    }

    /// Calls a delivery off. Answers when that is on disk, or cannot be done.
    pub async fn cancel(
        &self,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Result<Cancelled, EngineError> {
        let Some(cluster) = &self.cluster else {
            return self.engine.cancel(endpoint, delivery).await;
        };
        let question = Question::Cancel {
            endpoint: Named(endpoint),
            delivery: Named(delivery),
        };
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let answered = match cluster.owner(Shard::of(endpoint)) {
                Owner::Me => self.here(self.engine.cancel(endpoint, delivery)).await,
                Owner::Other(node) => match self.ask(node, &question, DOING).await {
                    Some(Reply::Cancelled { outcome }) => Ok(outcome.into()),
                    other => Err(refused(other)?),
                },
                Owner::Nobody => {
                    let now = self.clock.wall();
                    let cancelled = cluster.cancel_unowned(now, endpoint, delivery);
                    match cancelled.await? {
                        Some(Written::Applied) => Ok(Cancelled::Done),
                        Some(Written::Superseded) => Ok(Cancelled::Ended),
                        None => Err(EngineError::Elsewhere),
                    }
                }
            };
            match answered {
                Err(EngineError::Elsewhere) => sleep(PAUSE).await,
                answered => return answered,
            }
        }
        Err(EngineError::Elsewhere)
    }

    /// Waits for this node's engine for as long as for another's. It answers when it is on disk, and the
    /// database may be away.
    async fn here<T>(
        &self,
        done: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let done = timeout(DOING.min(self.patience), done).await;
        done.unwrap_or(Err(EngineError::Elsewhere))
    }

    /// An endpoint's lane, if it has one at the moment and its owner says so, and how it did lately.
    pub async fn look(
        &self,
        endpoint: EndpointId,
    ) -> Result<(Option<LaneReport>, EndpointFigures), EngineError> {
        let owner = self
            .cluster
            .as_ref()
            .map_or(Owner::Me, |cluster| cluster.owner(Shard::of(endpoint)));
        let nothing = || (None, self.observe.endpoint(endpoint));
        match owner {
            Owner::Me => match self.look_here(endpoint).await {
                Err(EngineError::Elsewhere) => Ok(nothing()),
                seen => seen,
            },
            Owner::Nobody => Ok(nothing()),
            Owner::Other(node) => {
                let question = Question::Look {
                    endpoint: Named(endpoint),
                };
                match self.ask(node, &question, TELLING).await {
                    Some(Reply::Lane { lane, figures }) => Ok((lane, figures.into())),
                    Some(_) | None => Ok(nothing()),
                }
            }
        }
    }

    async fn look_here(
        &self,
        endpoint: EndpointId,
    ) -> Result<(Option<LaneReport>, EndpointFigures), EngineError> {
        let lane = self.engine.lane(endpoint).await?;
        let now = self.clock.now();
        let lane = lane.as_ref().map(|lane| LaneReport::new(lane, now));
        Ok((lane, self.observe.endpoint(endpoint)))
    }

    /// Which of these deliveries are being sent, by whichever node.
    pub async fn aloft(&self, stored: &[StoredDelivery]) -> FxHashSet<DeliveryId> {
        let mut aloft = FxHashSet::default();
        let mut elsewhere: FxHashMap<NodeNo, Vec<Named<DeliveryId>>> = FxHashMap::default();
        for item in stored {
            let facts = item.delivery.facts();
            if item.delivery.status().is_terminal() {
                continue;
            }
            if self.engine.is_in_flight(facts.id) {
                aloft.insert(facts.id);
                continue;
            }
            let cluster = self.cluster.as_ref();
            match cluster.map(|cluster| cluster.owner(Shard::of(facts.endpoint))) {
                Some(Owner::Other(node)) => {
                    elsewhere.entry(node).or_default().push(Named(facts.id));
                }
                Some(Owner::Me | Owner::Nobody) | None => {}
            }
        }
        let mut asked = JoinSet::new();
        for (node, deliveries) in elsewhere {
            asked.spawn(self.asking(node, &Question::Aloft { deliveries }, TELLING));
        }
        while let Some(reply) = asked.join_next().await {
            if let Ok(Some(Reply::Deliveries { deliveries })) = reply {
                aloft.extend(deliveries.into_iter().map(|Named(id)| id));
            }
        }
        aloft
    }

    /// Whether a delivery is being sent, by whichever node.
    pub async fn is_aloft(&self, stored: &StoredDelivery) -> bool {
        let aloft = self.aloft(std::slice::from_ref(stored)).await;
        !aloft.is_empty()
    }

    /// How many attempts a tenant has under way, on all nodes that answer. Nothing if this one does not.
    pub async fn under_way(&self, tenant: &TenantId) -> Option<u64> {
        let here = timeout(TELLING, self.engine.under_way(tenant.clone())).await;
        let mut attempts = here.ok()?.ok()? as u64;
        let question = Question::UnderWay {
            tenant: Named(tenant.clone()),
        };
        for reply in self.ask_everybody(&question).await {
            if let Reply::UnderWay { attempts: more } = reply {
                attempts += more;
            }
        }
        Some(attempts)
    }

    /// Every delivery that is being sent by any node that answers, the newest first.
    pub async fn flights(&self) -> Vec<DeliveryId> {
        let mut flights = self.engine.flights();
        for reply in self.ask_everybody(&Question::Flights).await {
            if let Reply::Deliveries { deliveries } = reply {
                flights.extend(deliveries.into_iter().map(|Named(id)| id));
            }
        }
        flights.sort_unstable_by(|a, b| b.cmp(a));
        flights.dedup();
        flights
    }

    /// Asks every other node, all at once. Whoever does not answer in time is passed over.
    async fn ask_everybody(&self, question: &Question) -> Vec<Reply> {
        let replies = self.ask_each(question).await.into_iter();
        replies.map(|(_, reply)| reply).collect()
    }

    /// The same, with who answered what.
    async fn ask_each(&self, question: &Question) -> Vec<(NodeNo, Reply)> {
        let Some(cluster) = &self.cluster else {
            return Vec::new();
        };
        let me = cluster.me();
        let mut asked = JoinSet::new();
        for node in cluster.nodes().into_iter().filter(|node| *node != me) {
            let asking = self.asking(node, question, TELLING);
            asked.spawn(async move { Some((node, asking.await?)) });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    async fn ask(&self, node: NodeNo, question: &Question, within: Duration) -> Option<Reply> {
        self.asking(node, question, within).await
    }

    /// Asks another node. Nothing if it does not answer.
    fn asking(
        &self,
        node: NodeNo,
        question: &Question,
        within: Duration,
    ) -> impl Future<Output = Option<Reply>> + Send + use<> {
        let question = serde_json::to_value(question).expect("a question is plain data");
        let cluster = self.cluster.clone();
        async move {
            let answer = cluster?.ask(node, question, within).await.ok()?;
            Some(serde_json::from_value(answer).unwrap_or(Reply::NotUnderstood))
        }
    }
}

/// What it means that an owner did not do what it was asked: mostly to look for the owner again.
fn refused(reply: Option<Reply>) -> Result<EngineError, EngineError> {
    match reply {
        Some(Reply::Unable { why }) => Err(EngineError::Store(
            posthaste_store::StoreError::Unavailable(why),
        )),
        // Whoever does not understand is of another version: a newer one may own it soon.
        Some(
            Reply::Stands
            | Reply::Cancelled { .. }
            | Reply::Lane { .. }
            | Reply::Deliveries { .. }
            | Reply::UnderWay { .. }
            | Reply::Pending { .. }
            | Reply::Lately { .. }
            | Reply::Elsewhere
            | Reply::NotUnderstood,
        )
        | None => Ok(EngineError::Elsewhere),
    }
}
