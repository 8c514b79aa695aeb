//! The PostgreSQL store: one database that several nodes share.
//!
//! ```text
//!  calls ─▶ write queue ─▶ writer ─▶ one pipeline: BEGIN · guard · array statements · COMMIT ─▶ hand-over ─▶ answers
//!                            │  routing table and id generator in memory; each cold operation has its own transaction
//!  events of limited tenants ─▶ a second write queue, writer and connection
//!  calls ─▶ readers ─▶ a snapshot ─▶ answer
//!  owned shards, with their epochs ◀─ the membership
//! ```
//!
//! [`PostgresStore`] implements [`Store`](crate::Store). All connections run on one dedicated thread. An event that
//! is delivered at the first attempt costs one row of `events`, one row of `waiting` that is inserted and deleted,
//! and one row of `ended`. A whole group of operations needs only a few statements, independent of its size.
//!
//! The folders depend on each other in this order: `schema`, `read`, `write`, then `cluster` and `retention`, then the
//! store itself (`store`, `thread`). Connections, errors and settings are below all of them. `outbox_table` is apart: it
//! reads a table in the database of an application.
//!
//! # Guarantees, in addition to those of [`Store`](crate::Store)
//!
//! 1. **Exact routing.** A batch commits only if the directory has not changed since this node routed the batch.
//!    Otherwise the batch is routed again.
//! 2. **Fenced writes.** A write on behalf of an owner commits only if this node is still registered and still owns
//!    the shards. The check is part of the same transaction.
//! 3. **No silent loss.** When a connection breaks, an unanswered write may or may not be committed. The caller gets
//!    [`StoreError::Unavailable`](crate::StoreError::Unavailable), which means that the outcome is unknown, and can
//!    repeat the request.

mod admin_connection;
mod cancellable_connection;
mod cluster;
mod connection;
mod copy_connection;
mod db_error;
mod dial;
pub mod outbox_table;
mod pipeline;
mod read;
mod retention;
mod round_trips;
mod schema;
mod settings;
mod shared;
mod statement_cache;
mod store;
mod thread;
mod write;

pub use admin_connection::Session;
pub(crate) use connection::Params;
pub(crate) use copy_connection::CopyConnection;
pub(crate) use db_error::DbError;
pub use dial::{
    ByteStream, Dial, DialFuture, ServerAddress, ServerUrl, ServerUrlError, Tls, TlsMode,
};
pub(crate) use schema::columns::Id;
pub(crate) use schema::meta::{COPIED_FROM, COPY_DONE};
pub use schema::schema_sql;
pub use settings::{DEFAULT_LARGE_DAY_BYTES, DEFAULT_LEASE, PostgresSettings, ReconnectBackoff};
pub use store::PostgresStore;
