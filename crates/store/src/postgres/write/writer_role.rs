//! The writers of a node: what each of them writes.

/// The role of a writer. Each has a queue, a connection and slots of its own; in the database they behave like separate
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum WriterRole {
    /// Writes everything that the others do not.
    First,
    /// Accepts events of limited tenants, which may have to wait for other nodes.
    Metered,
    /// Accepts events that make many deliveries, one request at a time.
    Large,
    /// Runs long operations that no request waits for: retention steps, sweeps, replay steps, stats.
    Background,
}

impl WriterRole {
    /// Returns a number that no other role has, from 0.
    pub(super) fn number(self) -> u64 {
        match self {
            WriterRole::First => 0,
            WriterRole::Metered => 1,
            WriterRole::Large => 2,
            WriterRole::Background => 3,
        }
    }

    /// Returns whether large accepts are passed on to the writer for them.
    pub(super) fn passes_large_accepts_on(self) -> bool {
        match self {
            WriterRole::First | WriterRole::Metered => true,
            WriterRole::Large | WriterRole::Background => false,
        }
    }
}
