//! A node is frozen for longer than its lease and then resumes. Other nodes own its endpoints by then. The node sends
//! nothing for them, writes nothing, and joins again as a new member.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_testbed::stats_check::assert_stats_equal_deliveries;
use posthaste_testbed::{Answer, Arrival, Receiver};
use serde_json::json;

use crate::fixture::{DeliveryLimits, Fault, Load, SHORT_LEASE, TENANT, TestCluster, ended, until};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_frozen_past_its_lease_owns_no_shards() {
    let cluster = TestCluster::of(3, SHORT_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(30))).await;
    let fields = LIMITS.fields();
    let endpoints = cluster.endpoints(&receiver, &[0, 1, 2], &fields).await;
    let frozen = 1;
    let pid = cluster.nodes[frozen].pid();
    let number = cluster.number(frozen).expect("the node is a member");
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1, 2]));
    load.more(100).await;
    // Frozen while it sends.
    let sends = |arrival: &Arrival| arrival.sender == Some(pid) && arrival.left_at.is_none();
    receiver.until(|records| records.iter().any(sends)).await;
    let frozen_at = Instant::now();
    cluster.nodes[frozen].freeze();
    load.ask(cluster.addresses(&[0, 2]));
    // The other nodes take over and send.
    cluster.wait_shared_by(2).await;
    let fault = Fault::note(&cluster, Some(frozen), frozen_at);
    load.more(100).await;
    let attempts_written = attempts_of(&cluster);

    cluster.nodes[frozen].wake();
    let woken_at = Instant::now();
    let came_back = async || cluster.number(frozen).is_some_and(|now| now != number);
    until(
        "the frozen node to join again under a new number",
        came_back,
    )
    .await;
    load.ask(cluster.addresses(&[0, 1, 2]));
    cluster.wait_shared_by(3).await;
    let shared_at = Instant::now();
    load.more(100).await;
    let report = load.finish().await;

    for node in [0, 1, 2] {
        let ends = ended(&mut cluster.api(node), &report).await;
        assert_eq!(ends["succeeded"], report.events.len());
    }
    assert_stats_equal_deliveries(&mut cluster.api(0), None).await;
    LIMITS.assert_hold(&receiver, &report, &[fault]);
    // No result that was recorded before has changed.
    let now_written = attempts_of(&cluster);
    let rewritten: Vec<_> = attempts_written
        .iter()
        .filter(|(delivery, last)| now_written.get(*delivery) != Some(last))
        .collect();
    assert!(rewritten.is_empty(), "{rewritten:?}");
    // The node sends again for a new endpoint that it owns. Its share of the other endpoints is random.
    let mut own = fields.clone();
    own["url"] = json!(receiver.url_of("awake"));
    own["event_types"] = json!(["t.awake"]);
    cluster.endpoint_of(frozen, &own).await;
    let event = json!({"type": "t.awake", "payload": {}});
    cluster.api(0).event(TENANT, event).await;
    let from_frozen = |arrival: &Arrival| arrival.path == "/awake" && arrival.sender == Some(pid);
    receiver
        .until(|records| records.iter().any(from_frozen))
        .await;
    println!("back in its share after {:?}", shared_at - woken_at);
    cluster.assert_no_panics();
}

/// Returns the final state of each finished delivery, from the database.
fn attempts_of(cluster: &TestCluster) -> BTreeMap<String, String> {
    let rows = cluster
        .database
        .query("SELECT id, concat_ws(' ', status, attempts, ended_at, last) FROM ended");
    rows.into_iter()
        .map(|row| {
            let mut values = row.into_iter().map(Option::unwrap_or_default);
            let id = values.next().expect("an id");
            (id, values.next().expect("an end"))
        })
        .collect()
}
