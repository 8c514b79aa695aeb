//! Sets replays going, in the background.
//!
//! It promises:
//!
//! - every running replay goes on, also one that an earlier process began;
//! - replays take turns, so that a long one does not keep a short one waiting;
//! - it sets a small number of deliveries going at a time and rests in between: what it sets going waits
//!   in the lanes of its endpoints like everything else, and is paced there;
//! - of several nodes that share a store, the owner of the shard of its id steps a replay;
//! - while the store cannot write, it waits, longer each time up to a bound, and loses nothing.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::{EndpointId, ReplayId};
use posthaste_core::time::Timestamp;
use posthaste_store::{Store, StoreError};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::switchboard::Switchboard;

/// How many deliveries one step sets going.
pub const REPLAY_STEP: usize = 256;
/// The rest between two steps: at most 12,800 deliveries a second are set going.
const REST: Duration = Duration::from_millis(20);
/// The first wait after the store failed; each one after it is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait after the store failed.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How often it looks for replays that nobody told it of.
const LOOK_AROUND: Duration = Duration::from_secs(60);
/// The same among other nodes, whose replays may become this one's at any time.
const LOOK_AROUND_SHARED: Duration = Duration::from_secs(5);

/// Told when something is due for an endpoint now.
pub type Work = Box<dyn Fn(EndpointId, Timestamp) + Send + Sync>;

/// Sets replays going.
pub struct Replayer {
    store: Arc<dyn Store>,
    clock: Clock,
    bell: Arc<Notify>,
    work: Work,
    switchboard: Option<Arc<Switchboard>>,
}

impl Replayer {
    /// A replayer that looks for new replays when `bell` rings, and calls `work` for every endpoint for
    /// which it has put something on disk.
    pub fn new(store: Arc<dyn Store>, clock: Clock, bell: Arc<Notify>, work: Work) -> Replayer {
        Replayer {
            store,
            clock,
            bell,
            work,
            switchboard: None,
        }
    }

    /// The same among other nodes: it steps what falls to this one.
    pub fn shared_with(self, switchboard: Arc<Switchboard>) -> Replayer {
        Replayer {
            switchboard: Some(switchboard),
            ..self
        }
    }

    /// Whether this node is the one to step a replay.
    fn is_mine(&self, replay: &ReplayId) -> bool {
        let shard = Shard::of(EndpointId(replay.0));
        let switchboard = self.switchboard.as_ref();
        switchboard.is_none_or(|switchboard| switchboard.is_mine(shard))
    }

    /// How often it looks for replays that nobody told it of, or that have become its own.
    fn look_around(&self) -> Duration {
        let switchboard = self.switchboard.as_ref();
        match switchboard.is_some_and(|switchboard| switchboard.is_shared()) {
            true => LOOK_AROUND_SHARED,
            false => LOOK_AROUND,
        }
    }

    /// Goes on until the store is closed. It may be dropped at any moment: each step is whole, and the
    /// next process goes on from it.
    pub async fn run(self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.go_round().await {
                Ok(()) => {
                    wait = FIRST_WAIT;
                    // Whoever rang while a round was made is heard now.
                    let _ = tokio::time::timeout(self.look_around(), self.bell.notified()).await;
                }
                Err(StoreError::Closed) => return,
                Err(
                    error
                    @ (StoreError::Full | StoreError::Overloaded | StoreError::Unavailable(_)),
                ) => {
                    tracing::warn!(%error, "replays wait for the store");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Steps every running replay once, again and again until none is left. Each round looks anew, so
    /// that one that has just begun need not wait for those before it to end.
    async fn go_round(&self) -> Result<(), StoreError> {
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
        // One that is gone has nothing more to set going.
        for endpoint in step.into_iter().flat_map(|step| step.endpoints) {
            (self.work)(endpoint, now);
        }
        Ok(())
    }
}
