//! Runs replays in the background.
//!
//! [`Replayer`] guarantees:
//!
//! - Every running replay continues, also one that an earlier process started.
//! - Replays take turns, so that a long one does not delay a short one.
//! - It enqueues a small number of deliveries at a time and pauses in between. The deliveries wait in the lanes of
//!   their endpoints like all others, and are rate-limited there.
//! - With several nodes on one store, the owner of the shard of the replay's id runs the replay.
//! - While the store cannot write, it waits, longer each time up to a limit, and loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{EndpointId, ReplayId};
use posthaste_core::time::Timestamp;
use posthaste_store::{Store, StoreError};
use posthaste_system::backoff::Backoff;
use posthaste_system::clock::Clock;
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::owner_router::OwnerRouter;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::replayer";

/// Number of deliveries per step.
pub const REPLAY_STEP: usize = 256;
/// Pause between two steps. Limits replays to 12,800 deliveries per second.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Pauses after errors of the store.
const STORE_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(10),
};
/// Interval at which running replays are looked for without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which running replays are looked for in a cluster, where a replay of another node may fall to this one
/// at any time.
const CLUSTER_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Function that is called when a delivery to an endpoint is due now.
pub type OnDeliveryDue = Box<dyn Fn(EndpointId, Timestamp) + Send + Sync>;

/// Runs replays.
pub struct Replayer {
    store: Arc<dyn Store>,
    clock: Clock,
    wake_up: Arc<Notify>,
    work: OnDeliveryDue,
    owner_router: Option<Arc<OwnerRouter>>,
    /// Number of consecutive errors of the store.
    failures: u32,
}

impl Replayer {
    /// Creates a replayer that looks for new replays when `wake_up` is notified, and calls `work` for every endpoint for
    /// which it has enqueued deliveries.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        wake_up: Arc<Notify>,
        work: OnDeliveryDue,
    ) -> Replayer {
        Replayer {
            store,
            clock,
            wake_up,
            work,
            owner_router: None,
            failures: 0,
        }
    }

    /// Restricts the replayer to the replays of this node in a cluster.
    pub fn shared_with(self, owner_router: Arc<OwnerRouter>) -> Replayer {
        Replayer {
            owner_router: Some(owner_router),
            ..self
        }
    }

    /// Returns true if this node runs the replay.
    fn is_mine(&self, replay: &ReplayId) -> bool {
        let shard = Shard::of(EndpointId(replay.0));
        let router = self.owner_router.as_ref();
        router.is_none_or(|router| router.is_mine(shard))
    }

    /// Returns the interval at which running replays are looked for without a wake-up.
    fn poll_interval(&self) -> Duration {
        let router = self.owner_router.as_ref();
        match router.is_some_and(|router| router.is_shared()) {
            true => CLUSTER_POLL_INTERVAL,
            false => POLL_INTERVAL,
        }
    }

    /// Runs until the store is closed. May be dropped at any time: each step is one transaction, and the next process
    /// continues after it.
    pub async fn run(mut self) {
        let (_never, stopped) = watch::channel(false);
        repeat(&mut self, stopped).await;
    }

    /// Runs one step of every running replay, repeatedly until none is left. Each round reads the running replays
    /// again, so that a new one need not wait for the others to end.
    async fn run_all(&self) -> Result<(), StoreError> {
        loop {
            let mut running = self.store.running_replays().await?;
            running.retain(|replay| self.is_mine(replay));
            if running.is_empty() {
                return Ok(());
            }
            for replay in running {
                self.step(replay).await?;
                sleep(STEP_PAUSE).await;
            }
        }
    }

    async fn step(&self, replay: ReplayId) -> Result<(), StoreError> {
        let now = self.clock.wall();
        let step = self.store.step_replay(now, replay, REPLAY_STEP).await?;
        // A deleted replay has nothing more to enqueue.
        for endpoint in step.into_iter().flat_map(|step| step.endpoints) {
            (self.work)(endpoint, now);
        }
        Ok(())
    }
}

impl PeriodicTask for Replayer {
    async fn round(&mut self) -> ControlFlow<(), Duration> {
        match self.run_all().await {
            Ok(()) => {
                self.failures = 0;
                ControlFlow::Continue(self.poll_interval())
            }
            Err(StoreError::Closed) => ControlFlow::Break(()),
            Err(
                error @ (StoreError::Full
                | StoreError::Overloaded
                | StoreError::Unavailable(_)
                | StoreError::DatabaseTooNew(_)
                | StoreError::Unreadable(_)),
            ) => {
                tracing::warn!(target: LOG_TARGET, %error, "replays are waiting for the store");
                // A new replay does not shorten this pause.
                sleep(STORE_BACKOFF.pause(self.failures)).await;
                self.failures = self.failures.saturating_add(1);
                ControlFlow::Continue(Duration::ZERO)
            }
        }
    }

    /// Completes also if the notification arrived during the round.
    async fn woken(&self) {
        self.wake_up.notified().await;
    }
}
