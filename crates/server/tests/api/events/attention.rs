//! Endpoints that need attention: which are listed, why, and in which order.
//!
//! The tests count attempts and set statuses of a [`TestServer`] without an engine.

use posthaste_core::alert::AlertName;
use posthaste_core::id::AlertId;
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, StoredTrip, TripReason};
use posthaste_store::{Alert, Alerts, CreateResult, DisabledReason, Store, SubjectScope};
use serde_json::{Value, json};

use crate::fixture::{NOON, TestServer};

const ALL: &str = "/v1/attention";
const OWN: &str = "/v1/tenants/acme/attention";

async fn endpoint(server: &TestServer) -> String {
    server
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await
}

/// Returns each listed endpoint with its reason, in the order of the list.
async fn listed(server: &TestServer, path: &str) -> Vec<(String, String)> {
    let shown = server.get(path).await.ok(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let needy = shown["data"].as_array().unwrap().iter();
    needy
        .map(|it| (text(&it["endpoint_id"]), text(&it["reason"])))
        .collect()
}

#[tokio::test]
async fn a_failing_endpoint_is_listed_until_it_recovers() {
    let server = TestServer::without_engine().await;
    let (bad, good) = (endpoint(&server).await, endpoint(&server).await);
    for _ in 0..10 {
        server.count_attempt(&bad, true).await;
        server.count_attempt(&good, true).await;
    }
    assert_eq!(listed(&server, ALL).await, []);
    for _ in 0..8 {
        server.count_attempt(&bad, false).await;
    }
    for path in [ALL, OWN] {
        let shown = server.get(path).await.ok(200);
        assert_eq!(
            shown["data"],
            json!([{
                "tenant_id": "acme", "endpoint_id": bad, "url": "http://127.0.0.1:9999/",
                "status": "enabled", "reason": "failing", "since": null,
                "detail": "8 of the last 18 attempts failed; last: HTTP 503", "pending": 0,
                "success_ratio": 0.555556, "last_failure_at": "2026-11-15T12:00:00.000Z",
            }])
        );
    }
    server.tenant("other").await;
    let other = "/v1/tenants/other/attention";
    assert_eq!(listed(&server, other).await, []);
    for _ in 0..10 {
        server.count_attempt(&bad, true).await;
    }
    assert_eq!(listed(&server, ALL).await, []);
    server.count_attempt(&bad, false).await;
    assert_eq!(listed(&server, OWN).await.len(), 1);
    server.pass_ms(3_600_001);
    assert_eq!(
        listed(&server, OWN).await,
        [],
        "failures of more than an hour ago do not count"
    );
}

/// As after a restart: only the store knows the history of the endpoint.
#[tokio::test]
async fn after_a_restart_an_endpoint_with_an_open_alert_is_listed() {
    let server = TestServer::without_engine().await;
    let (bad, other) = (endpoint(&server).await, endpoint(&server).await);
    let raise = async |number: u128, name, endpoint: &str| {
        let alert = Alert {
            id: AlertId(number),
            name,
            scope: SubjectScope::Endpoint(endpoint.parse().unwrap()),
            tenant: None,
            is_gone: false,
            raised_at: NOON,
            resolved_at: None,
            detail: json!({"value": 0.25, "threshold": 0.1, "window": "1h"}),
        };
        let raised = server.store.raise_alert(NOON, alert).await;
        assert_eq!(raised, Ok(CreateResult::Created));
    };
    raise(1, AlertName::RetryRatio, &bad).await;
    raise(2, AlertName::DisableWarning, &other).await;
    for path in [ALL, OWN] {
        let shown = server.get(path).await.ok(200);
        let [needy] = &shown["data"].as_array().unwrap()[..] else {
            panic!("one endpoint is listed: {shown}");
        };
        assert_eq!(needy["endpoint_id"], json!(bad));
        assert_eq!(needy["reason"], "failing");
        let detail = "Retry rate is 25 % over the last hour (threshold 10 %)";
        assert_eq!(needy["detail"], detail);
    }
    server.tenant("other").await;
    assert_eq!(listed(&server, "/v1/tenants/other/attention").await, []);
    // The counters in memory take precedence over the stored alert.
    server.count_attempt(&bad, true).await;
    assert_eq!(listed(&server, ALL).await, []);
    raise(3, AlertName::DeadLetterRatio, &other).await;
    assert_eq!(listed(&server, ALL).await.len(), 1);
    let ended = server.store.resolve_alert(NOON, AlertId(3)).await;
    assert!(ended.unwrap().is_some());
    assert_eq!(listed(&server, ALL).await, []);
}

async fn set_status(
    server: &TestServer,
    endpoint: &str,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
    health: Option<Health>,
) {
    let id = endpoint.parse().unwrap();
    let result = server
        .store
        .set_endpoint_status(NOON, id, status, reason, health);
    assert_eq!(result.await, Ok(true));
}

#[tokio::test]
async fn endpoints_are_listed_by_severity() {
    let server = TestServer::without_engine().await;
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(endpoint(&server).await);
    }
    let [well, paused, failing, tripped, switched_off, gone] = &made[..] else {
        panic!("six endpoints were created");
    };
    server.count_attempt(well, true).await;
    set_status(&server, paused, EndpointStatus::Paused, None, None).await;
    for _ in 0..9 {
        server.count_attempt(failing, false).await;
    }
    let health = Health {
        revision: 1,
        consecutive_failures: 412,
        failing_since: Some(NOON),
        trip: Some(StoredTrip {
            until: NOON,
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 0,
        }),
        ..Health::default()
    };
    set_status(
        &server,
        tripped,
        EndpointStatus::Enabled,
        None,
        Some(health),
    )
    .await;
    server.count_attempt(tripped, false).await;
    let manual = Some(DisabledReason::Manual);
    set_status(
        &server,
        switched_off,
        EndpointStatus::Disabled,
        manual,
        None,
    )
    .await;
    let automatic = Some(DisabledReason::Automatic(DisableCause::Gone));
    set_status(&server, gone, EndpointStatus::Disabled, automatic, None).await;
    // All endpoints but the disabled ones get an event.
    server.event(&json!({"type": "a.b", "payload": 1})).await;

    let order = [
        (gone, "disabled"),
        (tripped, "breaker_tripped"),
        (failing, "failing"),
        (paused, "paused"),
    ];
    let order = order.map(|(id, why)| (id.clone(), why.to_owned()));
    assert_eq!(listed(&server, ALL).await, order);
    assert_eq!(listed(&server, OWN).await, order);
    let shown = server.get(OWN).await.ok(200);
    assert_eq!(
        shown["data"][1],
        json!({
            "tenant_id": "acme", "endpoint_id": tripped, "url": "http://127.0.0.1:9999/",
            "status": "enabled", "reason": "breaker_tripped", "since": "2026-11-15T12:00:00.000Z",
            "detail": "412 failures in a row; last: HTTP 503", "pending": 1, "success_ratio": 0.0,
            "last_failure_at": "2026-11-15T12:00:00.000Z",
        })
    );
    assert_eq!(
        shown["data"][3]["detail"],
        "paused manually; 1 delivery waiting"
    );
    server.tenant("other").await;
    assert_eq!(listed(&server, "/v1/tenants/other/attention").await, []);
}
