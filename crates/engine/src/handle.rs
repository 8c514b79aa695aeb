//! The handle through which the rest of the program uses the engine.
//!
//! [`Engine`] puts messages into the engine's inbox and waits for the replies. Its methods return
//! [`EngineError::Stopped`] when the engine has ended.

use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::{BreakerCounts, LaneView, LimitedEndpoint, TenantDemand};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{EndpointStatus, HeldBackBy};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{DisabledReason, Done, HandOver, StoreError};
use rustc_hash::FxHashSet;
use tokio::sync::{Notify, oneshot, watch};

use super::inbox::{Inbox, Message};
use super::owned_shards::LeaseLosses;
use super::quarantined_deliveries::QuarantinedDeliveries;
use super::reply::{CancelResult, EngineError, Reply};
use super::waiting_callers::StatusRequest;

/// Handle of the engine. Clones refer to the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
}

/// State that the handle and the engine task share.
pub(super) struct Shared {
    pub(super) inbox: Arc<Inbox>,
    pub(super) lease_losses: LeaseLosses,
    in_flight: Mutex<FxHashSet<DeliveryId>>,
    held: Mutex<QuarantinedDeliveries>,
    /// Wakes the sharing task when a tenant starts to wait for a concurrency share that other nodes hold.
    pub(super) share_wanted: Notify,
    pub(super) phase: watch::Sender<EnginePhase>,
}

/// Lifecycle phase of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnginePhase {
    /// Not started: the stored backlog has not been read yet.
    Starting,
    /// Sending.
    Running,
    /// Ended: no attempt starts and no message is processed any more.
    Stopped,
}

impl Engine {
    /// Creates an engine that is not started. Deliveries that the store hands over wait in its inbox.
    pub fn new() -> Engine {
        Engine {
            shared: Arc::new(Shared {
                inbox: Arc::new(Inbox::default()),
                lease_losses: LeaseLosses::default(),
                in_flight: Mutex::default(),
                held: Mutex::default(),
                share_wanted: Notify::new(),
                phase: watch::Sender::new(EnginePhase::Starting),
            }),
        }
    }

    /// Returns the receiver of the store's hand-over.
    pub fn hand_over(&self) -> Arc<dyn HandOver> {
        self.shared.inbox.clone()
    }

    /// Returns the current lifecycle phase.
    pub fn phase(&self) -> EnginePhase {
        *self.shared.phase.borrow()
    }

    /// Enables, pauses, disables or deletes an endpoint. Returns when the change is in force and persisted: no attempt
    /// to an endpoint that is no longer enabled starts after the return.
    pub async fn set_status(
        &self,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
    ) -> Result<(), EngineError> {
        let message = |reply| Message::SetStatus {
            endpoint,
            request: StatusRequest {
                status,
                reason,
                reply,
            },
        };
        self.ask(message).await
    }

    /// Cancels a delivery. Returns when the cancellation is persisted or known to be impossible.
    pub async fn cancel(
        &self,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Result<CancelResult, EngineError> {
        let message = |reply| Message::Cancel {
            endpoint,
            delivery,
            reply,
        };
        self.ask(message).await
    }

    /// Reports a delivery, due at `due`, that was stored for an endpoint other than by accepting an event.
    pub fn work(&self, endpoint: EndpointId, due: Timestamp) {
        self.work_stored_elsewhere(vec![(endpoint, due)]);
    }

    /// Reports deliveries that another node stored for endpoints of this node.
    pub fn work_stored_elsewhere(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.shared.inbox.put(Message::Work(work));
    }

    /// Reports shards that were granted to this node.
    pub fn granted(&self, shards: Vec<Shard>) {
        self.shared.inbox.put(Message::Granted(shards));
    }

    /// Reports shards that were revoked from this node. No attempt starts for them any more. `done` is called when
    /// nothing of them is in flight, or at once if the engine has ended.
    pub fn revoked(&self, shards: Vec<Shard>, done: Done<()>) {
        if self.phase() == EnginePhase::Stopped {
            done(Ok(()));
            return;
        }
        self.shared.inbox.put(Message::Revoked { shards, done });
    }

    /// Reports that the lease has ended: this node owns no shard any more.
    pub fn expired(&self) {
        let losses = self.shared.lease_losses.add();
        self.shared.inbox.put(Message::LeaseLost { losses });
    }

    /// Reports that change notifications may have been lost, so that every cached endpoint may be outdated.
    pub fn missed(&self) {
        self.shared.inbox.put(Message::ChangesMissed);
    }

    /// Reports that the stored configuration of an endpoint has changed.
    pub fn changed(&self, endpoint: EndpointId) {
        self.shared.inbox.put(Message::EndpointChanged(endpoint));
    }

    /// Reports that stored settings of a tenant have changed that its endpoints inherit.
    pub fn tenant_changed(&self, tenant: TenantId) {
        self.shared.inbox.put(Message::TenantChanged(tenant));
    }

    /// Returns a snapshot of an endpoint's lane, if the endpoint has a lane at the moment.
    pub async fn lane(&self, endpoint: EndpointId) -> Result<Option<LaneView>, EngineError> {
        self.ask(|reply| Message::ViewLane { endpoint, reply })
            .await
    }

    /// Returns snapshots of these endpoints' lanes. Endpoints that have no lane on this node are left out.
    pub async fn lanes(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, LaneView)>, EngineError> {
        self.ask(|reply| Message::ViewLanes { endpoints, reply })
            .await
    }

    /// Returns the number of endpoints with due work that are held back, by reason.
    pub async fn held_back_counts(&self) -> Result<Vec<(HeldBackBy, usize)>, EngineError> {
        self.ask(|reply| Message::CountHeldBack { reply }).await
    }

    /// Returns the endpoints that limits have held back for at least `at_least`, longest first, at most
    /// `max_endpoints`.
    pub async fn limited(
        &self,
        at_least: Span,
        max_endpoints: usize,
    ) -> Result<Vec<LimitedEndpoint>, EngineError> {
        self.ask(|reply| Message::ViewLimited {
            at_least,
            max_endpoints,
            reply,
        })
        .await
    }

    /// Returns the number of breakers in each state.
    pub async fn breakers(&self) -> Result<BreakerCounts, EngineError> {
        self.ask(|reply| Message::CountBreakers { reply }).await
    }

    /// Returns the number of attempts that a tenant has in flight on this node.
    pub async fn tenant_in_flight(&self, tenant: TenantId) -> Result<usize, EngineError> {
        self.ask(|reply| Message::TenantInFlight { tenant, reply })
            .await
    }

    /// Returns the in-flight counts of tenants with a concurrency limit, and the number of lease losses so far.
    pub(super) async fn tenant_demand(&self) -> Result<(u64, Vec<TenantDemand>), EngineError> {
        self.ask(|reply| Message::TenantDemand { reply }).await
    }

    /// Sets the concurrency shares of these tenants. Ignored if the lease was lost after `losses` was read.
    pub(super) fn set_concurrency_shares(&self, losses: u64, shares: Vec<(TenantId, u32)>) {
        self.shared
            .inbox
            .put(Message::ConcurrencyShares { losses, shares });
    }

    /// Returns true if an attempt of the delivery is in flight: being sent, or its result being recorded.
    pub fn is_in_flight(&self, delivery: DeliveryId) -> bool {
        self.in_flight().contains(&delivery)
    }

    /// Returns the number of deliveries in flight.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight().len()
    }

    /// Returns every delivery in flight, newest first.
    pub fn deliveries_in_flight(&self) -> Vec<DeliveryId> {
        let mut deliveries: Vec<DeliveryId> = self.in_flight().iter().copied().collect();
        deliveries.sort_unstable_by(|a, b| b.cmp(a));
        deliveries
    }

    /// Returns true if this node holds the delivery after repeated internal faults.
    pub fn is_quarantined(&self, delivery: DeliveryId) -> bool {
        self.shared.quarantine().contains(delivery)
    }

    /// Returns the deliveries that this node holds after repeated internal faults.
    pub fn quarantined(&self) -> Vec<DeliveryId> {
        self.shared.quarantine().list()
    }

    /// Returns the number of deliveries that this node holds after repeated internal faults, or cannot read.
    pub fn quarantined_count(&self) -> usize {
        self.shared.quarantine().count()
    }

    /// Starts no attempt from now on. Requests are still answered.
    pub fn stop_starting(&self) {
        self.shared.inbox.put(Message::StopStarting);
    }

    /// Waits until the store has failed so that it can no longer guarantee what it accepted.
    pub async fn store_broken(&self) -> StoreError {
        self.shared.inbox.store_broken().await
    }

    /// Waits until the engine has read the stored backlog, or has stopped.
    pub async fn started(&self) {
        let mut phase = self.shared.phase.subscribe();
        // `shared` owns the sender, so the wait cannot fail.
        let _ = phase
            .wait_for(|phase| *phase != EnginePhase::Starting)
            .await;
    }

    /// Starts no attempt from now on, and waits until all attempts in flight are recorded.
    pub async fn shut_down(&self) {
        self.shared.inbox.put(Message::Shutdown);
        let mut phase = self.shared.phase.subscribe();
        // `shared` owns the sender, so the wait cannot fail.
        let _ = phase.wait_for(|phase| *phase == EnginePhase::Stopped).await;
    }

    async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> Message) -> Result<T, EngineError> {
        if self.phase() == EnginePhase::Stopped {
            return Err(EngineError::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.put(message(reply));
        answer.await.unwrap_or(Err(EngineError::Stopped))
    }

    fn in_flight(&self) -> MutexGuard<'_, FxHashSet<DeliveryId>> {
        self.shared.in_flight()
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new()
    }
}

/// Drop guard that marks the end of the engine, however it ends, so that no caller waits for a reply any more.
pub(super) struct StopGuard(pub(super) Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.phase.send_replace(EnginePhase::Stopped);
        self.0.inbox.close();
    }
}

impl Shared {
    pub(super) fn in_flight(&self) -> MutexGuard<'_, FxHashSet<DeliveryId>> {
        self.in_flight
            .lock()
            .expect("no thread panics while it holds the lock")
    }

    pub(super) fn quarantine(&self) -> MutexGuard<'_, QuarantinedDeliveries> {
        self.held
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}
