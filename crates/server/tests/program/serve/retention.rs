//! Finished data expires, each kind after its own retention period. Unfinished data stays complete.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{Answer, Api, PATIENCE, Receiver, TestServer};

const EVENTS: &str = "/v1/tenants/acme/events";
const DELIVERIES: &str = "/v1/tenants/acme/deliveries";

async fn keep(api: &mut Api, limits: Value) {
    let change = json!({ "limits": limits });
    let changed = api.call("PATCH", "/v1/tenants/acme", Some(&change)).await;
    changed.expect(200);
}

/// Polls until the path answers 404.
async fn until_gone(api: &mut Api, path: &str) {
    let deadline = Instant::now() + PATIENCE;
    while api.get(path).await.status != 404 {
        assert!(Instant::now() < deadline, "{path} stays");
        sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn numbers(delivery: &Value) -> Vec<u64> {
    let attempts = delivery["attempts"].as_array().expect("a list");
    let numbers = attempts.iter().map(|attempt| attempt["number"].as_u64());
    numbers.map(|number| number.expect("a number")).collect()
}

fn name(answer: &Value, what: &str) -> String {
    answer[what].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn payloads_attempts_and_deliveries_expire_separately_and_waiting_ones_stay() {
    let server = TestServer::start(&[]);
    let policy = |interval: &str| {
        json!({
            "backoff": {"kind": "fixed", "interval": interval},
            "jitter": {"kind": "none"}, "max_attempts": 9, "give_up_after": "1d",
        })
    };
    // One receiver accepts the third attempt, the other one none.
    let tried = AtomicU32::new(0);
    let late = Receiver::start(move |_| match tried.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Answer::status(503),
        2.. => Answer::status(200),
    })
    .await;
    let never = Receiver::start(|_| Answer::status(503)).await;
    let mut api = server.api();
    api.tenant("acme").await;
    for (receiver, event_type, interval) in [(&late, "late", "10ms"), (&never, "never", "1h")] {
        let endpoint = json!({
            "url": receiver.url(), "event_types": [event_type], "retry_policy": policy(interval),
        });
        api.endpoint("acme", endpoint).await;
    }
    let payload = json!({"amount": 42});
    let event = |event_type: &str| json!({"type": event_type, "payload": payload});
    let done = api.event("acme", event("late")).await;
    let waits = api.event("acme", event("never")).await;
    let event_path = |event: &Value| format!("{EVENTS}/{}", name(event, "id"));
    let delivery_path =
        |event: &Value| format!("{DELIVERIES}/{}", name(&event["deliveries"][0], "id"));
    let ended = |body: &Value| body["status"] == "succeeded";
    let delivery = api.until(&delivery_path(&done), ended).await;
    assert_eq!(numbers(&delivery), [1, 2, 3]);
    let retrying = |body: &Value| body["status"] == "retrying";
    let before = api.until(&delivery_path(&waits), retrying).await;

    keep(&mut api, json!({"payload_retention": "1s"})).await;
    let emptied = |body: &Value| !body["payload_removed_at"].is_null();
    let gone = api.until(&event_path(&done), emptied).await;
    assert_eq!(gone["payload"], Value::Null);
    assert_eq!(gone["type"], "late");
    assert_eq!(gone["deliveries"][0]["status"], "succeeded");
    assert_eq!(api.get(&delivery_path(&done)).await.expect(200), delivery);
    let retry = format!("{}/retry", delivery_path(&done));
    let refused = api.call("POST", &retry, None).await.expect(409);
    assert_eq!(refused["code"], "payload_gone");
    let replay = json!({"status": "succeeded"});
    let replay = api
        .post("/v1/tenants/acme/replays", replay)
        .await
        .expect(202);
    let path = format!("/v1/tenants/acme/replays/{}", name(&replay, "id"));
    let replay = api.until(&path, |body| body["status"] == "done").await;
    assert_eq!(
        (&replay["replayed"], &replay["skipped"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(late.count(), 3);

    keep(&mut api, json!({"attempt_retention": "1s"})).await;
    let last_only = |body: &Value| numbers(body) == [3];
    let delivery = api.until(&delivery_path(&done), last_only).await;
    assert_eq!(delivery["attempt_count"], 3);

    keep(&mut api, json!({"retention": "1s"})).await;
    until_gone(&mut api, &event_path(&done)).await;
    until_gone(&mut api, &delivery_path(&done)).await;

    // The waiting delivery has kept all its data.
    let kept = api.get(&event_path(&waits)).await.expect(200);
    assert_eq!(
        (&kept["payload"], &kept["payload_removed_at"]),
        (&payload, &Value::Null)
    );
    assert_eq!(api.get(&delivery_path(&waits)).await.expect(200), before);
}

#[tokio::test]
async fn the_default_retention_applies_to_tenants_without_one() {
    let arguments = ["--set", "payload_retention=1s"];
    let (_server, mut api) = TestServer::start_with_tenant(&arguments).await;
    let own = json!({"id": "own", "name": "Own", "limits": {"payload_retention": "1d"}});
    api.post("/v1/tenants", own).await.expect(201);
    let event = json!({"type": "a", "payload": 1});
    let kept = api.event("own", event.clone()).await;
    let goes = api.event("acme", event).await;
    let path = format!("{EVENTS}/{}", name(&goes, "id"));
    api.until(&path, |body| !body["payload_removed_at"].is_null())
        .await;
    let path = format!("/v1/tenants/own/events/{}", name(&kept, "id"));
    assert_eq!(api.get(&path).await.expect(200)["payload"], 1);
}
