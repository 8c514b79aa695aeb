//! The API about what holds deliveries back: the endpoint's health and its deliveries name the same reason.
//!
//! Deliveries go from a [`TestServer`] with an engine to a receiver of the testbed. Each test brings about one reason.

use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::Store;
use posthaste_testbed::{Answer, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const TENANT: &str = "/v1/tenants/acme";

fn event() -> Value {
    json!({"type": "a.b", "payload": 1})
}

fn health_of(endpoint: &str) -> String {
    format!("{TENANT}/endpoints/{endpoint}/health")
}

fn time(value: &Value) -> Timestamp {
    let text = value.as_str().unwrap_or_else(|| panic!("no time: {value}"));
    text.parse().expect("a time")
}

/// Waits until the endpoint's health and the delivery name this reason, and checks the times of the delivery. Returns
/// the health and the delivery.
async fn until_held_back(
    server: &TestServer,
    endpoint: &str,
    delivery: &str,
    reason: &str,
) -> (Value, Value) {
    let is_held = |it: &Value| it["held_back_by"] == reason;
    let health = server.until(&health_of(endpoint), is_held).await;
    let path = format!("{TENANT}/deliveries/{delivery}");
    let asked_at = server.now();
    let shown = server.until(&path, is_held).await;
    let until = &shown["held_back_until"];
    let floor = match until.is_null() {
        true => asked_at,
        false => time(until).max(asked_at),
    };
    for time_of_attempt in ["earliest_at", "expected_at", "latest_at"] {
        for attempt in shown["timeline"].as_array().expect("a list") {
            assert!(time(&attempt[time_of_attempt]) >= floor, "{shown}");
        }
    }
    if !shown["next_attempt_at"].is_null() {
        assert!(time(&shown["next_attempt_at"]) >= floor, "{shown}");
    }
    let listed = format!("{TENANT}/deliveries?endpoint={endpoint}&limit=250");
    let listed = server.get(&listed).await.ok(200);
    let mut rows = listed["data"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["id"] == delivery);
    assert_eq!(row.expect("it is listed")["held_back_by"], reason);
    (health, shown)
}

#[tokio::test]
async fn rate_limit_holds_the_next_delivery() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let rate = json!({"per_second": 0.01, "burst": 1});
    let endpoint = json!({"url": receiver.url(), "rate_limit": rate});
    let endpoint = server.endpoint(endpoint).await;
    let first = server.deliver(event()).await;
    server.until_status(&first, "succeeded").await;
    let second = server.deliver(event()).await;
    let (health, shown) = until_held_back(&server, &endpoint, &second, "rate_limit").await;
    assert_eq!(
        health["limits_in_force"],
        json!({"in_flight": 10, "per_second": 0.01})
    );
    assert_eq!(health["quiet_until"], Value::Null);
    assert_eq!(shown["status"], "pending");
    // A request is due every 100 seconds.
    let wait = time(&shown["held_back_until"]).since(server.now());
    assert!((60..=100).contains(&(wait.as_millis() / 1_000)), "{shown}");
    assert_eq!(shown["next_attempt_at"], shown["held_back_until"]);
    let metrics = server.get("/metrics").await;
    let metrics = metrics.text();
    assert!(metrics.contains("posthaste_held_back{reason=\"rate_limit\"} 1\n"));
    assert!(metrics.contains("posthaste_held_back{reason=\"in_flight\"} 0\n"));
}

#[tokio::test]
async fn in_flight_limit_holds_the_second_delivery() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    receiver.hold();
    let endpoint = json!({"url": receiver.url(), "max_in_flight": 1});
    let endpoint = server.endpoint(endpoint).await;
    let first = server.deliver(event()).await;
    server.until_status(&first, "in_progress").await;
    let alone = server.get(&health_of(&endpoint)).await.ok(200);
    assert_eq!(alone["held_back_by"], Value::Null, "nothing waits");
    let second = server.deliver(event()).await;
    let (health, _) = until_held_back(&server, &endpoint, &second, "in_flight").await;
    assert_eq!(health["held_back_until"], Value::Null);
    let flying = server
        .get(&format!("{TENANT}/deliveries/{first}"))
        .await
        .ok(200);
    assert_eq!(flying["held_back_by"], Value::Null, "it does not wait");
    receiver.release();
    server.until_status(&second, "succeeded").await;
    let idle = server.get(&health_of(&endpoint)).await.ok(200);
    assert_eq!(idle["held_back_by"], Value::Null);
}

#[tokio::test]
async fn in_flight_limit_of_the_tenant_holds_another_endpoint() {
    let server = TestServer::start().await;
    let limits = json!({"limits": {"in_flight": 1}});
    server.patch(TENANT, limits).await.ok(200);
    let receiver = Receiver::healthy().await;
    receiver.hold();
    let one = json!({"url": receiver.url_of("one"), "event_types": ["one"]});
    server.endpoint(one).await;
    let other = json!({"url": receiver.url_of("other"), "event_types": ["other"]});
    let other = server.endpoint(other).await;
    server.deliver(json!({"type": "one", "payload": 1})).await;
    receiver.arrivals(1).await;
    let waiting = server.deliver(json!({"type": "other", "payload": 1})).await;
    until_held_back(&server, &other, &waiting, "tenant_in_flight").await;
    receiver.release();
    server.until_status(&waiting, "succeeded").await;
}

#[tokio::test]
async fn retry_after_holds_due_deliveries_and_delays_a_retry() {
    let server = TestServer::start().await;
    let answer = |_: &_| Answer::status(503).with_header("retry-after", "600");
    let receiver = Receiver::start(answer).await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let refused = server.deliver(event()).await;
    let refused = server.until_status(&refused, "retrying").await;
    assert_eq!(refused["held_back_by"], Value::Null, "it is due later");
    let before = server.get(&health_of(&endpoint)).await.ok(200);
    assert_eq!(before["held_back_by"], Value::Null, "nothing is due");
    let waiting = server.deliver(event()).await;
    let (health, shown) = until_held_back(&server, &endpoint, &waiting, "retry_after").await;
    assert_eq!(health["quiet_until"], health["held_back_until"]);
    let quiet = time(&health["quiet_until"]).since(server.now());
    assert!(
        (500..=600).contains(&(quiet.as_millis() / 1_000)),
        "{health}"
    );
    assert_eq!(shown["next_attempt_at"], health["quiet_until"]);
    assert!(time(&refused["next_attempt_at"]) >= time(&health["quiet_until"]));
}

#[tokio::test]
async fn next_attempt_of_an_endpoint_is_not_the_one_in_flight() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    receiver.answer(500);
    let later = server.deliver(event()).await;
    let later = server.until_status(&later, "retrying").await;
    receiver.hold();
    let in_flight = server.deliver(event()).await;
    receiver.arrivals(2).await;
    let shown = server.until_status(&in_flight, "in_progress").await;
    assert_eq!(shown["next_attempt_at"], Value::Null);
    let health = server.get(&health_of(&endpoint)).await.ok(200);
    assert_eq!(
        (&health["pending"], &health["in_flight"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(health["next_attempt_at"], later["next_attempt_at"]);
    receiver.release();
}

#[tokio::test]
async fn breaker_holds_deliveries_until_the_probe() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    let endpoint = json!({"url": receiver.url()});
    let endpoint = server.endpoint(endpoint).await;
    let mut last = String::new();
    for _ in 0..40 {
        last = server.deliver(event()).await;
    }
    let tripped = |it: &Value| it["breaker"]["state"] == "tripped";
    server.until(&health_of(&endpoint), tripped).await;
    let (health, shown) = until_held_back(&server, &endpoint, &last, "breaker").await;
    if health["breaker"]["state"] == "tripped" {
        assert_eq!(health["held_back_until"], health["breaker"]["until"]);
    }
    assert_eq!(shown["status"], "held");
}

#[tokio::test]
async fn paused_endpoint_holds_deliveries_without_an_end() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let pause = format!("{TENANT}/endpoints/{endpoint}/pause");
    server.post_text(&pause, "", &[]).await.ok(200);
    let idle = server.get(&health_of(&endpoint)).await.ok(200);
    assert_eq!(idle["held_back_by"], Value::Null, "nothing waits");
    let id = server.deliver(event()).await;
    let (health, shown) = until_held_back(&server, &endpoint, &id, "paused").await;
    assert_eq!(health["held_back_until"], Value::Null);
    assert_eq!(shown["status"], "held");
    assert_eq!(shown["next_attempt_at"], Value::Null);
}

#[tokio::test]
async fn stored_state_decides_while_no_engine_answers() {
    let server = TestServer::without_engine().await;
    let endpoint = server
        .endpoint(json!({"url": "http://127.0.0.1:65000/x", "max_in_flight": 7}))
        .await;
    let id = server.deliver(event()).await;
    server.pass_ms(90_000);
    let path = format!("{TENANT}/deliveries/{id}");
    let late = server.get(&path).await.ok(200);
    assert_eq!(late["held_back_by"], Value::Null);
    assert_eq!(
        time(&late["next_attempt_at"]),
        server.now(),
        "not in the past"
    );
    assert_eq!(time(&late["timeline"][0]["earliest_at"]), server.now());
    let until = server.now().after(Span::from_mins(2));
    let quiet = Health {
        revision: 1,
        quiet_until: Some(until),
        ..Health::default()
    };
    let row = endpoint.parse().expect("an id");
    let enabled = EndpointStatus::Enabled;
    let set = server
        .store
        .set_endpoint_status(server.now(), row, enabled, None, Some(quiet));
    assert_eq!(set.await, Ok(true));
    let shown = server.get(&path).await.ok(200);
    assert_eq!(shown["held_back_by"], "retry_after");
    assert_eq!(time(&shown["next_attempt_at"]), until);
    assert_eq!(time(&shown["timeline"][0]["earliest_at"]), until);
}
