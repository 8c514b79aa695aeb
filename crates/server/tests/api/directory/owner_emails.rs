//! The confirmation of `owner_email`: who is trusted, and how the owner confirms.

use axum::body::Body;
use http::Request;
use posthaste_api::hash_key;
use posthaste_store::{EmailResult, OwnerEmails};
use serde_json::{Value, json};

use crate::fixture::{ADMIN, ApiResponse, TestServer};

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";
const DAY_MS: u64 = 24 * 3_600_000;

async fn server() -> (TestServer, String) {
    let server = TestServer::with_settings(|settings| {
        settings.owner_emails.sends_confirmations = true;
        settings.owner_emails.limits.recipients = 3;
        let domain = "allowed.example".parse().expect("a domain");
        settings.owner_emails.allowed_domains = [domain].into_iter().collect();
    })
    .await;
    let key = server.tenant("acme").await;
    (server.with_pages(), key)
}

/// Creates an endpoint with this owner, and returns its path.
async fn create(server: &TestServer, key: &str, owner: &str) -> String {
    let fields = json!({"url": "https://example.com/hooks", "owner_email": owner});
    let created = server.call("POST", ENDPOINTS, key, fields).await;
    created.ok(201);
    format!("{ENDPOINTS}/{}", created.field("id"))
}

async fn status(server: &TestServer, path: &str) -> Value {
    server.get(path).await.ok(200)["owner_email_status"].clone()
}

/// Sends the waiting confirmation emails, as the mailer does. Returns the recipients; the token is the number.
async fn send(server: &TestServer, first_token: usize) -> Vec<String> {
    let tokens = (first_token..first_token + 9).map(|number| hash_key(&format!("token-{number}")));
    let now = server.now();
    let until = posthaste_core::time::Timestamp(now.0 + 60_000);
    let claimed = server
        .store
        .claim_confirmations(now, until, tokens.collect());
    let mut recipients = Vec::new();
    for (token, request) in claimed.await.expect("the store claims") {
        let sent = EmailResult::Sent { quiet_until: now };
        let recorded = server.store.record_confirmation_result(token, sent);
        recorded.await.expect("the store records");
        recipients.push(request.recipient);
    }
    recipients
}

async fn visit(server: &TestServer, verb: &str, token: &str) -> ApiResponse {
    let request = Request::builder()
        .method(verb)
        .uri(format!("/confirm-email/{token}"));
    server
        .send(request.body(Body::empty()).expect("a request"))
        .await
}

#[tokio::test]
async fn an_address_set_by_a_tenant_waits_for_its_owner() {
    let (server, key) = server().await;
    let path = create(&server, &key, "owner@example.com").await;
    assert_eq!(status(&server, &path).await, "pending");
    let trusted = create(&server, ADMIN, "trusted@example.com").await;
    assert_eq!(status(&server, &trusted).await, "confirmed");
    let allowed = create(&server, &key, "anyone@ALLOWED.example").await;
    assert_eq!(status(&server, &allowed).await, "confirmed");
    let known = create(&server, &key, "trusted@example.com").await;
    assert_eq!(status(&server, &known).await, "confirmed");
    assert_eq!(send(&server, 0).await, ["owner@example.com"]);
    // Opening the link, as link scanners do, confirms nothing.
    for _ in 0..2 {
        let page = visit(&server, "GET", "token-0").await;
        assert_eq!(page.status, 200);
        let html = String::from_utf8_lossy(&page.bytes).into_owned();
        assert!(html.contains("owner@example.com") && html.contains("<form method=\"post\""));
        assert_eq!(page.headers["cache-control"], "no-store");
    }
    assert_eq!(status(&server, &path).await, "pending");
    assert_eq!(visit(&server, "POST", "token-0").await.status, 200);
    assert_eq!(status(&server, &path).await, "confirmed");
    for verb in ["GET", "POST"] {
        assert_eq!(visit(&server, verb, "token-0").await.status, 404, "{verb}");
        assert_eq!(visit(&server, verb, "unknown").await.status, 404, "{verb}");
    }
    let audit = server.get("/v1/audit?limit=1").await.ok(200);
    let entry = &audit["data"][0];
    assert_eq!(entry["action"], "confirm_owner_email");
    assert_eq!(entry["tenant_id"], "acme");
}

#[tokio::test]
async fn a_changed_address_is_confirmed_anew() {
    let (server, key) = server().await;
    let path = create(&server, ADMIN, "first@example.com").await;
    let patch = |key: &str, fields: Value| {
        let (server, path, key) = (&server, path.clone(), key.to_owned());
        async move {
            let changed = server.call("PATCH", &path, &key, fields).await;
            changed.ok(200)["owner_email_status"].clone()
        }
    };
    assert_eq!(patch(&key, json!({"timeout": "9s"})).await, "confirmed");
    let same = json!({"owner_email": "First@example.com"});
    assert_eq!(patch(&key, same).await, "confirmed", "the same address");
    let second = json!({"owner_email": "second@example.com"});
    assert_eq!(patch(&key, second.clone()).await, "pending");
    let back = json!({"owner_email": "first@example.com"});
    assert_eq!(
        patch(&key, back).await,
        "pending",
        "no endpoint has it any more"
    );
    assert_eq!(patch(&key, json!({"owner_email": null})).await, Value::Null);
    assert_eq!(patch(&key, second.clone()).await, "pending");
    assert_eq!(patch(ADMIN, json!({"timeout": "8s"})).await, "pending");
    assert_eq!(patch(ADMIN, second).await, "confirmed", "an admin names it");
}

#[tokio::test]
async fn a_confirmation_email_can_be_requested_again_after_a_day() {
    let (server, key) = server().await;
    let path = create(&server, &key, "owner@example.com").await;
    let again = format!("{path}/owner-email/confirmation");
    let request = || server.call("POST", &again, &key, Value::Null);
    assert_eq!(request().await.ok(200)["owner_email_status"], "pending");
    assert_eq!(send(&server, 0).await, ["owner@example.com"], "one email");
    let refused = request().await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], (DAY_MS / 1_000).to_string());
    server.pass_ms(DAY_MS);
    request().await.ok(200);
    assert_eq!(send(&server, 10).await, ["owner@example.com"]);
    let confirmed = create(&server, ADMIN, "other@example.com").await;
    let none = server.endpoint_path("acme").await;
    for path in [confirmed, none] {
        let path = format!("{path}/owner-email/confirmation");
        let refused = server.call("POST", &path, &key, Value::Null).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field("code")),
            (409, "wrong_state".into())
        );
    }
}

#[tokio::test]
async fn new_recipients_are_limited_per_day() {
    let (server, key) = server().await;
    let mut last = String::new();
    for number in 0..10 {
        last = create(&server, &key, &format!("stranger{number}@example.com")).await;
        assert_eq!(status(&server, &last).await, "pending");
    }
    assert_eq!(send(&server, 0).await.len(), 3);
    let again = format!("{last}/owner-email/confirmation");
    let refused = server.call("POST", &again, &key, Value::Null).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("code"), "quota_exceeded");
    server.pass_ms(DAY_MS);
    server.call("POST", &again, &key, Value::Null).await.ok(200);
    assert_eq!(send(&server, 10).await, ["stranger9@example.com"]);
}

#[tokio::test]
async fn control_characters_in_names_are_refused() {
    let (server, key) = server().await;
    let endpoint = server.endpoint_path("acme").await;
    for (verb, path, key, field) in [
        ("POST", "/v1/tenants", ADMIN, "name"),
        ("PATCH", "/v1/tenants/acme", &*key, "name"),
        ("POST", "/v1/tenants/acme/keys", &*key, "name"),
        ("PATCH", &*endpoint, &*key, "description"),
        ("PATCH", &*endpoint, &*key, "owner_email"),
    ] {
        for text in [
            "a\r\nBcc: b",
            "a\nb",
            "a\rb",
            "a\u{7}b",
            "a\u{85}b",
            "a\u{2028}b",
        ] {
            let refused = server.call(verb, path, key, json!({field: text})).await;
            assert_eq!(refused.status, 422, "{verb} {path} took {text:?}");
            assert_eq!(refused.json["errors"][0]["field"], field);
        }
    }
}
