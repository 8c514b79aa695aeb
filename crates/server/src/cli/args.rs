//! The command line's arguments.
//!
//! [`Cli`] is the whole command line and [`Command`] the selected command. The arguments of each command are in its own
//! module.

use clap::{Parser, Subcommand};

use super::admin_key::AdminKeyCommand;
use super::api_commands::{ApiCommand, RequestArgs, SendArgs};
use super::bench::{self, BenchArgs};
use super::completions::CompletionsArgs;
use super::copy::StoreCommand;
use super::demo::DemoArgs;
use super::listen::ListenArgs;
use super::mail::MailCommand;
use super::maintenance::{BACKUP_EXAMPLES, BackupArgs, ROTATE_EXAMPLES, RotateArgs};
use super::outbox::OutboxCommand;
use super::policy::PolicyCommand;
use super::serve_args::{SERVE_EXAMPLES, ServeArgs};

/// First steps for new users, below the help.
const FIRST_STEPS: &str = "\
Start with `posthaste demo`, or run a server and a local receiver:
  posthaste serve --allow-http --allow-network 127.0.0.0/8
  posthaste listen
Every command has examples in its help: posthaste send --help";

/// Webhook delivery server
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, arg_required_else_help = true, after_help = FIRST_STEPS)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Run a demo: a server, failing receivers and traffic
    Demo(DemoArgs),
    /// Explain or simulate a retry policy
    #[command(arg_required_else_help = true)]
    Policy {
        /// The command.
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Run the benchmark: throughput, latency and cost of deliveries
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// The baseline that the benchmark compares with
    #[command(hide = true)]
    BenchRelay,
    /// Send an event, and optionally follow its deliveries
    Send(Box<SendArgs>),
    /// Send a one-off request to a URL, now or later, and optionally follow its delivery
    Request(Box<RequestArgs>),
    /// Run a local receiver that verifies and prints webhooks, and can simulate failures
    Listen(ListenArgs),
    /// Commands that call the API.
    #[command(flatten)]
    Remote(ApiCommand),
    /// Back up a SQLite store to a file; the server may be running
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Copy a SQLite store to PostgreSQL
    #[command(arg_required_else_help = true)]
    Store {
        /// The command.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Send a test email
    #[command(arg_required_else_help = true)]
    Mail {
        /// The command.
        #[command(subcommand)]
        command: MailCommand,
    },
    /// Print the SQL for an outbox, and check outboxes
    #[command(arg_required_else_help = true)]
    Outbox {
        /// The command.
        #[command(subcommand)]
        command: OutboxCommand,
    },
    /// Replace a lost admin key
    #[command(arg_required_else_help = true)]
    AdminKey {
        /// The command.
        #[command(subcommand)]
        command: AdminKeyCommand,
    },
    /// Add a new master key; the next start encrypts all secrets with it
    #[command(after_help = ROTATE_EXAMPLES)]
    RotateMasterKey(RotateArgs),
    /// Print a shell completion script
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
