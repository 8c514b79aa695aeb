//! Endpoint status changes that are not persisted yet.
//!
//! A status change (pause, disable, …) takes effect in the dispatcher at once: waiting deliveries are held or failed,
//! and nothing is sent. [`PendingStatusWrites`] keeps the change until the store has accepted it, and retries as often
//! as needed. Until then, the status read from the store is outdated, and [`PendingStatusWrites::overlay`] corrects it.

use std::sync::Arc;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::EndpointSnapshot;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_store::{DisabledReason, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::sleep;

use super::context::{AttemptContext, STORE_RETRY_PAUSE};
use super::inbox::Message;
use super::reply::EngineError;
use super::waiting_callers::StatusRequest;

/// A status change of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct StatusChange {
    pub(super) status: EndpointStatus,
    pub(super) reason: Option<DisabledReason>,
    pub(super) health: Option<Health>,
}

/// The latest unpersisted status change of each endpoint, with its version.
#[derive(Default)]
pub(super) struct PendingStatusWrites {
    latest: FxHashMap<EndpointId, (u64, StatusChange)>,
    last_version: u64,
}

impl PendingStatusWrites {
    /// Records a status change, replacing an earlier one of the same endpoint. Returns its version.
    pub(super) fn record(&mut self, endpoint: EndpointId, change: StatusChange) -> u64 {
        self.last_version += 1;
        self.latest.insert(endpoint, (self.last_version, change));
        self.last_version
    }

    /// Returns the change with this version, unless it is persisted or a newer change has replaced it.
    fn find(&self, endpoint: EndpointId, version: u64) -> Option<&StatusChange> {
        let (latest, change) = self.latest.get(&endpoint)?;
        (*latest == version).then_some(change)
    }

    /// Persists a change and answers the callers that requested it, unless a newer change has replaced it.
    pub(super) fn persist(
        &self,
        context: &Arc<AttemptContext>,
        endpoint: EndpointId,
        version: u64,
        requests: Vec<StatusRequest>,
    ) {
        let Some(change) = self.find(endpoint, version).cloned() else {
            return;
        };
        let StatusChange {
            status,
            reason,
            health,
        } = change;
        let now = context.clock.wall();
        let writing = context
            .store
            .set_endpoint_status(now, endpoint, status, reason, health);
        let (inbox, still_owned) = (context.inbox.clone(), context.owned_without_break(endpoint));
        tokio::spawn(async move {
            let result = writing.await.map(|_| ());
            inbox.put(Message::StatusWritten {
                endpoint,
                version,
                result: result.clone(),
            });
            // If another node owned the endpoint by the time of the commit, that node does not know of the change.
            let answer = match result {
                _ if !still_owned() => Err(EngineError::NotOwner),
                Ok(()) => Ok(()),
                Err(error) => Err(EngineError::not_persisted_yet(error)),
            };
            for request in requests {
                // The caller may have stopped waiting, so a failed send is ignored.
                let _ = request.reply.send(answer.clone());
            }
        });
    }

    /// Handles the result of a write. Schedules a retry if it failed. Returns true if the change is persisted.
    pub(super) fn written(
        &mut self,
        context: &AttemptContext,
        endpoint: EndpointId,
        version: u64,
        result: Result<(), StoreError>,
    ) -> bool {
        match result {
            Ok(()) => {
                if self.find(endpoint, version).is_some() {
                    self.latest.remove(&endpoint);
                }
                true
            }
            Err(StoreError::Closed | StoreError::DatabaseTooNew(_)) => false,
            Err(
                StoreError::Full
                | StoreError::Overloaded
                | StoreError::Unavailable(_)
                | StoreError::Unreadable(_),
            ) => {
                let inbox = context.inbox.clone();
                tokio::spawn(async move {
                    sleep(STORE_RETRY_PAUSE).await;
                    inbox.put(Message::RetryStatusWrite { endpoint, version });
                });
                false
            }
        }
    }

    /// Returns true if an endpoint of these shards has an unpersisted change.
    pub(super) fn any_in(&self, shards: &FxHashSet<Shard>) -> bool {
        let mut endpoints = self.latest.keys();
        endpoints.any(|endpoint| shards.contains(&Shard::of(*endpoint)))
    }

    /// Drops all changes, because this node no longer owns any endpoint.
    pub(super) fn clear(&mut self) {
        self.latest.clear();
    }

    /// Overlays the unpersisted change on a status and health that were read from the store.
    pub(super) fn overlay(&self, snapshot: &mut EndpointSnapshot) {
        let Some((_, change)) = self.latest.get(&snapshot.endpoint) else {
            return;
        };
        if snapshot.status != EndpointStatus::Deleted {
            snapshot.status = change.status;
        }
        if let Some(health) = &change.health {
            snapshot.health.update(health);
        }
    }

    /// Handles an endpoint that is being disabled by the result of an attempt. Nothing can have enabled it since, so a
    /// pending change that would enable or pause it is older, and is dropped.
    pub(super) fn disabled(&mut self, endpoint: EndpointId) {
        let is_older = |change: &StatusChange| match change.status {
            EndpointStatus::Enabled | EndpointStatus::Paused => true,
            EndpointStatus::Disabled | EndpointStatus::Deleted => false,
        };
        if self
            .latest
            .get(&endpoint)
            .is_some_and(|(_, change)| is_older(change))
        {
            self.latest.remove(&endpoint);
        }
    }
}
