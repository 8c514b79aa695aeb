//! Ownership of shards: grants, revocations, releases and the end of the lease.
//!
//! Attempts start only for owned shards and only while the lease is valid. [`Release`] tracks revoked shards until
//! nothing of them is in flight; then they are released.

use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::Input;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{Done, StoreError};
use rustc_hash::FxHashSet;
use tokio::time::sleep;

use super::EngineTask;
use crate::context::STORE_RETRY_PAUSE;
use crate::inbox::Message;
use crate::owned_shards::Ownership;
use crate::reply::EngineError;

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
    Running,
    /// A query is running and must be repeated, because shards were granted after it started.
    RunningAndRepeat,
}

impl EngineTask {
    pub(super) fn granted(&mut self, shards: Vec<Shard>) {
        let now = self.context.clock.now();
        for shard in shards {
            self.context
                .owned_shards
                .set(shard, Ownership::Owned(now.tick));
        }
        self.start_backlog_query();
    }

    /// Starts to release shards.
    pub(super) fn revoked(&mut self, shards: Vec<Shard>, done: Done<()>) {
        let mut releasing = FxHashSet::default();
        for shard in shards {
            match self.context.owned_shards.of(shard) {
                Ownership::Owned(since) => {
                    self.context
                        .owned_shards
                        .set(shard, Ownership::Releasing(since));
                    releasing.insert(shard);
                }
                // Nothing of it is in flight on this node.
                Ownership::NotOwned => {}
                Ownership::Releasing(_) => {
                    releasing.insert(shard);
                }
            }
        }
        let is_releasing = |endpoint: &EndpointId| releasing.contains(&Shard::of(*endpoint));
        let endpoints: FxHashSet<EndpointId> =
            self.dispatcher.endpoints().filter(is_releasing).collect();
        let ready_to_release: Vec<EndpointId> = endpoints.iter().copied().collect();
        self.releases.push(Release {
            shards: releasing,
            endpoints,
            done,
        });
        for endpoint in ready_to_release {
            self.dispatch(Input::Revoke(endpoint));
        }
        self.release_drained();
    }

    /// Disowns an endpoint again if its shard is being released, because a caller's request may have created new work
    /// for it.
    pub(super) fn revoke_again(&mut self, endpoint: EndpointId) {
        let shard = Shard::of(endpoint);
        let mut is_releasing = false;
        for release in &mut self.releases {
            if release.shards.contains(&shard) {
                release.endpoints.insert(endpoint);
                is_releasing = true;
            }
        }
        if is_releasing {
            self.dispatch(Input::Revoke(endpoint));
        }
    }

    /// Notes that nothing of an endpoint is in flight any more.
    pub(super) fn ready_to_release(&mut self, endpoint: EndpointId) {
        for release in &mut self.releases {
            release.endpoints.remove(&endpoint);
        }
    }

    /// Releases the revoked shards of which nothing is in flight, and reports it.
    pub(super) fn release_drained(&mut self) {
        let pending = &self.pending_status_writes;
        let is_drained = |release: &mut Release| {
            release.endpoints.is_empty() && !pending.any_in(&release.shards)
        };
        let drained: Vec<Release> = self.releases.extract_if(.., is_drained).collect();
        for Release { shards, done, .. } in drained {
            for shard in &shards {
                self.context.owned_shards.set(*shard, Ownership::NotOwned);
            }
            self.endpoints
                .forget_where(|endpoint| shards.contains(&Shard::of(endpoint)));
            self.held_changed();
            done(Ok(()));
        }
    }

    /// Handles the end of the lease: all shards belong to other nodes now.
    pub(super) fn lease_lost(&mut self, losses: u64) {
        self.lease_losses = losses;
        let shards = self.context.owned_shards.count();
        if shards > 0 {
            tracing::warn!(target: LOG_TARGET,
                shards,
                in_flight = self.in_flight.len(),
                "lease expired: other nodes take over this node's endpoints"
            );
        }
        for shard in Shard::all() {
            self.context.owned_shards.set(shard, Ownership::NotOwned);
        }
        self.dispatch(Input::Lost);
        self.abort_all();
        self.in_flight.clear();
        self.shared.in_flight().clear();
        self.endpoints.forget_where(|_| true);
        self.pending_status_writes.clear();
        self.persisted_status.clear();
        self.callers.answer_all(&EngineError::NotOwner);
        for release in self.releases.drain(..) {
            let lost = StoreError::Unavailable("lease expired".to_owned());
            (release.done)(Err(lost));
        }
    }

    /// Aborts all attempts in flight. Each one is reported as ended by an internal error.
    fn abort_all(&self) {
        for in_flight in self.in_flight.values() {
            in_flight.abort();
        }
    }

    /// Checks the lease: whether attempts may start, and whether those in flight may continue.
    pub(super) fn check_lease(&mut self, now: Now) {
        let may_start = now.tick < self.context.lease.begin_by();
        if may_start == self.is_suspended {
            self.is_suspended = !may_start;
            if self.is_suspended && self.context.owned_shards.count() > 0 {
                tracing::warn!(target: LOG_TARGET, "cannot renew the lease: nothing is sent until it is renewed");
            }
            self.dispatch(match self.is_suspended {
                true => Input::Suspend,
                false => Input::Resume,
            });
        }
        if now.tick >= self.context.lease.end_by() && !self.in_flight.is_empty() {
            self.abort_all();
        }
    }

    /// Returns the longest time until the lease must be checked again.
    pub(super) fn until_lease_check(&self, now: Now) -> Duration {
        if !self.is_shared {
            return Duration::MAX;
        }
        if self.is_suspended {
            return LEASE_CHECK_INTERVAL;
        }
        let remaining = self.context.lease.begin_by().since(now.tick);
        Duration::from_millis(remaining.as_millis())
    }

    /// Queries the store for unfinished work, because shards were granted.
    fn start_backlog_query(&mut self) {
        self.backlog_query = match self.backlog_query {
            BacklogQuery::Idle => {
                self.query_backlog();
                BacklogQuery::Running
            }
            BacklogQuery::Running | BacklogQuery::RunningAndRepeat => {
                BacklogQuery::RunningAndRepeat
            }
        };
    }

    /// Schedules the next periodic query for unfinished work.
    pub(super) fn schedule_backlog_query(&self) {
        let inbox = self.shared.inbox.clone();
        tokio::spawn(async move {
            sleep(BACKLOG_POLL_INTERVAL).await;
            inbox.put(Message::PollBacklog);
        });
    }

    pub(super) fn poll_backlog(&mut self) {
        if self.backlog_query == BacklogQuery::Idle && self.context.owned_shards.count() > 0 {
            self.start_backlog_query();
        }
        self.schedule_backlog_query();
    }

    fn query_backlog(&self) {
        let context = self.context.clone();
        tokio::spawn(async move {
            let found = loop {
                match context.store.unfinished_work().await {
                    Ok(found) => break found,
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            };
            context.inbox.put(Message::BacklogFound(found));
        });
    }

    /// Handles the result of the query for unfinished work.
    pub(super) fn backlog_found(&mut self, found: Vec<(EndpointId, Timestamp)>) {
        let repeat = std::mem::take(&mut self.backlog_query) == BacklogQuery::RunningAndRepeat;
        self.start_work(found);
        if repeat {
            self.start_backlog_query();
        }
    }

    /// Passes stored work to the dispatcher. Work of other nodes' endpoints is ignored.
    pub(super) fn start_work(&mut self, work: Vec<(EndpointId, Timestamp)>) {
        for (endpoint, due) in work {
            if self.context.owned_shards.may_start(endpoint) {
                self.dispatch(Input::Work { endpoint, due });
            }
        }
    }
}
