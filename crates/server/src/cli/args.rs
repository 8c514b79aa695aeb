//! The command line's arguments: [`Cli`], [`Command`] and the arguments of local commands.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use posthaste_api::rate;
use posthaste_core::forecast::{MAX_OUTAGE, MAX_PENDING};
use posthaste_core::lane::{DEFAULT_MAX_IN_FLIGHT, MAX_BURST, MAX_IN_FLIGHT, RateLimit};
use posthaste_core::policy::Preset;
use posthaste_core::time::Span;

use super::bench::{self, BenchArgs};
use super::completions::CompletionsArgs;
use super::copy::StoreCommand;
use super::demo::DemoArgs;
use super::listen::ListenArgs;
use super::mail::MailCommand;
use super::remote::args::ApiCommand;
use super::remote::send::SendArgs;
use super::serve_args::{SERVE_EXAMPLES, ServeArgs};
use super::upkeep::{BACKUP_EXAMPLES, BackupArgs, ROTATE_EXAMPLES, RotateArgs};

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
    /// Put a new key in front of the master keys; the next start seals everything with it
    #[command(after_help = ROTATE_EXAMPLES)]
    RotateMasterKey(RotateArgs),
    /// Print a script that lets a shell complete the command line
    Completions(CompletionsArgs),
}

/// Ways to look at a retry policy.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// When each attempt comes, in words, as a table and as a picture
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// What happens to pending deliveries when a receiver is down and comes back
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  posthaste policy explain
  posthaste policy explain --preset swift
  posthaste policy explain --file policy.toml --json
  posthaste policy explain --preset steady --svg steady.svg

A policy file is JSON or TOML:
  {\"preset\": \"swift\", \"max_attempts\": 6}
  {\"backoff\": {\"kind\": \"exponential\", \"base\": \"1s\", \"factor\": 2, \"cap\": \"1h\"},
   \"jitter\": {\"kind\": \"full\"}, \"max_attempts\": 12, \"give_up_after\": \"1d\"}";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  posthaste policy simulate --pending 10000 --outage 30m --capacity 50/s
  posthaste policy simulate --preset brisk --pending 500 --outage 4h --capacity 600/m
  posthaste policy simulate --file - --pending 500 --outage 4h --capacity 50/s --rate 20/s
  posthaste policy simulate --pending 10000 --outage 30m --capacity 50/s --svg outage.svg

The naive sender beside posthaste tries everything again every minute, all at once, for three days.
The same seed plays the same.";

/// Where the policy comes from.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// A policy by its name [default: recommended]
    #[arg(long, value_name = "NAME", value_parser = preset())]
    pub preset: Option<Preset>,
    /// A policy in a JSON or TOML file; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub file: Option<PathBuf>,
}

/// What the answer looks like.
#[derive(Debug, Args)]
pub struct ShapeArgs {
    /// Answer in JSON
    #[arg(long, conflicts_with = "svg")]
    pub json: bool,
    /// Write a picture into a file, instead of the answer; - writes to standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `policy explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Where the policy comes from.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// What the answer looks like.
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// `policy simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Where the policy comes from.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Deliveries due when the outage begins
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true,
          value_parser = whole(0, MAX_PENDING))]
    pub pending: u32,
    /// How long the receiver is down, such as 90s, 30m or 1d12h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = outage)]
    pub outage: Span,
    /// What the receiver takes when it is back, such as 50/s or 600/m
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = rate::capacity)]
    pub capacity: f64,
    /// At most so many requests at once
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_IN_FLIGHT,
          allow_hyphen_values = true, value_parser = whole(1, MAX_IN_FLIGHT))]
    pub max_in_flight: u32,
    /// At most so many requests a second, such as 50/s or 600/m
    #[arg(long, value_name = "RATE", default_value = "50/s", allow_hyphen_values = true,
          value_parser = rate::limit)]
    pub rate: f64,
    /// So many of them at once after a quiet time
    #[arg(long, value_name = "COUNT", default_value_t = RateLimit::default().burst,
          allow_hyphen_values = true, value_parser = whole(1, MAX_BURST))]
    pub burst: u32,
    /// What the dice follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true,
          value_parser = whole(0, u64::MAX))]
    pub seed: u64,
    /// What the answer looks like.
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Parses the name of a preset. The error lists all names.
fn preset() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(Preset::name))
        .map(|name| name.parse().expect("a possible value is a preset"))
}

/// Parses a listen address.
pub(super) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(
        |_| "must be an IP address and a port, such as 127.0.0.1:8421; port 0 picks a free one",
    )
}

/// Parses an integer within bounds. The error states the bounds.
pub(super) fn whole<N>(least: N, most: N) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.parse().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    }
}

fn outage(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|error: posthaste_core::time::SpanError| error.to_string())?;
    if span > MAX_OUTAGE {
        return Err(format!("must be at most {MAX_OUTAGE}, not {span}"));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_limits_are_the_endpoint_s_own_unless_told() {
        let line = "posthaste policy simulate --pending 1 --outage 1s --capacity 1";
        let cli = Cli::parse_from(line.split(' '));
        let Command::Policy {
            command: PolicyCommand::Simulate(args),
        } = cli.command
        else {
            panic!("simulate was asked");
        };
        let rate = RateLimit::default();
        assert_eq!((args.rate, args.burst), (rate.per_second, rate.burst));
        assert_eq!(args.max_in_flight, DEFAULT_MAX_IN_FLIGHT);
    }

    #[test]
    fn counts_are_whole() {
        let read = whole(1, 1_000_u32);
        assert_eq!(read("1000"), Ok(1_000));
        for text in ["0", "1001", "-1", "1.5", "1,000", "abc", "", "99999999999"] {
            let told = Err("must be a whole number from 1 to 1000".to_owned());
            assert_eq!(read(text), told, "{text}");
        }
    }

    #[test]
    fn an_outage_has_a_longest() {
        assert_eq!(outage("30d"), Ok(MAX_OUTAGE));
        assert_eq!(
            outage("31d"),
            Err("must be at most 30d, not 31d".to_owned())
        );
        assert!(outage("10 parsecs").is_err_and(|error| error.contains("\"30s\"")));
    }
}
