//! How the rest of the program speaks to the engine.

use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::{BreakerCensus, Crowd, LaneView};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{DisabledReason, Done, HandOver, StoreError};
use rustc_hash::FxHashSet;
use tokio::sync::{Notify, oneshot, watch};

use super::holdings::Losses;
use super::inbox::{Inbox, Message, Reply};

/// The engine, as the rest of the program sees it. Clones speak to the same one.
#[derive(Clone)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
}

/// What the handle and the shell share.
pub(super) struct Shared {
    pub(super) inbox: Arc<Inbox>,
    pub(super) losses: Losses,
    in_flight: Mutex<FxHashSet<DeliveryId>>,
    /// Rings when a tenant begins to wait for what others may have.
    pub(super) room_bell: Notify,
    pub(super) phase: watch::Sender<Phase>,
}

/// How far the engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has not begun: what is on disk has not been looked at.
    Starting,
    /// It sends.
    Running,
    /// It has ended: it begins nothing more, and hears nothing more.
    Stopped,
}

/// Why the engine did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It is shutting down.
    #[error("the server is shutting down")]
    Stopped,
    /// Another node owns it, or nobody does: that one is to be asked.
    #[error("another node owns it")]
    Elsewhere,
    /// What was asked for could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of calling a delivery off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be sent.
    Done,
    /// It is being sent.
    TooLate,
    /// It had ended already.
    Ended,
}

impl Engine {
    /// An engine that has not been started. What the store hands over waits in it.
    pub fn new() -> Engine {
        Engine {
            shared: Arc::new(Shared {
                inbox: Arc::new(Inbox::default()),
                losses: Losses::default(),
                in_flight: Mutex::default(),
                room_bell: Notify::new(),
                phase: watch::Sender::new(Phase::Starting),
            }),
        }
    }

    /// Where the store is to put what it has accepted.
    pub fn hand_over(&self) -> Arc<dyn HandOver> {
        self.shared.inbox.clone()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        *self.shared.phase.borrow()
    }

    /// Enables, pauses, disables or deletes an endpoint. Answers when that is in force and on disk: no
    /// attempt to an endpoint that was shut begins after the answer.
    pub async fn stand(
        &self,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
    ) -> Result<(), EngineError> {
        let asking = |reply| Message::Stand {
            endpoint,
            standing,
            reason,
            reply,
        };
        self.ask(asking).await
    }

    /// Calls a delivery off. Answers when that is on disk, or cannot be done.
    pub async fn cancel(
        &self,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Result<Cancelled, EngineError> {
        let asking = |reply| Message::Cancel {
            endpoint,
            delivery,
            reply,
        };
        self.ask(asking).await
    }

    /// Something due at `due` was put on disk for an endpoint by other means than accepting it.
    pub fn work(&self, endpoint: EndpointId, due: Timestamp) {
        self.heard_of_work(vec![(endpoint, due)]);
    }

    /// Another node put something on disk for endpoints of this one.
    pub fn heard_of_work(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.shared.inbox.put(Message::Work(work));
    }

    /// Shards are this node's from now on.
    pub fn granted(&self, shards: Vec<Shard>) {
        self.shared.inbox.put(Message::Granted(shards));
    }

    /// Shards are to be given up: nothing more begins for them, and `done` is called when nothing of them
    /// is under way. Once the engine has ended that is so at once.
    pub fn recalled(&self, shards: Vec<Shard>, done: Done<()>) {
        if self.phase() == Phase::Stopped {
            done(Ok(()));
            return;
        }
        self.shared.inbox.put(Message::Recalled { shards, done });
    }

    /// The lease has ended: nothing is this node's any more.
    pub fn expired(&self) {
        let losses = self.shared.losses.add();
        self.shared.inbox.put(Message::Expired { losses });
    }

    /// Whatever was read of endpoints may be out of date.
    pub fn missed(&self) {
        self.shared.inbox.put(Message::Missed);
    }

    /// How an endpoint is configured was changed on disk.
    pub fn changed(&self, endpoint: EndpointId) {
        self.shared.inbox.put(Message::Changed(endpoint));
    }

    /// What a tenant's endpoints inherit from it was changed on disk.
    pub fn tenant_changed(&self, tenant: TenantId) {
        self.shared.inbox.put(Message::TenantChanged(tenant));
    }

    /// A look at an endpoint's lane, if it has one at the moment.
    pub async fn lane(&self, endpoint: EndpointId) -> Result<Option<LaneView>, EngineError> {
        self.ask(|reply| Message::Look { endpoint, reply }).await
    }

    /// How the breakers are.
    pub async fn breakers(&self) -> Result<BreakerCensus, EngineError> {
        self.ask(|reply| Message::Census { reply }).await
    }

    /// How many attempts a tenant has under way on this node.
    pub async fn under_way(&self, tenant: TenantId) -> Result<usize, EngineError> {
        self.ask(|reply| Message::UnderWay { tenant, reply }).await
    }

    /// What limited tenants have under way, and how often everything was lost before.
    pub(super) async fn crowds(&self) -> Result<(u64, Vec<Crowd>), EngineError> {
        self.ask(|reply| Message::Crowds { reply }).await
    }

    /// So many of these tenants' may be under way, unless everything was lost since.
    pub(super) fn make_room(&self, losses: u64, rooms: Vec<(TenantId, u32)>) {
        self.shared.inbox.put(Message::Room { losses, rooms });
    }

    /// Whether a delivery is being sent, or its result is being written down.
    pub fn is_in_flight(&self, delivery: DeliveryId) -> bool {
        self.in_flight().contains(&delivery)
    }

    /// How many are being sent.
    pub fn flight_count(&self) -> usize {
        self.in_flight().len()
    }

    /// Every delivery that is being sent, the newest first.
    pub fn flights(&self) -> Vec<DeliveryId> {
        let mut flights: Vec<DeliveryId> = self.in_flight().iter().copied().collect();
        flights.sort_unstable_by(|a, b| b.cmp(a));
        flights
    }

    /// Begins nothing new from now on. Whoever asks for something is still answered.
    pub fn calm_down(&self) {
        self.shared.inbox.put(Message::CalmDown);
    }

    /// Waits until the store can no longer say whether it keeps its promises.
    pub async fn store_broken(&self) -> StoreError {
        self.shared.inbox.store_broken().await
    }

    /// Waits until it has looked at what is on disk, or has stopped.
    pub async fn started(&self) {
        let mut phase = self.shared.phase.subscribe();
        // The sender is in `shared`, so it cannot be gone.
        let _ = phase.wait_for(|phase| *phase != Phase::Starting).await;
    }

    /// Begins nothing new, and waits until what was begun is back and written down.
    pub async fn shut_down(&self) {
        self.shared.inbox.put(Message::Shutdown);
        let mut phase = self.shared.phase.subscribe();
        // The sender is in `shared`, so it cannot be gone.
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
    }

    async fn ask<T>(&self, asking: impl FnOnce(Reply<T>) -> Message) -> Result<T, EngineError> {
        if self.phase() == Phase::Stopped {
            return Err(EngineError::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.put(asking(reply));
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

/// Marks the end of the engine, however it ends: nobody waits for an answer any more.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Stopped);
        self.0.inbox.close();
    }
}

impl Shared {
    pub(super) fn in_flight(&self) -> MutexGuard<'_, FxHashSet<DeliveryId>> {
        self.in_flight
            .lock()
            .expect("nobody panics while holding it")
    }
}
