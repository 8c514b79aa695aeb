//! Runs a background task on one node of the cluster.
//!
//! [`run_while_shard_owner`] runs a [`ShardOwnerTask`] on the node that owns a given shard, so that every node can
//! start the task and only one works. A failed round is logged and repeated after the usual interval. When the node
//! stops, a round in progress is completed.

use std::ops::ControlFlow;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::StoreError;
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::watch;

/// A task that runs in rounds, on the owner of a shard.
pub(crate) trait ShardOwnerTask: Send + Sync {
    /// Returns the pause between rounds.
    fn interval(&self) -> Duration;

    /// Runs one round. Returns true if there may be more to do, so that the next round starts without a pause.
    fn round(&mut self) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Logs the error of a round.
    fn log_error(&self, error: &StoreError);

    /// Runs instead of a round while another node owns the shard. Returns the pause before the next check.
    fn skip_round(&mut self) -> Duration {
        self.interval()
    }

    /// Completes when the next round should start before the pause is over.
    fn woken(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs rounds while this node owns the shard, until `stopped` is true or the store is closed.
pub(crate) async fn run_while_shard_owner(
    task: impl ShardOwnerTask,
    owner_router: &OwnerRouter,
    shard: Shard,
    stopped: watch::Receiver<bool>,
) {
    let mut rounds = OwnerRounds {
        task,
        owner_router,
        shard,
    };
    repeat(&mut rounds, stopped).await;
}

struct OwnerRounds<'a, T> {
    task: T,
    owner_router: &'a OwnerRouter,
    shard: Shard,
}

impl<T: ShardOwnerTask> PeriodicTask for OwnerRounds<'_, T> {
    async fn round(&mut self) -> ControlFlow<(), Duration> {
        if !self.owner_router.is_mine(self.shard) {
            return ControlFlow::Continue(self.task.skip_round());
        }
        match self.task.round().await {
            Ok(true) => ControlFlow::Continue(Duration::ZERO),
            Ok(false) => ControlFlow::Continue(self.task.interval()),
            Err(StoreError::Closed) => ControlFlow::Break(()),
            Err(error) => {
                self.task.log_error(&error);
                ControlFlow::Continue(self.task.interval())
            }
        }
    }

    async fn woken(&self) {
        self.task.woken().await;
    }
}
