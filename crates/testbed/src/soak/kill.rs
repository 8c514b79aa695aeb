//! One node on SQLite that is killed again and again while it accepts, sends and records.

use std::time::{Duration, Instant};

use posthaste_core::rng::Rng;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::checks::{self, EndpointLimits, Evidence, Fault};
use super::load::Load;
use super::report::{ScenarioRow, SoakReport};
use super::{SoakOptions, TENANT};
use crate::{Answer, Arrival, Node, NodeOptions, Receiver};

const ENDPOINTS: usize = 6;
const LIMITS: EndpointLimits = EndpointLimits {
    max_in_flight: 4,
    per_second: 200,
    burst: 200,
    max_attempts: 60,
};
/// Time between a start and the next kill, in milliseconds. The short ones hit the start and the recovery.
const RUNS_MS: (u64, u64) = (5, 3_000);

/// Runs a node and kills it until the duration has passed. Returns what happened.
///
/// # Panics
///
/// If the node does not start again after a kill.
pub async fn run(options: &SoakOptions) -> SoakReport {
    println!("seed {}: kills after {RUNS_MS:?} ms", options.seed);
    let mut rng = Rng::seeded(options.seed);
    let home = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", home.path().join("posthaste.db").display());
    let launch = NodeOptions::new(&options.program, &store, home.path())
        .with(&["--log-level", "warn,posthaste::attempt=off"]);
    let start = || block_in_place(|| Node::start(&launch));
    let answer = |arrival: &Arrival| {
        let refuses = arrival.number.is_multiple_of(11) && arrival.attempt() < 4;
        let status = if refuses { 500 } else { 200 };
        Answer::status(status).after(Duration::from_millis(10))
    };
    let receiver = Receiver::start(answer).await;
    let mut node = start();
    create_endpoints(&node, &receiver).await;
    let addresses = watch::Sender::new(vec![node.address.clone()]);
    let load = Load::start(ENDPOINTS, options.events_per_second, &addresses);
    let (mut faults, mut outages) = (Vec::new(), Vec::new());
    let ends_at = Instant::now() + options.duration;
    while Instant::now() < ends_at {
        sleep(Duration::from_millis(rng.between(RUNS_MS.0, RUNS_MS.1))).await;
        let (began, victim) = (Instant::now(), node.pid());
        block_in_place(|| node.kill());
        let ended = Instant::now();
        node = start();
        outages.push(began.elapsed());
        addresses.send_replace(vec![node.address.clone()]);
        faults.push(Fault {
            name: "kill",
            victim: Some(victim),
            began,
            ended,
            explains_duplicates: true,
        });
    }
    let load = load.finish().await;
    let records = receiver.records();
    let evidence = Evidence {
        records: &records,
        load: &load,
        faults: &faults,
        endpoints: &[LIMITS; ENDPOINTS],
        switched: None,
        check_stats: options.check_stats,
    };
    let mut findings = checks::check(&mut node.api(), &evidence).await;
    // After a kill, only attempts in flight are repeated.
    let most = ENDPOINTS * LIMITS.max_in_flight;
    let too_many = findings
        .duplicates
        .iter()
        .filter(|(_, count)| **count > most);
    let too_many: Vec<String> = too_many
        .map(|(kill, count)| {
            format!("{count} duplicates after kill {kill}, more than {most} in flight")
        })
        .collect();
    findings.violations.extend(too_many);
    let duplicates = findings.duplicates.values().sum();
    let mut report = SoakReport {
        title: format!(
            "Kills of a node on SQLite, seed {}, {:?}",
            options.seed, options.duration
        ),
        rows: vec![ScenarioRow {
            name: "kill",
            count: faults.len(),
            fail_overs: outages,
            duplicates,
            ..ScenarioRow::default()
        }],
        ..SoakReport::default()
    };
    report.total("kills", faults.len());
    report.total("events accepted", load.events.len());
    report.total("deliveries", findings.deliveries);
    report.total("requests received", receiver.count());
    report.total("refused or unanswered", load.refused + load.unanswered);
    report.total("lost", findings.lost);
    report.total("duplicates with a cause", duplicates);
    report.total("duplicates without a cause", findings.unexplained);
    report.violations.append(&mut findings.violations);
    report
}

async fn create_endpoints(node: &Node, receiver: &Receiver) {
    let mut api = node.api();
    api.tenant(TENANT).await;
    for number in 0..ENDPOINTS {
        let fields = json!({
            "url": receiver.url_of(&number.to_string()),
            "event_types": [format!("t.{number}")],
            "max_in_flight": LIMITS.max_in_flight,
            "rate_limit": {"per_second": LIMITS.per_second, "burst": LIMITS.burst},
            "retry_policy": {"backoff": {"kind": "fixed", "interval": "200ms"},
                             "max_attempts": LIMITS.max_attempts},
        });
        api.endpoint(TENANT, fields).await;
    }
}
