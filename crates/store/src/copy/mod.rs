//! Copies a whole store from an SQLite file to a PostgreSQL database.
//!
//! Guarantees:
//!
//! - **Complete.** Tenants, keys, endpoints with status and health, events with their payloads, idempotency keys,
//!   deliveries of every state with their attempts, usage, replays, notifications, unreported failures, emails, the
//!   audit log and alerts. Ids, times and revisions are kept, and secrets stay encrypted as they are. Only sessions
//!   and stats are not copied: people log in again, portal links are quickly created again, and stats expire within
//!   about a day.
//! - **Exclusive.** The file is locked and only read. No node can use the database until the copy is complete.
//! - **Resumable.** Rows and the position that they reach are committed together. A copy that was started from
//!   another file, or from this file before it changed, is not continued.
//! - **Verified.** Rows are counted on both sides at the end, and by [`verify`] at any time.
//!
//! ```text
//!  file (locked, read) ─▶ a range of rows ─▶ one transaction: rows, position ─▶ … ─▶ counts, numbers, done ─▶ compare
//! ```

mod columns;
mod schedule_stages;
mod stages;
mod target;
mod verification;

use std::path::Path;
use std::sync::Arc;

use tokio::runtime;
use tokio::task::LocalSet;

use crate::OpenError;
use crate::postgres::{Dial, ServerUrl};
use crate::sqlite::Export;
use stages::STAGES;
use target::{CopyState, TargetDatabase};
use verification::COUNTED;

/// The target database, and the way to connect to it.
#[derive(Clone)]
pub struct CopyDestination {
    /// The database.
    pub server: ServerUrl,
    /// Opens connections to it.
    pub dial: Arc<dyn Dial>,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The name of the rows being copied, such as "events".
    pub what: &'static str,
    /// Number of rows copied.
    pub done: u64,
    /// Number of rows in total.
    pub total: u64,
}

/// The counts of one kind of row on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// The name of the rows.
    pub what: &'static str,
    /// Number of rows in the file.
    pub from: i64,
    /// Number of rows in the database.
    pub to: i64,
}

impl RowCounts {
    /// Returns whether both counts are equal.
    pub fn agrees(&self) -> bool {
        self.from == self.to
    }
}

/// The reason why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The file or the database cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The file cannot be read.
    #[error("cannot read the source: {0}")]
    Read(String),
    /// The database refuses a statement, or the connection was lost.
    #[error("{server}: {why}; the copy is kept: run the same command again to continue")]
    Write {
        /// The database, without a password.
        server: String,
        /// The error.
        why: String,
    },
    /// The database is not empty.
    #[error("{server} already contains {what}; copy into an empty database")]
    NotEmpty {
        /// The database, without a password.
        server: String,
        /// The kind of rows that it contains.
        what: &'static str,
    },
    /// The database contains a copy of another file, or of an earlier state of this one.
    #[error(
        "{server} contains a copy of another file, or of this file before it changed; drop the database, create it again and start over"
    )]
    AnotherCopy {
        /// The database, without a password.
        server: String,
    },
    /// A server or another copy uses the database.
    #[error("{server} is in use by a server or another copy; stop that first")]
    InUse {
        /// The database, without a password.
        server: String,
    },
    /// The database contains no copy to compare with.
    #[error("nothing has been copied to {server} yet")]
    NotBegun {
        /// The database, without a password.
        server: String,
    },
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> CopyError {
        CopyError::Read(error.to_string())
    }
}

/// Copies a file into an empty database, or resumes an interrupted copy, and compares the counts. Blocks.
pub fn copy(
    from: &Path,
    to: &CopyDestination,
    mut report: impl FnMut(CopyProgress),
) -> Result<Vec<RowCounts>, CopyError> {
    let export = Export::open(from)?;
    block(async {
        let mut target = TargetDatabase::open(to).await?;
        let fingerprint = export.fingerprint()?;
        match target.copy_state().await? {
            CopyState::Done(of) if of == fingerprint => {}
            CopyState::Done(_) => return Err(target.another_copy()),
            CopyState::Begun(of) if of != fingerprint => return Err(target.another_copy()),
            CopyState::None => {
                if let Some(what) = target.non_empty_table().await? {
                    return Err(target.holds_already(what));
                }
                target.begin(fingerprint).await?;
                carry(&export, &mut target, &mut report).await?;
            }
            CopyState::Begun(_) => carry(&export, &mut target, &mut report).await?,
        }
        compared(&export, &target).await
    })
}

/// Counts the rows on both sides, and changes nothing. Blocks.
pub fn verify(from: &Path, to: &CopyDestination) -> Result<Vec<RowCounts>, CopyError> {
    let export = Export::open(from)?;
    block(async {
        let target = TargetDatabase::inspect(to).await?;
        match target.copy_state().await? {
            CopyState::None => Err(target.not_begun()),
            CopyState::Begun(_) | CopyState::Done(_) => compared(&export, &target).await,
        }
    })
}

/// Returns the master keys that the nodes of a database share, if there are any. Blocks.
pub fn shared_keys(to: &CopyDestination) -> Result<Option<String>, CopyError> {
    block(async { TargetDatabase::inspect(to).await?.shared_keys().await })
}

/// Stores master keys for all nodes of a database, unless there are some. Returns whether it did. Blocks.
pub fn copy_master_keys(to: &CopyDestination, keys: &str) -> Result<bool, CopyError> {
    block(async { TargetDatabase::inspect(to).await?.place_keys(keys).await })
}

async fn carry(
    export: &Export,
    target: &mut TargetDatabase,
    report: &mut impl FnMut(CopyProgress),
) -> Result<(), CopyError> {
    let endpoints = export.endpoints()?;
    for stage in &STAGES {
        let total = export.number(&format!("SELECT count(*) FROM {}", stage.table))? as u64;
        let mut above = target.position(stage.name).await?;
        let sql = format!(
            "SELECT count(*) FROM {} WHERE {} <= {above}",
            stage.table, stage.key
        );
        let mut done = export.number(&sql)? as u64;
        report(CopyProgress {
            what: stage.name,
            done,
            total,
        });
        while let Some(piece) = stage.next_piece(export, above)? {
            let parts = stage.read(export, piece, &endpoints)?;
            target.write(stage.name, piece.up_to, parts).await?;
            above = piece.up_to;
            done += piece.rows;
            report(CopyProgress {
                what: stage.name,
                done,
                total,
            });
        }
    }
    target.finish(export).await
}

async fn compared(export: &Export, target: &TargetDatabase) -> Result<Vec<RowCounts>, CopyError> {
    let mut compared = Vec::new();
    for (what, in_file, in_database) in COUNTED {
        compared.push(RowCounts {
            what,
            from: export.number(in_file)?,
            to: target.number(in_database).await?,
        });
    }
    Ok(compared)
}

fn block<T>(work: impl Future<Output = Result<T, CopyError>>) -> Result<T, CopyError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CopyError::Read(error.to_string()))?;
    LocalSet::new().block_on(&runtime, work)
}
