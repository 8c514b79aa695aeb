//! The API for keys of a tenant: shown once, revoked, limited in number.
//!
//! Fixture: a [`TestServer`] without tenants.

use serde_json::{Value, json};

use crate::fixture::TestServer;

const KEYS: &str = "/v1/tenants/acme/keys";

#[tokio::test]
async fn a_key_is_shown_once() {
    let server = TestServer::with_acme().await;
    let made = server.post(KEYS, json!({"name": "ci"})).await;
    assert_eq!(made.status, 201);
    let key = made.field("key");
    assert!(key.starts_with("ph_"));
    assert_eq!(made.field("name"), "ci");
    let listed = server.get(KEYS).await;
    assert_eq!(listed.ids()[0], made.field("id"));
    let text = String::from_utf8_lossy(&listed.bytes).into_owned();
    assert!(!text.contains(&key));
    assert!(!text.contains("hash"));
}

#[tokio::test]
async fn a_revoked_key_is_refused_immediately() {
    let server = TestServer::with_acme().await;
    let made = server.post(KEYS, json!({})).await;
    let (id, key) = (made.field("id"), made.field("key"));
    let before = server.call("GET", KEYS, &key, Value::Null).await;
    assert_eq!(before.status, 200);
    // A key may revoke itself.
    let path = format!("{KEYS}/{id}");
    let revoked = server.call("DELETE", &path, &key, Value::Null).await;
    assert_eq!(revoked.status, 204);
    let after = server.call("GET", KEYS, &key, Value::Null).await;
    assert_eq!(after.status, 401);
    assert_eq!(server.delete(&path).await.status, 404);
}

#[tokio::test]
async fn another_tenants_key_cannot_be_revoked() {
    let server = TestServer::with_acme().await;
    let other = server.tenant("other").await;
    let id = server.get("/v1/tenants/other/keys").await.ids().remove(0);
    let answer = server.delete(&format!("{KEYS}/{id}")).await;
    assert_eq!(answer.status, 404);
    let still = server
        .call("GET", "/v1/tenants/other/keys", &other, Value::Null)
        .await;
    assert_eq!(still.status, 200);
}

#[tokio::test]
async fn the_number_of_keys_per_tenant_is_limited() {
    let server = TestServer::with_acme().await;
    for _ in 1..100 {
        assert_eq!(server.post(KEYS, Value::Null).await.status, 201);
    }
    let answer = server.post(KEYS, Value::Null).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.field("code"), "quota_exceeded");
    assert!(
        !answer.headers.contains_key("retry-after"),
        "no Retry-After, because waiting does not help"
    );
    let id = server.get(KEYS).await.ids().remove(0);
    assert_eq!(server.delete(&format!("{KEYS}/{id}")).await.status, 204);
    assert_eq!(server.post(KEYS, Value::Null).await.status, 201);
}

#[tokio::test]
async fn a_key_name_is_validated() {
    let server = TestServer::with_acme().await;
    let answer = server
        .post(KEYS, json!({"name": ["x"], "scope": "all"}))
        .await;
    assert_eq!(answer.wrong_fields(), ["name", "scope"]);
    for name in ["x".repeat(201), "a\0b".to_owned()] {
        let answer = server.post(KEYS, json!({ "name": name })).await;
        assert_eq!(answer.wrong_fields(), ["name"]);
    }
}

#[tokio::test]
async fn nul_characters_are_refused_in_every_text() {
    let server = TestServer::without_tenants().await;
    let answer = server
        .post("/v1/tenants", json!({"id": "nil", "name": "a\0b"}))
        .await;
    assert_eq!(answer.wrong_fields(), ["name"]);
    server.tenant("acme").await;
    let form =
        json!({"url": "https://example.com/a\0b", "description": "a\0b", "owner_email": "a\0@b.c"});
    let mut wrong = server
        .post("/v1/tenants/acme/endpoints", form)
        .await
        .wrong_fields();
    wrong.sort();
    assert_eq!(wrong, ["description", "owner_email", "url"]);
}
