//! Stats follow their definitions in the API and the metrics, and survive a restart: all of them after a normal stop, all
//! but the last two seconds after a kill.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{Answer, Api, Receiver, TestServer};

const ALL: &str = "/v1/stats";
const TENANT: &str = "/v1/tenants/acme/stats";
/// An attempt this long before a kill has been written, unless three writes in a row were late.
const CERTAINLY_WRITTEN: Duration = Duration::from_secs(6);

/// Number of attempts in a series.
fn attempts(series: &Value) -> u64 {
    let buckets = series["buckets"].as_array().expect("buckets").iter();
    buckets
        .map(|it| it["attempts"].as_u64().expect("a count"))
        .sum()
}

async fn send(api: &mut Api, ends: &str) {
    let delivery = api
        .deliver("acme", json!({"type": "a.b", "payload": 1}))
        .await;
    api.until_status("acme", &delivery, ends).await;
}

/// Returns the stats and the series at these paths.
async fn read_all(api: &mut Api, places: &[String]) -> Vec<Value> {
    let mut stats = Vec::new();
    for place in places {
        stats.push(api.get(place).await.expect(200));
        for window in ["1h", "24h"] {
            let path = format!("{place}/series?window={window}");
            let mut series = api.get(&path).await.expect(200);
            // A minute may have passed, so empty buckets are not compared.
            let buckets = series["buckets"].as_array_mut().expect("buckets");
            buckets.retain(|it| it["attempts"] != 0);
            stats.push(series);
        }
    }
    stats
}

/// Checks the values of the four ratios in the stats at each path, and in the metrics.
async fn assert_ratios(api: &mut Api, paths: &[String], expected: [f64; 4]) {
    let names = [
        "retry_ratio",
        "dead_letter_ratio",
        "attempts_per_success",
        "second_attempt_success_ratio",
    ];
    for path in paths {
        let stats = api.get(path).await.expect(200);
        for window in ["5m", "1h", "24h"] {
            for (name, value) in names.iter().zip(expected) {
                let read = stats["windows"][window][name]["value"].as_f64();
                // Reading JSON may change the last digit.
                let is_equal = read.is_some_and(|read| (read - value).abs() < 1e-12);
                assert!(is_equal, "{path} {window} {name}: {read:?}, not {value}");
            }
        }
    }
    let metrics = api.get("/metrics").await.text;
    for (name, value) in names.iter().zip(expected) {
        let line = format!("posthaste_{name} {value}");
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ratios_follow_their_definitions() {
    let (server, mut api) = TestServer::start_with_tenant(&[]).await;
    // Each event says how many attempts fail.
    let receiver = Receiver::start(move |arrival| {
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        let attempt: u64 = arrival
            .header("posthaste-attempt")
            .parse()
            .expect("a number");
        match Some(attempt) <= body["failures"].as_u64() {
            true => Answer::status(503),
            false => Answer::status(200),
        }
    })
    .await;
    let policy = json!({"backoff": {"kind": "fixed", "interval": "10ms"},
        "jitter": {"kind": "none"}, "max_attempts": 3});
    let endpoint = json!({"url": receiver.url(), "retry_policy": policy});
    let endpoint = api.endpoint("acme", endpoint).await;
    let endpoint = endpoint["id"].as_str().expect("an id");
    let paths = [
        ALL.to_owned(),
        TENANT.to_owned(),
        format!("/v1/tenants/acme/endpoints/{endpoint}/stats"),
    ];
    let mut failed = String::new();
    for failures in [0, 0, 1, 0, 0, 3, 0, 1, 0, 0] {
        let event = json!({"type": "a.b", "payload": {"failures": failures}});
        let delivery = api.deliver("acme", event).await;
        let status = if failures == 3 { "failed" } else { "succeeded" };
        api.until_status("acme", &delivery, status).await;
        if failures == 3 {
            failed = delivery;
        }
    }
    let series = format!("{ALL}/series");
    api.until(&series, |series| attempts(series) == 14).await;
    // Three of ten needed a retry, one of ten failed, nine took eleven attempts, two of three second attempts succeeded.
    let expected = [0.3, 0.1, 11.0 / 9.0, 2.0 / 3.0];
    assert_ratios(&mut api, &paths, expected).await;
    // The replay starts a new round, whose first attempt succeeds.
    let retry = format!("/v1/tenants/acme/deliveries/{failed}/retry");
    api.post(&retry, json!({})).await.expect(202);
    api.until(&series, |series| attempts(series) == 15).await;
    let expected = [3.0 / 11.0, 1.0 / 11.0, 1.2, 2.0 / 3.0];
    assert_ratios(&mut api, &paths, expected).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_clean_stop_all_stats_are_kept() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let arrived = AtomicUsize::new(0);
    let receiver = Receiver::start(move |_| match arrived.fetch_add(1, Ordering::SeqCst) % 4 {
        3 => Answer::status(400),
        _ => Answer::status(200),
    })
    .await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let endpoint = endpoint["id"].as_str().expect("an id");
    let places = [
        ALL.to_owned(),
        TENANT.to_owned(),
        format!("/v1/tenants/acme/endpoints/{endpoint}/stats"),
    ];
    for _ in 0..3 {
        for ends in ["succeeded", "succeeded", "succeeded", "failed"] {
            send(&mut api, ends).await;
        }
    }
    // The counters change when a result is recorded, a moment after the API can show it.
    let path = format!("{ALL}/series");
    api.until(&path, |series| attempts(series) == 12).await;
    let before = read_all(&mut api, &places).await;
    for window in ["5m", "1h", "24h"] {
        let ratio = &before[0]["windows"][window]["dead_letter_ratio"]["value"];
        assert_eq!(*ratio, 0.25, "{window}");
    }
    for round in 1..=2 {
        assert!(server.stop().success());
        server.restart();
        api = server.api();
        assert_eq!(read_all(&mut api, &places).await, before, "restart {round}");
    }
    send(&mut api, "succeeded").await;
    api.until(&path, |series| attempts(series) == 13).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_only_recent_stats_are_lost() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let path = format!("{ALL}/series");
    let began = Instant::now();
    let mut seen = Vec::new();
    while began.elapsed() < CERTAINLY_WRITTEN + Duration::from_secs(2) {
        send(&mut api, "succeeded").await;
        let sent = seen.len() as u64 + 1;
        api.until(&path, |series| attempts(series) == sent).await;
        seen.push(Instant::now());
    }
    let killed = Instant::now();
    server.kill();
    server.restart();
    let left = attempts(&server.api().get(&path).await.expect(200)) as usize;
    let old = |at: &&Instant| killed.duration_since(**at) >= CERTAINLY_WRITTEN;
    let written = seen.iter().filter(old).count();
    assert!(written > 0, "nothing was old enough to be written");
    assert!(left >= written, "{left} of {written} that were old");
    assert!(left <= seen.len(), "{left} of {}", seen.len());
}
