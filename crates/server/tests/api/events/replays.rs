//! The API for replays: failed and missed deliveries, cancellation, restarts.
//!
//! Fixture: a [`TestServer`] and a receiver of the testbed.

use std::sync::{Arc, Mutex};

use posthaste_core::delivery::DeadReason;
use posthaste_core::id::EndpointId;
use posthaste_engine::replayer::Replayer;
use posthaste_store::{Store, StoreError};
use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::{NOON, TestServer};

const REPLAYS: &str = "/v1/tenants/acme/replays";

#[tokio::test]
async fn a_replay_sends_failed_deliveries_again() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    receiver.answer(400);
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let event = json!({"type": "a.b", "payload": number});
        let id = server.deliver(event).await;
        server.until_status(&id, "failed").await;
        ids.push(id);
    }
    receiver.answer(200);
    let asked = json!({"endpoint": endpoint, "event_type": "a.b", "error_kind": "http"});
    let replay = server.post(REPLAYS, &asked).await.ok(202);
    assert_eq!(replay["total"], 5);
    assert_eq!(replay["filter"]["status"], "failed");
    assert_eq!(replay["filter"]["endpoint"], json!(endpoint));
    let id = replay["id"].as_str().unwrap();
    assert!(id.starts_with("rpl_"), "{id}");
    let done = server
        .until(&format!("{REPLAYS}/{id}"), |replay| {
            replay["status"] == "done"
        })
        .await;
    assert_eq!(done["replayed"], 5);
    assert!(done["finished_at"].is_string());
    for id in &ids {
        let shown = server.until_status(id, "succeeded").await;
        assert_eq!(shown["attempt_count"], 2);
        assert_eq!(shown["attempts"][1]["trigger"], "manual");
    }
    // No failed delivery remains. Succeeded ones can still be sent again.
    let none = server.post_text(REPLAYS, "", &[]).await.ok(202);
    assert_eq!(none["total"], 0);
    let again = server
        .post(REPLAYS, &json!({"status": "succeeded"}))
        .await
        .ok(202);
    assert_eq!(again["total"], 5);
    receiver.arrivals(15).await;
    let pages = server.pages(&format!("{REPLAYS}?limit=2")).await;
    let listed: Vec<Value> = pages.concat().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(listed, [&again, &none, &replay].map(|it| it["id"].clone()));
}

#[tokio::test]
async fn a_replay_sends_missed_events_to_an_endpoint() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let since = server.app.clock.wall().to_string();
    for number in 0..3 {
        let event = json!({"type": "a.b", "payload": number});
        server.event(&event).await.ok(202);
    }
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let asked = json!({"endpoint": endpoint, "missed_since": since});
    let replay = server.post(REPLAYS, &asked).await.ok(202);
    assert_eq!(replay["total"], 3);
    assert_eq!(replay["filter"]["missed_since"], json!(since));
    assert!(replay["filter"].get("status").is_none());
    receiver.arrivals(3).await;
}

#[tokio::test]
async fn a_replay_can_be_cancelled() {
    let server = TestServer::without_engine().await;
    let replay = server.post(REPLAYS, &json!({})).await.ok(202);
    assert_eq!(replay["status"], "running");
    let path = format!("{REPLAYS}/{}", replay["id"].as_str().unwrap());
    for _ in 0..2 {
        let stopped = server
            .post_text(&format!("{path}/cancel"), "", &[])
            .await
            .ok(200);
        assert_eq!(stopped["status"], "cancelled");
        assert_eq!(server.get(&path).await.ok(200), stopped);
    }
    let none = format!("{REPLAYS}/rpl_00000000000000000000000001");
    server.get(&none).await.problem(404, "not_found");
    let none = server.post_text(&format!("{none}/cancel"), "", &[]).await;
    none.problem(404, "not_found");
    server.tenant("other").await;
    let foreign = server.get(&path.replace("acme", "other")).await;
    foreign.problem(404, "not_found");
}

#[tokio::test]
async fn an_invalid_replay_is_refused() {
    let server = TestServer::without_engine().await;
    let endpoint = server
        .endpoint(json!({"url": "http://127.0.0.1:65000/x"}))
        .await;
    let noon = "2026-11-15T12:00:00Z";
    for (asked, fields) in [
        (json!({"status": "pending"}), &["status"][..]),
        (json!({"status": "in_progress"}), &["status"]),
        (
            json!({"status": "held", "since": "x"}),
            &["status", "since"],
        ),
        (
            json!({"endpoint": "x", "event_type": "a b"}),
            &["endpoint", "event_type"],
        ),
        (
            json!({"error_kind": "bad", "until": 7}),
            &["error_kind", "until"],
        ),
        (json!({"missed_since": noon}), &["endpoint"]),
        (
            json!({"missed_since": noon, "endpoint": endpoint, "status": "failed", "since": noon}),
            &["status", "since"],
        ),
        (json!({"what": 1}), &["what"]),
        (json!([]), &[""]),
    ] {
        let answer = server.post(REPLAYS, &asked).await;
        assert_eq!(answer.problem(422, "invalid"), fields, "{asked}");
    }
    let nowhere = json!({"endpoint": "ep_00000000000000000000000001"});
    server
        .post(REPLAYS, &nowhere)
        .await
        .problem(404, "not_found");
    server.tenant("other").await;
    let foreign = json!({"endpoint": endpoint});
    let foreign = server.post("/v1/tenants/other/replays", &foreign).await;
    foreign.problem(404, "not_found");
}

/// A replay that an earlier process started continues, and waits for a store that cannot write.
#[tokio::test]
async fn a_replay_continues_after_a_restart_and_a_full_disk() {
    let server = TestServer::without_engine().await;
    let one = server.post(REPLAYS, &json!({})).await.ok(202);
    let other = server
        .post(REPLAYS, &json!({"status": "cancelled"}))
        .await
        .ok(202);
    server.store.fail_writes(Some(StoreError::Full));
    let replayer = Replayer::new(
        server.store.clone(),
        server.app.clock.clone(),
        Arc::default(),
        Box::new(|_, _| {}),
    );
    let running = tokio::spawn(replayer.run());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let path = |replay: &Value| format!("{REPLAYS}/{}", replay["id"].as_str().unwrap());
    assert_eq!(server.get(&path(&one)).await.ok(200)["status"], "running");
    server.store.fail_writes(None);
    for replay in [&one, &other] {
        server
            .until(&path(replay), |replay| replay["status"] == "done")
            .await;
    }
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test]
async fn a_short_replay_does_not_wait_for_a_long_one() {
    let server = TestServer::without_engine().await;
    let mut endpoints = Vec::new();
    for (kind, count) in [("long", 1_000), ("short", 1)] {
        let wants = json!({"url": "http://127.0.0.1:65000/x", "event_types": [kind]});
        let id: EndpointId = server.endpoint(wants).await.parse().unwrap();
        let events = vec![json!({"type": kind, "payload": 1}); count];
        let path = "/v1/tenants/acme/events/batch";
        server.post(path, &json!(events)).await.ok(202);
        let reason = DeadReason::EndpointDisabled;
        let swept = server.store.sweep(NOON, id, reason, Arc::new([]), count);
        assert_eq!(swept.await.unwrap().ended, count);
        endpoints.push(id);
    }
    let mut paths = Vec::new();
    for (kind, count) in [("long", 1_000), ("short", 1)] {
        let replay = server.post(REPLAYS, &json!({"event_type": kind})).await;
        let replay = replay.ok(202);
        assert_eq!(replay["total"], count);
        paths.push(format!("{REPLAYS}/{}", replay["id"].as_str().unwrap()));
    }
    let notified: Arc<Mutex<Vec<EndpointId>>> = Arc::default();
    let telling = notified.clone();
    let replayer = Replayer::new(
        server.store.clone(),
        server.app.clock.clone(),
        Arc::default(),
        Box::new(move |endpoint, _| telling.lock().unwrap().push(endpoint)),
    );
    let running = tokio::spawn(replayer.run());
    for path in &paths {
        server
            .until(path, |replay| replay["status"] == "done")
            .await;
    }
    running.abort();
    let notified = notified.lock().unwrap();
    let last_long = notified.iter().rposition(|it| *it == endpoints[0]);
    let short = notified.iter().position(|it| *it == endpoints[1]);
    assert!(short.is_some() && short < last_long, "{notified:?}");
}
