//! `posthaste bench`: measures throughput, latency and cost, and compares them with the maximum of this machine.
//!
//! Guarantees:
//!
//! - **Measured from outside.** The measured program runs as a child process. Producers and receivers run in this
//!   process and record with their own clock what they sent and received.
//! - **Compared with this machine, now.** The [`relay`] accepts and sends the same signed requests, without a store
//!   and without an engine. Relay and server take turns, so that other load on the machine affects both. The ratio of
//!   each round is the main result.
//! - **Complete.** Every event must arrive exactly once at every endpoint, byte for byte, and signed. Otherwise the
//!   run fails and names what is missing.
//!
//! ```text
//!  producers ─▶ relay | server (child process) ─▶ receivers
//!      └───────────────▶ recorder ◀────────────────────┘
//! ```

pub mod api;
pub mod database;
pub mod error;
pub mod faults;
pub mod fixture;
pub mod measured_process;
pub mod payload;
pub mod producer;
pub mod progress;
pub mod prometheus;
pub mod receiver;
pub mod recorder;
pub mod relay;
pub mod report;
pub mod scenario;
pub mod settings;
pub mod statistics;
pub mod usage;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::runtime;

use error::BenchError;
use report::ScenarioResult;
use scenario::{
    egress_client, history, hostile_callers, isolation, memory, metrics_cost, outbox, pages,
    partial_failure, recovery, relay_comparison, retention, schedules, table_bloat,
};
use settings::{Scenario, Settings};

/// Runs the requested scenarios one after the other.
pub fn run(settings: &Settings) -> Result<Vec<ScenarioResult>, BenchError> {
    settings.check()?;
    raise_open_file_limit();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::machine("cannot start a thread"))?;
    runtime.block_on(async {
        let mut outcomes = Vec::new();
        for scenario in &settings.scenarios {
            outcomes.push(run_scenario(*scenario, settings).await?);
        }
        Ok(outcomes)
    })
}

async fn run_scenario(
    scenario: Scenario,
    settings: &Settings,
) -> Result<ScenarioResult, BenchError> {
    match scenario {
        Scenario::Throughput => relay_comparison::throughput(settings).await,
        Scenario::Lag => relay_comparison::lag(settings).await,
        Scenario::Hanging => isolation::hanging(settings).await,
        Scenario::Backlog => isolation::backlog(settings).await,
        Scenario::Recovery => recovery::run(settings).await,
        Scenario::Memory => memory::run(settings).await,
        Scenario::History => history::run(settings).await,
        Scenario::Door => egress_client::run(settings).await,
        Scenario::Nodes => relay_comparison::nodes(settings).await,
        Scenario::Flat => table_bloat::run(settings).await,
        Scenario::Pages => pages::run(settings).await,
        Scenario::Retention => retention::run(settings).await,
        Scenario::Observe => metrics_cost::run(settings).await,
        Scenario::PartialFailure => partial_failure::run(settings).await,
        Scenario::Outbox => outbox::run(settings).await,
        Scenario::Schedules => schedules::run(settings).await,
        Scenario::HostileCallers => hostile_callers::run(settings).await,
    }
}

/// Raises the limit of open files: a thousand endpoints need a thousand connections, here and in the child process.
/// If the system refuses, the run fails later with the name of what could not be opened.
fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// Describes the machine, for readers of the results.
pub fn environment(settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    lines.push(format!(
        "{cores} cores, shared by the server, the producers and the receivers"
    ));
    if cfg!(debug_assertions) {
        lines.push("this is a debug build: its figures mean nothing".to_owned());
    }
    if let Some(store) = settings.database() {
        lines.extend(database::describe(store));
        return lines;
    }
    let folder = settings.data_folder(&std::env::temp_dir());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let kind = folder.and_then(|folder| usage::file_system(&mounts, &folder).map(str::to_owned));
    match kind.as_deref() {
        Some("tmpfs" | "ramfs") => lines.push(
            "the store lies in memory, where syncing costs nothing: set TMPDIR or --store to a disk"
                .to_owned(),
        ),
        Some(kind) => lines.push(format!("the store lies on {kind}")),
        None => {}
    }
    lines
}

/// Builds the JSON document of all results. The comparison of relay and server comes first, because most readers want
/// it.
pub fn document(settings: &Settings, outcomes: &[ScenarioResult]) -> Value {
    let mut document = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "circumstances": environment(settings),
        "settings": settings,
    });
    if let Some(summary) = summary(outcomes) {
        for (name, value) in summary {
            document[name] = value;
        }
    }
    document["scenarios"] = outcomes.iter().map(ScenarioResult::json).collect();
    document
}

/// Returns the measurements of relay, server and their ratio: throughput from the run at full speed, lag from the paced
/// run.
fn summary(outcomes: &[ScenarioResult]) -> Option<[(&'static str, Value); 3]> {
    let named = |name: &str| outcomes.iter().find(|outcome| outcome.name == name);
    let fast = named("throughput")?;
    let side = |side: &str| {
        let mut measurements = fast.document[side].clone();
        // At full speed the lag only reflects the length of the queue.
        for lag in ["first_attempt_lag_ms", "delivery_lag_ms"] {
            if let Value::Object(measurements) = &mut measurements {
                let value = named("lag").map(|paced| paced.document[side][lag].clone());
                measurements.insert(lag.to_owned(), value.unwrap_or_default());
            }
        }
        measurements
    };
    let ratio = fast.document["ratio"].clone();
    Some([
        ("relay", side("relay")),
        ("server", side("server")),
        ("ratio", ratio),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, document: Value) -> ScenarioResult {
        ScenarioResult {
            name,
            setting: String::new(),
            table: Vec::new(),
            notes: Vec::new(),
            document,
        }
    }

    #[test]
    fn throughput_comes_from_the_fast_run_and_lag_from_the_paced_one() {
        let fast = json!({"relay": null, "ratio": 0.5,
            "server": {"events_per_second": 9, "first_attempt_lag_ms": {"p50": 900}}});
        let paced = json!({"relay": null, "ratio": 1.0,
            "server": {"events_per_second": 1, "first_attempt_lag_ms": {"p50": 2}}});
        let both = [outcome("throughput", fast), outcome("lag", paced)];
        let [(_, relay), (_, server), (_, ratio)] = summary(&both).unwrap();
        assert_eq!(relay, Value::Null);
        assert_eq!(server["events_per_second"], 9);
        assert_eq!(server["first_attempt_lag_ms"]["p50"], 2);
        assert_eq!(ratio, 0.5);
        let [_, (_, alone), _] = summary(&both[..1]).unwrap();
        assert_eq!(alone["first_attempt_lag_ms"], Value::Null);
        assert!(summary(&both[1..]).is_none());
    }
}
