//! The clock of a node while it runs: follows the machine's clock on SQLite, and reports clocks that differ.
//!
//! On PostgreSQL the store follows the clock of the database. On SQLite, [`MachineClock`] follows that of the machine in the
//! same way, so a clock that is set back delays nothing. The task that [`start`] starts also logs when the clock of this
//! machine differs from the reference clock by more than [`REPORTED_OFFSET`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::clock_check::REPORTED_OFFSET;
use posthaste_core::time::{
    ClockJump, ClockReading, ClockSync, MAX_CLOCK_LEAD, StoredClock, Timestamp,
};
use posthaste_store::StoreError;
use posthaste_store::sqlite::SqliteStore;
use posthaste_system::clock::{Clock, ClockCorrection};
use posthaste_system::periodic_task::{PeriodicTask, repeat};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste::clock";
/// Interval between two readings of the machine's clock. A jump of it has an effect for at most this long.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Follows the clock of the machine, for the only node of a SQLite store.
pub(super) struct MachineClock {
    store: Arc<SqliteStore>,
    correction: Arc<ClockCorrection>,
    /// The clock as other programs on the machine see it.
    machine: Clock,
    sync: ClockSync,
    stored: StoredClock,
}

impl MachineClock {
    /// Reads the clock for the first time, and corrects the node's clock.
    pub(super) async fn open(
        store: Arc<SqliteStore>,
        correction: Arc<ClockCorrection>,
    ) -> Result<MachineClock, StoreError> {
        let stored = store.stored_clock().await?;
        let mut clock = MachineClock {
            store,
            correction,
            machine: Clock::system(),
            sync: ClockSync::default(),
            stored,
        };
        clock.read().await;
        Ok(clock)
    }

    async fn read(&mut self) {
        let sent = self.correction.tick();
        let reference = self.machine.wall();
        let received = self.correction.tick();
        let reading = ClockReading {
            sent,
            received,
            reference,
        };
        let update = self.sync.handle(reading, self.stored);
        self.correction.set(update.time);
        if let Some(jump) = update.jump {
            log_jump(jump);
        }
        let Some(new) = update.store else {
            return;
        };
        // The time in memory is right even if it cannot be stored.
        self.stored = new;
        if let Err(error) = self.store.store_clock(new).await {
            // The next round tries again.
            self.stored.saved_at = Timestamp(0);
            tracing::debug!(target: LOG_TARGET, %error, "cannot persist the clock");
        }
    }
}

fn log_jump(jump: ClockJump) {
    match jump {
        ClockJump::Forward(by) => {
            tracing::warn!(target: LOG_TARGET, %by, "the machine's clock jumped forward; the node's time follows it");
        }
        ClockJump::Held(by) => {
            tracing::warn!(target: LOG_TARGET, %by, "the machine's clock was set back; the node's time runs slower until both agree");
        }
        ClockJump::Back(by) => {
            tracing::error!(target: LOG_TARGET, %by, limit = %MAX_CLOCK_LEAD, "the machine's clock was set back by more than the limit; the node's time follows it, and waiting deliveries are delayed");
        }
    }
}

struct ClockTask {
    clock: Clock,
    machine_clock: Option<MachineClock>,
    is_reported: bool,
}

impl PeriodicTask for ClockTask {
    async fn round(&mut self) -> ControlFlow<(), Duration> {
        if let Some(machine_clock) = &mut self.machine_clock {
            machine_clock.read().await;
        }
        self.report();
        ControlFlow::Continue(READ_INTERVAL)
    }
}

impl ClockTask {
    /// Logs when the offset passes the bound, in either direction.
    fn report(&mut self) {
        let Some(offset_ms) = self.clock.offset_ms() else {
            return;
        };
        let is_wrong = offset_ms.unsigned_abs() > REPORTED_OFFSET.as_millis();
        if is_wrong && !self.is_reported {
            tracing::warn!(target: LOG_TARGET, offset_ms, "this machine's clock differs from the database's; the node uses the database's time. Check NTP");
        }
        if !is_wrong && self.is_reported {
            tracing::info!(target: LOG_TARGET, offset_ms, "this machine's clock agrees with the database's again");
        }
        self.is_reported = is_wrong;
    }
}

/// Starts the task, which runs until `stopped` is true.
pub(super) fn start(
    clock: Clock,
    machine_clock: Option<MachineClock>,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let mut task = ClockTask {
        clock,
        machine_clock,
        is_reported: false,
    };
    tokio::spawn(async move { repeat(&mut task, stopped).await })
}
