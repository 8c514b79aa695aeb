//! Tests of the metrics: names, values, help texts and the health report.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::alert::AlertName;
use posthaste_core::dispatcher::BreakerCounts;
use posthaste_core::time::{Span, Tick};
use posthaste_store::{Counts, StatCounters};

mod held_back;
mod operational_tenant;

use super::metric::{Labelled, Values};
use super::process_usage::Process;
use super::*;

/// 2026-11-15T12:00:00Z.
const NOON: Timestamp = Timestamp(1_794_744_000_000);

/// Returns the time `tick_ms` after noon, when the monotonic clock started.
fn at(tick_ms: u64) -> Now {
    Now {
        wall: Timestamp(NOON.0 + tick_ms),
        tick: Tick(tick_ms),
    }
}

fn tenant(name: &str) -> TenantId {
    name.parse().expect("a valid name")
}

fn success(tenant: &TenantId) -> AttemptEvent {
    AttemptEvent {
        tenant: tenant.clone(),
        endpoint: EndpointId(7),
        round_number: Some(1),
        failure: None,
        detail: None,
        status_code: Some(200),
        first_attempt_lag: Some(Duration::from_micros(1_900)),
        ended: Some(Status::Succeeded),
        ..AttemptEvent::example()
    }
}

fn retry(tenant: &TenantId, round_number: u32, ended: Option<Status>) -> AttemptEvent {
    AttemptEvent {
        round_number: Some(round_number),
        failure: match ended {
            Some(Status::Succeeded) => None,
            _ => Some(FailureKind::Timeout),
        },
        status_code: None,
        first_attempt_lag: None,
        ended,
        ..success(tenant)
    }
}

/// Returns the value of a metric, or of one of its labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .expect("a number")
}

#[test]
fn the_documented_metrics_are_rendered() {
    let text = Metrics::new().render(&everything_known());
    let named: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let promised = BTreeSet::from([
        "posthaste_events_accepted_total",
        "posthaste_deliveries_total",
        "posthaste_attempts_total",
        "posthaste_attempts_not_made_total",
        "posthaste_held_after_faults",
        "posthaste_attempt_seconds",
        "posthaste_failed_authentications_total",
        "posthaste_first_attempt_lag_seconds",
        "posthaste_pending_deliveries",
        "posthaste_in_flight",
        "posthaste_breakers",
        "posthaste_held_back",
        "posthaste_dead_letters",
        "posthaste_shards_owned",
        "posthaste_nodes",
        "posthaste_retry_ratio",
        "posthaste_dead_letter_ratio",
        "posthaste_attempts_per_success",
        "posthaste_second_attempt_success_ratio",
        "posthaste_retrying_over_24h",
        "posthaste_alerts",
        "posthaste_notices_waiting",
        "posthaste_notices_told_total",
        "posthaste_notices_lost_total",
        "posthaste_letters_total",
        "posthaste_accept_seconds",
        "posthaste_body_bytes_reserved",
        "posthaste_budget_refusals_total",
        "posthaste_clock_offset_seconds",
        "posthaste_connections_refused_total",
        "posthaste_open_connections",
        "posthaste_build_info",
        "posthaste_queue_age_seconds",
        "posthaste_store_commit_seconds",
        "posthaste_store_free_ratio",
        "process_open_fds",
        "process_resident_memory_bytes",
    ]);
    assert_eq!(named, promised);
}

/// Returns gauges with all values present.
fn everything_known() -> Gauges {
    Gauges {
        counts: Some(Counts::default()),
        clock_offset_ms: Some(-1_500),
        breakers: Some(BreakerCounts::default()),
        held_back: Some(Vec::new()),
        alerts: Some(BTreeMap::new()),
        retrying_over_24h: Some(0),
        hour: Some(StatCounters::default()),
        queue_age: Some(Span::ZERO),
        store_free_ratio: Some(0.5),
        process: Some(Process {
            memory_bytes: 1 << 30,
            open_files: 12,
        }),
        ..Gauges::default()
    }
}

#[test]
fn every_help_text_names_its_scope() {
    let gauges = Gauges {
        shows_endpoints: true,
        ..everything_known()
    };
    let metrics = Metrics::new().with_endpoint_counters(1).metrics(&gauges);
    for metric in metrics {
        let help = metric.help;
        let names_scope = help.contains("node") || help.contains("this one");
        assert!(names_scope, "{}: {help}", metric.name);
    }
}

/// A zero would look healthy, so an unknown value is left out.
#[test]
fn unknown_values_are_left_out() {
    let text = Metrics::new().render(&Gauges::default());
    for name in [
        "posthaste_retry_ratio",
        "posthaste_dead_letter_ratio",
        "posthaste_retrying_over_24h",
        "posthaste_queue_age_seconds",
        "posthaste_store_free_ratio",
        "posthaste_pending_deliveries",
        "posthaste_dead_letters",
        "posthaste_breakers",
        "posthaste_alerts",
    ] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn endpoints_have_metrics_if_enabled_and_allowed() {
    let acme = tenant("acme");
    let attempts = |metrics: &Metrics| {
        for endpoint in [7, 7, 8, 9] {
            let attempt = AttemptEvent {
                endpoint: EndpointId(endpoint),
                failure: (endpoint == 9).then_some(FailureKind::Tls),
                ..success(&acme)
            };
            metrics.attempt(at(0), &attempt);
        }
    };
    let gauges = Gauges {
        shows_endpoints: true,
        endpoints: vec![EndpointPending {
            tenant: acme.clone(),
            endpoint: EndpointId(7),
            pending: 3,
        }],
        ..Gauges::default()
    };
    let unwanted = Metrics::new();
    attempts(&unwanted);
    assert!(!unwanted.render(&gauges).contains("posthaste_endpoint"));
    let wanted = Metrics::new().with_endpoint_counters(2);
    attempts(&wanted);
    assert!(
        !wanted
            .render(&Gauges::default())
            .contains("posthaste_endpoint")
    );
    let text = wanted.render(&gauges);
    let one = EndpointId(7);
    let of = |endpoint: &str, tenant: &str, outcome: &str| {
        let labels = format!("tenant=\"{tenant}\",endpoint=\"{endpoint}\",outcome=\"{outcome}\"");
        let name = format!("posthaste_endpoint_attempts_total{{{labels}}}");
        value(&text, &name)
    };
    assert_eq!(of(&one.to_string(), "acme", "success"), 2.0);
    assert_eq!(of(&one.to_string(), "acme", "failure"), 0.0);
    assert_eq!(of(&EndpointId(8).to_string(), "acme", "success"), 1.0);
    assert_eq!(of("other", "", "failure"), 1.0);
    let pending = format!("posthaste_endpoint_pending{{tenant=\"acme\",endpoint=\"{one}\"}}");
    assert_eq!(value(&text, &pending), 3.0);
}

/// The format requires: HELP and TYPE once before each family, samples of a family together, one per line, valid
/// characters in names and labels, and cumulative buckets that end at `+Inf` with the count.
#[test]
fn the_text_follows_the_format() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    metrics.attempt(at(0), &success(&acme));
    metrics.attempt(at(0), &retry(&acme, 2, None));
    let text = metrics.render(&everything_known());
    assert!(text.ends_with('\n'));
    let mut families = BTreeSet::new();
    let mut family = "";
    let mut last_bucket = 0.0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().expect("a valid name");
            assert!(families.insert(family), "{family} comes twice");
            last_bucket = 0.0;
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split(' ').next(), Some(family));
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a name and a value");
        let value: f64 = value.parse().expect("a number");
        let name = series.split('{').next().expect("a valid name");
        let suffix = name.strip_prefix(family).expect("its family");
        assert!(
            matches!(suffix, "" | "_bucket" | "_sum" | "_count"),
            "{line}"
        );
        if suffix == "_bucket" {
            assert!(value >= last_bucket, "{line}");
            last_bucket = value;
        }
        if suffix == "_count" {
            assert_eq!(value, last_bucket, "{line}");
        }
    }
}

#[test]
fn everything_is_counted_once() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    metrics.accepted(3);
    metrics.attempt_prevented();
    metrics.held_after_faults(2);
    metrics.attempt(at(0), &success(&acme));
    metrics.attempt(at(0), &retry(&acme, 1, None));
    metrics.attempt(at(0), &retry(&acme, 2, Some(Status::Succeeded)));
    metrics.attempt(at(0), &retry(&acme, 9, Some(Status::Failed)));
    metrics.cancelled();
    metrics.cancelled();
    metrics.dead_lettered(&acme, 1);
    metrics.committed(Duration::from_millis(3));
    let hour = StatCounters {
        attempts: 4,
        retries: 2,
        retried_deliveries: 1,
        second_attempts: 1,
        second_successes: 1,
        succeeded: 2,
        success_attempts: 3,
        failed: 2,
        ..StatCounters::default()
    };
    let gauges = Gauges {
        counts: Some(Counts {
            pending: 11,
            dead_letters: 6,
        }),
        in_flight: 2,
        breakers: Some(BreakerCounts {
            passing: 3,
            tripped: 4,
            probing: 5,
        }),
        retrying_over_24h: Some(7),
        shards: 8,
        nodes: 9,
        hour: Some(hour),
        queue_age: Some(Span::from_millis(1_500)),
        store_free_ratio: Some(0.25),
        alerts: Some([(AlertName::QueueAge, 2)].into()),
        ..everything_known()
    };
    let text = metrics.render(&gauges);
    for (name, expected) in [
        ("posthaste_events_accepted_total", 3.0),
        ("posthaste_deliveries_total{status=\"succeeded\"}", 2.0),
        ("posthaste_deliveries_total{status=\"failed\"}", 2.0),
        ("posthaste_deliveries_total{status=\"cancelled\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"success\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"timeout\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"http\"}", 0.0),
        ("posthaste_attempts_not_made_total", 1.0),
        ("posthaste_held_after_faults", 2.0),
        ("posthaste_attempt_seconds_count", 4.0),
        ("posthaste_attempt_seconds_sum", 0.048),
        ("posthaste_first_attempt_lag_seconds_count", 1.0),
        ("posthaste_pending_deliveries", 11.0),
        ("posthaste_in_flight", 2.0),
        ("posthaste_breakers{state=\"passing\"}", 3.0),
        ("posthaste_breakers{state=\"tripped\"}", 4.0),
        ("posthaste_breakers{state=\"probing\"}", 5.0),
        ("posthaste_dead_letters", 6.0),
        ("posthaste_shards_owned", 8.0),
        ("posthaste_nodes", 9.0),
        ("posthaste_retry_ratio", 0.5),
        ("posthaste_dead_letter_ratio", 0.5),
        ("posthaste_attempts_per_success", 1.5),
        ("posthaste_second_attempt_success_ratio", 1.0),
        ("posthaste_retrying_over_24h", 7.0),
        ("posthaste_store_commit_seconds_count", 1.0),
        ("posthaste_store_commit_seconds_sum", 0.003),
        ("posthaste_queue_age_seconds", 1.5),
        ("posthaste_store_free_ratio", 0.25),
        ("posthaste_alerts{name=\"queue_age\"}", 2.0),
        ("posthaste_alerts{name=\"store_slow\"}", 0.0),
        ("process_open_fds", 12.0),
    ] {
        assert_eq!(value(&text, name), expected, "{name}");
    }
}

#[test]
fn every_failure_kind_has_its_own_index() {
    let places: BTreeSet<usize> = FailureKind::ALL.map(index_of).into();
    assert_eq!(places.len(), FailureKind::ALL.len());
    assert_eq!(places.last(), Some(&(FailureKind::ALL.len() - 1)));
}

#[test]
fn endpoint_stats_cover_recent_attempts() {
    let metrics = Metrics::new();
    let acme = tenant("acme");
    metrics.attempt(at(0), &success(&acme));
    metrics.attempt(at(0), &retry(&acme, 2, None));
    let stats = metrics.endpoint_stats(EndpointId(7));
    assert_eq!(stats.success_ratio, 0.5);
    assert_eq!(stats.p50_ms, Some(12.0));
    assert_eq!(metrics.endpoint_stats(EndpointId(8)).success_ratio, 1.0);
}

#[test]
fn the_health_report_has_the_documented_fields() {
    let report = HealthReport::new(|_| StatCounters::default(), 0);
    let json = serde_json::to_value(&report).expect("JSON");
    for window in ["5m", "1h", "24h"] {
        let health = &json["windows"][window];
        assert_eq!(
            health["retry_ratio"],
            serde_json::json!({"value": 0.0, "healthy": "< 0.05", "alert": "> 0.10", "state": "healthy"})
        );
        assert_eq!(health.as_object().expect("an object").len(), 5);
    }
}

#[test]
fn failing_endpoints_are_sorted_by_success_ratio() {
    let metrics = Metrics::new();
    let (acme, other) = (tenant("acme"), tenant("other"));
    let attempts = |tenant: &TenantId, endpoint: u128, failures: u32, successes: u32| {
        for number in 0..failures + successes {
            let failure = (number >= successes).then_some(FailureKind::Http);
            let attempt = AttemptEvent {
                endpoint: EndpointId(endpoint),
                failure,
                status_code: Some(503),
                ..success(tenant)
            };
            metrics.attempt(at(5), &attempt);
        }
    };
    attempts(&acme, 1, 0, 50);
    attempts(&acme, 2, 10, 10);
    attempts(&acme, 3, 10, 2);
    attempts(&other, 4, 5, 0);
    let failing = |tenant: Option<&TenantId>, limit| {
        let failing = metrics.failing_endpoints(at(9).wall, tenant, limit);
        let ids: Vec<u128> = failing.iter().map(|(endpoint, _)| endpoint.0).collect();
        ids
    };
    assert_eq!(failing(None, 9), [4, 3, 2]);
    assert_eq!(failing(None, 2), [4, 3]);
    assert_eq!(failing(Some(&acme), 9), [3, 2]);
    assert_eq!(failing(Some(&other), 9), [4]);
    let recent = metrics.recent_attempts(&[EndpointId(3), EndpointId(9), EndpointId(1)]);
    assert_eq!(recent.len(), 2);
    let (endpoint, recent) = recent[0];
    assert_eq!((endpoint.0, recent.failures_in_a_row), (3, 10));
    let failure = LastFailure {
        at: at(5).wall,
        kind: FailureKind::Http,
        status_code: Some(503),
    };
    assert_eq!(recent.last_failure, Some(failure));
}

#[test]
fn label_values_are_escaped() {
    let histogram = Histogram::new();
    histogram.observe(Duration::from_micros(100));
    let metrics = [
        Metric::gauges("a", "A.", "of", [("x\"y\\z\n", 0.5)]),
        Metric {
            name: "b",
            help: "B.",
            values: Values::Histogram(vec![Labelled::with("of", "x", histogram.snapshot())]),
        },
    ];
    let text = exposition::render(&metrics);
    assert!(text.contains("a{of=\"x\\\"y\\\\z\\n\"} 0.5\n"), "{text}");
    for line in [
        "b_bucket{of=\"x\",le=\"0.0001\"} 1\n",
        "b_bucket{of=\"x\",le=\"+Inf\"} 1\n",
        "b_sum{of=\"x\"} 0.0001\n",
        "b_count{of=\"x\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
