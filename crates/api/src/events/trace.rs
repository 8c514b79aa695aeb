//! Traces requests that send events.
//!
//! [`RequestTrace`] is the span of one request. It continues the trace of a `traceparent` header; an invalid header is
//! ignored. The trace context is stored with the events, so that their attempts belong to the same trace.

use axum::body::Body;
use http::{HeaderMap, Response};
use posthaste_core::id::{EventId, TenantId};
use posthaste_core::subscription::EventType;
use posthaste_core::trace::TraceContext;
use posthaste_store::AcceptedOrStored;
use posthaste_telemetry::traces::{AcceptSpan, Telemetry, TracedAccept};

use crate::problem::Problem;
use crate::route::Call;

/// The header with the trace id.
const TRACE_PARENT: &str = "traceparent";
/// The header with vendor-specific trace data.
const TRACE_STATE: &str = "tracestate";

/// The trace of a request that sends events.
pub(crate) struct RequestTrace {
    telemetry: Telemetry,
    accepting: TracedAccept,
    route: &'static str,
    tenant: TenantId,
    events: usize,
    event: Option<(EventId, EventType)>,
}

impl RequestTrace {
    /// Starts the span of a request.
    pub(crate) fn begin(call: &Call) -> RequestTrace {
        let telemetry = call.app.telemetry.clone();
        RequestTrace {
            accepting: telemetry.accepting(given(call.headers())),
            telemetry,
            route: call.route.path,
            tenant: call.tenant().tenant.id.clone(),
            events: 0,
            event: None,
        }
    }

    /// Returns the trace context to store with the events.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.accepting.context.clone()
    }

    /// Records the accepted events.
    pub(crate) fn accepted(&mut self, accepted: &[AcceptedOrStored]) {
        self.events = accepted.len();
        if let [only] = accepted {
            self.event = Some((only.event.id, only.event.event_type.clone()));
        }
    }

    /// Ends the span with the response.
    pub(crate) fn end(
        self,
        answer: Result<Response<Body>, Problem>,
    ) -> Result<Response<Body>, Problem> {
        let (status, problem) = match &answer {
            Ok(response) => (response.status(), None),
            Err(problem) => (problem.status, Some(problem.code.as_str())),
        };
        let event = self.event.as_ref();
        let seen = AcceptSpan {
            route: self.route,
            tenant: &self.tenant,
            events: self.events,
            event: event.map(|(id, event_type)| (*id, event_type)),
            status: status.as_u16(),
            problem,
        };
        self.telemetry.accepted(self.accepting, &seen);
        answer
    }
}

/// Reads the trace context from the headers. An invalid one is ignored.
fn given(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACE_PARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let states = headers.get_all(TRACE_STATE).iter();
    let states: Result<Vec<&str>, _> = states.map(|value| value.to_str()).collect();
    TraceContext::read(parent, states.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(headers: &[(&'static str, &'static [u8])]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).expect("a value");
            map.append(*name, value);
        }
        given(&map).map(|context| context.to_string())
    }

    #[test]
    fn duplicate_traceparent_is_ignored_and_tracestate_is_joined() {
        let parent = PARENT.as_bytes();
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("tracestate", b"a=1")]), None);
        assert_eq!(read(&[("traceparent", parent)]), Some(PARENT.to_owned()));
        assert_eq!(
            read(&[("traceparent", parent), ("traceparent", parent)]),
            None
        );
        assert_eq!(
            read(&[
                ("tracestate", b"a=1"),
                ("traceparent", parent),
                ("tracestate", b"b=2"),
            ]),
            Some(format!("{PARENT} a=1,b=2"))
        );
        // An invalid `tracestate` does not invalidate the `traceparent`.
        assert_eq!(
            read(&[("traceparent", parent), ("tracestate", b"a=\xff")]),
            Some(PARENT.to_owned())
        );
        assert_eq!(read(&[("traceparent", b"\xff")]), None);
    }
}
