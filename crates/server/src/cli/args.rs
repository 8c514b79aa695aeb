//! The command line's arguments.
//!
//! [`Cli`] is the whole command line and [`Command`] the selected command. The arguments of each command are in its own
//! module.

use clap::{Parser, Subcommand};

use super::bench::{self, BenchArgs};
use super::completions::CompletionsArgs;
use super::copy::StoreCommand;
use super::demo::DemoArgs;
use super::listen::ListenArgs;
use super::mail::MailCommand;
use super::maintenance::{BACKUP_EXAMPLES, BackupArgs, ROTATE_EXAMPLES, RotateArgs};
use super::outbox::OutboxCommand;
use super::policy::PolicyCommand;
use super::remote::{ApiCommand, RequestArgs, SendArgs};
use super::serve_args::{SERVE_EXAMPLES, ServeArgs};

/// First steps for new users, below the help.
const FIRST_STEPS: &str = "\
Begin with `posthaste demo`, or with a server of your own and a receiver beside it:
  posthaste serve --allow-http --allow-network 127.0.0.0/8
  posthaste listen
Each command has examples: posthaste send --help";

/// A webhook delivery server that keeps its word
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, arg_required_else_help = true, after_help = FIRST_STEPS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Watch it at work: a server, misbehaving receivers and traffic, to look at
    Demo(DemoArgs),
    /// Look at a retry policy before it is used
    #[command(arg_required_else_help = true)]
    Policy {
        /// How to look at it.
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Measure how fast, how soon and at what cost events are delivered
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// What the benchmark compares with
    #[command(hide = true)]
    BenchRelay,
    /// Hand over an event, and follow it to its end
    Send(Box<SendArgs>),
    /// Send a one-off request to a URL, now or later, and follow it to its end
    Request(Box<RequestArgs>),
    /// Receive webhooks here: verify, print, and fail as told
    Listen(ListenArgs),
    /// The API from a terminal.
    #[command(flatten)]
    Remote(ApiCommand),
    /// Copy the store to a file, while the server runs or not
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Move from one store to another
    #[command(arg_required_else_help = true)]
    Store {
        /// What to do with it.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// See whether letters arrive
    #[command(arg_required_else_help = true)]
    Mail {
        /// What to do about them.
        #[command(subcommand)]
        command: MailCommand,
    },
    /// Take events from a table of an application's database
    #[command(arg_required_else_help = true)]
    Outbox {
        /// What to do about it.
        #[command(subcommand)]
        command: OutboxCommand,
    },
    /// Put a new key in front of the master keys; the next start seals everything with it
    #[command(after_help = ROTATE_EXAMPLES)]
    RotateMasterKey(RotateArgs),
    /// Print a script that lets a shell complete the command line
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use posthaste_core::lane::{DEFAULT_MAX_IN_FLIGHT, RateLimit};

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_default_limits_are_those_of_an_endpoint() {
        let line = "posthaste policy simulate --pending 1 --outage 1s --capacity 1";
        let cli = Cli::parse_from(line.split(' '));
        let Command::Policy {
            command: PolicyCommand::Simulate(args),
        } = cli.command
        else {
            panic!("the command is policy simulate");
        };
        let rate = RateLimit::default();
        assert_eq!((args.rate, args.burst), (rate.per_second, rate.burst));
        assert_eq!(args.max_in_flight, DEFAULT_MAX_IN_FLIGHT);
    }
}
