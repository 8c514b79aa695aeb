//! Scenario `partial-failure`: what gets through to receivers that fail in part, refuse or are limited.
//!
//! Each [`Row`] is an endpoint with its own receiver, load and target, see [`rows`]. Two groups of rows are measured, each
//! on a server of its own: first the receivers at full speed, all at the same time, so that each is compared with the clean
//! one under equal conditions; then those with a small load. Requests and deliveries are counted at the receivers.
//! [`HealthWatch`] observes breakers and what holds deliveries back, [`evaluate`] compares the counts with the targets.

pub mod evaluate;
pub mod rows;
pub mod watch;

use std::ops::Range;
use std::time::{Duration, Instant};

use posthaste_charts::format;
use posthaste_core::rng::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use evaluate::{RowCounts, RowScope, Verdict};
use rows::{EVENTS_PER_SECOND, OfferedLoad, Row};
use watch::HealthWatch;

use crate::api::{Api, NewEndpoint};
use crate::error::BenchError;
use crate::faults::FaultInjector;
use crate::fixture::Fixture;
use crate::producer::{Load, produce, produce_batches};
use crate::progress::Progress;
use crate::report::{ScenarioResult, number, row};
use crate::settings::{MAX_SLOTS, Settings};

/// Default number of events for each receiver at full speed.
const EVENTS: usize = 50_000;
/// Minimum duration of a measurement.
const MIN_SECONDS: f64 = 2.0;
/// Minimum duration for which the targets are meant.
const MEANINGFUL_SECONDS: f64 = 30.0;
/// Interval between two looks at the health of all endpoints.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Number of connections of the producer of one row.
const ROW_CONNECTIONS: usize = 2;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let events = settings.events.unwrap_or(EVENTS);
    let full_speed = rows::full_speed(events);
    let slots = full_speed.len().pow(2).saturating_mul(events);
    if slots > MAX_SLOTS {
        return Err(BenchError::Usage(format!(
            "{events} events for each of {} receivers are too many for one run",
            full_speed.len()
        )));
    }
    let seconds = (events as f64 / EVENTS_PER_SECOND as f64).max(MIN_SECONDS);
    let mut rng = Rng::seeded(settings.seed);
    let mut measured = measure(settings, full_speed, seconds, &mut rng, "full speed").await?;
    let paced = rows::paced(seconds);
    measured.extend(measure(settings, paced, seconds, &mut rng, "paced").await?);
    Ok(outcome(settings.seed, seconds, &measured))
}

/// One row with its results.
struct MeasuredRow {
    row: Row,
    counts: RowCounts,
    watch: HealthWatch,
    verdict: Verdict,
}

fn event_type(row: usize) -> String {
    format!("bench.row{row}")
}

/// Returns the numbers of the events of each row.
fn event_ranges(rows: &[Row]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |row: &Row| {
        let start = end;
        end += row.offer.events();
        start..end
    };
    rows.iter().map(range).collect()
}

/// Measures a group of rows on a new server.
async fn measure(
    settings: &Settings,
    rows: Vec<Row>,
    seconds: f64,
    rng: &mut Rng,
    group: &str,
) -> Result<Vec<MeasuredRow>, BenchError> {
    let ranges = event_ranges(&rows);
    let new_endpoint = |index: usize, url| NewEndpoint {
        url,
        event_types: vec![event_type(index)],
        limits: rows[index].limits,
        retry_policy: rows[index].retry_policy.clone(),
    };
    let events = ranges.last().map_or(0, |range| range.end);
    let fixture = Fixture::server(settings, (rows.len(), events), new_endpoint).await?;
    for (index, row) in rows.iter().enumerate() {
        let injector = FaultInjector::new(row.faults, row.latency, rng.split());
        fixture.receivers.inject_faults(index, injector);
    }
    let start = fixture.recorder.now();
    let mut loads = start_loads(&fixture, settings, &rows, &ranges);
    let mut api = fixture.api().await?;
    let watches = watch_health(&fixture, &mut api, seconds, group).await?;
    let times = start..fixture.recorder.now();
    while let Some(ended) = loads.join_next().await {
        ended.unwrap_or_else(|panic| Err(BenchError::Broken(panic.to_string())))?;
    }
    // Not all events must have arrived, but none may arrive twice, unsigned or changed.
    fixture.check(0..0, 0..0).await?;

    let mut measured: Vec<MeasuredRow> = Vec::new();
    for (index, (row, watch)) in rows.into_iter().zip(watches).enumerate() {
        let endpoint = api.get(&endpoint_path(&fixture, index)).await?;
        let scope = RowScope {
            events: ranges[index].clone(),
            times: times.clone(),
            max_attempts: row.max_attempts,
        };
        let answers = fixture.receivers.answers(index);
        let status = endpoint["status"].as_str().unwrap_or("unknown");
        let counts = RowCounts::new(&scope, &row.faults, &answers, &watch, status);
        let clean = measured.first().map(|clean| &clean.counts);
        let verdict = row.target.evaluate(&counts, clean);
        measured.push(MeasuredRow {
            row,
            counts,
            watch,
            verdict,
        });
    }
    Ok(measured)
}

/// Starts to send the events of all rows.
fn start_loads(
    fixture: &Fixture,
    settings: &Settings,
    rows: &[Row],
    ranges: &[Range<usize>],
) -> JoinSet<Result<(), BenchError>> {
    let mut loads = JoinSet::new();
    for (index, (row, range)) in rows.iter().zip(ranges).enumerate() {
        let per_second = match row.offer {
            OfferedLoad::AtOnce(_) => None,
            OfferedLoad::Paced { per_second, .. } => Some(per_second),
        };
        let load = Load {
            events: range.clone(),
            per_second,
            connections: ROW_CONNECTIONS,
            payload_bytes: settings.payload_bytes,
            event_type: Load::same_type(&event_type(index)),
        };
        let (target, recorder) = (fixture.target.clone(), fixture.recorder.clone());
        loads.spawn(async move {
            match load.per_second {
                Some(_) => produce(&target, load, &recorder).await,
                None => produce_batches(&target, load, Default::default()).await,
            }
        });
    }
    loads
}

/// Observes the health of all endpoints for this time.
async fn watch_health(
    fixture: &Fixture,
    api: &mut Api,
    seconds: f64,
    group: &str,
) -> Result<Vec<HealthWatch>, BenchError> {
    let begun_at = Instant::now();
    let end = begun_at + Duration::from_secs_f64(seconds);
    let progress = Progress::new(group, seconds.ceil() as u64);
    let mut watches = vec![HealthWatch::default(); fixture.endpoints.len()];
    let mut next = begun_at;
    loop {
        for (index, watch) in watches.iter_mut().enumerate() {
            let path = format!("{}/health", endpoint_path(fixture, index));
            let health = api.get(&path).await?;
            watch.record(fixture.recorder.now(), health);
        }
        progress.set(begun_at.elapsed().as_secs());
        next = (next + LOOK_INTERVAL).max(Instant::now());
        sleep_until(next.min(end).into()).await;
        if Instant::now() >= end {
            return Ok(watches);
        }
    }
}

fn endpoint_path(fixture: &Fixture, index: usize) -> String {
    let (tenant, id) = (&fixture.target.tenant, &fixture.endpoints[index].id);
    format!("/v1/tenants/{tenant}/endpoints/{id}")
}

fn outcome(seed: u64, seconds: f64, rows: &[MeasuredRow]) -> ScenarioResult {
    let heads = [
        "receiver",
        "offered",
        "delivered",
        "per s",
        "ratio",
        "refused",
        "trips",
        "target",
        "result",
    ];
    let mut table = vec![row(&heads)];
    table.extend(rows.iter().map(table_row));
    let met = rows.iter().filter(|row| row.verdict.is_met()).count();
    let mut notes = vec![format!(
        "{met} of {} targets met. Seed of the failures: {seed} (--seed). Counted at the receivers, from the first event \
         offered until {seconds} s later. The ratio is of what is offered, or of the clean row's rate; refused is the share \
         of all requests.",
        rows.len()
    )];
    if seconds < MEANINGFUL_SECONDS {
        notes.push(format!(
            "The targets are meant for at least {MEANINGFUL_SECONDS} s: what was learned and retried late weighs too much here."
        ));
    }
    notes.extend(rows.iter().map(note));
    ScenarioResult {
        name: "partial-failure",
        setting: format!(
            "receivers that fail in part, refuse or are limited, {seconds} s each; at full speed with 50 in flight and 50 ms \
             for an answer, else with default limits and 20 ms"
        ),
        table,
        notes,
        document: json!({
            "seed": seed,
            "seconds": seconds,
            "is_met": met == rows.len(),
            "rows": rows.iter().map(document).collect::<Vec<Value>>(),
        }),
    }
}

fn result(verdict: &Verdict) -> &'static str {
    if verdict.is_met() { "met" } else { "missed" }
}

fn table_row(measured: &MeasuredRow) -> Vec<String> {
    let counts = &measured.counts;
    row(&[
        &measured.row.receiver,
        &format::count(counts.offered),
        &format::count(counts.delivered),
        &number(Some(counts.delivered_per_second())),
        &number(measured.verdict.ratio),
        &format!("{:.1} %", counts.refused_share() * 100.0),
        &counts.trips.to_string(),
        &measured.row.target.text(),
        result(&measured.verdict),
    ])
}

/// Returns what a row shows besides its figures.
fn note(measured: &MeasuredRow) -> String {
    let counts = &measured.counts;
    let mut parts = Vec::new();
    if !measured.verdict.is_met() {
        parts.push(format!("missed: {}", measured.verdict.misses.join(", ")));
    }
    parts.push(format!("{} refused", format::count(counts.refused)));
    if counts.never_sent > 0 {
        parts.push(format!("{} not yet sent", format::count(counts.never_sent)));
    }
    if counts.exhausted > 0 {
        parts.push(format!("{} exhausted", format::count(counts.exhausted)));
    }
    if counts.trips > 0 {
        parts.push(format!("tripped by {}", counts.trip_reasons.join(", ")));
    }
    parts.extend(
        counts
            .requests_before_trip
            .map(|n| format!("{n} requests before the trip")),
    );
    parts.extend(
        counts
            .busiest_second_after_trip
            .map(|n| format!("at most {n} a second after it")),
    );
    if counts.status != "enabled" {
        parts.push(format!("the endpoint is {}", counts.status));
    }
    parts.push(measured.watch.held_back());
    format!("{}: {}.", measured.row.receiver, parts.join("; "))
}

fn document(measured: &MeasuredRow) -> Value {
    json!({
        "receiver": measured.row.receiver,
        "target": measured.row.target.text(),
        "is_met": measured.verdict.is_met(),
        "misses": measured.verdict.misses,
        "ratio": measured.verdict.ratio,
        "delivered_per_second": measured.counts.delivered_per_second(),
        "refused_share": measured.counts.refused_share(),
        "counts": measured.counts,
        "health": measured.watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_own_events() {
        let rows = rows::paced(50.0);
        let ranges = event_ranges(&rows);
        assert_eq!(ranges[0], 0..1_000);
        for (range, (next, row)) in ranges.iter().zip(ranges[1..].iter().zip(&rows[1..])) {
            assert_eq!(range.end, next.start);
            assert_eq!(next.len(), row.offer.events());
        }
    }
}
