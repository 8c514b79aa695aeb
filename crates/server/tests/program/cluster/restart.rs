//! The database is stopped and started under load. Meanwhile events are refused with `Retry-After` and deliveries
//! pause. Then everything resumes automatically.

use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Database, PrivatePostgres, Receiver, StopMode};
use serde_json::json;

use crate::fixture::{
    DeliveryLimits, Fault, LONG_LEASE, Load, SHORT_LEASE, TENANT, TestCluster, ended, until,
};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;

/// Restarts of the database in one test, half of them crashes.
const RESTARTS: usize = 12;
/// Time after the stop of the database in which an event may still be accepted: its response was already on the way.
const IN_PASSING: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_restarts_is_waited_for() {
    let server = PrivatePostgres::start(&[]);
    let cluster = TestCluster::on(Database::on(&server), LONG_LEASE);
    // The database is away for a moment: the nodes stay members.
    survives(&server, cluster, Duration::ZERO, Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_longer_than_the_lease_is_waited_for() {
    let server = PrivatePostgres::start(&[]);
    let cluster = TestCluster::on(Database::on(&server), SHORT_LEASE);
    survives(
        &server,
        cluster,
        Duration::from_millis(2_500),
        Duration::from_secs(2),
    )
    .await;
}

/// Every kind of read, on both nodes, immediately after the database accepts connections again: one row, several
/// statements in one snapshot, a list, and a question that only the other node can answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_refused_once_the_database_is_back() {
    let server = PrivatePostgres::start(&[]);
    let mut cluster = TestCluster::on(Database::on(&server), LONG_LEASE);
    cluster.join();
    cluster.join();
    cluster.wait_balanced().await;
    let receiver = Receiver::start(|_| Answer::status(200)).await;
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &json!({})).await;
    let event = cluster
        .api(0)
        .event(TENANT, json!({"type": "t.0", "payload": 1}))
        .await;
    let delivery = event["deliveries"][0]["id"].as_str().expect("an id");
    let tenant = format!("/v1/tenants/{TENANT}");
    let mut paths = vec![
        tenant.clone(),
        format!("{tenant}/deliveries/{delivery}"),
        format!("{tenant}/deliveries"),
        format!("{tenant}/stats"),
    ];
    for endpoint in &endpoints[..2] {
        paths.push(format!("{tenant}/endpoints/{endpoint}/health"));
    }
    let mut apis = [cluster.api(0), cluster.api(1)];
    for round in 0..RESTARTS {
        let stop = [StopMode::Fast, StopMode::Immediate][round % 2];
        server.restart(stop);
        for (node, api) in apis.iter_mut().enumerate() {
            for path in &paths {
                let reply = api.get(path).await;
                assert_eq!(
                    reply.status, 200,
                    "GET {path} at node {node} after restart {round} ({stop:?}): {}",
                    reply.body
                );
            }
        }
    }
    cluster.assert_no_panics();
}

async fn survives(
    server: &PrivatePostgres,
    mut cluster: TestCluster,
    away: Duration,
    lease: Duration,
) {
    cluster.join();
    cluster.join();
    cluster.wait_balanced().await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(20))).await;
    let fields = LIMITS.fields();
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &fields).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1]));
    let mut faults = Vec::new();
    for stop in [StopMode::Fast, StopMode::Immediate] {
        load.more(60).await;
        let refused_before = load.so_far().refused.len();
        let stops_at = Instant::now();
        server.stop(stop);
        let gone_at = Instant::now();
        // Every node has refused at least one event.
        let is_reported = async || {
            let refused = load.so_far().refused.split_off(refused_before);
            let is_reported = |node: usize| {
                refused
                    .iter()
                    .any(|(_, by)| *by == cluster.nodes[node].address)
            };
            is_reported(0) && is_reported(1)
        };
        until(&format!("503 after {stop:?}"), is_reported).await;
        tokio::time::sleep(away.saturating_sub(gone_at.elapsed())).await;
        let accepted = load.so_far().accepted;
        let while_away = accepted.iter().find(|(at, _)| *at > gone_at + IN_PASSING);
        assert_eq!(while_away, None, "accepted with nothing to keep it");
        let sent = receiver
            .records()
            .into_iter()
            .find(|it| it.at > gone_at + lease);
        assert!(sent.is_none(), "{stop:?}: sent without a lease");
        server.start_again();
        faults.push(Fault::note(&cluster, None, stops_at));
        let back_at = Instant::now();
        load.more(60).await;
        println!(
            "{stop:?}: taken again {:?} after its start",
            back_at.elapsed()
        );
    }
    let report = load.finish().await;
    cluster.wait_balanced().await;
    for node in [0, 1] {
        let ends = ended(&mut cluster.api(node), &report).await;
        assert_eq!(ends["succeeded"], report.events.len());
    }
    let again = LIMITS.assert_hold(&receiver, &report, &faults);
    println!("{} refused, {again} came again", report.refused.len());
    cluster.assert_no_panics();
}
