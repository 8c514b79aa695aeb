//! The state of the write queue, for metrics and health checks.

use std::time::Duration;

/// The operations that wait for the writer, by write class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteQueueState {
    /// Operations of posthaste itself: attempt records, status writes, maintenance.
    pub internal: WaitingWrites,
    /// Operations of all tenants.
    pub tenants: WaitingWrites,
}

/// Waiting operations of a write class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingWrites {
    /// Their number.
    pub count: usize,
    /// The time for which the oldest has waited; `None` if none waits.
    pub oldest_wait: Option<Duration>,
    /// Number of operations refused since the store was opened, because there was no room for them.
    pub refused: u64,
}

impl WriteQueueState {
    /// Returns the state of two queues together.
    pub fn and(self, other: WriteQueueState) -> WriteQueueState {
        WriteQueueState {
            internal: self.internal.and(other.internal),
            tenants: self.tenants.and(other.tenants),
        }
    }
}

impl WriteQueueState {
    /// Returns the number of refusals alone, as if nothing waited.
    pub(crate) fn only_refused(self) -> WriteQueueState {
        let only_refused = |waiting: WaitingWrites| WaitingWrites {
            refused: waiting.refused,
            ..WaitingWrites::default()
        };
        WriteQueueState {
            internal: only_refused(self.internal),
            tenants: only_refused(self.tenants),
        }
    }
}

impl WaitingWrites {
    fn and(self, other: WaitingWrites) -> WaitingWrites {
        WaitingWrites {
            count: self.count + other.count,
            // `None` is less than every duration.
            oldest_wait: self.oldest_wait.max(other.oldest_wait),
            refused: self.refused + other.refused,
        }
    }
}
