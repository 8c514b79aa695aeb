//! Invalid keys, and routes that a tenant's key cannot use.

use serde_json::json;

use super::household::{DELETED_TENANT, Household, OTHER_TENANT, OWN, ghost, receiver};
use super::town::Town;

const ADMIN_ONLY: &str = "Needs an admin key.";
const OPEN: &str = "Needs no key.";

/// A revoked key, a key of a deleted tenant and no key get the same answer as a key that never existed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_taken_away_is_as_one_that_never_was() {
    let town = Town::found().await;
    let receiver = receiver().await;
    let own = Household::create(&town, &receiver, OWN).await;
    let gone = Household::create(&town, &receiver, DELETED_TENANT).await;
    let admin = town.admin();
    let more = admin
        .ask(
            "POST",
            "/v1/tenants/own-5d1f/keys",
            Some(&json!({"name": "brief"})),
        )
        .await
        .json(201);
    let revoked = town.caller(more["key"].as_str().expect("a key"));
    // Used first, so that the keys are cached.
    for caller in [&revoked, &own.caller] {
        let seen = caller.ask("GET", "/v1/tenants/own-5d1f", None).await;
        assert_eq!(seen.status, 200);
    }
    let id = more["id"].as_str().expect("an id");
    let path = format!("/v1/tenants/own-5d1f/keys/{id}");
    assert_eq!(admin.ask("DELETE", &path, None).await.status, 204);
    assert_eq!(
        gone.caller
            .ask("GET", "/v1/tenants/gone-19e2", None)
            .await
            .status,
        200
    );
    assert_eq!(
        admin
            .ask("DELETE", "/v1/tenants/gone-19e2", None)
            .await
            .status,
        204
    );

    let never = town.caller("ph_never");
    let nobody = town.caller("");
    let mut count = 0;
    for route in town.routes.iter().filter(|route| route.access != OPEN) {
        for house in [&own, &gone] {
            let path = house.path(&route.path);
            let body = route.body.as_ref();
            let expected = never.ask(&route.verb, &path, body).await;
            assert_eq!(expected.status, 401, "{}", route.name());
            for caller in [&revoked, &gone.caller, &nobody] {
                let seen = caller.ask(&route.verb, &path, body).await;
                assert_eq!(seen, expected, "{}", route.name());
                count += 1;
            }
        }
    }
    assert!(count > 100, "only {count} requests");
    let seen = own.caller.ask("GET", "/v1/tenants/own-5d1f", None).await;
    assert_eq!(seen.status, 200, "the other key of the tenant still holds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_for_admins_is_closed_to_a_tenant_and_tells_it_nothing() {
    let town = Town::found().await;
    let receiver = receiver().await;
    let own = Household::create(&town, &receiver, OWN).await;
    let theirs = Household::create(&town, &receiver, OTHER_TENANT).await;
    let before = town.state(&theirs).await;
    let mut count = 0;
    for route in town
        .routes
        .iter()
        .filter(|route| route.access == ADMIN_ONLY)
    {
        count += 1;
        let body = route.body.as_ref();
        let seen = own
            .caller
            .ask(&route.verb, &own.path(&route.path), body)
            .await;
        assert_eq!(seen.json(403)["code"], "forbidden", "{}", route.name());
        // A tenant must not learn whether a tenant id is taken.
        for tenant in [theirs.tenant.as_str(), &ghost(&theirs.tenant)] {
            let body = json!({"id": tenant, "name": "x"});
            let other = own
                .caller
                .ask(&route.verb, &theirs.path(&route.path), Some(&body))
                .await;
            assert_eq!(other, seen, "{}", route.name());
        }
    }
    assert!(count >= 3, "only {count} routes are for admins");
    // Stats and policies of the whole server contain nothing of a tenant.
    for route in town
        .routes
        .iter()
        .filter(|route| !route.is_tenants() && route.is_get())
    {
        let seen = own.caller.ask("GET", &own.path(&route.path), None).await;
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        for (kind, id) in theirs.all_ids() {
            assert!(
                !text.contains(id),
                "{} shows a foreign {kind}",
                route.name()
            );
        }
    }
    assert_eq!(town.state(&theirs).await, before);
}
