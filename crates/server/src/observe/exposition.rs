//! All figures as Prometheus reads them: text format 0.0.4.
//!
//! Every label a metric can have is there from the beginning, at zero, so that a rate over the first
//! failure is not missed.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use posthaste_core::classify::FailureKind;
use posthaste_core::time::Now;

use super::health::Health;
use super::histogram::{BOUNDS, Snapshot};
use super::metric::{Labelled, Metric, Number, Values};
use super::tally::Window;
use super::{Observatory, place_of};

/// What the text is, for the `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The window that ratios are given over; Prometheus keeps their history itself.
const RATIO_WINDOW: Window = Window::Hour;
/// About as long as the text is.
const TYPICAL_BYTES: usize = 8 * 1024;

/// What others know at the moment they are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Deliveries that have not ended.
    pub pending: u64,
    /// Attempts under way.
    pub in_flight: u64,
    /// Endpoints whose breaker lets everything pass, as far as they are in memory.
    pub breakers_passing: u64,
    /// Endpoints whose breaker has tripped.
    pub breakers_tripped: u64,
    /// Endpoints whose breaker is probing.
    pub breakers_probing: u64,
    /// Deliveries that were given up and are still kept.
    pub dead_letters: u64,
    /// Deliveries that have been in retry for longer than a day.
    pub retrying_over_24h: u64,
    /// Shards of all endpoints that this node sends to.
    pub shards: u64,
    /// Nodes that share the store, this one too.
    pub nodes: u64,
}

/// Every metric.
pub(super) fn metrics(seen: &Observatory, now: Now, gauges: &Gauges) -> Vec<Metric> {
    let mut metrics = counters(seen);
    metrics.extend(seen.notices.metrics());
    metrics.push(Metric::histogram(
        "posthaste_attempt_seconds",
        "How long attempts took.",
        seen.attempt.snapshot(),
    ));
    metrics.push(Metric::histogram(
        "posthaste_first_attempt_lag_seconds",
        "From when an event was accepted to the first byte sent.",
        seen.first_attempt_lag.snapshot(),
    ));
    metrics.extend(self::gauges(gauges));
    let moment = seen.moment(now);
    let tally = seen.ledger().all.over(moment, RATIO_WINDOW);
    metrics.extend(ratios(&Health::new(&tally, gauges.retrying_over_24h)));
    metrics
}

/// Writes everything down.
pub fn render(metrics: &[Metric]) -> String {
    let mut page = Page(String::with_capacity(TYPICAL_BYTES));
    for metric in metrics {
        page.metric(metric);
    }
    page.0
}

fn counters(seen: &Observatory) -> Vec<Metric> {
    let success = [("success", seen.successes.load(Relaxed))];
    let failures =
        FailureKind::ALL.map(|kind| (kind.name(), seen.failures[place_of(kind)].load(Relaxed)));
    vec![
        Metric::counter(
            "posthaste_events_accepted_total",
            "Events accepted.",
            seen.events_accepted.load(Relaxed),
        ),
        Metric::counters(
            "posthaste_deliveries_total",
            "Deliveries that ended, by how.",
            "status",
            [
                ("succeeded", seen.succeeded.load(Relaxed)),
                ("failed", seen.failed.load(Relaxed)),
                ("cancelled", seen.cancelled.load(Relaxed)),
            ],
        ),
        Metric::counters(
            "posthaste_attempts_total",
            "Attempts made, by what came of them: success, or what went wrong.",
            "outcome",
            success.into_iter().chain(failures),
        ),
        Metric::counter(
            "posthaste_attempts_not_made_total",
            "Attempts that a fault on this side prevented, such as an egress proxy that is down. They are not counted and are made again; the log says why.",
            seen.not_made.load(Relaxed),
        ),
    ]
}

fn gauges(gauges: &Gauges) -> Vec<Metric> {
    vec![
        Metric::gauge(
            "posthaste_pending_deliveries",
            "Deliveries that have not ended.",
            gauges.pending,
        ),
        Metric::gauge(
            "posthaste_in_flight",
            "Attempts under way.",
            gauges.in_flight,
        ),
        Metric::gauges(
            "posthaste_breakers",
            "Endpoints with work, by the state of their breaker.",
            "state",
            [
                ("passing", gauges.breakers_passing),
                ("tripped", gauges.breakers_tripped),
                ("probing", gauges.breakers_probing),
            ],
        ),
        Metric::gauge(
            "posthaste_dead_letters",
            "Deliveries that were given up and are still kept.",
            gauges.dead_letters,
        ),
        Metric::gauge(
            "posthaste_shards_owned",
            "Of the 256 shards of all endpoints, those that this node sends to.",
            gauges.shards,
        ),
        Metric::gauge(
            "posthaste_nodes",
            "Nodes that share the store, as far as this one knows, itself included.",
            gauges.nodes,
        ),
    ]
}

fn ratios(health: &Health) -> [Metric; 5] {
    [
        (
            "posthaste_retry_ratio",
            "Attempts of the last hour that were not the first.",
            health.retry_ratio,
        ),
        (
            "posthaste_dead_letter_ratio",
            "Deliveries given up, of those that succeeded or were given up in the last hour.",
            health.dead_letter_ratio,
        ),
        (
            "posthaste_attempts_per_success",
            "Attempts made in the last hour for each delivery that succeeded.",
            health.attempts_per_success,
        ),
        (
            "posthaste_second_attempt_success_ratio",
            "Second attempts of the last hour that succeeded.",
            health.second_attempt_success_ratio,
        ),
        (
            "posthaste_retrying_over_24h",
            "Deliveries that have been in retry for longer than a day.",
            health.retrying_over_24h,
        ),
    ]
    .map(|(name, help, figure)| Metric::gauge(name, help, figure.value))
}

struct Page(String);

impl Page {
    fn metric(&mut self, metric: &Metric) {
        let Metric { name, help, values } = metric;
        let kind = match values {
            Values::Counter(_) => "counter",
            Values::Gauge(_) => "gauge",
            Values::Histogram(_) => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        match values {
            Values::Counter(values) | Values::Gauge(values) => {
                for one in values {
                    let labels = labels(&one.labels, None);
                    match one.value {
                        Number::Whole(value) => self.line(format_args!("{name}{labels} {value}")),
                        Number::Fraction(value) => {
                            self.line(format_args!("{name}{labels} {value}"));
                        }
                    }
                }
            }
            Values::Histogram(values) => {
                for one in values {
                    self.histogram(name, one);
                }
            }
        }
    }

    fn histogram(&mut self, name: &str, one: &Labelled<Snapshot>) {
        let Labelled { labels: own, value } = one;
        for ((_, bound), count) in BOUNDS.iter().zip(value.at_most) {
            let labels = labels(own, Some(bound));
            self.line(format_args!("{name}_bucket{labels} {count}"));
        }
        let (labels, most) = (labels(own, None), labels(own, Some("+Inf")));
        self.line(format_args!("{name}_bucket{most} {}", value.count));
        self.line(format_args!("{name}_sum{labels} {}", value.sum_seconds));
        self.line(format_args!("{name}_count{labels} {}", value.count));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}

/// Labels as they are written, and the upper end of a bucket if it is one.
fn labels(own: &[(&'static str, Cow<'static, str>)], at_most: Option<&str>) -> String {
    let own = own.iter().map(|(label, of)| (*label, of.as_ref()));
    let all = own.chain(at_most.map(|bound| ("le", bound)));
    let written: Vec<String> = all
        .map(|(label, of)| format!("{label}=\"{}\"", escaped(of)))
        .collect();
    match written.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", written.join(",")),
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(text.replace('\n', "\\n"))
}
