//! Custom headers of an endpoint.
//!
//! Headers that belong to HTTP framing, to the connection or to posthaste itself cannot be set, and a value
//! cannot contain a line break. They are stored sealed, as a JSON object of names and values.

use http::{HeaderName, HeaderValue};
use posthaste_core::validation::Fields;
use serde_json::{Map, Value};

/// Maximum number of headers of an endpoint.
pub(crate) const MAX_HEADERS: usize = 20;
/// Maximum length of a name.
pub(super) const MAX_NAME_BYTES: usize = 128;
/// Maximum length of a value.
pub(super) const MAX_VALUE_BYTES: usize = 4_096;
/// Maximum size of all names and values together.
pub(super) const MAX_TOTAL_BYTES: usize = 8_192;

/// Names that belong to the connection, the framing, or posthaste.
const RESERVED: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Prefixes of posthaste's own headers.
const RESERVED_PREFIXES: &[&str] = &["webhook-", "posthaste-"];

/// Reads the field `headers`.
pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Option<Map<String, Value>> {
    let value = fields.value("headers")?;
    let Some(given) = value.as_object() else {
        fields.wrong("headers", "must be an object of header names and values");
        return None;
    };
    if given.len() > MAX_HEADERS {
        let message = format!(
            "must have at most {MAX_HEADERS} headers, not {}",
            given.len()
        );
        fields.wrong("headers", message);
        return None;
    }
    let mut seen: Vec<String> = Vec::new();
    let mut total_bytes = 0;
    for (name, value) in given {
        let wrong = wrong_name(name).or_else(|| {
            let lower = name.to_ascii_lowercase();
            let twice = seen.contains(&lower);
            seen.push(lower);
            twice.then(|| "is listed twice; header names are case-insensitive".to_owned())
        });
        if let Some(wrong) = wrong.or_else(|| wrong_value(value)) {
            fields.wrong(&format!("headers.{name}"), wrong);
        }
        total_bytes += name.len() + value.as_str().map_or(0, str::len);
    }
    if total_bytes > MAX_TOTAL_BYTES {
        let message = format!("must have at most {MAX_TOTAL_BYTES} bytes together");
        fields.wrong("headers", message);
    }
    Some(given.clone())
}

fn wrong_name(name: &str) -> Option<String> {
    if name.len() > MAX_NAME_BYTES || HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Some(format!(
            "is not a valid header name: use 1 to {MAX_NAME_BYTES} letters, digits or any of !#$%&'*+-.^_`|~"
        ));
    }
    let name = name.to_ascii_lowercase();
    let reserved = RESERVED.contains(&name.as_str())
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    reserved
        .then(|| "cannot be set: posthaste sets this header itself or never sends it".to_owned())
}

fn wrong_value(value: &Value) -> Option<String> {
    let Some(value) = value.as_str() else {
        return Some("must be a string".to_owned());
    };
    if value.len() > MAX_VALUE_BYTES {
        return Some(format!(
            "must have at most {MAX_VALUE_BYTES} bytes, not {}",
            value.len()
        ));
    }
    // HTTP allows other bytes, but receivers interpret them differently.
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain || HeaderValue::from_str(value).is_err() {
        let message =
            "must be visible ASCII and spaces: no line breaks or other control characters";
        return Some(message.to_owned());
    }
    let padded = value.trim_ascii().len() != value.len();
    padded.then(|| "must not begin or end with white space".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::validation::ValidationErrors;
    use serde_json::json;

    fn wrong(headers: Value) -> Vec<String> {
        let document = json!({"headers": headers});
        let mut errors = ValidationErrors::default();
        let mut fields = Fields::open(&document, "", &mut errors).expect("an object");
        read(&mut fields);
        errors.iter().map(|one| one.field.clone()).collect()
    }

    #[test]
    fn ordinary_headers_are_accepted() {
        let headers = json!({"X-Team": "billing", "Authorization": "Bearer x", "X-Empty": ""});
        assert!(wrong(headers).is_empty());
    }

    #[test]
    fn reserved_and_malformed_headers_are_refused() {
        for (name, value) in [
            ("X-Team", "a\r\nX-Evil: 1"),
            ("X-Team", "a\nb"),
            ("X-Team", "a\0"),
            ("X-Team", "ä"),
            ("X-Team", " a"),
            ("X-Team\r\nX-Evil", "1"),
            ("X Team", "1"),
            ("X-Team:", "1"),
            ("", "1"),
            ("Host", "inner"),
            ("content-LENGTH", "0"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("Webhook-Id", "1"),
            ("POSTHASTE-attempt", "1"),
            ("Content-Type", "text/plain"),
        ] {
            let field = format!("headers.{name}");
            assert_eq!(wrong(json!({name: value})), [field], "{name}: {value:?}");
        }
    }

    #[test]
    fn header_count_and_sizes_are_limited() {
        let many: Map<String, Value> = (0..=MAX_HEADERS)
            .map(|number| (format!("X-{number}"), json!("1")))
            .collect();
        assert_eq!(wrong(Value::Object(many)), ["headers"]);
        let long = "x".repeat(MAX_VALUE_BYTES);
        assert!(wrong(json!({"X-A": long})).is_empty());
        assert_eq!(
            wrong(json!({"X-A": long, "X-B": long, "X-C": "1"})),
            ["headers"]
        );
        assert_eq!(
            wrong(json!({"X-A": "x".repeat(MAX_VALUE_BYTES + 1)})),
            ["headers.X-A"]
        );
        assert_eq!(wrong(json!({"X-A": "1", "x-a": "2"})), ["headers.x-a"]);
        assert_eq!(wrong(json!({"X-A": 1})), ["headers.X-A"]);
        assert_eq!(wrong(json!(["X-A"])), ["headers"]);
    }
}
