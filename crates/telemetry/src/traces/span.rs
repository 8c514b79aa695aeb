//! Spans: their names and attributes.
//!
//! [`AcceptSpan`] and [`AttemptEvent`] become a [`Span`] with the same attribute names as in the
//! API. No attribute contains a URL, a payload or a secret.

use std::time::Duration;

use posthaste_core::id::{EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::trace::{SpanId, TraceContext, TraceFlags, TraceId, TraceState};

use crate::AttemptEvent;

/// A span that has started.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpenSpan {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) flags: TraceFlags,
    pub(super) state: TraceState,
    /// Time since 1970.
    pub(super) began: Duration,
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) start: OpenSpan,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    /// Time since 1970.
    pub(super) ended: Duration,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) failed: bool,
}

/// Kind of a span: the side of the call it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Handles a request.
    Server,
    /// Makes a request.
    Client,
}

/// Value of a span attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attribute {
    Text(String),
    Whole(i64),
}

/// A request that brought events, as its span describes it.
#[derive(Clone, Copy, Debug)]
pub struct AcceptSpan<'a> {
    /// Path template of the route.
    pub route: &'static str,
    /// The tenant.
    pub tenant: &'a TenantId,
    /// Number of accepted events.
    pub events: usize,
    /// The event, if the request brought exactly one.
    pub event: Option<(EventId, &'a EventType)>,
    /// HTTP status of the response.
    pub status: u16,
    /// Code of the error, if the response was one.
    pub problem: Option<&'static str>,
}

/// Builds the span of a request that brought events.
pub(super) fn of_accepting(open: OpenSpan, ended: Duration, request: &AcceptSpan<'_>) -> Span {
    let mut attributes = vec![
        ("http.request.method", text("POST")),
        ("http.route", text(request.route)),
        ("http.response.status_code", whole(request.status)),
        ("posthaste.tenant_id", text(request.tenant)),
        (
            "posthaste.event_count",
            Attribute::Whole(request.events as i64),
        ),
    ];
    if let Some((event, event_type)) = request.event {
        attributes.push(("posthaste.event_id", text(event)));
        attributes.push(("posthaste.event_type", text(event_type)));
    }
    attributes.extend(request.problem.map(|code| ("error.type", text(code))));
    let name = format!("POST {}", request.route);
    // A 4xx status is the caller's error. Only a 5xx status marks this span as failed.
    open.end(
        name,
        SpanKind::Server,
        ended,
        attributes,
        request.status >= 500,
    )
}

/// Builds the span of an attempt.
pub(super) fn of_attempt(open: OpenSpan, event_type: &EventType, attempt: &AttemptEvent) -> Span {
    let mut attributes = vec![
        ("http.request.method", text("POST")),
        ("posthaste.tenant_id", text(&attempt.tenant)),
        ("posthaste.endpoint_id", text(attempt.endpoint)),
        ("posthaste.delivery_id", text(attempt.delivery)),
        ("posthaste.event_id", text(attempt.event)),
        ("posthaste.event_type", text(event_type)),
        ("posthaste.attempt", Attribute::Whole(attempt.number.into())),
        ("posthaste.trigger", text(attempt.trigger_name())),
    ];
    attributes.extend(
        attempt
            .status_code
            .map(|code| ("http.response.status_code", whole(code))),
    );
    attributes.extend(
        attempt
            .failure
            .map(|kind| ("error.type", text(kind.name()))),
    );
    let name = format!("deliver {event_type}");
    let ended = open.began.saturating_add(attempt.latency);
    open.end(
        name,
        SpanKind::Client,
        ended,
        attributes,
        attempt.failure.is_some(),
    )
}

impl OpenSpan {
    /// Returns the trace context for child spans.
    pub(super) fn context(&self) -> TraceContext {
        TraceContext {
            trace_id: self.trace_id,
            parent_id: self.span_id,
            flags: self.flags,
            state: self.state.clone(),
        }
    }

    fn end(
        self,
        name: String,
        kind: SpanKind,
        ended: Duration,
        attributes: Vec<(&'static str, Attribute)>,
        failed: bool,
    ) -> Span {
        Span {
            name,
            kind,
            // The clock may have been set back meanwhile.
            ended: ended.max(self.began),
            start: self,
            attributes,
            failed,
        }
    }
}

fn text(of: impl ToString) -> Attribute {
    Attribute::Text(of.to_string())
}

fn whole(of: u16) -> Attribute {
    Attribute::Whole(of.into())
}
