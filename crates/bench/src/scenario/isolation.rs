//! Scenarios `hanging` and `backlog`: the lag of a healthy endpoint beside a bad one. It must not increase.
//!
//! The lag is measured outside, from before the producer sends until the healthy receiver has the request. The
//! server's own histogram contains both endpoints and cannot separate them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use posthaste_charts::format;
use posthaste_core::lane::RateLimit;
use serde_json::json;
use tokio::time::sleep;

use super::{unlimited, with_rate};
use crate::api::NewEndpoint;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::producer::{Load, produce, produce_batches};
use crate::progress::Progress;
use crate::receiver::{Behaviour, HANG_DURATION};
use crate::report::{ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::{Percentiles, median, ratio};
use crate::usage::Usage;

/// Number of events for the healthy endpoint in each part; at 100 events per second they take 10 s.
const SAMPLE: usize = 1_000;
/// Number of events before the measurement.
const WARM_UP: usize = 200;
/// Number of events for the bad endpoint before the healthy one is measured restarted.
const HEAD_START: usize = 500;
/// Default size of the backlog.
pub(super) const PENDING: usize = 1_000_000;
/// Number of concurrent batches.
pub(super) const BATCH_CONNECTIONS: usize = 4;
/// Target: maximum ratio of the p99 lag with a bad neighbour to the p99 lag without.
const MAX_RATIO: f64 = 2.0;

const HEALTHY: usize = 0;
const BAD: usize = 1;
const HEALTHY_TYPE: &str = "bench.healthy";
const BAD_TYPE: &str = "bench.bad";

/// Settings of both endpoints, each with its own event type.
fn endpoint(settings: &Settings, index: usize, url: String) -> NewEndpoint {
    let of = |name: &str| vec![name.to_owned()];
    let event_types = if index == HEALTHY {
        of(HEALTHY_TYPE)
    } else {
        of(BAD_TYPE)
    };
    NewEndpoint {
        event_types,
        ..unlimited(settings, url)
    }
}

fn load(settings: &Settings, start: usize, count: usize, event_type: &str) -> Load {
    Load {
        events: start..start + count,
        per_second: Some(settings.per_second),
        connections: settings.connections,
        payload_bytes: settings.payload_bytes,
        event_type: Load::same_type(event_type),
    }
}

/// Returns the lag of the healthy endpoint over one part.
async fn healthy_lag(
    fixture: &Fixture,
    settings: &Settings,
    start: usize,
    count: usize,
    what: &str,
) -> Result<Percentiles, BenchError> {
    let progress = Progress::new(what, (start + count) as u64);
    let load = load(settings, start, count, HEALTHY_TYPE);
    fixture.run(load, HEALTHY..HEALTHY + 1, &progress).await?;
    let lag = fixture
        .recorder
        .lag(HEALTHY..HEALTHY + 1, start..start + count);
    lag.ok_or_else(|| BenchError::Broken("nothing arrived".to_owned()))
}

/// Scenario `hanging`: one endpoint takes 30 s for every response.
pub async fn hanging(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let sample = settings.events.unwrap_or(SAMPLE);
    let mut pairs = Vec::new();
    for nth in 1..=settings.rounds {
        pairs.push(hanging_round(settings, sample, nth).await?);
    }
    let (baseline, with_bad): (Vec<Percentiles>, Vec<Percentiles>) = pairs.iter().copied().unzip();
    let ratios = pairs
        .iter()
        .filter_map(|(baseline, with_bad)| ratio(with_bad.p99, baseline.p99));
    let ratios: Vec<f64> = ratios.collect();
    let middle = median(ratios.iter().copied());
    let (baseline, with_bad) = (
        Percentiles::median(&baseline),
        Percentiles::median(&with_bad),
    );
    Ok(ScenarioResult {
        name: "hanging",
        setting: format!(
            "a healthy endpoint at {} a second, alone and beside one that takes {} s for every \
             request and gets as many events",
            settings.per_second,
            HANG_DURATION.as_secs(),
        ),
        table: vec![
            row(&[
                "healthy endpoint",
                "delivery lag p50 / p99, ms",
                "p99, of quiet",
            ]),
            row(&["quiet", &percentiles(baseline), "1.00"]),
            row(&[
                "beside the hanging one",
                &percentiles(with_bad),
                &number(middle),
            ]),
        ],
        notes: vec![format!(
            "Medians of {} rounds; the target is at most {MAX_RATIO} times quiet. The ratio is the \
             median of each round's own.",
            settings.rounds
        )],
        document: json!({
            "quiet_ms": baseline,
            "beside_ms": with_bad,
            "p99_ratio": middle,
            "p99_ratios": ratios,
            "target": MAX_RATIO,
        }),
    })
}

async fn hanging_round(
    settings: &Settings,
    sample: usize,
    nth: usize,
) -> Result<(Percentiles, Percentiles), BenchError> {
    let healthy = WARM_UP + 2 * sample;
    let size = (2, healthy + HEAD_START + sample);
    let new_endpoint = |index, url| endpoint(settings, index, url);
    let fixture = Fixture::server(settings, size, new_endpoint).await?;
    fixture.receivers.set_behaviour(BAD, Behaviour::Hanging);
    let named = |what: &str| format!("{what}, round {nth} of {}", settings.rounds);
    healthy_lag(&fixture, settings, 0, WARM_UP, &named("warm-up")).await?;
    let baseline = healthy_lag(&fixture, settings, WARM_UP, sample, &named("quiet")).await?;

    let mut head_start = load(settings, healthy, HEAD_START, BAD_TYPE);
    head_start.per_second = None;
    produce(&fixture.target, head_start, &fixture.recorder).await?;
    sleep(Duration::from_secs(1)).await;
    let bad = load(settings, healthy + HEAD_START, sample, BAD_TYPE);
    let what = named("beside");
    let (bad, with_bad) = tokio::join!(
        produce(&fixture.target, bad, &fixture.recorder),
        healthy_lag(&fixture, settings, WARM_UP + sample, sample, &what),
    );
    bad?;
    let with_bad = with_bad?;
    fixture.check(HEALTHY..HEALTHY + 1, 0..healthy).await?;
    Ok((baseline, with_bad))
}

/// Starts a server whose bad endpoint has this rate limit.
async fn start_with_limit(
    settings: &Settings,
    events: usize,
    rate: RateLimit,
) -> Result<Fixture, BenchError> {
    let new_endpoint = |index, url| {
        let mut endpoint = endpoint(settings, index, url);
        if index == BAD {
            endpoint.limits = Some(with_rate(settings, rate));
        }
        endpoint
    };
    Fixture::server(settings, (2, events), new_endpoint).await
}

/// Scenario `backlog`: one endpoint has a large backlog. First it is paused; after a restart it drains at its rate
/// limit.
pub async fn backlog(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let pending = settings.events.unwrap_or(PENDING);
    let rate = RateLimit::default();
    let healthy = WARM_UP + 3 * SAMPLE;
    let fixture = start_with_limit(settings, healthy + pending, rate).await?;
    let tenant = fixture.target.tenant.clone();
    let bad = fixture.endpoints[BAD].id.clone();
    fixture.api().await?.turn(&tenant, &bad, "pause").await?;
    healthy_lag(&fixture, settings, 0, WARM_UP, "warm-up").await?;
    let baseline = healthy_lag(&fixture, settings, WARM_UP, SAMPLE, "quiet").await?;

    let event_type = Load::same_type(BAD_TYPE);
    let fed = fill(&fixture, settings, healthy..healthy + pending, event_type).await?;
    let held = healthy_lag(&fixture, settings, WARM_UP + SAMPLE, SAMPLE, "beside, held").await?;
    let full = fixture.process.usage()?;

    let (fixture, _, started_within) = fixture.restart().await?;
    fixture.api().await?.turn(&tenant, &bad, "resume").await?;
    let start = WARM_UP + 2 * SAMPLE;
    let draining = healthy_lag(&fixture, settings, start, SAMPLE, "beside, draining").await?;
    let drained = fixture.recorder.arrivals(BAD..BAD + 1);
    let restarted = fixture.process.usage()?;
    fixture.check(HEALTHY..HEALTHY + 1, 0..healthy).await?;
    if drained == 0 {
        return Err(BenchError::Broken("the backlog did not drain".to_owned()));
    }

    let line = |name: &str, lag: Percentiles, peak: u64| {
        let share = number(ratio(lag.p99, baseline.p99));
        row(&[
            name,
            &percentiles(Some(lag)),
            &share,
            &bytes(Some(peak as f64)),
        ])
    };
    let many = format::count(pending as u64);
    Ok(ScenarioResult {
        name: "backlog",
        setting: format!(
            "a healthy endpoint at {} a second beside one with {many} pending",
            settings.per_second
        ),
        table: vec![
            row(&[
                "healthy endpoint",
                "delivery lag p50 / p99, ms",
                "p99, of quiet",
                "peak memory",
            ]),
            line("quiet", baseline, fed.before.peak_memory_bytes),
            line("beside, held", held, full.peak_memory_bytes),
            line(
                "beside, draining after a restart",
                draining,
                restarted.peak_memory_bytes,
            ),
        ],
        notes: vec![format!(
            "{many} were taken in at {} a second, in batches of 1,000, {} written for each. With \
             them the server was ready {} ms after its start. {} of them drained meanwhile, at most {} \
             a second. The target is at most {MAX_RATIO} times quiet.",
            number(Some(fed.per_second)),
            bytes(Some(fed.written_bytes_each)),
            started_within.as_millis(),
            format::count(drained),
            rate.per_second,
        )],
        document: json!({
            "pending": pending,
            "quiet_ms": baseline,
            "beside_held_ms": held,
            "beside_draining_ms": draining,
            "p99_ratio_held": ratio(held.p99, baseline.p99),
            "p99_ratio_draining": ratio(draining.p99, baseline.p99),
            "taken_in_per_second": fed.per_second,
            "written_bytes_per_event": fed.written_bytes_each,
            "ready_ms": started_within.as_millis() as u64,
            "peak_memory_bytes": full.peak_memory_bytes,
            "peak_memory_after_restart_bytes": restarted.peak_memory_bytes,
            "drained": drained,
            "target": MAX_RATIO,
        }),
    })
}

/// The result of sending many events.
pub(super) struct FillResult {
    /// Events per second.
    pub(super) per_second: f64,
    /// Bytes written per event.
    pub(super) written_bytes_each: f64,
    /// Usage of the server before.
    pub(super) before: Usage,
}

/// Sends many events in batches.
pub(super) async fn fill(
    fixture: &Fixture,
    settings: &Settings,
    events: std::ops::Range<usize>,
    event_type: Arc<dyn Fn(usize) -> Arc<str> + Send + Sync>,
) -> Result<FillResult, BenchError> {
    let count = events.len();
    let load = Load {
        events,
        per_second: None,
        connections: BATCH_CONNECTIONS,
        payload_bytes: settings.payload_bytes,
        event_type,
    };
    let progress = Progress::new("taking in", count as u64);
    let accepted = Arc::new(AtomicUsize::new(0));
    let before = fixture.process.settled_usage().await?;
    let begun_at = Instant::now();
    let feeding = produce_batches(&fixture.target, load, Arc::clone(&accepted));
    progress
        .track(feeding, || accepted.load(Ordering::Relaxed) as u64)
        .await?;
    let seconds = begun_at.elapsed().as_secs_f64();
    let after = fixture.process.settled_usage().await?;
    let written = after.written_bytes.saturating_sub(before.written_bytes);
    Ok(FillResult {
        per_second: count as f64 / seconds.max(f64::MIN_POSITIVE),
        written_bytes_each: written as f64 / count.max(1) as f64,
        before,
    })
}
