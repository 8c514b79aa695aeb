//! Logging.
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
use posthaste_core::delivery::Trigger;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceId;
use tracing::Subscriber;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

pub use filter::{LogFilter, LogFilterError};
pub use writer::LogGuard;

use posthaste_system::clock::Clock;

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

/// The log line of an attempt. It deliberately has no field for a URL, a response or an error text, which could contain
/// an address or a secret.
#[derive(Clone, Copy, Debug)]
pub struct AttemptLine<'a> {
    /// The tenant, if known: the endpoint may be deleted already.
    pub tenant: Option<&'a TenantId>,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The event.
    pub event: EventId,
    /// Number of the attempt, over all rounds.
    pub attempt: u32,
    /// Trigger of the attempt.
    pub trigger: Trigger,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// Kind of the failure, if the attempt failed.
    pub error_kind: Option<FailureKind>,
    /// Duration of the attempt, in milliseconds.
    pub latency_ms: u64,
    /// Time of the next attempt, if there is one.
    pub next_attempt_at: Option<Timestamp>,
    /// Trace of the event, if it has one.
    pub trace: Option<TraceId>,
}

/// Logs an attempt.
#[inline]
pub fn log_attempt(line: &AttemptLine<'_>) {
    tracing::info!(
        target: ATTEMPT_TARGET,
        tenant_id = line.tenant.map(TenantId::as_str),
        endpoint_id = %line.endpoint,
        delivery_id = %line.delivery,
        event_id = %line.event,
        attempt = line.attempt,
        trigger = trigger_name(line.trigger),
        status_code = line.status,
        error_kind = line.error_kind.map(FailureKind::name),
        latency_ms = line.latency_ms,
        will_retry = line.next_attempt_at.is_some(),
        next_attempt_at = line.next_attempt_at.map(tracing::field::display),
        trace_id = line.trace.map(tracing::field::display),
        "attempt"
    );
}

/// Returns the name of a trigger in the API.
pub fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Automatic => "automatic",
        Trigger::Manual => "manual",
        Trigger::Probe => "probe",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use posthaste_core::time::{Now, Tick};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn clock() -> Clock {
        Clock::told(|| Now {
            wall: Timestamp(1_700_000_000_123),
            tick: Tick::START,
        })
    }

    /// Returns what is logged while `say` runs.
    fn written(filter: &str, is_json: bool, say: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let filter = filter.parse().expect("a filter");
        let subscriber = subscriber(&filter, is_json, false, clock(), move || writer.clone());
        tracing::subscriber::with_default(subscriber, say);
        let bytes = page.0.lock().expect("unpoisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    fn line(tenant: &TenantId) -> AttemptLine<'_> {
        AttemptLine {
            tenant: Some(tenant),
            endpoint: EndpointId(1),
            delivery: DeliveryId(2),
            event: EventId(3),
            attempt: 4,
            trigger: Trigger::Automatic,
            status: Some(503),
            error_kind: Some(FailureKind::Http),
            latency_ms: 12,
            next_attempt_at: Some(Timestamp(1_700_000_010_000)),
            trace: TraceId::new([0xab; 16]),
        }
    }

    #[test]
    fn an_attempt_is_one_line_in_the_words_of_the_api() {
        let acme = "acme".parse().expect("a name");
        let text = written("info", true, || log_attempt(&line(&acme)));
        assert_eq!(text.lines().count(), 1);
        let said: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            said,
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
                "latency_ms": 12,
                "will_retry": true,
                "next_attempt_at": "2023-11-14T22:13:30.000Z",
                "trace_id": "ab".repeat(16),
            })
        );
    }

    #[test]
    fn what_there_is_not_is_not_said() {
        let acme = "acme".parse().expect("a name");
        let success = AttemptLine {
            tenant: None,
            status: None,
            error_kind: None,
            next_attempt_at: None,
            trace: None,
            ..line(&acme)
        };
        let text = written("info", true, || log_attempt(&success));
        let said: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(said["will_retry"], json!(false));
        for absent in [
            "tenant_id",
            "status_code",
            "error_kind",
            "next_attempt_at",
            "trace_id",
        ] {
            assert_eq!(said.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn people_read_the_same_words() {
        let acme = "acme".parse().expect("a name");
        let text = written("info", false, || log_attempt(&line(&acme)));
        assert!(text.starts_with("2023-11-14T22:13:20.123Z"), "{text}");
        for words in [
            "tenant_id=\"acme\"",
            "error_kind=\"http\"",
            "latency_ms=12",
            "trace_id=abab",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn attempts_can_be_turned_off_alone() {
        let acme: TenantId = "acme".parse().expect("a name");
        let say = || {
            log_attempt(&line(&acme));
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
    fn auto_asks_who_reads() {
        assert!(!LogFormat::Auto.is_json(true) && LogFormat::Auto.is_json(false));
        assert!(!LogFormat::Human.is_json(false) && LogFormat::Json.is_json(true));
        for format in LogFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert_eq!("JSON".parse::<LogFormat>(), Err(UnknownLogFormat));
    }
}
