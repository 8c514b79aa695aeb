//! Scenario `observe`: cost of metrics and attempt logs. The default server and one without both take turns.

use posthaste_charts::words;
use serde_json::json;

use super::versus::{EVENTS, MetricsUse, Run, endpoints, measure};
use crate::failure::Failure;
use crate::figures::{median, ratio};
use crate::report::{Figures, Outcome, bytes, number, row, spread};
use crate::settings::Settings;
use crate::stage::Parts;
use crate::subject::Kind;

/// Settings that switch off metrics and attempt logs.
const METRICS_OFF: [&str; 2] = [
    "metrics.enabled=false",
    "log.level=info,posthaste::attempt=off",
];

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<Outcome, Failure> {
    let events = settings.events.unwrap_or(EVENTS);
    let mut unseen = settings.clone();
    unseen.set.extend(METRICS_OFF.map(str::to_owned));
    let mut rounds = Vec::new();
    for nth in 1..=settings.rounds {
        let run = |seen| Run {
            kind: Kind::Server,
            parts: Parts::One,
            events,
            per_second: None,
            seen,
        };
        let what = |who: &str| format!("{who}, round {nth} of {}", settings.rounds);
        // The order alternates, so that neither always runs on the warmer machine.
        let without = async || measure(&unseen, run(MetricsUse::Nothing), &what("unseen")).await;
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
fn share(rounds: &[[Figures; 2]], pick: fn(&Figures) -> Option<f64>) -> Option<f64> {
    let each = |[without, with]: &[Figures; 2]| ratio(pick(with)?, pick(without)?);
    median(rounds.iter().filter_map(each))
}

fn outcome(settings: &Settings, events: usize, rounds: &[[Figures; 2]]) -> Outcome {
    let side = |place: usize| {
        let figures: Vec<Figures> = rounds.iter().map(|round| round[place].clone()).collect();
        Figures::median(&figures)
    };
    let (without, with) = (side(0), side(1));
    let told = |share: Option<f64>| share.map(|share| format!("{share:.3}")).unwrap_or_default();
    let counted = |name: &str, pick: fn(&Figures) -> Option<f64>| {
        let share = told(share(rounds, pick));
        vec![
            name.to_owned(),
            number(pick(&without)),
            number(pick(&with)),
            share,
        ]
    };
    let sized = |name: &str, pick: fn(&Figures) -> Option<f64>| {
        let share = told(share(rounds, pick));
        vec![
            name.to_owned(),
            bytes(pick(&without)),
            bytes(pick(&with)),
            share,
        ]
    };
    let rate: fn(&Figures) -> Option<f64> = |figures| figures.deliveries_per_second;
    let latency = |figures: &Figures| spread(figures.accept_latency_ms);
    let table = vec![
        row(&["", "unseen", "seen", "seen/unseen"]),
        counted("deliveries/s out", rate),
        row(&[
            "accept latency p50 / p99, ms",
            &latency(&without),
            &latency(&with),
            "",
        ]),
        counted("CPU µs per delivery", |figures| {
            figures.cpu_us_per_delivery
        }),
        sized("peak memory", |figures| figures.peak_memory_bytes),
        sized("written per delivery", |figures| {
            figures.written_bytes_per_delivery
        }),
    ];
    let each: Vec<String> = rounds
        .iter()
        .filter_map(|[without, with]| ratio(rate(with)?, rate(without)?))
        .map(|share| format!("{share:.2}"))
        .collect();
    Outcome {
        name: "observe",
        setting: format!(
            "{} events of {} bytes to {} each, as fast as {} connections are answered; seen: metrics counted and read \
             every second, figures kept, a line of JSON for each attempt",
            words::count(events as u64),
            settings.payload_bytes,
            endpoints(settings),
            settings.connections,
        ),
        table,
        notes: vec![format!(
            "Medians of {} rounds, in turns. Deliveries per second, seen/unseen, round by round: {}. Whoever reads the \
             lines shares the machine.",
            rounds.len(),
            each.join(", ")
        )],
        document: json!({
            "unseen": without,
            "seen": with,
            "ratio": share(rounds, rate),
            "cpu_ratio": share(rounds, |figures| figures.cpu_us_per_delivery),
            "rounds": rounds.iter().map(|[without, with]| json!({"unseen": without, "seen": with})).collect::<Vec<_>>(),
        }),
    }
}
