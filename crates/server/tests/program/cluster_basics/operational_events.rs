//! One of two nodes sends the operational events. If it is killed, the other node continues.

use posthaste_testbed::{Answer, Arrival, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestCluster;

const SETTINGS: [&str; 6] = [
    "lease=1500ms",
    "notices.tenant=operator",
    "notices.gather=1s",
    "breaker.consecutive_failures=3",
    "breaker.first_wait=100ms",
    "breaker.longest_wait=200ms",
];

/// Returns number and name of each operational event, without duplicates.
fn received(records: &[Arrival]) -> Vec<(u64, String)> {
    let ops = records.iter().filter(|it| it.path == "/ops");
    let mut events: Vec<(u64, String, String)> = ops
        .map(|arrival| {
            let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
            let name = body["type"].as_str().expect("a name").to_owned();
            let number = body["notice"].as_u64().expect("a number");
            (number, name, arrival.event())
        })
        .collect();
    events.sort();
    events.dedup();
    events
        .into_iter()
        .map(|(number, name, _)| (number, name))
        .collect()
}

fn has_received(records: &[Arrival], name: &str) -> bool {
    received(records).iter().any(|(_, event)| event == name)
}

/// Checks that every number up to the largest has arrived at least once.
fn none_is_missing(events: &[(u64, String)]) -> bool {
    let mut numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    numbers.dedup();
    numbers
        .into_iter()
        .eq(1..=events.last().map_or(0, |(last, _)| *last))
}

#[tokio::test]
async fn operational_events_are_sent_once_and_continue_on_another_node() {
    let mut cluster = TestCluster::pair_with(["all", "all"], &SETTINGS).await;
    cluster.wait_balanced().await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    receiver.answer_at("ops", Answer::status(200));
    // The node that sends operational events is the one that is killed.
    let owner = cluster
        .database
        .number("SELECT owner FROM shards WHERE no = 1");
    let sender = usize::from(cluster.number(1) == Some(owner));
    let mut api = cluster.api(1 - sender);
    let ops = json!({"url": receiver.url_of("ops")});
    api.endpoint("operator", ops).await;
    api.tenant("acme").await;
    let fields = json!({
        "url": receiver.url_of("hook"),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 200},
    });
    // The endpoint belongs to the surviving node, so that its deliveries continue.
    cluster.endpoint_of(1 - sender, fields).await;
    for _ in 0..3 {
        api.event("acme", json!({"type": "a.b", "payload": {}}))
            .await;
    }
    receiver
        .until(|records| has_received(records, "endpoint.breaker_tripped"))
        .await;
    cluster.nodes[sender].kill();
    receiver.answer(200);
    // Alerts cause operational events, too, and simultaneous events may arrive in any order.
    let records = receiver
        .until(|records| {
            has_received(records, "endpoint.recovered") && none_is_missing(&received(records))
        })
        .await;
    let events = received(&records);
    let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each event arrives once: {events:?}");
}
