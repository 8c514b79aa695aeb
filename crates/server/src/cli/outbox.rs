//! `posthaste outbox sql` and `posthaste outbox check`: set up an outbox in the database of an application.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use posthaste_store::postgres::outbox_table::{self, CheckState, OutboxCheck, TableName};
use serde_json::json;

use super::error::CommandError;
use super::output;
use super::runtime;
use crate::config::{Config, Flags, OutboxConfig};

/// Examples in the help.
const SQL_EXAMPLES: &str = "\
Examples:
  posthaste outbox sql | psql postgres://owner@db.example/shop
  posthaste outbox sql --table billing.posthaste_outbox

The command only prints SQL; it does not connect to a database. The application then inserts rows in its own transactions:
  INSERT INTO posthaste_outbox (tenant, type, payload) VALUES ('acme', 'invoice.paid', '{\"id\": 7}');";

/// Examples in the help.
const CHECK_EXAMPLES: &str = "\
Examples:
  posthaste outbox check --config posthaste.toml
  posthaste outbox check orders --config posthaste.toml --json

The check changes nothing, and the server may be running.

Exit codes: 0 every outbox can be read, 1 one cannot, 2 wrong usage or configuration.";

/// Commands for outboxes.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// Print the SQL of the table, its index and its trigger
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArgs),
    /// Check connection, table and permissions of each outbox in the configuration
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

/// `outbox sql`.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// Name of the table, optionally with its schema
    #[arg(long, value_name = "TABLE", default_value = outbox_table::DEFAULT_TABLE)]
    pub table: TableName,
}

/// `outbox check`.
#[derive(Args)]
pub struct CheckArgs {
    /// Name of one outbox; without it, all are checked
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Settings from a TOML file [env: POSTHASTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

impl std::fmt::Debug for CheckArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckArgs")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Prints the SQL.
pub fn sql(args: &SqlArgs) -> Result<(), CommandError> {
    output::print_raw(&outbox_table::setup_sql(&args.table))
}

/// Checks the outboxes one after the other.
pub fn check(args: &CheckArgs) -> Result<(), CommandError> {
    let flags = Flags {
        config: args.config.clone(),
        ..Flags::default()
    };
    let config = Config::load(flags, std::env::vars_os()).map_err(CommandError::Config)?;
    let outboxes = selected(&config, args.name.as_deref())?;
    let runtime = runtime::multi_threaded()?;
    let mut failed = Vec::new();
    for outbox in outboxes {
        let source = outbox.source();
        let checks = runtime.block_on(outbox_table::check(&source));
        if checks.iter().any(|check| check.state == CheckState::Failed) {
            failed.push(outbox.name.as_str());
        }
        match args.json {
            true => output::print_raw(&as_json(outbox, &checks))?,
            false => output::print(&as_text(outbox, &checks))?,
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let failed = failed.join(", ");
    Err(CommandError::OutcomeFailed(format!(
        "cannot be read: {failed}"
    )))
}

fn selected<'a>(
    config: &'a Config,
    name: Option<&str>,
) -> Result<Vec<&'a OutboxConfig>, CommandError> {
    let matches = |outbox: &&OutboxConfig| name.is_none_or(|name| outbox.name == name);
    let outboxes: Vec<&OutboxConfig> = config.outboxes.iter().filter(matches).collect();
    match (outboxes.is_empty(), name) {
        (false, _) => Ok(outboxes),
        (true, Some(name)) => Err(CommandError::Input(format!(
            "the configuration has no outbox named {name:?}"
        ))),
        (true, None) => Err(CommandError::Input(
            "the configuration has no outbox: add [[outbox]] with name and database to the file"
                .to_owned(),
        )),
    }
}

fn word(state: CheckState) -> &'static str {
    match state {
        CheckState::Ok => "ok",
        CheckState::Warning => "warning",
        CheckState::Failed => "failed",
    }
}

fn as_text(outbox: &OutboxConfig, checks: &[OutboxCheck]) -> String {
    let mut text = format!("{}: {} in {}\n", outbox.name, outbox.table, outbox.database);
    for check in checks {
        let (state, subject) = (word(check.state), check.subject);
        text.push_str(&format!("  {state:<8} {subject:<12} {}\n", check.detail));
    }
    text
}

fn as_json(outbox: &OutboxConfig, checks: &[OutboxCheck]) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| json!({"subject": check.subject, "state": word(check.state), "detail": check.detail}))
        .collect();
    let report = json!({
        "outbox": outbox.name,
        "database": outbox.database.to_string(),
        "table": outbox.table.to_string(),
        "checks": checks,
    });
    format!("{report}\n")
}
