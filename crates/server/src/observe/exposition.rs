//! All figures as Prometheus reads them: text format 0.0.4.
//!
//! Every label a metric can have is there from the beginning, at zero, so that a rate over the first
//! failure is not missed.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;

use posthaste_core::classify::FailureKind;
use posthaste_core::time::Now;

use super::health::Health;
use super::histogram::{BOUNDS, Histogram};
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

/// Writes everything down.
pub(super) fn render(seen: &Observatory, now: Now, gauges: &Gauges) -> String {
    let mut page = Page(String::with_capacity(TYPICAL_BYTES));
    counters(&mut page, seen);
    page.histogram(
        "posthaste_attempt_seconds",
        "How long attempts took.",
        &seen.attempt,
    );
    page.histogram(
        "posthaste_first_attempt_lag_seconds",
        "From when an event was accepted to the first byte sent.",
        &seen.first_attempt_lag,
    );
    self::gauges(&mut page, gauges);
    let moment = seen.moment(now);
    let tally = seen.ledger().all.over(moment, RATIO_WINDOW);
    ratios(&mut page, &Health::new(&tally, gauges.retrying_over_24h));
    page.0
}

fn counters(page: &mut Page, seen: &Observatory) {
    page.plain(
        "posthaste_events_accepted_total",
        "Events accepted.",
        "counter",
        seen.events_accepted.load(Relaxed),
    );
    page.labelled(
        "posthaste_deliveries_total",
        "Deliveries that ended, by how.",
        "counter",
        "status",
        [
            ("succeeded", seen.succeeded.load(Relaxed)),
            ("failed", seen.failed.load(Relaxed)),
            ("cancelled", seen.cancelled.load(Relaxed)),
        ],
    );
    let success = [("success", seen.successes.load(Relaxed))];
    let failures =
        FailureKind::ALL.map(|kind| (kind.name(), seen.failures[place_of(kind)].load(Relaxed)));
    page.labelled(
        "posthaste_attempts_total",
        "Attempts made, by what came of them: success, or what went wrong.",
        "counter",
        "outcome",
        success.into_iter().chain(failures),
    );
    page.plain(
        "posthaste_attempts_not_made_total",
        "Attempts that a fault on this side prevented, such as an egress proxy that is down. They are not counted and are made again; the log says why.",
        "counter",
        seen.not_made.load(Relaxed),
    );
}

fn gauges(page: &mut Page, gauges: &Gauges) {
    page.plain(
        "posthaste_pending_deliveries",
        "Deliveries that have not ended.",
        "gauge",
        gauges.pending,
    );
    page.plain(
        "posthaste_in_flight",
        "Attempts under way.",
        "gauge",
        gauges.in_flight,
    );
    page.labelled(
        "posthaste_breakers",
        "Endpoints with work, by the state of their breaker.",
        "gauge",
        "state",
        [
            ("passing", gauges.breakers_passing),
            ("tripped", gauges.breakers_tripped),
            ("probing", gauges.breakers_probing),
        ],
    );
    page.plain(
        "posthaste_dead_letters",
        "Deliveries that were given up and are still kept.",
        "gauge",
        gauges.dead_letters,
    );
    page.plain(
        "posthaste_shards_owned",
        "Of the 256 shards of all endpoints, those that this node sends to.",
        "gauge",
        gauges.shards,
    );
    page.plain(
        "posthaste_nodes",
        "Nodes that share the store, as far as this one knows, itself included.",
        "gauge",
        gauges.nodes,
    );
}

fn ratios(page: &mut Page, health: &Health) {
    for (name, help, figure) in [
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
    ] {
        page.plain(name, help, "gauge", figure.value);
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn plain(&mut self, name: &str, help: &str, kind: &str, value: impl Display) {
        self.head(name, help, kind);
        self.line(format_args!("{name} {value}"));
    }

    fn labelled(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.head(name, help, kind);
        for (of, value) in values {
            self.line(format_args!("{name}{{{label}=\"{of}\"}} {value}"));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let seen = histogram.snapshot();
        self.head(name, help, "histogram");
        for ((_, bound), count) in BOUNDS.iter().zip(seen.at_most) {
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {}", seen.count));
        self.line(format_args!("{name}_sum {}", seen.sum_seconds));
        self.line(format_args!("{name}_count {}", seen.count));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}
