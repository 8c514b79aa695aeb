//! Scenario `schedules`: schedules that run beside full delivery load, many that are due at once, and many that rest.
//!
//! The lag is that of the server's metric `posthaste_schedule_lag_seconds`: from the occurrence to the commit of its event.
//! The tenant of the schedules has no endpoints, so that its events cost what accepting them costs; the load has one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_charts::format;
use posthaste_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::hostile_callers::neighbour::{Neighbour, NeighbourResult};
use super::{full_speed, single_endpoint};
use crate::api::Api;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::progress::Progress;
use crate::prometheus::{Histogram, total};
use crate::report::{ScenarioResult, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::Percentiles;

/// Default number of schedules that rest.
const RESTING: usize = 100_000;
/// Share of them that are due at once, as a divisor.
const DUE_SHARE: usize = 10;
/// Schedules that run every second beside the load.
const TICKING: usize = 100;
/// Events of the load, for each schedule that rests.
const LOAD_PER_RESTING: usize = 2;
/// Time in which schedules run without load.
const QUIET: Duration = Duration::from_secs(5);
/// Time over which the cost of an idle server is measured.
const IDLE: Duration = Duration::from_secs(10);
/// Connections that create schedules.
const CONNECTIONS: usize = 16;
/// Time between the creation of the last schedule and the moment at which they are due.
const LEAD: Duration = Duration::from_secs(5);
/// Maximum time until all have run.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// Interval between two looks at the metrics.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

const LAG: &str = "posthaste_schedule_lag_seconds";

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let resting = settings.events.unwrap_or(RESTING).max(DUE_SHARE);
    let due = resting / DUE_SHARE;
    let load = (resting * LOAD_PER_RESTING).max(TICKING);
    let fixture = single_endpoint(settings, load).await?;
    let before = idle_cpu(&fixture).await?;
    // A connection of its own after each time without requests.
    let mut api = fixture.api().await?;
    let rests = tenant(&mut api, &fixture, "resting", resting).await?;
    let created_at = Instant::now();
    create(
        &fixture,
        &rests,
        resting,
        &at(Duration::from_secs(86_400 * 300)),
    )
    .await?;
    let per_second = resting as f64 / created_at.elapsed().as_secs_f64();
    let after = idle_cpu(&fixture).await?;
    let mut api = fixture.api().await?;

    let ticks = tenant(&mut api, &fixture, "ticking", TICKING).await?;
    create(&fixture, &ticks, TICKING, &json!({"every": "1s"})).await?;
    let quiet = lag_during(&mut api, async {
        sleep(QUIET).await;
        Ok(())
    });
    let quiet = quiet.await?;
    let progress = Progress::new("schedules", load as u64);
    let busy = lag_during(
        &mut api,
        fixture.run(full_speed(settings, 0..load), 0..1, &progress),
    );
    let busy = busy.await?;
    fixture.check(0..1, 0..load).await?;
    pause_all(&mut api, &ticks).await?;

    let neighbour = Neighbour {
        target: fixture.target.clone(),
        per_second: settings.per_second,
        payload_bytes: settings.payload_bytes,
    };
    let alone = neighbour.measure(LEAD).await;
    let many = tenant(&mut api, &fixture, "due", due).await?;
    let lead = LEAD + Duration::from_secs_f64(due as f64 / per_second * 1.5);
    let due_at = Instant::now() + lead;
    create(&fixture, &many, due, &at(lead)).await?;
    let left = due_at.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(BenchError::Broken(
            "creating the schedules took too long".to_owned(),
        ));
    }
    let (beside, through) = tokio::join!(
        neighbour.measure(left + LEAD),
        through_within(&mut api, due_at, due)
    );
    let through = through?;
    Ok(outcome(
        settings,
        &Figures {
            resting,
            due,
            load,
            idle_before: before,
            idle_after: after,
            quiet,
            busy,
            through,
            alone,
            beside,
        },
    ))
}

/// The measured values.
struct Figures {
    resting: usize,
    due: usize,
    load: usize,
    /// Share of a core that the idle server uses, without and with the resting schedules.
    idle_before: f64,
    idle_after: f64,
    quiet: Option<Percentiles>,
    busy: Option<Percentiles>,
    /// Time from the moment at which they are due until all have run.
    through: Duration,
    alone: NeighbourResult,
    beside: NeighbourResult,
}

/// Creates a tenant that may have this number of schedules. Returns its id.
async fn tenant(
    api: &mut Api,
    fixture: &Fixture,
    name: &str,
    schedules: usize,
) -> Result<String, BenchError> {
    let id = format!("{name}-{}", fixture.target.tenant);
    let limits = json!({
        "schedules": schedules,
        "events_per_second": 1_000_000,
        "deliveries_per_second": 100_000_000,
    });
    let tenant = json!({"id": id, "name": "Benchmark", "limits": limits});
    api.post("/v1/tenants", Some(&tenant)).await?;
    Ok(id)
}

/// Returns the timing of one occurrence after this time.
fn at(after: Duration) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = now.unwrap_or_default() + after;
    json!({"at": [Timestamp(at.as_millis() as u64).to_string()]})
}

/// Creates schedules with this timing, named by their numbers.
async fn create(
    fixture: &Fixture,
    tenant: &str,
    count: usize,
    timing: &Value,
) -> Result<(), BenchError> {
    let path = format!("/v1/tenants/{tenant}/schedules");
    let mut creators = JoinSet::new();
    for first in 0..CONNECTIONS {
        let mut api = fixture.api().await?;
        let (path, timing) = (path.clone(), timing.clone());
        creators.spawn(async move {
            for number in (first..count).step_by(CONNECTIONS) {
                let mut schedule = timing.clone();
                schedule["id"] = json!(format!("s{number}"));
                schedule["event"] = json!({"type": "bench.due", "payload": number});
                api.post(&path, Some(&schedule)).await?;
            }
            Ok::<(), BenchError>(())
        });
    }
    while let Some(created) = creators.join_next().await {
        created.expect("a creator does not panic")?;
    }
    Ok(())
}

async fn pause_all(api: &mut Api, tenant: &str) -> Result<(), BenchError> {
    for number in 0..TICKING {
        let path = format!("/v1/tenants/{tenant}/schedules/s{number}/pause");
        api.post(&path, None).await?;
    }
    Ok(())
}

/// Returns the share of a core that the server uses while nothing happens.
async fn idle_cpu(fixture: &Fixture) -> Result<f64, BenchError> {
    let before = fixture.settled_usage().await?;
    let began_at = Instant::now();
    sleep(IDLE).await;
    let used = fixture.process.usage()?.cpu.saturating_sub(before.cpu);
    Ok(used.as_secs_f64() / began_at.elapsed().as_secs_f64())
}

/// Returns the lag of the runs during some work, in milliseconds.
async fn lag_during(
    api: &mut Api,
    work: impl Future<Output = Result<(), BenchError>>,
) -> Result<Option<Percentiles>, BenchError> {
    let before = lag(api).await?;
    work.await?;
    let during = lag(api).await?.since(&before);
    let percentiles = during.quantile(0.5).zip(during.quantile(0.99));
    Ok(percentiles.map(|(p50, p99)| Percentiles {
        p50: p50 * 1e3,
        p99: p99 * 1e3,
    }))
}

async fn lag(api: &mut Api) -> Result<Histogram, BenchError> {
    let metrics = api.metrics().await?;
    Histogram::read(&metrics, LAG).ok_or_else(|| missing(LAG))
}

fn missing(metric: &str) -> BenchError {
    BenchError::Broken(format!("the server has no metric {metric}"))
}

/// Waits until this number of schedules has run. Returns the time since they were due.
async fn through_within(
    api: &mut Api,
    due_at: Instant,
    count: usize,
) -> Result<Duration, BenchError> {
    let name = "posthaste_schedule_runs_total";
    let runs = async |api: &mut Api| {
        let metrics = api.metrics().await?;
        total(&metrics, name).ok_or_else(|| missing(name))
    };
    let before = runs(api).await?;
    tokio::time::sleep_until(due_at).await;
    while runs(api).await? < before + count as f64 {
        if due_at.elapsed() > MAX_WAIT {
            return Err(BenchError::Broken(
                "schedules that were due have not run".to_owned(),
            ));
        }
        sleep(LOOK_INTERVAL).await;
    }
    Ok(due_at.elapsed())
}

fn outcome(settings: &Settings, figures: &Figures) -> ScenarioResult {
    let seconds = figures.through.as_secs_f64();
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    ScenarioResult {
        name: "schedules",
        setting: format!(
            "{} schedules stored, {TICKING} run every second beside {} events at full speed, {} due in one second",
            format::count(figures.resting as u64),
            format::count(figures.load as u64),
            format::count(figures.due as u64)
        ),
        table: vec![
            row(&[
                "lag quiet p50 / p99, ms",
                "lag beside load p50 / p99, ms",
                "all due have run within, s",
                "neighbour alone p50 / p99, ms",
                "neighbour meanwhile p50 / p99, ms",
                "idle before / with them, of a core",
            ]),
            vec![
                percentiles(figures.quiet),
                percentiles(figures.busy),
                number(Some(seconds)),
                percentiles(figures.alone.accept_latency_ms),
                percentiles(figures.beside.accept_latency_ms),
                format!(
                    "{} / {}",
                    percent(figures.idle_before),
                    percent(figures.idle_after)
                ),
            ],
        ],
        notes: vec![format!(
            "The lag is from the occurrence to the commit of its event. The neighbour sends {} events a second.",
            settings.per_second
        )],
        document: json!({
            "resting": figures.resting,
            "due": figures.due,
            "load": figures.load,
            "lag_quiet_ms": figures.quiet,
            "lag_beside_load_ms": figures.busy,
            "due_have_run_within_seconds": seconds,
            "neighbour_alone": figures.alone,
            "neighbour_meanwhile": figures.beside,
            "idle_cores_before": figures.idle_before,
            "idle_cores_with_them": figures.idle_after,
        }),
    }
}
