//! Requests for resources of another tenant, in every way.

use serde_json::{Value, json};

use super::fixture::{Caller, IsolationFixture};
use super::openapi_routes::Route;
use super::tenant_data::{OTHER_TENANT, OWN, TenantData, missing_id, receiver};

/// Checks that the answer for a resource of another tenant equals the answer for one that does not exist.
async fn assert_same(
    caller: &Caller,
    verb: &str,
    (theirs, their_body): (&str, Option<&Value>),
    (missing, missing_body): (&str, Option<&Value>),
) -> u16 {
    let seen = caller.call(verb, theirs, their_body).await;
    let unseen = caller.call(verb, missing, missing_body).await;
    assert_eq!(seen, unseen, "{verb} {theirs} {their_body:?}");
    seen.status
}

/// Ids of the other tenant, of every kind, in paths below the own tenant.
async fn foreign_ids(route: &Route, own: &TenantData, theirs: &TenantData, admin: &Caller) {
    let body = route.body.as_ref();
    for noun in &route.nouns {
        for (kind, id) in theirs.all_ids() {
            let place = format!("{{{noun}}}");
            let with = |id: &str| own.path(&route.path.replace(&place, id));
            for caller in [&own.caller, admin] {
                let (theirs, missing) = (with(id), with(&missing_id(id)));
                let status =
                    assert_same(caller, &route.verb, (&theirs, body), (&missing, body)).await;
                assert_eq!(status, 404, "{} with a foreign {kind}", route.name());
            }
        }
    }
}

/// Paths of the other tenant, with the own key.
async fn foreign_paths(route: &Route, own: &TenantData, theirs: &TenantData) {
    let body = route.body.as_ref();
    let no_tenant = missing_id(&theirs.tenant);
    let pattern = |tenant: &str| route.path.replace("{tenant}", tenant);
    for tenant_of in [own, theirs] {
        let at_theirs = tenant_of.path(&pattern(&theirs.tenant));
        let at_missing = tenant_of.path(&pattern(&no_tenant));
        let asked = ((at_theirs.as_str(), body), (at_missing.as_str(), body));
        let status = assert_same(&own.caller, &route.verb, asked.0, asked.1).await;
        assert_eq!(status, 404, "{}", route.name());
    }
    // An invalid body does not change the answer: the path is checked first.
    let wrong = json!({"no such field": [theirs.id("endpoint")]});
    let at_theirs = theirs.path(&pattern(&theirs.tenant));
    let at_missing = theirs.path(&pattern(&no_tenant));
    let asked = (
        (at_theirs.as_str(), Some(&wrong)),
        (at_missing.as_str(), Some(&wrong)),
    );
    let status = assert_same(&own.caller, &route.verb, asked.0, asked.1).await;
    assert_eq!(status, 404, "{}", route.name());
}

/// Ids of the other tenant in queries and bodies.
async fn foreign_names(
    route: &Route,
    own: &TenantData,
    theirs: &TenantData,
    admin: &Caller,
) -> u32 {
    let mut count = 0;
    let path = own.path(&route.path);
    for name in &route.query {
        for (_, id) in theirs.all_ids() {
            if !theirs.ids.contains_key(name.as_str()) {
                continue;
            }
            count += 1;
            let with = |id: &str| format!("{path}?{name}={id}");
            for caller in [&own.caller, admin] {
                let (theirs, missing) = (with(id), with(&missing_id(id)));
                let body = route.body.as_ref();
                assert_same(caller, &route.verb, (&theirs, body), (&missing, body)).await;
            }
        }
    }
    for name in &route.named_in_body {
        for (_, id) in theirs.all_ids() {
            let examples = [
                route.body.clone().unwrap_or(json!({})),
                json!({"missed_since": "2020-01-01T00:00:00Z"}),
            ];
            for mut example in examples {
                count += 1;
                example[name] = json!(id);
                let mut missing = example.clone();
                missing[name] = json!(missing_id(id));
                for caller in [&own.caller, admin] {
                    let asked = (
                        (path.as_str(), Some(&example)),
                        (path.as_str(), Some(&missing)),
                    );
                    let status = assert_same(caller, &route.verb, asked.0, asked.1).await;
                    assert!(
                        (400..500).contains(&status),
                        "{} took {example}",
                        route.name()
                    );
                }
            }
        }
    }
    count
}

// On two threads, so that the receiver keeps serving during the many requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenants_resources_are_not_found_and_unchanged() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    let theirs = TenantData::create(&fixture, &receiver, OTHER_TENANT).await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    let admin = fixture.admin();
    let before = fixture.state(&theirs).await;
    let arrived = receiver.count();

    let mut named = 0;
    for route in fixture.routes.iter().filter(|route| route.is_tenants()) {
        foreign_ids(route, &own, &theirs, &admin).await;
        foreign_paths(route, &own, &theirs).await;
        named += foreign_names(route, &own, &theirs, &admin).await;
    }
    assert!(named > 20, "only {named} names in queries and bodies");

    let after = fixture.state(&theirs).await;
    for (path, state) in &before {
        assert_eq!(after.get(path), Some(state), "{path} has changed");
    }
    assert_eq!(after.len(), before.len());
    assert_eq!(receiver.count(), arrived, "the requests caused a delivery");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotency_keys_are_separate_per_tenant() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    let theirs = TenantData::create(&fixture, &receiver, OTHER_TENANT).await;
    let before = fixture.state(&theirs).await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    // `TenantData::create` used the same idempotency keys with other content, which is a conflict within one tenant.
    for (kind, id) in own.all_ids() {
        assert!(
            !theirs.ids[kind].iter().any(|other| other == id),
            "{kind} {id}"
        );
    }
    assert_eq!(fixture.state(&theirs).await, before);
}
