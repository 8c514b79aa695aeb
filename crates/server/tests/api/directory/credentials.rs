//! Credentials of endpoints: validated, shown without secrets, stored encrypted, and changed.

use posthaste_core::address::EgressRules;
use posthaste_store::{Endpoint, Store};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::fixture::{ApiResponse, TestServer};

const ALL: &str = "/v1/tenants/acme/endpoints";
const URL: &str = "https://example.com/hooks";
/// Part of every secret, so that a leak is easy to find.
const CANARY: &str = "canary7f3a";

fn basic() -> Value {
    json!({"kind": "basic", "username": "ann", "password": CANARY})
}

fn bearer() -> Value {
    json!({"kind": "bearer", "token": CANARY})
}

fn oauth2() -> Value {
    json!({
        "kind": "oauth2", "token_url": "https://login.example.com/token", "client_id": "ann",
        "client_secret": CANARY,
    })
}

/// Creates a certificate that expires on 1 January of this year, and its key.
fn certificate(until: i32) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["client.example".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

fn with_certificate(until: i32) -> Value {
    let (certificate, private_key) = certificate(until);
    json!({"certificate": certificate, "private_key": private_key})
}

async fn made(server: &TestServer, mut fields: Value) -> (ApiResponse, String) {
    fields["url"] = json!(URL);
    let made = server.post(ALL, fields).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let path = format!("{ALL}/{}", made.field("id"));
    (made, path)
}

async fn stored(server: &TestServer, path: &str) -> Endpoint {
    let id = path.rsplit('/').next().expect("an id");
    let row = server.store.endpoint(id.parse().expect("an id")).await;
    row.expect("a store").expect("an endpoint").endpoint
}

/// Every form of `auth` in a request, and the form in the response.
fn every_auth() -> Vec<(Value, Value)> {
    let mut full = oauth2();
    full["scope"] = json!("hooks.write other");
    full["audience"] = json!("https://example.com/ü");
    full["client_authentication"] = json!("body");
    vec![
        (Value::Null, Value::Null),
        (basic(), json!({"kind": "basic", "username": "ann"})),
        // Some services take an API key as the user name.
        (
            json!({"kind": "basic", "username": CANARY, "password": ""}),
            json!({"kind": "basic", "username": null}),
        ),
        (bearer(), json!({"kind": "bearer"})),
        (
            oauth2(),
            json!({
                "kind": "oauth2", "token_url": "https://login.example.com/token",
                "client_id": "ann", "scope": null, "audience": null,
                "client_authentication": "basic",
            }),
        ),
        (
            full,
            json!({
                "kind": "oauth2", "token_url": "https://login.example.com/token",
                "client_id": "ann", "scope": "hooks.write other",
                "audience": "https://example.com/ü", "client_authentication": "body",
            }),
        ),
    ]
}

#[tokio::test]
async fn every_kind_of_auth_is_shown_without_secret_and_stored_encrypted() {
    let server = TestServer::with_acme().await;
    for (written, shown) in every_auth() {
        let (made, path) = made(&server, json!({"auth": written})).await;
        let changed = server.patch(&path, json!({"description": "x"})).await;
        let rotated = server
            .post(&format!("{path}/secret/rotate"), json!({}))
            .await;
        for answer in [
            &made,
            &changed,
            &rotated,
            &server.get(&path).await,
            &server.get(ALL).await,
        ] {
            let text = String::from_utf8_lossy(&answer.bytes).into_owned();
            assert!(!text.contains(CANARY), "{text}");
        }
        assert_eq!(made.json["auth"], shown);
        assert_eq!(server.get(&path).await.json["auth"], shown);
        let row = stored(&server, &path).await;
        assert_eq!(row.sealed_credentials.is_empty(), written.is_null());
        let rests = String::from_utf8_lossy(&row.sealed_credentials).into_owned();
        assert!(!rests.contains(CANARY) && !rests.contains("ann"));
    }
}

#[tokio::test]
async fn a_certificate_is_shown_by_its_fingerprint() {
    let server = TestServer::with_acme().await;
    let written = with_certificate(2030);
    let (made, path) = made(&server, json!({"client_certificate": written})).await;
    let shown = &made.json["client_certificate"];
    assert_eq!(shown["expires_at"], "2030-01-01T00:00:00.000Z");
    let fingerprint = shown["fingerprint"].as_str().expect("a text");
    assert_eq!(fingerprint.len(), "sha256:".len() + 64);
    assert_eq!(server.get(&path).await.json["client_certificate"], *shown);
    for answer in [&made, &server.get(&path).await, &server.get(ALL).await] {
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(!text.contains("BEGIN"), "{text}");
    }
    let rests = stored(&server, &path).await.sealed_credentials;
    assert!(!String::from_utf8_lossy(&rests).contains("BEGIN"));
}

#[tokio::test]
async fn an_absent_field_stays_null_removes_and_an_object_replaces() {
    let server = TestServer::with_acme().await;
    let fields = json!({"auth": oauth2(), "client_certificate": with_certificate(2030)});
    let (_, path) = made(&server, fields).await;
    let before = server.get(&path).await.json;
    let sealed = stored(&server, &path).await.sealed_credentials;
    server.patch(&path, json!({"description": "x"})).await;
    assert_eq!(stored(&server, &path).await.sealed_credentials, sealed);
    // An object replaces the whole value, so that no old part remains.
    let changed = server.patch(&path, json!({"auth": bearer()})).await.json;
    assert_eq!(changed["auth"], json!({"kind": "bearer"}));
    assert_eq!(changed["client_certificate"], before["client_certificate"]);
    let half = json!({"auth": {"kind": "oauth2", "client_secret": "new"}});
    let refused = server.patch(&path, half).await;
    assert_eq!(refused.wrong_fields(), ["auth.token_url", "auth.client_id"]);
    let half = json!({"client_certificate": {"private_key": "x"}});
    let refused = server.patch(&path, half).await;
    assert_eq!(refused.wrong_fields(), ["client_certificate.certificate"]);
    let changed = server.patch(&path, json!({"auth": null})).await.json;
    assert_eq!(changed["auth"], Value::Null);
    assert_eq!(changed["client_certificate"], before["client_certificate"]);
    let changed = server
        .patch(&path, json!({"client_certificate": null}))
        .await;
    assert_eq!(changed.json["client_certificate"], Value::Null);
    assert!(stored(&server, &path).await.sealed_credentials.is_empty());
}

#[tokio::test]
async fn every_auth_error_names_its_field_and_quotes_no_secret() {
    let server = TestServer::with_acme().await;
    let long = |bytes: usize| "x".repeat(bytes + 1);
    let change = |mut auth: Value, name: &str, value: Value| {
        auth[name] = value;
        auth
    };
    for (auth, fields) in [
        (json!("basic"), vec!["auth"]),
        (json!({}), vec!["auth.kind"]),
        (json!({"kind": 5}), vec!["auth.kind"]),
        (json!({"kind": "digest"}), vec!["auth.kind"]),
        (
            json!({"kind": "basic"}),
            vec!["auth.username", "auth.password"],
        ),
        (json!({"kind": "bearer"}), vec!["auth.token"]),
        (
            json!({"kind": "oauth2"}),
            vec!["auth.token_url", "auth.client_id", "auth.client_secret"],
        ),
        (
            change(basic(), "username", json!("a:b")),
            vec!["auth.username"],
        ),
        (
            change(basic(), "username", json!("a\nb")),
            vec!["auth.username"],
        ),
        (
            change(basic(), "username", json!(long(256))),
            vec!["auth.username"],
        ),
        (
            change(basic(), "password", json!("a\u{0}b")),
            vec!["auth.password"],
        ),
        (
            change(basic(), "password", json!(long(1_024))),
            vec!["auth.password"],
        ),
        (change(basic(), "token", json!("x")), vec!["auth.token"]),
        (
            json!({"kind": "basic", "username": "", "password": ""}),
            vec!["auth.username"],
        ),
        (change(bearer(), "token", json!("")), vec!["auth.token"]),
        (
            change(bearer(), "token", json!("canary7f3a b")),
            vec!["auth.token"],
        ),
        (
            change(bearer(), "token", json!("canary7f3a\r\nX: 1")),
            vec!["auth.token"],
        ),
        (
            change(bearer(), "token", json!("canary7f3aä")),
            vec!["auth.token"],
        ),
        (
            change(bearer(), "token", json!(long(4_096))),
            vec!["auth.token"],
        ),
        (
            change(oauth2(), "client_id", json!("ä")),
            vec!["auth.client_id"],
        ),
        (
            change(oauth2(), "client_id", json!(long(256))),
            vec!["auth.client_id"],
        ),
        (
            change(oauth2(), "client_secret", json!("")),
            vec!["auth.client_secret"],
        ),
        (
            change(oauth2(), "client_secret", json!("canary7f3a\n")),
            vec!["auth.client_secret"],
        ),
        (
            change(oauth2(), "client_secret", json!(long(1_024))),
            vec!["auth.client_secret"],
        ),
        (change(oauth2(), "scope", json!("ä")), vec!["auth.scope"]),
        (
            change(oauth2(), "scope", json!(long(1_024))),
            vec!["auth.scope"],
        ),
        (
            change(oauth2(), "audience", json!("")),
            vec!["auth.audience"],
        ),
        (
            change(oauth2(), "audience", json!(long(1_024))),
            vec!["auth.audience"],
        ),
        (
            change(oauth2(), "client_authentication", json!("jwt")),
            vec!["auth.client_authentication"],
        ),
        (
            change(oauth2(), "expires_in", json!(5)),
            vec!["auth.expires_in"],
        ),
    ] {
        let body = json!({"url": URL, "auth": auth});
        let refused = server.post(ALL, body.clone()).await;
        assert_eq!(refused.wrong_fields(), fields, "{body}");
        let text = String::from_utf8_lossy(&refused.bytes).into_owned();
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn username_or_password_may_be_empty_and_non_ascii() {
    let server = TestServer::with_acme().await;
    for (username, password, shown) in [
        ("key", "", Value::Null),
        ("", "key", json!("")),
        ("Zoë", "pässwörd: ☃", json!("Zoë")),
    ] {
        let auth = json!({"kind": "basic", "username": username, "password": password});
        let (made, _) = made(&server, json!({"auth": auth})).await;
        assert_eq!(made.json["auth"]["username"], shown);
    }
}

#[tokio::test]
async fn a_token_url_must_follow_the_egress_rules() {
    let server = TestServer::with_acme().await;
    let (_, path) = made(&server, json!({})).await;
    for (url, code) in [
        ("https://169.254.169.254/latest", "unsafe_destination"),
        ("https://localhost/token", "unsafe_destination"),
        ("https://[::1]/token", "unsafe_destination"),
        ("http://login.example.com/token", "unsafe_destination"),
        ("https://", "invalid_url"),
        ("token", "invalid_url"),
    ] {
        let mut auth = oauth2();
        auth["token_url"] = json!(url);
        let new = server.post(ALL, json!({"url": URL, "auth": auth})).await;
        let change = server.patch(&path, json!({"auth": auth})).await;
        for refused in [new, change] {
            assert_eq!(refused.wrong_fields(), ["auth.token_url"], "{url}");
            assert_eq!(refused.field("code"), code, "{url}");
        }
    }
}

#[tokio::test]
async fn auth_and_a_custom_authorization_header_conflict() {
    let server = TestServer::with_acme().await;
    let own = json!({"X-Team": "billing", "AUTHORIZATION": "Bearer own"});
    let both = json!({"url": URL, "auth": bearer(), "headers": own});
    let refused = server.post(ALL, both).await;
    assert_eq!(refused.wrong_fields(), ["auth", "headers.AUTHORIZATION"]);
    // Only one of them is new. The error names the other.
    let (_, path) = made(&server, json!({"headers": own})).await;
    let refused = server.patch(&path, json!({"auth": basic()})).await;
    assert_eq!(refused.wrong_fields(), ["auth"]);
    let message = refused.json["errors"][0]["message"]
        .as_str()
        .expect("a message");
    assert!(
        message.contains("AUTHORIZATION") && message.contains("headers"),
        "{message}"
    );
    let swap = json!({"auth": basic(), "headers": {"X-Team": "billing"}});
    assert_eq!(server.patch(&path, swap).await.status, 200);
    let refused = server.patch(&path, json!({"headers": own})).await;
    assert_eq!(refused.wrong_fields(), ["headers.AUTHORIZATION"]);
    let message = refused.json["errors"][0]["message"]
        .as_str()
        .expect("a message");
    assert!(message.contains("\"auth\""), "{message}");
    let swap = json!({"auth": null, "headers": own});
    assert_eq!(server.patch(&path, swap).await.status, 200);
    // The same for a signature header.
    let headers = json!({"X-Hub-Signature-256": "own"});
    let (_, path) = made(&server, json!({"headers": headers})).await;
    let refused = server
        .patch(&path, json!({"signature_style": "github"}))
        .await;
    assert_eq!(refused.wrong_fields(), ["signature_style"]);
    let fine = server
        .patch(&path, json!({"signature_style": "stripe"}))
        .await;
    assert_eq!(fine.status, 200, "{}", fine.json);
}

#[tokio::test]
async fn every_certificate_error_names_its_field() {
    let server = TestServer::with_acme().await;
    let (certificate, key) = certificate(2030);
    let (expired, expired_key) = self::certificate(2025);
    let (_, other_key) = self::certificate(2030);
    let chain = certificate.repeat(11);
    for (certificate, key, field) in [
        ("", key.as_str(), "certificate"),
        ("canary7f3a", &key, "certificate"),
        (
            "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
            &key,
            "certificate",
        ),
        (chain.as_str(), &key, "certificate"),
        (expired.as_str(), &expired_key, "certificate"),
        (&"x".repeat(32 * 1_024 + 1), &key, "certificate"),
        (certificate.as_str(), "", "private_key"),
        (&certificate, "canary7f3a", "private_key"),
        (&certificate, &certificate, "private_key"),
        (&certificate, &other_key, "private_key"),
        (&certificate, &"x".repeat(16 * 1_024 + 1), "private_key"),
    ] {
        let pair = json!({"certificate": certificate, "private_key": key});
        let body = json!({"url": URL, "client_certificate": pair});
        let refused = server.post(ALL, body).await;
        assert_eq!(
            refused.wrong_fields(),
            [format!("client_certificate.{field}")]
        );
        let text = String::from_utf8_lossy(&refused.bytes).into_owned();
        assert!(!text.contains(CANARY) && !text.contains("BEGIN"), "{text}");
    }
    let more = json!({"certificate": certificate, "private_key": key, "passphrase": "x"});
    let refused = server
        .post(ALL, json!({"url": URL, "client_certificate": more}))
        .await;
    assert_eq!(refused.wrong_fields(), ["client_certificate.passphrase"]);
}

#[tokio::test]
async fn a_certificate_needs_tls() {
    let server = TestServer::with_settings(|settings| {
        settings.egress_rules = EgressRules {
            allow_http: true,
            ..EgressRules::default()
        };
    })
    .await;
    server.tenant("acme").await;
    let certificate = with_certificate(2030);
    let plain = "http://example.com/hooks";
    for plain in [plain, "HTTP://example.com/hooks"] {
        let body = json!({"url": plain, "client_certificate": certificate});
        let refused = server.post(ALL, body).await;
        assert_eq!(refused.wrong_fields(), ["client_certificate"]);
    }
    let (_, path) = made(&server, json!({"client_certificate": certificate})).await;
    let refused = server.patch(&path, json!({"url": plain})).await;
    assert_eq!(refused.wrong_fields(), ["url"]);
    let both = json!({"url": plain, "client_certificate": null});
    assert_eq!(server.patch(&path, both).await.status, 200);
    let refused = server
        .patch(&path, json!({"client_certificate": certificate}))
        .await;
    assert_eq!(refused.wrong_fields(), ["client_certificate"]);
}
