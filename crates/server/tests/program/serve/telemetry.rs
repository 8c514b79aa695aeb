//! OTLP export: the collector gets all telemetry, and a bad collector delays nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{
    Answer, Collector, METRICS, PATIENCE, ReceivedSpan, Receiver, TRACES, TestServer,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn start(directory: &std::path::Path, collector: &Collector) -> TestServer {
    let endpoint = format!("otlp.endpoint={}", collector.url());
    let arguments = [
        "--set",
        &endpoint,
        "--set",
        "otlp.interval=100ms",
        "--set",
        "otlp.headers=x-api-key=correct-horse",
    ];
    TestServer::start_in(directory, &arguments)
}

fn attempts(spans: &[ReceivedSpan]) -> Vec<&ReceivedSpan> {
    spans.iter().filter(|span| span.kind == 3).collect()
}

/// Returns the span id in the `traceparent` header that the receiver got.
fn parent_of_request(arrival: &super::fixture::Arrival) -> String {
    let received = arrival.header("traceparent");
    received.split('-').nth(2).expect("a parent").to_owned()
}

// On several threads, so that the receiver keeps serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_producer_to_the_receiver() {
    let directory = tempfile::tempdir().expect("a directory");
    let collector = Collector::start().await;
    let mut server = start(directory.path(), &collector);
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let mut api = server.api();
    api.tenant("acme").await;
    let endpoint = json!({
        "url": format!("{}?secret=hunter2", receiver.url()),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "30ms"}, "max_attempts": 2},
    });
    let endpoint = api.endpoint("acme", endpoint).await;
    api.set_headers(&[("traceparent", PARENT)]);
    let event = json!({"type": "invoice.paid", "payload": {"card": "a-canary"}});
    let event = api.event("acme", event).await;
    let delivery = event["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    api.until(&path, |body| body["status"] == "failed").await;
    collector.spans(|spans| attempts(spans).len() == 2).await;

    // The trace continues in another process.
    server.kill();
    server.restart();
    let mut api = server.api();
    receiver.answer(200);
    api.call("POST", &format!("{path}/retry"), None)
        .await
        .expect(202);
    let spans = collector.spans(|spans| attempts(spans).len() == 3).await;

    let accepting: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.kind == 2).collect();
    assert_eq!(accepting.len(), 1, "{spans:#?}");
    let accepting = accepting[0];
    assert_eq!(accepting.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(accepting.parent_id.as_deref(), Some("00f067aa0ba902b7"));
    assert_eq!(accepting.attributes["posthaste.event_id"], event["id"]);
    assert_eq!(accepting.attributes["http.response.status_code"], "202");
    assert_eq!(accepting.resource["service.name"], "posthaste");
    let records = receiver.arrivals(3).await;
    let attempts = attempts(&spans);
    for (index, (attempt, arrival)) in attempts.iter().zip(&records).enumerate() {
        assert_eq!(attempt.name, "deliver invoice.paid");
        assert_eq!(attempt.trace_id, accepting.trace_id);
        assert_eq!(attempt.parent_id.as_ref(), Some(&accepting.span_id));
        assert_eq!(
            parent_of_request(arrival),
            attempt.span_id,
            "attempt {}",
            index + 1
        );
        let said = &attempt.attributes;
        assert_eq!(said["posthaste.attempt"], (index + 1).to_string());
        assert_eq!(said["posthaste.tenant_id"], "acme");
        assert_eq!(said["posthaste.delivery_id"], json!(delivery));
        assert_eq!(said["posthaste.endpoint_id"], endpoint["id"]);
        let failed = index < 2;
        let status = if failed { "503" } else { "200" };
        assert_eq!(said["http.response.status_code"], status);
        assert_eq!(said.get("error.type"), failed.then_some(&json!("http")));
        assert_eq!(attempt.failed, failed);
    }
    for arrival in collector.receiver().records() {
        assert_eq!(arrival.header("x-api-key"), "correct-horse");
        let body = String::from_utf8_lossy(&arrival.body).into_owned();
        for private in ["a-canary", "hunter2", "127.0.0.1", "correct-horse"] {
            assert!(!body.contains(private), "{private} in {body}");
        }
    }
}

#[tokio::test]
async fn a_collector_receives_the_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let collector = Collector::start().await;
    let server = start(directory.path(), &collector);
    let receiver = Receiver::healthy().await;
    let mut api = server.api();
    api.tenant("acme").await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    for number in 0..3 {
        api.event("acme", json!({"type": "a", "payload": number}))
            .await;
    }
    let by = |metric: &Value, label: &str| {
        let points = metric["sum"]["dataPoints"].as_array().expect("points");
        let point = points
            .iter()
            .find(|point| point["attributes"][0]["value"]["stringValue"] == label);
        point.expect(label)["asInt"].clone()
    };
    let delivered = "posthaste_deliveries_total";
    collector
        .metric(delivered, |metric| by(metric, "succeeded") == "3")
        .await;
    let lag = "posthaste_first_attempt_lag_seconds";
    collector
        .metric(lag, |metric| {
            metric["histogram"]["dataPoints"][0]["count"] == "3"
        })
        .await;
    for ratio in [
        "posthaste_retry_ratio",
        "posthaste_dead_letter_ratio",
        "posthaste_attempts_per_success",
        "posthaste_second_attempt_success_ratio",
        "posthaste_retrying_over_24h",
    ] {
        let metric = collector.metric(ratio, |_| true).await;
        let point = &metric["gauge"]["dataPoints"][0];
        let is_exported = point["asDouble"].is_number() || point["asInt"].is_string();
        assert!(is_exported, "{metric}");
    }
}

/// Returns the value of a metric at `/metrics`.
fn metric_value(server: &TestServer, name: &str) -> u64 {
    let mut connection = TcpStream::connect(&server.address).expect("a listener");
    let request = "GET /metrics HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n";
    connection
        .write_all(request.as_bytes())
        .expect("the server reads the request");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("text");
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    let value = line.rsplit(' ').next().expect("a value");
    value.parse().expect("a count")
}

// On several threads, so that the receivers keep serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_refuses_does_not_affect_deliveries() {
    let directory = tempfile::tempdir().expect("a directory");
    let collector = Collector::answering(|_| Answer::status(400)).await;
    let server = start(directory.path(), &collector);
    let receiver = Receiver::healthy().await;
    let mut api = server.api();
    api.tenant("acme").await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    for number in 0..20 {
        api.event("acme", json!({"type": "a", "payload": number}))
            .await;
    }
    receiver.arrivals(20).await;
    let dropped = "posthaste_otlp_dropped_total{signal=\"traces\"}";
    let deadline = Instant::now() + PATIENCE;
    // One span for each event and one for each attempt.
    while metric_value(&server, dropped) < 40 {
        assert!(Instant::now() < deadline, "not all are counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(metric_value(&server, "posthaste_otlp_dropped_total{signal=\"metrics\"}") > 0);
    assert_eq!(metric_value(&server, "posthaste_events_accepted_total"), 20);
}

// On several threads, so that the receivers keep serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_collector_does_not_delay_the_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let collector = Collector::answering(|_| Answer::hang()).await;
    let mut server = start(directory.path(), &collector);
    let receiver = Receiver::healthy().await;
    let mut api = server.api();
    api.tenant("acme").await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let asked = |records: &[super::fixture::Arrival]| {
        let at = |path: &str| records.iter().any(|arrival| arrival.path == path);
        at(TRACES) && at(METRICS)
    };
    api.event("acme", json!({"type": "a", "payload": 0})).await;
    collector.receiver().until(asked).await;
    // Both exporters are blocked now.
    for number in 1..50 {
        api.event("acme", json!({"type": "a", "payload": number}))
            .await;
    }
    receiver.arrivals(50).await;
    let all = "/v1/tenants/acme/deliveries?status=succeeded&limit=250";
    api.until(all, |body| {
        body["data"].as_array().map(Vec::len) == Some(50)
    })
    .await;
    assert!(server.stop().success(), "the server ends");
}

#[tokio::test]
async fn the_retry_after_of_a_collector_is_honoured() {
    let directory = tempfile::tempdir().expect("a directory");
    let asked = AtomicUsize::new(0);
    let collector = Collector::answering(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0..4 => Answer {
            headers: vec![("retry-after", "1".to_owned())],
            ..Answer::status(429)
        },
        _ => Answer::status(200),
    })
    .await;
    let server = start(directory.path(), &collector);
    let mut api = server.api();
    api.tenant("acme").await;
    api.event("acme", json!({"type": "a", "payload": 0})).await;
    // The same span is sent until it is accepted, and then no more.
    let taken = |records: &[super::fixture::Arrival]| {
        records.len() > 6 && records.iter().any(|arrival| arrival.path == TRACES)
    };
    collector.receiver().until(taken).await;
    let received = collector.spans(|spans| !spans.is_empty()).await;
    assert!(
        received
            .iter()
            .all(|span| span.span_id == received[0].span_id)
    );
    assert_eq!(
        metric_value(&server, "posthaste_otlp_dropped_total{signal=\"traces\"}"),
        0
    );
}
