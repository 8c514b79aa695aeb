//! Runs a task in rounds, on one node of the cluster.
//!
//! [`run_while_owner`] runs a [`PeriodicTask`] on the node that owns a given shard, so that every node can start the
//! task and only one works. A failed round is logged and repeated after the usual interval. When the node stops, a
//! round in progress is completed.

use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::StoreError;
use tokio::sync::watch;
use tokio::time::sleep;

/// A task that runs in rounds.
pub(crate) trait PeriodicTask {
    /// Returns the pause between rounds.
    fn interval(&self) -> Duration;

    /// Runs one round. Returns true if there may be more to do, so that the next round starts without a pause.
    async fn round(&mut self) -> Result<bool, StoreError>;

    /// Logs the error of a round.
    fn log_error(&self, error: &StoreError);

    /// Runs instead of a round while another node owns the shard. Returns the pause before the next check.
    fn skip_round(&mut self) -> Duration {
        self.interval()
    }

    /// Completes when the next round should start before the pause is over.
    async fn woken(&self) {
        std::future::pending().await
    }
}

/// Runs rounds while this node owns the shard, until `stopped` is true or the store is closed.
pub(crate) async fn run_while_owner(
    mut task: impl PeriodicTask,
    owner_router: &OwnerRouter,
    shard: Shard,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let pause = match owner_router.is_mine(shard) {
            false => task.skip_round(),
            true => match task.round().await {
                Ok(true) => Duration::ZERO,
                Ok(false) => task.interval(),
                Err(StoreError::Closed) => return,
                Err(error) => {
                    task.log_error(&error);
                    task.interval()
                }
            },
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = task.woken() => {}
            () = sleep(pause) => {}
        }
    }
}
