//! Settings of the PostgreSQL store.
//!
//! [`PostgresSettings`] has the server, the size of the connection pools, the lease and the role of this node.
//! [`ReconnectBackoff`] is the wait between attempts to connect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::DEFAULT_FINISH_UPGRADE_AFTER;
use posthaste_core::time::{CorrectedTime, Span, Tick};

use super::dial::{Dial, ServerUrl};

/// Default lease duration: other nodes take over a node's shards when it has not renewed its lease for this long.
pub const DEFAULT_LEASE: Span = Span::from_secs(6);

/// Default size from which a day's partition is dropped instead of deleted row by row.
pub const DEFAULT_LARGE_DAY_BYTES: u64 = 256 << 20;

/// The server, the connection settings, and the role of this node.
#[derive(Clone)]
pub struct PostgresSettings {
    /// The database server.
    pub server: ServerUrl,
    /// Server for `LISTEN`, if `server` is a proxy that does not pass `NOTIFY` messages on.
    pub listen: Option<ServerUrl>,
    /// Opens network connections to the server.
    pub dial: Arc<dyn Dial>,
    /// Monotonic clock for leases.
    pub clock: Arc<dyn Fn() -> Tick + Send + Sync>,
    /// Receives the corrected time after each reading of the database's clock.
    pub set_time: Arc<dyn Fn(CorrectedTime) + Send + Sync>,
    /// Returns by how much the machine's clock is ahead of the database's, in milliseconds. Shown to operators.
    pub clock_offset: Arc<dyn Fn() -> Option<i64> + Send + Sync>,
    /// Set if this node sends deliveries. A node that does not send owns no shards.
    pub wants_shards: bool,
    /// Name of this node, for people.
    pub name: String,
    /// Role of this node as it is configured, for people.
    pub role_name: String,
    /// Lease duration.
    pub lease: Span,
    /// Time without a node of an earlier version after which an upgrade is finished.
    pub finish_upgrade_after: Span,
    /// Wait before reconnecting.
    pub pauses: ReconnectBackoff,
    /// Number of connections for quick reads.
    pub quick_readers: usize,
    /// Size from which a day's partition is dropped when all of it has expired, instead of deleted row by row.
    pub large_day_bytes: u64,
}

/// Wait before the next attempt to connect. Doubles with every failure, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectBackoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// Maximum wait.
    pub longest: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> ReconnectBackoff {
        ReconnectBackoff {
            first: Duration::from_millis(50),
            longest: Duration::from_secs(1),
        }
    }
}

impl ReconnectBackoff {
    /// Returns the wait after this number of failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

impl PostgresSettings {
    /// Creates settings with the default values.
    pub fn new(
        server: ServerUrl,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Fn() -> Tick + Send + Sync>,
    ) -> PostgresSettings {
        PostgresSettings {
            server,
            listen: None,
            dial,
            clock,
            set_time: Arc::new(|_| {}),
            clock_offset: Arc::new(|| None),
            wants_shards: true,
            name: String::new(),
            role_name: "all".to_owned(),
            lease: DEFAULT_LEASE,
            finish_upgrade_after: DEFAULT_FINISH_UPGRADE_AFTER,
            pauses: ReconnectBackoff::default(),
            quick_readers: 3,
            large_day_bytes: DEFAULT_LARGE_DAY_BYTES,
        }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PostgresSettings")
            .field("server", &self.server)
            .field("listen", &self.listen)
            .field("works", &self.wants_shards)
            .field("name", &self.name)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let pauses = ReconnectBackoff::default();
        assert_eq!(pauses.after(1), Duration::from_millis(50));
        assert_eq!(pauses.after(3), Duration::from_millis(200));
        assert_eq!(pauses.after(u32::MAX), Duration::from_secs(1));
    }
}
