//! Writing down what happened.
//!
//! The store is the truth; memory holds only what was not written yet. It is written piece by piece. Each piece has a
//! number, and stays in memory until the store has said that it is written; as long as it has not, the same piece is
//! written again under the same number, which the store passes over if it has it already. Whoever reads both at once holds
//! [`Observatory::still`], so that nothing is on its way: it is neither missed nor counted twice. Only what the store wrote
//! without a word is counted twice, until it is asked again.

use std::sync::Arc;
use std::time::Duration;

use posthaste_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Observatory;

/// How often what happened is written down. After a kill so much is missing at most.
pub const EVERY: Duration = Duration::from_secs(2);
/// How long the store may take to write what is left at a stop.
const AT_THE_END: Duration = Duration::from_secs(5);
/// How many tallies are written at once: one short transaction, so that nobody waits for it.
const PIECE: usize = 500;

/// Writes down what happened, again and again, until told to stop.
pub fn start(
    store: Arc<dyn Store>,
    observe: Arc<Observatory>,
    mut stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut failing = false;
        loop {
            let stopping = stopped.wait_for(|stopping| *stopping);
            if timeout(EVERY, stopping).await.is_ok() {
                return;
            }
            let failed = observe.flush(&*store).await.err();
            // Said once: it is tried again and again.
            if let Some(error) = failed.as_ref().filter(|_| !failing) {
                tracing::warn!(%error, "figures cannot be written down; they are kept and will be written as soon as that works");
            }
            failing = failed.is_some();
        }
    })
}

/// Writes down what is left at a stop, if the store takes it in time.
pub async fn last(observe: &Observatory, store: &dyn Store) {
    match timeout(AT_THE_END, observe.flush(store)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last figures are lost"),
        Err(_) => tracing::warn!("the last figures are lost: the store did not take them in time"),
    }
}

impl Observatory {
    /// Writes down what happened until now. What could not be written is kept.
    pub async fn flush(&self, store: &dyn Store) -> Result<(), StoreError> {
        let passed_over = self.ledger().pending.passed_over();
        if passed_over > 0 {
            tracing::warn!(
                passed_over,
                "more happened than can be kept until it is written: figures of tenants and endpoints are too low"
            );
        }
        // What comes in the meantime is for the next time.
        let mut left = self.ledger().pending.count();
        while left > 0 {
            let alone = self.writing.write().await;
            let Some(piece) = self.ledger().pending.piece(PIECE) else {
                break;
            };
            left = left.saturating_sub(piece.happened.len());
            store.add_figures(piece.number, piece.happened).await?;
            self.ledger().pending.settle();
            self.flushes
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            drop(alone);
        }
        Ok(())
    }
}
