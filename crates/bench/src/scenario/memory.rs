//! Scenario `memory`: memory and restart time with many pending deliveries to many endpoints.
//!
//! Held deliveries need little memory. So after the restart every endpoint is resumed at one delivery per second.
//! Each endpoint then has a lane with work, as in a large outage.

use std::sync::Arc;
use std::time::Duration;

use posthaste_charts::format;
use posthaste_core::lane::RateLimit;
use serde_json::json;
use tokio::time::sleep;

use super::isolation::{PENDING, fill};
use super::{unlimited, with_rate};
use crate::api::NewEndpoint;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::report::{ScenarioResult, bytes, number, row};
use crate::settings::Settings;
use crate::usage::Usage;

/// Number of endpoints that share the backlog.
const ENDPOINTS: usize = 1_000;
/// Time for which all endpoints send before memory is measured.
const WORK_PERIOD: Duration = Duration::from_secs(10);
/// Memory target, in bytes.
const MAX_MEMORY_BYTES: u64 = 150_000_000;
/// Restart target, in milliseconds.
const MAX_READY_MS: u64 = 2_000;

/// Rate limit of the endpoints at work.
const ONE_PER_SECOND: RateLimit = RateLimit {
    per_second: 1.0,
    burst: 1,
};

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let pending = settings.events.unwrap_or(PENDING);
    let names: Arc<[Arc<str>]> = (0..ENDPOINTS)
        .map(|index| Arc::from(format!("bench.to{index}")))
        .collect();
    let new_endpoint = |index: usize, url| NewEndpoint {
        event_types: vec![names[index].to_string()],
        limits: Some(with_rate(settings, ONE_PER_SECOND)),
        ..unlimited(settings, url)
    };
    // The recorder counts no single arrivals: a slot for each event and endpoint would be a billion slots.
    let fixture = Fixture::server(settings, (ENDPOINTS, 0), new_endpoint).await?;
    pause_or_resume_all(&fixture, "pause").await?;
    fixture.receivers.record_arrival_times();
    let types = Arc::clone(&names);
    let event_type = Arc::new(move |number: usize| Arc::clone(&types[number % ENDPOINTS]));
    let fed = fill(&fixture, settings, 0..pending, event_type).await?;
    let full = fixture.process.usage()?;

    let (fixture, _, started_within) = fixture.restart().await?;
    let restarted = fixture.process.settled_usage().await?;
    pause_or_resume_all(&fixture, "resume").await?;
    sleep(WORK_PERIOD).await;
    let at_work = fixture.process.usage()?;
    let reached = (0..ENDPOINTS)
        .filter(|endpoint| !fixture.receivers.arrival_times(*endpoint).is_empty())
        .count();

    let ready_ms = u64::try_from(started_within.as_millis()).unwrap_or(u64::MAX);
    let line = |name: &str, usage: &Usage| {
        row(&[
            name,
            &bytes(Some(usage.memory_bytes as f64)),
            &bytes(Some(usage.peak_memory_bytes as f64)),
        ])
    };
    let many = format::count(pending as u64);
    Ok(ScenarioResult {
        name: "memory",
        setting: format!(
            "{many} pending to {} endpoints",
            format::count(ENDPOINTS as u64)
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
            format::count(reached as u64),
            format::count(ENDPOINTS as u64),
            WORK_PERIOD.as_secs(),
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

async fn pause_or_resume_all(fixture: &Fixture, verb: &str) -> Result<(), BenchError> {
    let mut api = fixture.api().await?;
    for endpoint in &fixture.endpoints {
        api.turn(&fixture.target.tenant, &endpoint.id, verb).await?;
    }
    Ok(())
}
