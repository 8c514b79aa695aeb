//! Spans and metrics in the JSON encoding of OTLP.
//!
//! Ids are hexadecimal, 64-bit integers are strings, kinds are numbers. This encoding is a stable part of the
//! specification that every collector accepts. It needs no crate; the crates for the Protocol Buffers encoding bring
//! many dependencies.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::span::{Attribute, Span, SpanKind};
use super::{OtlpSettings, TelemetryState};
use crate::metrics::histogram::{BOUNDS, HistogramSnapshot};
use crate::metrics::metric::{Labelled, Metric, Number, Values};

/// Path for spans.
pub(super) const TRACES_PATH: &str = "/v1/traces";
/// Path for metrics.
pub(super) const METRICS_PATH: &str = "/v1/metrics";

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Aggregation temporality: values count from the start of the process.
const CUMULATIVE: u8 = 2;
const STATUS_ERROR: u8 = 2;

/// Builds a request with these spans.
pub(super) fn traces(state: &TelemetryState, spans: &[Span]) -> Vec<u8> {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let request = json!({"resourceSpans": [{
        "resource": resource(&state.settings, &state.instance),
        "scopeSpans": [{"scope": scope(), "spans": spans}],
    }]});
    request.to_string().into_bytes()
}

/// Builds a request with these metrics, as of `now`.
pub(super) fn metrics(state: &TelemetryState, now: Duration, metrics: &[Metric]) -> Vec<u8> {
    let reading = Reading {
        began: nanos(state.began),
        now: nanos(now),
    };
    let metrics: Vec<Value> = metrics.iter().map(|one| reading.metric(one)).collect();
    let request = json!({"resourceMetrics": [{
        "resource": resource(&state.settings, &state.instance),
        "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
    }]});
    request.to_string().into_bytes()
}

fn resource(settings: &OtlpSettings, instance: &str) -> Value {
    json!({"attributes": [
        text("service.name", &settings.service_name),
        text("service.version", VERSION),
        text("service.instance.id", instance),
    ]})
}

fn scope() -> Value {
    json!({"name": "posthaste", "version": VERSION})
}

fn span(span: &Span) -> Value {
    let kind = match span.kind {
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let attributes = span.attributes.iter().map(|(name, value)| match value {
        Attribute::Text(value) => text(name, value),
        Attribute::Whole(value) => json!({"key": name, "value": {"intValue": value.to_string()}}),
    });
    let mut written = json!({
        "traceId": span.start.trace_id.to_string(),
        "spanId": span.start.span_id.to_string(),
        "flags": span.start.flags.bits(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start.began),
        "endTimeUnixNano": nanos(span.ended),
        "attributes": attributes.collect::<Vec<_>>(),
    });
    let mut add = |name: &str, value: Value| {
        let fields = written.as_object_mut().expect("the value is a JSON object");
        fields.insert(name.to_owned(), value);
    };
    if let Some(parent) = span.start.parent_id {
        add("parentSpanId", json!(parent.to_string()));
    }
    if !span.start.state.is_empty() {
        add("traceState", json!(span.start.state.as_str()));
    }
    if span.failed {
        add("status", json!({"code": STATUS_ERROR}));
    }
    written
}

/// Time of the reading, and start of the counters.
struct Reading {
    began: String,
    now: String,
}

impl Reading {
    fn metric(&self, metric: &Metric) -> Value {
        let mut written = json!({
            "name": metric.name,
            "description": metric.help,
        });
        let fields = written.as_object_mut().expect("the value is a JSON object");
        let (name, values) = match &metric.values {
            Values::Counter(values) => (
                "sum",
                json!({
                    "dataPoints": self.points(values, Reading::counted),
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                }),
            ),
            Values::Gauge(values) => (
                "gauge",
                json!({"dataPoints": self.points(values, Reading::number)}),
            ),
            Values::Histogram(values) => {
                fields.insert("unit".to_owned(), json!("s"));
                (
                    "histogram",
                    json!({
                        "dataPoints": self.points(values, Reading::histogram),
                        "aggregationTemporality": CUMULATIVE,
                    }),
                )
            }
        };
        fields.insert(name.to_owned(), values);
        written
    }

    fn points<T>(
        &self,
        values: &[Labelled<T>],
        write: fn(&Reading, &T, &mut Map<String, Value>),
    ) -> Vec<Value> {
        let point = |one: &Labelled<T>| {
            let mut point = Map::new();
            point.insert("attributes".to_owned(), labels(&one.labels));
            point.insert("timeUnixNano".to_owned(), json!(self.now));
            write(self, &one.value, &mut point);
            Value::Object(point)
        };
        values.iter().map(point).collect()
    }

    fn number(&self, number: &Number, point: &mut Map<String, Value>) {
        let (name, value) = match number {
            Number::Whole(count) => ("asInt", json!(count.to_string())),
            Number::Fraction(ratio) => ("asDouble", json!(ratio)),
        };
        point.insert(name.to_owned(), value);
    }

    fn counted(&self, number: &Number, point: &mut Map<String, Value>) {
        point.insert("startTimeUnixNano".to_owned(), json!(self.began));
        self.number(number, point);
    }

    fn histogram(&self, snapshot: &HistogramSnapshot, point: &mut Map<String, Value>) {
        point.insert("startTimeUnixNano".to_owned(), json!(self.began));
        point.insert("count".to_owned(), json!(snapshot.count.to_string()));
        point.insert("sum".to_owned(), json!(snapshot.sum_seconds));
        // Prometheus buckets are cumulative, OTLP buckets are not.
        let up_to = snapshot.at_most.iter().copied().chain([snapshot.count]);
        let before = [0].into_iter().chain(snapshot.at_most);
        let counts = up_to
            .zip(before)
            .map(|(up_to, before)| (up_to - before).to_string());
        point.insert("bucketCounts".to_owned(), counts.collect());
        let bounds = BOUNDS.iter().map(|(micros, _)| *micros as f64 / 1e6);
        point.insert("explicitBounds".to_owned(), bounds.collect());
    }
}

fn labels(labels: &[(&'static str, Cow<'static, str>)]) -> Value {
    labels.iter().map(|(name, of)| text(name, of)).collect()
}

fn text(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

fn nanos(since_1970: Duration) -> String {
    since_1970.as_nanos().to_string()
}
