//! The API for stats, metrics and retry policies.
//!
//! Fixture: a [`TestServer`], without an engine where the test counts the attempts itself.

use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::delivery::RetrySettings;
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::lane::RETRY_AFTER_CAP;
use posthaste_core::policy::{Preset, RetryPolicy};
use posthaste_core::rng::Rng;
use posthaste_core::time::Span;
use posthaste_store::{AttemptDetail, Store, Written};
use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::TestServer;

#[tokio::test]
async fn stats_and_metrics_count_deliveries() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    for (status, ends) in [(200, "succeeded"), (400, "failed")] {
        receiver.answer(status);
        let id = server.deliver(json!({"type": "a.b", "payload": 1})).await;
        server.until_status(&id, ends).await;
    }
    // The counters change when a result is recorded, a moment after the API can show it.
    let half_failed = |stats: &Value| stats["windows"]["5m"]["dead_letter_ratio"]["value"] == 0.5;
    let stats = server.until("/v1/stats", half_failed).await;
    for window in ["5m", "1h", "24h"] {
        let health = &stats["windows"][window];
        assert_eq!(health["dead_letter_ratio"]["state"], "alert");
        assert_eq!(
            health["retry_ratio"],
            json!({"value": 0.0, "healthy": "< 0.05", "alert": "> 0.10", "state": "healthy"})
        );
        // The one delivery that succeeded took one attempt.
        assert_eq!(health["attempts_per_success"]["value"], 1.0);
        assert_eq!(health["retrying_over_24h"]["value"], 0.0);
    }
    let own = server.get("/v1/tenants/acme/stats").await.ok(200);
    assert_eq!(own, stats);
    let one = format!("/v1/tenants/acme/endpoints/{endpoint}/stats");
    assert_eq!(server.get(&one).await.ok(200), stats);
    server.tenant("other").await;
    let other = server.get("/v1/tenants/other/stats").await.ok(200);
    assert_eq!(other["windows"]["5m"]["dead_letter_ratio"]["value"], 0.0);

    let request = http::Request::get("/metrics").body(axum::body::Body::empty());
    let metrics = server.send(request.unwrap()).await;
    assert_eq!(metrics.status, 200);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(metrics.headers["content-type"], kind);
    for line in [
        "posthaste_events_accepted_total 2",
        "posthaste_deliveries_total{status=\"succeeded\"} 1",
        "posthaste_deliveries_total{status=\"failed\"} 1",
        "posthaste_attempts_total{outcome=\"http\"} 1",
        "posthaste_attempt_seconds_count 2",
        "posthaste_first_attempt_lag_seconds_count 2",
        "posthaste_pending_deliveries 0",
        "posthaste_dead_letters 1",
        "posthaste_in_flight 0",
        "posthaste_dead_letter_ratio 0.5",
    ] {
        let has = metrics.text().lines().any(|it| it == line);
        assert!(has, "{line} in {}", metrics.text());
    }
}

/// Fails the first attempt of every waiting delivery of an endpoint, so that each of them is retried.
async fn fail_waiting(server: &TestServer, endpoint: &str) {
    let (now, endpoint) = (server.now(), endpoint.parse().expect("an endpoint id"));
    let waiting = server.store.fetch(endpoint, now, usize::MAX, false).await;
    let policy = RetryPolicy::default();
    let settings = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    for mut delivery in waiting.expect("the store reads").deliveries {
        delivery.begin(now, false).expect("the delivery waits");
        let outcome = Outcome::Answered {
            status: HttpStatus::new(503).expect("a valid status"),
            retry_after: None,
        };
        let settlement = delivery.settle(now, outcome, settings, &mut Rng::seeded(1));
        let record = Record::Attempt(Box::new(AttemptRecord {
            delivery,
            settlement: settlement.expect("the attempt was started"),
            health: None,
            disable: None,
            endpoint_changes: Vec::new(),
        }));
        let (report, written) = tokio::sync::oneshot::channel();
        let done = Box::new(move |result| report.send(result).expect("the test waits"));
        server
            .store
            .record(now, record, AttemptDetail::default(), done);
        assert_eq!(written.await.expect("an answer"), Ok(Written::Applied));
    }
}

#[tokio::test]
async fn deliveries_in_retry_for_over_a_day_are_counted_beyond_one_page() {
    let server = TestServer::without_engine().await;
    let endpoint = json!({"url": "http://127.0.0.1:9999/"});
    let endpoint = server.endpoint(endpoint).await;
    let events = vec![json!({"type": "a.b", "payload": 1}); 300];
    let batch = json!({"events": events});
    let path = "/v1/tenants/acme/events/batch";
    server.post(path, &batch).await.ok(202);
    fail_waiting(&server, &endpoint).await;
    server.pass_ms(Span::from_hours(25).as_millis());
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/stats");
    let stats = server.get(&path).await.ok(200);
    let retrying = &stats["windows"]["24h"]["retrying_over_24h"];
    assert_eq!(retrying["value"], 300.0);
}

#[tokio::test]
async fn stats_series_count_attempts_by_bucket() {
    let server = TestServer::without_engine().await;
    let url = json!({"url": "http://127.0.0.1:9999/"});
    let (one, other) = (
        server.endpoint(url.clone()).await,
        server.endpoint(url).await,
    );
    // The time is 12:00:00, then 12:07:30.
    server.count_attempt(&one, true).await;
    server.count_attempt(&other, false).await;
    server.pass_ms(450_000);
    server.count_attempt(&one, false).await;
    let quiet = |start: &str| {
        json!({
            "start": start, "attempts": 0, "succeeded": 0, "failed": 0, "retries": 0,
            "retried_deliveries": 0, "success_attempts": 0, "second_attempts": 0, "second_successes": 0, "latency_ms": null,
        })
    };
    let ends = |path: String| {
        let server = &server;
        async move {
            let series = server.get(&path).await.ok(200);
            let buckets = series["buckets"].as_array().unwrap();
            let filled = buckets.iter().filter(|it| it["attempts"] != 0);
            let counts: Vec<String> = filled
                .map(|it| format!("{} {} {}", it["start"], it["attempts"], it["failed"]))
                .collect();
            (series["bucket"].clone(), buckets.len(), counts.join("; "))
        }
    };
    let all = "/v1/stats/series".to_owned();
    let tenant = "/v1/tenants/acme/stats/series".to_owned();
    let first = format!("/v1/tenants/acme/endpoints/{one}/stats/series");
    let (noon, later) = (
        "\"2026-11-15T12:00:00.000Z\"",
        "\"2026-11-15T12:07:00.000Z\"",
    );
    let both = format!("{noon} 2 1; {later} 1 1");
    for path in [&all, &tenant] {
        assert_eq!(ends(path.clone()).await, (json!("1m"), 60, both.clone()));
        let day = ends(format!("{path}?window=24h")).await;
        assert_eq!(day, (json!("15m"), 96, format!("{noon} 3 2")));
    }
    let mine = format!("{noon} 1 0; {later} 1 1");
    assert_eq!(ends(first.clone()).await, (json!("1m"), 60, mine));
    let day = ends(format!("{first}?window=24h")).await;
    assert_eq!(day, (json!("1h"), 24, format!("{noon} 2 1")));

    let series = server.get(&format!("{first}?window=1h")).await.ok(200);
    assert_eq!(series["window"], "1h");
    let buckets = series["buckets"].as_array().unwrap();
    assert_eq!(buckets[0], quiet("2026-11-15T11:08:00.000Z"));
    assert_eq!(
        buckets[59],
        json!({
            "start": "2026-11-15T12:07:00.000Z", "attempts": 1, "succeeded": 0, "failed": 1,
            "retries": 1, "retried_deliveries": 0, "success_attempts": 0, "second_attempts": 1,
            "second_successes": 0,
            "latency_ms": {"mean": 12.5, "max": 12.5},
        })
    );
    for wrong in ["5m", "1d", "x"] {
        let answer = server.get(&format!("{all}?window={wrong}")).await;
        assert_eq!(answer.problem(422, "invalid"), ["window"], "{wrong}");
    }
    let answer = server.get(&format!("{first}?widnow=1h")).await;
    assert_eq!(answer.problem(422, "invalid"), ["widnow"]);
    server.tenant("other").await;
    for path in ["stats", "stats/series"] {
        let theirs = format!("/v1/tenants/other/endpoints/{one}/{path}");
        server.get(&theirs).await.problem(404, "not_found");
    }
}

/// Per-endpoint metrics name tenants, and `/metrics` needs no key.
#[tokio::test]
async fn per_endpoint_metrics_are_visible_to_admins_only() {
    let server = TestServer::without_engine().await;
    let url = json!({"url": "http://127.0.0.1:9999/"});
    let (one, other) = (
        server.endpoint(url.clone()).await,
        server.endpoint(url).await,
    );
    server.count_attempt(&one, false).await;
    server.count_attempt(&other, true).await;
    let request = http::Request::get("/metrics").body(axum::body::Body::empty());
    let open = server.send(request.unwrap()).await;
    assert_eq!(open.status, 200);
    let key = json!({"name": "theirs"});
    let key = server.post("/v1/tenants/acme/keys", &key).await;
    let key = key.ok(201)["key"].as_str().unwrap().to_owned();
    let theirs = server.get_as("/metrics", &key).await;
    let unknown = server.get_as("/metrics", "ph_unknown").await;
    for shown in [&open, &theirs, &unknown] {
        assert!(shown.text().contains("posthaste_attempts_total"));
        for private in ["posthaste_endpoint", "acme", &one] {
            assert!(!shown.text().contains(private), "{private}");
        }
    }
    let shown = server.get("/metrics").await;
    for line in [
        format!(
            "posthaste_endpoint_attempts_total{{tenant=\"acme\",endpoint=\"{one}\",outcome=\"failure\"}} 1"
        ),
        "posthaste_endpoint_attempts_total{tenant=\"\",endpoint=\"other\",outcome=\"success\"} 1"
            .to_owned(),
        format!("posthaste_endpoint_pending{{tenant=\"acme\",endpoint=\"{one}\"}} 0"),
    ] {
        let has = shown.text().lines().any(|it| it == line);
        assert!(has, "{line} in {}", shown.text());
    }
}

#[tokio::test]
async fn metrics_are_served_before_the_engine_runs() {
    let server = TestServer::without_engine().await;
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .text()
            .contains("posthaste_breakers{state=\"tripped\"} 0\n")
    );
}

#[tokio::test]
async fn a_repeated_event_is_counted_once() {
    let server = TestServer::without_engine().await;
    let event = json!({"type": "a.b", "payload": 1, "idempotency_key": "k"});
    for _ in 0..3 {
        server.event(&event).await;
    }
    let metrics = server.get("/metrics").await;
    assert!(
        metrics
            .text()
            .contains("posthaste_events_accepted_total 1\n")
    );
}

#[tokio::test]
async fn every_preset_has_a_preview() {
    let server = TestServer::without_engine().await;
    let listed = server.get("/v1/policies").await.ok(200);
    let presets = listed["data"].as_array().unwrap();
    assert_eq!(presets.len(), Preset::ALL.len());
    for (preset, shown) in Preset::ALL.into_iter().zip(presets) {
        assert_eq!(shown["name"], preset.name());
        let asked = json!({"preset": preset.name()});
        let explained = server.post("/v1/policies/preview", &asked).await.ok(200);
        for field in ["attempts", "gives_up_ms", "verdicts", "words", "policy"] {
            assert_eq!(shown[field], explained[field], "{field}");
        }
        assert_eq!(explained["policy"]["preset"], preset.name());
        let attempts = explained["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), preset.policy().max_attempts as usize);
        assert_eq!(
            attempts[0],
            json!({"number": 1, "earliest_ms": 0, "expected_ms": 0, "latest_ms": 0})
        );
    }
    let changed = json!({"preset": "brisk", "max_attempts": 2});
    let changed = server.post("/v1/policies/preview", &changed).await.ok(200);
    assert_eq!(changed["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(changed["policy"]["preset"], Value::Null);
    // Own rules come before those of the preset.
    let ruled =
        json!({"preset": "swift", "rules": [{"on": "410", "then": "fail"}], "late": "drop"});
    let ruled = server.post("/v1/policies/preview", &ruled).await.ok(200);
    let all = [
        "1xx",
        "3xx",
        "4xx",
        "5xx",
        "timeout",
        "dns",
        "tls",
        "connection",
        "unknown",
    ];
    assert_eq!(ruled["verdicts"][0]["on"], json!(all));
    let retried = &ruled["verdicts"][0];
    assert_eq!(
        (&retried["then"], &retried["limit"]),
        (&json!("retry"), &Value::Null)
    );
    assert_eq!(ruled["verdicts"][1]["on"], json!(["410", "validation"]));
    assert_eq!(ruled["verdicts"][1]["then"], "fail");
    assert_eq!(ruled["policy"]["late"], "drop");
    let wrong = json!({"backoff": {"kind": "fixed"}, "max_attempts": 0, "x": 1});
    let wrong = server.post("/v1/policies/preview", &wrong).await;
    let fields = wrong.problem(422, "invalid");
    assert_eq!(fields, ["backoff.interval", "max_attempts", "x"]);
}

#[tokio::test]
async fn simulations_can_run_concurrently() {
    let server = TestServer::without_engine().await;
    let path = "/v1/policies/simulate";
    let asked = json!({"pending": 200, "outage": "10m", "capacity": 50});
    let (one, other) = tokio::join!(server.post(path, &asked), server.post(path, &asked));
    assert_eq!(one.ok(200), other.ok(200));
}

#[tokio::test]
async fn an_outage_can_be_simulated() {
    let server = TestServer::without_engine().await;
    let path = "/v1/policies/simulate";
    let asked = json!({"pending": 200, "outage": "10m", "capacity": "50/s", "seed": 7});
    let report = server.post(path, &asked).await.ok(200);
    assert_eq!(report["pending"], 200);
    assert_eq!(report["policy"]["preset"], "recommended");
    assert_eq!(report["posthaste"]["delivered"], 200);
    assert_eq!(report["seed"], 7);
    assert_eq!(report["capacity_per_second"], 50.0);
    for (wrong, fields) in [
        (json!({}), &["pending", "outage", "capacity"][..]),
        (
            json!({"pending": 100_001, "outage": "31d", "capacity": 0}),
            &["pending", "outage", "capacity"],
        ),
        (
            json!({
                "policy": {"preset": "eager"}, "pending": 1, "outage": "1s", "capacity": "fast",
                "max_in_flight": 0, "rate_limit": {"burst": 0, "x": 1}, "seed": -1, "y": 1,
            }),
            &[
                "policy.preset",
                "capacity",
                "max_in_flight",
                "rate_limit.burst",
                "rate_limit.x",
                "seed",
                "y",
            ],
        ),
    ] {
        let answer = server.post(path, &wrong).await;
        assert_eq!(answer.problem(422, "invalid"), fields, "{wrong}");
    }
}
