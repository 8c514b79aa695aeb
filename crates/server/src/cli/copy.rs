//! `posthaste store copy`: copies all data from a SQLite file to a PostgreSQL database.
//!
//! The store does the copying. This module checks the arguments, shows the progress and says where the master keys must
//! be afterwards. `--verify` only compares the counts of both stores.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use posthaste_charts::{format, terminal};
use posthaste_engine::database::{EgressDialer, with_password};
use posthaste_engine::vault::key_file_text;
use posthaste_store::copy::{self, CopyDestination, CopyProgress, RowCounts};
use serde_json::json;

use super::error::CommandError;
use super::output;
use super::progress;
use crate::config::StoreLocation;

/// Examples in the help.
pub const COPY_EXAMPLES: &str = "\
Examples:
  posthaste store copy sqlite:posthaste.db postgres://posthaste@db.example/posthaste
  posthaste store copy sqlite:posthaste.db postgres://… --place-key posthaste.db.key
  posthaste store copy sqlite:posthaste.db postgres://… --verify

Stop the server first. The file is locked while it is copied, and not changed. The database must be
empty, or contain an interrupted copy of this file, which is continued. At the end the rows of both
sides are counted; if the counts differ, the exit code is 1. --verify only compares the counts.

Secrets stay encrypted with the same master key, which every node needs: set POSTHASTE_MASTER_KEY
or master_key_file on each, or store the keys in the database with --place-key.";

/// Commands for stores.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy a SQLite store to a PostgreSQL database
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyArgs),
}

/// `store copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Source, as sqlite:FILE
    #[arg(value_name = "FROM")]
    pub from: StoreLocation,
    /// Target, as postgres://…
    #[arg(value_name = "TO")]
    pub to: StoreLocation,
    /// Only compare the counts of both stores
    #[arg(long)]
    pub verify: bool,
    /// Store the master keys of this file in the database, for all its nodes
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    pub place_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Copies the store, or only compares the counts of both stores.
pub fn run(args: &CopyArgs) -> Result<(), CommandError> {
    let StoreLocation::Sqlite(from) = &args.from else {
        return Err(CommandError::WrongStoreKind(
            "FROM must be a file: sqlite:FILE",
        ));
    };
    let StoreLocation::Postgres(to) = &args.to else {
        return Err(CommandError::WrongStoreKind(
            "TO must be a database: postgres://…",
        ));
    };
    let to = CopyDestination {
        server: with_password(to.server()),
        dial: Arc::new(EgressDialer),
    };
    // Read before anything is written, so that an unreadable key file is reported first.
    let keys = args.place_key.as_deref().map(key_file_text).transpose();
    let keys = keys.map_err(CommandError::MasterKeyFile)?;
    let counts = if args.verify {
        copy::verify(from, &to)
    } else {
        let mut reporter = ProgressReporter::new();
        copy::copy(from, &to, |progress| reporter.update(progress))
    };
    let counts = counts.map_err(CommandError::Copy)?;
    let agree = counts.iter().all(RowCounts::agrees);
    let key = if args.verify {
        KeyLocation::NotRequested
    } else {
        copy_master_keys(&to, keys.as_deref())?
    };
    output::print(&report(&counts, key, from, args.json))?;
    if agree {
        Ok(())
    } else {
        Err(CommandError::CountsDiffer)
    }
}

/// The location of the master key after a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyLocation {
    /// Not requested.
    NotRequested,
    /// Written to the database now.
    Placed,
    /// In the database already.
    AlreadyInDatabase,
    /// Not in the database.
    Elsewhere,
}

fn copy_master_keys(to: &CopyDestination, keys: Option<&str>) -> Result<KeyLocation, CommandError> {
    let placed = match keys {
        Some(keys) => copy::copy_master_keys(to, keys).map_err(CommandError::Copy)?,
        None => false,
    };
    if placed {
        return Ok(KeyLocation::Placed);
    }
    match copy::shared_keys(to).map_err(CommandError::Copy)? {
        Some(_) => Ok(KeyLocation::AlreadyInDatabase),
        None => Ok(KeyLocation::Elsewhere),
    }
}

/// Formats the result as text or JSON.
fn report(counts: &[RowCounts], key: KeyLocation, from: &Path, json: bool) -> String {
    if json {
        let rows = counts.iter().map(|kind| {
            json!({"what": kind.what, "from": kind.from, "to": kind.to, "agrees": kind.agrees()})
        });
        let agree = counts.iter().all(RowCounts::agrees);
        let document = json!({"agrees": agree, "counts": rows.collect::<Vec<_>>()});
        return format!("{document}\n");
    }
    let count = |number: i64| format::count(number.max(0) as u64);
    let rows: Vec<Vec<String>> = counts
        .iter()
        .map(|kind| {
            let verdict = if kind.agrees() { "" } else { "differs" };
            vec![
                kind.what.to_owned(),
                count(kind.from),
                count(kind.to),
                verdict.to_owned(),
            ]
        })
        .collect();
    let mut page = terminal::table(&["", "from", "to", ""], &rows, output::width());
    let file = format!("{}.key", from.display());
    match key {
        KeyLocation::NotRequested => {}
        KeyLocation::Placed => page.push_str("\nThe master keys were copied to the database, for all its nodes.\n"),
        KeyLocation::AlreadyInDatabase => page.push_str(
            "\nThe database already has master keys. If they differ from those of the file, configure the file's keys on every node.\n",
        ),
        KeyLocation::Elsewhere => page.push_str(&format!(
            "\nConfigure the master key of these secrets on every node ({file}, or POSTHASTE_MASTER_KEY), or run this\n\
             again with --place-key {file} to store it in the database.\n"
        )),
    }
    page
}

/// Shows the progress: a bar on a terminal, else one line per ten percent.
struct ProgressReporter {
    bar: Option<ProgressBar>,
    what: &'static str,
    tenths: u64,
}

impl ProgressReporter {
    fn new() -> ProgressReporter {
        ProgressReporter {
            bar: std::io::stderr()
                .is_terminal()
                .then(|| progress::bar(0, "")),
            what: "",
            tenths: 0,
        }
    }

    fn update(&mut self, progress: CopyProgress) {
        if let Some(bar) = &self.bar {
            bar.set_message(progress.what);
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            return;
        }
        let tenths = match progress.total {
            0 => 10,
            total => progress.done * 10 / total,
        };
        if progress.what != self.what || tenths > self.tenths {
            self.what = progress.what;
            self.tenths = tenths;
            let (done, total) = (format::count(progress.done), format::count(progress.total));
            output::print_hint(&format!("{}: {done} of {total}", progress.what));
        }
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
