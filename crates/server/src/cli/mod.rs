//! The command line.
//!
//! [`args`] says what may be asked, each command has a module that answers, and [`output`] is the
//! only place that prints. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

pub mod args;
pub mod bench;
pub mod completions;
pub mod demo;
pub mod explain;
pub mod failure;
pub mod listen;
pub mod output;
pub mod progress;
pub mod rate;
pub mod remote;
pub mod serve;
pub mod serve_args;
pub mod simulate;
pub mod source;
pub mod table;
pub mod upkeep;

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
        Command::RotateMasterKey(args) => upkeep::rotate_master_key(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
