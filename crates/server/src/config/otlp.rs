//! Reads the settings of the OTLP export.

use http::{HeaderName, HeaderValue};
use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_core::validation::Fields;
use posthaste_telemetry::traces::OtlpSettings;
use serde_json::Value;

use super::fields::{parsed, read_bool, read_items, read_name, set};

/// Maximum number of headers sent to the collector.
const MAX_HEADERS: usize = 16;
/// Maximum size of a header value.
const MAX_VALUE_BYTES: usize = 4_096;
/// Minimum export interval.
const SHORTEST_INTERVAL: Span = Span::from_millis(100);
/// Maximum export interval.
const LONGEST_INTERVAL: Span = Span::from_hours(1);
/// Maximum length of the service name.
const MAX_NAME_CHARS: usize = 100;

/// Headers that the exporter sets itself.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "user-agent",
];

pub(super) fn read(settings: &mut OtlpSettings, mut fields: Fields<'_, '_>) {
    let endpoint = parsed(&mut fields, "endpoint", |text| {
        text.parse()
            .map_err(|_| "must be the URL of a collector, such as \"http://127.0.0.1:4318\"")
    });
    settings.endpoint = endpoint.or(settings.endpoint.take());
    let headers = read_items(&mut fields, "headers", MAX_HEADERS, header);
    set(&mut settings.headers, headers);
    set(&mut settings.traces, read_bool(&mut fields, "traces"));
    set(&mut settings.metrics, read_bool(&mut fields, "metrics"));
    let interval = fields.span("interval", SHORTEST_INTERVAL, LONGEST_INTERVAL);
    set(&mut settings.interval, interval);
    set(&mut settings.sample, fields.number("sample", 0.0, 1.0));
    let name = parsed(&mut fields, "service_name", |text| {
        read_name(text, MAX_NAME_CHARS)
    });
    set(&mut settings.service_name, name);
    fields.finish();
}

/// Reads `name=value`. The message does not repeat the value, which may be a key.
fn header(item: &Value) -> Result<(HeaderName, Secret), &'static str> {
    const WRONG: &str = "must be NAME=VALUE of a header, such as \"x-api-key=…\"";
    let (name, value) = item
        .as_str()
        .and_then(|text| text.split_once('='))
        .ok_or(WRONG)?;
    let (name, value) = (name.trim(), value.trim());
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| WRONG)?;
    let fits = value.len() <= MAX_VALUE_BYTES && HeaderValue::from_str(value).is_ok();
    if !fits {
        return Err(WRONG);
    }
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err("is a header that posthaste sets itself");
    }
    Ok((name, Secret::new(value)))
}
