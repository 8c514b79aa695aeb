//! Endpoint status changes that are not persisted yet.
//!
//! A status change (pause, disable, …) takes effect in the dispatcher at once: waiting deliveries are held or failed,
//! and nothing is sent. [`PendingStatusWrites`] keeps the change until the store has accepted it, and retries as often
//! as needed. Until then, the status read from the store is outdated, and [`PendingStatusWrites::overlay`] corrects it.

use std::sync::Arc;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::EndpointSnapshot;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{Health, Standing};
use posthaste_store::{DisabledReason, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::sleep;

use super::courier::AttemptContext;
use super::handle::EngineError;
use super::inbox::Message;
use super::task::STORE_RETRY_PAUSE;
use super::waiters::StatusRequest;

/// A status change of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct StatusChange {
    pub(super) standing: Standing,
    pub(super) reason: Option<DisabledReason>,
    pub(super) health: Option<Health>,
}

/// The latest unpersisted status change of each endpoint, with a version number.
#[derive(Default)]
pub(super) struct PendingStatusWrites {
    latest: FxHashMap<EndpointId, (u64, StatusChange)>,
    issued: u64,
}

impl PendingStatusWrites {
    /// Records a status change, replacing an earlier one of the same endpoint. Returns its version number.
    pub(super) fn issue(&mut self, endpoint: EndpointId, decree: StatusChange) -> u64 {
        self.issued += 1;
        self.latest.insert(endpoint, (self.issued, decree));
        self.issued
    }

    /// Returns the change with this version, unless it is persisted or a newer change has replaced it.
    fn find(&self, endpoint: EndpointId, number: u64) -> Option<&StatusChange> {
        let (latest, decree) = self.latest.get(&endpoint)?;
        (*latest == number).then_some(decree)
    }

    /// Persists a change and answers the callers that requested it, unless a newer change has replaced it.
    pub(super) fn persist(
        &self,
        depot: &Arc<AttemptContext>,
        endpoint: EndpointId,
        number: u64,
        petitions: Vec<StatusRequest>,
    ) {
        let Some(decree) = self.find(endpoint, number).cloned() else {
            return;
        };
        let StatusChange {
            standing,
            reason,
            health,
        } = decree;
        let now = depot.clock.wall();
        let written = depot
            .store
            .set_standing(now, endpoint, standing, reason, health);
        let (inbox, still_ours) = (depot.inbox.clone(), depot.owned_without_break(endpoint));
        tokio::spawn(async move {
            let result = written.await.map(|_| ());
            inbox.put(Message::Stood {
                endpoint,
                decree: number,
                result: result.clone(),
            });
            // If another node owned the endpoint by the time of the commit, that node does not know of the change.
            let answer = match result {
                _ if !still_ours() => Err(EngineError::NotOwner),
                Ok(()) => Ok(()),
                Err(error) => Err(EngineError::Store(error)),
            };
            for petition in petitions {
                // The caller may have stopped waiting, so a failed send is ignored.
                let _ = petition.reply.send(answer.clone());
            }
        });
    }

    /// Handles the result of a write. Schedules a retry if it failed. Returns true if the change is persisted.
    pub(super) fn stood(
        &mut self,
        depot: &AttemptContext,
        endpoint: EndpointId,
        number: u64,
        result: Result<(), StoreError>,
    ) -> bool {
        match result {
            Ok(()) => {
                if self.find(endpoint, number).is_some() {
                    self.latest.remove(&endpoint);
                }
                true
            }
            Err(StoreError::Closed) => false,
            Err(StoreError::Full | StoreError::Overloaded | StoreError::Unavailable(_)) => {
                let inbox = depot.inbox.clone();
                tokio::spawn(async move {
                    sleep(STORE_RETRY_PAUSE).await;
                    inbox.put(Message::StandAgain {
                        endpoint,
                        decree: number,
                    });
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
    pub(super) fn forget_all(&mut self) {
        self.latest.clear();
    }

    /// Overlays the unpersisted change on a status and health that were read from the store.
    pub(super) fn overlay(&self, introduction: &mut EndpointSnapshot) {
        let Some((_, decree)) = self.latest.get(&introduction.endpoint) else {
            return;
        };
        if introduction.standing != Standing::Deleted {
            introduction.standing = decree.standing;
        }
        if let Some(health) = &decree.health {
            introduction.health.update(health);
        }
    }

    /// Handles an endpoint that is being disabled by the result of an attempt. Nothing can have enabled it since, so a
    /// pending change that would enable or pause it is older, and is dropped.
    pub(super) fn disabled(&mut self, endpoint: EndpointId) {
        let opens = |decree: &StatusChange| match decree.standing {
            Standing::Enabled | Standing::Paused => true,
            Standing::Disabled | Standing::Deleted => false,
        };
        if self
            .latest
            .get(&endpoint)
            .is_some_and(|(_, decree)| opens(decree))
        {
            self.latest.remove(&endpoint);
        }
    }
}
