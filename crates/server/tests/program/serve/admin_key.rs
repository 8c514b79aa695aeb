//! `posthaste admin-key reset`: a lost admin key is replaced.
//!
//! Fixture: a [`TestServer`] on either store, without a configured admin key.

use std::process::Output;

use posthaste_testbed::Api;
use serde_json::{Value, json};

use super::fixture::{TestServer, posthaste};

fn reset(store: &str, arguments: &[&str]) -> Output {
    posthaste()
        .args(["admin-key", "reset", "--store", store])
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn status_with(address: &str, key: &str) -> u16 {
    let mut api = Api::new(address, key);
    api.get("/v1/tenants").await.status
}

#[tokio::test]
async fn a_reset_replaces_the_admin_keys_and_keeps_those_of_tenants() {
    let mut server = TestServer::start(&[]);
    let mut api = server.api();
    api.tenant("acme").await;
    let created = api
        .post("/v1/tenants/acme/keys", json!({"name": "ci"}))
        .await
        .expect(201);
    let tenant_key = created["key"].as_str().expect("a key").to_owned();
    let store = server.store();
    let is_file = store.starts_with("sqlite:");
    if is_file {
        let in_use = reset(&store, &["--yes"]);
        assert_eq!(in_use.status.code(), Some(1), "{}", stderr(&in_use));
        assert!(stderr(&in_use).contains("in use"), "{}", stderr(&in_use));
    }
    assert!(server.stop().success());
    let unconfirmed = reset(&store, &[]);
    assert_eq!(unconfirmed.status.code(), Some(2));
    assert!(
        stderr(&unconfirmed).contains("--yes"),
        "{}",
        stderr(&unconfirmed)
    );

    let read_key = |output: Output| {
        assert!(output.status.success(), "{}", stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let key = answer["key"].as_str().expect("a key").to_owned();
        (key, answer["revoked"].as_u64().expect("a number"))
    };
    let (lost, _) = read_key(reset(&store, &["--yes", "--json"]));
    let (key, revoked) = read_key(reset(&store, &["--yes", "--json"]));
    assert_eq!(revoked, 1);
    server.restart();
    assert_eq!(status_with(&server.address, &key).await, 200);
    assert_eq!(status_with(&server.address, &lost).await, 401);
    let mut api = Api::new(&server.address, &tenant_key);
    api.get("/v1/tenants/acme").await.expect(200);
    let mut api = Api::new(&server.address, &key);
    let audit = api.get("/v1/audit?limit=1").await.expect(200);
    assert_eq!(audit["data"][0]["action"], "reset_admin_key");
    assert_eq!(audit["data"][0]["via"], "cli");
    assert_eq!(audit["data"][0]["outcome"], "done");
}

#[test]
fn a_reset_needs_a_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", directory.path().join("x.db").display());
    let output = reset(&store, &["--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("there is no store"),
        "{}",
        stderr(&output)
    );
    assert!(!directory.path().join("x.db").exists());
}
