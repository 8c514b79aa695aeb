//! The SQLite store: one file, used by one process.
//!
//! ```text
//!  writes ─▶ write queue ─▶ writer ─▶ one transaction ─▶ fsync ─▶ hand-over ─▶ answers
//!                            │  routing table, id generator and counts in memory
//!                            ├─ between two groups: the next part of the history index
//!                            └─ when the WAL is long: the rest of a checkpoint    checkpoint thread
//!  reads ─▶ read queues ─▶ readers ─▶ a snapshot ─▶ answer
//! ```
//!
//! [`SqliteStore`] implements the contract. [`backup()`] copies the file while it is in use. An event that is
//! delivered at the first attempt costs little: its row and the row of its delivery are appended, and the delivery's
//! row is changed once. Nothing else is written while it is being delivered.

mod accept;
mod advances;
mod alerts;
mod audit;
mod backup;
mod checkpoint;
mod codes;
mod counts;
mod dead_letters;
mod delivery_rows;
mod directory;
mod endpoints;
mod event_rows;
mod export;
mod fan_out;
mod faults;
mod fetch;
mod group_budget;
mod group_commit;
mod history;
mod key_ranges;
mod key_scan;
mod lists;
mod lock;
mod notifications;
mod open;
mod origins;
mod owner_emails;
mod readers;
mod record;
mod replay_targets;
mod replays;
mod retention;
mod routing_table;
mod row_keys;
mod schedules;
mod schema;
mod sessions;
mod staged_payloads;
mod start;
mod stats;
mod store;
mod stored_clock;
mod tenant_lookup;
mod usage;
mod write_queue;
mod writer;

pub use backup::backup;
pub(crate) use export::{Export, Piece, id_of_row, read_list};
#[doc(hidden)]
pub use faults::Faults;
pub use open::recognise;
pub use store::SqliteStore;
