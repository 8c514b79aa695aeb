//! The command line.
//!
//! [`args`] defines the arguments, each command has its own module, and [`output`] is the only module that prints.
//! [`run`] is the entry point. A command returns a [`CommandError`], which has a message and an exit code.
//! Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

pub mod admin_key;
pub mod api_commands;
pub mod args;
pub mod bench;
pub mod completions;
pub mod confirm;
pub mod copy;
pub mod demo;
pub mod error;
pub mod input;
pub mod listen;
pub mod mail;
pub mod maintenance;
pub mod outbox;
pub mod output;
pub mod policy;
pub mod progress;
pub mod runtime;
pub mod serve;
pub mod serve_args;
pub mod table;
pub mod value_parsers;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use posthaste_core::quoted::MAX_QUOTED_CHARS;

use admin_key::AdminKeyCommand;
use args::{Cli, Command};
use copy::StoreCommand;
use error::CommandError;
use mail::MailCommand;
use outbox::OutboxCommand;

/// Parses the arguments, runs the command, and returns the exit code.
pub fn run() -> ExitCode {
    match run_command(parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_error(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Parses the arguments, or prints the error and exits.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        redact_long_values(&mut error);
        error.exit()
    })
}

/// Removes long values from an error message: they may be a secret that was typed in the wrong place.
fn redact_long_values(error: &mut clap::Error) {
    let kinds = [
        ContextKind::InvalidValue,
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidArg,
    ];
    for kind in kinds {
        let Some(ContextValue::String(typed)) = error.get(kind) else {
            continue;
        };
        let is_flag = kind == ContextKind::InvalidArg && typed.starts_with('-');
        if !is_flag && typed.chars().count() > MAX_QUOTED_CHARS {
            error.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
}

fn run_command(cli: Cli) -> Result<(), CommandError> {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Policy { command } => policy::run(&command),
        Command::Bench(args) => bench::run(&args),
        Command::BenchRelay => bench::relay(),
        Command::Send(args) => api_commands::run_send(&args),
        Command::Request(args) => api_commands::run_request(&args),
        Command::Listen(args) => listen::run(args),
        Command::Remote(command) => api_commands::run(command),
        Command::Backup(args) => maintenance::backup(&args),
        Command::Store { command } => match command {
            StoreCommand::Copy(args) => copy::run(&args),
        },
        Command::Mail { command } => match command {
            MailCommand::Test(args) => mail::test(&args),
        },
        Command::Outbox { command } => match command {
            OutboxCommand::Sql(args) => outbox::sql(&args),
            OutboxCommand::Check(args) => outbox::check(&args),
        },
        Command::AdminKey { command } => match command {
            AdminKeyCommand::Reset(args) => admin_key::reset(&args),
        },
        Command::RotateMasterKey(args) => maintenance::rotate_master_key(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    }
}
