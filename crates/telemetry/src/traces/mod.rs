//! Exports spans and metrics to an OpenTelemetry collector, over OTLP: one span for every request that brings events,
//! one for every attempt, and all metrics.
//!
//! [`Telemetry`] creates the spans, [`Exporter`] sends them. The module guarantees:
//!
//! - **No blocking.** Spans are put into a bounded queue. Spans that do not fit, and those that the collector does not
//!   accept, are dropped and counted.
//! - **The producer decides.** If an event comes with a trace, its sampling decision is followed. Only events without a
//!   trace are sampled by the operator's `sample` setting.
//! - **One trace.** Every attempt is a child span of the accepting request, even if another process makes it. The
//!   receiver's spans are children of the attempt. Without a collector the producer's trace headers are passed on
//!   unchanged.
//! - **No private data.** Spans contain names and ids of the API, a status and a failure kind, but no payload, secret,
//!   query or address.
//!
//! ```text
//!  api ─ accepting ─┐
//!                   ├─▶ queue ─▶ exporter ─▶ otlp (JSON) ─▶ trusted client ─▶ collector
//!  engine ─ attempt ┘                ▲
//!                       metrics ─────┘ every interval
//! ```

mod collector_client;
mod exporter;
mod otlp;
mod queue;
mod settings;
mod span;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::rng::Rng;
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::{SpanId, TraceContext, TraceFlags, TraceId, TraceState};

pub use exporter::{Exporter, MetricsSource};
pub use settings::OtlpSettings;
pub use span::AcceptSpan;

use crate::AttemptEvent;
use crate::metrics::metric::Metric;
use posthaste_system::clock::Clock;
use queue::Queue;
use settings::SAMPLE_PARTS;
use span::OpenSpan;

/// Creates spans. Clones put them into the same queue; the default instance creates none.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<TelemetryState>>);

/// State of an enabled [`Telemetry`].
struct TelemetryState {
    settings: OtlpSettings,
    clock: Clock,
    rng: Mutex<Rng>,
    queue: Queue,
    /// Start of the process, when its counters were zero.
    began: Duration,
    /// Random id that distinguishes this process from others.
    instance: String,
}

/// A request in progress that brings events.
#[derive(Debug, Default)]
pub struct TracedAccept {
    /// Trace context to store with its events.
    pub context: Option<TraceContext>,
    open: Option<OpenSpan>,
}

/// Trace context of one attempt.
#[derive(Debug)]
pub struct AttemptTrace {
    /// Trace context to send to the receiver.
    pub context: TraceContext,
    open: Option<(OpenSpan, EventType)>,
}

impl Telemetry {
    /// Creates no spans: the producer's trace context is passed on unchanged.
    pub fn off() -> Telemetry {
        Telemetry::default()
    }

    /// Creates spans as the settings ask. They are sent once [`Telemetry::export`] is called.
    pub fn new(settings: OtlpSettings, clock: Clock, mut rng: Rng) -> Telemetry {
        if settings.endpoint.is_none() {
            return Telemetry::off();
        }
        Telemetry(Some(Arc::new(TelemetryState {
            settings,
            began: unix_time(&clock),
            clock,
            instance: TraceId::random(&mut rng).to_string(),
            rng: Mutex::new(rng),
            queue: Queue::default(),
        })))
    }

    /// Starts to send spans and metrics; `source` returns the current metrics.
    pub fn export(
        &self,
        roots: posthaste_egress::Roots,
        source: MetricsSource,
    ) -> Option<Exporter> {
        let state = self.0.as_ref()?;
        Some(exporter::start(state.clone(), roots, source))
    }

    /// Returns the number of dropped spans and readings, as a metric.
    pub fn metrics(&self) -> Vec<Metric> {
        let Some(state) = &self.0 else {
            return Vec::new();
        };
        vec![Metric::counters(
            "posthaste_otlp_dropped_total",
            "Spans and metric readings of this node that did not reach the collector: it was unreachable, too slow or rejected them.",
            "signal",
            [
                ("traces", state.queue.spans_dropped()),
                ("metrics", state.queue.readings_dropped()),
            ],
        )]
    }

    /// Starts the span of a request that brings events; `given` is the trace context from its headers.
    pub fn accepting(&self, given: Option<TraceContext>) -> TracedAccept {
        let Some(state) = self.tracing() else {
            return TracedAccept {
                context: given,
                open: None,
            };
        };
        let (trace_id, flags, trace_state, parent_id) = match given {
            Some(given) if !given.flags.is_sampled() => {
                return TracedAccept {
                    context: Some(given),
                    open: None,
                };
            }
            Some(given) => (
                given.trace_id,
                given.flags,
                given.state,
                Some(given.parent_id),
            ),
            None => {
                let mut rng = state.rng();
                // A trace that is not recorded needs no id.
                if !rng.random_ratio(state.settings.sample_parts(), SAMPLE_PARTS) {
                    return TracedAccept::default();
                }
                let trace_id = TraceId::random(&mut rng);
                let flags = TraceFlags::local(true);
                (trace_id, flags, TraceState::default(), None)
            }
        };
        let open = OpenSpan {
            trace_id,
            span_id: SpanId::random(&mut state.rng()),
            parent_id,
            flags,
            state: trace_state,
            began: unix_time(&state.clock),
        };
        TracedAccept {
            context: Some(open.context()),
            open: Some(open),
        }
    }

    /// Ends the span of a request that brought events.
    pub fn accepted(&self, accepting: TracedAccept, request: &AcceptSpan<'_>) {
        if let (Some(state), Some(open)) = (self.tracing(), accepting.open) {
            let ended = unix_time(&state.clock);
            state.queue.put(span::of_accepting(open, ended, request));
        }
    }

    /// Starts the span of an attempt; `stored` is the trace context that was stored with the event.
    pub fn attempting(
        &self,
        stored: Option<&TraceContext>,
        event_type: &EventType,
    ) -> Option<Box<AttemptTrace>> {
        let stored = stored?;
        let Some(state) = self.tracing().filter(|_| stored.flags.is_sampled()) else {
            return Some(Box::new(AttemptTrace {
                context: stored.clone(),
                open: None,
            }));
        };
        let open = OpenSpan {
            trace_id: stored.trace_id,
            span_id: SpanId::random(&mut state.rng()),
            parent_id: Some(stored.parent_id),
            flags: stored.flags,
            state: stored.state.clone(),
            began: unix_time(&state.clock),
        };
        Some(Box::new(AttemptTrace {
            context: open.context(),
            open: Some((open, event_type.clone())),
        }))
    }

    /// Ends the span of an attempt that was made and recorded.
    pub fn attempted(&self, trace: AttemptTrace, attempt: &AttemptEvent) {
        if let (Some(state), Some((open, event_type))) = (self.tracing(), trace.open) {
            state
                .queue
                .put(span::of_attempt(open, &event_type, attempt));
        }
    }

    fn tracing(&self) -> Option<&TelemetryState> {
        let state = self.0.as_deref();
        state.filter(|state| state.settings.traces)
    }
}

impl TelemetryState {
    fn rng(&self) -> std::sync::MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the wall-clock time since 1970.
fn unix_time(clock: &Clock) -> Duration {
    clock.since(Timestamp(0))
}

#[cfg(test)]
mod tests;
