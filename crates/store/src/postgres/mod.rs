//! The store for several machines: a PostgreSQL database that nodes share.
//!
//! ```text
//!  calls ─▶ queue ─▶ writer ─▶ one pipeline: BEGIN · guard · arrays · COMMIT ─▶ hand-over ─▶ answers
//!                      │  routes and mint in memory; what is cold runs in its place, a transaction each
//!  events of limited tenants ─▶ a queue, a writer and a connection of their own
//!  calls ─▶ desks ─▶ readers ─▶ a snapshot ─▶ answer
//!  holdings: which shards are ours, and by which epoch ◀─ the membership
//! ```
//!
//! Everything runs on one thread of its own, with all connections. What an event that is delivered at once
//! costs: its row, a row of `waiting` that comes and goes, and a row of `ended`; a handful of statements for
//! all that gathered, whatever their number.
//!
//! # Promises, beside those of [`Store`](crate::Store)
//!
//! 1. **Exact routing.** A batch is committed only if the directory is still as this node knew it when it
//!    routed; otherwise it is routed anew.
//! 2. **No owner's word after its time.** What is written as an owner is written only if this node is not
//!    fenced off and still owns the shards, checked in the same transaction.
//! 3. **Nothing is lost with a connection.** What was not answered may or may not be on disk; whoever asked is
//!    told that it is not known, and may ask again.

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
mod endpoints;
mod events;
mod fault;
mod figures;
mod floors;
mod holdings;
mod hot;
mod lead;
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
pub(crate) use copy_link::CopyLink;
pub use dial::{Dial, Dialled, Place, ServerUrl, ServerUrlError, Tls, TlsMode, Wire};
pub(crate) use fault::Fault;
pub(crate) use link::Given;
pub(crate) use schema::meta::{COPIED_FROM, COPY_DONE};
pub use schema::schema_sql;
pub use session::Session;
pub use settings::{DEFAULT_LARGE_DAY_BYTES, DEFAULT_LEASE, Pauses, PostgresSettings};
pub use store::PostgresStore;
