//! All metrics in the Prometheus text format 0.0.4.
//!
//! Every value of a label is present from the start, at zero, so that a rate does not miss the first failure.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use posthaste_core::alert::AlertName;
use posthaste_core::classify::FailureKind;
use posthaste_core::lane::HeldBackBy;

use super::endpoint_counters::Outcomes;
use super::gauges::Gauges;
use super::health::HealthRatios;
use super::histogram::{BOUNDS, HistogramSnapshot};
use super::metric::{Labelled, Metric, Number, Values};
use super::{Metrics, index_of};

/// `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Label of the endpoints that are counted together. No endpoint has this id.
const OTHERS: &str = "other";
/// Typical length of the text, in bytes.
const TYPICAL_BYTES: usize = 8 * 1024;

/// Returns every metric.
pub(super) fn metrics(metrics: &Metrics, gauges: &Gauges) -> Vec<Metric> {
    let mut all = vec![Metric::gauges(
        "posthaste_build_info",
        "The version of this node; the value is always 1.",
        "version",
        [(env!("CARGO_PKG_VERSION"), 1)],
    )];
    all.extend(counters(metrics));
    all.extend(metrics.authentications.metrics());
    all.extend(metrics.notifications.metrics());
    all.extend(metrics.requests.metrics());
    all.extend(histograms(metrics));
    all.push(Metric::gauge(
        "posthaste_held_after_faults",
        "Deliveries that this node holds after ten consecutive internal errors, or whose rows it cannot read; see the log.",
        metrics.held_after_faults.load(Relaxed),
    ));
    all.extend(of_this_node(gauges));
    all.extend(of_the_store(gauges));
    if let Some(hour) = &gauges.hour {
        all.extend(ratios(&HealthRatios::new(hour, 0)));
    }
    all.extend(by_endpoint(metrics, gauges));
    all
}

/// Renders the metrics as text.
pub fn render(metrics: &[Metric]) -> String {
    let mut text = TextWriter(String::with_capacity(TYPICAL_BYTES));
    for metric in metrics {
        text.metric(metric);
    }
    text.0
}

fn counters(metrics: &Metrics) -> Vec<Metric> {
    let success = [("success", metrics.successes.load(Relaxed))];
    let failures =
        FailureKind::ALL.map(|kind| (kind.name(), metrics.failures[index_of(kind)].load(Relaxed)));
    vec![
        Metric::counter(
            "posthaste_events_accepted_total",
            "Events that this node accepted.",
            metrics.events_accepted.load(Relaxed),
        ),
        Metric::counters(
            "posthaste_deliveries_total",
            "Deliveries that this node finished, by final status. Operational events are counted only if they were cancelled.",
            "status",
            [
                ("succeeded", metrics.succeeded.load(Relaxed)),
                ("failed", metrics.failed.load(Relaxed)),
                ("cancelled", metrics.cancelled.load(Relaxed)),
            ],
        ),
        Metric::counters(
            "posthaste_attempts_total",
            "Attempts of this node by outcome: success or the kind of failure. Without operational events.",
            "outcome",
            success.into_iter().chain(failures),
        ),
        Metric::counter(
            "posthaste_attempts_not_made_total",
            "Attempts prevented by a fault on this node, such as an egress proxy that is down. They do not count against the retry policy and are repeated; see the log.",
            metrics.attempts_prevented.load(Relaxed),
        ),
    ]
}

fn histograms(metrics: &Metrics) -> [Metric; 3] {
    [
        Metric::histogram(
            "posthaste_attempt_seconds",
            "Duration of this node's attempts. Without operational events.",
            metrics.attempt_seconds.snapshot(),
        ),
        Metric::histogram(
            "posthaste_first_attempt_lag_seconds",
            "Time from the acceptance of an event to the first byte sent by this node. Without operational events.",
            metrics.first_attempt_lag.snapshot(),
        ),
        Metric::histogram(
            "posthaste_store_commit_seconds",
            "Time until the store confirmed a write of events or results of this node, including time in the queue.",
            metrics.commit.snapshot(),
        ),
    ]
}

fn of_this_node(gauges: &Gauges) -> Vec<Metric> {
    let mut metrics = vec![
        Metric::gauge(
            "posthaste_in_flight",
            "Attempts in flight on this node.",
            gauges.in_flight,
        ),
        Metric::gauge(
            "posthaste_shards_owned",
            "Shards (of 256) that this node owns.",
            gauges.shards,
        ),
        Metric::gauge(
            "posthaste_nodes",
            "Nodes that share the store, as known to this node, including itself.",
            gauges.nodes,
        ),
    ];
    if let Some(offset_ms) = gauges.clock_offset_ms {
        metrics.push(Metric::gauge(
            "posthaste_clock_offset_seconds",
            "Seconds by which the clock of this node's machine is ahead of the database's; negative if it is behind.",
            offset_ms as f64 / 1_000.0,
        ));
    }
    if let Some(breakers) = gauges.breakers {
        metrics.push(Metric::gauges(
            "posthaste_breakers",
            "Endpoints with work on this node, by the state of their breaker.",
            "state",
            [
                ("passing", breakers.passing as u64),
                ("tripped", breakers.tripped as u64),
                ("probing", breakers.probing as u64),
            ],
        ));
    }
    if let Some(held_back) = &gauges.held_back {
        let count = |by: HeldBackBy| {
            let of_reason = held_back.iter().filter(|(reason, _)| *reason == by);
            of_reason.map(|(_, count)| *count as u64).sum::<u64>()
        };
        metrics.push(Metric::gauges(
            "posthaste_held_back",
            "Endpoints of this node whose waiting deliveries are held back, by reason.",
            "reason",
            HeldBackBy::ALL.map(|by| (by.name(), count(by))),
        ));
    }
    if let Some(free) = gauges.store_free_ratio {
        metrics.push(Metric::gauge(
            "posthaste_store_free_ratio",
            "Free share of the disk that holds this node's store. Absent if the store is a database server.",
            free,
        ));
    }
    if let Some(process) = gauges.process {
        metrics.push(Metric::gauge(
            "process_resident_memory_bytes",
            "Resident memory of this node.",
            process.memory_bytes,
        ));
        metrics.push(Metric::gauge(
            "process_open_fds",
            "Open file descriptors of this node.",
            process.open_files,
        ));
    }
    metrics
}

fn of_the_store(gauges: &Gauges) -> Vec<Metric> {
    let mut metrics = Vec::new();
    if let Some(counts) = &gauges.counts {
        metrics.push(Metric::gauge(
            "posthaste_pending_deliveries",
            "Unfinished deliveries in the store; the same on every node.",
            counts.pending,
        ));
        metrics.push(Metric::gauge(
            "posthaste_dead_letters",
            "Failed deliveries in the store; the same on every node.",
            counts.dead_letters,
        ));
    }
    if let Some(alerts) = &gauges.alerts {
        let open = |name: AlertName| alerts.get(&name).copied().unwrap_or_default();
        metrics.push(Metric::gauges(
            "posthaste_alerts",
            "Active alerts by name; the same on every node.",
            "name",
            AlertName::ALL.map(|name| (name.name(), open(name))),
        ));
    }
    if let Some(age) = gauges.queue_age {
        metrics.push(Metric::gauge(
            "posthaste_queue_age_seconds",
            "Age of the oldest due delivery to an enabled endpoint whose breaker is not tripped; the same on every node.",
            age.as_millis() as f64 / 1_000.0,
        ));
    }
    if let Some(retrying) = gauges.retrying_over_24h {
        metrics.push(Metric::gauge(
            "posthaste_retrying_over_24h",
            "Deliveries that have been retrying for more than 24 hours, without operational events; the same on every node.",
            retrying,
        ));
    }
    metrics
}

fn ratios(health: &HealthRatios) -> [Metric; 4] {
    [
        (
            "posthaste_retry_ratio",
            "Share of deliveries with a first attempt in the last hour that needed a retry, without operational events; the same on every node.",
            health.retry_ratio,
        ),
        (
            "posthaste_dead_letter_ratio",
            "Share of deliveries finished in the last hour that were dead-lettered, without operational events; the same on every node.",
            health.dead_letter_ratio,
        ),
        (
            "posthaste_attempts_per_success",
            "Attempts per successful delivery in the last hour, without operational events; the same on every node.",
            health.attempts_per_success,
        ),
        (
            "posthaste_second_attempt_success_ratio",
            "Share of second attempts in the last hour that succeeded, without operational events; the same on every node.",
            health.second_attempt_success_ratio,
        ),
    ]
    .map(|(name, help, reading)| Metric::gauge(name, help, reading.value))
}

/// Returns the metrics of single endpoints, if the operator has enabled them and the caller may see them.
fn by_endpoint(metrics: &Metrics, gauges: &Gauges) -> Vec<Metric> {
    let counted = metrics.endpoints().by_endpoint.snapshot();
    let Some((counted, others)) = counted.filter(|_| gauges.shows_endpoints) else {
        return Vec::new();
    };
    let counted = counted.into_iter().map(|(endpoint, counted)| {
        let labels = (counted.tenant.to_string(), endpoint.to_string());
        (labels, counted.outcomes)
    });
    let others = ((String::new(), OTHERS.to_owned()), others);
    let mut attempts = Vec::new();
    for (
        (tenant, endpoint),
        Outcomes {
            successes,
            failures,
        },
    ) in counted.chain([others])
    {
        for (outcome, count) in [("success", successes), ("failure", failures)] {
            attempts.push(Labelled {
                labels: vec![
                    ("tenant", tenant.clone().into()),
                    ("endpoint", endpoint.clone().into()),
                    ("outcome", outcome.into()),
                ],
                value: count.into(),
            });
        }
    }
    let pending = gauges.endpoints.iter().map(|it| Labelled {
        labels: vec![
            ("tenant", it.tenant.to_string().into()),
            ("endpoint", it.endpoint.to_string().into()),
        ],
        value: it.pending.into(),
    });
    vec![
        Metric {
            name: "posthaste_endpoint_attempts_total",
            help: "Attempts of this node by endpoint and outcome. Endpoints beyond metrics.endpoints are counted together as \"other\".",
            values: Values::Counter(attempts),
        },
        Metric {
            name: "posthaste_endpoint_pending",
            help: "Deliveries in the store that wait for an endpoint, for the endpoints whose attempts this node counts.",
            values: Values::Gauge(pending.collect()),
        },
    ]
}

struct TextWriter(String);

impl TextWriter {
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

    fn histogram(&mut self, name: &str, one: &Labelled<HistogramSnapshot>) {
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
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}

/// Formats labels, and the upper bound if it is a histogram bucket.
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
