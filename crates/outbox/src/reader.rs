//! The reader of one outbox.
//!
//! A round locks a batch of rows, accepts them, and commits. The next round follows at once if rows were found, else when
//! the database announces new rows, a waiting tenant may continue, or [`POLL_INTERVAL`] is over.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::App;
use posthaste_core::cluster::Shard;
use posthaste_core::outbox::{ScanPosition, TenantWaits, shard_of};
use posthaste_core::time::Span;
use posthaste_store::StoreError;
use posthaste_store::postgres::outbox_table::{
    BatchRequest, BeginResult, OutboxBatch, OutboxTable,
};
use posthaste_system::backoff::Backoff;
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::accept::{Accepted, accept};
use crate::settings::OutboxSettings;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::outbox";

/// Maximum time until new rows are found if no `NOTIFY` message announces them.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause while another node or another server reads the outbox.
const NOT_READING_PAUSE: Duration = Duration::from_millis(500);
/// Pauses after errors of the application's database or the store.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(15),
};
/// Maximum number of rows in a batch.
const MAX_ROWS: i64 = 500;
/// Maximum size of the payloads of a batch together, unless a single one is larger.
const MAX_BYTES: i64 = 16 << 20;

/// Starts a reader for each outbox. Each runs until `stopped` is true.
pub fn start(
    app: &Arc<App>,
    outboxes: Vec<OutboxSettings>,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let outboxes = outboxes.into_iter();
    let readers = outboxes.map(|settings| {
        app.metrics.outboxes.add(&settings.name);
        let mut reader = OutboxReader::new(app.clone(), settings);
        let stopped = stopped.clone();
        tokio::spawn(async move { repeat(&mut reader, stopped).await })
    });
    readers.collect()
}

struct OutboxReader {
    app: Arc<App>,
    settings: OutboxSettings,
    shard: Shard,
    table: Option<OutboxTable>,
    position: ScanPosition,
    waits: TenantWaits,
    failures: u32,
}

/// The reason why a round failed.
enum RoundError {
    /// The application's database cannot be used.
    Outbox(String),
    /// The store cannot be used.
    Store(StoreError),
}

/// The result of a round.
enum Progress {
    /// Rows were found, so there may be more.
    More,
    /// No row can be accepted now.
    Idle,
    /// Another reader has locked the outbox.
    OtherReader,
}

impl PeriodicTask for OutboxReader {
    async fn round(&mut self) -> ControlFlow<(), Duration> {
        if !self.app.owner_router.is_mine(self.shard) {
            self.stop_reading();
            return ControlFlow::Continue(NOT_READING_PAUSE);
        }
        let progress = self.read().await;
        ControlFlow::Continue(match progress {
            Ok(progress) => {
                self.recovered();
                match progress {
                    Progress::More => Duration::ZERO,
                    Progress::Idle => self.idle_pause(),
                    Progress::OtherReader => NOT_READING_PAUSE,
                }
            }
            Err(error) => self.failed(&error),
        })
    }

    async fn woken(&self) {
        match &self.table {
            Some(table) if self.failures == 0 => table.notified().await,
            Some(_) | None => std::future::pending().await,
        }
    }
}

impl OutboxReader {
    fn new(app: Arc<App>, settings: OutboxSettings) -> OutboxReader {
        OutboxReader {
            shard: shard_of(&settings.name),
            app,
            settings,
            table: None,
            position: ScanPosition::default(),
            waits: TenantWaits::default(),
            failures: 0,
        }
    }

    /// Closes the connection, because another node reads the outbox.
    fn stop_reading(&mut self) {
        if self.table.take().is_some() {
            tracing::info!(target: LOG_TARGET, outbox = self.settings.name, "another node has taken over the outbox");
        }
        self.position.reset();
        self.waits = TenantWaits::default();
        self.failures = 0;
        self.app.metrics.outboxes.not_mine(&self.settings.name);
    }

    /// Reads and accepts one batch.
    async fn read(&mut self) -> Result<Progress, RoundError> {
        let now = self.app.clock.now().tick;
        if self.waits.end_expired(now) {
            self.position.reset();
        }
        if let Some(tenant) = &self.settings.tenant
            && self.waits.contains(tenant.as_str())
        {
            return Ok(Progress::Idle);
        }
        let table = self.table().await?;
        let request = self.request();
        let began_at = Instant::now();
        let begun = table.begin(&request).await;
        let took = began_at.elapsed();
        let batch = match begun.map_err(|error| RoundError::Outbox(error.to_string()))? {
            BeginResult::Locked(batch) => batch,
            BeginResult::OtherReader => {
                self.keep(table);
                self.app.metrics.outboxes.not_mine(&self.settings.name);
                return Ok(Progress::OtherReader);
            }
        };
        if batch.rows.is_empty() {
            return self.nothing_found(table).await;
        }
        let accepted = accept(&self.app, &self.settings, &batch).await;
        let finished = table.finish(&accepted.outcomes).await;
        finished.map_err(|error| RoundError::Outbox(error.to_string()))?;
        self.keep(table);
        let some_wait = self.note(&batch, &accepted, took);
        match accepted.failure {
            Some(error) => Err(RoundError::Store(error)),
            None if accepted.outcomes.is_empty() && !some_wait => Ok(Progress::Idle),
            None => Ok(Progress::More),
        }
    }

    /// Returns the connection, opening one if there is none. It is lost if the round fails before it is kept.
    async fn table(&mut self) -> Result<OutboxTable, RoundError> {
        if let Some(table) = self.table.take() {
            return Ok(table);
        }
        self.position.reset();
        let opened = OutboxTable::open(&self.settings.source).await;
        opened.map_err(|error| RoundError::Outbox(error.to_string()))
    }

    fn keep(&mut self, table: OutboxTable) {
        self.table = Some(table);
    }

    fn request(&mut self) -> BatchRequest {
        let without_tenants = match self.settings.tenant {
            Some(_) => Vec::new(),
            None => self.waits.tenants(),
        };
        BatchRequest {
            after: self.position.start(self.app.clock.now().tick),
            without_tenants,
            max_rows: MAX_ROWS,
            max_bytes: MAX_BYTES,
            max_payload_bytes: self.app.settings.batch_bytes as i64,
        }
    }

    /// Ends the transaction of an empty batch. If the scan did not begin at the first row, the next one does.
    async fn nothing_found(&mut self, table: OutboxTable) -> Result<Progress, RoundError> {
        let ended = table.roll_back().await;
        ended.map_err(|error| RoundError::Outbox(error.to_string()))?;
        let oldest = match self.waits.is_empty() {
            true => Ok(None),
            false => table.oldest_age().await,
        };
        let oldest = oldest.map_err(|error| RoundError::Outbox(error.to_string()))?;
        self.keep(table);
        let now = self.app.clock.now().tick;
        let counters = &self.app.metrics.outboxes;
        counters.read(&self.settings.name, now, oldest.unwrap_or(Span::ZERO));
        Ok(Progress::Idle)
    }

    /// Notes the outcome of a batch. Returns true if a tenant waits from now on, whose rows the next batch leaves out.
    fn note(&mut self, batch: &OutboxBatch, accepted: &Accepted, took: Duration) -> bool {
        let now = self.app.clock.now().tick;
        let (name, counters) = (&self.settings.name, &self.app.metrics.outboxes);
        for (outcome, count) in &accepted.counts {
            counters.rows(name, *outcome, *count);
        }
        counters.read(name, now, batch.oldest_age.unwrap_or(Span::ZERO));
        let mut some_wait = false;
        for (tenant, wait) in &accepted.waits {
            let tenant = match &self.settings.tenant {
                Some(tenant) => tenant.as_str(),
                None => tenant,
            };
            tracing::debug!(target: LOG_TARGET, outbox = name, tenant, %wait, "rows are waiting: their tenant has exceeded a rate limit");
            some_wait |= self.waits.begin(now, tenant, *wait);
        }
        let all_decided = batch.skipped.is_empty() && accepted.failure.is_none();
        match batch.rows.last() {
            Some(last) if all_decided => {
                let took = Span::from_millis(took.as_millis() as u64);
                self.position.advance(now, took, last.id);
            }
            Some(_) | None => self.position.reset(),
        }
        let refused = accepted.refused();
        if let Some((id, error)) = refused.first() {
            tracing::warn!(target: LOG_TARGET, outbox = name, rows = refused.len(), id, error, "rows rejected; their column `error` has the reason");
        }
        some_wait
    }

    fn idle_pause(&self) -> Duration {
        let now = self.app.clock.now().tick;
        let wait = self.waits.next_end(now);
        wait.map_or(POLL_INTERVAL, |wait| {
            Duration::from_millis(wait.as_millis()).min(POLL_INTERVAL)
        })
    }

    fn recovered(&mut self) {
        if self.failures > 0 {
            tracing::info!(target: LOG_TARGET, outbox = self.settings.name, "reading the outbox again");
        }
        self.failures = 0;
    }

    /// Notes a failed round, and returns the pause before the next one.
    fn failed(&mut self, error: &RoundError) -> Duration {
        let name = &self.settings.name;
        match error {
            RoundError::Outbox(why) => {
                let now = self.app.clock.now().tick;
                self.app.metrics.outboxes.unreadable(name, now);
                if self.failures == 0 {
                    let server = &self.settings.source.server;
                    tracing::warn!(target: LOG_TARGET, outbox = name, %server, why, "cannot read the outbox; retrying");
                }
            }
            RoundError::Store(error) => {
                if self.failures == 0 {
                    tracing::warn!(target: LOG_TARGET, outbox = name, %error, "cannot store rows; they stay in the outbox");
                }
            }
        }
        let pause = BACKOFF.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.position.reset();
        pause
    }
}
