//! Scenario `history`: cost of an event with many events stored. It must not grow with their number.

use std::sync::Arc;

use posthaste_charts::words;
use serde_json::json;

use super::unlimited;
use super::versus::{EVENT_TYPE, used};
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::producer::Load;
use crate::progress::Progress;
use crate::report::{Figures, Outcome, bytes, number, row, spread};
use crate::settings::Settings;
use crate::stage::Stage;

/// Default number of events stored at the end.
const STORED: usize = 1_000_000;
/// If more events than this are stored, there is a measurement at this number.
const MIDDLE: usize = 1_000_000;
/// Number of events in each measurement and round.
const SAMPLE: usize = 20_000;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<Outcome, Failure> {
    let levels = levels(settings.events.unwrap_or(STORED));
    let sample = SAMPLE.min(levels.last().copied().unwrap_or(0).max(1));
    let rounds = settings.rounds;
    // Measured events are stored too, so the last measurement ends a little above its level.
    let total = levels.last().copied().unwrap_or(0) + levels.len() * rounds * sample;
    let ledger = Arc::new(Ledger::new(1, total));
    let wanted = |_, url| unlimited(settings, url);
    let stage = Stage::server(settings, ledger, wanted).await?;
    let mut stored = 0;
    let mut looks = Vec::new();
    for level in levels {
        if level > stored {
            let what = format!("storing {}", words::count(level as u64));
            send(&stage, settings, stored..level, &what).await?;
            stored = level;
        }
        let mut measured = Vec::new();
        let stored_before = stored;
        for nth in 1..=rounds {
            let what = format!("looking, round {nth} of {rounds}");
            let before = stage.subject.settled_usage().await?;
            let events = stored..stored + sample;
            send(&stage, settings, events.clone(), &what).await?;
            let after = stage.subject.settled_usage().await?;
            stored = events.end;
            measured.push(Figures {
                events_per_second: stage.ledger.events_per_second(events.clone()),
                deliveries_per_second: stage.ledger.deliveries_per_second(events.clone()),
                accept_latency_ms: stage.ledger.accept_latency(events),
                ..used(&before, &after, sample)
            });
        }
        looks.push((stored_before, Figures::median(&measured)));
    }
    stage.check(0..1, 0..stored).await?;
    Ok(outcome(settings, sample, &looks))
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
    stage: &Stage,
    settings: &Settings,
    events: std::ops::Range<usize>,
    what: &str,
) -> Result<(), Failure> {
    let progress = Progress::new(what, events.end as u64);
    let load = Load {
        events,
        per_second: None,
        connections: settings.connections,
        payload_bytes: settings.payload_bytes,
        event_type: Load::named(EVENT_TYPE),
    };
    stage.run(load, 0..1, &progress).await
}

fn outcome(settings: &Settings, sample: usize, looks: &[(usize, Figures)]) -> Outcome {
    let heads = [
        "stored",
        "deliveries/s",
        "CPU µs",
        "written",
        "accept p50 / p99, ms",
        "peak memory",
    ];
    let mut table = vec![row(&heads)];
    for (stored, figures) in looks {
        table.push(vec![
            words::count(*stored as u64),
            number(figures.deliveries_per_second),
            number(figures.cpu_us_per_delivery),
            bytes(figures.written_bytes_per_delivery),
            spread(figures.accept_latency_ms),
            bytes(figures.peak_memory_bytes),
        ]);
    }
    let documents = looks
        .iter()
        .map(|(stored, figures)| json!({"stored": stored, "figures": figures}));
    Outcome {
        name: "history",
        setting: format!(
            "{} events of {} bytes, with more and more finished ones stored",
            words::count(sample as u64),
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
    fn a_long_way_has_a_look_in_the_middle() {
        assert_eq!(levels(1_000), [0, 1_000]);
        assert_eq!(levels(1_000_000), [0, 1_000_000]);
        assert_eq!(levels(5_000_000), [0, 1_000_000, 5_000_000]);
    }
}
