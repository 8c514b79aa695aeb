//! Credentials of endpoints, in real deliveries.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::fixture::{ADMIN_KEY, Answer, Api, Receiver, TestServer, posthaste};

/// A text that is easy to find where it must not be.
const CANARY: &str = "canary7f3a9c";

async fn deliver(api: &mut Api) {
    let event = json!({"type": "a.b", "payload": {}});
    let delivery = api.deliver("acme", event).await;
    api.until_status("acme", &delivery, "succeeded").await;
}

/// Returns true if any file of a directory contains a text.
fn is_stored_in(directory: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(directory).expect("a directory");
    files.into_iter().any(|file| {
        let path = file.expect("an entry").path();
        // A directory cannot be read, and contains no text.
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn credentials_are_sent_and_survive_a_master_key_rotation() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let auth = json!({"kind": "basic", "username": "ann", "password": CANARY});
    let fields = json!({"url": receiver.url(), "auth": auth});
    let made = api.endpoint("acme", fields).await;
    assert_eq!(made["auth"], json!({"kind": "basic", "username": "ann"}));
    deliver(&mut api).await;
    assert!(!is_stored_in(server.directory(), CANARY));
    assert!(
        is_stored_in(server.directory(), "a.b"),
        "the search finds text that exists"
    );

    // The new master key is put before the old one. The next start encrypts with the new one, and the old one can be
    // removed.
    assert!(server.stop().success());
    let keys = server.path("posthaste.db.key");
    let rotated = posthaste()
        .arg("rotate-master-key")
        .arg(&keys)
        .output()
        .expect("the program runs");
    assert!(rotated.status.success(), "{rotated:?}");
    server.restart();
    assert!(server.stop().success());
    let text = std::fs::read_to_string(&keys).expect("readable");
    let newest = text
        .lines()
        .find(|line| !line.starts_with('#') && !line.is_empty());
    std::fs::write(&keys, newest.expect("a key")).expect("written");
    server.restart();
    let mut api = server.api();
    deliver(&mut api).await;
    let expected = "Basic YW5uOmNhbmFyeTdmM2E5Yw==";
    let records = receiver.records();
    assert!(
        records
            .iter()
            .all(|one| one.header("authorization") == expected)
    );
    assert_eq!(records.len(), 2);

    // From a token to no credentials.
    let path = format!(
        "/v1/tenants/acme/endpoints/{}",
        made["id"].as_str().expect("an id")
    );
    for auth in [json!({"kind": "bearer", "token": "abc"}), Value::Null] {
        let change = json!({"auth": auth});
        api.call("PATCH", &path, Some(&change)).await.expect(200);
        deliver(&mut api).await;
    }
    let records = receiver.records();
    assert_eq!(records[2].header("authorization"), "Bearer abc");
    assert!(!records[3].headers.contains_key("authorization"));
}

#[tokio::test]
async fn an_oauth_token_is_fetched_once_and_again_after_a_401() {
    let server = TestServer::start(&[]);
    let login = Receiver::start(|arrival| Answer {
        body: format!(
            r#"{{"access_token":"{CANARY}{}","token_type":"bearer","expires_in":3600}}"#,
            arrival.number
        )
        .into(),
        ..Answer::status(200)
    })
    .await;
    let receiver = Receiver::healthy().await;
    let mut api = server.api();
    api.tenant("acme").await;
    let fields = json!({
        "url": receiver.url(),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "10ms"}, "max_attempts": 3},
        "auth": {
            "kind": "oauth2", "token_url": login.url(), "client_id": "me",
            "client_secret": CANARY, "scope": "hooks", "client_authentication": "body",
        },
    });
    let made = api.endpoint("acme", fields).await;
    assert!(!made.to_string().contains(CANARY), "{made}");
    for _ in 0..3 {
        deliver(&mut api).await;
    }
    assert_eq!(login.count(), 1);
    let expected =
        format!("grant_type=client_credentials&scope=hooks&client_id=me&client_secret={CANARY}");
    assert_eq!(login.records()[0].body, expected.as_bytes());
    receiver.set_behaviour(|arrival| {
        let stale = arrival.header("authorization").ends_with("9c1");
        Answer::status(if stale { 401 } else { 200 })
    });
    deliver(&mut api).await;
    let seen: Vec<String> = receiver
        .records()
        .iter()
        .map(|one| one.header("authorization").replace(CANARY, "t"))
        .collect();
    let (old, new) = ("Bearer t1", "Bearer t2");
    assert_eq!(seen, [old, old, old, old, new]);
    assert_eq!(login.count(), 2);

    // Without a token the delivery reports the reason, in posthaste's own words.
    login.set_behaviour(|_| Answer {
        body: format!(r#"{{"error":"invalid_client","error_description":"{CANARY}"}}"#).into(),
        ..Answer::status(401)
    });
    receiver.answer(401);
    let event = json!({"type": "a.b", "payload": {}});
    let delivery = api.deliver("acme", event).await;
    let shown = api.until_status("acme", &delivery, "failed").await;
    let detail = "no access token: the token server responded with 401 (invalid_client)";
    assert_eq!(shown["last_error"]["detail"], detail, "{shown}");
    assert!(!shown.to_string().contains(CANARY), "{shown}");
    assert!(!is_stored_in(server.directory(), CANARY));
}

#[tokio::test]
async fn the_cli_sets_credentials_without_secrets_in_arguments() {
    let (server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let address = format!("http://{}", server.address);
    let mut child = posthaste()
        .args(["endpoints", "create", &receiver.url(), "--auth-file", "-"])
        .args(["--signature-style", "github", "--ordered", "--json"])
        .args(["--server", &address, "--key", ADMIN_KEY, "--tenant", "acme"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let auth = json!({"kind": "bearer", "token": CANARY}).to_string();
    let mut input = child.stdin.take().expect("a piped stream");
    input
        .write_all(auth.as_bytes())
        .expect("the program reads its input");
    drop(input);
    let output = child.wait_with_output().expect("the process ends");
    assert!(output.status.success());
    let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(made["auth"], json!({"kind": "bearer"}));
    assert_eq!(
        (&made["ordered"], &made["signature_style"]),
        (&json!(true), &json!("github"))
    );
    deliver(&mut api).await;
    let arrival = receiver.records().remove(0);
    assert_eq!(arrival.header("authorization"), format!("Bearer {CANARY}"));
    assert!(arrival.headers.contains_key("x-hub-signature-256"));
}
