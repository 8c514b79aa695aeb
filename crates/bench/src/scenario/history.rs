//! Scenario `history`: cost of an event with many events stored. It must not grow with their number.
//!
//! The same number of events is sent to a server with no events stored, with a million (if that is on the way), and
//! with all. Each measurement is the median of several rounds.

use posthaste_charts::format;
use serde_json::json;

use super::relay_comparison::usage_each;
use super::{full_speed, single_endpoint};
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::progress::Progress;
use crate::report::{Measurements, ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;

/// Default number of events stored at the end.
const STORED: usize = 1_000_000;
/// Number of stored events at which there is a measurement in between, if more are stored at the end.
const MIDDLE: usize = 1_000_000;
/// Number of events in each measurement and round.
const SAMPLE: usize = 20_000;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let levels = levels(settings.events.unwrap_or(STORED));
    let sample = SAMPLE.min(levels.last().copied().unwrap_or(0).max(1));
    let rounds = settings.rounds;
    // Measured events are stored too, so the last measurement ends a little above its level.
    let total = levels.last().copied().unwrap_or(0) + levels.len() * rounds * sample;
    let fixture = single_endpoint(settings, total).await?;
    let mut stored = 0;
    let mut levels_measured = Vec::new();
    for level in levels {
        if level > stored {
            let what = format!("storing {}", format::count(level as u64));
            send(&fixture, settings, stored..level, &what).await?;
            stored = level;
        }
        let mut measured = Vec::new();
        let stored_before = stored;
        for nth in 1..=rounds {
            let what = format!("looking, round {nth} of {rounds}");
            let before = fixture.process.settled_usage().await?;
            let events = stored..stored + sample;
            send(&fixture, settings, events.clone(), &what).await?;
            let after = fixture.process.settled_usage().await?;
            stored = events.end;
            measured.push(Measurements {
                events_per_second: fixture.recorder.events_per_second(events.clone()),
                deliveries_per_second: fixture.recorder.deliveries_per_second(events.clone()),
                accept_latency_ms: fixture.recorder.accept_latency(events),
                ..usage_each(&before, &after, sample)
            });
        }
        levels_measured.push((stored_before, Measurements::median(&measured)));
    }
    fixture.check(0..1, 0..stored).await?;
    Ok(outcome(settings, sample, &levels_measured))
}

/// Returns the numbers of stored events to measure at: zero, [`MIDDLE`] if that is on the way, and the end.
fn levels(stored: usize) -> Vec<usize> {
    let mut levels = vec![0];
    if stored > MIDDLE {
        levels.push(MIDDLE);
    }
    levels.push(stored);
    levels
}

async fn send(
    fixture: &Fixture,
    settings: &Settings,
    events: std::ops::Range<usize>,
    what: &str,
) -> Result<(), BenchError> {
    let progress = Progress::new(what, events.end as u64);
    fixture
        .run(full_speed(settings, events), 0..1, &progress)
        .await
}

fn outcome(
    settings: &Settings,
    sample: usize,
    levels_measured: &[(usize, Measurements)],
) -> ScenarioResult {
    let heads = [
        "stored",
        "deliveries/s",
        "CPU µs",
        "written",
        "accept p50 / p99, ms",
        "peak memory",
    ];
    let mut table = vec![row(&heads)];
    for (stored, measurements) in levels_measured {
        table.push(vec![
            format::count(*stored as u64),
            number(measurements.deliveries_per_second),
            number(measurements.cpu_us_per_delivery),
            bytes(measurements.written_bytes_per_delivery),
            percentiles(measurements.accept_latency_ms),
            bytes(measurements.peak_memory_bytes),
        ]);
    }
    let documents = levels_measured
        .iter()
        .map(|(stored, measurements)| json!({"stored": stored, "figures": measurements}));
    ScenarioResult {
        name: "history",
        setting: format!(
            "{} events of {} bytes, with more and more finished ones stored",
            format::count(sample as u64),
            settings.payload_bytes
        ),
        table,
        notes: vec![format!(
            "CPU and bytes written are per delivery; medians of {} rounds at each level. Every event \
             arrived exactly once.",
            settings.rounds
        )],
        document: json!({"levels": documents.collect::<Vec<_>>()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_number_is_also_measured_in_the_middle() {
        assert_eq!(levels(1_000), [0, 1_000]);
        assert_eq!(levels(1_000_000), [0, 1_000_000]);
        assert_eq!(levels(5_000_000), [0, 1_000_000, 5_000_000]);
    }
}
