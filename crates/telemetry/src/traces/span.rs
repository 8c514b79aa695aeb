//! Spans: their names and attributes. Attributes use the names of the API.

use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::trace::{SpanId, TraceFlags, TraceId, TraceState};

use super::OpenSpan;

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) flags: TraceFlags,
    pub(super) state: TraceState,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Time since 1970.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) failed: bool,
}

/// Kind of a span: the side of the call it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

/// An attempt, as its span describes it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTold<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The event.
    pub event: EventId,
    /// Number of the attempt, over all rounds.
    pub attempt: u32,
    /// Trigger of the attempt.
    pub trigger: &'static str,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// Kind of the failure, if the attempt failed.
    pub failure: Option<FailureKind>,
    /// Duration of the attempt.
    pub latency: Duration,
}

/// Builds the span of a request that brought events.
pub(super) fn of_accepting(open: OpenSpan, ended: Duration, seen: &AcceptSpan<'_>) -> Span {
    let mut said = vec![
        ("http.request.method", text("POST")),
        ("http.route", text(seen.route)),
        ("http.response.status_code", whole(seen.status)),
        ("posthaste.tenant_id", text(seen.tenant)),
        (
            "posthaste.event_count",
            Attribute::Whole(seen.events as i64),
        ),
    ];
    if let Some((event, event_type)) = seen.event {
        said.push(("posthaste.event_id", text(event)));
        said.push(("posthaste.event_type", text(event_type)));
    }
    said.extend(seen.problem.map(|code| ("error.type", text(code))));
    let name = format!("POST {}", seen.route);
    // A 4xx status is the caller's error. Only a 5xx status marks this span as failed.
    open.end(name, Kind::Server, ended, said, seen.status >= 500)
}

/// Builds the span of an attempt.
pub(super) fn of_attempt(open: OpenSpan, event_type: &EventType, told: &AttemptTold<'_>) -> Span {
    let mut said = vec![
        ("http.request.method", text("POST")),
        ("posthaste.tenant_id", text(told.tenant)),
        ("posthaste.endpoint_id", text(told.endpoint)),
        ("posthaste.delivery_id", text(told.delivery)),
        ("posthaste.event_id", text(told.event)),
        ("posthaste.event_type", text(event_type)),
        ("posthaste.attempt", Attribute::Whole(told.attempt.into())),
        ("posthaste.trigger", text(told.trigger)),
    ];
    said.extend(
        told.status
            .map(|code| ("http.response.status_code", whole(code))),
    );
    said.extend(told.failure.map(|kind| ("error.type", text(kind.name()))));
    let name = format!("deliver {event_type}");
    let ended = open.began.saturating_add(told.latency);
    open.end(name, Kind::Client, ended, said, told.failure.is_some())
}

impl OpenSpan {
    fn end(
        self,
        name: String,
        kind: Kind,
        ended: Duration,
        attributes: Vec<(&'static str, Attribute)>,
        failed: bool,
    ) -> Span {
        Span {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: self.parent_id,
            flags: self.flags,
            state: self.state,
            name,
            kind,
            began: self.began,
            // The clock may have been set back meanwhile.
            ended: ended.max(self.began),
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
