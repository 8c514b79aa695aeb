//! What is wrong is an alert: once, whatever happens in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use super::support::{Answer, Receiver, Server};

/// How soon breakers trip and probe, and how often somebody looks.
const SETTINGS: [&str; 10] = [
    "--set",
    "alerts.every=1s",
    "--set",
    "alerts.calm=1s",
    "--set",
    "breaker.consecutive_failures=3",
    "--set",
    "breaker.first_wait=100ms",
    "--set",
    "breaker.longest_wait=200ms",
];

fn list(shown: &Value) -> &Vec<Value> {
    shown["data"].as_array().expect("a list")
}

#[tokio::test]
async fn a_tripped_breaker_is_one_alert_from_its_trip_to_its_recovery() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path(), &SETTINGS);
    let status = Arc::new(AtomicU16::new(503));
    let said = status.clone();
    let receiver = Receiver::start(move |_| Answer::status(said.load(Ordering::SeqCst))).await;
    let mut api = server.api();
    api.tenant("acme").await;
    let fields = json!({
        "url": receiver.url_of("hook"),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 20},
    });
    let endpoint = api.endpoint("acme", fields).await;
    let event = json!({"type": "a.b", "payload": {}});
    for _ in 0..3 {
        api.event("acme", event.clone()).await;
    }
    let path = "/v1/tenants/acme/alerts?name=breaker_tripped";
    let open = api.until(path, |shown| !list(shown).is_empty()).await;
    let raised = list(&open)[0].clone();
    assert_eq!(raised["state"], "open");
    assert_eq!(raised["scope"]["endpoint_id"], endpoint["id"]);
    assert_eq!(raised["detail"]["reason"], "consecutive_failures");
    // Whoever comes after a kill goes on with it.
    server.kill();
    server.restart();
    let mut api = server.api();
    status.store(200, Ordering::SeqCst);
    let over = api
        .until(path, |shown| list(shown)[0]["state"] == "resolved")
        .await;
    assert_eq!(list(&over).len(), 1, "{over:#}");
    assert_eq!(list(&over)[0]["id"], raised["id"]);
    let all = api.get("/v1/alerts?state=open").await.expect(200);
    let tripped = |it: &&Value| it["name"] == "breaker_tripped";
    assert_eq!(list(&all).iter().filter(tripped).count(), 0);
}
