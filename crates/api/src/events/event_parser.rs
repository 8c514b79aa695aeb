//! Parses events of a request, fast and strictly.
//!
//! The body is parsed in one pass. Fields are slices of the text, so a payload is neither parsed into values
//! nor copied before it is needed, and it is stored byte for byte. A payload may be any JSON with bounded
//! nesting.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use http::HeaderMap;
use posthaste_core::delivery::OrderingKey;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::subscription::EventType;
use posthaste_core::suggestion::unknown;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::trace::TraceContext;
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{Content, Idempotency, NewEvent};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny};
use serde_json::value::RawValue;

use crate::body;
use crate::code::Code;
use crate::problem::Problem;
use crate::quota::payload_too_large;

use super::due::{self, Due};
use super::fields::{MOST_FIELDS, Names};

/// Maximum nesting depth of a payload.
pub const MAX_PAYLOAD_DEPTH: usize = 128;
/// Maximum length of an idempotency key, an ordering key and a content type.
pub const MAX_TEXT_CHARS: usize = 255;
/// Default content type of a raw body.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";
/// The header that may contain the idempotency key.
const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// The fields of an event.
const EVENT_FIELDS: &[&str] = &[
    "type",
    "payload",
    "body_base64",
    "content_type",
    "idempotency_key",
    "deliver_at",
    "delay",
    "ordering_key",
];
/// The fields of a test event.
const TEST_FIELDS: &[&str] = &["type", "payload"];

/// A valid event, before it gets its tenant and time.
#[derive(Clone, Debug)]
pub(crate) struct ParsedEvent {
    pub(super) content: Content,
    pub(super) idempotency_key: Option<String>,
    pub(super) due: Due,
    pub(super) ordering_key: Option<String>,
}

/// Parses events and collects their errors.
#[derive(Debug)]
pub(crate) struct EventParser {
    now: Timestamp,
    payload_limit_bytes: u64,
    pub(super) errors: ValidationErrors,
    too_large: bool,
}

impl EventParser {
    /// Creates a reader for events received at `now`, with payloads of at most this many bytes.
    pub(crate) fn new(now: Timestamp, payload_limit_bytes: u64) -> EventParser {
        EventParser {
            now,
            payload_limit_bytes,
            errors: ValidationErrors::default(),
            too_large: false,
        }
    }

    /// Reports an error.
    pub(crate) fn wrong(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.errors.add(field, message);
    }

    /// Returns the parsed events, or all their errors.
    pub(crate) fn finish<T>(self, read: Option<T>) -> Result<T, Problem> {
        self.finish_as(read, Code::Invalid)
    }

    /// Returns the parsed event, or all its errors under this code.
    pub(crate) fn finish_as<T>(self, read: Option<T>, code: Code) -> Result<T, Problem> {
        if !self.errors.is_empty() {
            return Err(Problem::invalid_as(code, self.errors));
        }
        if self.too_large {
            return Err(payload_too_large(self.payload_limit_bytes));
        }
        Ok(read.expect("an event without errors is complete"))
    }

    /// Parses the event in `text`. `path` precedes the field names in errors.
    pub(crate) fn event(&mut self, text: &str, path: &str) -> Result<Option<ParsedEvent>, Problem> {
        let Some(found) = self.fields(text, path, EVENT_FIELDS)? else {
            return Ok(None);
        };
        let [
            event_type,
            payload,
            body_base64,
            content_type,
            idempotency_key,
            deliver_at,
            delay,
            ordering_key,
            ..,
        ] = found;
        let event_type = self.event_type(event_type, path);
        let content = self.content(payload, body_base64, content_type, path);
        let idempotency_key = self.short_text(idempotency_key, path, "idempotency_key");
        let due = self.due(deliver_at, delay, path);
        let ordering_key = self.short_text(ordering_key, path, "ordering_key");
        if event_type.is_none() && found[0].is_none() {
            self.wrong(format!("{path}type"), "is required");
        }
        let (Some(event_type), Some((payload, content_type))) = (event_type, content) else {
            return Ok(None);
        };
        Ok(Some(ParsedEvent {
            content: Content {
                content_type,
                ..Content::new(event_type, payload)
            },
            idempotency_key,
            due,
            ordering_key,
        }))
    }

    /// Parses a test event. Absent fields are taken from `usual`.
    pub(super) fn test(
        &mut self,
        text: &str,
        usual: Content,
    ) -> Result<Option<ParsedEvent>, Problem> {
        let Some([event_type, payload, ..]) = self.fields(text, "", TEST_FIELDS)? else {
            return Ok(None);
        };
        let event_type = match event_type {
            None => Some(usual.event_type),
            given @ Some(_) => self.event_type(given, ""),
        };
        let payload = match payload {
            None => Some(usual.payload),
            Some(raw) => self.payload(raw, ""),
        };
        let (Some(event_type), Some(payload)) = (event_type, payload) else {
            return Ok(None);
        };
        Ok(Some(ParsedEvent::plain(Content::new(event_type, payload))))
    }

    /// Takes the idempotency key from the headers, if there is one.
    pub(crate) fn header(&mut self, headers: &HeaderMap, draft: &mut Option<ParsedEvent>) {
        let mut values = headers.get_all(IDEMPOTENCY_HEADER).iter();
        let Some(value) = values.next() else {
            return;
        };
        let key = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
        if values.next().is_some() {
            self.wrong(IDEMPOTENCY_HEADER, "is given twice");
        } else if let Err(message) = check_short(key) {
            self.wrong(IDEMPOTENCY_HEADER, message);
        } else if let Some(draft) = draft {
            match &draft.idempotency_key {
                Some(own) if own != key => self.wrong(
                    "idempotency_key",
                    "differs from the header Idempotency-Key; send one of them, or the same value in both",
                ),
                Some(_) | None => draft.idempotency_key = Some(key.to_owned()),
            }
        }
    }

    /// Refuses an idempotency key in the headers of a request with many events.
    pub(super) fn no_header(&mut self, headers: &HeaderMap) {
        if headers.contains_key(IDEMPOTENCY_HEADER) {
            let message = "is not allowed for batches; set idempotency_key in each event";
            self.wrong(IDEMPOTENCY_HEADER, message);
        }
    }

    /// Returns the fields of the object that is the whole body, in the order of `names`.
    pub(crate) fn object<'a>(
        &mut self,
        text: &'a str,
        names: &'static [&'static str],
    ) -> Result<Option<[Option<&'a RawValue>; MOST_FIELDS]>, Problem> {
        self.fields(text, "", names)
    }

    /// Returns the fields of the object in `text`, in the order of `names`.
    pub(super) fn fields<'a>(
        &mut self,
        text: &'a str,
        path: &str,
        names: &'static [&'static str],
    ) -> Result<Option<[Option<&'a RawValue>; MOST_FIELDS]>, Problem> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        if !text.trim_ascii_start().starts_with('{') {
            let skipped = IgnoredAny::deserialize(&mut deserializer);
            skipped
                .and_then(|_| deserializer.end())
                .map_err(|error| body::malformed(&error))?;
            let field = path.trim_end_matches('.');
            let message = format!("must be an object, not {}", shape_of(text));
            self.wrong(field, message);
            return Ok(None);
        }
        let found = Names(names)
            .deserialize(&mut deserializer)
            .and_then(|found| deserializer.end().map(|()| found))
            .map_err(|error| body::malformed(&error))?;
        for name in found.unknown {
            let message = unknown("field", &name, names);
            self.wrong(format!("{path}{name}"), message);
        }
        Ok(Some(found.values))
    }

    fn event_type(&mut self, raw: Option<&RawValue>, path: &str) -> Option<EventType> {
        let text = self.text(raw?, path, "type")?;
        match text.parse() {
            Ok(event_type) => Some(event_type),
            Err(error) => {
                self.wrong(format!("{path}type"), error.to_string());
                None
            }
        }
    }

    pub(super) fn content(
        &mut self,
        payload: Option<&RawValue>,
        body_base64: Option<&RawValue>,
        content_type: Option<&RawValue>,
        path: &str,
    ) -> Option<(Bytes, Option<String>)> {
        // `null` is a valid payload. For the other fields it means absent.
        let body_base64 = body_base64.filter(|raw| raw.get() != "null");
        let content_type = content_type.filter(|raw| raw.get() != "null");
        let Some(body_base64) = body_base64 else {
            if content_type.is_some() {
                let message = "requires body_base64; a payload is always JSON";
                self.wrong(format!("{path}content_type"), message);
            }
            let Some(payload) = payload else {
                let message = "is required, unless body_base64 is given";
                self.wrong(format!("{path}payload"), message);
                return None;
            };
            return self.payload(payload, path).map(|bytes| (bytes, None));
        };
        if payload.is_some() {
            let message = "cannot be combined with payload; send one of them";
            self.wrong(format!("{path}body_base64"), message);
        }
        let content_type = match content_type {
            None => Some(DEFAULT_CONTENT_TYPE.to_owned()),
            Some(raw) => self.content_type(raw, path),
        };
        let bytes = self.raw_body(body_base64, path);
        Some((bytes?, Some(content_type?)))
    }

    /// Copies the bytes of a payload. A slice would keep the complete request body in memory.
    pub(super) fn payload(&mut self, raw: &RawValue, path: &str) -> Option<Bytes> {
        let bytes = raw.get().as_bytes();
        if bytes.len() as u64 > self.payload_limit_bytes {
            self.too_large = true;
            return None;
        }
        if depth(bytes) > MAX_PAYLOAD_DEPTH {
            let message = format!("must be nested at most {MAX_PAYLOAD_DEPTH} levels deep");
            self.wrong(format!("{path}payload"), message);
            return None;
        }
        Some(Bytes::copy_from_slice(bytes))
    }

    fn raw_body(&mut self, raw: &RawValue, path: &str) -> Option<Bytes> {
        let text = self.text(raw, path, "body_base64")?;
        match BASE64_STANDARD.decode(text.as_bytes()) {
            Ok(bytes) if bytes.len() as u64 > self.payload_limit_bytes => {
                self.too_large = true;
                None
            }
            Ok(bytes) => Some(Bytes::from(bytes)),
            Err(error) => {
                let message =
                    format!("must be base64 with padding, as in RFC 4648, section 4: {error}");
                self.wrong(format!("{path}body_base64"), message);
                None
            }
        }
    }

    fn content_type(&mut self, raw: &RawValue, path: &str) -> Option<String> {
        let text = self.text(raw, path, "content_type")?;
        let fits = text.len() <= MAX_TEXT_CHARS
            && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
            && text.trim() == text
            && text
                .split_once('/')
                .is_some_and(|(kind, rest)| is_token(kind) && is_token(essence(rest)));
        if !fits {
            let message = format!(
                "must be a media type such as text/csv, of at most {MAX_TEXT_CHARS} characters"
            );
            self.wrong(format!("{path}content_type"), message);
            return None;
        }
        Some(text.into_owned())
    }

    pub(super) fn due(
        &mut self,
        deliver_at: Option<&RawValue>,
        delay: Option<&RawValue>,
        path: &str,
    ) -> Due {
        let deliver_at = deliver_at.filter(|raw| raw.get() != "null");
        let delay = delay.filter(|raw| raw.get() != "null");
        let now = self.now;
        let (name, parsed) = match (deliver_at, delay) {
            (None, None) => return Due::Now,
            (Some(_), Some(_)) => {
                let message = "cannot be combined with deliver_at; send one of them";
                self.wrong(format!("{path}delay"), message);
                return Due::Now;
            }
            (Some(raw), None) => {
                let text = self.text(raw, path, "deliver_at");
                ("deliver_at", text.map(|text| due::parse_time(&text, now)))
            }
            (None, Some(raw)) => {
                let text = self.text(raw, path, "delay");
                ("delay", text.map(|text| due::parse_delay(&text)))
            }
        };
        match parsed {
            Some(Ok(due)) => due,
            Some(Err(message)) => {
                self.wrong(format!("{path}{name}"), message);
                Due::Now
            }
            // The error has been reported.
            None => Due::Now,
        }
    }

    pub(super) fn short_text(
        &mut self,
        raw: Option<&RawValue>,
        path: &str,
        name: &'static str,
    ) -> Option<String> {
        let raw = raw.filter(|raw| raw.get() != "null")?;
        let text = self.text(raw, path, name)?;
        match check_short(&text) {
            Ok(()) => Some(text.into_owned()),
            Err(message) => {
                self.wrong(format!("{path}{name}"), message);
                None
            }
        }
    }

    pub(super) fn text<'a>(
        &mut self,
        raw: &'a RawValue,
        path: &str,
        name: &str,
    ) -> Option<Cow<'a, str>> {
        let json = raw.get();
        let Some(inner) = json.strip_prefix('"').and_then(|it| it.strip_suffix('"')) else {
            let message = format!("must be a string, not {}", shape_of(json));
            self.wrong(format!("{path}{name}"), message);
            return None;
        };
        if !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        match serde_json::from_str(json) {
            Ok(text) => Some(Cow::Owned(text)),
            Err(_) => {
                let message = "must be a string of valid Unicode";
                self.wrong(format!("{path}{name}"), message);
                None
            }
        }
    }
}

impl ParsedEvent {
    /// Creates an event with content only.
    pub(super) fn plain(content: Content) -> ParsedEvent {
        ParsedEvent {
            content,
            idempotency_key: None,
            due: Due::Now,
            ordering_key: None,
        }
    }

    /// Converts it to the event for the store, received at `now` of a clock with this lead.
    pub(super) fn into_event(
        self,
        now: Timestamp,
        lead: Span,
        tenant: TenantId,
        only: Option<EndpointId>,
        trace: Option<TraceContext>,
    ) -> NewEvent {
        let fingerprint = self.fingerprint(&[]);
        self.into_event_with(now, lead, tenant, only, trace, fingerprint)
    }

    /// Converts it to the event for the store, with this fingerprint.
    pub(crate) fn into_event_with(
        self,
        now: Timestamp,
        lead: Span,
        tenant: TenantId,
        only: Option<EndpointId>,
        trace: Option<TraceContext>,
        fingerprint: Option<Fingerprint>,
    ) -> NewEvent {
        let idempotency = fingerprint.zip(self.idempotency_key);
        NewEvent {
            tenant,
            idempotency: idempotency.map(|(fingerprint, key)| Idempotency { key, fingerprint }),
            deliver_at: self.due.at(now, lead),
            ordering: self.ordering_key.as_deref().map(ordering),
            only,
            request: None,
            received: Some(Instant::now()),
            content: Arc::new(Content {
                trace,
                scheduled_run: None,
                ..self.content
            }),
        }
    }

    /// Returns the fingerprint of the content and of these further parts, which identifies a repeated event; `None`
    /// without an idempotency key. It does not include the trace, because a repeated request has another one.
    pub(crate) fn fingerprint(&self, further: &[&[u8]]) -> Option<Fingerprint> {
        self.idempotency_key.as_ref()?;
        let due = self.due.fingerprint();
        let content = &self.content;
        let content_type = content.content_type.as_deref().unwrap_or("");
        let ordering_key = self.ordering_key.as_deref().unwrap_or("");
        let mut parts: Vec<&[u8]> = vec![
            content.event_type.as_str().as_bytes(),
            &content.payload,
            content_type.as_bytes(),
            due.as_bytes(),
            ordering_key.as_bytes(),
        ];
        parts.extend(further);
        Some(Fingerprint::of(&parts))
    }
}

/// Hashes an ordering key to a number that is the same in every process.
pub(crate) fn ordering(key: &str) -> OrderingKey {
    let digest = digest(&SHA256, key.as_bytes());
    let first = digest.as_ref().first_chunk();
    OrderingKey(u64::from_be_bytes(*first.expect("SHA-256 has 32 bytes")))
}

pub(super) fn check_short(text: &str) -> Result<(), String> {
    let fits =
        (1..=MAX_TEXT_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits {
        Ok(())
    } else {
        Err(format!("must be 1 to {MAX_TEXT_CHARS} visible characters"))
    }
}

/// Returns a media type without its parameters.
fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim_end()
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// Returns the nesting depth of a JSON text, which must be valid.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => loop {
                match bytes.next() {
                    Some(b'\\') => {
                        bytes.next();
                    }
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            0..=u8::MAX => {}
        }
    }
    deepest
}

/// Returns the type of a JSON text, by its first character.
fn shape_of(json: &str) -> &'static str {
    match json.trim_ascii_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}
