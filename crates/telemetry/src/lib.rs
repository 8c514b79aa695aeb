//! Metrics, traces and logs.
//!
//! - [`metrics`] counts attempts, deliveries and requests, writes them in the text format of Prometheus, and sums the
//!   stats of the store over time windows.
//! - [`traces`] exports a span per accepted event and per attempt to an OpenTelemetry collector.
//! - [`logging`] sets up the log: its filter, its format, and a writer that never blocks the program.
//! - [`queue_age`] caches the age of the oldest delivery that could be sent.
//!
//! [`AttemptEvent`] describes one recorded attempt to log, metrics and traces.

pub mod logging;
pub mod metrics;
pub mod queue_age;
pub mod traces;

mod attempt_event;

pub use attempt_event::AttemptEvent;
