//! Pages with live updates: when the updates end, and how many followers a tenant may have.

use posthaste_testbed::PATIENCE;
use serde_json::json;

use crate::fixture::{ADMIN, TestServer};

#[tokio::test]
async fn live_updates_end_when_the_key_or_link_is_revoked() {
    let server = TestServer::start().await;
    let made = json!({"name": "desk"});
    let made = server.post("/v1/tenants/acme/keys", &made).await.ok(201);
    let key = made["key"].as_str().unwrap();
    let mut by_key = server.follow("/dashboard/t/acme", Some(key)).await;
    by_key.until("event: section").await;
    let link = server
        .post("/v1/tenants/acme/portal-links", &json!({}))
        .await;
    let link = link.ok(201);
    let url = link["url"].as_str().unwrap();
    let portal = &url[url.find("/portal/").unwrap()..];
    let mut by_link = server.follow(portal, None).await;
    by_link.until("event: section").await;

    let key = format!("/v1/tenants/acme/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.delete(&key).await.status, 204);
    let id = link["id"].as_str().unwrap();
    let one = format!("/v1/tenants/acme/portal-links/{id}");
    assert_eq!(server.delete(&one).await.status, 204);
    for followed in [&mut by_key, &mut by_link] {
        followed.until("event: ended").await;
        followed.end().await;
    }
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_open_pages() {
    let server = TestServer::start().await;
    let mut followed = server.follow("/dashboard", Some(ADMIN)).await;
    followed.until("event: section").await;
    server.stop();
    followed.end().await;
    assert!(
        !followed.received.contains("event: ended"),
        "clients may reconnect"
    );
}

#[tokio::test]
async fn a_page_without_live_data_ends_its_stream() {
    let server = TestServer::start().await;
    let mut followed = server.follow("/dashboard/lab", Some(ADMIN)).await;
    assert_eq!(followed.status, 200);
    followed.end().await;
    assert!(
        !followed.received.contains("event:"),
        "{}",
        followed.received
    );
}

#[tokio::test]
async fn the_number_of_open_pages_per_tenant_is_limited() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let mut followed = Vec::new();
    let refused = loop {
        let next = server.follow("/dashboard/t/other", Some(&key)).await;
        if next.status != 200 {
            break next;
        }
        followed.push(next);
        assert!(followed.len() <= 20, "more than 20 followers were accepted");
    };
    assert_eq!(refused.status, 503);
    let admin = server.follow("/dashboard/t/other", Some(ADMIN)).await;
    assert_eq!(admin.status, 200);
    // A follower that disconnects makes room for another.
    drop(followed);
    let again = async {
        while server.follow("/dashboard/t/other", Some(&key)).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again)
        .await
        .expect("a released slot");
}
