//! `posthaste admin-key reset`: replaces lost admin keys.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::confirm::confirm;
use super::error::CommandError;
use super::{output, runtime};
use crate::config::{Config, Flags};
use crate::node::{NodeSettings, reset_admin_keys};

/// Examples in the help.
pub const RESET_EXAMPLES: &str = "\
Examples:
  posthaste admin-key reset
  posthaste admin-key reset --store sqlite:/var/lib/posthaste/posthaste.db
  posthaste admin-key reset --config posthaste.toml --yes

Prints a new admin key, once, and revokes all other admin keys. Keys of tenants stay valid.
Stop a server with a SQLite store first. The nodes of a PostgreSQL store may be running.
An admin key in the configuration (admin_key, POSTHASTE_ADMIN_KEY) is not changed.";

/// Commands for admin keys.
#[derive(Debug, Subcommand)]
pub enum AdminKeyCommand {
    /// Replace lost admin keys with a new one
    #[command(after_help = RESET_EXAMPLES)]
    Reset(ResetArgs),
}

/// `admin-key reset`.
#[derive(Args)]
pub struct ResetArgs {
    /// Settings from a TOML file [env: POSTHASTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Store: sqlite:FILE, or postgres://… [default: sqlite:posthaste.db] [env: POSTHASTE_STORE]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Reset without asking
    #[arg(long)]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl std::fmt::Debug for ResetArgs {
    /// Omits the store, whose URL may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResetArgs")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Replaces the admin keys, and prints the new one.
pub fn reset(args: &ResetArgs) -> Result<(), CommandError> {
    let store = args.store.clone().map(|store| ("store", store));
    let flags = Flags {
        config: args.config.clone(),
        given: store.into_iter().collect(),
        set: Vec::new(),
    };
    let config = Config::load(flags, std::env::vars_os()).map_err(CommandError::Config)?;
    let settings = NodeSettings::from_config(&config)?;
    let has_configured_key = !settings.api.admin_keys.is_empty();
    if !args.yes {
        confirm("Revoke all admin keys and create a new one")?;
    }
    let done = runtime::multi_threaded()?.block_on(reset_admin_keys(settings))?;
    let (key, revoked) = (done.key, done.revoked);
    if args.json {
        return output::print_raw(&format!("{}\n", json!({"key": key, "revoked": revoked})));
    }
    output::print_notice(&format!(
        "The new admin key. It is not shown again. Admin keys revoked: {revoked}.\n"
    ));
    output::print_raw(&format!("{key}\n"))?;
    if has_configured_key {
        output::print_hint(
            "the admin key in the configuration stays valid: change it there if it was disclosed",
        );
    }
    Ok(())
}
