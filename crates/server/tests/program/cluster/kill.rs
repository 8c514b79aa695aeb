//! A node is killed, and another node continues with its shards.

use std::time::{Duration, Instant};

use posthaste_testbed::stats_check::assert_stats_equal_deliveries;
use posthaste_testbed::{Answer, Receiver};
use serde_json::json;

use crate::fixture::{DeliveryLimits, Fault, Load, SHORT_LEASE, TestCluster, ended, until};

const LIMITS: DeliveryLimits = DeliveryLimits {
    max_attempts: 5,
    ..DeliveryLimits::ONE_ATTEMPT
};
const LEASE: Duration = Duration::from_secs(2);
/// Additional time that a busy machine may take.
const SLACK: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_over_within_the_lease() {
    let mut cluster = TestCluster::of(3, SHORT_LEASE).await;
    // One request in seven is refused at first, so that retries are handed over, too.
    let answer = |arrival: &posthaste_testbed::Arrival| {
        let refuses = arrival.number.is_multiple_of(7) && arrival.attempt() < 3;
        let status = if refuses { 500 } else { 200 };
        Answer::status(status).after(Duration::from_millis(15))
    };
    let receiver = Receiver::start(answer).await;
    let fields = json!({
        "max_in_flight": LIMITS.max_in_flight,
        "rate_limit": {"per_second": LIMITS.per_second, "burst": LIMITS.burst},
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"},
                         "max_attempts": LIMITS.max_attempts},
    });
    let endpoints = cluster.endpoints(&receiver, &[0, 1, 2], &fields).await;
    let victim = 1;
    let orphans: Vec<usize> = (0..endpoints.len())
        .filter(|number| cluster.owner(&endpoints[*number]) == Some(victim))
        .collect();
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1, 2]));
    load.more(150).await;
    receiver.arrivals(150).await;

    let died_at = Instant::now();
    cluster.nodes[victim].kill();
    let fault = Fault::note(&cluster, Some(victim), died_at);
    load.ask(cluster.addresses(&[0, 2]));
    let pid = cluster.nodes[victim].pid();
    let is_served_again = async || {
        orphans.iter().all(|number| {
            let records = receiver.records_at(&number.to_string());
            let other = |arrival: &posthaste_testbed::Arrival| arrival.sender != Some(pid);
            records.iter().any(other)
        })
    };
    until("the dead node's endpoints to be sent to", is_served_again).await;
    let away = died_at.elapsed();
    assert!(away < LEASE + SLACK, "taken over after {away:?}");
    load.more(100).await;
    let report = load.finish().await;
    cluster.wait_shared_by(2).await;

    for node in [0, 2] {
        let ends = ended(&mut cluster.api(node), &report).await;
        assert_eq!(ends["succeeded"], report.events.len());
    }
    LIMITS.assert_hold(&receiver, &report, &[fault]);
    assert_stats_equal_deliveries(&mut cluster.api(0), None).await;
    cluster.assert_no_panics();
}

/// All nodes are killed, and one comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_all_nodes_died_a_new_one_delivers_everything() {
    let mut cluster = TestCluster::of(2, SHORT_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(15))).await;
    let fields = LIMITS.fields();
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &fields).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1]));
    load.more(100).await;
    let mut faults = Vec::new();
    for node in [0, 1] {
        let died_at = Instant::now();
        cluster.nodes[node].kill();
        faults.push(Fault::note(&cluster, Some(node), died_at));
    }
    cluster.join();
    load.ask(cluster.addresses(&[2]));
    load.more(50).await;
    let report = load.finish().await;
    cluster.wait_shared_by(1).await;
    let ends = ended(&mut cluster.api(2), &report).await;
    assert_eq!(ends["succeeded"], report.events.len());
    LIMITS.assert_hold(&receiver, &report, &faults);
    cluster.assert_no_panics();
}
