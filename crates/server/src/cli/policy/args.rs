//! Arguments of `posthaste policy`.
//!
//! [`PolicyCommand`] is the selected command. Values are validated while they are parsed, with bounds from the core, so
//! that an error names the valid range.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use posthaste_api::rate;
use posthaste_core::forecast::{MAX_OUTAGE, MAX_PENDING};
use posthaste_core::lane::{DEFAULT_MAX_IN_FLIGHT, MAX_BURST, MAX_IN_FLIGHT, RateLimit};
use posthaste_core::policy::Preset;
use posthaste_core::time::Span;

use crate::cli::value_parsers::{span_up_to, whole};

/// Commands for retry policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the time of each attempt, as text, table and chart
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Simulate an outage of a receiver and its recovery
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

For comparison, the naive sender retries all deliveries every minute, without limits, for three days.
The same seed gives the same result.";

/// Source of the policy.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Preset [default: recommended]
    #[arg(long, value_name = "NAME", value_parser = preset())]
    pub preset: Option<Preset>,
    /// Policy as a JSON or TOML file; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub file: Option<PathBuf>,
}

/// Output format.
#[derive(Debug, Args)]
pub struct ShapeArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "svg")]
    pub json: bool,
    /// Write a chart as SVG instead of text; - writes to standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `policy explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Source of the policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format.
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// `policy simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Source of the policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Deliveries due when the outage starts
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true,
          value_parser = whole(0, MAX_PENDING))]
    pub pending: u32,
    /// Duration of the outage, such as 90s, 30m or 1d12h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = span_up_to(MAX_OUTAGE))]
    pub outage: Span,
    /// Capacity of the receiver after the outage, such as 50/s or 600/m
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = rate::capacity)]
    pub capacity: f64,
    /// Maximum number of concurrent requests
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_IN_FLIGHT,
          allow_hyphen_values = true, value_parser = whole(1, MAX_IN_FLIGHT))]
    pub max_in_flight: u32,
    /// Rate limit, such as 50/s or 600/m
    #[arg(long, value_name = "RATE", default_value = "100/s", allow_hyphen_values = true,
          value_parser = rate::limit)]
    pub rate: f64,
    /// Burst size: requests allowed at once after an idle period
    #[arg(long, value_name = "COUNT", default_value_t = RateLimit::default().burst,
          allow_hyphen_values = true, value_parser = whole(1, MAX_BURST))]
    pub burst: u32,
    /// Random seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true,
          value_parser = whole(0, u64::MAX))]
    pub seed: u64,
    /// Output format.
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Parses the name of a preset. The error lists all names.
fn preset() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(Preset::name))
        .map(|name| name.parse().expect("a possible value is a preset"))
}
