//! Access rights of each kind of key, and the answers to callers without access.

use http::StatusCode;
use posthaste_api::route::Access;
use posthaste_api::routes;
use posthaste_store::StoreError;
use serde_json::{Value, json};

use crate::fixture::{ADMIN, TestServer};

/// Returns every route that needs a key, with ids that do not exist.
fn keyed_routes() -> Vec<(&'static str, String, Access)> {
    routes::all()
        .filter(|route| route.access != Access::Open)
        .map(|route| {
            let path = route
                .path
                .replace("{tenant}", "acme")
                .replace("{endpoint}", "ep_00000000000000000000000000")
                .replace("{key}", "key_00000000000000000000000000")
                .replace("{event}", "evt_00000000000000000000000000")
                .replace("{delivery}", "dlv_00000000000000000000000000")
                .replace("{replay}", "rpl_00000000000000000000000000");
            (route.verb.as_str(), path, route.access)
        })
        .collect()
}

#[tokio::test]
async fn requests_without_a_valid_key_are_refused() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    for (verb, path, _) in keyed_routes() {
        for key in ["", "ph_unknown", &key[..key.len() - 1]] {
            let answer = server.call(verb, &path, key, Value::Null).await;
            assert_eq!(answer.status, 401, "{verb} {path}");
            assert_eq!(answer.field("code"), "unauthorized");
        }
    }
}

#[tokio::test]
async fn a_missing_key_and_a_wrong_key_are_told_apart() {
    let server = TestServer::without_tenants().await;
    let missing = server.call("GET", "/v1/stats", "", Value::Null).await;
    assert!(missing.field("detail").contains("has no API key"));
    // The second time the key is known to be wrong.
    for _ in 0..2 {
        let wrong = server
            .call("GET", "/v1/stats", "ph_unknown", Value::Null)
            .await;
        assert!(
            wrong
                .field("detail")
                .contains("unknown or has been revoked")
        );
    }
}

#[tokio::test]
async fn another_tenants_path_is_not_found() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    server.tenant("other").await;
    let endpoint = server.endpoint_path("other").await;
    let id = endpoint.rsplit('/').next().expect("an id");
    for (verb, path, access) in keyed_routes() {
        if !matches!(access, Access::Tenant | Access::TenantKey) {
            continue;
        }
        let theirs = path
            .replace("/acme", "/other")
            .replace("ep_00000000000000000000000000", id);
        let missing = path.replace("/acme", "/missing");
        let theirs = server.call(verb, &theirs, &key, Value::Null).await;
        let missing = server.call(verb, &missing, &key, Value::Null).await;
        assert_eq!(theirs.status, 404, "{verb} {path}");
        assert_eq!(theirs.bytes, missing.bytes, "{verb} {path}");
        assert_eq!(theirs.headers, missing.headers, "{verb} {path}");
    }
    let untouched = server.get(&endpoint).await;
    assert_eq!(untouched.json["status"], "enabled");
}

#[tokio::test]
async fn another_tenants_endpoint_under_the_own_path_is_not_found() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    server.tenant("other").await;
    let theirs = server
        .endpoint_path("other")
        .await
        .replace("/other/", "/acme/");
    let missing = "/v1/tenants/acme/endpoints/ep_00000000000000000000000000";
    for (verb, tail) in [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/enable"),
        ("POST", "/disable"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/secret"),
        ("POST", "/secret/rotate"),
        ("GET", "/health"),
    ] {
        let body = if verb == "PATCH" {
            json!({})
        } else {
            Value::Null
        };
        for key in [key.as_str(), ADMIN] {
            let a = server
                .call(verb, &format!("{theirs}{tail}"), key, body.clone())
                .await;
            let b = server
                .call(verb, &format!("{missing}{tail}"), key, body.clone())
                .await;
            assert_eq!(a.status, 404, "{verb} {tail}");
            assert_eq!(a.bytes, b.bytes, "{verb} {tail}");
        }
    }
}

#[tokio::test]
async fn admin_routes_are_forbidden_to_a_tenants_key() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let mut count = 0;
    for (verb, path, access) in keyed_routes() {
        if access == Access::Admin {
            count += 1;
            let answer = server.call(verb, &path, &key, json!({})).await;
            assert_eq!(answer.status, 403, "{verb} {path}");
            assert_eq!(answer.field("code"), "forbidden");
        }
    }
    assert!(count >= 3);
    assert_eq!(server.get("/v1/tenants/acme").await.status, 200);
}

#[tokio::test]
async fn only_an_admin_deletes_a_tenant() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    server.tenant("other").await;
    for (path, status) in [
        ("/v1/tenants/acme", 403),
        ("/v1/tenants/other", 404),
        ("/v1/tenants/missing", 404),
    ] {
        let answer = server.call("DELETE", path, &key, Value::Null).await;
        assert_eq!(answer.status, status, "{path}");
    }
    for path in ["/v1/tenants/acme", "/v1/tenants/other"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_tenant_key_can_use_its_own_tenant() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let own = server
        .call("GET", "/v1/tenants/acme", &key, Value::Null)
        .await;
    assert_eq!(own.json["id"], "acme");
    let body = json!({"url": "https://example.com/x"});
    let made = server
        .call("POST", "/v1/tenants/acme/endpoints", &key, body)
        .await;
    assert_eq!(made.status, 201);
    let renamed = server
        .call("PATCH", "/v1/tenants/acme", &key, json!({"name": "New"}))
        .await;
    assert_eq!(renamed.json["name"], "New");
    // Otherwise a tenant could change its own plan.
    let richer = json!({"limits": {"endpoints": 9}});
    let answer = server.call("PATCH", "/v1/tenants/acme", &key, richer).await;
    assert_eq!(answer.status, 403);
    let limits = &server.get("/v1/tenants/acme").await.json["limits"];
    assert_eq!(limits["endpoints"], Value::Null);
    let richer = json!({"plan": null});
    let answer = server.call("PATCH", "/v1/tenants/acme", &key, richer).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn requests_are_rate_limited_per_key() {
    let server = TestServer::with_settings(|settings| {
        settings.key_rate.per_second = 2;
        settings.key_rate.burst = 3;
    })
    .await;
    for _ in 0..3 {
        assert_eq!(server.get("/v1/tenants").await.status, 200);
    }
    let answer = server.get("/v1/tenants").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.field("code"), "rate_limited");
    server.pass_ms(500);
    assert_eq!(server.get("/v1/tenants").await.status, 200);
    assert_eq!(server.get("/v1/tenants").await.status, 429);
}

#[tokio::test]
async fn store_errors_are_reported_with_retry_after() {
    let server = TestServer::with_acme().await;
    for (error, status, code) in [
        (StoreError::Full, 507, "disk_full"),
        (StoreError::Overloaded, 503, "overloaded"),
        (StoreError::Closed, 503, "shutting_down"),
        (
            StoreError::Unavailable("disk /dev/sda1 is on fire".to_owned()),
            503,
            "unavailable",
        ),
    ] {
        server.store.fail_writes(Some(error));
        let answer = server.post("/v1/tenants", json!({"id": "new"})).await;
        assert_eq!(answer.status, StatusCode::from_u16(status).expect("one"));
        assert_eq!(answer.field("code"), code);
        // An answer does not reveal details of the disk.
        assert!(!answer.field("detail").contains("sda1"));
        let ready = server.get("/readyz").await;
        assert_eq!(ready.status.as_u16(), status);
        assert_eq!(server.get("/healthz").await.status, 200);
    }
    server.store.fail_writes(None);
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.get("/v1/tenants/new").await.status, 404);
}
