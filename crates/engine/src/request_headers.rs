//! Headers of the request of an attempt: webhook headers, signatures and trace headers.
//!
//! Headers of posthaste replace custom headers with the same name. Only `traceparent` and `tracestate` of the tenant
//! take precedence.

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use posthaste_core::dispatcher::Attempt;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceContext;
use posthaste_store::Content;

use super::endpoint_cache::RequestConfig;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const EVENT_ID: HeaderName = HeaderName::from_static("posthaste-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("posthaste-event-type");
const EVENT_TIME: HeaderName = HeaderName::from_static("posthaste-event-time");
const ATTEMPT: HeaderName = HeaderName::from_static("posthaste-attempt");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Builds the headers of an attempt that is sent now, without credentials that must be fetched first. An empty payload
/// without a content type, which only a one-off request can have, gets no `Content-Type`.
pub(super) fn headers(
    now: Timestamp,
    attempt: &Attempt,
    config: &RequestConfig,
    custom_headers: HeaderMap,
    accepted_at: Timestamp,
    content: &Content,
) -> Result<HeaderMap, String> {
    let seconds = now.0 / 1_000;
    let id = attempt.delivery.to_string();
    let keys = config.keyring.active(now);
    let signature = keys.header(&id, seconds, &content.payload);
    let mut headers = custom_headers;
    let content_type = match &content.content_type {
        Some(content_type) => Some(text(content_type)?),
        None if content.payload.is_empty() => None,
        None => Some(JSON),
    };
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers.insert(USER_AGENT, crate::AGENT);
    headers.insert(WEBHOOK_ID, text(&id)?);
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
    headers.insert(WEBHOOK_SIGNATURE, text(&signature)?);
    match config.style {
        SignatureStyle::Standard => {}
        style @ (SignatureStyle::GitHub | SignatureStyle::Stripe) => {
            let signed = keys.sign(style, &id, seconds, &content.payload);
            let signed = signed.map_err(|error| error.to_string())?;
            let name = HeaderName::from_static(signed.name);
            headers.insert(name, text(&signed.value)?);
        }
    }
    headers.insert(EVENT_ID, text(&attempt.event.to_string())?);
    headers.insert(EVENT_TYPE, text(content.event_type.as_str())?);
    headers.insert(EVENT_TIME, text(&accepted_at.to_string())?);
    headers.insert(ATTEMPT, HeaderValue::from(attempt.number));
    Ok(headers)
}

/// Adds the trace headers, unless the endpoint's custom headers set one of them: the tenant's setting takes precedence.
/// `traceparent` and `tracestate` belong together, so either one suppresses both.
pub(super) fn add_trace_headers(
    headers: &mut HeaderMap,
    context: &TraceContext,
) -> Result<(), String> {
    if headers.contains_key(TRACE_PARENT) || headers.contains_key(TRACE_STATE) {
        return Ok(());
    }
    headers.insert(TRACE_PARENT, text(&context.traceparent())?);
    if !context.state.is_empty() {
        headers.insert(TRACE_STATE, text(context.state.as_str())?);
    }
    Ok(())
}

fn text(value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value).map_err(|error| error.to_string())
}
