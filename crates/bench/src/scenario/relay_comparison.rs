//! Scenarios `throughput`, `lag` and `nodes`: relay and server in turns.
//!
//! Other load on the machine comes and goes. So relay and server take turns, each round has its own ratio, and the
//! result is the median of the ratios.

use std::time::Duration;

use posthaste_charts::format;
use serde_json::json;

use super::{full_speed, unlimited};
use crate::error::BenchError;
use crate::fixture::{Fixture, NodeLayout};
use crate::measured_process::ProcessKind;
use crate::producer::Load;
use crate::progress::Progress;
use crate::prometheus::Histogram;
use crate::recorder::Recorder;
use crate::report::{Measurements, Round, ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::Percentiles;
use crate::usage::Usage;

/// Default number of events of a run at full speed.
pub(super) const EVENTS: usize = 50_000;
/// Maximum number of events of a paced run; at 100 events per second they take 20 s.
const MAX_PACED_EVENTS: usize = 2_000;
/// Maximum number of uncounted events before a measurement, which open connections and fill caches.
const MAX_WARM_UP: usize = 2_000;
/// Interval between two reads of the metrics.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// Name of the server's lag metric.
const LAG_METRIC: &str = "posthaste_first_attempt_lag_seconds";

/// Scenario `throughput`: full speed.
pub async fn throughput(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let events = settings.events.unwrap_or(EVENTS);
    let rounds = alternate(settings, events, None).await?;
    let setting = format!(
        "{} events of {} bytes to {} each, as fast as {} connections are answered",
        format::count(events as u64),
        settings.payload_bytes,
        endpoints_text(settings),
        settings.connections,
    );
    let mut outcome = outcome("throughput", setting, &rounds, settings);
    outcome.notes.push(
        "Accepting is slow here because producers press as hard as they can; see lag for a calm day."
            .to_owned(),
    );
    Ok(outcome)
}

/// Scenario `lag`: a constant rate.
pub async fn lag(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let events = paced_events(settings);
    let rounds = alternate(settings, events, Some(settings.per_second)).await?;
    let setting = paced_setting(settings, events);
    let mut outcome = outcome("lag", setting, &rounds, settings);
    outcome.notes.push(
        "First-attempt lag is the server's own histogram, between whose bounds values are taken as \
         even; delivery lag is measured outside, from before the producer sends to when the receiver \
         has it all."
            .to_owned(),
    );
    Ok(outcome)
}

/// Scenario `nodes`: lag with one node, and with two nodes of which the accepting one does not own the endpoint.
pub async fn nodes(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let events = paced_events(settings);
    let mut table = vec![row(&[
        "",
        "accept latency p50 / p99, ms",
        "first-attempt lag p50 / p99, ms",
        "delivery lag p50 / p99, ms",
        "database CPU µs",
    ])];
    let mut documents = Vec::new();
    for (name, layout) in [
        ("one node", NodeLayout::Single),
        ("one accepts, another sends", NodeLayout::Split),
    ] {
        let mut rounds = Vec::new();
        for nth in 1..=settings.rounds {
            let what = format!("{name}, round {nth} of {}", settings.rounds);
            let run = Run {
                kind: ProcessKind::Server,
                layout,
                events,
                per_second: Some(settings.per_second),
                metrics: MetricsUse::ReadAround,
            };
            rounds.push(measure(settings, run, &what).await?);
        }
        let measurements = Measurements::median(&rounds);
        table.push(row(&[
            name,
            &percentiles(measurements.accept_latency_ms),
            &percentiles(measurements.first_attempt_lag_ms),
            &percentiles(measurements.delivery_lag_ms),
            &number(measurements.database_cpu_us_per_delivery),
        ]));
        documents.push(json!({"nodes": name, "figures": measurements, "rounds": rounds}));
    }
    Ok(ScenarioResult {
        name: "nodes",
        setting: paced_setting(settings, events),
        table,
        notes: vec![format!(
            "Medians of {} rounds. Every event arrived exactly once at every endpoint.",
            settings.rounds
        )],
        document: json!({"cases": documents}),
    })
}

fn paced_events(settings: &Settings) -> usize {
    let new_endpoint = settings.events.unwrap_or(MAX_PACED_EVENTS);
    new_endpoint.min(MAX_PACED_EVENTS)
}

/// Describes a paced run.
fn paced_setting(settings: &Settings, events: usize) -> String {
    format!(
        "{} events of {} bytes to {} each, {} a second",
        format::count(events as u64),
        settings.payload_bytes,
        endpoints_text(settings),
        settings.per_second,
    )
}

pub(super) fn endpoints_text(settings: &Settings) -> String {
    match settings.endpoints {
        1 => "1 endpoint".to_owned(),
        many => format!("{many} endpoints"),
    }
}

async fn alternate(
    settings: &Settings,
    events: usize,
    per_second: Option<f64>,
) -> Result<Vec<Round>, BenchError> {
    let mut rounds = Vec::new();
    for nth in 1..=settings.rounds {
        let mut measured = [None, None];
        for (side, kind) in measured
            .iter_mut()
            .zip([ProcessKind::Relay, ProcessKind::Server])
        {
            if settings.only.is_none_or(|only| only == kind) {
                let what = format!("{}, round {nth} of {}", kind.name(), settings.rounds);
                let run = Run {
                    kind,
                    layout: NodeLayout::Single,
                    events,
                    per_second,
                    metrics: match kind {
                        ProcessKind::Relay => MetricsUse::Off,
                        ProcessKind::Server => MetricsUse::ReadAround,
                    },
                };
                *side = Some(measure(settings, run, &what).await?);
            }
        }
        let [relay, server] = measured;
        rounds.push(Round::new(relay, server));
    }
    Ok(rounds)
}

/// Settings of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) kind: ProcessKind,
    pub(super) layout: NodeLayout,
    pub(super) events: usize,
    /// Events per second; `None` for full speed.
    pub(super) per_second: Option<f64>,
    pub(super) metrics: MetricsUse,
}

/// The use of the server's metrics during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsUse {
    /// Metrics are switched off.
    Off,
    /// Metrics are read before and after the run.
    ReadAround,
    /// Metrics are also read every second during the run, which is more often than Prometheus usually does.
    Scraped,
}

/// Measures one run of the relay or the server, from a fresh start.
pub(super) async fn measure(
    settings: &Settings,
    run: Run,
    what: &str,
) -> Result<Measurements, BenchError> {
    let Run {
        kind,
        layout,
        events,
        per_second,
        metrics,
    } = run;
    let warm_up = (events / 10).clamp(1, MAX_WARM_UP);
    let all = warm_up + events;
    let fixture = match kind {
        ProcessKind::Relay => Fixture::relay(settings, all).await?,
        ProcessKind::Server => {
            let recorder = Recorder::new(settings.endpoints, all);
            let new_endpoint = |_, url| unlimited(settings, url);
            Fixture::nodes(settings, recorder, new_endpoint, layout).await?
        }
    };
    let progress = Progress::new(what, (all * settings.endpoints) as u64);
    let mut load = Load {
        per_second,
        ..full_speed(settings, 0..warm_up)
    };
    fixture
        .run(load.clone(), 0..settings.endpoints, &progress)
        .await?;
    let before = fixture.settled_usage().await?;
    let database_before = fixture.database_cpu().await;
    let lag_before = lag_histogram(&fixture, metrics).await?;

    load.events = warm_up..all;
    let running = fixture.run(load, 0..settings.endpoints, &progress);
    match metrics {
        MetricsUse::Off | MetricsUse::ReadAround => running.await?,
        MetricsUse::Scraped => tokio::select! {
            done = running => done?,
            failed = scrape(&fixture) => return Err(failed),
        },
    }
    let after = fixture.settled_usage().await?;
    let database_after = fixture.database_cpu().await;
    let lag_after = lag_histogram(&fixture, metrics).await?;
    fixture.check(0..settings.endpoints, 0..all).await?;

    let counted = warm_up..all;
    let recorder = &fixture.recorder;
    let measurements = Measurements {
        events_per_second: recorder.events_per_second(counted.clone()),
        deliveries_per_second: recorder.deliveries_per_second(counted.clone()),
        accept_latency_ms: recorder.accept_latency(counted.clone()),
        first_attempt_lag_ms: lag_between(lag_before, lag_after),
        delivery_lag_ms: recorder.lag(0..settings.endpoints, counted),
        database_cpu_us_per_delivery: database_us_each(
            database_before.zip(database_after),
            events * settings.endpoints,
        ),
        ..usage_each(&before, &after, events * settings.endpoints)
    };
    fixture.process.stop().await?;
    Ok(measurements)
}

/// Returns the database's processor time per delivery between two readings, in microseconds.
pub(super) fn database_us_each(
    cpu: Option<(Duration, Duration)>,
    deliveries: usize,
) -> Option<f64> {
    let (before, after) = cpu?;
    let used = after.saturating_sub(before).as_secs_f64() * 1e6;
    Some(used / deliveries.max(1) as f64)
}

/// Returns the resource usage per delivery.
pub(super) fn usage_each(before: &Usage, after: &Usage, deliveries: usize) -> Measurements {
    let each = |total: f64| Some(total / deliveries.max(1) as f64);
    let cpu = after.cpu.saturating_sub(before.cpu);
    let written = after.written_bytes.saturating_sub(before.written_bytes);
    Measurements {
        cpu_us_per_delivery: each(cpu.as_secs_f64() * 1e6),
        peak_memory_bytes: Some(after.peak_memory_bytes as f64),
        written_bytes_per_delivery: each(written as f64),
        ..Measurements::default()
    }
}

/// Reads all metrics every second until that fails.
async fn scrape(fixture: &Fixture) -> BenchError {
    let mut seconds = tokio::time::interval(SCRAPE_INTERVAL);
    loop {
        seconds.tick().await;
        let scraping = async { fixture.sender().await?.metrics().await };
        if let Err(failure) = scraping.await {
            return failure;
        }
    }
}

/// Returns the server's lag histogram, if metrics are on.
async fn lag_histogram(
    fixture: &Fixture,
    metrics: MetricsUse,
) -> Result<Option<Histogram>, BenchError> {
    match metrics {
        MetricsUse::Off => Ok(None),
        MetricsUse::ReadAround | MetricsUse::Scraped => {
            let page = fixture.sender().await?.metrics().await?;
            Ok(Histogram::read(&page, LAG_METRIC))
        }
    }
}

fn lag_between(before: Option<Histogram>, after: Option<Histogram>) -> Option<Percentiles> {
    let after = after?;
    let counted = match before {
        Some(before) => after.since(&before),
        None => after,
    };
    let ms = |share| Some(counted.quantile(share)? * 1e3);
    Some(Percentiles {
        p50: ms(0.50)?,
        p99: ms(0.99)?,
    })
}

/// Builds the table of the medians.
fn table_of(median: &Round) -> Vec<Vec<String>> {
    let relay = median.relay.clone().unwrap_or_default();
    let server = median.server.clone().unwrap_or_default();
    let line = |name: &str, format: &dyn Fn(&Measurements) -> String, share: Option<f64>| {
        let share = share.map(|share| format!("{share:.2}")).unwrap_or_default();
        vec![name.to_owned(), format(&relay), format(&server), share]
    };
    let share = |pick: &dyn Fn(&Measurements) -> Option<f64>| {
        crate::statistics::ratio(pick(&server)?, pick(&relay)?)
    };
    let counted = |name: &str, pick: fn(&Measurements) -> Option<f64>| {
        line(
            name,
            &|measurements| number(pick(measurements)),
            share(&pick),
        )
    };
    let sized = |name: &str, pick: fn(&Measurements) -> Option<f64>| {
        line(
            name,
            &|measurements| bytes(pick(measurements)),
            share(&pick),
        )
    };
    let timed = |name: &str, pick: fn(&Measurements) -> Option<Percentiles>| {
        line(name, &|measurements| percentiles(pick(measurements)), None)
    };
    let mut table = vec![
        row(&["", "relay", "server", "server/relay"]),
        counted("events/s in", |m| m.events_per_second),
        counted("deliveries/s out", |m| m.deliveries_per_second),
        timed("accept latency p50 / p99, ms", |m| m.accept_latency_ms),
        timed("first-attempt lag p50 / p99, ms", |m| {
            m.first_attempt_lag_ms
        }),
        timed("delivery lag p50 / p99, ms", |m| m.delivery_lag_ms),
        counted("CPU µs per delivery", |m| m.cpu_us_per_delivery),
        sized("peak memory", |m| m.peak_memory_bytes),
        sized("written per delivery", |m| m.written_bytes_per_delivery),
    ];
    if server.database_cpu_us_per_delivery.is_some() {
        table.push(counted("database CPU µs per delivery", |m| {
            m.database_cpu_us_per_delivery
        }));
    }
    let ratio = median.ratio.map(|ratio| format!("{ratio:.2}"));
    if let Some(ratio) = &ratio {
        table[2][3].clone_from(ratio);
    }
    table
}

fn outcome(
    name: &'static str,
    setting: String,
    rounds: &[Round],
    settings: &Settings,
) -> ScenarioResult {
    let median = Round::median(rounds);
    let table = table_of(&median);
    let each: Vec<String> = rounds
        .iter()
        .filter_map(|round| Some(format!("{:.2}", round.ratio?)))
        .collect();
    let mut notes = vec![format!(
        "Medians of {} rounds, relay and server in turns. Endpoints allow {} in flight and \
         {} a second, so that their limits do not measure themselves. Every event arrived exactly \
         once at every endpoint.",
        rounds.len(),
        settings.in_flight(),
        format::count(Settings::unlimited().per_second as u64),
    )];
    if !each.is_empty() {
        notes.push(format!(
            "Server/relay in deliveries per second, round by round: {}.",
            each.join(", ")
        ));
    }
    ScenarioResult {
        name,
        setting,
        table,
        notes,
        document: json!({
            "relay": median.relay,
            "server": median.server,
            "ratio": median.ratio,
            "rounds": rounds,
        }),
    }
}
