//! Pages with live updates: when the updates end, and how many followers a tenant may have.

use serde_json::json;

use super::kit::{ADMIN, World};

#[tokio::test]
async fn whoever_may_not_look_any_more_is_told_nothing_more() {
    let world = World::new().await;
    let made = json!({"name": "desk"});
    let made = world.post("/v1/tenants/acme/keys", &made).await.ok(201);
    let key = made["key"].as_str().unwrap();
    let mut by_key = world.follow("/dashboard/t/acme", Some(key)).await;
    by_key.until("event: section").await;
    let link = world
        .post("/v1/tenants/acme/portal-links", &json!({}))
        .await;
    let link = link.ok(201);
    let url = link["url"].as_str().unwrap();
    let portal = &url[url.find("/portal/").unwrap()..];
    let mut by_link = world.follow(portal, None).await;
    by_link.until("event: section").await;

    let key = format!("/v1/tenants/acme/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(world.call("DELETE", &key, None).await.status, 204);
    let id = link["id"].as_str().unwrap();
    let one = format!("/v1/tenants/acme/portal-links/{id}");
    assert_eq!(world.call("DELETE", &one, None).await.status, 204);
    for followed in [&mut by_key, &mut by_link] {
        followed.until("event: ended").await;
        followed.end().await;
    }
}

#[tokio::test]
async fn a_server_that_stops_waits_for_nobody_who_looks() {
    let world = World::new().await;
    let mut followed = world.follow("/dashboard", Some(ADMIN)).await;
    followed.until("event: section").await;
    world.stop();
    followed.end().await;
    assert!(
        !followed.said.contains("event: ended"),
        "they may come back"
    );
}

#[tokio::test]
async fn what_never_changes_is_not_followed() {
    let world = World::new().await;
    let mut followed = world.follow("/dashboard/lab", Some(ADMIN)).await;
    assert_eq!(followed.status, 200);
    followed.end().await;
    assert!(!followed.said.contains("event:"), "{}", followed.said);
}

#[tokio::test]
async fn one_tenants_people_leave_places_to_others() {
    let world = World::new().await;
    let key = world.tenant("other").await;
    let mut followed = Vec::new();
    let refused = loop {
        let next = world.follow("/dashboard/t/other", Some(&key)).await;
        if next.status != 200 {
            break next;
        }
        followed.push(next);
        assert!(followed.len() <= 20, "as many as it likes");
    };
    assert_eq!(refused.status, 503);
    let admin = world.follow("/dashboard/t/other", Some(ADMIN)).await;
    assert_eq!(admin.status, 200);
    // A follower that disconnects makes room for another.
    drop(followed);
    let again = async {
        while world.follow("/dashboard/t/other", Some(&key)).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::kit::PATIENCE, again)
        .await
        .expect("there is room");
}
