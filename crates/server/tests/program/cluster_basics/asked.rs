//! Requests to one node about endpoints of the other node.

use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Api, PATIENCE, Receiver};
use serde_json::json;

use super::pair::{PROPAGATION_LIMIT, Pair, delivery, event};

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";
/// More deliveries than an endpoint with 200 per second can send during a test.
const MANY: usize = 1_000;
const DELIVERIES: &str = "/v1/tenants/acme/deliveries";

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_takes_the_owner_sends() {
    let pair = Pair::start().await;
    let receiver = Receiver::healthy().await;
    pair.api(0).tenant("acme").await;
    for owner in [0, 1] {
        let endpoint = pair
            .endpoint_of(owner, json!({"url": receiver.url_of(&owner.to_string())}))
            .await;
        for asked in [0, 1] {
            let mut api = pair.api(asked);
            let sent = api.event("acme", event()).await;
            let path = format!("{DELIVERIES}/{}", delivery(&sent));
            api.until(&path, |shown| shown["status"] == "succeeded")
                .await;
        }
        let gone = pair
            .api(1 - owner)
            .call("DELETE", &format!("{ENDPOINTS}/{endpoint}"), None)
            .await;
        assert_eq!(gone.status, 204);
    }
    assert_eq!(receiver.count(), 4, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_after_the_answer_whoever_was_asked() {
    let pair = Pair::start().await;
    let receiver = Receiver::healthy().await;
    pair.api(0).tenant("acme").await;
    for (verb, status) in [("disable", "disabled"), ("pause", "paused")] {
        let fields = json!({
            "url": receiver.url_of(verb),
            "rate_limit": {"per_second": 200, "burst": 1},
        });
        let endpoint = pair.endpoint_of(1, fields).await;
        let mut api = pair.api(0);
        let events = json!({"events": vec![event(); MANY]});
        let path = "/v1/tenants/acme/events/batch";
        api.post(path, events).await.expect(202);
        receiver
            .until(|ledger| ledger.iter().filter(|it| it.path.ends_with(verb)).count() >= 20)
            .await;
        let path = format!("{ENDPOINTS}/{endpoint}/{verb}");
        let answer = api.post(&path, json!({})).await.expect(200);
        let answered_at = Instant::now();
        assert_eq!(answer["status"], status);
        // Attempts in flight arrive within 100 ms. No attempt starts after that.
        tokio::time::sleep(PROPAGATION_LIMIT).await;
        let late = |ledger: &[posthaste_testbed::Arrival]| {
            let late = ledger.iter().filter(|it| it.path.ends_with(verb));
            late.filter(|it| it.at > answered_at + Duration::from_millis(100))
                .count()
        };
        let ledger = receiver.ledger();
        assert_eq!(late(&ledger), 0, "{verb}");
        assert!(ledger.len() < 2 * MANY, "there was nothing left to begin");
        // Both nodes show the new status.
        let shown = pair.api(1).get(&format!("{ENDPOINTS}/{endpoint}")).await;
        assert_eq!(shown.expect(200)["status"], status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_sends_the_other_shows() {
    let pair = Pair::start().await;
    let receiver = Receiver::start(|_| Answer::hang()).await;
    pair.api(0).tenant("acme").await;
    let fields = json!({"url": receiver.url(), "max_in_flight": 1});
    let endpoint = pair.endpoint_of(1, fields).await;
    let mut api = pair.api(0);
    let flying = delivery(&api.event("acme", event()).await);
    receiver.arrivals(1).await;
    let waiting = delivery(&api.event("acme", event()).await);
    for asked in [0, 1] {
        let mut api = pair.api(asked);
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
    let shown = pair.api(1).get(&format!("{DELIVERIES}/{waiting}")).await;
    assert_eq!(shown.expect(200)["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_followed_by_the_owner_within_a_second() {
    let pair = Pair::start().await;
    let receiver = Receiver::healthy().await;
    pair.api(0).tenant("acme").await;
    let endpoint = pair
        .endpoint_of(1, json!({"url": receiver.url_of("old")}))
        .await;
    let mut api = pair.api(0);
    api.event("acme", event()).await;
    receiver.arrivals(1).await;
    let body = json!({"url": receiver.url_of("new")});
    let path = format!("{ENDPOINTS}/{endpoint}");
    let changed = api.call("PATCH", &path, Some(&body)).await;
    changed.expect(200);
    tokio::time::sleep(PROPAGATION_LIMIT).await;
    api.event("acme", event()).await;
    let ledger = receiver.arrivals(2).await;
    assert!(ledger[1].path.ends_with("new"), "{}", ledger[1].path);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_opens_nothing_within_a_second() {
    let pair = Pair::start().await;
    let mut admin = pair.api(0);
    admin.tenant("acme").await;
    let made = admin.post("/v1/tenants/acme/keys", json!({"name": "ci"}));
    let made = made.await.expect(201);
    let key = made["key"].as_str().expect("a key");
    let mut there = Api::new(&pair.nodes[1].address, key);
    there.get("/v1/tenants/acme").await.expect(200);
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/keys/{id}");
    let revoked = admin.call("DELETE", &path, None);
    assert_eq!(revoked.await.status, 204);
    tokio::time::sleep(PROPAGATION_LIMIT).await;
    assert_eq!(there.get("/v1/tenants/acme").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_hands_everything_over_at_once() {
    let mut pair = Pair::start().await;
    let receiver = Receiver::healthy().await;
    pair.api(0).tenant("acme").await;
    for owner in [0, 1] {
        let url = receiver.url_of(&owner.to_string());
        pair.endpoint_of(owner, json!({"url": url})).await;
    }
    let began = Instant::now();
    assert!(pair.nodes[0].stop().success());
    let owner = pair.number(&pair.nodes[1]);
    pair.wait_owns_all(&pair.nodes[1]).await;
    assert!(began.elapsed() < PATIENCE / 2, "node {owner} has it");
    pair.api(1).event("acme", event()).await;
    receiver.arrivals(2).await;
    // A new node takes its half again.
    pair.nodes[0] = pair.another();
    pair.nodes[0].until_ready().await;
    pair.wait_balanced().await;
    pair.api(0).event("acme", event()).await;
    receiver.arrivals(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_those_of_all_nodes() {
    let pair = Pair::start().await;
    let receiver = Receiver::start(|_| Answer::status(400)).await;
    pair.api(0).tenant("acme").await;
    let endpoint = pair.endpoint_of(1, json!({"url": receiver.url()})).await;
    let sent = pair.api(0).event("acme", event()).await;
    let path = format!("{DELIVERIES}/{}", delivery(&sent));
    for asked in [0, 1] {
        let mut api = pair.api(asked);
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
        pair.api(0).event("acme", event()).await;
    }
    for asked in [0, 1] {
        for path in ["/v1/attention", "/v1/tenants/acme/attention"] {
            let mut api = pair.api(asked);
            api.until(path, |shown| {
                let first = &shown["data"][0];
                first["endpoint_id"] == endpoint.as_str()
                    && first["detail"] == "5 of the last 5 attempts failed; last: HTTP 400"
            })
            .await;
        }
    }
}
