//! The async runtime and the stop signals of commands that run until they are stopped.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CommandError;

/// Creates a runtime with a thread per core.
pub fn multi_threaded() -> Result<Runtime, CommandError> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.map_err(CommandError::System)
}

/// SIGTERM and SIGINT. A signal that arrives after [`StopSignals::register`] is not lost.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Registers for both signals.
    pub fn register() -> Result<StopSignals, CommandError> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate()).map_err(CommandError::System)?,
            interrupt: signal(SignalKind::interrupt()).map_err(CommandError::System)?,
        })
    }

    /// Waits for the next signal.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
