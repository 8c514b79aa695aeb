//! Reads outboxes: tables in the databases of applications, whose committed rows become events.
//!
//! ```text
//!  application ── INSERT, COMMIT ──▶ its database ── NOTIFY ──▶ reader (one node)
//!                                        ▲                        │ lock a batch
//!                                        │                        ▼
//!                                        └── delete, COMMIT ◀── accept: quotas, write queue, commit
//! ```
//!
//! Guarantees:
//!
//! - **Exactly one event per committed row.** A row is removed only after its event is stored. If anything dies in
//!   between, the row is read again and its idempotency key finds the stored event.
//! - **One reader.** The node that owns the shard of an outbox reads it. An advisory lock in the application's database
//!   also keeps a node apart that has lost the shard and does not know it yet.
//! - **No row blocks others.** A row that cannot be accepted gets an error. Rows of a tenant that is over a rate wait;
//!   rows of other tenants do not.
//! - **Bounded.** One batch per outbox is in memory, and one connection is open.
//!
//! The decisions are in [`posthaste_core::outbox`], the SQL in [`posthaste_store::postgres::outbox_table`].

mod accept;
mod reader;
mod settings;

pub use reader::start;
pub use settings::OutboxSettings;
