//! Scenarios `throughput`, `lag` and `nodes`: relay and server in turns.
//!
//! Other load on the machine comes and goes. So relay and server take turns, each round has its own ratio, and the
//! result is the median of the ratios.

use std::sync::Arc;
use std::time::Duration;

use posthaste_charts::words;
use serde_json::json;

use super::unlimited;
use crate::failure::Failure;
use crate::figures::Percentiles;
use crate::ledger::Ledger;
use crate::producer::Load;
use crate::progress::Progress;
use crate::prometheus::Histogram;
use crate::report::{Figures, Outcome, Round, bytes, number, row, spread};
use crate::settings::Settings;
use crate::stage::{Parts, Stage};
use crate::subject::Kind;
use crate::usage::Usage;

/// Default number of events of a run at full speed.
pub(super) const EVENTS: usize = 50_000;
/// Maximum number of events of a paced run; at 100 events per second they take 20 s.
const PACED_EVENTS: usize = 2_000;
/// Maximum number of uncounted events before a measurement, which open connections and fill caches.
const MAX_WARM_UP: usize = 2_000;
/// Interval between two reads of the metrics.
const SCRAPE: Duration = Duration::from_secs(1);
/// Name of the server's lag metric.
pub(super) const LAG: &str = "posthaste_first_attempt_lag_seconds";

/// Event type of all events where it does not matter.
pub(super) const EVENT_TYPE: &str = "bench.sent";

/// Scenario `throughput`: full speed.
pub async fn throughput(settings: &Settings) -> Result<Outcome, Failure> {
    let events = settings.events.unwrap_or(EVENTS);
    let rounds = take_turns(settings, events, None).await?;
    let setting = format!(
        "{} events of {} bytes to {} each, as fast as {} connections are answered",
        words::count(events as u64),
        settings.payload_bytes,
        endpoints(settings),
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
pub async fn lag(settings: &Settings) -> Result<Outcome, Failure> {
    let events = settings.events.unwrap_or(PACED_EVENTS).min(PACED_EVENTS);
    let rounds = take_turns(settings, events, Some(settings.per_second)).await?;
    let setting = format!(
        "{} events of {} bytes to {} each, {} a second",
        words::count(events as u64),
        settings.payload_bytes,
        endpoints(settings),
        settings.per_second,
    );
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
pub async fn nodes(settings: &Settings) -> Result<Outcome, Failure> {
    let events = settings.events.unwrap_or(PACED_EVENTS).min(PACED_EVENTS);
    let mut table = vec![row(&[
        "",
        "accept latency p50 / p99, ms",
        "first-attempt lag p50 / p99, ms",
        "delivery lag p50 / p99, ms",
        "database CPU µs",
    ])];
    let mut documents = Vec::new();
    for (name, parts) in [
        ("one node", Parts::One),
        ("one accepts, another sends", Parts::Apart),
    ] {
        let mut rounds = Vec::new();
        for nth in 1..=settings.rounds {
            let what = format!("{name}, round {nth} of {}", settings.rounds);
            let run = Run {
                kind: Kind::Server,
                parts,
                events,
                per_second: Some(settings.per_second),
                seen: MetricsUse::Asked,
            };
            rounds.push(measure(settings, run, &what).await?);
        }
        let figures = Figures::median(&rounds);
        table.push(row(&[
            name,
            &spread(figures.accept_latency_ms),
            &spread(figures.first_attempt_lag_ms),
            &spread(figures.delivery_lag_ms),
            &number(figures.database_cpu_us_per_delivery),
        ]));
        documents.push(json!({"nodes": name, "figures": figures, "rounds": rounds}));
    }
    Ok(Outcome {
        name: "nodes",
        setting: format!(
            "{} events of {} bytes to {} each, {} a second",
            words::count(events as u64),
            settings.payload_bytes,
            endpoints(settings),
            settings.per_second,
        ),
        table,
        notes: vec![format!(
            "Medians of {} rounds. Every event arrived exactly once at every endpoint.",
            settings.rounds
        )],
        document: json!({"cases": documents}),
    })
}

pub(super) fn endpoints(settings: &Settings) -> String {
    match settings.endpoints {
        1 => "1 endpoint".to_owned(),
        many => format!("{many} endpoints"),
    }
}

async fn take_turns(
    settings: &Settings,
    events: usize,
    per_second: Option<f64>,
) -> Result<Vec<Round>, Failure> {
    let mut rounds = Vec::new();
    for nth in 1..=settings.rounds {
        let mut measured = [None, None];
        for (place, kind) in measured.iter_mut().zip([Kind::Relay, Kind::Server]) {
            if settings.only.is_none_or(|only| only == kind) {
                let what = format!("{}, round {nth} of {}", kind.name(), settings.rounds);
                let run = Run {
                    kind,
                    parts: Parts::One,
                    events,
                    per_second,
                    seen: match kind {
                        Kind::Relay => MetricsUse::Nothing,
                        Kind::Server => MetricsUse::Asked,
                    },
                };
                *place = Some(measure(settings, run, &what).await?);
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
    pub(super) kind: Kind,
    pub(super) parts: Parts,
    pub(super) events: usize,
    /// Events per second; `None` for full speed.
    pub(super) per_second: Option<f64>,
    pub(super) seen: MetricsUse,
}

/// The use of the server's metrics during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsUse {
    /// Metrics are switched off.
    Nothing,
    /// Metrics are read before and after the run.
    Asked,
    /// Metrics are also read every second during the run, which is more often than Prometheus usually does.
    Scraped,
}

/// Measures one run of the relay or the server, from a fresh start.
pub(super) async fn measure(settings: &Settings, run: Run, what: &str) -> Result<Figures, Failure> {
    let Run {
        kind,
        parts,
        events,
        per_second,
        seen,
    } = run;
    let warm_up = (events / 10).clamp(1, MAX_WARM_UP);
    let all = warm_up + events;
    let ledger = Arc::new(Ledger::new(settings.endpoints, all));
    let stage = match kind {
        Kind::Relay => Stage::relay(settings, ledger).await?,
        Kind::Server => {
            let wanted = |_, url| unlimited(settings, url);
            Stage::nodes(settings, ledger, wanted, parts).await?
        }
    };
    let progress = Progress::new(what, (all * settings.endpoints) as u64);
    let mut load = Load {
        events: 0..warm_up,
        per_second,
        connections: settings.connections,
        payload_bytes: settings.payload_bytes,
        event_type: Load::named(EVENT_TYPE),
    };
    stage
        .run(load.clone(), 0..settings.endpoints, &progress)
        .await?;
    let before = stage.settled_usage().await?;
    let database_before = stage.database_cpu().await;
    let told_before = lag_histogram(&stage, seen).await?;

    load.events = warm_up..all;
    let running = stage.run(load, 0..settings.endpoints, &progress);
    match seen {
        MetricsUse::Nothing | MetricsUse::Asked => running.await?,
        MetricsUse::Scraped => tokio::select! {
            done = running => done?,
            failed = scrape(&stage) => return Err(failed),
        },
    }
    let after = stage.settled_usage().await?;
    let database_after = stage.database_cpu().await;
    let told_after = lag_histogram(&stage, seen).await?;
    stage.check(0..settings.endpoints, 0..all).await?;

    let counted = warm_up..all;
    let ledger = &stage.ledger;
    let figures = Figures {
        events_per_second: ledger.events_per_second(counted.clone()),
        deliveries_per_second: ledger.deliveries_per_second(counted.clone()),
        accept_latency_ms: ledger.accept_latency(counted.clone()),
        first_attempt_lag_ms: since(told_before, told_after),
        delivery_lag_ms: ledger.lag(0..settings.endpoints, counted),
        database_cpu_us_per_delivery: each_of(
            database_before.zip(database_after),
            events * settings.endpoints,
        ),
        ..used(&before, &after, events * settings.endpoints)
    };
    stage.subject.stop().await?;
    Ok(figures)
}

/// Returns the database's processor time per delivery between two readings, in microseconds.
pub(super) fn each_of(looks: Option<(Duration, Duration)>, deliveries: usize) -> Option<f64> {
    let (before, after) = looks?;
    let used = after.saturating_sub(before).as_secs_f64() * 1e6;
    Some(used / deliveries.max(1) as f64)
}

/// Returns the resource usage per delivery.
pub(super) fn used(before: &Usage, after: &Usage, deliveries: usize) -> Figures {
    let each = |total: f64| Some(total / deliveries.max(1) as f64);
    let cpu = after.cpu.saturating_sub(before.cpu);
    let written = after.written_bytes.saturating_sub(before.written_bytes);
    Figures {
        cpu_us_per_delivery: each(cpu.as_secs_f64() * 1e6),
        peak_memory_bytes: Some(after.peak_memory_bytes as f64),
        written_bytes_per_delivery: each(written as f64),
        ..Figures::default()
    }
}

/// Reads all metrics every second until that fails.
async fn scrape(stage: &Stage) -> Failure {
    let mut seconds = tokio::time::interval(SCRAPE);
    loop {
        seconds.tick().await;
        let told = async { stage.sender().await?.metrics().await };
        if let Err(failure) = told.await {
            return failure;
        }
    }
}

/// Returns the server's lag histogram, if metrics are on.
async fn lag_histogram(stage: &Stage, seen: MetricsUse) -> Result<Option<Histogram>, Failure> {
    match seen {
        MetricsUse::Nothing => Ok(None),
        MetricsUse::Asked | MetricsUse::Scraped => {
            let page = stage.sender().await?.metrics().await?;
            Ok(Histogram::read(&page, LAG))
        }
    }
}

fn since(before: Option<Histogram>, after: Option<Histogram>) -> Option<Percentiles> {
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

fn outcome(name: &'static str, setting: String, rounds: &[Round], settings: &Settings) -> Outcome {
    let median = Round::median(rounds);
    let relay = median.relay.clone().unwrap_or_default();
    let server = median.server.clone().unwrap_or_default();
    let line = |name: &str, tell: &dyn Fn(&Figures) -> String, share: Option<f64>| {
        let share = share.map(|share| format!("{share:.2}")).unwrap_or_default();
        vec![name.to_owned(), tell(&relay), tell(&server), share]
    };
    let share = |pick: &dyn Fn(&Figures) -> Option<f64>| {
        crate::figures::ratio(pick(&server)?, pick(&relay)?)
    };
    let counted = |name: &str, pick: fn(&Figures) -> Option<f64>| {
        line(name, &|figures| number(pick(figures)), share(&pick))
    };
    let sized = |name: &str, pick: fn(&Figures) -> Option<f64>| {
        line(name, &|figures| bytes(pick(figures)), share(&pick))
    };
    let timed = |name: &str, pick: fn(&Figures) -> Option<Percentiles>| {
        line(name, &|figures| spread(pick(figures)), None)
    };
    let mut table = vec![
        row(&["", "relay", "server", "server/relay"]),
        counted("events/s in", |figures| figures.events_per_second),
        counted("deliveries/s out", |figures| figures.deliveries_per_second),
        timed("accept latency p50 / p99, ms", |f| f.accept_latency_ms),
        timed("first-attempt lag p50 / p99, ms", |f| {
            f.first_attempt_lag_ms
        }),
        timed("delivery lag p50 / p99, ms", |f| f.delivery_lag_ms),
        counted("CPU µs per delivery", |figures| {
            figures.cpu_us_per_delivery
        }),
        sized("peak memory", |figures| figures.peak_memory_bytes),
        sized("written per delivery", |f| f.written_bytes_per_delivery),
    ];
    if server.database_cpu_us_per_delivery.is_some() {
        table.push(counted("database CPU µs per delivery", |figures| {
            figures.database_cpu_us_per_delivery
        }));
    }
    let ratio = median.ratio.map(|ratio| format!("{ratio:.2}"));
    if let Some(ratio) = &ratio {
        table[2][3].clone_from(ratio);
    }
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
        words::count(Settings::unlimited().0 as u64),
    )];
    if !each.is_empty() {
        notes.push(format!(
            "Server/relay in deliveries per second, round by round: {}.",
            each.join(", ")
        ));
    }
    Outcome {
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
