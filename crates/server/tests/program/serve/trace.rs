//! The producer's trace reaches the receiver with every kind of attempt.

use serde_json::{Value, json};

use super::fixture::{Answer, Arrival, Receiver, TestServer};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

fn trace_headers(arrival: &Arrival) -> (Option<&str>, Option<&str>) {
    let header = |name: &str| {
        let value = arrival.headers.get(name)?;
        Some(value.to_str().expect("text"))
    };
    (header("traceparent"), header("tracestate"))
}

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_belongs_to_the_trace_of_its_event() {
    let (mut server, mut api) = TestServer::start_with_tenant(&["--log-format", "json"]).await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let endpoint = json!({
        "url": receiver.url(),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "30ms"}, "max_attempts": 2},
    });
    api.endpoint("acme", endpoint).await;
    api.set_headers(&[("traceparent", PARENT), ("tracestate", STATE)]);
    let event = json!({"type": "a.b", "payload": 1, "idempotency_key": "k"});
    let accepted = api.event("acme", event.clone()).await;
    let delivery = accepted["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    api.until(&path, |body| body["status"] == "failed").await;

    // A repeated request comes with another trace. The event keeps its first one.
    api.set_headers(&[("traceparent", OTHER)]);
    let again = api.post("/v1/tenants/acme/events", event).await;
    assert_eq!(again.expect(200), accepted);

    // The last log lines are written when the server stops.
    assert!(server.stop().success());
    let lines: Vec<Value> = server
        .log()
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["target"] == "posthaste::attempt")
        .collect();
    assert_eq!(lines.len(), 2, "one for each attempt: {lines:?}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(line["delivery_id"], delivery);
        assert_eq!(line["attempt"], index + 1);
    }

    // Read from the store in another process: by a manual retry and by a replay.
    server.restart();
    let mut api = server.api();
    let retry = format!("{path}/retry");
    api.call("POST", &retry, None).await.expect(202);
    api.until(&path, |body| body["attempt_count"] == 4).await;
    api.until(&path, |body| body["status"] == "failed").await;
    receiver.answer(200);
    let replay = json!({"status": "failed"});
    let replays = "/v1/tenants/acme/replays";
    api.post(replays, replay).await.expect(202);
    api.until(&path, |body| body["status"] == "succeeded").await;

    let records = receiver.records();
    assert_eq!(records.len(), 5);
    for arrival in &records {
        assert_eq!(trace_headers(arrival), (Some(PARENT), Some(STATE)));
    }
}

#[tokio::test]
async fn trace_context_follows_the_w3c_standard() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let plain = api
        .endpoint("acme", json!({"url": receiver.url_of("plain")}))
        .await;
    let own = json!({
        "url": receiver.url_of("own"),
        "event_types": ["own"],
        "headers": {"tracestate": "mine=1"},
    });
    api.endpoint("acme", own).await;

    let events = "/v1/tenants/acme/events";
    let mut send = async |headers: &[(&'static str, &str)], path: &str, body: Value| {
        let before = receiver.count();
        api.set_headers(headers);
        api.post(path, body).await.expect(202);
        receiver.arrivals(before + 1).await.split_off(before)
    };
    let event = json!({"type": "a.b", "payload": 1});

    let arrival = send(&[], events, event.clone()).await.remove(0);
    assert_eq!(trace_headers(&arrival), (None, None));

    // An invalid `traceparent` is dropped together with its state. An invalid `tracestate` is dropped alone.
    let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
    let wrong = [("traceparent", zeros), ("tracestate", STATE)];
    let arrival = send(&wrong, events, event.clone()).await.remove(0);
    assert_eq!(trace_headers(&arrival), (None, None));
    let half = [("traceparent", PARENT), ("tracestate", "A=1")];
    let arrival = send(&half, events, event.clone()).await.remove(0);
    assert_eq!(trace_headers(&arrival), (Some(PARENT), None));

    // A newer version is passed on as version 00.
    let later = PARENT.replacen("00", "cc", 1) + "-more";
    let later = [("traceparent", later.as_str())];
    let arrival = send(&later, events, event.clone()).await.remove(0);
    assert_eq!(trace_headers(&arrival), (Some(PARENT), None));

    // All events of one request have the same trace. A test event has one, too.
    let given = [("traceparent", OTHER), ("tracestate", STATE)];
    let batch = json!({"events": [event.clone(), event.clone()]});
    send(&given, "/v1/tenants/acme/events/batch", batch).await;
    let test = plain["id"].as_str().unwrap();
    let test = format!("/v1/tenants/acme/endpoints/{test}/test");
    send(&given, &test, json!({})).await;
    let records = receiver.arrivals(7).await;
    for arrival in &records[4..] {
        assert_eq!(trace_headers(arrival), (Some(OTHER), Some(STATE)));
    }

    // Headers of the endpoint replace both trace headers.
    let event = json!({"type": "own", "payload": 1});
    send(&given, events, event).await;
    receiver.arrivals(9).await;
    let arrival = receiver.records_at("own").remove(0);
    assert_eq!(trace_headers(&arrival), (None, Some("mine=1")));
}
