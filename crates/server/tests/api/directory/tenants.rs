//! The API for tenants: create, read, change, delete, and the limits of plans.
//!
//! Fixture: a [`TestServer`] without tenants.

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_store::{Limits, Plans};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const TENANT: &str = "/v1/tenants/acme";

#[tokio::test]
async fn a_tenant_reads_as_it_was_written() {
    let server = TestServer::without_tenants().await;
    let limits = json!({
        "endpoints": 100, "events_per_second": 500, "events_per_month": null,
        "payload_bytes": 1_048_576, "max_attempts": 30, "in_flight": 200, "retention": "30d",
        "deliveries_per_second": 2_000,
        "payload_retention": "1d", "attempt_retention": "2d",
        "schedules": 20, "shortest_schedule_interval": "1m",
    });
    let policy = json!({"preset": "swift", "max_attempts": 4});
    let defaults = json!({"timeout": "5s", "rate_limit": {"per_second": 20, "burst": 30}});
    let protection = json!({"breaker": {"refusals": 9}});
    let made = server
        .post(
            "/v1/tenants",
            json!({
                "id": "acme", "name": "Acme", "default_retry_policy": policy, "limits": limits,
                "endpoint_defaults": defaults, "protection": protection,
            }),
        )
        .await;
    assert_eq!(made.status, 201);
    let expected = json!({
        "id": "acme", "name": "Acme", "default_retry_policy": policy, "plan": null,
        "limits": limits, "endpoint_defaults": defaults, "protection": protection,
        "created_at": "2026-01-02T03:04:05.678Z",
    });
    assert_eq!(made.json, expected);
    assert_eq!(server.get(TENANT).await.json, expected);
    assert_eq!(
        server.get("/v1/tenants").await.json["data"],
        json!([expected])
    );
}

#[tokio::test]
async fn an_id_is_generated_if_none_is_given() {
    let server = TestServer::without_tenants().await;
    let made = server.post("/v1/tenants", json!({})).await;
    let id = made.field("id");
    assert!(id.starts_with("ten_"), "{id}");
    assert_eq!(made.field("name"), id);
    assert_eq!(server.get(&format!("/v1/tenants/{id}")).await.status, 200);
}

#[tokio::test]
async fn a_tenant_id_can_be_used_once() {
    let server = TestServer::with_acme().await;
    let again = server
        .post("/v1/tenants", json!({"id": "acme", "name": "Other"}))
        .await;
    assert_eq!(again.status, 409);
    assert_eq!(again.field("code"), "already_exists");
    assert_eq!(server.get(TENANT).await.field("name"), "acme");
}

#[tokio::test]
async fn all_field_errors_are_reported_at_once() {
    let server = TestServer::without_tenants().await;
    let answer = server
        .post(
            "/v1/tenants",
            json!({
                "id": "no spaces", "name": 5, "plan": "gold",
                "default_retry_policy": {"preset": "eager"},
                "limits": {
                    "endpoints": -1, "events_per_second": "many", "events_per_month": 1.5,
                    "payload_bytes": 0, "max_attempts": 0, "retention": "soon", "colour": "red",
                },
            }),
        )
        .await;
    assert_eq!(answer.field("code"), "invalid");
    let mut wrong = answer.wrong_fields();
    wrong.sort();
    assert_eq!(
        wrong,
        [
            "default_retry_policy.preset",
            "id",
            "limits.colour",
            "limits.endpoints",
            "limits.events_per_month",
            "limits.events_per_second",
            "limits.max_attempts",
            "limits.payload_bytes",
            "limits.retention",
            "name",
            "plan",
        ]
    );
}

#[tokio::test]
async fn a_patch_changes_only_named_fields_and_null_restores_the_default() {
    let server = TestServer::with_acme().await;
    let changed = server
        .patch(
            TENANT,
            json!({"name": "Acme", "limits": {"endpoints": 5, "retention": "7d"}}),
        )
        .await;
    assert_eq!(changed.status, 200, "{}", changed.json);
    let changed = server
        .patch(TENANT, json!({"limits": {"endpoints": null}}))
        .await;
    assert_eq!(changed.json["name"], "Acme");
    assert_eq!(changed.json["limits"]["endpoints"], Value::Null);
    assert_eq!(changed.json["limits"]["retention"], "7d");
    let changed = server
        .patch(TENANT, json!({"limits": null, "name": null}))
        .await;
    assert_eq!(changed.json["limits"]["retention"], Value::Null);
    assert_eq!(changed.json["name"], "acme");
    // The cached copy of the tenant changes immediately.
    assert_eq!(server.get(TENANT).await.json, changed.json);
    let refused = server.patch(TENANT, json!({"id": "other"})).await;
    assert_eq!(refused.wrong_fields(), ["id"]);
}

#[tokio::test]
async fn plan_limits_apply_where_the_tenant_sets_none() {
    let server = TestServer::with_settings(|settings| {
        let free = Limits {
            endpoints: Some(1),
            max_attempts: Some(5),
            ..Limits::default()
        };
        let named = BTreeMap::from([
            ("free".to_owned(), free),
            ("pro".to_owned(), Limits::default()),
        ]);
        settings.plans = Arc::new(Plans {
            named,
            ..Plans::default()
        });
    })
    .await;
    let made = server
        .post("/v1/tenants", json!({"id": "acme", "plan": "gold"}))
        .await;
    assert_eq!(made.status, 422);
    assert!(made.field("detail").contains("free, pro"), "{}", made.json);
    let made = server
        .post("/v1/tenants", json!({"id": "acme", "plan": "free"}))
        .await;
    assert_eq!(made.status, 201);
    assert_eq!(made.field("plan"), "free");
    server.endpoint_path("acme").await;
    let second = json!({"url": "https://example.com/second"});
    let refused = server
        .post("/v1/tenants/acme/endpoints", second.clone())
        .await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.field("code"), "quota_exceeded");
    let eager = json!({"default_retry_policy": {"preset": "swift"}});
    let refused = server.patch(TENANT, eager).await;
    assert_eq!(
        refused.wrong_fields(),
        ["default_retry_policy.max_attempts"]
    );
    // The tenant's own limit takes precedence over the plan.
    let changed = server
        .patch(TENANT, json!({"limits": {"endpoints": 2}}))
        .await;
    assert_eq!(changed.field("plan"), "free");
    assert_eq!(
        server
            .post("/v1/tenants/acme/endpoints", second)
            .await
            .status,
        201
    );
    let usage = server.get("/v1/tenants/acme/usage").await.json;
    assert_eq!(usage["plan"], "free");
    assert_eq!(usage["plan_found"], true);
    let shown = |name: &str| usage["limits"][name].clone();
    assert_eq!(
        shown("endpoints"),
        json!({"limit": 2, "used": 2, "source": "tenant", "resets_at": null})
    );
    assert_eq!(
        shown("max_attempts"),
        json!({"limit": 5, "used": null, "source": "plan", "resets_at": null})
    );
    assert_eq!(
        shown("in_flight"),
        json!({"limit": null, "used": 0, "source": "server", "resets_at": null})
    );
    let next_month = "2026-02-01T00:00:00.000Z";
    assert_eq!(
        shown("events_per_month"),
        json!({"limit": null, "used": 0, "source": "server", "resets_at": next_month})
    );
    let plans = server.get("/v1/plans").await.json;
    assert_eq!(plans["data"][0]["name"], "free");
    assert_eq!(plans["data"][0]["limits"]["endpoints"], 1);
    assert_eq!(plans["data"][1]["name"], "pro");
    let changed = server
        .patch(TENANT, json!({"plan": null, "limits": null}))
        .await;
    assert_eq!(changed.json["plan"], Value::Null);
    let third = json!({"url": "https://example.com/third"});
    assert_eq!(
        server
            .post("/v1/tenants/acme/endpoints", third)
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_plan_caps_max_attempts_of_policies() {
    let server = TestServer::with_acme().await;
    let changed = server
        .patch(TENANT, json!({"limits": {"max_attempts": 5}}))
        .await;
    assert_eq!(changed.status, 200);
    let policy = json!({"preset": "swift"});
    let refused = server
        .patch(TENANT, json!({"default_retry_policy": policy}))
        .await;
    assert_eq!(
        refused.wrong_fields(),
        ["default_retry_policy.max_attempts"]
    );
    let endpoint = server.endpoint_path("acme").await;
    let refused = server
        .patch(&endpoint, json!({"retry_policy": policy}))
        .await;
    assert_eq!(refused.wrong_fields(), ["retry_policy.max_attempts"]);
    let policy = json!({"preset": "swift", "max_attempts": 5});
    let changed = server
        .patch(&endpoint, json!({"retry_policy": policy}))
        .await;
    assert_eq!(changed.status, 200);
}

#[tokio::test]
async fn deleting_a_tenant_deletes_its_endpoints_and_keys() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let endpoint = server.endpoint_path("acme").await;
    for _ in 0..300 {
        server.endpoint_path("acme").await;
    }
    // The key and the endpoint are cached now, and the delete must remove them from the cache.
    let seen = server.call("GET", &endpoint, &key, Value::Null).await;
    assert_eq!(seen.status, 200);
    assert_eq!(server.delete(TENANT).await.status, 204);
    let seen = server.call("GET", &endpoint, &key, Value::Null).await;
    assert_eq!(seen.status, 401);
    assert_eq!(server.get(&endpoint).await.status, 404);
    assert_eq!(server.delete(TENANT).await.status, 404);
    let new_key = server.tenant("acme").await;
    assert_eq!(server.get(&endpoint).await.status, 404);
    let all = server.get("/v1/tenants/acme/endpoints").await;
    assert!(all.ids().is_empty());
    let seen = server.call("GET", TENANT, &key, Value::Null).await;
    assert_eq!(seen.status, 401);
    let seen = server.call("GET", TENANT, &new_key, Value::Null).await;
    assert_eq!(seen.status, 200);
}
