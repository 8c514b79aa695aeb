//! Requests to one node about endpoints of the other node.

use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Api, PATIENCE, Receiver};
use serde_json::json;

use super::{PROPAGATION_LIMIT, event};
use crate::fixture::TestCluster;

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";
/// More deliveries than an endpoint with 200 per second can send during a test.
const MANY: usize = 1_000;
const DELIVERIES: &str = "/v1/tenants/acme/deliveries";

#[tokio::test(flavor = "multi_thread")]
async fn an_event_accepted_by_one_node_is_sent_by_the_owner() {
    let cluster = TestCluster::pair().await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant("acme").await;
    for owner in [0, 1] {
        let endpoint = cluster
            .endpoint_of(owner, json!({"url": receiver.url_of(&owner.to_string())}))
            .await;
        for asked in [0, 1] {
            let mut api = cluster.api(asked);
            let sent = api.deliver("acme", event()).await;
            let path = format!("{DELIVERIES}/{sent}");
            api.until(&path, |shown| shown["status"] == "succeeded")
                .await;
        }
        let gone = cluster
            .api(1 - owner)
            .call("DELETE", &format!("{ENDPOINTS}/{endpoint}"), None)
            .await;
        assert_eq!(gone.status, 204);
    }
    assert_eq!(receiver.count(), 4, "each event is sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_starts_after_disable_or_pause_is_acknowledged_by_either_node() {
    let cluster = TestCluster::pair().await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant("acme").await;
    for (verb, status) in [("disable", "disabled"), ("pause", "paused")] {
        let fields = json!({
            "url": receiver.url_of(verb),
            "rate_limit": {"per_second": 200, "burst": 1},
        });
        let endpoint = cluster.endpoint_of(1, fields).await;
        let mut api = cluster.api(0);
        let events = json!({"events": vec![event(); MANY]});
        let path = "/v1/tenants/acme/events/batch";
        api.post(path, events).await.expect(202);
        receiver
            .until(|records| records.iter().filter(|it| it.path.ends_with(verb)).count() >= 20)
            .await;
        let path = format!("{ENDPOINTS}/{endpoint}/{verb}");
        let answer = api.post(&path, json!({})).await.expect(200);
        let answered_at = Instant::now();
        assert_eq!(answer["status"], status);
        // Attempts in flight arrive within 100 ms. No attempt starts after that.
        tokio::time::sleep(PROPAGATION_LIMIT).await;
        let late = |records: &[posthaste_testbed::Arrival]| {
            let late = records.iter().filter(|it| it.path.ends_with(verb));
            late.filter(|it| it.at > answered_at + Duration::from_millis(100))
                .count()
        };
        let records = receiver.records();
        assert_eq!(late(&records), 0, "{verb}");
        assert!(records.len() < 2 * MANY, "no delivery was left to start");
        // Both nodes show the new status.
        let shown = cluster.api(1).get(&format!("{ENDPOINTS}/{endpoint}")).await;
        assert_eq!(shown.expect(200)["status"], status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_in_flight_on_one_node_are_shown_by_the_other() {
    let cluster = TestCluster::pair().await;
    let receiver = Receiver::start(|_| Answer::hang()).await;
    cluster.api(0).tenant("acme").await;
    let fields = json!({"url": receiver.url(), "max_in_flight": 1});
    let endpoint = cluster.endpoint_of(1, fields).await;
    let mut api = cluster.api(0);
    let flying = api.deliver("acme", event()).await;
    receiver.arrivals(1).await;
    let waiting = api.deliver("acme", event()).await;
    for asked in [0, 1] {
        let mut api = cluster.api(asked);
        let shown = api.get(&format!("{DELIVERIES}/{flying}")).await.expect(200);
        assert_eq!(shown["status"], "in_progress", "asked {asked}");
        let path = format!("{DELIVERIES}?status=in_progress");
        let listed = api.get(&path).await.expect(200);
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
        assert_eq!(listed["data"][0]["id"], flying);
        let path = format!("{ENDPOINTS}/{endpoint}/health");
        let health = api.get(&path).await.expect(200);
        assert_eq!(health["in_flight"], 1, "asked {asked}");
        assert_eq!(health["pending"], 2);
    }
    // A delivery in flight cannot be cancelled, a waiting one can.
    let cancel = |id: &str| format!("{DELIVERIES}/{id}/cancel");
    let refused = api.post(&cancel(&flying), json!({})).await.expect(409);
    assert_eq!(refused["code"], "delivery_in_progress");
    let cancelled = api.post(&cancel(&waiting), json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    let shown = cluster.api(1).get(&format!("{DELIVERIES}/{waiting}")).await;
    assert_eq!(shown.expect(200)["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_applies_an_edit_within_a_second() {
    let cluster = TestCluster::pair().await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant("acme").await;
    let endpoint = cluster
        .endpoint_of(1, json!({"url": receiver.url_of("old")}))
        .await;
    let mut api = cluster.api(0);
    api.event("acme", event()).await;
    receiver.arrivals(1).await;
    let body = json!({"url": receiver.url_of("new")});
    let path = format!("{ENDPOINTS}/{endpoint}");
    let changed = api.call("PATCH", &path, Some(&body)).await;
    changed.expect(200);
    tokio::time::sleep(PROPAGATION_LIMIT).await;
    api.event("acme", event()).await;
    let records = receiver.arrivals(2).await;
    assert!(records[1].path.ends_with("new"), "{}", records[1].path);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_by_the_other_node_within_a_second() {
    let cluster = TestCluster::pair().await;
    let mut admin = cluster.api(0);
    admin.tenant("acme").await;
    let made = admin.post("/v1/tenants/acme/keys", json!({"name": "ci"}));
    let made = made.await.expect(201);
    let key = made["key"].as_str().expect("a key");
    let mut there = Api::new(&cluster.nodes[1].address, key);
    there.get("/v1/tenants/acme").await.expect(200);
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/keys/{id}");
    let revoked = admin.call("DELETE", &path, None);
    assert_eq!(revoked.await.status, 204);
    tokio::time::sleep(PROPAGATION_LIMIT).await;
    assert_eq!(there.get("/v1/tenants/acme").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_releases_its_shards_immediately() {
    let mut cluster = TestCluster::pair().await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant("acme").await;
    for owner in [0, 1] {
        let url = receiver.url_of(&owner.to_string());
        cluster.endpoint_of(owner, json!({"url": url})).await;
    }
    let began = Instant::now();
    assert!(cluster.nodes[0].stop().success());
    cluster.wait_owns_all(1).await;
    assert!(
        began.elapsed() < PATIENCE / 2,
        "the other node owns all shards long before the lease ends"
    );
    cluster.api(1).event("acme", event()).await;
    receiver.arrivals(2).await;
    // A new node takes its half again.
    let new = cluster.join();
    cluster.nodes.swap_remove(0);
    assert_eq!(new, 2);
    cluster.nodes[0].until_ready().await;
    cluster.wait_balanced().await;
    cluster.api(0).event("acme", event()).await;
    receiver.arrivals(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_cover_all_nodes() {
    let cluster = TestCluster::pair().await;
    let receiver = Receiver::start(|_| Answer::status(400)).await;
    cluster.api(0).tenant("acme").await;
    let endpoint = cluster.endpoint_of(1, json!({"url": receiver.url()})).await;
    let sent = cluster.api(0).deliver("acme", event()).await;
    let path = format!("{DELIVERIES}/{sent}");
    for asked in [0, 1] {
        let mut api = cluster.api(asked);
        api.until(&path, |shown| shown["status"] == "failed").await;
        let stats = "/v1/tenants/acme/stats";
        api.until(stats, |stats| {
            stats["windows"]["5m"]["dead_letter_ratio"]["value"] == 1.0
        })
        .await;
        let health = format!("{ENDPOINTS}/{endpoint}/health");
        api.until(&health, |health| health["success_ratio"] == 0.0)
            .await;
        let own = format!("{ENDPOINTS}/{endpoint}/stats");
        api.until(&own, |stats| {
            stats["windows"]["24h"]["dead_letter_ratio"]["value"] == 1.0
        })
        .await;
        let series = [
            "/v1/stats/series".to_owned(),
            format!("{stats}/series?window=24h"),
            format!("{own}/series"),
        ];
        for path in series {
            let series = api.get(&path).await.expect(200);
            let buckets = series["buckets"].as_array().expect("buckets");
            let failed: u64 = buckets.iter().filter_map(|it| it["failed"].as_u64()).sum();
            assert_eq!(failed, 1, "{path} asked of {asked}");
        }
    }
    // The owner sees the failures, and both nodes report them.
    for _ in 0..4 {
        cluster.api(0).event("acme", event()).await;
    }
    for asked in [0, 1] {
        for path in ["/v1/attention", "/v1/tenants/acme/attention"] {
            let mut api = cluster.api(asked);
            api.until(path, |shown| {
                let first = &shown["data"][0];
                first["endpoint_id"] == endpoint.as_str()
                    && first["detail"] == "5 of the last 5 attempts failed; last: HTTP 400"
            })
            .await;
        }
    }
}
