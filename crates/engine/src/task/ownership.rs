//! Ownership of shards: grants, revocations, releases and the end of the lease.
//!
//! Attempts start only for owned shards and only while the lease is valid. [`Release`] tracks revoked shards until
//! nothing of them is in flight; then they are released.

use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::Input;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{Done, StoreError};
use rustc_hash::FxHashSet;
use tokio::time::sleep;

use super::handle::EngineError;
use super::inbox::Message;
use super::owned_shards::Ownership;
use super::task::{STORE_RETRY_PAUSE, Shell};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::ownership";

/// Interval at which the store is queried for unfinished work, in case a notification from another node was lost.
const BACKLOG_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the lease is checked while no attempt may start, because its renewal causes no message.
pub(super) const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Revoked shards that are not released yet.
pub(super) struct Release {
    shards: FxHashSet<Shard>,
    /// Endpoints of these shards that may have attempts in flight.
    endpoints: FxHashSet<EndpointId>,
    done: Done<()>,
}

/// State of the query for unfinished work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BacklogQuery {
    /// No query is running.
    #[default]
    Idle,
    /// A query is running.
    UnderWay,
    /// A query is running and must be repeated, because shards were granted after it started.
    Again,
}

impl Shell {
    pub(super) fn granted(&mut self, shards: Vec<Shard>) {
        let now = self.depot.clock.now();
        for shard in shards {
            self.depot.holdings.set(shard, Ownership::Owned(now.tick));
        }
        self.search();
    }

    /// Starts to release shards.
    pub(super) fn recalled(&mut self, shards: Vec<Shard>, done: Done<()>) {
        let mut leaving = FxHashSet::default();
        for shard in shards {
            match self.depot.holdings.of(shard) {
                Ownership::Owned(since) => {
                    self.depot.holdings.set(shard, Ownership::Releasing(since));
                    leaving.insert(shard);
                }
                // Nothing of it is in flight on this node.
                Ownership::NotOwned => {}
                Ownership::Releasing(_) => {
                    leaving.insert(shard);
                }
            }
        }
        let theirs = |endpoint: &EndpointId| leaving.contains(&Shard::of(*endpoint));
        let endpoints: FxHashSet<EndpointId> = self.dispatcher.endpoints().filter(theirs).collect();
        let disowned: Vec<EndpointId> = endpoints.iter().copied().collect();
        self.recalls.push(Release {
            shards: leaving,
            endpoints,
            done,
        });
        for endpoint in disowned {
            self.dispatch(Input::Disown(endpoint));
        }
        self.release_drained();
    }

    /// Disowns an endpoint again if its shard is being released, because a caller's request may have created new work
    /// for it.
    pub(super) fn disown_again(&mut self, endpoint: EndpointId) {
        let shard = Shard::of(endpoint);
        let mut leaves = false;
        for recall in &mut self.recalls {
            if recall.shards.contains(&shard) {
                recall.endpoints.insert(endpoint);
                leaves = true;
            }
        }
        if leaves {
            self.dispatch(Input::Disown(endpoint));
        }
    }

    /// Notes that nothing of an endpoint is in flight any more.
    pub(super) fn disowned(&mut self, endpoint: EndpointId) {
        for recall in &mut self.recalls {
            recall.endpoints.remove(&endpoint);
        }
    }

    /// Releases the revoked shards of which nothing is in flight, and reports it.
    pub(super) fn release_drained(&mut self) {
        let decrees = &self.decrees;
        let over =
            |recall: &mut Release| recall.endpoints.is_empty() && !decrees.any_in(&recall.shards);
        let ended: Vec<Release> = self.recalls.extract_if(.., over).collect();
        for Release { shards, done, .. } in ended {
            for shard in &shards {
                self.depot.holdings.set(*shard, Ownership::NotOwned);
            }
            self.cards
                .forget_where(|endpoint| shards.contains(&Shard::of(endpoint)));
            done(Ok(()));
        }
    }

    /// Handles the end of the lease: all shards belong to other nodes now.
    pub(super) fn expired(&mut self, losses: u64) {
        self.losses = losses;
        let shards = self.depot.holdings.count();
        if shards > 0 {
            tracing::warn!(target: LOG_TARGET,
                shards,
                in_flight = self.flights.len(),
                "the lease has ended: others send what was this node's"
            );
        }
        for shard in Shard::all() {
            self.depot.holdings.set(shard, Ownership::NotOwned);
        }
        self.dispatch(Input::Lost);
        self.cut_off();
        self.flights.clear();
        self.shared.in_flight().clear();
        self.cards.forget_where(|_| true);
        self.decrees.forget_all();
        self.heeded.clear();
        self.waiting.answer_all(&EngineError::NotOwner);
        for recall in self.recalls.drain(..) {
            let lost = StoreError::Unavailable("the lease has ended".to_owned());
            (recall.done)(Err(lost));
        }
    }

    /// Aborts all attempts in flight. Each one is reported as ended by an internal error.
    fn cut_off(&self) {
        for flight in self.flights.values() {
            flight.cut_off();
        }
    }

    /// Checks the lease: whether attempts may start, and whether those in flight may continue.
    pub(super) fn check_lease(&mut self, now: Now) {
        let may_begin = now.tick < self.depot.lease.begin_by();
        if may_begin == self.suspended {
            self.suspended = !may_begin;
            if self.suspended && self.depot.holdings.count() > 0 {
                tracing::warn!(target: LOG_TARGET, "the lease could not be renewed: nothing is sent until it is");
            }
            self.dispatch(match self.suspended {
                true => Input::Suspend,
                false => Input::Resume,
            });
        }
        if now.tick >= self.depot.lease.end_by() && !self.flights.is_empty() {
            self.cut_off();
        }
    }

    /// Returns the longest time until the lease must be checked again.
    pub(super) fn until_lease(&self, now: Now) -> Duration {
        if !self.is_shared {
            return Duration::MAX;
        }
        if self.suspended {
            return LEASE_CHECK_INTERVAL;
        }
        let left = self.depot.lease.begin_by().since(now.tick);
        Duration::from_millis(left.as_millis())
    }

    /// Queries the store for unfinished work, because shards were granted.
    fn search(&mut self) {
        self.search = match self.search {
            BacklogQuery::Idle => {
                self.query_backlog(Duration::ZERO);
                BacklogQuery::UnderWay
            }
            BacklogQuery::UnderWay | BacklogQuery::Again => BacklogQuery::Again,
        };
    }

    /// Schedules the next periodic query for unfinished work.
    pub(super) fn schedule_backlog_query(&self) {
        let inbox = self.shared.inbox.clone();
        tokio::spawn(async move {
            sleep(BACKLOG_POLL_INTERVAL).await;
            inbox.put(Message::Poll);
        });
    }

    pub(super) fn polled(&mut self) {
        if self.search == BacklogQuery::Idle && self.depot.holdings.count() > 0 {
            self.search();
        }
        self.schedule_backlog_query();
    }

    fn query_backlog(&self, pause: Duration) {
        let depot = self.depot.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            let found = loop {
                match depot.store.unfinished_work().await {
                    Ok(found) => break found,
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            };
            depot.inbox.put(Message::Found(found));
        });
    }

    /// Handles the result of the query for unfinished work.
    pub(super) fn found(&mut self, found: Vec<(EndpointId, Timestamp)>) {
        let again = std::mem::take(&mut self.search) == BacklogQuery::Again;
        self.work(found);
        if again {
            self.search();
        }
    }

    /// Passes stored work to the dispatcher. Work of other nodes' endpoints is ignored.
    pub(super) fn work(&mut self, work: Vec<(EndpointId, Timestamp)>) {
        for (endpoint, due) in work {
            if self.depot.holdings.may_start(endpoint) {
                self.dispatch(Input::Work { endpoint, due });
            }
        }
    }

    /// Applies a status that another node wrote while it believed that it owned the endpoint. If that status forbids
    /// sending, this node stops sending too.
    pub(super) fn apply_stored_status(&mut self, endpoint: EndpointId, standing: Standing) {
        let open = self
            .dispatcher
            .lane(endpoint)
            .is_some_and(|lane| lane.standing == Standing::Enabled);
        if self.is_shared && open && standing != Standing::Enabled && !self.waiting.has(endpoint) {
            self.heeded.insert(endpoint, standing);
            self.dispatch(Input::Stand { endpoint, standing });
            self.heeded.remove(&endpoint);
        }
    }
}
