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
mod alerts;
mod audit;
mod bell;
mod buckets;
mod changelog;
mod changes;
mod columns;
mod contents;
mod copy_link;
mod dead;
mod dial;
mod directory;
mod empty_days;
mod endpoints;
mod events;
mod fault;
mod figures;
mod floors;
mod holdings;
mod hot;
mod lead;
mod lifecycle;
mod link;
mod lists;
mod mail;
mod member;
mod membership;
mod notice;
mod open;
mod operation;
mod outbox;
mod partitions;
mod passes;
mod pipeline;
mod queue;
mod readers;
mod record;
mod replays;
mod replays_plan;
mod replays_rows;
mod reply;
mod room;
mod roster;
mod routes;
mod rows;
mod scene;
mod schema;
mod session;
mod settings;
mod statements;
mod store;
mod tally;
mod tether;
mod thread;
mod tidings;
mod tidy;
mod tidy_almanac;
mod tidy_days;
mod tidy_minds;
mod tidy_rows;
mod tidy_strolls;
mod unowned;
mod usage;
mod vault;
mod walk;
mod whose;
mod work;
mod writer;

pub(crate) use columns::Id;
pub(crate) use copy_link::CopyConnection;
pub use dial::{Dial, DialFuture, Place, ServerUrl, ServerUrlError, Tls, TlsMode, Wire};
pub(crate) use fault::DbError;
pub(crate) use link::Params;
pub(crate) use schema::meta::{COPIED_FROM, COPY_DONE};
pub use schema::schema_sql;
pub use session::Session;
pub use settings::{DEFAULT_LARGE_DAY_BYTES, DEFAULT_LEASE, PostgresSettings, ReconnectBackoff};
pub use store::PostgresStore;
