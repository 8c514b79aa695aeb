//! The PostgreSQL store: one database that several nodes share.
//!
//! ```text
//!  calls ─▶ write queue ─▶ writer ─▶ one pipeline: BEGIN · guard · array statements · COMMIT ─▶ hand-over ─▶ answers
//!                            │  routing table and id generator in memory; each cold operation has its own transaction
//!  events of limited tenants ─▶ a second write queue, writer and connection
//!  calls ─▶ readers ─▶ a snapshot ─▶ answer
//!  holdings: the shards that this node owns, and their epochs ◀─ the membership
//! ```
//!
//! [`PostgresStore`] implements [`Store`](crate::Store). All connections run on one dedicated thread. An event that
//! is delivered at the first attempt costs one row of `events`, one row of `waiting` that is inserted and deleted,
//! and one row of `ended`. A whole group of operations needs only a few statements, independent of its size.
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

mod accept;
mod admin_connection;
mod alerts;
mod audit;
mod batch;
mod bell;
mod cancellable_connection;
mod changelog;
mod changes;
mod clock_skew;
mod columns;
mod concurrency_shares;
mod copy_connection;
mod count_changes;
mod db_error;
mod dead;
mod delivery_rows;
mod dial;
mod directory;
mod due_watermarks;
mod empty_days;
mod endpoints;
mod event_rows;
mod fetch;
mod figures;
mod link;
mod lists;
mod mail;
mod master_keys;
mod member;
mod membership;
mod migrate;
mod new_waiting;
mod notify;
mod notify_message;
mod open_store;
mod operation;
mod outbox;
mod owned_shards;
mod partitions;
mod payload_cache;
mod pipeline;
mod readers;
mod record;
mod replay_targets;
mod replays;
mod reply;
mod roster;
mod routing_table;
mod schema;
mod search;
mod sessions;
mod settings;
mod statement_cache;
mod stats;
mod store;
mod tenant_lookup;
mod thread;
mod tidy;
mod tidy_almanac;
mod tidy_days;
mod tidy_minds;
mod tidy_rows;
mod tidy_strolls;
mod unowned;
mod usage;
mod write_context;
mod write_queue;
mod writer;

pub use admin_connection::Session;
pub(crate) use columns::Id;
pub(crate) use copy_connection::CopyConnection;
pub(crate) use db_error::DbError;
pub use dial::{Dial, DialFuture, Place, ServerUrl, ServerUrlError, Tls, TlsMode, Wire};
pub(crate) use link::Params;
pub(crate) use schema::meta::{COPIED_FROM, COPY_DONE};
pub use schema::schema_sql;
pub use settings::{DEFAULT_LARGE_DAY_BYTES, DEFAULT_LEASE, PostgresSettings, ReconnectBackoff};
pub use store::PostgresStore;
