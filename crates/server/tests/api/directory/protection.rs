//! The API for limits and thresholds that endpoints inherit: `endpoint_defaults` and `protection`.
//!
//! Fixture: a [`TestServer`] with the tenant acme. An endpoint of it sets nothing, unless a test says so.

use serde_json::{Value, json};

use crate::fixture::{ApiResponse, TestServer};

const ACME: &str = "/v1/tenants/acme";

fn fields(response: &ApiResponse) -> Vec<String> {
    assert_eq!(response.status, 422, "{}", response.json);
    let mut fields = response.wrong_fields();
    fields.sort();
    fields
}

#[tokio::test]
async fn limits_are_inherited_and_follow_later_changes() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let limits = async || {
        let read = server.get(&path).await.json;
        let shown = |name: &str| (read[name].clone(), read[format!("{name}_from")].clone());
        [
            shown("timeout"),
            shown("max_in_flight"),
            shown("rate_limit"),
        ]
    };
    let rate = json!({"per_second": 100, "burst": 200});
    let server_rate = || (rate.clone(), json!("server"));
    let expected = [
        (json!("30s"), json!("server")),
        (json!(10), json!("server")),
        server_rate(),
    ];
    assert_eq!(limits().await, expected);
    let defaults = json!({"timeout": "7s", "max_in_flight": 3});
    let tenant = server
        .patch(ACME, json!({"endpoint_defaults": defaults}))
        .await;
    assert_eq!(tenant.json["endpoint_defaults"], defaults);
    let expected = [
        (json!("7s"), json!("tenant")),
        (json!(3), json!("tenant")),
        server_rate(),
    ];
    assert_eq!(limits().await, expected);
    // What the endpoint sets wins, and null resets it.
    server.patch(&path, json!({"timeout": "9s"})).await;
    assert_eq!(limits().await[0], (json!("9s"), json!("endpoint")));
    let changed = json!({"endpoint_defaults": {"timeout": "8s", "max_in_flight": null,
        "rate_limit": {"per_second": 5}}});
    let tenant = server.patch(ACME, changed).await;
    let expected = json!({"timeout": "8s", "rate_limit": {"per_second": 5, "burst": 10}});
    assert_eq!(tenant.json["endpoint_defaults"], expected);
    let five = || (json!({"per_second": 5, "burst": 10}), json!("tenant"));
    let ten = || (json!(10), json!("server"));
    let expected = [(json!("9s"), json!("endpoint")), ten(), five()];
    assert_eq!(limits().await, expected);
    server.patch(&path, json!({"timeout": null})).await;
    assert_eq!(
        limits().await,
        [(json!("8s"), json!("tenant")), ten(), five()]
    );
    let tenant = server.patch(ACME, json!({"endpoint_defaults": null})).await;
    assert_eq!(tenant.json["endpoint_defaults"], Value::Null);
    assert_eq!(limits().await[2], server_rate());
}

#[tokio::test]
async fn protection_reads_as_it_was_written() {
    let server = TestServer::without_tenants().await;
    let all = json!({
        "disable": {"after": "5d", "warn_before": "1d", "on_gone": true},
        "breaker": {
            "window": "30s", "min_samples": 5, "failure_ratio": 0.25, "consecutive_failures": 6,
            "exhausted_deliveries": 7, "refusals": 100, "first_wait": "1s", "longest_wait": "1m",
        },
    });
    let tenant = json!({"id": "acme", "protection": all});
    let made = server.post("/v1/tenants", tenant).await;
    assert_eq!(made.status, 201, "{}", made.json);
    assert_eq!(made.json["protection"], all);
    assert_eq!(server.get(ACME).await.json["protection"], all);
    let endpoints = format!("{ACME}/endpoints");
    let endpoint = json!({"url": "https://example.com/", "protection": all});
    let made = server.post(&endpoints, endpoint).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let path = format!("{endpoints}/{}", made.field("id"));
    assert_eq!(server.get(&path).await.json["protection"], all);
    for path in [ACME, &path] {
        let change = json!({"protection": {"disable": {"after": null}, "breaker": null}});
        let changed = server.patch(path, change).await.json;
        let left = json!({"disable": {"warn_before": "1d", "on_gone": true}});
        assert_eq!(changed["protection"], left);
        assert_eq!(server.get(path).await.json["protection"], left);
        let changed = server.patch(path, json!({"protection": null})).await;
        assert_eq!(changed.json["protection"], Value::Null);
    }
}

#[tokio::test]
async fn every_mistake_is_reported_at_once() {
    let server = TestServer::with_acme().await;
    let endpoint = server.endpoint_path("acme").await;
    let endpoints = format!("{ACME}/endpoints");
    let wrong = json!({
        "disable": {"after": "soon", "warn_before": "-1d", "on_gone": 1, "never": true},
        "breaker": {"refusals": 0, "failure_ratio": 2, "window": "1ms", "trips": 1},
        "pace": {},
    });
    let in_protection = [
        "protection.breaker.failure_ratio",
        "protection.breaker.refusals",
        "protection.breaker.trips",
        "protection.breaker.window",
        "protection.disable.after",
        "protection.disable.never",
        "protection.disable.on_gone",
        "protection.disable.warn_before",
        "protection.pace",
    ];
    let body = json!({"url": "https://example.com/", "protection": wrong, "timeout": "1h"});
    let mut expected = in_protection.to_vec();
    expected.push("timeout");
    assert_eq!(
        fields(&server.post(&endpoints, body.clone()).await),
        expected
    );
    assert_eq!(fields(&server.patch(&endpoint, body).await), expected);
    let defaults =
        json!({"timeout": "61s", "max_in_flight": 0, "rate_limit": {"burst": 0}, "url": ""});
    let body = json!({"protection": wrong, "endpoint_defaults": defaults});
    let mut expected = vec![
        "endpoint_defaults.max_in_flight",
        "endpoint_defaults.rate_limit.burst",
        "endpoint_defaults.rate_limit.per_second",
        "endpoint_defaults.timeout",
        "endpoint_defaults.url",
    ];
    expected.extend(in_protection);
    assert_eq!(
        fields(&server.post("/v1/tenants", body.clone()).await),
        expected
    );
    assert_eq!(fields(&server.patch(ACME, body).await), expected);
    let contradiction = json!({"protection": {"disable": {"after": "1h", "warn_before": "2h"}}});
    let expected = ["protection.disable.warn_before"];
    assert_eq!(
        fields(&server.patch(&endpoint, contradiction).await),
        expected
    );
}
