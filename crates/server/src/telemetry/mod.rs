//! What is told to a collector, over OTLP: a span for every request that brings events, one for every
//! attempt, and every metric.
//!
//! It promises:
//!
//! - **Never in the way.** Whoever tells something puts it in a queue and goes on. The queue is bounded;
//!   what finds it full is dropped and counted, and so is what a collector does not take.
//! - **The producer decides.** What belongs to a trace that its producer records is recorded here, and
//!   nothing of one that it does not. Only where there is none, the operator's `sample` decides.
//! - **One trace.** Every attempt is a child of the accepting, in whichever process it is made, and what
//!   the receiver does is a child of the attempt. Without a collector the producer's own words go on.
//! - **Nothing private.** Names and ids of the API, a status, a kind of failure; never a payload, a
//!   secret, a query or an address.
//!
//! ```text
//!  api ─ accepting ─┐
//!                   ├─▶ queue ─▶ exporter ─▶ otlp (JSON) ─▶ the operator's door ─▶ collector
//!  engine ─ attempt ┘                ▲
//!                       metrics ─────┘ every interval
//! ```

mod exporter;
mod line;
mod otlp;
mod queue;
mod settings;
mod span;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::dice::Dice;
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::{SpanId, TraceContext, TraceFlags, TraceId, TraceState};

pub use exporter::{Exporter, Source};
pub use settings::OtlpSettings;
pub use span::{AcceptSeen, AttemptTold};

use crate::clock::Clock;
use crate::observe::metric::Metric;
use queue::Queue;

/// A ratio is drawn by lot in so many parts.
const PARTS: u32 = 1_000_000;

/// Where spans are told. Clones tell them in the same place; the default one tells nothing.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<Station>>);

/// What a telemetry that tells something is made of.
struct Station {
    settings: OtlpSettings,
    clock: Clock,
    dice: Mutex<Dice>,
    queue: Queue,
    /// When the process began, which is when its counters were zero.
    began: Duration,
    /// Tells this process from others.
    instance: String,
}

/// A request that brings events, under way.
#[derive(Debug, Default)]
pub struct Accepting {
    /// What its events will be stored with.
    pub context: Option<TraceContext>,
    open: Option<OpenSpan>,
}

/// The trace of one attempt.
#[derive(Debug)]
pub struct AttemptTrace {
    /// What the receiver is told.
    pub context: TraceContext,
    open: Option<(OpenSpan, EventType)>,
}

/// A span that has begun.
#[derive(Debug)]
struct OpenSpan {
    trace_id: TraceId,
    span_id: SpanId,
    parent_id: Option<SpanId>,
    flags: TraceFlags,
    state: TraceState,
    began: Duration,
}

impl Telemetry {
    /// Tells nothing: what producers say of their traces goes on as it is.
    pub fn off() -> Telemetry {
        Telemetry::default()
    }

    /// Tells what the settings ask for, once [`Telemetry::export`] has begun.
    pub fn new(settings: OtlpSettings, clock: Clock, mut dice: Dice) -> Telemetry {
        if settings.endpoint.is_none() {
            return Telemetry::off();
        }
        Telemetry(Some(Arc::new(Station {
            settings,
            began: unix_time(&clock),
            clock,
            instance: TraceId::throw(&mut dice).to_string(),
            dice: Mutex::new(dice),
            queue: Queue::default(),
        })))
    }

    /// Begins to send what is told; `source` says what the metrics are at a moment.
    pub fn export(&self, roots: posthaste_egress::Roots, source: Source) -> Option<Exporter> {
        let station = self.0.as_ref()?;
        Some(exporter::start(station.clone(), roots, source))
    }

    /// What became of what was told, for whoever reads the metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let Some(station) = &self.0 else {
            return Vec::new();
        };
        vec![Metric::counters(
            "posthaste_otlp_dropped_total",
            "Spans, and readings of all metrics, that did not reach the collector: it was not there, was too slow or did not want them. Of this node.",
            "signal",
            [
                ("traces", station.queue.spans_dropped()),
                ("metrics", station.queue.readings_dropped()),
            ],
        )]
    }

    /// A request that brings events begins; `given` is what its headers say.
    pub fn accepting(&self, given: Option<TraceContext>) -> Accepting {
        let Some(station) = self.tracing() else {
            return Accepting {
                context: given,
                open: None,
            };
        };
        let (trace_id, flags, state, parent_id) = match given {
            Some(given) if !given.flags.is_sampled() => {
                return Accepting {
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
                let mut dice = station.dice();
                // A trace that nobody records needs no name.
                if !dice.chance(station.settings.sample_parts(), PARTS) {
                    return Accepting::default();
                }
                let trace_id = TraceId::throw(&mut dice);
                let flags = TraceFlags::of_our_own(true);
                (trace_id, flags, TraceState::default(), None)
            }
        };
        let open = OpenSpan {
            trace_id,
            span_id: SpanId::throw(&mut station.dice()),
            parent_id,
            flags,
            state,
            began: unix_time(&station.clock),
        };
        Accepting {
            context: Some(open.context()),
            open: Some(open),
        }
    }

    /// A request that brought events is answered.
    pub fn accepted(&self, accepting: Accepting, seen: &AcceptSeen<'_>) {
        if let (Some(station), Some(open)) = (self.tracing(), accepting.open) {
            let ended = unix_time(&station.clock);
            station.queue.put(span::of_accepting(open, ended, seen));
        }
    }

    /// An attempt begins, of an event that was stored with this.
    pub fn attempting(
        &self,
        stored: Option<&TraceContext>,
        event_type: &EventType,
    ) -> Option<Box<AttemptTrace>> {
        let stored = stored?;
        let Some(station) = self.tracing().filter(|_| stored.flags.is_sampled()) else {
            return Some(Box::new(AttemptTrace {
                context: stored.clone(),
                open: None,
            }));
        };
        let open = OpenSpan {
            trace_id: stored.trace_id,
            span_id: SpanId::throw(&mut station.dice()),
            parent_id: Some(stored.parent_id),
            flags: stored.flags,
            state: stored.state.clone(),
            began: unix_time(&station.clock),
        };
        Some(Box::new(AttemptTrace {
            context: open.context(),
            open: Some((open, event_type.clone())),
        }))
    }

    /// An attempt was made, and is written down.
    pub fn attempted(&self, trace: AttemptTrace, told: &AttemptTold<'_>) {
        if let (Some(station), Some((open, event_type))) = (self.tracing(), trace.open) {
            station.queue.put(span::of_attempt(open, &event_type, told));
        }
    }

    fn tracing(&self) -> Option<&Station> {
        let station = self.0.as_deref();
        station.filter(|station| station.settings.traces)
    }
}

impl Station {
    fn dice(&self) -> std::sync::MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSpan {
    /// What is caused by it is told this.
    fn context(&self) -> TraceContext {
        TraceContext {
            trace_id: self.trace_id,
            parent_id: self.span_id,
            flags: self.flags,
            state: self.state.clone(),
        }
    }
}

/// The wall clock as spans count it: since 1970.
fn unix_time(clock: &Clock) -> Duration {
    clock.since(Timestamp(0))
}

#[cfg(test)]
mod tests;
