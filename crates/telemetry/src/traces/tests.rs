//! Tests of spans and their parents, of sampling, of the queue, and of the OTLP encoding.

use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::time::{Now, Span as Length, Tick};
use serde_json::{Value, json};

use super::queue::MAX_QUEUED;
use super::span::Span;
use super::*;
use crate::metrics::histogram::Histogram;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

fn clock() -> Clock {
    Clock::from_fn(|| Now {
        wall: Timestamp(1_700_000_000_123),
        tick: Tick::START,
    })
}

fn settings() -> OtlpSettings {
    OtlpSettings {
        endpoint: Some("http://127.0.0.1:4318".parse().expect("an origin")),
        service_name: "hooks".to_owned(),
        interval: Length::from_secs(1),
        ..OtlpSettings::default()
    }
}

fn telemetry(settings: OtlpSettings) -> Telemetry {
    Telemetry::new(settings, clock(), Rng::seeded(7))
}

fn given(flags: &str) -> TraceContext {
    let text = format!("{PARENT}-{flags} vendor=1");
    text.parse().expect("a trace")
}

fn acme() -> TenantId {
    "acme".parse().expect("a name")
}

fn event_type() -> EventType {
    "invoice.paid".parse().expect("a type")
}

fn failed_attempt() -> AttemptEvent {
    AttemptEvent {
        number: 2,
        latency: Duration::from_micros(1_500),
        ..AttemptEvent::example()
    }
}

fn queued(telemetry: &Telemetry) -> Vec<Span> {
    telemetry
        .0
        .as_ref()
        .expect("telemetry is enabled")
        .queue
        .take()
}

/// Accepts an event with this trace context and makes an attempt. Returns the trace context sent to the receiver.
fn deliver(telemetry: &Telemetry, given: Option<TraceContext>) -> Option<TraceContext> {
    let (tenant, event_type) = (acme(), event_type());
    let accepting = telemetry.accepting(given);
    let stored = accepting.context.clone();
    let request = AcceptSpan {
        route: "/v1/tenants/{tenant}/events",
        tenant: &tenant,
        events: 1,
        event: Some((EventId(3), &event_type)),
        status: 202,
        problem: None,
    };
    telemetry.accepted(accepting, &request);
    let trace = telemetry.attempting(stored.as_ref(), &event_type)?;
    let context = trace.context.clone();
    telemetry.attempted(*trace, &failed_attempt());
    Some(context)
}

#[test]
fn without_a_collector_the_trace_context_is_passed_on() {
    for flags in ["00", "01"] {
        let off = Telemetry::off();
        assert_eq!(deliver(&off, Some(given(flags))), Some(given(flags)));
        assert_eq!(deliver(&off, None), None);
        let only_metrics = telemetry(OtlpSettings {
            traces: false,
            ..settings()
        });
        assert_eq!(
            deliver(&only_metrics, Some(given(flags))),
            Some(given(flags))
        );
        assert_eq!(queued(&only_metrics), []);
    }
    let nowhere = OtlpSettings {
        endpoint: None,
        ..settings()
    };
    assert!(telemetry(nowhere).0.is_none());
}

#[test]
fn each_span_is_a_child_of_its_cause() {
    let telemetry = telemetry(settings());
    let received = deliver(&telemetry, Some(given("01"))).expect("a trace");
    let [accepting, attempt] = <[Span; 2]>::try_from(queued(&telemetry)).expect("two spans");
    let given = given("01");
    for span in [&accepting, &attempt] {
        assert_eq!(span.start.trace_id, given.trace_id);
        assert_eq!(span.start.state, given.state);
    }
    assert_eq!(accepting.start.parent_id, Some(given.parent_id));
    assert_eq!(attempt.start.parent_id, Some(accepting.start.span_id));
    assert_eq!(received, given.within(attempt.start.span_id));
    assert_ne!(accepting.start.span_id, attempt.start.span_id);
    assert!(!accepting.failed && attempt.failed);
}

#[test]
fn an_unsampled_trace_is_not_recorded() {
    let telemetry = telemetry(settings());
    assert_eq!(deliver(&telemetry, Some(given("00"))), Some(given("00")));
    assert_eq!(queued(&telemetry), []);
}

#[test]
fn events_without_a_trace_are_sampled() {
    for (sample, least, most) in [(0.0, 0, 0), (0.25, 200, 300), (1.0, 1_000, 1_000)] {
        let telemetry = telemetry(OtlpSettings {
            sample,
            ..settings()
        });
        let traced = (0..1_000).filter(|_| deliver(&telemetry, None).is_some());
        let traced = traced.count();
        assert!((least..=most).contains(&traced), "{sample}: {traced}");
        // The producer's decision is not subject to sampling.
        assert!(deliver(&telemetry, Some(given("01"))).is_some());
    }
    let telemetry = telemetry(settings());
    let context = deliver(&telemetry, None).expect("a trace of its own");
    assert!(context.flags.is_sampled());
    let spans = queued(&telemetry);
    assert_eq!(spans[0].start.parent_id, None);
    assert_eq!(spans[0].start.trace_id, context.trace_id);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let telemetry = telemetry(settings());
    let spans = MAX_QUEUED as u64 + 10;
    for _ in 0..spans / 2 {
        deliver(&telemetry, None);
    }
    let state = telemetry.0.as_ref().expect("telemetry is enabled");
    assert_eq!(state.queue.len(), MAX_QUEUED);
    assert_eq!(state.queue.spans_dropped(), 10);
    let metrics = telemetry.metrics();
    let text = crate::metrics::exposition::render(&metrics);
    let line = "posthaste_otlp_dropped_total{signal=\"traces\"} 10\n";
    assert!(text.contains(line), "{text}");
    assert!(Telemetry::off().metrics().is_empty());
}

fn attributes(of: &Value) -> Value {
    let list = of["attributes"].as_array().expect("attributes");
    let pairs = list.iter().map(|one| {
        let value = one["value"].as_object().expect("a value");
        let value = value.values().next().expect("of one kind");
        (
            one["key"].as_str().expect("a key").to_owned(),
            value.clone(),
        )
    });
    Value::Object(pairs.collect())
}

#[test]
fn spans_are_encoded_as_otlp() {
    let telemetry = telemetry(settings());
    deliver(&telemetry, Some(given("01")));
    let spans = queued(&telemetry);
    let state = telemetry.0.as_ref().expect("telemetry is enabled");
    let written: Value = serde_json::from_slice(&otlp::traces(state, &spans)).expect("JSON");
    let resource = &written["resourceSpans"][0];
    let of = attributes(&resource["resource"]);
    assert_eq!(of["service.name"], "hooks");
    assert_eq!(of["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(of["service.instance.id"], state.instance);
    let accepting = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!(accepting["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(accepting["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(accepting["traceState"], "vendor=1");
    assert_eq!(accepting["kind"], 2);
    assert_eq!(accepting["name"], "POST /v1/tenants/{tenant}/events");
    assert_eq!(accepting.get("status"), None);
    assert_eq!(
        attributes(accepting),
        json!({
            "http.request.method": "POST",
            "http.route": "/v1/tenants/{tenant}/events",
            "http.response.status_code": "202",
            "posthaste.tenant_id": "acme",
            "posthaste.event_count": "1",
            "posthaste.event_id": EventId(3).to_string(),
            "posthaste.event_type": "invoice.paid",
        })
    );
    let attempt = &resource["scopeSpans"][0]["spans"][1];
    assert_eq!(attempt["parentSpanId"], accepting["spanId"]);
    assert_eq!(attempt["kind"], 3);
    assert_eq!(attempt["name"], "deliver invoice.paid");
    assert_eq!(attempt["status"], json!({"code": 2}));
    assert_eq!(attempt["startTimeUnixNano"], "1700000000123000000");
    assert_eq!(attempt["endTimeUnixNano"], "1700000000124500000");
    assert_eq!(
        attributes(attempt),
        json!({
            "http.request.method": "POST",
            "posthaste.tenant_id": "acme",
            "posthaste.endpoint_id": EndpointId(1).to_string(),
            "posthaste.delivery_id": DeliveryId(2).to_string(),
            "posthaste.event_id": EventId(3).to_string(),
            "posthaste.event_type": "invoice.paid",
            "posthaste.attempt": "2",
            "posthaste.trigger": "automatic",
            "http.response.status_code": "503",
            "error.type": "http",
        })
    );
}

#[test]
fn metrics_are_encoded_as_otlp() {
    let telemetry = telemetry(settings());
    let state = telemetry.0.as_ref().expect("telemetry is enabled");
    let histogram = Histogram::new();
    for micros in [100, 150, 61_000_000] {
        histogram.observe(Duration::from_micros(micros));
    }
    let metrics = [
        Metric::counters("a_total", "A.", "status", [("failed", 3)]),
        Metric::gauge("b", "B.", 0.5),
        Metric::histogram("c_seconds", "C.", histogram.snapshot()),
    ];
    let now = Duration::from_secs(1_700_000_060);
    let written = otlp::metrics(state, now, &metrics);
    let written: Value = serde_json::from_slice(&written).expect("JSON");
    let [counter, gauge, histogram] =
        [0, 1, 2].map(|index| &written["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][index]);
    assert_eq!(
        *counter,
        json!({
            "name": "a_total",
            "description": "A.",
            "sum": {
                "dataPoints": [{
                    "attributes": [{"key": "status", "value": {"stringValue": "failed"}}],
                    "timeUnixNano": "1700000060000000000",
                    "startTimeUnixNano": "1700000000123000000",
                    "asInt": "3",
                }],
                "aggregationTemporality": 2,
                "isMonotonic": true,
            },
        })
    );
    assert_eq!(gauge["gauge"]["dataPoints"][0]["asDouble"], 0.5);
    assert_eq!(histogram["unit"], "s");
    let point = &histogram["histogram"]["dataPoints"][0];
    assert_eq!(point["count"], "3");
    let counts = point["bucketCounts"].as_array().expect("counts");
    let bounds = point["explicitBounds"].as_array().expect("bounds");
    assert_eq!(counts.len(), bounds.len() + 1);
    assert_eq!(bounds[0], 0.0001);
    let full: Vec<usize> = (0..counts.len())
        .filter(|index| counts[*index] == "1")
        .collect();
    assert_eq!(full, [0, 1, counts.len() - 1]);
}
