//! Long runs of the program under random faults, with a ledger of what arrived and checks of every guarantee.
//!
//! [`cluster::run`] starts several nodes on one PostgreSQL, each behind its own TCP proxy, and injects the faults of a
//! [`schedule`], which follows from a seed alone. [`kill::run`] kills a node on SQLite again and again. `load` sends
//! events and repeats each with the same idempotency key until it is accepted. After the faults, `checks` compares
//! what was accepted, what arrived and what the API says. A [`SoakReport`] has a table and all violations.

mod checks;
pub mod cluster;
pub mod kill;
mod load;
mod report;
pub mod schedule;

use std::path::PathBuf;
use std::time::Duration;

pub use report::SoakReport;
pub use schedule::FaultKind;

/// Tenant of all events.
const TENANT: &str = "soak";

/// Options of a run.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// The program under test.
    pub program: PathBuf,
    /// Seed of the schedule and of the load.
    pub seed: u64,
    /// Duration of the faults. The start and the checks take additional time.
    pub duration: Duration,
    /// Events that are sent per second.
    pub events_per_second: u32,
    /// Kinds of faults of a cluster. With those of the database it runs on a private server.
    pub kinds: Vec<FaultKind>,
    /// Compares the stats with the deliveries.
    pub check_stats: bool,
}
