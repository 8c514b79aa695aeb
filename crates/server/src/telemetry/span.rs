//! Spans: what they are called, and what is said with them. The words are those of the API.

use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::trace::{SpanId, TraceFlags, TraceId, TraceState};

use super::OpenSpan;

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) flags: TraceFlags,
    pub(super) state: TraceState,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Since 1970.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) failed: bool,
}

/// On which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It answers.
    Server,
    /// It calls.
    Client,
}

/// What is said with a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attribute {
    Text(String),
    Whole(i64),
}

/// A request that brought events, as far as it is told.
#[derive(Clone, Copy, Debug)]
pub struct AcceptSeen<'a> {
    /// The route's path, with names in braces.
    pub route: &'static str,
    /// Whose events.
    pub tenant: &'a TenantId,
    /// How many were accepted.
    pub events: usize,
    /// The event, if there is one alone.
    pub event: Option<(EventId, &'a EventType)>,
    /// What was answered.
    pub status: u16,
    /// The problem's code, if it was a problem.
    pub problem: Option<&'static str>,
}

/// An attempt that was made, as far as it is told.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTold<'a> {
    /// Whose it was.
    pub tenant: &'a TenantId,
    /// Where it went.
    pub endpoint: EndpointId,
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Which event.
    pub event: EventId,
    /// Which attempt it was, over all rounds.
    pub attempt: u32,
    /// Who asked for it.
    pub trigger: &'static str,
    /// The status of the answer, if one came.
    pub status: Option<u16>,
    /// What went wrong, if anything did.
    pub failure: Option<FailureKind>,
    /// How long it took.
    pub latency: Duration,
}

/// The span of a request that brought events.
pub(super) fn of_accepting(open: OpenSpan, ended: Duration, seen: &AcceptSeen<'_>) -> Span {
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
    // Whoever was refused made the mistake; only what is ours is an error of this span.
    open.end(name, Kind::Server, ended, said, seen.status >= 500)
}

/// The span of an attempt.
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
            // Somebody may have set the clock back meanwhile.
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
