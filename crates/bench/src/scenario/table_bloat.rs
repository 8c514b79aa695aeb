//! Scenario `flat`: cost of commits and fetches on PostgreSQL with many waiting rows, many dead rows, and an old
//! snapshot that keeps vacuum from removing the dead rows. None of these may increase the cost.
//!
//! Each case begins with a new database. The waiting or dead rows belong to the measured endpoint, in the index that
//! fetches scan. First, events are delivered directly. Then the same number is accepted while the endpoint is paused,
//! and fetched when it is resumed.

use std::time::{Duration, Instant};

use posthaste_charts::format;
use posthaste_store::OpenError;
use posthaste_store::postgres::Session;
use serde_json::json;

use super::relay_comparison::database_us_each;
use super::{full_speed, single_endpoint};
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::producer::produce;
use crate::progress::Progress;
use crate::report::{ScenarioResult, number, percentiles, row};
use crate::settings::Settings;

/// Default number of rows in the way.
const BLOAT_ROWS: usize = 1_000_000;
/// Number of events delivered directly, and number of events fetched.
const SAMPLE: usize = 20_000;
/// Number of events before the measurement.
const WARM_UP: usize = 1_000;
/// Time without an arrival after which the run fails.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The rows that are in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Empty,
    FutureRetries,
    DeadRows,
    OldSnapshot,
}

impl Case {
    fn name(self, count: usize) -> String {
        let count = format::count(count as u64);
        match self {
            Case::Empty => "nothing else".to_owned(),
            Case::FutureRetries => format!("{count} future retries"),
            Case::DeadRows => format!("{count} dead rows"),
            Case::OldSnapshot => {
                format!("{count} dead rows, an idle transaction holds the horizon")
            }
        }
    }
}

/// Measurements of one case.
struct Measured {
    direct_per_second: Option<f64>,
    accept: String,
    fetched_per_second: f64,
    database_us: Option<f64>,
    commits_each: f64,
    blocks_each: f64,
}

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let count = settings.events.unwrap_or(BLOAT_ROWS);
    let heads = [
        "in the way",
        "straight, deliveries/s",
        "accept p50 / p99, ms",
        "fetched, deliveries/s",
        "database CPU µs",
        "commits per 1,000",
        "blocks touched",
    ];
    let mut table = vec![row(&heads)];
    let mut documents = Vec::new();
    for case in [
        Case::Empty,
        Case::FutureRetries,
        Case::DeadRows,
        Case::OldSnapshot,
    ] {
        let name = case.name(count);
        let measured = measure(settings, case, count, &name).await?;
        table.push(vec![
            name.clone(),
            number(measured.direct_per_second),
            measured.accept.clone(),
            number(Some(measured.fetched_per_second)),
            number(measured.database_us),
            number(Some(measured.commits_each * 1e3)),
            number(Some(measured.blocks_each)),
        ]);
        documents.push(json!({
            "in_the_way": name,
            "straight_per_second": measured.direct_per_second,
            "fetched_per_second": measured.fetched_per_second,
            "database_cpu_us_per_delivery": measured.database_us,
            "commits_per_delivery": measured.commits_each,
            "blocks_per_delivery": measured.blocks_each,
        }));
    }
    Ok(ScenarioResult {
        name: "flat",
        setting: format!(
            "{} events straight through and as many fetched, with rows in the way at the same endpoint",
            format::count(SAMPLE as u64)
        ),
        table,
        notes: vec![
            "Processor, commits and blocks (buffers hit or read) are per delivery over both halves. They say \
             whether something is walked over; rates depend on everything."
                .to_owned(),
        ],
        document: json!({"cases": documents}),
    })
}

async fn measure(
    settings: &Settings,
    case: Case,
    count: usize,
    name: &str,
) -> Result<Measured, BenchError> {
    let all = WARM_UP + 2 * SAMPLE;
    let fixture = single_endpoint(settings, all).await?;
    let progress = Progress::new(name, all as u64);
    let load = |events| full_speed(settings, events);
    fixture.run(load(0..WARM_UP), 0..1, &progress).await?;

    let database = fixture
        .database
        .as_ref()
        .expect("the settings require PostgreSQL");
    let session = database.session().await?;
    // Stays open until the end of the case. In the case `OldSnapshot` it holds back the vacuum horizon.
    let holder = database.session().await?;
    if case == Case::OldSnapshot {
        let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM meta";
        holder.batch(hold).await.map_err(refused)?;
    }
    // While the endpoint is paused, the server does not fetch the rows that exist only for a moment.
    pause_or_resume(&fixture, "pause").await?;
    insert_rows(&session, case, count).await?;
    pause_or_resume(&fixture, "resume").await?;
    fixture.settled_usage().await?;
    let before = (fixture.database_cpu().await, counters(&session).await?);

    let direct = WARM_UP..WARM_UP + SAMPLE;
    fixture.run(load(direct.clone()), 0..1, &progress).await?;
    pause_or_resume(&fixture, "pause").await?;
    produce(&fixture.target, load(direct.end..all), &fixture.recorder).await?;
    let resumed_at = Instant::now();
    pause_or_resume(&fixture, "resume").await?;
    fixture
        .await_arrivals(all as u64, 0..1, MAX_SILENCE, &progress)
        .await?;
    let fetching = resumed_at.elapsed().as_secs_f64();
    fixture.settled_usage().await?;
    let after = (fixture.database_cpu().await, counters(&session).await?);
    fixture.check(0..1, 0..all).await?;

    let each = |index: usize| (after.1[index] - before.1[index]) as f64 / (2 * SAMPLE) as f64;
    Ok(Measured {
        direct_per_second: fixture.recorder.deliveries_per_second(direct.clone()),
        accept: percentiles(fixture.recorder.accept_latency(direct)),
        fetched_per_second: SAMPLE as f64 / fetching.max(f64::MIN_POSITIVE),
        database_us: database_us_each(before.0.zip(after.0), 2 * SAMPLE),
        commits_each: each(0),
        blocks_each: each(1),
    })
}

/// Pauses or resumes the endpoint. Uses a new connection, because an old one may have been closed as idle.
async fn pause_or_resume(fixture: &Fixture, verb: &str) -> Result<(), BenchError> {
    let mut api = fixture.api().await?;
    api.turn(&fixture.target.tenant, &fixture.endpoints[0].id, verb)
        .await
}

/// Returns the number of commits and of blocks accessed since the database was created.
async fn counters(session: &Session) -> Result<Vec<i64>, BenchError> {
    // PostgreSQL sessions publish their statistics with a delay, and other sessions cannot flush them.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sql = "SELECT xact_commit, blks_hit + blks_read FROM pg_stat_database \
               WHERE datname = current_database()";
    session.numbers(sql).await.map_err(refused)
}

/// Inserts rows where fetches scan: at the measured endpoint, and never due during the measurement.
async fn insert_rows(session: &Session, case: Case, count: usize) -> Result<(), BenchError> {
    let (due, status) = match case {
        Case::Empty => return Ok(()),
        Case::FutureRetries => ("now_ms + 86400000 + n", 1),
        Case::DeadRows | Case::OldSnapshot => ("now_ms - 86400000 + n", 0),
    };
    let insert = format!(
        "ALTER TABLE waiting SET (autovacuum_enabled = {}); \
         INSERT INTO waiting (id, event_id, endpoint_no, tenant_no, created_at, due, first_due, give_up_at, \
         attempts, spent, status, trigger, type) \
         SELECT gen_random_uuid(), gen_random_uuid(), e.no, e.tenant_no, now_ms, {due}, {due}, now_ms + 864000000, \
         {status}, {status}, {status}, 0, 'bench.sent' FROM endpoints e, generate_series(1, {count}) AS n, \
         (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms) AS clock",
        case == Case::FutureRetries
    );
    match case {
        Case::Empty => {}
        Case::FutureRetries => {
            session.batch(&insert).await.map_err(refused)?;
            let counted = "INSERT INTO tally AS t (endpoint_no, slot, waiting, dead) \
                           SELECT no, 31, {count}, 0 FROM (SELECT no FROM endpoints UNION ALL SELECT 0) AS e \
                           ON CONFLICT (endpoint_no, slot) DO UPDATE SET waiting = t.waiting + excluded.waiting";
            let counted = counted.replace("{count}", &count.to_string());
            session.batch(&counted).await.map_err(refused)?;
        }
        Case::DeadRows | Case::OldSnapshot => {
            // Two transactions: rows that were never visible could be removed immediately.
            session.batch(&insert).await.map_err(refused)?;
            let delete = "DELETE FROM waiting WHERE due < (extract(epoch FROM now()) * 1000)::bigint - 43200000";
            session.batch(delete).await.map_err(refused)?;
        }
    }
    session.batch("CHECKPOINT").await.map_err(refused)
}

fn refused(error: OpenError) -> BenchError {
    BenchError::Usage(error.to_string())
}
