//! The command line.
//!
//! [`args`] defines the arguments, each command has its own module, and [`output`] is the only module that prints.
//! Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

pub mod advice;
pub mod args;
pub mod bench;
pub mod completions;
pub mod copy;
pub mod demo;
pub mod explain;
pub mod failure;
pub mod listen;
pub mod mail;
pub mod output;
pub mod progress;
pub mod remote;
pub mod serve;
pub mod serve_args;
pub mod simulate;
pub mod source;
pub mod table;
pub mod upkeep;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use posthaste_core::quoted::MAX_QUOTED_CHARS;

use args::{Cli, Command, PolicyCommand};
use copy::StoreCommand;
use failure::Failure;
use mail::MailCommand;

/// Parses the arguments, runs the command, and returns the exit code.
pub fn run() -> ExitCode {
    match run_command(parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Parses the arguments, or prints the error and exits.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        hide(&mut error);
        error.exit()
    })
}

/// Removes long values from an error message: they may be a secret that was typed in the wrong place.
fn hide(error: &mut clap::Error) {
    let places = [
        ContextKind::InvalidValue,
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidArg,
    ];
    for place in places {
        let Some(ContextValue::String(typed)) = error.get(place) else {
            continue;
        };
        let is_flag = place == ContextKind::InvalidArg && typed.starts_with('-');
        if !is_flag && typed.chars().count() > MAX_QUOTED_CHARS {
            error.insert(place, ContextValue::String("…".to_owned()));
        }
    }
}

fn run_command(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Policy { command } => match command {
            PolicyCommand::Explain(args) => explain::run(&args),
            PolicyCommand::Simulate(args) => simulate::run(&args),
        },
        Command::Bench(args) => bench::run(&args),
        Command::BenchRelay => bench::relay(),
        Command::Send(args) => remote::run_send(&args),
        Command::Listen(args) => listen::run(args),
        Command::Remote(asked) => remote::run(asked),
        Command::Backup(args) => upkeep::backup(&args),
        Command::Store { command } => match command {
            StoreCommand::Copy(args) => copy::run(&args),
        },
        Command::Mail { command } => match command {
            MailCommand::Test(args) => mail::test(&args),
        },
        Command::RotateMasterKey(args) => upkeep::rotate_master_key(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
