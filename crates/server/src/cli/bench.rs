//! `posthaste bench`: arguments and output of the benchmark.
//!
//! [`BenchArgs`] become the settings of the crate `bench`, which measures. The hidden argument for one side only is for
//! those who work on the relay or the server.

use clap::Args;
use posthaste_api::rate;
use posthaste_bench as bench;
use posthaste_bench::measured_process::ProcessKind;
use posthaste_bench::payload::{MAX_PAYLOAD_BYTES, MIN_PAYLOAD_BYTES};
use posthaste_bench::settings::{MAX_ENDPOINTS, MAX_EVENTS, Scenario, Settings};
use posthaste_charts::terminal;
use posthaste_core::lane::MAX_PER_SECOND;

use super::error::CommandError;
use super::output;
use super::value_parsers::whole;

/// Maximum number of outstanding requests of the producers.
const MAX_CONNECTIONS: usize = 1_000;
/// Maximum number of rounds.
const MAX_ROUNDS: usize = 100;

/// Examples in the help.
pub const EXAMPLES: &str = "\
Examples:
  posthaste bench
  posthaste bench --endpoints 10 --events 20000
  posthaste bench --scenario hanging --json
  posthaste bench --set log.level=warn
  posthaste bench --scenario partial-failure
  posthaste bench --scenario hostile-callers
  posthaste bench --scenario schedules
  posthaste bench --scenario history --events 5000000 --store sqlite:/data/bench.db
  posthaste bench --store postgres://postgres@127.0.0.1:5432/postgres
  posthaste bench --scenario nodes --scenario flat --store postgres://postgres@127.0.0.1:5432/postgres
  posthaste bench --scenario outbox --store postgres://postgres@127.0.0.1:5432/postgres

Without --scenario it runs throughput, lag and door. Build with --release, and run it on an otherwise
idle machine. Every event must arrive exactly once at every endpoint; otherwise the benchmark fails
and names the event.";

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Store of the server: a new sqlite:FILE, or postgres://… of a server on which databases
    /// are created and dropped [default: a temporary file]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Number of events; each scenario has its own default
    #[arg(long, value_name = "COUNT", value_parser = whole(1, MAX_EVENTS))]
    pub events: Option<usize>,
    /// Endpoints per event
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole(1, MAX_ENDPOINTS))]
    pub endpoints: usize,
    /// Payload size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 500,
          value_parser = whole(MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES))]
    pub payload: usize,
    /// Concurrent requests of the producers
    #[arg(long, value_name = "COUNT", default_value_t = 64,
          value_parser = whole(1, MAX_CONNECTIONS))]
    pub connections: usize,
    /// Rounds of relay and server
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole(1, MAX_ROUNDS))]
    pub rounds: usize,
    /// Events per second of paced scenarios
    #[arg(long, value_name = "RATE", default_value = "100/s", value_parser = rate::limit)]
    pub rate: f64,
    /// Random seed of the receivers' failures in partial-failure
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Setting of the server, as in `serve --set`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Scenario to run; may be repeated
    #[arg(long, value_name = "NAME", value_enum)]
    pub scenario: Vec<Scenario>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Run only the relay or only the server
    #[arg(long, hide = true, value_enum)]
    pub only: Option<MeasuredSide>,
}

/// The measured side, for development.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum MeasuredSide {
    /// The raw relay, without store and engine
    Relay,
    /// The server
    Server,
}

impl BenchArgs {
    fn settings(&self) -> Settings {
        let scenarios = match self.scenario.as_slice() {
            [] => vec![Scenario::Throughput, Scenario::Lag, Scenario::Door],
            chosen => chosen.to_vec(),
        };
        Settings {
            store: self.store.clone(),
            events: self.events,
            endpoints: self.endpoints,
            payload_bytes: self.payload,
            connections: self.connections,
            rounds: self.rounds,
            per_second: self.rate.min(MAX_PER_SECOND),
            seed: self.seed,
            set: self.set.clone(),
            config: None,
            scenarios,
            only: self.only.map(|only| match only {
                MeasuredSide::Relay => ProcessKind::Relay,
                MeasuredSide::Server => ProcessKind::Server,
            }),
        }
    }
}

/// Runs the benchmark and prints the results as text or JSON.
pub fn run(args: &BenchArgs) -> Result<(), CommandError> {
    let settings = args.settings();
    let outcomes = bench::run(&settings).map_err(CommandError::Bench)?;
    if args.json {
        let document = bench::document(&settings, &outcomes);
        return output::print_raw(&format!("{document}\n"));
    }
    let width = output::width();
    let mut pages: Vec<String> = outcomes.iter().map(|outcome| outcome.page(width)).collect();
    let circumstances = bench::environment(&settings).join("; ");
    let circumstances = terminal::wrapped(&format!("{circumstances}."), width);
    pages.push(format!("{circumstances}\n"));
    output::print(&pages.join("\n"))
}

/// Runs the relay until standard input is closed.
pub fn relay() -> Result<(), CommandError> {
    bench::relay::run().map_err(CommandError::Bench)
}
