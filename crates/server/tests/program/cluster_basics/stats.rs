//! All nodes return the same stats, also after a node was killed.

use posthaste_testbed::{Api, Receiver};
use serde_json::{Value, json};

use super::event;
use crate::fixture::TestCluster;

const ALL: &str = "/v1/stats/series";
const TENANT: &str = "/v1/tenants/acme/stats/series";
const EACH: u64 = 5;

fn attempts(series: &Value) -> u64 {
    let buckets = series["buckets"].as_array().expect("buckets").iter();
    buckets
        .map(|it| it["attempts"].as_u64().expect("a count"))
        .sum()
}

async fn until_attempts(api: &mut Api, path: &str, count: u64) {
    api.until(path, |series| attempts(series) == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_include_a_node_that_died() {
    let mut cluster = TestCluster::pair().await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant("acme").await;
    let mut endpoints = Vec::new();
    for owner in [0, 1] {
        let fields = json!({
            "url": receiver.url_of(&owner.to_string()),
            "event_types": [format!("of.{owner}")],
        });
        endpoints.push(cluster.endpoint_of(owner, fields).await);
    }
    let send = async |api: &mut Api, owner: usize| {
        let mut event = event();
        event["type"] = json!(format!("of.{owner}"));
        api.event("acme", event).await;
    };
    for number in 0..2 * EACH {
        let owner = usize::from(number % 2 == 1);
        send(&mut cluster.api(owner), owner).await;
    }
    let of = |endpoint: &str| format!("/v1/tenants/acme/endpoints/{endpoint}/stats/series");
    for asked in [0, 1] {
        let mut api = cluster.api(asked);
        until_attempts(&mut api, ALL, 2 * EACH).await;
        until_attempts(&mut api, TENANT, 2 * EACH).await;
        for endpoint in &endpoints {
            until_attempts(&mut api, &of(endpoint), EACH).await;
        }
    }
    let stats = async |node: usize| cluster.api(node).get("/v1/stats").await.expect(200);
    assert_eq!(stats(0).await, stats(1).await);

    // What was recorded is counted, so the end of a node loses nothing.
    cluster.nodes[1].kill();
    let mut api = cluster.api(0);
    until_attempts(&mut api, ALL, 2 * EACH).await;
    until_attempts(&mut api, &of(&endpoints[1]), EACH).await;
    // The other node continues with its endpoint and its stats.
    cluster.wait_owns_all(0).await;
    send(&mut api, 1).await;
    until_attempts(&mut api, &of(&endpoints[1]), EACH + 1).await;
    until_attempts(&mut api, ALL, 2 * EACH + 1).await;
}
