//! The page of a tenant's keys.

use serde_json::json;

use super::deliveries::HERE;
use crate::fixture::TestServer;

#[tokio::test]
async fn a_key_is_created_shown_once_and_revoked() {
    let server = TestServer::start().await;
    let keys = format!("{HERE}/keys");
    server.page(&keys).await.says("API keys, newest first");
    let refused = server.submit(&keys, &[("name", &"x".repeat(201))]).await;
    assert_eq!(refused.status, 422);
    assert!(!refused.wrong("name").is_empty());
    let made = server.submit(&keys, &[("name", "ci <b>")]).await;
    assert_eq!(made.headers["cache-control"], "no-store");
    let shown = made.section("shown");
    let key = shown
        .split_whitespace()
        .find(|word| word.starts_with("ph_"))
        .expect("a key")
        .to_owned();
    let events = "/v1/tenants/acme/events";
    let event = json!({"type": "a.b", "payload": 1});
    server
        .call("POST", events, &key, event.clone())
        .await
        .ok(202);
    let list = server.page(&keys).await;
    list.says("ci <b>").assert_no_text(&key);
    let listed = server.get("/v1/tenants/acme/keys").await.ok(200);
    let id = listed["data"][0]["id"].as_str().expect("an id");
    let revoke = format!("{keys}/{id}/revoke");
    assert!(list.forms().contains(&revoke));
    let asked = server.submit(&revoke, &[]).await;
    asked.says("Revoke the key?");
    server
        .call("POST", events, &key, event.clone())
        .await
        .ok(202);
    let done = server.submit(&revoke, &[("sure", "yes")]).await;
    assert_eq!(done.redirect(), format!("{keys}?done=key-revoked"));
    assert_eq!(server.call("POST", events, &key, event).await.status, 401);
}

#[tokio::test]
async fn keys_of_another_tenant_are_not_found() {
    let server = TestServer::start().await;
    let own = server.tenant("other").await;
    let made = server
        .post("/v1/tenants/acme/keys", &json!({"name": "ci"}))
        .await
        .ok(201);
    let id = made["id"].as_str().expect("an id");
    assert_eq!(
        server.page_as(&own, &format!("{HERE}/keys")).await.status,
        404
    );
    let page = server.page_as(&own, "/dashboard/t/other/keys").await;
    page.assert_no_text(id);
    for tenant in ["acme", "other"] {
        let revoke = format!("/dashboard/t/{tenant}/keys/{id}/revoke");
        let done = server.submit_as(&own, &revoke, &[("sure", "yes")]).await;
        assert_eq!(done.status, 404, "{tenant}");
    }
    let listed = server.get("/v1/tenants/acme/keys").await.ok(200);
    assert_eq!(listed["data"][0]["id"], id);
}
