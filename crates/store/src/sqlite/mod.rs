//! The store inside the process: one SQLite file.
//!
//! ```text
//!  calls ─▶ queue ─▶ writer ─▶ one transaction ─▶ fsync ─▶ hand-over ─▶ answers
//!                      │  routes, mint and counters in memory
//!                      ├─ between two groups: history, in sorted pieces
//!                      └─ a long log: the rest of a checkpoint        checkpoint thread
//!  calls ─▶ desk  ─▶ readers ─▶ a snapshot ─▶ answer
//! ```
//!
//! What an event that is delivered at once costs: its row and its delivery's row are appended, and the
//! delivery's row is changed once. Nothing else is written while it is on its way.

mod accept;
mod alerts;
mod audit;
mod backup;
mod buckets;
mod checkpoint;
mod codes;
mod counts;
mod dead;
mod directory;
mod endpoints;
mod events;
mod export;
mod faults;
mod group;
mod history;
mod keys;
mod lists;
mod lock;
mod open;
mod outbox;
mod passes;
mod queue;
mod reader;
mod record;
mod replays;
mod routes;
mod rows;
mod schema;
mod store;
mod tidy;
mod tidy_runs;
mod usage;
mod walk;
mod whose;
mod work;
mod writer;

pub use backup::backup;
pub(crate) use export::{Export, Piece, id_of_row, read_list};
#[doc(hidden)]
pub use faults::Faults;
pub use open::recognise;
pub use store::SqliteStore;
