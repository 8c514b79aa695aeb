//! Reads of endpoint configurations, and changes of endpoint statuses.
//!
//! A status change is in force at once, and its callers are answered when it is persisted. A failed write is repeated
//! after a pause until it succeeds or a newer change replaces it.

use posthaste_core::dispatcher::Input;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{EXHAUSTED_WINDOW, EndpointStatus, Health};
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{BucketWidth, DisabledReason, StatCounters, StoreError, SubjectScope};
use tokio::time::sleep;

use super::EngineTask;
use crate::context::STORE_RETRY_PAUSE;
use crate::endpoint_cache::LoadedEndpoint;
use crate::inbox::Message;
use crate::owned_shards::Ownership;
use crate::pending_status_writes::StatusChange;
use crate::reply::EngineError;
use crate::waiting_callers::StatusRequest;

impl EngineTask {
    pub(super) fn tenant_of(&self, endpoint: EndpointId) -> Option<TenantId> {
        Some(self.endpoints.get(endpoint)?.tenant.clone())
    }

    /// Reads an endpoint because the dispatcher asked for its configuration.
    pub(super) fn load(&mut self, endpoint: EndpointId) {
        if self.endpoints.begin_load(endpoint) {
            self.read_endpoint(endpoint);
        }
    }

    /// Reads an endpoint because it was changed, if it is cached or has a lane.
    pub(super) fn reload(&mut self, endpoint: EndpointId) {
        if self.endpoints.contains(endpoint) || self.dispatcher.has_lane(endpoint) {
            self.load(endpoint);
        }
    }

    fn read_endpoint(&self, endpoint: EndpointId) {
        let context = self.context.clone();
        tokio::spawn(async move {
            let loaded = loop {
                match context.loader.load(&*context.store, endpoint).await {
                    Ok(loaded) => break loaded,
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            };
            context.inbox.put(Message::Loaded(Box::new(loaded)));
        });
    }

    pub(super) fn loaded(&mut self, loaded: LoadedEndpoint) {
        let LoadedEndpoint { endpoint, found } = loaded;
        let owned_since = match self.context.owned_shards.of_endpoint(endpoint) {
            Ownership::Owned(since) | Ownership::Releasing(since) => since,
            Ownership::NotOwned => {
                self.endpoints.discard_load(endpoint);
                return;
            }
        };
        let Some((mut snapshot, config)) = found else {
            if self.endpoints.end_load(endpoint, None) {
                self.read_endpoint(endpoint);
                return;
            }
            for request in self.callers.take_status_requests(endpoint) {
                let missing = StoreError::Unavailable(format!("{endpoint} is not in it"));
                let _ = request.reply.send(Err(missing.into()));
            }
            self.dispatch(Input::NoSuchEndpoint(endpoint));
            return;
        };
        let before = self.endpoints.get(endpoint);
        if let Some(before) = before.filter(|before| !before.looks_same_to_receiver(&config)) {
            self.context.forget(&before);
        }
        if self.endpoints.end_load(endpoint, Some(config)) {
            self.read_endpoint(endpoint);
        } else {
            self.pending_status_writes.overlay(&mut snapshot);
            snapshot.owned_since = owned_since;
            // Before the lane receives the snapshot: what the lane decides after that is newer than what was read.
            self.apply_stored_status(endpoint, snapshot.status);
            self.dispatch(Input::EndpointLoaded(snapshot));
        }
    }

    /// Counts the deliveries of an endpoint that ended lately. If the store cannot answer, the dispatcher asks again after
    /// the next dead letter.
    pub(super) fn count_ended(&self, now: Now, endpoint: EndpointId) {
        let scope = SubjectScope::Endpoint(endpoint);
        let since = Timestamp(now.wall.0.saturating_sub(EXHAUSTED_WINDOW.as_millis()));
        let context = self.context.clone();
        tokio::spawn(async move {
            let stored = context.store.stats(scope, BucketWidth::Quarter, since);
            let Ok(stored) = stored.await else {
                return;
            };
            let mut sum = StatCounters::default();
            for (_, counters) in &stored {
                sum.add(counters);
            }
            context.inbox.put(Message::Input(Input::EndedCounted {
                endpoint,
                succeeded: sum.succeeded,
                failed: sum.failed,
            }));
        });
    }

    /// Changes the status of an endpoint, as a caller requests.
    pub(super) fn set_status(&mut self, endpoint: EndpointId, request: StatusRequest) {
        if !self.context.owned_shards.owns(endpoint) {
            let _ = request.reply.send(Err(EngineError::NotOwner));
            return;
        }
        let status = request.status;
        self.callers.wait_for_status(endpoint, request);
        self.dispatch(Input::SetStatus { endpoint, status });
        self.revoke_again(endpoint);
    }

    /// Persists the status of an endpoint, then answers the callers that requested it.
    pub(super) fn persist_status(
        &mut self,
        endpoint: EndpointId,
        status: EndpointStatus,
        health: Option<Health>,
    ) {
        if self.persisted_status.get(&endpoint) == Some(&status) {
            return;
        }
        let requests = self.callers.take_status_requests(endpoint);
        let reason = match status {
            EndpointStatus::Disabled => {
                let same = requests.iter().rev().filter(|it| it.status == status);
                let requested = same.filter_map(|request| request.reason).next();
                Some(requested.unwrap_or(DisabledReason::Manual))
            }
            EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Deleted => None,
        };
        if status == EndpointStatus::Deleted
            && let Some(config) = self.endpoints.get(endpoint)
        {
            self.context.forget(&config);
        }
        let change = StatusChange {
            status,
            reason,
            health,
        };
        let version = self.pending_status_writes.record(endpoint, change);
        self.pending_status_writes
            .persist(&self.context, endpoint, version, requests);
    }

    /// Handles the result of writing an endpoint status.
    pub(super) fn status_written(
        &mut self,
        endpoint: EndpointId,
        version: u64,
        result: Result<(), StoreError>,
    ) {
        let is_persisted =
            self.pending_status_writes
                .written(&self.context, endpoint, version, result);
        if is_persisted {
            // A read that is in progress may have started before this write.
            self.endpoints.mark_load_stale(endpoint);
        }
    }

    /// Applies a status that another node wrote while it believed that it owned the endpoint. If that status forbids
    /// sending, this node stops sending too.
    fn apply_stored_status(&mut self, endpoint: EndpointId, status: EndpointStatus) {
        let is_enabled = self
            .dispatcher
            .endpoint_status(endpoint)
            .is_some_and(|status| status == EndpointStatus::Enabled);
        if self.is_shared
            && is_enabled
            && status != EndpointStatus::Enabled
            && !self.callers.wait_for_status_of(endpoint)
        {
            self.persisted_status.insert(endpoint, status);
            self.dispatch(Input::SetStatus { endpoint, status });
            self.persisted_status.remove(&endpoint);
        }
    }
}
