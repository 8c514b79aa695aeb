//! One of two nodes sends the operational events. If it is killed, the other node continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use posthaste_testbed::{Answer, Arrival, Receiver};
use serde_json::{Value, json};

use super::pair::Pair;

const SETTINGS: [&str; 12] = [
    "--set",
    "lease=1500ms",
    "--set",
    "notices.tenant=operator",
    "--set",
    "notices.gather=1s",
    "--set",
    "breaker.consecutive_failures=3",
    "--set",
    "breaker.first_wait=100ms",
    "--set",
    "breaker.longest_wait=200ms",
];

/// Returns number and name of each operational event, without duplicates.
fn told(ledger: &[Arrival]) -> Vec<(u64, String)> {
    let ops = ledger.iter().filter(|it| it.path == "/ops");
    let mut told: Vec<(u64, String, String)> = ops
        .map(|arrival| {
            let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
            let name = body["type"].as_str().expect("a name").to_owned();
            let number = body["notice"].as_u64().expect("a number");
            (number, name, arrival.event())
        })
        .collect();
    told.sort();
    told.dedup();
    told.into_iter()
        .map(|(number, name, _)| (number, name))
        .collect()
}

fn is_told(ledger: &[Arrival], name: &str) -> bool {
    told(ledger).iter().any(|(_, told)| told == name)
}

/// Checks that every number up to the largest has arrived at least once.
fn none_is_missing(told: &[(u64, String)]) -> bool {
    let mut numbers: Vec<u64> = told.iter().map(|(number, _)| *number).collect();
    numbers.dedup();
    numbers
        .into_iter()
        .eq(1..=told.last().map_or(0, |(last, _)| *last))
}

#[tokio::test]
async fn each_notice_is_told_by_one_node_and_by_another_when_that_dies() {
    let mut pair = Pair::with(["all", "all"], &SETTINGS).await;
    pair.wait_balanced().await;
    let status = Arc::new(AtomicU16::new(503));
    let said = status.clone();
    let receiver = Receiver::start(move |arrival| {
        Answer::status(match arrival.path.as_str() {
            "/ops" => 200,
            _ => said.load(Ordering::SeqCst),
        })
    })
    .await;
    // The node that sends operational events is the one that is killed.
    let owner = pair
        .database
        .number("SELECT owner FROM shards WHERE no = 1");
    let teller = usize::from(pair.number(&pair.nodes[1]) == owner);
    let mut api = pair.api(1 - teller);
    let ops = json!({"url": receiver.url_of("ops")});
    api.endpoint("operator", ops).await;
    api.tenant("acme").await;
    let fields = json!({
        "url": receiver.url_of("hook"),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 200},
    });
    // The endpoint belongs to the surviving node, so that its deliveries continue.
    pair.endpoint_of(1 - teller, fields).await;
    for _ in 0..3 {
        api.event("acme", json!({"type": "a.b", "payload": {}}))
            .await;
    }
    receiver
        .until(|ledger| is_told(ledger, "endpoint.breaker_tripped"))
        .await;
    pair.nodes[teller].kill();
    status.store(200, Ordering::SeqCst);
    // Alerts cause operational events, too, and simultaneous events may arrive in any order.
    let ledger = receiver
        .until(|ledger| is_told(ledger, "endpoint.recovered") && none_is_missing(&told(ledger)))
        .await;
    let told = told(&ledger);
    let numbers: Vec<u64> = told.iter().map(|(number, _)| *number).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each once: {told:?}");
}
