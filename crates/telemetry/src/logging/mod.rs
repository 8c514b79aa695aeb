//! Log lines of the program.
//!
//! Log lines go to standard error, as text or as JSON. There is one line for each attempt, with the names of the API.
//! [`start`] begins to log. The module guarantees:
//!
//! - No log line contains a secret, a payload or an address.
//! - Logging never blocks. A separate thread writes the lines. If it cannot keep up (a stopped terminal, a pipe without
//!   a reader), lines are dropped and counted, so that sending is not delayed.
//! - A line that is filtered out costs next to nothing.

mod filter;
mod writer;

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;

use posthaste_core::classify::FailureKind;
use tracing::Subscriber;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

pub use filter::{LogFilter, LogFilterError};
pub use writer::LogGuard;

use posthaste_system::clock::Clock;

use crate::AttemptEvent;

/// Log target of the lines about attempts, by which they can be turned off.
pub const ATTEMPT_TARGET: &str = "posthaste::attempt";

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text.
    Human,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Every format.
    pub const ALL: [LogFormat; 3] = [LogFormat::Auto, LogFormat::Human, LogFormat::Json];

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Auto => "auto",
            LogFormat::Human => "human",
            LogFormat::Json => "json",
        }
    }

    /// Returns true if lines are JSON; `is_terminal` is true if standard error is a terminal.
    fn is_json(self, is_terminal: bool) -> bool {
        match self {
            LogFormat::Auto => !is_terminal,
            LogFormat::Human => false,
            LogFormat::Json => true,
        }
    }
}

/// Error for an unknown format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"auto\", \"human\" or \"json\"")]
pub struct UnknownLogFormat;

impl FromStr for LogFormat {
    type Err = UnknownLogFormat;

    fn from_str(text: &str) -> Result<LogFormat, UnknownLogFormat> {
        let mut formats = LogFormat::ALL.into_iter();
        let format = formats.find(|format| format.name() == text);
        format.ok_or(UnknownLogFormat)
    }
}

/// Settings of logging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Format of log lines.
    pub format: LogFormat,
    /// Filter of log lines.
    pub filter: LogFilter,
}

/// Starts to log to standard error. Keep the returned value: dropping it writes the last lines.
pub fn start(settings: &LogSettings, clock: Clock) -> LogGuard {
    let is_terminal = io::stderr().is_terminal();
    let is_json = settings.format.is_json(is_terminal);
    let (logs, writer) = writer::start(io::stderr(), is_json);
    let subscriber = subscriber(
        &settings.filter,
        is_json,
        is_terminal && !is_json,
        clock,
        writer,
    );
    // The first subscriber stays: a second server in the same process uses it too.
    let _ = tracing::subscriber::set_global_default(subscriber);
    logs
}

fn subscriber<W>(
    filter: &LogFilter,
    is_json: bool,
    has_colours: bool,
    clock: Clock,
    writer: W,
) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = lines::layer()
        .with_writer(writer)
        .with_timer(WallClock(clock))
        .with_ansi(has_colours);
    let layer = if is_json {
        layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed()
    } else {
        layer.boxed()
    };
    Registry::default().with(layer.with_filter(filter.targets()))
}

/// Formats times as the API does.
struct WallClock(Clock);

impl FormatTime for WallClock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", self.0.wall())
    }
}

/// Logs an attempt.
#[inline]
pub fn log_attempt(attempt: &AttemptEvent) {
    tracing::info!(
        target: ATTEMPT_TARGET,
        tenant_id = attempt.tenant.as_str(),
        endpoint_id = %attempt.endpoint,
        delivery_id = %attempt.delivery,
        event_id = %attempt.event,
        attempt = attempt.number,
        trigger = attempt.trigger_name(),
        status_code = attempt.status_code,
        error_kind = attempt.failure.map(FailureKind::name),
        detail = attempt.detail.as_deref(),
        latency_ms = u64::try_from(attempt.latency.as_millis()).unwrap_or(u64::MAX),
        will_retry = attempt.next_attempt_at.is_some(),
        next_attempt_at = attempt.next_attempt_at.map(tracing::field::display),
        trace_id = attempt.trace_id.map(tracing::field::display),
        "attempt"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use posthaste_core::id::{DeliveryId, EndpointId, EventId};
    use posthaste_core::time::{Now, Tick, Timestamp};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .expect("no test thread panicked")
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn clock() -> Clock {
        Clock::from_fn(|| Now {
            wall: Timestamp(1_700_000_000_123),
            tick: Tick::START,
        })
    }

    /// Returns what is logged while `say` runs.
    fn written(filter: &str, is_json: bool, say: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let filter = filter.parse().expect("a valid filter");
        let subscriber = subscriber(&filter, is_json, false, clock(), move || writer.clone());
        tracing::subscriber::with_default(subscriber, say);
        let bytes = buffer.0.lock().expect("no test thread panicked").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn an_attempt_is_one_line_with_the_names_of_the_api() {
        let text = written("info", true, || log_attempt(&AttemptEvent::example()));
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            line,
            json!({
                "timestamp": "2023-11-14T22:13:20.123Z",
                "level": "INFO",
                "target": "posthaste::attempt",
                "message": "attempt",
                "tenant_id": "acme",
                "endpoint_id": EndpointId(1).to_string(),
                "delivery_id": DeliveryId(2).to_string(),
                "event_id": EventId(3).to_string(),
                "attempt": 4,
                "trigger": "automatic",
                "status_code": 503,
                "error_kind": "http",
                "detail": "the receiver responded with 503 Service Unavailable",
                "latency_ms": 12,
                "will_retry": true,
                "next_attempt_at": "2023-11-14T22:13:30.000Z",
                "trace_id": "ab".repeat(16),
            })
        );
    }

    #[test]
    fn absent_values_are_left_out() {
        let attempt = AttemptEvent {
            status_code: None,
            failure: None,
            detail: None,
            next_attempt_at: None,
            trace_id: None,
            ..AttemptEvent::example()
        };
        let text = written("info", true, || log_attempt(&attempt));
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["will_retry"], json!(false));
        let absent = [
            "status_code",
            "error_kind",
            "detail",
            "next_attempt_at",
            "trace_id",
        ];
        for absent in absent {
            assert_eq!(line.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn text_lines_have_the_same_names() {
        let text = written("info", false, || log_attempt(&AttemptEvent::example()));
        assert!(text.starts_with("2023-11-14T22:13:20.123Z"), "{text}");
        for part in [
            "tenant_id=\"acme\"",
            "error_kind=\"http\"",
            "latency_ms=12",
            "trace_id=abab",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn attempts_can_be_filtered_out_alone() {
        let say = || {
            log_attempt(&AttemptEvent::example());
            tracing::info!("hello");
            tracing::debug!("whisper");
        };
        let quiet = written("info,posthaste::attempt=off", false, say);
        assert!(
            quiet.contains("hello") && !quiet.contains("latency_ms"),
            "{quiet}"
        );
        assert!(!quiet.contains("whisper"), "{quiet}");
        assert_eq!(written("warn", false, say), "");
    }

    #[test]
    fn auto_format_depends_on_the_terminal() {
        assert!(!LogFormat::Auto.is_json(true) && LogFormat::Auto.is_json(false));
        assert!(!LogFormat::Human.is_json(false) && LogFormat::Json.is_json(true));
        for format in LogFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert_eq!("JSON".parse::<LogFormat>(), Err(UnknownLogFormat));
    }
}
