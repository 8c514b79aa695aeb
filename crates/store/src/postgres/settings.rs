//! What this engine is told when it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::{Span, Tick};

use super::dial::{Dial, ServerUrl};

/// How long a node's silence is borne before its work is somebody else's.
pub const DEFAULT_LEASE: Span = Span::from_secs(6);

/// From which size on the rows of a day are removed together.
pub const DEFAULT_LARGE_DAY_BYTES: u64 = 256 << 20;

/// Where the server is, how it is reached, and what this node is.
#[derive(Clone)]
pub struct PostgresSettings {
    /// The server.
    pub server: ServerUrl,
    /// Where to listen for notices, if the server itself is behind a proxy that does not pass them on.
    pub listen: Option<ServerUrl>,
    /// Opens the way to it.
    pub dial: Arc<dyn Dial>,
    /// The steady clock by which leases are measured.
    pub clock: Arc<dyn Fn() -> Tick + Send + Sync>,
    /// Whether this node sends. One that does not owns nothing.
    pub works: bool,
    /// What people call this node.
    pub name: String,
    /// How long a lease lasts.
    pub lease: Span,
    /// How long one waits before connecting again.
    pub pauses: Pauses,
    /// How many connections answer point reads.
    pub quick_readers: usize,
    /// From this size on, the rows of a day are not removed one by one when they are old, but all together.
    pub large_day_bytes: u64,
}

/// How long one waits before trying to connect again: ever longer, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub most: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            first: Duration::from_millis(50),
            most: Duration::from_secs(1),
        }
    }
}

impl Pauses {
    /// The pause after so many failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

impl PostgresSettings {
    /// The usual settings.
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
            works: true,
            name: String::new(),
            lease: DEFAULT_LEASE,
            pauses: Pauses::default(),
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
            .field("works", &self.works)
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
        let pauses = Pauses::default();
        assert_eq!(pauses.after(1), Duration::from_millis(50));
        assert_eq!(pauses.after(3), Duration::from_millis(200));
        assert_eq!(pauses.after(u32::MAX), Duration::from_secs(1));
    }
}
