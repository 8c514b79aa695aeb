//! Carrying a whole store from a SQLite file to a PostgreSQL database.
//!
//! It promises:
//!
//! - **Everything, as it was.** Tenants, keys, endpoints with standing and health, events with their payloads,
//!   idempotency keys, deliveries of every state with their attempts, usage, replays, notices, failures that nobody was told
//!   of, letters, the audit, alerts. Ids, times and revisions are kept;
//!   secrets stay sealed as they were. Only passes and figures stay behind: people sign in again, links into the portal
//!   are made anew in a moment, and figures would be over in a day.
//! - **Nobody in between.** The file is locked and only read; the database is kept from nodes until all of it is there.
//! - **Takes up where it was interrupted.** Rows and the mark of how far they reach are committed together. What was begun
//!   from another file, or from this one before it changed, is not gone on with.
//! - **Counted on both sides.** At the end, and whenever it is asked for.
//!
//! ```text
//!  file (locked, read) ─▶ a piece of rows ─▶ one transaction: rows, mark ─▶ … ─▶ tally, numbers, done ─▶ compare
//! ```

mod columns;
mod counted;
mod stages;
mod target;

use std::path::Path;
use std::sync::Arc;

use tokio::runtime;
use tokio::task::LocalSet;

use crate::OpenError;
use crate::postgres::{Dial, ServerUrl};
use crate::sqlite::Export;
use counted::COUNTED;
use stages::STAGES;
use target::{Mark, Target};

/// Where to, and how that is reached.
#[derive(Clone)]
pub struct Destination {
    /// The database.
    pub server: ServerUrl,
    /// Opens the way to it.
    pub dial: Arc<dyn Dial>,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being carried, such as "events".
    pub what: &'static str,
    /// How many rows of it are there.
    pub done: u64,
    /// How many there will be.
    pub total: u64,
}

/// One kind of row, counted on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// What it is.
    pub what: &'static str,
    /// How many the file has.
    pub from: i64,
    /// How many the database has.
    pub to: i64,
}

impl Compared {
    /// Whether both sides agree.
    pub fn agrees(&self) -> bool {
        self.from == self.to
    }
}

/// Why a store is not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the two cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The file cannot be read.
    #[error("cannot read what is to be copied: {0}")]
    Read(String),
    /// The database refuses, or was lost.
    #[error("{server}: {why}; what was copied so far is kept: run the same command again to go on")]
    Write {
        /// The database, without a password.
        server: String,
        /// What it said.
        why: String,
    },
    /// There is something in it.
    #[error("{server} holds {what} already; copy into an empty database")]
    NotEmpty {
        /// The database, without a password.
        server: String,
        /// What it holds.
        what: &'static str,
    },
    /// Somebody else's copy was begun there.
    #[error(
        "{server} holds a copy that was begun from another file, or from this one before it changed; \
         drop the database, create it again and begin anew"
    )]
    AnotherCopy {
        /// The database, without a password.
        server: String,
    },
    /// A server runs on it, or another copy.
    #[error("{server} is in use by a server or by another copy; stop that first")]
    InUse {
        /// The database, without a password.
        server: String,
    },
    /// There is nothing to compare with.
    #[error("nothing was copied to {server} yet")]
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

/// Copies a file into an empty database, or goes on where that was interrupted, and compares. Blocks.
pub fn copy(
    from: &Path,
    to: &Destination,
    mut tell: impl FnMut(Progress),
) -> Result<Vec<Compared>, CopyError> {
    let export = Export::open(from)?;
    block(async {
        let mut target = Target::open(to).await?;
        let fingerprint = export.fingerprint()?;
        match target.mark().await? {
            Mark::Done(of) if of == fingerprint => {}
            Mark::Done(_) => return Err(target.another_copy()),
            Mark::Begun(of) if of != fingerprint => return Err(target.another_copy()),
            Mark::None => {
                if let Some(what) = target.holds().await? {
                    return Err(target.holds_already(what));
                }
                target.begin(fingerprint).await?;
                carry(&export, &mut target, &mut tell).await?;
            }
            Mark::Begun(_) => carry(&export, &mut target, &mut tell).await?,
        }
        compared(&export, &target).await
    })
}

/// Counts both sides, and changes nothing. Blocks.
pub fn verify(from: &Path, to: &Destination) -> Result<Vec<Compared>, CopyError> {
    let export = Export::open(from)?;
    block(async {
        let target = Target::look(to).await?;
        match target.mark().await? {
            Mark::None => Err(target.not_begun()),
            Mark::Begun(_) | Mark::Done(_) => compared(&export, &target).await,
        }
    })
}

/// The master keys that the nodes of a database share, if some were placed there. Blocks.
pub fn shared_keys(to: &Destination) -> Result<Option<String>, CopyError> {
    block(async { Target::look(to).await?.shared_keys().await })
}

/// Places master keys for all nodes of a database, unless some are there. Says whether it did. Blocks.
pub fn place_keys(to: &Destination, keys: &str) -> Result<bool, CopyError> {
    block(async { Target::look(to).await?.place_keys(keys).await })
}

async fn carry(
    export: &Export,
    target: &mut Target,
    tell: &mut impl FnMut(Progress),
) -> Result<(), CopyError> {
    let endpoints = export.endpoints()?;
    for stage in &STAGES {
        let total = export.number(&format!("SELECT count(*) FROM {}", stage.table))? as u64;
        let mut above = target.reached(stage.name).await?;
        let sql = format!(
            "SELECT count(*) FROM {} WHERE {} <= {above}",
            stage.table, stage.key
        );
        let mut done = export.number(&sql)? as u64;
        tell(Progress {
            what: stage.name,
            done,
            total,
        });
        while let Some(piece) = stage.next_piece(export, above)? {
            let parts = stage.read(export, piece, &endpoints)?;
            target.write(stage.name, piece.up_to, parts).await?;
            above = piece.up_to;
            done += piece.rows;
            tell(Progress {
                what: stage.name,
                done,
                total,
            });
        }
    }
    target.finish(export).await
}

async fn compared(export: &Export, target: &Target) -> Result<Vec<Compared>, CopyError> {
    let mut compared = Vec::new();
    for (what, in_file, in_database) in COUNTED {
        compared.push(Compared {
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
