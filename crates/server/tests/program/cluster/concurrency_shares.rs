//! The in-flight limit of a tenant is divided exactly among any number of nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_testbed::{Answer, Receiver, checks};
use serde_json::{Value, json};

use crate::fixture::{LONG_LEASE, TENANT, TestCluster, all_ended};

const EACH: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_one_slot_take_turns() {
    shared(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_several_slots() {
    shared(3).await;
}

async fn shared(most: usize) {
    let cluster = TestCluster::of(2, LONG_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(15))).await;
    let mut api = cluster.api(0);
    api.tenant(TENANT).await;
    let limits = json!({"limits": {"in_flight": most}});
    api.call("PATCH", &format!("/v1/tenants/{TENANT}"), Some(&limits))
        .await
        .expect(200);
    for (node, name) in ["here", "there"].iter().enumerate() {
        let fields = json!({"url": receiver.url_of(name), "event_types": [name],
                            "rate_limit": {"per_second": 1_000, "burst": 1_000}});
        cluster.endpoint_of(node, &fields).await;
    }
    let events: Vec<Value> = (0..2 * EACH)
        .map(|number| {
            let name = ["here", "there"][number % 2];
            json!({"type": name, "payload": number})
        })
        .collect();
    let path = format!("/v1/tenants/{TENANT}/events/batch");
    api.post(&path, json!({ "events": events }))
        .await
        .expect(202);
    let ends = all_ended(&mut api, 2 * EACH).await;
    assert_eq!(ends["succeeded"], 2 * EACH, "{ends:?}");
    let records = receiver.records();
    checks::check_in_flight(&records, most).expect("the in-flight limit of the tenant holds");
    let senders: BTreeSet<_> = records.iter().map(|arrival| arrival.sender).collect();
    assert_eq!(senders.len(), 2, "both nodes have their turn");
    cluster.assert_no_panics();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_counts_attempts_in_flight_on_all_nodes() {
    let cluster = TestCluster::of(2, LONG_LEASE).await;
    let receiver = Receiver::start(|_| Answer::hang()).await;
    let mut api = cluster.api(0);
    api.tenant(TENANT).await;
    for (node, name) in ["here", "there"].iter().enumerate() {
        let fields = json!({"url": receiver.url_of(name), "event_types": [name]});
        cluster.endpoint_of(node, &fields).await;
        let path = format!("/v1/tenants/{TENANT}/events");
        api.post(&path, json!({"type": name, "payload": 1}))
            .await
            .expect(202);
    }
    receiver.until(|arrivals| arrivals.len() == 2).await;
    for node in 0..2 {
        let usage = format!("/v1/tenants/{TENANT}/usage");
        let usage = cluster.api(node).get(&usage).await.expect(200);
        assert_eq!(usage["limits"]["in_flight"]["used"], 2, "{usage}");
    }
    cluster.assert_no_panics();
}
