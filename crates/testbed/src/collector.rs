//! An OTLP/HTTP collector on loopback. It accepts JSON, and tests read the spans and metrics that it received.
//!
//! [`Collector`] is a [`Receiver`] for spans and metrics. Tests wait until what they expect has arrived.

use serde_json::{Map, Value};

use crate::{Answer, Arrival, Receiver};

/// Path that receives spans.
pub const TRACES: &str = "/v1/traces";
/// Path that receives metrics.
pub const METRICS: &str = "/v1/metrics";

/// The collector.
pub struct Collector {
    receiver: Receiver,
}

/// A span that the collector received.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// Id of the trace.
    pub trace_id: String,
    /// Id of the span.
    pub span_id: String,
    /// Id of the parent span, if there is one.
    pub parent_id: Option<String>,
    /// Name of the span.
    pub name: String,
    /// OTLP kind: 2 is a server span, 3 a client span.
    pub kind: u64,
    /// Attributes of the span.
    pub attributes: Map<String, Value>,
    /// True if the status code of the span is an error.
    pub failed: bool,
    /// Attributes of the resource that sent the span.
    pub resource: Map<String, Value>,
}

impl Collector {
    /// Starts a collector that accepts everything.
    pub async fn start() -> Collector {
        Collector::answering(|_| Answer::status(200)).await
    }

    /// Starts a collector that answers as `behaviour` decides.
    pub async fn answering(
        behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
    ) -> Collector {
        Collector {
            receiver: Receiver::start(behaviour).await,
        }
    }

    /// Base URL of the collector.
    pub fn url(&self) -> String {
        format!("http://{}", self.receiver.address)
    }

    /// The receiver behind the collector, with all requests as they arrived.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Waits until the received spans are as wanted, and returns them.
    pub async fn spans(&self, wanted: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let records = self.receiver.until(|records| wanted(&spans_in(records)));
        spans_in(&records.await)
    }

    /// Waits until the latest value of a metric is as wanted, and returns it as it was sent.
    pub async fn metric(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let records = self.receiver.until(|records| {
            let latest = latest(records, name);
            latest.is_some_and(|metric| wanted(&metric))
        });
        latest(&records.await, name).expect("a received metric")
    }
}

fn spans_in(records: &[Arrival]) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for resource in parts(records, TRACES, "resourceSpans") {
        for scope in list(&resource["scopeSpans"]) {
            let received = list(&scope["spans"]).iter();
            spans.extend(received.map(|span| read(span, &resource["resource"])));
        }
    }
    spans
}

fn latest(records: &[Arrival], name: &str) -> Option<Value> {
    let mut latest = None;
    for resource in parts(records, METRICS, "resourceMetrics") {
        for scope in list(&resource["scopeMetrics"]) {
            let mut metrics = list(&scope["metrics"]).iter();
            let found = metrics.rfind(|metric| metric["name"] == name);
            latest = found.cloned().or(latest);
        }
    }
    latest
}

fn parts(records: &[Arrival], path: &str, name: &str) -> Vec<Value> {
    let mut parts = Vec::new();
    for arrival in records.iter().filter(|arrival| arrival.path == path) {
        assert_eq!(arrival.header("content-type"), "application/json");
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        parts.extend(list(&body[name]).iter().cloned());
    }
    parts
}

fn read(span: &Value, resource: &Value) -> ReceivedSpan {
    let text = |name: &str| span[name].as_str().expect(name).to_owned();
    let number = |name: &str| text(name).parse::<u64>().expect(name);
    assert!(number("startTimeUnixNano") <= number("endTimeUnixNano"));
    ReceivedSpan {
        trace_id: text("traceId"),
        span_id: text("spanId"),
        parent_id: span["parentSpanId"].as_str().map(str::to_owned),
        name: text("name"),
        kind: span["kind"].as_u64().expect("a kind"),
        attributes: attributes(span),
        failed: span["status"]["code"] == 2,
        resource: attributes(resource),
    }
}

fn attributes(of: &Value) -> Map<String, Value> {
    let pair = |one: &Value| {
        let value = one["value"].as_object().expect("a value");
        let value = value.values().next().expect("a value of one type").clone();
        (one["key"].as_str().expect("a key").to_owned(), value)
    };
    list(&of["attributes"]).iter().map(pair).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}
