//! Reads and shows what each run of a schedule creates: an event or a one-off request.
//!
//! The fields are those of events and of one-off requests, and the same code reads them. Fields that would make all
//! occurrences the same event (`idempotency_key`) or send it at another time (`deliver_at`, `delay`) are refused.

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_core::delivery::OneOffRequest;
use posthaste_core::schedule::{
    EventTarget, HEADERS_SEALED_FOR, RequestTarget, ScheduleTarget, TargetBody,
};
use posthaste_store::Tenant;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::App;
use crate::code::Code;
use crate::events::{EventParser, ParsedEvent};
use crate::problem::Problem;
use crate::requests::{NoKeys, keys_of, read_http};
use crate::resources::{Headers, ScheduledEvent, ScheduledRequest};

/// A target that was read, with the headers of a request, which are not encrypted yet.
pub(super) struct ReadTarget {
    pub(super) target: ScheduleTarget,
    pub(super) headers: Map<String, Value>,
}

/// Reads `event` and `request`, of which at most one may be given. Returns the code of a refused URL.
pub(super) fn read_target(
    app: &App,
    tenant: &Tenant,
    reader: &mut EventParser,
    event: Option<&RawValue>,
    request: Option<&RawValue>,
) -> Result<(Option<ReadTarget>, Option<Code>), Problem> {
    let given = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
    if given(event) && given(request) {
        reader.wrong("request", "cannot be combined with event; send one of them");
    }
    let mut target = None;
    let mut refused = None;
    if let Some(raw) = event.filter(|raw| raw.get() != "null") {
        target = read_event(reader, raw)?;
    }
    if let Some(raw) = request.filter(|raw| raw.get() != "null") {
        let read = read_request(app, tenant, reader, raw)?;
        target = read.0;
        refused = read.1;
    }
    Ok((target, refused))
}

fn read_event(reader: &mut EventParser, raw: &RawValue) -> Result<Option<ReadTarget>, Problem> {
    let Some(event) = reader.event(raw.get(), "event.")? else {
        return Ok(None);
    };
    refuse_key_and_time(reader, &event, "event.");
    let (event_type, body, ordering_key) = event.into_target();
    Ok(Some(ReadTarget {
        target: ScheduleTarget::Event(EventTarget {
            event_type,
            body,
            ordering_key,
        }),
        headers: Map::new(),
    }))
}

fn read_request(
    app: &App,
    tenant: &Tenant,
    reader: &mut EventParser,
    raw: &RawValue,
) -> Result<(Option<ReadTarget>, Option<Code>), Problem> {
    let Some(mut draft) = reader.request(raw.get(), "request.")? else {
        return Ok((None, None));
    };
    let http = read_http(app, tenant, reader, &mut draft, "request.");
    refuse_key_and_time(reader, &draft.draft, "request.");
    let Some(destination) = http.destination else {
        return Ok((None, http.refused));
    };
    let (_, body, ordering_key) = draft.draft.into_target();
    let request = OneOffRequest {
        method: draft.method,
        url: destination.as_str().to_owned(),
        timeout: http.timeout,
        retry_policy: http.retry_policy,
        sealed_headers: Vec::new(),
    };
    let target = ScheduleTarget::Request(RequestTarget {
        request,
        body,
        ordering_key,
    });
    let headers = http.headers;
    Ok((Some(ReadTarget { target, headers }), None))
}

fn refuse_key_and_time(reader: &mut EventParser, event: &ParsedEvent, path: &str) {
    if event.has_idempotency_key() {
        let message = "is not allowed in a schedule: each occurrence creates exactly one event";
        reader.wrong(format!("{path}idempotency_key"), message);
    }
    if let Some(field) = event.due_field() {
        let message = "is not allowed in a schedule: deliver_at and delay are for single events";
        reader.wrong(format!("{path}{field}"), message);
    }
}

/// Encrypts the headers of a target.
pub(super) async fn seal(
    app: &App,
    tenant: &Tenant,
    read: ReadTarget,
) -> Result<ScheduleTarget, Problem> {
    let ReadTarget {
        mut target,
        headers,
    } = read;
    match &mut target {
        ScheduleTarget::Request(it) if !headers.is_empty() => {
            let keys = keys_of(app, tenant).await?;
            it.request.sealed_headers = keys.seal_headers(&tenant.id, HEADERS_SEALED_FOR, &headers);
        }
        ScheduleTarget::Request(_) | ScheduleTarget::Event(_) => {}
    }
    Ok(target)
}

/// Describes the event of a schedule.
pub(super) fn show_event(target: &EventTarget) -> ScheduledEvent {
    let (payload, body_base64, content_type) = show_body(&target.body);
    ScheduledEvent {
        r#type: target.event_type.clone(),
        payload,
        body_base64,
        content_type,
        ordering_key: target.ordering_key.clone(),
    }
}

/// Describes the request of a schedule, with its headers decrypted. If they cannot be decrypted, they are left out, and the
/// error is returned.
pub(super) async fn show_request(
    app: &App,
    tenant: &Tenant,
    target: &RequestTarget,
) -> Result<(ScheduledRequest, Option<UnreadableHeaders>), Problem> {
    let request = &target.request;
    let (headers, unreadable) = match open_headers(app, tenant, &request.sealed_headers).await {
        Ok(headers) => (headers, None),
        Err(NoHeaders::Unreadable(error)) => (Map::new(), Some(error)),
        Err(NoHeaders::Problem(problem)) => return Err(problem),
    };
    let has_body = !target.body.bytes.is_empty() || target.body.content_type.is_some();
    let (payload, body_base64, content_type) = match has_body {
        true => show_body(&target.body),
        false => (None, None, None),
    };
    let headers = headers.into_iter().map(|(name, value)| {
        let text = value.as_str().unwrap_or_default().to_owned();
        (name, text)
    });
    let shown = ScheduledRequest {
        url: request.url.clone(),
        method: request.method.to_string(),
        headers: Headers(headers.collect()),
        payload,
        body_base64,
        content_type,
        retry_policy: request.retry_policy.clone(),
        timeout: request.timeout.map(|timeout| timeout.to_string()),
        ordering_key: target.ordering_key.clone(),
    };
    Ok((shown, unreadable))
}

/// Headers that cannot be decrypted.
pub(super) struct UnreadableHeaders {
    /// The text for the tenant.
    pub(super) shown: &'static str,
    /// The cause, for the log.
    pub(super) cause: String,
}

/// Error of headers that are damaged, or whose keys are.
const DAMAGED_HEADERS: &str =
    "the headers of the request cannot be decrypted; set the request again";
/// Error of headers that other nodes can decrypt.
const OTHER_MASTER_KEY: &str = "the headers of the request cannot be decrypted on this node, because it does not have the \
     master key of the other nodes; the operator must set POSTHASTE_MASTER_KEY as on the other nodes and restart this node";

/// The reason why the headers of a request are not shown.
enum NoHeaders {
    /// They cannot be decrypted.
    Unreadable(UnreadableHeaders),
    /// The keys of the tenant cannot be read now.
    Problem(Problem),
}

async fn open_headers(
    app: &App,
    tenant: &Tenant,
    sealed: &[u8],
) -> Result<Map<String, Value>, NoHeaders> {
    if sealed.is_empty() {
        return Ok(Map::new());
    }
    let unreadable = |shown, cause: &dyn std::fmt::Display| {
        let cause = cause.to_string();
        NoHeaders::Unreadable(UnreadableHeaders { shown, cause })
    };
    let keys = keys_of(app, tenant).await.map_err(|error| match error {
        NoKeys::OtherMasterKey(error) => unreadable(OTHER_MASTER_KEY, &error),
        NoKeys::Damaged(error) => unreadable(DAMAGED_HEADERS, &error),
        NoKeys::Problem(problem) => NoHeaders::Problem(problem),
    })?;
    let opened = keys.open_headers(&tenant.id, HEADERS_SEALED_FOR, sealed);
    opened.map_err(|error| unreadable(DAMAGED_HEADERS, &error))
}

type ShownBody = (Option<Box<RawValue>>, Option<String>, Option<String>);

fn show_body(body: &TargetBody) -> ShownBody {
    let payload = match body.content_type {
        None => serde_json::from_slice(&body.bytes).ok(),
        Some(_) => None,
    };
    let body_base64 = payload
        .is_none()
        .then(|| BASE64_STANDARD.encode(&body.bytes));
    (payload, body_base64, body.content_type.clone())
}
