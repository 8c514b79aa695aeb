//! Scenario `memory`: memory and restart time with many pending deliveries to many endpoints.
//!
//! Held deliveries need little memory. So after the restart every endpoint is resumed at one delivery per second.
//! Each endpoint then has a lane with work, as in a large outage.

use std::sync::Arc;
use std::time::Duration;

use posthaste_charts::words;
use serde_json::json;
use tokio::time::sleep;

use super::neighbour::{PENDING, fill};
use super::unlimited;
use crate::api::Wanted;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::report::{Outcome, bytes, number, row};
use crate::settings::Settings;
use crate::stage::Stage;
use crate::usage::Usage;

/// Number of endpoints that share the backlog.
const ENDPOINTS: usize = 1_000;
/// Time for which all endpoints send before memory is measured.
const AT_WORK: Duration = Duration::from_secs(10);
/// Memory target, in bytes.
const MAX_MEMORY_BYTES: u64 = 150_000_000;
/// Restart target, in milliseconds.
const MAX_READY_MS: u64 = 2_000;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<Outcome, Failure> {
    let pending = settings.events.unwrap_or(PENDING);
    // The ledger counts no single arrivals: a slot for each event and endpoint would be a billion slots.
    let ledger = Arc::new(Ledger::new(ENDPOINTS, 0));
    let names: Arc<[Arc<str>]> = (0..ENDPOINTS)
        .map(|index| Arc::from(format!("bench.to{index}")))
        .collect();
    let wanted = |index: usize, url| Wanted {
        event_types: vec![names[index].to_string()],
        per_second: 1.0,
        burst: 1,
        ..unlimited(settings, url)
    };
    let stage = Stage::server(settings, ledger, wanted).await?;
    turn_all(&stage, "pause").await?;
    stage.receivers.record_arrival_times();
    let called = Arc::clone(&names);
    let event_type = Arc::new(move |number: usize| Arc::clone(&called[number % ENDPOINTS]));
    let fed = fill(&stage, settings, 0..pending, event_type).await?;
    let full = stage.subject.usage()?;

    let (stage, _, started_within) = stage.restart().await?;
    let restarted = stage.subject.settled_usage().await?;
    turn_all(&stage, "resume").await?;
    sleep(AT_WORK).await;
    let at_work = stage.subject.usage()?;
    let reached = (0..ENDPOINTS)
        .filter(|endpoint| !stage.receivers.moments(*endpoint).is_empty())
        .count();

    let ready_ms = u64::try_from(started_within.as_millis()).unwrap_or(u64::MAX);
    let line = |name: &str, usage: &Usage| {
        row(&[
            name,
            &bytes(Some(usage.memory_bytes as f64)),
            &bytes(Some(usage.peak_memory_bytes as f64)),
        ])
    };
    let many = words::count(pending as u64);
    Ok(Outcome {
        name: "memory",
        setting: format!(
            "{many} pending to {} endpoints",
            words::count(ENDPOINTS as u64)
        ),
        table: vec![
            row(&["", "memory", "peak memory"]),
            line("before", &fed.before),
            line("all taken in", &full),
            line("restarted", &restarted),
            line("every endpoint at work", &at_work),
        ],
        notes: vec![format!(
            "Ready {ready_ms} ms after its start (target: under {MAX_READY_MS} ms); memory should stay \
             under {}. Taken in at {} a second. At work, {} of {} endpoints were reached within {} s, \
             each at one a second.",
            bytes(Some(MAX_MEMORY_BYTES as f64)),
            number(Some(fed.per_second)),
            words::count(reached as u64),
            words::count(ENDPOINTS as u64),
            AT_WORK.as_secs(),
        )],
        document: json!({
            "pending": pending,
            "endpoints": ENDPOINTS,
            "ready_ms": ready_ms,
            "memory_bytes": full.memory_bytes,
            "peak_memory_bytes": full.peak_memory_bytes,
            "restarted_memory_bytes": restarted.memory_bytes,
            "restarted_peak_memory_bytes": restarted.peak_memory_bytes,
            "at_work_memory_bytes": at_work.memory_bytes,
            "at_work_peak_memory_bytes": at_work.peak_memory_bytes,
            "endpoints_reached": reached,
            "taken_in_per_second": fed.per_second,
            "targets": {"memory_bytes": MAX_MEMORY_BYTES, "ready_ms": MAX_READY_MS},
        }),
    })
}

async fn turn_all(stage: &Stage, verb: &str) -> Result<(), Failure> {
    let mut api = stage.api().await?;
    for endpoint in &stage.made {
        api.turn(&stage.intake.tenant, &endpoint.id, verb).await?;
    }
    Ok(())
}
