//! The command line.
//!
//! [`args`] says what may be asked, each command has a module that answers, and [`output`] is the
//! only place that prints. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

pub mod args;
pub mod bench;
pub mod explain;
pub mod failure;
pub mod output;
pub mod rate;
pub mod simulate;
pub mod source;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, PolicyCommand};
use failure::Failure;

/// Reads the arguments, does what they ask, and says how it went.
pub fn run() -> ExitCode {
    match obey(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn obey(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Policy { command } => match command {
            PolicyCommand::Explain(args) => explain::run(&args),
            PolicyCommand::Simulate(args) => simulate::run(&args),
        },
        Command::Bench(args) => bench::run(&args),
        Command::BenchRelay => bench::relay(),
    }
}
