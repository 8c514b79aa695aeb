//! Normal stops: nothing is lost and nothing arrives twice.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::fixture::{ADMIN_KEY, Answer, Receiver, TestServer};

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_loses_nothing_and_makes_no_duplicates() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(20))).await;
    let endpoint = json!({"url": receiver.url(), "max_in_flight": 3});
    api.endpoint("acme", endpoint).await;
    let events: Vec<_> = (0..60)
        .map(|number| json!({"type": "a.b", "payload": number}))
        .collect();
    let batch = json!({ "events": events });
    let path = "/v1/tenants/acme/events/batch";
    api.post(path, batch).await.expect(202);

    // Stopped several times while attempts are in flight.
    for stop in 1..=4 {
        receiver.arrivals(stop * 10).await;
        assert!(server.stop().success(), "a clean stop has exit code 0");
        server.restart();
    }
    receiver.arrivals(60).await;
    let mut api = server.api();
    let path = "/v1/tenants/acme/deliveries?status=succeeded&limit=250";
    let all = |body: &serde_json::Value| body["data"].as_array().map(Vec::len) == Some(60);
    api.until(path, all).await;

    let mut arrivals: BTreeMap<String, usize> = BTreeMap::new();
    for arrival in receiver.records() {
        *arrivals.entry(arrival.delivery()).or_default() += 1;
    }
    assert_eq!(arrivals.len(), 60);
    assert!(arrivals.values().all(|count| *count == 1), "{arrivals:?}");
}

/// Sends a request without its body. It stays open as long as the connection does.
fn half_a_request(server: &TestServer) -> TcpStream {
    let mut connection = TcpStream::connect(&server.address).expect("a listener");
    write!(
        connection,
        "POST /v1/tenants/acme/events HTTP/1.1\r\nhost: it\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    )
    .expect("the server reads the head");
    connection
}

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_never_ends_makes_no_duplicates() {
    let (mut server, mut api) = TestServer::start_with_tenant(&["--grace", "1s"]).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(50))).await;
    let endpoint = json!({"url": receiver.url(), "max_in_flight": 3});
    api.endpoint("acme", endpoint).await;
    let events: Vec<_> = (0..150)
        .map(|number| json!({"type": "a.b", "payload": number}))
        .collect();
    let batch = json!({ "events": events });
    let path = "/v1/tenants/acme/events/batch";
    api.post(path, batch).await.expect(202);
    let half = half_a_request(&server);
    receiver.arrivals(10).await;
    assert!(server.stop().success());
    drop(half);
    server.restart();
    receiver.arrivals(150).await;
    let mut api = server.api();
    let path = "/v1/tenants/acme/deliveries?status=succeeded&limit=250";
    let all = |body: &serde_json::Value| body["data"].as_array().map(Vec::len) == Some(150);
    api.until(path, all).await;
    assert_eq!(receiver.records().len(), 150, "each arrived once");
}

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_attempt_is_abandoned_after_the_grace_period_and_repeated() {
    let (mut server, mut api) = TestServer::start_with_tenant(&["--grace", "100ms"]).await;
    let receiver = Receiver::start(|_| Answer::hang()).await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let event = json!({"type": "a.b", "payload": 1});
    api.event("acme", event).await;
    receiver.arrivals(1).await;
    assert!(server.stop().success());
    receiver.answer(200);
    server.restart();
    let records = receiver.arrivals(2).await;
    assert_eq!(records[0].delivery(), records[1].delivery());
    // The attempt that the stop ended was not counted.
    assert_eq!(records[1].attempt(), 1);
}

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_signals_at_once_count_as_one() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(300))).await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let event = json!({"type": "a.b", "payload": 1});
    let event = api.event("acme", event).await;
    receiver.arrivals(1).await;
    // `timeout` also sends it twice: to the process, then to its group.
    server.signal("TERM");
    assert!(
        server.stop().success(),
        "the attempt in flight was answered before the stop"
    );
    server.restart();
    let delivery = event["deliveries"][0]["id"].as_str().unwrap();
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    let shown = server.api().get(&path).await.expect(200);
    assert_eq!(shown["status"], "succeeded");
    assert_eq!(receiver.count(), 1);
}
