//! Scenario `outbox`: rows of an application's outbox, paced and at full speed.
//!
//! The application's database is a new one on the server of the store, and the rows are inserted by plain SQL. The paced
//! part measures the time from just before the `INSERT`, so it includes the commit of the application. The part at full
//! speed measures the rows per second from the first insert until the outbox is empty.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_charts::format;
use posthaste_store::OpenError;
use posthaste_store::postgres::Session;
use posthaste_store::postgres::outbox_table::{TableName, setup_sql};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::{EVENT_TYPE, single_endpoint};
use crate::database::Database;
use crate::error::BenchError;
use crate::payload;
use crate::progress::Progress;
use crate::recorder::Recorder;
use crate::report::{ScenarioResult, number, percentiles, row};
use crate::settings::Settings;

/// Default number of rows at full speed.
const ROWS: usize = 100_000;
/// Seconds of the paced part.
const PACED_SECONDS: f64 = 20.0;
/// Rows before the measurement.
const WARM_UP: usize = 500;
/// Concurrent transactions of the application at full speed.
const WRITERS: usize = 4;
/// Rows of each of these transactions.
const ROWS_PER_COMMIT: usize = 50;
/// Time without an arrival after which the run fails.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Interval at which the number of waiting rows is looked up.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let rows = settings.events.unwrap_or(ROWS);
    let paced = ((settings.per_second * PACED_SECONDS) as usize).clamp(1, rows);
    let store = settings
        .database()
        .expect("the settings require PostgreSQL");
    let name = format!("posthaste_bench_outbox_{}", std::process::id());
    let application = Database::create(store, &name).await?;
    let session = application.session().await?;
    let setup = setup_sql(&TableName::default());
    session.batch(&setup).await.map_err(refused)?;
    let directory = TempDir::with_prefix("posthaste-bench-").map_err(BenchError::machine(
        "cannot make a folder for the configuration",
    ))?;
    let config = directory.path().join("posthaste.toml");
    let text = format!(
        "[[outbox]]\nname = \"bench\"\ndatabase = \"{}\"\n[tenant_limits]\nevents_per_second = \"none\"\n",
        application.url()
    );
    std::fs::write(&config, text).map_err(BenchError::machine("cannot write the configuration"))?;
    let with_outbox = Settings {
        config: Some(config),
        ..settings.clone()
    };

    let all = WARM_UP + paced + rows;
    let fixture = single_endpoint(&with_outbox, all).await?;
    let source = Source {
        tenant: fixture.target.tenant.clone(),
        payload_bytes: settings.payload_bytes,
        recorder: Arc::clone(&fixture.recorder),
    };
    let progress = Progress::new("outbox", all as u64);
    let arrived = async |count: usize| {
        fixture
            .await_arrivals(count as u64, 0..1, MAX_SILENCE, &progress)
            .await
    };
    source.insert(&session, 0..WARM_UP).await?;
    arrived(WARM_UP).await?;

    let first = WARM_UP;
    let mut ticks = interval(Duration::from_secs_f64(1.0 / settings.per_second));
    for number in first..first + paced {
        ticks.tick().await;
        source.insert(&session, number..number + 1).await?;
    }
    arrived(first + paced).await?;
    let lag = fixture.recorder.lag(0..1, first..first + paced);

    let first = first + paced;
    let began_at = Instant::now();
    source.insert_all(&application, first..all).await?;
    let inserted_within = began_at.elapsed();
    until_empty(&session).await?;
    let read_within = began_at.elapsed();
    arrived(all).await?;
    let deliveries = fixture.recorder.deliveries_per_second(first..all);
    fixture.check(0..1, 0..all).await?;

    let per_second = |within: Duration| rows as f64 / within.as_secs_f64();
    let (inserted, read) = (per_second(inserted_within), per_second(read_within));
    let pace = format!("{}/s", format::count(settings.per_second as u64));
    Ok(ScenarioResult {
        name: "outbox",
        setting: format!(
            "{} rows at {pace}, then {} rows at full speed, from one table to one endpoint",
            format::count(paced as u64),
            format::count(rows as u64)
        ),
        table: vec![
            row(&[
                "commit to arrival p50 / p99, ms",
                "inserted, rows/s",
                "read, rows/s",
                "deliveries/s",
            ]),
            vec![
                percentiles(lag),
                number(Some(inserted)),
                number(Some(read)),
                number(deliveries),
            ],
        ],
        notes: vec![format!(
            "At full speed {WRITERS} sessions insert {ROWS_PER_COMMIT} rows per transaction, on the same server as the store."
        )],
        document: json!({
            "paced_rows": paced,
            "rows": rows,
            "lag_ms": lag,
            "inserted_rows_per_second": inserted,
            "read_rows_per_second": read,
            "deliveries_per_second": deliveries,
        }),
    })
}

/// Inserts rows as an application does.
#[derive(Clone)]
struct Source {
    tenant: String,
    payload_bytes: usize,
    recorder: Arc<Recorder>,
}

impl Source {
    /// Inserts these rows in one transaction.
    async fn insert(&self, session: &Session, numbers: Range<usize>) -> Result<(), BenchError> {
        let mut sql = "INSERT INTO posthaste_outbox (tenant, type, payload) VALUES ".to_owned();
        for number in numbers.clone() {
            if number > numbers.start {
                sql.push(',');
            }
            sql.push_str(&format!("('{}', '{EVENT_TYPE}', '", self.tenant));
            payload::write(&mut sql, number, self.payload_bytes);
            sql.push_str("')");
        }
        for number in numbers {
            self.recorder.record_sent(number);
        }
        session.batch(&sql).await.map_err(refused)
    }

    /// Inserts these rows in concurrent transactions.
    async fn insert_all(
        &self,
        application: &Database,
        all: Range<usize>,
    ) -> Result<(), BenchError> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let session = application.session().await?;
            let (source, all) = (self.clone(), all.clone());
            writers.spawn(async move {
                let step = WRITERS * ROWS_PER_COMMIT;
                for first in (all.start + writer * ROWS_PER_COMMIT..all.end).step_by(step) {
                    let end = all.end.min(first + ROWS_PER_COMMIT);
                    source.insert(&session, first..end).await?;
                }
                Ok::<(), BenchError>(())
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer does not panic")?;
        }
        Ok(())
    }
}

/// Waits until no row is left.
async fn until_empty(session: &Session) -> Result<(), BenchError> {
    let left = "SELECT count(*) FROM posthaste_outbox WHERE error IS NULL";
    let began_at = Instant::now();
    while session.numbers(left).await.map_err(refused)?[0] > 0 {
        if began_at.elapsed() > MAX_SILENCE {
            return Err(BenchError::Broken("rows are left in the outbox".to_owned()));
        }
        sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

fn refused(error: OpenError) -> BenchError {
    BenchError::Usage(error.to_string())
}
