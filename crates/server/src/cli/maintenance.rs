//! `posthaste backup` and `posthaste rotate-master-key`: maintenance of a server's files.

use std::path::PathBuf;

use clap::Args;
use posthaste_engine::vault::rotate_key_file;
use posthaste_store::sqlite;

use super::error::CommandError;
use super::output;
use super::progress;
use crate::config::StoreLocation;

/// Examples in the help.
pub const BACKUP_EXAMPLES: &str = "\
Examples:
  posthaste backup /var/backups/posthaste-today.db
  posthaste backup --store sqlite:/var/lib/posthaste/posthaste.db today.db

The server may be running. The copy contains everything acknowledged before the backup started.
Its secrets are encrypted: also back up the master key (posthaste.db.key, or
POSTHASTE_MASTER_KEY), in another place. To restore, stop the server, replace the store with the
copy, and delete its -wal and -shm files.

Back up a PostgreSQL database with its own tools, such as pg_dump.";

/// `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Backup file to create; it must not exist yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Store to back up
    #[arg(
        long,
        value_name = "STORE",
        default_value = "sqlite:posthaste.db",
        env = "POSTHASTE_STORE"
    )]
    pub store: StoreLocation,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Copies the store.
pub fn backup(args: &BackupArgs) -> Result<(), CommandError> {
    let from = match &args.store {
        StoreLocation::Sqlite(from) => from,
        StoreLocation::Postgres(url) => {
            return Err(CommandError::BackupOfDatabase(url.to_string()));
        }
    };
    let bar = progress::bar(0, "bytes copied");
    let copied = sqlite::backup(from, &args.file, |done, total| {
        bar.set_length(total);
        bar.set_position(done.min(total));
    });
    bar.finish_and_clear();
    copied.map_err(CommandError::Backup)?;
    let bytes = args.file.metadata().map_or(0, |file| file.len());
    let file = args.file.display().to_string();
    if args.json {
        let report = serde_json::json!({"file": file, "bytes": bytes});
        return output::print_raw(&format!("{report}\n"));
    }
    output::print(&format!(
        "{file}: {bytes} bytes. Keep the master key as well: without it the secrets cannot be decrypted.\n"
    ))
}

/// Examples in the help.
pub const ROTATE_EXAMPLES: &str = "\
Examples:
  posthaste rotate-master-key posthaste.db.key

A running server does not read the file again. The next start encrypts all secrets with the new
key and logs when that is done; then you can remove the older lines of the file. Older backups
still need them.";

/// `rotate-master-key`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// File with the master keys
    #[arg(
        value_name = "FILE",
        default_value = "posthaste.db.key",
        env = "POSTHASTE_MASTER_KEY_FILE"
    )]
    pub file: PathBuf,
}

/// Inserts a new key before the existing ones in the file.
pub fn rotate_master_key(args: &RotateArgs) -> Result<(), CommandError> {
    let key = rotate_key_file(&args.file).map_err(CommandError::MasterKeyFile)?;
    let file = args.file.display();
    output::print(&format!(
        "{file}: key {key} is now the first. Restart the server to encrypt all secrets with it.\n"
    ))
}
