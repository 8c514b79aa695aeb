//! Requests for resources of another tenant, in every way.

use serde_json::{Value, json};

use super::document::Route;
use super::household::{Household, OTHER_TENANT, OWN, ghost, receiver};
use super::town::{Caller, Town};

/// Checks that the answer for a resource of another tenant equals the answer for one that does not exist.
async fn assert_same(
    caller: &Caller,
    verb: &str,
    (theirs, their_body): (&str, Option<&Value>),
    (nobodys, nobodys_body): (&str, Option<&Value>),
) -> u16 {
    let seen = caller.ask(verb, theirs, their_body).await;
    let unseen = caller.ask(verb, nobodys, nobodys_body).await;
    assert_eq!(seen, unseen, "{verb} {theirs} {their_body:?}");
    seen.status
}

/// Ids of the other tenant, of every kind, in paths below the own tenant.
async fn foreign_ids(route: &Route, own: &Household, theirs: &Household, admin: &Caller) {
    let body = route.body.as_ref();
    for noun in &route.nouns {
        for (kind, id) in theirs.all_ids() {
            let place = format!("{{{noun}}}");
            let with = |id: &str| own.path(&route.path.replace(&place, id));
            for caller in [&own.caller, admin] {
                let (theirs, nobodys) = (with(id), with(&ghost(id)));
                let status =
                    assert_same(caller, &route.verb, (&theirs, body), (&nobodys, body)).await;
                assert_eq!(status, 404, "{} with a foreign {kind}", route.name());
            }
        }
    }
}

/// Paths of the other tenant, with the own key.
async fn foreign_paths(route: &Route, own: &Household, theirs: &Household) {
    let body = route.body.as_ref();
    let nobody = ghost(&theirs.tenant);
    let pattern = |tenant: &str| route.path.replace("{tenant}", tenant);
    for whose in [own, theirs] {
        let at_theirs = whose.path(&pattern(&theirs.tenant));
        let at_nobodys = whose.path(&pattern(&nobody));
        let asked = ((at_theirs.as_str(), body), (at_nobodys.as_str(), body));
        let status = assert_same(&own.caller, &route.verb, asked.0, asked.1).await;
        assert_eq!(status, 404, "{}", route.name());
    }
    // An invalid body does not change the answer: the path is checked first.
    let wrong = json!({"no such field": [theirs.id("endpoint")]});
    let at_theirs = theirs.path(&pattern(&theirs.tenant));
    let at_nobodys = theirs.path(&pattern(&nobody));
    let asked = (
        (at_theirs.as_str(), Some(&wrong)),
        (at_nobodys.as_str(), Some(&wrong)),
    );
    let status = assert_same(&own.caller, &route.verb, asked.0, asked.1).await;
    assert_eq!(status, 404, "{}", route.name());
}

/// Ids of the other tenant in queries and bodies.
async fn foreign_names(route: &Route, own: &Household, theirs: &Household, admin: &Caller) -> u32 {
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
                let (theirs, nobodys) = (with(id), with(&ghost(id)));
                let body = route.body.as_ref();
                assert_same(caller, &route.verb, (&theirs, body), (&nobodys, body)).await;
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
                let mut nobodys = example.clone();
                nobodys[name] = json!(ghost(id));
                for caller in [&own.caller, admin] {
                    let asked = (
                        (path.as_str(), Some(&example)),
                        (path.as_str(), Some(&nobodys)),
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
async fn what_is_anothers_does_not_exist_and_is_not_touched() {
    let town = Town::found().await;
    let receiver = receiver().await;
    let theirs = Household::create(&town, &receiver, OTHER_TENANT).await;
    let own = Household::create(&town, &receiver, OWN).await;
    let admin = town.admin();
    let before = town.state(&theirs).await;
    let arrived = receiver.count();

    let mut named = 0;
    for route in town.routes.iter().filter(|route| route.is_tenants()) {
        foreign_ids(route, &own, &theirs, &admin).await;
        foreign_paths(route, &own, &theirs).await;
        named += foreign_names(route, &own, &theirs, &admin).await;
    }
    assert!(named > 20, "only {named} names in queries and bodies");

    let after = town.state(&theirs).await;
    for (path, state) in &before {
        assert_eq!(after.get(path), Some(state), "{path} has changed");
    }
    assert_eq!(after.len(), before.len());
    assert_eq!(receiver.count(), arrived, "something was sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_idempotency_key_is_another_one_at_another_tenant() {
    let town = Town::found().await;
    let receiver = receiver().await;
    let theirs = Household::create(&town, &receiver, OTHER_TENANT).await;
    let before = town.state(&theirs).await;
    let own = Household::create(&town, &receiver, OWN).await;
    // `Household::create` used the same idempotency keys with other content, which is a conflict within one tenant.
    for (kind, id) in own.all_ids() {
        assert!(
            !theirs.ids[kind].iter().any(|other| other == id),
            "{kind} {id}"
        );
    }
    assert_eq!(town.state(&theirs).await, before);
}
