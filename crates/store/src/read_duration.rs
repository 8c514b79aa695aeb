//! The expected duration of a read, which decides where it waits.

/// The expected duration of a read. Each has its own queue, and its own threads (SQLite) or connections (PostgreSQL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadDuration {
    /// A point read: a few rows.
    Quick,
    /// A list: up to thousands of rows.
    Long,
    /// A scan: possibly all rows, so no other read waits behind it.
    Endless,
}
