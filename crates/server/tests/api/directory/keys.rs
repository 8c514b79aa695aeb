//! The API for keys of a tenant.

use serde_json::{Value, json};

use super::kit::World;

const KEYS: &str = "/v1/tenants/acme/keys";

#[tokio::test]
async fn a_key_is_shown_once() {
    let world = World::new().await;
    world.tenant("acme").await;
    let made = world.post(KEYS, json!({"name": "ci"})).await;
    assert_eq!(made.status, 201);
    let key = made.text("key");
    assert!(key.starts_with("ph_"));
    assert_eq!(made.text("name"), "ci");
    let listed = world.get(KEYS).await;
    assert_eq!(listed.ids()[0], made.text("id"));
    let text = String::from_utf8_lossy(&listed.bytes).into_owned();
    assert!(!text.contains(&key));
    assert!(!text.contains("hash"));
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_from_then_on() {
    let world = World::new().await;
    world.tenant("acme").await;
    let made = world.post(KEYS, json!({})).await;
    let (id, key) = (made.text("id"), made.text("key"));
    let before = world.call("GET", KEYS, &key, Value::Null).await;
    assert_eq!(before.status, 200);
    // A key may revoke itself.
    let path = format!("{KEYS}/{id}");
    let revoked = world.call("DELETE", &path, &key, Value::Null).await;
    assert_eq!(revoked.status, 204);
    let after = world.call("GET", KEYS, &key, Value::Null).await;
    assert_eq!(after.status, 401);
    assert_eq!(world.delete(&path).await.status, 404);
}

#[tokio::test]
async fn another_tenants_key_cannot_be_revoked() {
    let world = World::new().await;
    world.tenant("acme").await;
    let other = world.tenant("other").await;
    let id = world.get("/v1/tenants/other/keys").await.ids().remove(0);
    let answer = world.delete(&format!("{KEYS}/{id}")).await;
    assert_eq!(answer.status, 404);
    let still = world
        .call("GET", "/v1/tenants/other/keys", &other, Value::Null)
        .await;
    assert_eq!(still.status, 200);
}

#[tokio::test]
async fn a_tenant_has_only_so_many_keys() {
    let world = World::new().await;
    world.tenant("acme").await;
    for _ in 1..100 {
        assert_eq!(world.post(KEYS, Value::Null).await.status, 201);
    }
    let answer = world.post(KEYS, Value::Null).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.text("code"), "quota_exceeded");
    assert!(
        !answer.headers.contains_key("retry-after"),
        "waiting would not help"
    );
    let id = world.get(KEYS).await.ids().remove(0);
    assert_eq!(world.delete(&format!("{KEYS}/{id}")).await.status, 204);
    assert_eq!(world.post(KEYS, Value::Null).await.status, 201);
}

#[tokio::test]
async fn a_name_is_a_short_text() {
    let world = World::new().await;
    world.tenant("acme").await;
    let answer = world
        .post(KEYS, json!({"name": ["x"], "scope": "all"}))
        .await;
    assert_eq!(answer.wrong_fields(), ["name", "scope"]);
    for name in ["x".repeat(201), "a\0b".to_owned()] {
        let answer = world.post(KEYS, json!({ "name": name })).await;
        assert_eq!(answer.wrong_fields(), ["name"]);
    }
}

#[tokio::test]
async fn no_text_holds_what_a_store_cannot_keep() {
    let world = World::new().await;
    let answer = world
        .post("/v1/tenants", json!({"id": "nil", "name": "a\0b"}))
        .await;
    assert_eq!(answer.wrong_fields(), ["name"]);
    world.tenant("acme").await;
    let form =
        json!({"url": "https://example.com/a\0b", "description": "a\0b", "owner_email": "a\0@b.c"});
    let mut wrong = world
        .post("/v1/tenants/acme/endpoints", form)
        .await
        .wrong_fields();
    wrong.sort();
    assert_eq!(wrong, ["description", "owner_email", "url"]);
}
