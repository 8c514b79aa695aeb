//! The same idempotency key makes one event, even if it is sent to all nodes at once.

use std::collections::BTreeSet;

use posthaste_testbed::Receiver;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::{LONG_LEASE, TENANT, TestCluster};

const KEYS: usize = 40;
const NODES: usize = 3;
/// Number of simultaneous requests with the same key to each node.
const CALLERS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_idempotency_key_on_all_nodes_makes_one_event() {
    let cluster = TestCluster::of(NODES, LONG_LEASE).await;
    let receiver = Receiver::healthy().await;
    let mut api = cluster.api(0);
    api.tenant(TENANT).await;
    let endpoint = json!({"url": receiver.url(), "rate_limit": {"per_second": 500, "burst": 500}});
    api.endpoint(TENANT, endpoint).await;
    let mut apis: Vec<_> = (0..NODES * CALLERS)
        .map(|caller| cluster.api(caller % NODES))
        .collect();
    for api in &mut apis {
        // Connected beforehand, so that all requests start together.
        api.get("/healthz").await.expect(200);
    }
    let mut events = BTreeSet::new();
    for number in 0..KEYS {
        let key = format!("key-{number}");
        let body = json!({"type": "a", "payload": number, "idempotency_key": key});
        let mut calls = JoinSet::new();
        for mut api in apis.drain(..) {
            let body = body.clone();
            let path = format!("/v1/tenants/{TENANT}/events");
            calls.spawn(async move {
                let reply = api.post(&path, body).await;
                (api, reply)
            });
        }
        let answers = calls.join_all().await;
        let status = |status: u16| answers.iter().filter(|(_, it)| it.status == status).count();
        let shown: Vec<_> = answers
            .iter()
            .map(|(_, it)| (it.status, &it.body))
            .collect();
        assert_eq!(status(202), 1, "{shown:?}");
        assert_eq!(status(200), NODES * CALLERS - 1, "{shown:?}");
        let ids: BTreeSet<&str> = shown
            .iter()
            .map(|(_, body)| body["id"].as_str().expect("an id"))
            .collect();
        assert_eq!(ids.len(), 1, "{shown:?}");
        events.extend(ids.into_iter().map(str::to_owned));
        apis = answers.into_iter().map(|(api, _)| api).collect();
        // The same key with other content is a conflict.
        let other = json!({"type": "a", "payload": "other", "idempotency_key": key});
        let path = format!("/v1/tenants/{TENANT}/events");
        let refused = apis[number % NODES].post(&path, other).await;
        assert_eq!(refused.expect(409)["code"], "idempotency_conflict");
    }
    assert_eq!(events.len(), KEYS);
    receiver.arrivals(KEYS).await;
    let path = format!("/v1/tenants/{TENANT}/deliveries?status=succeeded&limit=250");
    let all = |body: &Value| body["data"].as_array().map(Vec::len) == Some(KEYS);
    api.until(&path, all).await;
    let arrived: BTreeSet<String> = receiver.records().iter().map(|it| it.event()).collect();
    assert_eq!((arrived, receiver.count()), (events, KEYS));
}
