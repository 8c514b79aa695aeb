//! Emails while no mail server is configured.
//!
//! Existing emails are kept as long as they would be retried, in case a mail server is configured again. Then they are
//! dropped and logged. No new emails are created meanwhile.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Span;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::{MaxEmailDelay, Posted, Store, StoreError};
use posthaste_system::clock::Clock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::herald::dispatching_shard;
use super::letters::MAX_RETRY_TIME;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::unposted";

/// Interval between rounds.
const LOOKING: Duration = Duration::from_secs(60);
/// Time for which a checked email is not due. If a mail server is configured again, the email is sent after that.
const LEFT_ALONE: Span = Span::from_mins(10);
/// Maximum number of emails per step.
const STEP: usize = 50;

/// Drops emails that cannot be sent and are too old.
pub(super) struct UnsentEmails {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) switchboard: Arc<OwnerRouter>,
}

impl UnsentEmails {
    /// Runs until `stopped` is true.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let mut pause = LOOKING;
            if self.switchboard.is_mine(dispatching_shard()) {
                match self.round().await {
                    Ok(true) => pause = Duration::ZERO,
                    Ok(false) => {}
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(target: LOG_TARGET, %error, "letters could not be looked after; they are kept");
                    }
                }
            }
            let stopping = stopped.wait_for(|stopping| *stopping);
            if timeout(pause, stopping).await.is_ok() {
                return;
            }
        }
    }

    /// Drops emails that are too old. Returns true if there may be more.
    pub(super) async fn round(&self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let (until, longest) = (now.after(LEFT_ALONE), MaxEmailDelay::ANY);
        let letters = self.store.claim_letters(now, until, longest, STEP).await?;
        let more = letters.len() == STEP;
        for letter in letters {
            if letter.first_at.after(MAX_RETRY_TIME) > now {
                continue;
            }
            let (since, lines) = (letter.first_at, letter.lines.len());
            let dropped =
                self.store
                    .settle_letter(letter.recipient, letter.revision, Posted::Dropped);
            if dropped.await? {
                tracing::warn!(target: LOG_TARGET, %since, lines, "a letter was dropped: there is no mail server to send it");
            }
        }
        Ok(more)
    }
}
