//! Scenario `observe`: cost of metrics and attempt logs.
//!
//! The default server and one without both take turns at full speed. The metrics of the default server are read every
//! second. The ratio of each round is the main result.

use posthaste_charts::format;
use serde_json::json;

use super::relay_comparison::{EVENTS, MetricsUse, Run, endpoints_text, measure};
use crate::error::BenchError;
use crate::fixture::NodeLayout;
use crate::measured_process::ProcessKind;
use crate::report::{Measurements, ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::{median, ratio};

/// Settings that switch off metrics and attempt logs.
const METRICS_OFF: [&str; 2] = [
    "metrics.enabled=false",
    "log.level=info,posthaste::attempt=off",
];

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let events = settings.events.unwrap_or(EVENTS);
    let mut metrics_off = settings.clone();
    metrics_off.set.extend(METRICS_OFF.map(str::to_owned));
    let mut rounds = Vec::new();
    for nth in 1..=settings.rounds {
        let run = |metrics| Run {
            kind: ProcessKind::Server,
            layout: NodeLayout::Single,
            events,
            per_second: None,
            metrics,
        };
        let what = |who: &str| format!("{who}, round {nth} of {}", settings.rounds);
        // The order alternates, so that neither always runs on the warmer machine.
        let without = async || measure(&metrics_off, run(MetricsUse::Off), &what("unseen")).await;
        let with = async || measure(settings, run(MetricsUse::Scraped), &what("seen")).await;
        rounds.push(match nth % 2 {
            0 => {
                let with = with().await?;
                [without().await?, with]
            }
            _ => [without().await?, with().await?],
        });
    }
    Ok(outcome(settings, events, &rounds))
}

/// Returns the median over all rounds of the ratio with and without metrics and logs.
fn median_ratio(
    rounds: &[[Measurements; 2]],
    pick: fn(&Measurements) -> Option<f64>,
) -> Option<f64> {
    let each = |[without, with]: &[Measurements; 2]| ratio(pick(with)?, pick(without)?);
    median(rounds.iter().filter_map(each))
}

fn outcome(settings: &Settings, events: usize, rounds: &[[Measurements; 2]]) -> ScenarioResult {
    let side = |index: usize| {
        let measurements: Vec<Measurements> =
            rounds.iter().map(|round| round[index].clone()).collect();
        Measurements::median(&measurements)
    };
    let (without, with) = (side(0), side(1));
    type Pick = fn(&Measurements) -> Option<f64>;
    let line = |name: &str, format: fn(Option<f64>) -> String, pick: Pick| {
        let share = median_ratio(rounds, pick).map(|share| format!("{share:.3}"));
        let (without, with) = (format(pick(&without)), format(pick(&with)));
        vec![name.to_owned(), without, with, share.unwrap_or_default()]
    };
    let rate: Pick = |m| m.deliveries_per_second;
    let latency = |measurements: &Measurements| percentiles(measurements.accept_latency_ms);
    let table = vec![
        row(&["", "unseen", "seen", "seen/unseen"]),
        line("deliveries/s out", number, rate),
        row(&[
            "accept latency p50 / p99, ms",
            &latency(&without),
            &latency(&with),
            "",
        ]),
        line("CPU µs per delivery", number, |m| m.cpu_us_per_delivery),
        line("peak memory", bytes, |m| m.peak_memory_bytes),
        line("written per delivery", bytes, |m| {
            m.written_bytes_per_delivery
        }),
    ];
    let each: Vec<String> = rounds
        .iter()
        .filter_map(|[without, with]| ratio(rate(with)?, rate(without)?))
        .map(|share| format!("{share:.2}"))
        .collect();
    ScenarioResult {
        name: "observe",
        setting: format!(
            "{} events of {} bytes to {} each, as fast as {} connections are answered; seen: metrics counted and read \
             every second, figures kept, a line of JSON for each attempt",
            format::count(events as u64),
            settings.payload_bytes,
            endpoints_text(settings),
            settings.connections,
        ),
        table,
        notes: vec![format!(
            "Medians of {} rounds, in turns. Deliveries per second, seen/unseen, round by round: {}. The reader of \
             the lines runs on the same machine.",
            rounds.len(),
            each.join(", ")
        )],
        document: json!({
            "unseen": without,
            "seen": with,
            "ratio": median_ratio(rounds, rate),
            "cpu_ratio": median_ratio(rounds, |m| m.cpu_us_per_delivery),
            "rounds": rounds.iter().map(|[without, with]| json!({"unseen": without, "seen": with})).collect::<Vec<_>>(),
        }),
    }
}
