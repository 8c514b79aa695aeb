//! Nodes of 0.1.0 and of this version share a database.
//!
//! Every event that was accepted is delivered, by its policy and once, whichever node accepted it and whichever sends it.
//! Nothing is stored that a node of 0.1.0 cannot read, until the upgrade is finished.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posthaste_testbed::stats_check::assert_stats_equal_deliveries;
use posthaste_testbed::{Answer, Database, Receiver};
use serde_json::{Value, json};

use crate::fixture::{DeliveryLimits, Fault, Load, SHORT_LEASE, TENANT, TestCluster, ended, until};

/// Environment variable with the path of the program of 0.1.0. `scripts/upgrade` builds it.
const OLD_PROGRAM: &str = "POSTHASTE_OLD_PROGRAM";
/// Keeps an upgrade open for the whole test.
const NEVER_FINISHED: &str = "finish_upgrade_after=1d";
const EVENTS: usize = 120;
const LIMITS: DeliveryLimits = DeliveryLimits {
    max_attempts: 3,
    ..DeliveryLimits::ONE_ATTEMPT
};
/// Refusals in a row that trip a breaker of this version.
const REFUSALS: usize = 110;

pub(super) fn old_program() -> PathBuf {
    let path = std::env::var_os(OLD_PROGRAM);
    path.unwrap_or_else(|| panic!("{OLD_PROGRAM} is not set: run scripts/upgrade"))
        .into()
}

pub(super) fn new_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_posthaste"))
}

/// A cluster with an empty database, whose nodes have a short lease.
fn cluster() -> TestCluster {
    TestCluster::on(Database::empty(), SHORT_LEASE)
}

/// A receiver that fails one request in seven at first.
async fn receiver() -> Receiver {
    let answer = |arrival: &posthaste_testbed::Arrival| {
        if arrival.path == "/refused" {
            return Answer::status(403);
        }
        let fails = arrival.number.is_multiple_of(7) && arrival.attempt() == 1;
        Answer::status(if fails { 500 } else { 200 }).after(Duration::from_millis(10))
    };
    Receiver::start(answer).await
}

fn fields() -> Value {
    let mut fields = LIMITS.fields();
    fields["retry_policy"] = json!({
        "backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": LIMITS.max_attempts
    });
    fields
}

/// Checks that no node had trouble with what another one stored or asked.
fn assert_no_errors(cluster: &TestCluster) {
    cluster.assert_no_panics();
    for node in &cluster.nodes {
        let log = node.log();
        let errors: Vec<&String> = log.iter().filter(|line| line.contains("ERROR")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

/// Stops the nodes one by one, each after a node of the other version has started in its place.
async fn replace_all(
    cluster: &mut TestCluster,
    load: &Load,
    running: &mut [usize],
    program: &Path,
    settings: &[&str],
) {
    for place in 0..running.len() {
        let stopped = running[place];
        let others: Vec<usize> = running
            .iter()
            .copied()
            .filter(|it| *it != stopped)
            .collect();
        load.ask(cluster.addresses(&others));
        assert!(cluster.nodes[stopped].stop().success());
        running[place] = cluster.join_program(program, settings);
        cluster.nodes[running[place]].until_ready().await;
        load.ask(cluster.addresses(running));
        cluster.wait_shared_by(running.len()).await;
        load.more(EVENTS).await;
        println!("node {place} of {} replaced", running.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program of 0.1.0; run scripts/upgrade"]
async fn nodes_are_replaced_one_by_one_and_back() {
    let old = old_program();
    let mut cluster = cluster();
    let mut running = vec![
        cluster.join_program(&old, &[]),
        cluster.join_program(&old, &[]),
    ];
    cluster.wait_balanced().await;
    let receiver = receiver().await;
    let endpoints = cluster.endpoints(&receiver, &running, &fields()).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&running));
    load.more(EVENTS).await;
    let new = new_program();
    replace_all(&mut cluster, &load, &mut running, new, &[NEVER_FINISHED]).await;
    // Back to the earlier version, the nodes in the other order.
    running.reverse();
    replace_all(&mut cluster, &load, &mut running, &old, &[]).await;
    running.reverse();
    replace_all(&mut cluster, &load, &mut running, new, &[NEVER_FINISHED]).await;
    let report = load.finish().await;
    let mut api = cluster.api(running[0]);
    let ends = ended(&mut api, &report).await;
    assert_eq!(ends["succeeded"], report.events.len());
    // No node was killed, so nothing came twice.
    assert_eq!(LIMITS.assert_hold(&receiver, &report, &[]), 0);
    assert_no_errors(&cluster);
    // Nodes of 0.1.0 stopped in order, so they wrote all that they counted.
    assert_stats_equal_deliveries(&mut api, None).await;
    println!(
        "{} events, {} requests",
        report.events.len(),
        receiver.count()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program of 0.1.0; run scripts/upgrade"]
async fn nodes_of_both_versions_are_killed_and_started_again() {
    let old = old_program();
    let mut cluster = cluster();
    let mut running = vec![
        cluster.join_program(&old, &[]),
        cluster.join_program(&old, &[]),
    ];
    cluster.wait_balanced().await;
    let receiver = receiver().await;
    let endpoints = cluster.endpoints(&receiver, &running, &fields()).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&running));
    load.more(EVENTS).await;
    running.push(cluster.join_program(new_program(), &[NEVER_FINISHED]));
    cluster.wait_shared_by(3).await;
    let mut faults = Vec::new();
    // An old node, the new node, and the other old one: each is killed and starts again with its program.
    for (place, program) in [(0, &*old), (2, new_program()), (1, &*old)] {
        load.more(EVENTS).await;
        let victim = running[place];
        let since = Instant::now();
        cluster.nodes[victim].kill();
        let others: Vec<usize> = running.iter().copied().filter(|it| *it != victim).collect();
        load.ask(cluster.addresses(&others));
        cluster.wait_shared_by(2).await;
        faults.push(Fault::note(&cluster, Some(victim), since));
        let settings: &[&str] = match place {
            2 => &[NEVER_FINISHED],
            _ => &[],
        };
        running[place] = cluster.join_program(program, settings);
        cluster.wait_shared_by(3).await;
        load.ask(cluster.addresses(&running));
    }
    load.more(EVENTS).await;
    let report = load.finish().await;
    let ends = ended(&mut cluster.api(running[0]), &report).await;
    assert_eq!(ends["succeeded"], report.events.len());
    let twice = LIMITS.assert_hold(&receiver, &report, &faults);
    println!(
        "{} events, {twice} repeated after a kill",
        report.events.len()
    );
    assert_no_errors(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program of 0.1.0; run scripts/upgrade"]
async fn new_forms_are_stored_when_no_old_node_is_left() {
    let old = old_program();
    let mut cluster = cluster();
    let first = cluster.join_program(&old, &[]);
    cluster.nodes[first].until_ready().await;
    let new = cluster.join_program(new_program(), &["finish_upgrade_after=2s"]);
    cluster.wait_balanced().await;
    let receiver = receiver().await;
    let mut api = cluster.api(new);
    api.tenant(TENANT).await;

    // What a node of 0.1.0 could not read is refused or written as it can.
    let requests = format!("/v1/tenants/{TENANT}/requests");
    let request = json!({"method": "PUT", "url": receiver.url_of("one-off"), "payload": {}});
    let refused = api.post(&requests, request.clone()).await;
    assert_eq!(refused.header("retry-after"), "10");
    assert_eq!(refused.expect(503)["code"], "upgrade_in_progress");
    let endpoints = format!("/v1/tenants/{TENANT}/endpoints");
    let mut late = json!({
        "url": receiver.url_of("late"),
        "retry_policy": {"preset": "brisk", "late": "drop"},
        "event_types": ["late"],
    });
    let refused = api.post(&endpoints, late.clone()).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "retry_policy.late");
    late["retry_policy"]["late"] = json!("send");
    let made = api.endpoint(TENANT, late.clone()).await;
    assert_eq!(made["retry_policy"], json!({"preset": "brisk"}));
    // A breaker that trips on refusals, of an endpoint of the new node. The old node can read it.
    let refusing = json!({
        "url": receiver.url_of("refused"),
        "event_types": ["refused"],
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "1s"}, "max_attempts": 1},
        "max_in_flight": 1,
        "rate_limit": {"per_second": 1_000, "burst": 1_000},
    });
    let refusing = cluster.endpoint_of(new, refusing).await;
    for number in 0..REFUSALS {
        let event = json!({"type": "refused", "payload": {"number": number}});
        api.event(TENANT, event).await;
    }
    let path = format!("/v1/tenants/{TENANT}/endpoints/{refusing}");
    let health = format!("{path}/health");
    api.until(&health, |health| health["breaker"]["state"] != "passing")
        .await;
    let stored = "SELECT health FROM healths WHERE tripped";
    until("the trip to be stored", async || {
        !cluster.database.query(stored).is_empty()
    })
    .await;
    let stored = cluster.database.query(stored)[0][0].clone().expect("JSON");
    assert!(stored.contains("consecutive_failures"), "{stored}");
    assert!(!stored.contains("\"refusals\""), "{stored}");
    for path in [&path, &health, &endpoints, &"/v1/alerts".to_owned()] {
        cluster.api(first).get(path).await.expect(200);
    }

    // The old node leaves, and the upgrade is finished. Then everything can be used.
    assert!(cluster.nodes[first].stop().success());
    until("the end of the upgrade", async || {
        let mut api = cluster.api(new);
        api.post(&requests, request.clone()).await.status == 202
    })
    .await;
    late["retry_policy"]["late"] = json!("drop");
    late["url"] = json!(receiver.url_of("later"));
    api.endpoint(TENANT, late).await;
    let arrived = |arrival: &posthaste_testbed::Arrival| arrival.path == "/one-off";
    receiver.until(|records| records.iter().any(arrived)).await;

    // A node of 0.1.0 can no longer start, and says why.
    let refused = cluster
        .options_of(&old)
        .command()
        .output()
        .expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr) + String::from_utf8_lossy(&refused.stdout);
    assert!(told.contains("newer posthaste"), "{told}");
    println!("{told}");
    // Even one that had checked the version before the upgrade was finished cannot register.
    let register = "DO $$ BEGIN PERFORM enter(1::smallint, 'late', 6000); RAISE EXCEPTION 'registered'; \
                    EXCEPTION WHEN SQLSTATE 'PH004' THEN NULL; END $$";
    cluster.database.query(register);
    assert_no_errors(&cluster);
}
