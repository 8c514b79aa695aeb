//! `posthaste policy simulate`: what happens when a receiver is down and comes back.

use posthaste_core::lane::RateLimit;
use posthaste_sim::recovery::{Recovery, Scenario, play};

use super::args::SimulateArgs;
use super::failure::Failure;
use super::source::{NamedPolicy, named_policy};
use super::{explain, output};
use crate::picture::{outage, terminal, words};
use crate::report::{CourseReport, OutageReport};

/// Plays the scenario through and tells of it in the shape that was asked for.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let named = named_policy(&args.policy)?;
    let scenario = Scenario {
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
    let recovery = play(&scenario);
    let report = OutageReport::new(&scenario, &recovery);
    if let Some(path) = &args.shape.svg {
        let heading = "Arrivals at a receiver that was down and came back";
        let setting = format!("{}; policy {}", setting(&report), named.name);
        let conclusion = report.conclusion();
        let picture = outage::svg(&scenario, &recovery, heading, &setting, &conclusion);
        return output::write_picture(path, &picture);
    }
    if args.shape.json {
        let json = serde_json::to_string(&report).expect("a report is plain data");
        return output::print_raw(&format!("{json}\n"));
    }
    output::print(&page(
        &named,
        &scenario,
        &recovery,
        &report,
        output::width(),
    ))
}

/// The whole answer for a person.
fn page(
    named: &NamedPolicy,
    scenario: &Scenario,
    recovery: &Recovery,
    report: &OutageReport,
    width: usize,
) -> String {
    let limits = &report.limits;
    let rate = limits.rate_limit;
    let kept_to = format!(
        "Limits: {} in flight, {}, burst {}; seed {}.",
        words::count(u64::from(limits.max_in_flight)),
        words::per_second(rate.per_second),
        words::count(u64::from(rate.burst)),
        report.seed,
    );
    let setting = format!("{}. {kept_to}", setting(report));
    [
        format!(
            "{}{}\n",
            explain::heading(named, width),
            terminal::wrapped(&setting, width)
        ),
        table(report),
        format!("{}\n", terminal::wrapped(&report.conclusion(), width)),
        outage::terminal(scenario, recovery, width),
    ]
    .join("\n")
}

/// The scenario in a line.
fn setting(report: &OutageReport) -> String {
    let pending = match report.pending {
        1 => "1 delivery".to_owned(),
        count => format!("{} deliveries", words::count(u64::from(count))),
    };
    let capacity = words::count(report.capacity_per_second);
    match report.outage_ms {
        0 => format!("{pending} pending, no outage, receiver takes {capacity}/s"),
        outage_ms => {
            let outage = words::duration(outage_ms);
            format!("{pending} pending, receiver down for {outage}, then takes {capacity}/s")
        }
    }
}

fn table(report: &OutageReport) -> String {
    let row = |name: &str, of: &dyn Fn(&CourseReport) -> String| {
        vec![name.to_owned(), of(&report.posthaste), of(&report.naive)]
    };
    let since_recovery = |course: &CourseReport| {
        let since_ms = course.drained_ms.checked_sub(report.outage_ms);
        since_ms.map_or("gave up before".to_owned(), words::duration)
    };
    let mut rows = vec![
        row("attempts", &|c| words::count(c.attempts)),
        row("delivered", &|c| words::count(c.delivered)),
        row("dead-lettered", &|c| words::count(c.dead_lettered)),
        row("highest arrivals after recovery", &|c| {
            format!("{}/s", words::count(c.peak_arrivals_per_second))
        }),
        row("time to drain, from the start", &|c| {
            words::duration(c.drained_ms)
        }),
    ];
    if report.pending > 0 && report.outage_ms > 0 {
        rows.push(row("time to drain, from recovery", &since_recovery));
    }
    terminal::table(&["", "posthaste", "naive"], &rows)
}
