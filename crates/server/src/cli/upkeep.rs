//! `posthaste backup` and `posthaste rotate-master-key`: what an operator does to the files of a server.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use super::output;
use crate::vault::rotate_key_file;

/// Shown below the flags.
pub const ROTATE_EXAMPLES: &str = "\
Examples:
  posthaste rotate-master-key posthaste.db.key

A server that runs goes on with the keys it has. The next start seals everything with the new key;
after that the older lines of the file can be removed.";

/// `rotate-master-key`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// The file that holds the master keys
    #[arg(
        value_name = "FILE",
        default_value = "posthaste.db.key",
        env = "POSTHASTE_MASTER_KEY_FILE"
    )]
    pub file: PathBuf,
}

/// Puts a new key in front of those in the file.
pub fn rotate_master_key(args: &RotateArgs) -> Result<(), Failure> {
    let key = rotate_key_file(&args.file).map_err(Failure::NotRotated)?;
    let file = args.file.display();
    output::print(&format!(
        "{file}: key {key} stands first now. Restart the server to seal everything with it.\n"
    ))
}
