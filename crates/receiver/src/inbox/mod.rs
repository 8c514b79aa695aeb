//! Inboxes: process each webhook once.
//!
//! posthaste delivers at least once, so a receiver remembers the `webhook-id` of what it processed. An inbox answers
//! [`Begin`] for each id. [`MemoryInbox`] is for one process and forgets at a restart. `SqliteInbox` and `PostgresInbox` are a
//! table in the database of the application: the mark and the effect of the webhook are committed in one transaction.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod table;

pub use memory::{Claim, InboxFull, MemoryInbox};
#[cfg(feature = "postgres")]
pub use postgres::PostgresInbox;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteInbox;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use table::TableNameError;

/// The answer of an inbox to a webhook that has arrived.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "only a new webhook may be processed"]
pub enum Begin<C = ()> {
    /// The webhook is new: process it. For inboxes in a database, committing the transaction completes it and rolling back
    /// releases it. For the inbox in memory, this is the [`Claim`] that does so.
    New(C),
    /// The webhook was processed before: answer [`Reply::duplicate`](crate::Reply::duplicate).
    Duplicate,
    /// The same webhook is being processed at this moment: answer [`Reply::in_progress`](crate::Reply::in_progress).
    InProgress,
}
