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

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{EndpointId, ReplayId};
use posthaste_core::time::Timestamp;
use posthaste_store::{Store, StoreError};
use posthaste_system::clock::Clock;
use tokio::sync::Notify;

use crate::owner_router::OwnerRouter;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::replayer";

/// Number of deliveries per step.
pub const REPLAY_STEP: usize = 256;
/// Pause between two steps. Limits replays to 12,800 deliveries per second.
const REST: Duration = Duration::from_millis(20);
/// First pause after an error of the store; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Longest pause after an error of the store.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Interval at which running replays are looked for without a wake-up.
const LOOK_AROUND: Duration = Duration::from_secs(60);
/// Interval at which running replays are looked for in a cluster, where a replay of another node may fall to this one
/// at any time.
const LOOK_AROUND_SHARED: Duration = Duration::from_secs(5);

/// Function that is called when a delivery to an endpoint is due now.
pub type Work = Box<dyn Fn(EndpointId, Timestamp) + Send + Sync>;

/// Runs replays.
pub struct Replayer {
    store: Arc<dyn Store>,
    clock: Clock,
    bell: Arc<Notify>,
    work: Work,
    switchboard: Option<Arc<OwnerRouter>>,
}

impl Replayer {
    /// Creates a replayer that looks for new replays when `bell` is notified, and calls `work` for every endpoint for
    /// which it has enqueued deliveries.
    pub fn new(store: Arc<dyn Store>, clock: Clock, bell: Arc<Notify>, work: Work) -> Replayer {
        Replayer {
            store,
            clock,
            bell,
            work,
            switchboard: None,
        }
    }

    /// Restricts the replayer to the replays of this node in a cluster.
    pub fn shared_with(self, switchboard: Arc<OwnerRouter>) -> Replayer {
        Replayer {
            switchboard: Some(switchboard),
            ..self
        }
    }

    /// Returns true if this node runs the replay.
    fn is_mine(&self, replay: &ReplayId) -> bool {
        let shard = Shard::of(EndpointId(replay.0));
        let switchboard = self.switchboard.as_ref();
        switchboard.is_none_or(|switchboard| switchboard.is_mine(shard))
    }

    /// Returns the interval at which running replays are looked for without a wake-up.
    fn poll_interval(&self) -> Duration {
        let switchboard = self.switchboard.as_ref();
        match switchboard.is_some_and(|switchboard| switchboard.is_shared()) {
            true => LOOK_AROUND_SHARED,
            false => LOOK_AROUND,
        }
    }

    /// Runs until the store is closed. May be dropped at any time: each step is one transaction, and the next process
    /// continues after it.
    pub async fn run(self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.run_all().await {
                Ok(()) => {
                    wait = FIRST_WAIT;
                    // A notification that arrived during the round is received now.
                    let _ = tokio::time::timeout(self.poll_interval(), self.bell.notified()).await;
                }
                Err(StoreError::Closed) => return,
                Err(
                    error
                    @ (StoreError::Full | StoreError::Overloaded | StoreError::Unavailable(_)),
                ) => {
                    tracing::warn!(target: LOG_TARGET, %error, "replays wait for the store");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
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
                tokio::time::sleep(REST).await;
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
