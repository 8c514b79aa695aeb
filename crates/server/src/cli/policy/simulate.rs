//! `posthaste policy simulate`: simulates the outage and recovery of a receiver.
//!
//! The simulation is the forecast of the core. It is printed as text, JSON or SVG; the JSON is the same report as that
//! of the API.

use posthaste_api::reports::{OutageReport, SenderReport};
use posthaste_charts::{format, outage, terminal};
use posthaste_core::forecast::{Forecast, OutageScenario, forecast};
use posthaste_core::lane::RateLimit;

use super::advice;
use super::args::SimulateArgs;
use super::explain;
use super::source::{NamedPolicy, load_policy};
use crate::cli::error::CommandError;
use crate::cli::output;

/// Runs the simulation and prints the result as text, JSON or SVG.
pub fn run(args: &SimulateArgs) -> Result<(), CommandError> {
    let named = load_policy(&args.policy)?;
    let scenario = OutageScenario {
        policy: named.policy.clone(),
        pending: args.pending,
        outage: args.outage,
        capacity_per_second: args.capacity,
        max_in_flight: args.max_in_flight,
        rate: RateLimit {
            per_second: args.rate,
            burst: args.burst,
        },
        seed: args.seed,
    };
    let forecast = forecast(&scenario);
    let report = OutageReport::new(named.preset, &scenario, &forecast);
    if let Some(path) = &args.shape.svg {
        let heading = match report.outage_ms {
            0 => "Arrivals at a receiver that is up",
            _ => "Arrivals at a receiver that was down and came back",
        };
        let setting = format!("{}; policy {}", describe_scenario(&report), named.name);
        let conclusion = conclusion(&scenario, &forecast, &report);
        let chart = outage::svg(&scenario, &forecast, heading, &setting, &conclusion);
        return output::write_chart(path, &chart);
    }
    if args.shape.json {
        let json = serde_json::to_string(&report).expect("a report serializes to JSON");
        return output::print_raw(&format!("{json}\n"));
    }
    output::print(&page(
        &named,
        &scenario,
        &forecast,
        &report,
        output::width(),
    ))
}

/// Renders the result as text.
fn page(
    named: &NamedPolicy,
    scenario: &OutageScenario,
    forecast: &Forecast,
    report: &OutageReport,
    width: usize,
) -> String {
    let limits = &report.limits;
    let rate = limits.rate_limit;
    let limits_line = format!(
        "Limits: {} in flight, {}, burst {}; seed {}.",
        format::count(u64::from(limits.max_in_flight)),
        format::rate(rate.per_second),
        format::count(u64::from(rate.burst)),
        report.seed,
    );
    let setting = format!("{}. {limits_line}", describe_scenario(report));
    [
        format!(
            "{}{}\n",
            explain::heading(named, width),
            terminal::wrapped(&setting, width)
        ),
        table(report, width),
        format!(
            "{}\n",
            terminal::wrapped(&conclusion(scenario, forecast, report), width)
        ),
        outage::terminal(scenario, forecast, width),
    ]
    .join("\n")
}

/// Returns the conclusion and advice on the rate limit.
fn conclusion(scenario: &OutageScenario, forecast: &Forecast, report: &OutageReport) -> String {
    let advice = advice::suggest_rate_limit(scenario, forecast);
    let sentences = [Some(report.conclusion()), advice];
    sentences
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Describes the scenario in a line.
fn describe_scenario(report: &OutageReport) -> String {
    let pending = match report.pending {
        1 => "1 delivery".to_owned(),
        count => format!("{} deliveries", format::count(u64::from(count))),
    };
    let capacity = format::rate(report.capacity_per_second);
    match report.outage_ms {
        0 => format!("{pending} pending, no outage, receiver capacity {capacity}"),
        _ => {
            let outage = report.times().outage;
            format!("{pending} pending, receiver down for {outage}, then capacity {capacity}")
        }
    }
}

fn table(report: &OutageReport, width: usize) -> String {
    let row = |name: &str, of: fn(&SenderReport) -> u64| {
        let cell = |sender| format::count(of(sender));
        vec![
            name.to_owned(),
            cell(&report.posthaste),
            cell(&report.naive),
        ]
    };
    let peak = |sender: &SenderReport| {
        let peak = format::count(sender.peak_arrivals_per_second);
        format!("{peak}/s")
    };
    let was_down = report.outage_ms > 0;
    let name = |up: &str, down: &str| if was_down { down } else { up }.to_owned();
    let times = report.times();
    let mut rows = vec![
        row("attempts", |sender| sender.attempts),
        row("delivered", |sender| sender.delivered),
        row("dead-lettered", |sender| sender.dead_lettered),
        vec![
            name("peak arrivals", "peak after recovery"),
            peak(&report.posthaste),
            peak(&report.naive),
        ],
        vec![
            name("time to drain", "time to drain, from the start"),
            times.posthaste,
            times.naive,
        ],
    ];
    if report.pending > 0 && was_down {
        let gave_up = || "stopped".to_owned();
        rows.push(vec![
            "time to drain, from recovery".to_owned(),
            times.posthaste_since.unwrap_or_else(gave_up),
            times.naive_since.unwrap_or_else(gave_up),
        ]);
    }
    terminal::table(&["", "posthaste", "naive"], &rows, width)
}
