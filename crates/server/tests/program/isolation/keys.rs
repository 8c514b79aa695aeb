//! Invalid keys, and routes that a tenant's key cannot use.

use serde_json::json;

use super::fixture::IsolationFixture;
use super::tenant_data::{DELETED_TENANT, OTHER_TENANT, OWN, TenantData, missing_id, receiver};

const ADMIN_ONLY: &str = "Requires an admin key.";
const OPEN: &str = "No key required.";

/// A revoked key, a key of a deleted tenant and no key get the same answer as a key that never existed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_answered_like_an_unknown_key() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    let gone = TenantData::create(&fixture, &receiver, DELETED_TENANT).await;
    let admin = fixture.admin();
    let more = admin
        .call(
            "POST",
            "/v1/tenants/own-5d1f/keys",
            Some(&json!({"name": "brief"})),
        )
        .await
        .json(201);
    let revoked = fixture.caller(more["key"].as_str().expect("a key"));
    // Used first, so that the keys are cached.
    for caller in [&revoked, &own.caller] {
        let seen = caller.call("GET", "/v1/tenants/own-5d1f", None).await;
        assert_eq!(seen.status, 200);
    }
    let id = more["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/own-5d1f/keys/{id}");
    assert_eq!(admin.call("DELETE", &path, None).await.status, 204);
    assert_eq!(
        gone.caller
            .call("GET", "/v1/tenants/gone-19e2", None)
            .await
            .status,
        200
    );
    assert_eq!(
        admin
            .call("DELETE", "/v1/tenants/gone-19e2", None)
            .await
            .status,
        204
    );

    let never = fixture.caller("ph_never");
    let without_key = fixture.caller("");
    let mut count = 0;
    for route in fixture.routes.iter().filter(|route| route.access != OPEN) {
        for tenant_data in [&own, &gone] {
            let path = tenant_data.path(&route.path);
            let body = route.body.as_ref();
            let expected = never.call(&route.verb, &path, body).await;
            assert_eq!(expected.status, 401, "{}", route.name());
            for caller in [&revoked, &gone.caller] {
                let seen = caller.call(&route.verb, &path, body).await;
                assert_eq!(seen, expected, "{}", route.name());
                count += 1;
            }
            // The detail tells a missing key from a wrong one, which the caller knows anyway.
            let seen = without_key.call(&route.verb, &path, body).await;
            assert_eq!(seen.status, 401, "{}", route.name());
        }
    }
    assert!(count > 100, "only {count} requests");
    let seen = own.caller.call("GET", "/v1/tenants/own-5d1f", None).await;
    assert_eq!(
        seen.status, 200,
        "the other key of the tenant is still valid"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_routes_are_refused_to_tenants_without_details() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    let theirs = TenantData::create(&fixture, &receiver, OTHER_TENANT).await;
    let before = fixture.state(&theirs).await;
    let mut count = 0;
    for route in fixture
        .routes
        .iter()
        .filter(|route| route.access == ADMIN_ONLY)
    {
        count += 1;
        let body = route.body.as_ref();
        let seen = own
            .caller
            .call(&route.verb, &own.path(&route.path), body)
            .await;
        assert_eq!(seen.json(403)["code"], "forbidden", "{}", route.name());
        // A tenant must not learn whether a tenant id is taken.
        for tenant in [theirs.tenant.as_str(), &missing_id(&theirs.tenant)] {
            let body = json!({"id": tenant, "name": "x"});
            let other = own
                .caller
                .call(&route.verb, &theirs.path(&route.path), Some(&body))
                .await;
            assert_eq!(other, seen, "{}", route.name());
        }
    }
    assert!(count >= 3, "only {count} routes are for admins");
    // Stats and policies of the whole server contain nothing of a tenant.
    for route in fixture
        .routes
        .iter()
        .filter(|route| !route.is_tenants() && route.is_get())
    {
        let seen = own.caller.call("GET", &own.path(&route.path), None).await;
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        for (kind, id) in theirs.all_ids() {
            assert!(
                !text.contains(id),
                "{} shows a foreign {kind}",
                route.name()
            );
        }
    }
    assert_eq!(fixture.state(&theirs).await, before);
}
