//! Nodes that only serve the API, and nodes that only send.

use posthaste_testbed::Receiver;
use serde_json::json;

use super::pair::{Pair, delivery, event};

#[tokio::test(flavor = "multi_thread")]
async fn one_answers_and_the_other_sends() {
    let pair = Pair::with_roles(["api", "worker"]).await;
    pair.wait_owns_all(&pair.nodes[1]).await;
    let receiver = Receiver::healthy().await;
    let mut api = pair.api(0);
    api.tenant("acme").await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let sent = api.event("acme", event()).await;
    let path = format!("/v1/tenants/acme/deliveries/{}", delivery(&sent));
    api.until(&path, |shown| shown["status"] == "succeeded")
        .await;
    let id = endpoint["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}/disable");
    let disabled = api.post(&path, json!({})).await.expect(200);
    assert_eq!(disabled["status"], "disabled");
    // The worker serves only health checks and metrics.
    let mut worker = pair.api(1);
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
async fn without_a_worker_events_wait_and_endpoints_can_be_shut() {
    let pair = Pair::with_roles(["api", "api"]).await;
    let receiver = Receiver::healthy().await;
    let mut api = pair.api(0);
    api.tenant("acme").await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let sent = api.event("acme", event()).await;
    let id = endpoint["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}/pause");
    let paused = api.post(&path, json!({})).await.expect(200);
    assert_eq!(paused["status"], "paused");
    let cancel = format!("/v1/tenants/acme/deliveries/{}/cancel", delivery(&sent));
    let cancelled = pair.api(1).post(&cancel, json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(receiver.count(), 0);
}
