//! The API for endpoints: fields, defaults, changes, status, secrets and health.
//!
//! Fixture: a [`TestServer`] without tenants, and its store.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, StoredTrip, TripReason};
use posthaste_core::time::Timestamp;
use posthaste_store::{DisabledReason, Endpoint, ReplaceResult, Store, StoreError};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const ALL: &str = "/v1/tenants/acme/endpoints";

fn written() -> Value {
    json!({
        "url": "https://example.com/hooks?a=b",
        "description": "The billing team",
        "event_types": ["invoice.*", "user.created"],
        "retry_policy": {"preset": "patient", "max_attempts": 3},
        "timeout": "10s",
        "max_in_flight": 3,
        "rate_limit": {"per_second": 2.5, "burst": 7},
        "protection": {
            "disable": {"after": "2d", "on_gone": false},
            "breaker": {"failure_ratio": 0.25, "refusals": 3},
        },
        "ordered": true,
        "headers": {"X-Team": "billing", "Authorization": "Bearer t0ken"},
        "signature_style": "stripe",
        "owner_email": "ops@example.com",
    })
}

#[tokio::test]
async fn an_endpoint_reads_as_it_was_written() {
    let server = TestServer::with_acme().await;
    let made = server.post(ALL, written()).await;
    assert_eq!(made.status, 201, "{}", made.json);
    assert!(made.field("secret").starts_with("whsec_"));
    let mut expected = written();
    expected["id"] = made.json["id"].clone();
    expected["auth"] = Value::Null;
    expected["client_certificate"] = Value::Null;
    expected["status"] = json!("enabled");
    expected["disabled_reason"] = Value::Null;
    for setting in ["retry_policy", "timeout", "max_in_flight", "rate_limit"] {
        expected[format!("{setting}_from")] = json!("endpoint");
    }
    expected["owner_email_status"] = json!("confirmed");
    expected["created_at"] = json!("2026-01-02T03:04:05.678Z");
    let path = format!("{ALL}/{}", made.field("id"));
    let read = server.get(&path).await;
    assert_eq!(read.json, expected);
    let listed = server.get(ALL).await;
    assert_eq!(listed.json["data"], json!([expected]));
    let mut shown = made.json.clone();
    shown.as_object_mut().expect("an object").remove("secret");
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn absent_fields_have_defaults() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let read = server.get(&path).await.json;
    assert_eq!(read["timeout"], "30s");
    assert_eq!(read["max_in_flight"], 10);
    assert_eq!(read["rate_limit"], json!({"per_second": 100, "burst": 200}));
    assert_eq!(read["protection"], Value::Null);
    assert_eq!(read["event_types"], json!([]));
    assert_eq!(read["headers"], json!({}));
    assert_eq!(read["signature_style"], "standard");
    assert_eq!(read["auth"], Value::Null);
    assert_eq!(read["client_certificate"], Value::Null);
    assert_eq!(read["retry_policy"], json!({"preset": "recommended"}));
    assert_eq!(read["retry_policy_from"], "server");
    let policy = json!({"preset": "brisk"});
    server
        .patch("/v1/tenants/acme", json!({"default_retry_policy": policy}))
        .await;
    let read = server.get(&path).await.json;
    assert_eq!(read["retry_policy"], policy);
    assert_eq!(read["retry_policy_from"], "tenant");
    let slow = json!({"rate_limit": {"per_second": 0.25}});
    let read = server.patch(&path, slow).await.json;
    assert_eq!(read["rate_limit"], json!({"per_second": 0.25, "burst": 1}));
}

#[tokio::test]
async fn secrets_are_stored_encrypted_and_shown_on_request_only() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let made = server.post(ALL, written()).await;
    let secret = made.field("secret");
    let path = format!("{ALL}/{}", made.field("id"));
    for shown in [server.get(&path).await, server.get(ALL).await] {
        let text = String::from_utf8_lossy(&shown.bytes).into_owned();
        assert!(!text.contains("whsec_"), "{text}");
    }
    let changed = server.patch(&path, json!({"description": "x"})).await;
    assert_eq!(changed.json.get("secret"), None);
    let asked = server
        .call("GET", &format!("{path}/secret"), &key, Value::Null)
        .await;
    assert_eq!(asked.json, json!({"secret": secret, "previous": []}));
    for answer in [&made, &asked] {
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
    let row = stored(&server, &made.field("id")).await;
    for (sealed, plain) in [
        (&row.sealed_keys, secret.trim_start_matches("whsec_")),
        (&row.sealed_headers, "t0ken"),
    ] {
        let rests = String::from_utf8_lossy(sealed).into_owned();
        assert!(!rests.contains(plain));
    }
}

async fn stored(server: &TestServer, id: &str) -> Endpoint {
    let row = server.store.endpoint(id.parse().expect("an id")).await;
    row.expect("a store").expect("an endpoint").endpoint
}

#[tokio::test]
async fn a_patch_changes_only_named_fields_and_null_restores_the_default() {
    let server = TestServer::with_acme().await;
    let made = server.post(ALL, written()).await;
    let path = format!("{ALL}/{}", made.field("id"));
    let before = server.get(&path).await.json;
    assert_eq!(server.patch(&path, json!({})).await.json, before);
    let changed = server.patch(&path, json!({"timeout": "5s"})).await.json;
    let mut expected = before.clone();
    expected["timeout"] = json!("5s");
    assert_eq!(changed, expected);
    let nulls = json!({
        "description": null, "event_types": null, "retry_policy": null, "timeout": null,
        "max_in_flight": null, "rate_limit": null, "ordered": null, "headers": null,
        "owner_email": null, "signature_style": null, "auth": null, "client_certificate": null,
    });
    let changed = server.patch(&path, nulls).await;
    assert_eq!(changed.status, 200, "{}", changed.json);
    let other = server.endpoint_path("acme").await;
    let fresh = server.get(&other).await.json;
    for name in [
        "description",
        "event_types",
        "retry_policy",
        "retry_policy_from",
        "timeout",
        "max_in_flight",
        "rate_limit",
        "ordered",
        "headers",
        "owner_email",
        "signature_style",
        "auth",
        "client_certificate",
    ] {
        assert_eq!(changed.json[name], fresh[name], "{name}");
    }
    assert_eq!(server.get(&path).await.json, changed.json);
    let refused = server.patch(&path, json!({"url": null})).await;
    assert_eq!(refused.wrong_fields(), ["url"]);
    let refused = server.patch(&path, json!({"secret": "whsec_x"})).await;
    assert_eq!(refused.wrong_fields(), ["secret"]);
}

#[tokio::test]
async fn a_refused_patch_changes_nothing() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let before = server.get(&path).await.json;
    let refused = server
        .patch(&path, json!({"description": "new", "timeout": "1h"}))
        .await;
    assert_eq!(refused.wrong_fields(), ["timeout"]);
    assert_eq!(server.get(&path).await.json, before);
}

#[tokio::test]
async fn concurrent_patches_are_not_lost() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let (one, other) = tokio::join!(
        server.patch(&path, json!({"description": "both"})),
        server.patch(&path, json!({"timeout": "7s"})),
    );
    assert_eq!((one.status.as_u16(), other.status.as_u16()), (200, 200));
    let read = server.get(&path).await.json;
    assert_eq!(read["description"], "both");
    assert_eq!(read["timeout"], "7s");
    // The store refuses a change from an old revision. That is the case that the API's retry loop handles.
    let id = path.rsplit('/').next().expect("an id");
    let mut row = stored(&server, id).await;
    row.revision = 0;
    let replaced = server.store.replace_endpoint(Timestamp(0), row).await;
    assert_eq!(replaced, Ok(ReplaceResult::Outdated));
}

#[tokio::test]
async fn all_field_errors_are_reported_at_once() {
    let server = TestServer::with_acme().await;
    let answer = server
        .post(
            ALL,
            json!({
                "url": "https://10.0.0.1/x",
                "description": "x".repeat(1_025),
                "event_types": ["invoice.*", "a..b", 5],
                "retry_policy": {"backoff": {"kind": "cubic"}},
                "timeout": "90s",
                "max_in_flight": 0,
                "rate_limit": {"per_second": 0, "burst": 0, "per_hour": 1},
                "ordered": "yes",
                "headers": {"Host": "inner", "X-A": "a\r\nX-B: c"},
                "owner_email": "a@b.c\r\nBcc: d@e.f",
                "secret": "hunter2",
                "status": "enabled",
            }),
        )
        .await;
    // A refused destination decides the code, also if other fields are wrong.
    assert_eq!(answer.field("code"), "unsafe_destination");
    let mut wrong = answer.wrong_fields();
    wrong.sort();
    assert_eq!(
        wrong,
        [
            "description",
            "event_types[1]",
            "event_types[2]",
            "headers.Host",
            "headers.X-A",
            "max_in_flight",
            "ordered",
            "owner_email",
            "rate_limit.burst",
            "rate_limit.per_hour",
            "rate_limit.per_second",
            "retry_policy.backoff.kind",
            "secret",
            "status",
            "timeout",
            "url",
        ]
    );
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("hunter2"));
    assert!(server.get(ALL).await.ids().is_empty());
}

#[tokio::test]
async fn a_forbidden_url_has_its_own_error_code() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    for (url, code) in [
        ("https://127.0.0.1/", "unsafe_destination"),
        ("https://169.254.169.254/latest", "unsafe_destination"),
        ("https://localhost/", "unsafe_destination"),
        ("http://example.com/", "unsafe_destination"),
        ("https://example.com:22/", "unsafe_destination"),
        ("ftp://example.com/", "invalid_url"),
        ("example.com", "invalid_url"),
        ("https://u:p@example.com/", "invalid_url"),
        ("https://example.com/#x", "invalid_url"),
    ] {
        for answer in [
            server.post(ALL, json!({"url": url})).await,
            server.patch(&path, json!({"url": url})).await,
        ] {
            assert_eq!(answer.field("code"), code, "{url}");
            assert_eq!(answer.wrong_fields(), ["url"], "{url}");
        }
    }
    let answer = server.post(ALL, json!({})).await;
    assert_eq!(answer.field("code"), "invalid");
    assert_eq!(answer.wrong_fields(), ["url"]);
}

#[tokio::test]
async fn the_operator_can_allow_loopback() {
    let server = TestServer::with_settings(|settings| {
        settings.egress_rules.allow_http = true;
        settings.egress_rules.allow_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    })
    .await;
    server.tenant("acme").await;
    let made = server
        .post(ALL, json!({"url": "http://127.0.0.1:9000/x"}))
        .await;
    assert_eq!(made.status, 201);
    assert_eq!(made.field("url"), "http://127.0.0.1:9000/x");
    let refused = server.post(ALL, json!({"url": "http://10.0.0.1/x"})).await;
    assert_eq!(refused.field("code"), "unsafe_destination");
}

#[tokio::test]
async fn pause_resume_disable_and_enable_set_the_status() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    for (wish, status, reason) in [
        ("pause", "paused", Value::Null),
        ("pause", "paused", Value::Null),
        ("resume", "enabled", Value::Null),
        ("resume", "enabled", Value::Null),
        ("enable", "enabled", Value::Null),
        ("disable", "disabled", json!("manual")),
        ("disable", "disabled", json!("manual")),
        ("enable", "enabled", Value::Null),
        ("pause", "paused", Value::Null),
        ("enable", "enabled", Value::Null),
        ("pause", "paused", Value::Null),
        ("disable", "disabled", json!("manual")),
    ] {
        let answer = server.post(&format!("{path}/{wish}"), Value::Null).await;
        assert_eq!(answer.status, 200, "{wish}: {}", answer.json);
        assert_eq!(answer.json["status"], status, "{wish}");
        assert_eq!(answer.json["disabled_reason"], reason, "{wish}");
        assert_eq!(server.get(&path).await.json, answer.json, "{wish}");
    }
    for wish in ["pause", "resume"] {
        let answer = server.post(&format!("{path}/{wish}"), json!({})).await;
        assert_eq!(answer.status, 409, "{wish}");
        assert_eq!(answer.field("code"), "wrong_state");
        assert!(answer.field("detail").contains("/enable"));
    }
    let answer = server
        .post(&format!("{path}/enable"), json!({"force": true}))
        .await;
    assert_eq!(answer.wrong_fields(), ["force"]);
}

#[tokio::test]
async fn closing_wins_over_an_enable_that_is_not_written_yet() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let id = path.rsplit('/').next().expect("an id");
    let id: EndpointId = id.parse().expect("an endpoint id");
    for (wish, status) in [
        ("pause", EndpointStatus::Paused),
        ("disable", EndpointStatus::Disabled),
    ] {
        let close = format!("{path}/{wish}");
        server.post(&close, Value::Null).await.ok(200);
        // It is in force, the caller gets an error, and the write is repeated later.
        server.store.fail_writes(Some(StoreError::Full));
        let enabled = EndpointStatus::Enabled;
        let router = &server.app.owner_router;
        let unwritten = router.set_status(id, enabled, None, None).await;
        assert!(unwritten.is_err(), "{wish}");
        server.store.fail_writes(None);
        let written = server.post(&close, Value::Null).await.ok(200);
        assert_eq!(written["status"], json!(status), "{wish}");
        let lane = server.app.engine.lane(id).await.expect("the engine runs");
        assert_eq!(lane.map(|lane| lane.status), Some(status), "{wish}");
    }
}

#[tokio::test]
async fn a_disable_keeps_the_reason_of_a_disabled_endpoint() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let id = path.rsplit('/').next().expect("an id");
    let id: EndpointId = id.parse().expect("an endpoint id");
    let (disabled, reason) = (
        EndpointStatus::Disabled,
        Some(DisabledReason::Automatic(DisableCause::Gone)),
    );
    let router = &server.app.owner_router;
    let done = router.set_status(id, disabled, reason, None).await;
    assert_eq!(done, Ok(()));
    let before = server.get(&path).await.ok(200);
    assert_ne!(before["disabled_reason"], "manual");
    let again = server.post(&format!("{path}/disable"), Value::Null).await;
    assert_eq!(again.ok(200), before);
}

#[tokio::test]
async fn a_deleted_endpoint_is_not_found() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    assert_eq!(server.delete(&path).await.status, 204);
    assert_eq!(server.get(&path).await.status, 404);
    assert_eq!(server.delete(&path).await.status, 404);
    let enabled = server.post(&format!("{path}/enable"), Value::Null).await;
    assert_eq!(enabled.status, 404);
    assert_eq!(server.patch(&path, json!({})).await.status, 404);
    assert!(server.get(ALL).await.ids().is_empty());
}

#[tokio::test]
async fn the_number_of_endpoints_is_limited_by_the_plan() {
    let server = TestServer::with_acme().await;
    server
        .patch("/v1/tenants/acme", json!({"limits": {"endpoints": 1}}))
        .await;
    let path = server.endpoint_path("acme").await;
    let body = json!({"url": "https://example.com/"});
    let answer = server.post(ALL, body.clone()).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.field("code"), "quota_exceeded");
    assert!(
        !answer.headers.contains_key("retry-after"),
        "no Retry-After, because waiting does not help"
    );
    assert!(answer.field("detail").contains("endpoints"));
    assert_eq!(server.delete(&path).await.status, 204);
    assert_eq!(server.post(ALL, body).await.status, 201);
}

#[tokio::test]
async fn a_secret_can_be_imported_and_rotated() {
    let server = TestServer::with_acme().await;
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let made = server
        .post(ALL, json!({"url": "https://example.com/", "secret": own}))
        .await;
    assert_eq!(made.field("secret"), own);
    let path = format!("{ALL}/{}/secret", made.field("id"));
    let rotate = format!("{path}/rotate");
    let same = server.post(&rotate, json!({"secret": own})).await;
    assert_eq!(same.wrong_fields(), ["secret"]);
    let wrong = server
        .post(
            &rotate,
            json!({"secret": "x", "overlap": "31d", "when": "now"}),
        )
        .await;
    assert_eq!(wrong.wrong_fields(), ["secret", "overlap", "when"]);
    let rotated = server.post(&rotate, Value::Null).await;
    let new = rotated.field("secret");
    assert_ne!(new, own);
    let until = "2026-01-03T03:04:05.678Z";
    let previous = json!([{"secret": own, "valid_until": until}]);
    assert_eq!(rotated.json["previous"], previous);
    assert_eq!(server.get(&path).await.json, rotated.json);
    server.pass_ms(24 * 3_600_000);
    assert_eq!(server.get(&path).await.json["previous"], json!([]));
    let rotated = server.post(&rotate, json!({"overlap": "0s"})).await;
    assert_eq!(rotated.json["previous"], json!([]));
    for _ in 1..8 {
        let rotated = server.post(&rotate, json!({})).await;
        assert_eq!(rotated.status, 200);
    }
    let full = server.post(&rotate, json!({})).await;
    assert_eq!(full.status, 409);
    let emptied = server.post(&rotate, json!({"overlap": "0s"})).await;
    assert_eq!(emptied.status, 200);
}

#[tokio::test]
async fn an_ed25519_endpoint_shows_its_public_key() {
    let server = TestServer::with_acme().await;
    let key = format!("whsk_{}", "A".repeat(43) + "=");
    let made = server
        .post(ALL, json!({"url": "https://example.com/", "secret": key}))
        .await;
    assert_eq!(made.status, 201, "{}", made.json);
    let shown = server
        .get(&format!("{ALL}/{}/secret", made.field("id")))
        .await;
    assert!(shown.field("public_key").starts_with("whpk_"));
}

#[tokio::test]
async fn health_shows_counters_and_breaker() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let health = server.get(&format!("{path}/health")).await;
    assert_eq!(
        health.json,
        json!({
            "breaker": {"state": "passing", "until": null, "reason": null},
            "pending": 0, "in_flight": 0, "next_attempt_at": null,
            "consecutive_failures": 0, "success_ratio": 1.0,
            "latency_ms": {"p50": null, "p99": null}, "held_back_by": null, "held_back_until": null,
            "limits_in_force": {"in_flight": 10, "per_second": 100.0}, "quiet_until": null,
        })
    );
}

#[tokio::test]
async fn a_tripped_breaker_shows_even_when_the_engine_has_forgotten_the_endpoint() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let id = path.rsplit('/').next().expect("an id");
    let id = id.parse().expect("an id");
    let row = server.store.endpoint(id).await.expect("a store");
    let status = row.expect("an endpoint").status;
    let health = Health {
        revision: 1,
        consecutive_failures: 20,
        trip: Some(StoredTrip {
            until: Timestamp(1_767_323_105_678),
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 0,
        }),
        ..Health::default()
    };
    let set = server
        .store
        .set_endpoint_status(Timestamp(0), id, status, None, Some(health));
    assert_eq!(set.await, Ok(true));
    let health = server.get(&format!("{path}/health")).await;
    assert_eq!(
        health.json["breaker"],
        json!({
            "state": "tripped", "until": "2026-01-02T03:05:05.678Z",
            "reason": "consecutive_failures",
        })
    );
    assert_eq!(health.json["consecutive_failures"], 20);
}
