//! Nodes that only serve the API, and nodes that only send.

use posthaste_testbed::Receiver;
use serde_json::json;

use super::event;
use crate::fixture::TestCluster;

#[tokio::test(flavor = "multi_thread")]
async fn an_api_node_answers_and_a_worker_sends() {
    let cluster = TestCluster::pair_with(["api", "worker"], &[]).await;
    cluster.wait_owns_all(1).await;
    let receiver = Receiver::healthy().await;
    let mut api = cluster.api(0);
    api.tenant("acme").await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let delivery = api.deliver("acme", event()).await;
    api.until_status("acme", &delivery, "succeeded").await;
    let id = endpoint["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}/disable");
    let disabled = api.post(&path, json!({})).await.expect(200);
    assert_eq!(disabled["status"], "disabled");
    // The worker serves only health checks and metrics.
    let mut worker = cluster.api(1);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(worker.get(path).await.status, 200, "{path}");
    }
    for path in ["/v1/tenants", "/docs", "/openapi.json"] {
        let refused = worker.get(path).await.expect(404);
        let detail = refused["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("worker"), "{path}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_worker_events_wait_and_endpoints_can_be_disabled() {
    let cluster = TestCluster::pair_with(["api", "api"], &[]).await;
    let receiver = Receiver::healthy().await;
    let mut api = cluster.api(0);
    api.tenant("acme").await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let delivery = api.deliver("acme", event()).await;
    let id = endpoint["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}/pause");
    let paused = api.post(&path, json!({})).await.expect(200);
    assert_eq!(paused["status"], "paused");
    let cancel = format!("/v1/tenants/acme/deliveries/{delivery}/cancel");
    let cancelled = cluster.api(1).post(&cancel, json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(receiver.count(), 0);
}
