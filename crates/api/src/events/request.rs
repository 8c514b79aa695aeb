//! Parses the body of a one-off request.
//!
//! A one-off request has the fields of an event without a type, and those of an HTTP request. The payload is sliced from
//! the text like that of an event; the other fields are parsed into values, because they are few and small.

use bytes::Bytes;
use posthaste_core::delivery::RequestMethod;
use posthaste_core::subscription::EventType;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::validation::{Fields, ValidationErrors};
use posthaste_store::Content;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::event_parser::{EventParser, ParsedEvent};
use crate::problem::Problem;

/// Type of the event that carries a one-off request.
pub(crate) const REQUEST_TYPE: &str = "request";

/// The fields of a one-off request.
const REQUEST_FIELDS: &[&str] = &[
    "url",
    "method",
    "headers",
    "payload",
    "body_base64",
    "content_type",
    "deliver_at",
    "delay",
    "retry_policy",
    "timeout",
    "idempotency_key",
    "ordering_key",
];

/// A one-off request whose URL, headers, retry policy and time limit have not been read yet.
pub(crate) struct RequestDraft {
    /// The event that carries its body.
    pub(crate) draft: ParsedEvent,
    /// Its method.
    pub(crate) method: RequestMethod,
    /// The other fields, to be read with [`EventParser::read_http_fields`].
    pub(crate) http_fields: Value,
}

impl RequestDraft {
    /// Returns the time before which a request that was accepted at `accepted_at`, of a clock with this lead, is not sent.
    pub(crate) fn due_at(&self, accepted_at: Timestamp, lead: Span) -> Timestamp {
        let due_at = self.draft.due.at(accepted_at, lead);
        due_at.unwrap_or(accepted_at)
    }
}

impl EventParser {
    /// Parses a one-off request. `path` precedes the field names in errors.
    pub(crate) fn request(
        &mut self,
        text: &str,
        path: &str,
    ) -> Result<Option<RequestDraft>, Problem> {
        let Some(found) = self.fields(text, path, REQUEST_FIELDS)? else {
            return Ok(None);
        };
        let [
            url,
            method,
            headers,
            payload,
            body_base64,
            content_type,
            deliver_at,
            delay,
            retry_policy,
            timeout,
            idempotency_key,
            ordering_key,
            ..,
        ] = found;
        let method = self.method(method, path);
        // `null` is a valid payload. For the other fields it means absent.
        let has_body = payload.is_some()
            || [body_base64, content_type]
                .iter()
                .flatten()
                .any(|raw| raw.get() != "null");
        let content = if has_body || method.is_some_and(RequestMethod::needs_body) {
            self.content(payload, body_base64, content_type, path)
        } else {
            Some((Bytes::new(), None))
        };
        let idempotency_key = self.short_text(idempotency_key, path, "idempotency_key");
        let due = self.due(deliver_at, delay, path);
        let ordering_key = self.short_text(ordering_key, path, "ordering_key");
        let mut http_fields = Map::new();
        for (name, raw) in [
            ("url", url),
            ("headers", headers),
            ("retry_policy", retry_policy),
            ("timeout", timeout),
        ] {
            if let Some(value) = raw.and_then(parsed) {
                http_fields.insert(name.to_owned(), value);
            }
        }
        // A request without a valid body is read to its end, so that all its mistakes are reported.
        let (payload, content_type) = content.unwrap_or_default();
        Ok(Some(RequestDraft {
            draft: ParsedEvent {
                content: Content {
                    content_type,
                    ..Content::new(request_type(), payload)
                },
                idempotency_key,
                due,
                ordering_key,
            },
            method: method.unwrap_or_default(),
            http_fields: Value::Object(http_fields),
        }))
    }

    /// Reads the fields of the HTTP request, and reports their mistakes with the others. `path` is that of the request.
    pub(crate) fn read_http_fields(
        &mut self,
        http_fields: &Value,
        path: &str,
        read: impl FnOnce(&mut Fields<'_, '_>),
    ) {
        let path = path.trim_end_matches('.');
        if let Some(mut fields) = Fields::open(http_fields, path, &mut self.errors) {
            read(&mut fields);
            fields.finish();
        }
    }

    /// Returns the mistakes found so far, to add to them.
    pub(crate) fn errors_mut(&mut self) -> &mut ValidationErrors {
        &mut self.errors
    }

    fn method(&mut self, raw: Option<&RawValue>, path: &str) -> Option<RequestMethod> {
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else {
            return Some(RequestMethod::default());
        };
        let text = self.text(raw, path, "method")?;
        match text.parse() {
            Ok(method) => Some(method),
            Err(error) => {
                self.wrong(format!("{path}method"), format!("{error}"));
                None
            }
        }
    }
}

fn request_type() -> EventType {
    REQUEST_TYPE
        .parse()
        .expect("the type of one-off requests is valid")
}

/// Parses a value. A raw value is always valid JSON.
fn parsed(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok()
}
