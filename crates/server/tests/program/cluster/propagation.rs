//! A change made at one node takes effect at all nodes within one second.

use std::time::{Duration, Instant};

use posthaste_testbed::{Api, Receiver};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{LONG_LEASE, TENANT, TestCluster, until};

/// Maximum time until every node applies a change.
const WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_endpoint_receives_at_its_new_url() {
    let cluster = TestCluster::of(3, LONG_LEASE).await;
    let receiver = Receiver::healthy().await;
    let mut apis: Vec<Api> = (0..3).map(|node| cluster.api(node)).collect();
    apis[0].tenant(TENANT).await;
    let fields = json!({
        "url": receiver.url_of("at-0"),
        "rate_limit": {"per_second": 1_000, "burst": 1_000},
    });
    let endpoint = cluster.endpoint_of(0, &fields).await;
    let path = format!("/v1/tenants/{TENANT}/endpoints/{endpoint}");
    let mut edited_at = Vec::new();
    for round in 1..=6 {
        let edit = json!({"url": receiver.url_of(&format!("at-{round}"))});
        let editor = round % 3;
        let edited = apis[editor].call("PATCH", &path, Some(&edit)).await;
        edited.expect(200);
        edited_at.push(Instant::now());
        let new = format!("/at-{round}");
        let arrived = || receiver.records().iter().any(|it| it.path == new);
        let mut number = 0;
        while !arrived() {
            apis[number % 3]
                .event(TENANT, json!({"type": "a", "payload": round}))
                .await;
            number += 1;
            sleep(PAUSE).await;
            let waited = edited_at[round - 1].elapsed();
            assert!(
                waited < WITHIN * 2,
                "round {round}: no answer after {waited:?}"
            );
        }
        for api in &mut apis {
            let shown = api.get(&path).await.expect(200);
            assert_eq!(shown["url"], edit["url"], "round {round}");
        }
    }
    for arrival in receiver.records() {
        let round: usize = arrival.path["/at-".len()..].parse().expect("a round");
        let late = edited_at
            .get(round)
            .map(|edited| arrival.at.saturating_duration_since(*edited));
        assert!(
            late.is_none_or(|late| late < WITHIN),
            "at {round}, {late:?} after it moved"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_refused_by_every_node() {
    let cluster = TestCluster::of(3, LONG_LEASE).await;
    let mut admin = cluster.api(0);
    admin.tenant(TENANT).await;
    let keys = format!("/v1/tenants/{TENANT}/keys");
    for revoked_at in [0, 1, 2] {
        let made = admin.post(&keys, json!({"name": "ci"})).await.expect(201);
        let key = made["key"].as_str().expect("a secret in the response");
        let mut callers: Vec<Api> = cluster
            .addresses(&[0, 1, 2])
            .iter()
            .map(|address| Api::new(address, key))
            .collect();
        let list = format!("/v1/tenants/{TENANT}/endpoints");
        for caller in &mut callers {
            // Every node has the key in its cache. A new key is valid at once.
            caller.get(&list).await.expect(200);
        }
        let revoke = format!("{keys}/{}", made["id"].as_str().expect("an id"));
        let revoked = cluster.api(revoked_at).call("DELETE", &revoke, None).await;
        assert_eq!(revoked.status, 204);
        let answered = Instant::now();
        for caller in &mut callers {
            while caller.get(&list).await.status != 401 {
                let waited = answered.elapsed();
                assert!(
                    waited < WITHIN,
                    "the key is still accepted after {waited:?}"
                );
                sleep(PAUSE).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tenants_and_endpoints_are_known_to_all_nodes_immediately() {
    let cluster = TestCluster::of(3, LONG_LEASE).await;
    let receiver = Receiver::healthy().await;
    for round in 0..6 {
        let (one, other) = (round % 3, (round + 1) % 3);
        let tenant = format!("tenant-{round}");
        cluster.api(one).tenant(&tenant).await;
        let endpoint = json!({"url": receiver.url_of(&tenant)});
        let endpoint = cluster.api(other).endpoint(&tenant, endpoint).await;
        // Routed from the database, not from a cache of the node.
        let event = cluster
            .api(one)
            .event(&tenant, json!({"type": "a", "payload": 1}))
            .await;
        let routed = |event: &Value| event["deliveries"][0]["endpoint_id"].clone();
        assert_eq!(routed(&event), endpoint["id"]);
        let there = async || !receiver.records_at(&tenant).is_empty();
        until("its event to arrive", there).await;
        let path = format!(
            "/v1/tenants/{tenant}/endpoints/{}",
            endpoint["id"].as_str().unwrap()
        );
        assert_eq!(
            cluster.api(one).call("DELETE", &path, None).await.status,
            204
        );
        let event = cluster
            .api(other)
            .event(&tenant, json!({"type": "a", "payload": 2}))
            .await;
        assert_eq!(
            event["deliveries"],
            json!([]),
            "nothing is routed to what is gone"
        );
    }
}
