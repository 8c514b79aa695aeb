use std::collections::BTreeSet;

use super::health::Condition;
use super::metric::{Labelled, Values};
use super::*;

/// 2026-11-15T12:00:00Z.
const NOON: Timestamp = Timestamp(1_794_744_000_000);

/// So long after noon, where the steady clock began.
fn at(tick_ms: u64) -> Now {
    Now {
        wall: Timestamp(NOON.0 + tick_ms),
        tick: Tick(tick_ms),
    }
}

fn tenant(name: &str) -> TenantId {
    name.parse().expect("a name")
}

fn seen(tenant: &TenantId) -> AttemptSeen<'_> {
    AttemptSeen {
        tenant,
        endpoint: EndpointId(7),
        round_number: 1,
        failure: None,
        status_code: Some(200),
        latency: Duration::from_millis(12),
        first_attempt_lag: Some(Duration::from_micros(1_900)),
        ended: Some(Status::Succeeded),
    }
}

fn retry(tenant: &TenantId, round_number: u32, ended: Option<Status>) -> AttemptSeen<'_> {
    AttemptSeen {
        round_number,
        failure: match ended {
            Some(Status::Succeeded) => None,
            _ => Some(FailureKind::Timeout),
        },
        status_code: None,
        first_attempt_lag: None,
        ended,
        ..seen(tenant)
    }
}

/// The value of a metric, or of one of its labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .expect("a number")
}

#[test]
fn prometheus_finds_exactly_the_promised_metrics() {
    let text = Observatory::new().render(at(0), &Gauges::default());
    let named: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let promised = BTreeSet::from([
        "posthaste_events_accepted_total",
        "posthaste_deliveries_total",
        "posthaste_attempts_total",
        "posthaste_attempts_not_made_total",
        "posthaste_attempt_seconds",
        "posthaste_first_attempt_lag_seconds",
        "posthaste_pending_deliveries",
        "posthaste_in_flight",
        "posthaste_breakers",
        "posthaste_dead_letters",
        "posthaste_shards_owned",
        "posthaste_nodes",
        "posthaste_retry_ratio",
        "posthaste_dead_letter_ratio",
        "posthaste_attempts_per_success",
        "posthaste_second_attempt_success_ratio",
        "posthaste_retrying_over_24h",
    ]);
    assert_eq!(named, promised);
}

/// What the format asks for: HELP and TYPE once before each family, samples together, one per line,
/// names and labels of the right letters, buckets that never fall and end at `+Inf` with the count.
#[test]
fn the_text_keeps_to_the_format() {
    let observatory = Observatory::new();
    let acme = tenant("acme");
    observatory.attempt(at(0), &seen(&acme));
    observatory.attempt(at(0), &retry(&acme, 2, None));
    let text = observatory.render(at(0), &Gauges::default());
    assert!(text.ends_with('\n'));
    let mut families = BTreeSet::new();
    let mut family = "";
    let mut last_bucket = 0.0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().expect("a name");
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
        let name = series.split('{').next().expect("a name");
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
fn everything_that_happened_is_counted_once() {
    let observatory = Observatory::new();
    let acme = tenant("acme");
    observatory.accepted(3);
    observatory.not_made();
    observatory.attempt(at(0), &seen(&acme));
    observatory.attempt(at(0), &retry(&acme, 1, None));
    observatory.attempt(at(0), &retry(&acme, 2, Some(Status::Succeeded)));
    observatory.attempt(at(0), &retry(&acme, 9, Some(Status::Failed)));
    observatory.called_off();
    observatory.called_off();
    observatory.swept(at(0), &acme, EndpointId(7), 1);
    let gauges = Gauges {
        pending: 11,
        in_flight: 2,
        breakers_passing: 3,
        breakers_tripped: 4,
        breakers_probing: 5,
        dead_letters: 6,
        retrying_over_24h: 7,
        shards: 8,
        nodes: 9,
    };
    let text = observatory.render(at(0), &gauges);
    for (name, expected) in [
        ("posthaste_events_accepted_total", 3.0),
        ("posthaste_deliveries_total{status=\"succeeded\"}", 2.0),
        ("posthaste_deliveries_total{status=\"failed\"}", 2.0),
        ("posthaste_deliveries_total{status=\"cancelled\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"success\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"timeout\"}", 2.0),
        ("posthaste_attempts_total{outcome=\"http\"}", 0.0),
        ("posthaste_attempts_not_made_total", 1.0),
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
        ("posthaste_attempts_per_success", 2.0),
        ("posthaste_second_attempt_success_ratio", 1.0),
        ("posthaste_retrying_over_24h", 7.0),
    ] {
        assert_eq!(value(&text, name), expected, "{name}");
    }
}

#[test]
fn every_kind_of_failure_has_a_place_of_its_own() {
    let places: BTreeSet<usize> = FailureKind::ALL.map(place_of).into();
    assert_eq!(places.len(), FailureKind::ALL.len());
    assert_eq!(places.last(), Some(&(FailureKind::ALL.len() - 1)));
}

#[test]
fn a_tenant_is_judged_by_what_is_its_own() {
    let observatory = Observatory::new();
    let (good, bad) = (tenant("good"), tenant("bad"));
    for _ in 0..99 {
        observatory.attempt(at(0), &seen(&good));
    }
    observatory.attempt(at(0), &retry(&bad, 2, Some(Status::Failed)));
    let ratio = |scope: &Scope| {
        let report = observatory.health(at(0), scope, 0);
        let figure = report.windows.five_minutes.dead_letter_ratio;
        (figure.value, figure.state)
    };
    assert_eq!(
        ratio(&Scope::Tenant(good.clone())),
        (0.0, Condition::Healthy)
    );
    assert_eq!(ratio(&Scope::Tenant(bad.clone())), (1.0, Condition::Alert));
    assert_eq!(ratio(&Scope::All), (0.01, Condition::Warning));
    assert_eq!(
        ratio(&Scope::Tenant(tenant("stranger"))),
        (0.0, Condition::Healthy)
    );
    // Another one with its id begins anew; what was, was.
    observatory.forget(&bad);
    assert_eq!(
        ratio(&Scope::Tenant(bad.clone())),
        (0.0, Condition::Healthy)
    );
    assert_eq!(ratio(&Scope::All), (0.01, Condition::Warning));
}

#[test]
fn an_endpoint_is_known_by_its_last_attempts() {
    let observatory = Observatory::new();
    let acme = tenant("acme");
    observatory.attempt(at(0), &seen(&acme));
    observatory.attempt(at(0), &retry(&acme, 2, None));
    let figures = observatory.endpoint(EndpointId(7));
    assert_eq!(figures.success_ratio, 0.5);
    assert_eq!(figures.p50_ms, Some(12.0));
    assert_eq!(observatory.endpoint(EndpointId(8)).success_ratio, 1.0);
}

#[test]
fn the_report_has_the_shape_that_was_promised() {
    let report = Observatory::new().health(at(0), &Scope::All, 0);
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
fn an_endpoint_has_figures_of_its_own() {
    let observatory = Observatory::new();
    let acme = tenant("acme");
    observatory.attempt(at(0), &seen(&acme));
    let elsewhere = AttemptSeen {
        endpoint: EndpointId(8),
        ..retry(&acme, 2, Some(Status::Failed))
    };
    observatory.attempt(at(0), &elsewhere);
    observatory.swept(at(0), &acme, EndpointId(8), 3);
    let over = |endpoint: u128| {
        let tallies = observatory.tallies(at(0), &Scope::Endpoint(EndpointId(endpoint)));
        let names: Vec<&str> = tallies.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["5m", "1h", "24h"]);
        let of = |tally: &Tally| (tally.attempts, tally.succeeded, tally.failed);
        let each: Vec<_> = tallies.iter().map(|(_, tally)| of(tally)).collect();
        assert!(each.iter().all(|it| *it == each[0]));
        each[0]
    };
    assert_eq!(over(7), (1, 1, 0));
    assert_eq!(over(8), (1, 0, 4));
    assert_eq!(over(9), (0, 0, 0));
}

#[test]
fn a_series_is_stamped_with_whole_minutes_of_the_wall_clock() {
    let observatory = Observatory::new();
    let acme = tenant("acme");
    // The process began twenty seconds after noon.
    let begun = |tick_ms: u64, wall_ms: u64| Now {
        wall: Timestamp(NOON.0 + wall_ms),
        tick: Tick(tick_ms),
    };
    observatory.attempt(begun(0, 20_000), &seen(&acme));
    observatory.attempt(begun(39_000, 59_000), &seen(&acme));
    observatory.attempt(begun(41_000, 61_000), &seen(&acme));
    let hour = |now: Now, scope: &Scope| observatory.series(now, scope, Window::Hour);
    let of = Scope::Endpoint(EndpointId(7));
    for scope in [&Scope::All, &Scope::Tenant(acme.clone()), &of] {
        let series = hour(begun(42_000, 62_000), scope);
        assert_eq!(series.buckets.len(), 60);
        let filled = series.filled();
        let begins: Vec<Timestamp> = filled.iter().map(|(began, _)| *began).collect();
        assert_eq!(begins, [NOON, Timestamp(NOON.0 + 60_000)]);
        let counts: Vec<u32> = filled.iter().map(|(_, tally)| tally.attempts).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(filled[0].1.latency_micros, 24_000);
        // Somebody sets the wall clock an hour and a few seconds back: what was is shown by the new time.
        let earlier = hour(begun(42_000, 62_000).back(3_607_000), scope).filled();
        let begins: Vec<Timestamp> = earlier.iter().map(|(began, _)| *began).collect();
        let hour_ms = 3_600_000;
        assert_eq!(
            begins,
            [NOON.0 - hour_ms, NOON.0 + 60_000 - hour_ms].map(Timestamp)
        );
    }
    let day = |scope: &Scope| observatory.series(begun(42_000, 62_000), scope, Window::Day);
    assert_eq!(day(&Scope::All).bucket.to_string(), "15m");
    assert_eq!(day(&of).bucket.to_string(), "1h");
    assert_eq!(day(&of).filled()[0].0, NOON);
    let stranger = Scope::Endpoint(EndpointId(9));
    assert_eq!(day(&stranger).buckets.len(), 24);
    assert!(day(&stranger).filled().is_empty());
}

trait Back {
    fn back(self, by_ms: u64) -> Now;
}

impl Back for Now {
    fn back(self, by_ms: u64) -> Now {
        Now {
            wall: Timestamp(self.wall.0 - by_ms),
            ..self
        }
    }
}

#[test]
fn those_that_fail_are_known_by_tenant_and_the_worst_come_first() {
    let observatory = Observatory::new();
    let (acme, other) = (tenant("acme"), tenant("other"));
    let attempts = |tenant: &TenantId, endpoint: u128, failures: u32, successes: u32| {
        for number in 0..failures + successes {
            let failure = (number >= successes).then_some(FailureKind::Http);
            let attempt = AttemptSeen {
                endpoint: EndpointId(endpoint),
                failure,
                status_code: Some(503),
                ..seen(tenant)
            };
            observatory.attempt(at(5), &attempt);
        }
    };
    attempts(&acme, 1, 0, 50);
    attempts(&acme, 2, 10, 10);
    attempts(&acme, 3, 10, 2);
    attempts(&other, 4, 5, 0);
    let failing = |tenant: Option<&TenantId>, limit| {
        let failing = observatory.failing(at(9).wall, tenant, limit);
        let ids: Vec<u128> = failing.iter().map(|(endpoint, _)| endpoint.0).collect();
        ids
    };
    assert_eq!(failing(None, 9), [4, 3, 2]);
    assert_eq!(failing(None, 2), [4, 3]);
    assert_eq!(failing(Some(&acme), 9), [3, 2]);
    assert_eq!(failing(Some(&other), 9), [4]);
    let lately = observatory.lately(&[EndpointId(3), EndpointId(9), EndpointId(1)]);
    assert_eq!(lately.len(), 2);
    let (endpoint, lately) = lately[0];
    assert_eq!((endpoint.0, lately.failures_in_a_row), (3, 10));
    let failure = LastFailure {
        at: at(5).wall,
        kind: FailureKind::Http,
        status_code: Some(503),
    };
    assert_eq!(lately.last_failure, Some(failure));
}

#[test]
fn labels_are_written_so_that_nothing_breaks_out_of_them() {
    let seen = Histogram::new();
    seen.observe(Duration::from_micros(100));
    let metrics = [
        Metric::gauges("a", "A.", "of", [("x\"y\\z\n", 0.5)]),
        Metric {
            name: "b",
            help: "B.",
            values: Values::Histogram(vec![Labelled::with("of", "x", seen.snapshot())]),
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
