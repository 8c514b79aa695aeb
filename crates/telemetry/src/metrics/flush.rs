//! Writes counters to the store as stats.
//!
//! The store is authoritative; memory holds only what is not written yet. Counters are written in numbered pieces. A
//! piece stays in memory until the store confirms it. After a failure the same piece is written again under the same
//! number, and the store ignores it if it already has it. A reader of both store and memory holds
//! [`Metrics::unwritten`], so that no write is in progress: nothing is missed or counted twice. The one exception is a
//! piece that the store wrote without its confirmation arriving: it counts twice until it is written again.

use std::sync::Arc;
use std::time::Duration;

use posthaste_store::{Store, StoreError};
use posthaste_system::periodic_task::stopped_within;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Metrics;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::observe::flush";

/// Interval between writes. A killed process loses at most the counters of this interval.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time that the store may take for the final write at a shutdown.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of counter rows per write. Each is one short transaction, so that other writes do not wait for it.
const PIECE_ROWS: usize = 500;

/// Writes the counters periodically until `stopped` is true.
pub fn start(
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    mut stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut was_failing = false;
        while !stopped_within(&mut stopped, INTERVAL).await {
            let failed = metrics.flush(&*store).await.err();
            // Logged once, because the write is retried every interval.
            if let Some(error) = failed.as_ref().filter(|_| !was_failing) {
                tracing::warn!(target: LOG_TARGET, %error, "cannot persist stats; keeping them in memory and retrying");
            }
            was_failing = failed.is_some();
        }
    })
}

/// Writes the remaining counters at a shutdown, if the store accepts them in time.
pub async fn last(metrics: &Metrics, store: &dyn Store) {
    match timeout(FINAL_FLUSH_TIMEOUT, metrics.flush(store)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(target: LOG_TARGET, %error, "the latest stats are lost"),
        Err(_) => {
            tracing::warn!(target: LOG_TARGET, "the latest stats are lost: the store did not accept them in time")
        }
    }
}

impl Metrics {
    /// Writes all counters up to now. What could not be written is kept.
    pub async fn flush(&self, store: &dyn Store) -> Result<(), StoreError> {
        let dropped = self.by_time().pending.dropped();
        if dropped > 0 {
            tracing::warn!(target: LOG_TARGET,
                passed_over = dropped,
                "too many unwritten stats: those of tenants and endpoints are incomplete"
            );
        }
        // Counters that arrive during this flush are written by the next one.
        let mut remaining = self.by_time().pending.count();
        while remaining > 0 {
            let exclusive = self.writing.write().await;
            let Some(piece) = self.by_time().pending.piece(PIECE_ROWS) else {
                break;
            };
            remaining = remaining.saturating_sub(piece.entries.len());
            store.add_stats(piece.number, piece.entries).await?;
            self.by_time().pending.confirm();
            self.flushes
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            drop(exclusive);
        }
        Ok(())
    }
}
