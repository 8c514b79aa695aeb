//! The API for one-off requests and for the signing secret of a tenant.

use std::sync::Arc;

use posthaste_core::delivery::{OneOffRequest, RequestMethod};
use posthaste_store::{AcceptResult, Content, NewEvent, Store};
use posthaste_testbed::{Answer, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const REQUESTS: &str = "/v1/tenants/acme/requests";
const SECRET: &str = "/v1/tenants/acme/signing-secret";

#[tokio::test]
async fn an_accepted_request_is_answered_with_its_delivery() {
    let server = TestServer::without_engine().await;
    let request = json!({
        "url": "https://api.example/orders/7?a=b", "method": "PUT", "payload": {"n": 1},
        "headers": {"X-Team": "billing"}, "delay": "10m", "timeout": "5s",
        "retry_policy": {"preset": "swift", "max_attempts": 4}, "idempotency_key": "k", "ordering_key": "o",
    });
    let answer = server.post(REQUESTS, &request).await.ok(202);
    assert_eq!(
        answer["request"],
        json!({"method": "PUT", "url": "https://api.example/orders/7?a=b"})
    );
    assert_eq!(answer["status"], "pending");
    assert_eq!(answer["event_type"], "request");
    assert_eq!(answer["attempt_count"], 0);
    assert_eq!(answer["max_attempts"], 4);
    assert_eq!(answer["timeline"].as_array().map(Vec::len), Some(4));
    let due = server
        .now()
        .after(posthaste_core::time::Span::from_mins(10));
    assert!(answer["next_attempt_at"].as_str() <= Some(&due.to_string()));
    // The same request under the same key is the same delivery, also later.
    let again = server.post(REQUESTS, &request).await.ok(200);
    assert_eq!(again, answer);
    for change in [
        json!({"method": "POST"}),
        json!({"url": "https://api.example/orders/8"}),
        json!({"headers": {"X-Team": "sales"}}),
        json!({"timeout": "6s"}),
        json!({"retry_policy": {"preset": "swift"}}),
        json!({"payload": {"n": 2}}),
        json!({"delay": "11m"}),
    ] {
        let mut other = request.clone();
        let changed = change.as_object().expect("an object").clone();
        other.as_object_mut().expect("an object").extend(changed);
        let refused = server.post(REQUESTS, &other).await;
        refused.problem(409, "idempotency_conflict");
    }
    // It is listed and shown like any other delivery, and counts as an event.
    let id = answer["id"].as_str().expect("an id");
    let shown = server
        .get(&format!("/v1/tenants/acme/deliveries/{id}"))
        .await
        .ok(200);
    assert_eq!(shown, answer);
    let listed = server.get("/v1/tenants/acme/deliveries").await.ok(200);
    assert_eq!(listed["data"][0]["request"], answer["request"]);
    let usage = server.get("/v1/tenants/acme/usage").await.ok(200);
    assert!(usage.to_string().contains("\"used\":1"), "{usage}");
    let events = server.get("/v1/tenants/acme/events").await.ok(200);
    assert_eq!(events["data"][0]["type"], "request");
}

#[tokio::test]
async fn every_mistake_of_a_request_is_named() {
    let server = TestServer::without_engine().await;
    for (body, fields) in [
        (json!({}), &["payload", "url"][..]),
        (json!({"url": "https://a.example/"}), &["payload"]),
        (
            json!({
                "url": "ftp://a.example/", "method": "HEAD", "headers": {"Host": "x", "X-A": 7}, "deliver_at": "soon",
                "delay": "366d", "retry_policy": {"preset": "eager"}, "timeout": "2m", "idempotency_key": "",
                "ordering_key": 5, "body_base64": "a*", "content_type": "csv", "follow": true,
            }),
            &[
                "follow",
                "method",
                "content_type",
                "body_base64",
                "idempotency_key",
                "delay",
                "ordering_key",
                "url",
                "headers.Host",
                "headers.X-A",
                "retry_policy.preset",
                "timeout",
            ],
        ),
        (
            json!({"url": "https://a.example/", "method": "GET", "content_type": "text/csv"}),
            &["content_type", "payload"],
        ),
        (json!([]), &[""]),
    ] {
        let refused = server.post(REQUESTS, &body).await;
        let mut named = refused.wrong_fields();
        named.sort();
        let mut expected: Vec<&str> = fields.to_vec();
        expected.sort_unstable();
        assert_eq!(named, expected, "{body}");
    }
    let answer = server.post(
        REQUESTS,
        json!({"url": "https://a.example/", "method": "DELETE"}),
    );
    answer.await.ok(202);
}

#[tokio::test]
async fn an_unsafe_url_is_refused_by_code() {
    let server = TestServer::without_engine().await;
    for (url, code) in [
        ("https://10.0.0.1/", "unsafe_destination"),
        ("https://169.254.169.254/latest", "unsafe_destination"),
        ("https://user:pw@a.example/", "invalid_url"),
        ("not a url", "invalid_url"),
    ] {
        // Another mistake does not change the code.
        for body in [
            json!({"url": url, "payload": 1}),
            json!({"url": url, "payload": 1, "timeout": "1h"}),
        ] {
            let refused = server.post(REQUESTS, &body).await;
            assert_eq!(refused.ok(422)["code"], code, "{url}");
        }
    }
    let listed = server.get("/v1/tenants/acme/deliveries").await.ok(200);
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn an_origin_is_no_endpoint_for_callers() {
    let server = TestServer::without_engine().await;
    let request = json!({"url": "https://api.example/a", "payload": 1});
    let first = server.post(REQUESTS, &request).await.ok(202);
    let other = json!({"url": "https://api.example/b?c", "payload": 1});
    let second = server.post(REQUESTS, &other).await.ok(202);
    assert_eq!(first["endpoint_id"], second["endpoint_id"], "one origin");
    let elsewhere = json!({"url": "https://api.example:8443/a", "payload": 1});
    let third = server.post(REQUESTS, &elsewhere).await.ok(202);
    assert_ne!(first["endpoint_id"], third["endpoint_id"], "another port");
    let id = first["endpoint_id"].as_str().expect("an id");
    let endpoint = format!("/v1/tenants/acme/endpoints/{id}");
    server.get(&endpoint).await.problem(404, "not_found");
    for part in ["health", "secret"] {
        let path = format!("{endpoint}/{part}");
        server.get(&path).await.problem(404, "not_found");
    }
    let changed = server.patch(&endpoint, json!({"url": "https://b.example/"}));
    changed.await.problem(404, "not_found");
    for verb in ["pause", "disable", "test", "secret/rotate"] {
        let path = format!("{endpoint}/{verb}");
        let answer = server.post_text(&path, "", &[]).await;
        answer.problem(404, "not_found");
    }
    server.delete(&endpoint).await.problem(404, "not_found");
    let listed = server.get("/v1/tenants/acme/endpoints").await.ok(200);
    assert_eq!(listed["data"], json!([]));
    let found = server.get(&format!("/v1/find?id={id}")).await;
    found.problem(404, "not_found");
    // Deliveries are found by it.
    let path = format!("/v1/tenants/acme/deliveries?endpoint={id}");
    let of_origin = server.get(&path).await.ok(200);
    assert_eq!(of_origin["data"].as_array().map(Vec::len), Some(2));
    let missed = json!({"endpoint": id, "missed_since": "2026-01-01T00:00:00Z"});
    let refused = server.post("/v1/tenants/acme/replays", &missed).await;
    refused.problem(404, "not_found");
    // An event does not reach it.
    let event = json!({"type": "a.b", "payload": 1});
    let accepted = server.event(&event).await.ok(202);
    assert_eq!(accepted["deliveries"], json!([]));
}

#[tokio::test]
async fn the_signing_secret_is_kept_until_it_is_rotated() {
    let server = TestServer::without_engine().await;
    let shown = server.get(SECRET).await.ok(200);
    let secret = shown["secret"].as_str().expect("a secret").to_owned();
    assert!(secret.starts_with("whsec_"));
    assert_eq!(server.get(SECRET).await.ok(200), shown);
    let rotate = format!("{SECRET}/rotate");
    let rotated = server.post(&rotate, json!({"overlap": "1h"})).await.ok(200);
    assert_ne!(rotated["secret"], shown["secret"]);
    assert_eq!(rotated["previous"][0]["secret"], secret.as_str());
    assert_eq!(server.get(SECRET).await.ok(200), rotated);
    let own = json!({"secret": secret, "overlap": "0s"});
    let refused = server.post(&rotate, &own).await;
    assert_eq!(refused.wrong_fields(), ["secret"], "it still signs");
    server.tenant("other").await;
    let others = server.get("/v1/tenants/other/signing-secret").await;
    assert_ne!(others.ok(200)["secret"], rotated["secret"]);
    // Every reading and every change is audited, without the secret.
    let audit = server.get("/v1/tenants/acme/audit").await.ok(200);
    let actions: Vec<&str> = audit["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    for action in ["get_signing_secret", "rotate_signing_secret"] {
        assert!(actions.contains(&action), "{action}: {actions:?}");
    }
    assert!(!audit.to_string().contains(&secret));
}

#[tokio::test]
async fn one_origin_that_fails_does_not_stop_another() {
    let server = TestServer::start().await;
    let failing = Receiver::start(|_| Answer::status(500)).await;
    let healthy = Receiver::healthy().await;
    let once = json!({"backoff": {"kind": "fixed", "interval": "1ms"}, "max_attempts": 1});
    for number in 0..40 {
        let request = json!({"url": failing.url(), "payload": number, "retry_policy": once});
        server.post(REQUESTS, &request).await.ok(202);
    }
    let tripped = |listed: &Value| !listed["data"].as_array().is_none_or(Vec::is_empty);
    server
        .until("/v1/tenants/acme/deliveries?status=held", tripped)
        .await;
    let request = json!({"url": healthy.url(), "method": "GET"});
    let answer = server.post(REQUESTS, &request).await.ok(202);
    let id = answer["id"].as_str().expect("an id");
    server.until_status(id, "succeeded").await;
    // The origin endpoint needs no attention of a person: no page could change it.
    let attention = server.get("/v1/attention").await.ok(200);
    assert_eq!(attention["data"], json!([]));
}

#[tokio::test]
async fn the_pages_show_method_and_url() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let url = format!("{}?x=<b>", receiver.url());
    let request = json!({"url": url, "method": "DELETE", "headers": {"X-Key": "canary"}});
    let answer = server.post(REQUESTS, &request).await.ok(202);
    let id = answer["id"].as_str().expect("an id");
    server.until_status(id, "succeeded").await;
    let list = server.page("/dashboard/t/acme/deliveries").await;
    let line = list.section("deliveries");
    assert!(
        line.contains("DELETE") && line.contains(&receiver.url()),
        "{line}"
    );
    let page = server
        .page(&format!("/dashboard/t/acme/deliveries/{id}"))
        .await;
    assert_eq!(page.status, 200);
    page.says("DELETE");
    page.says("The request has no body.");
    assert!(!page.html.contains("canary") && !page.html.contains("?x=<b>"));
    let event = answer["event_id"].as_str().expect("an id");
    let page = server
        .page(&format!("/dashboard/t/acme/events/{event}"))
        .await;
    page.says("DELETE");
}

#[tokio::test]
async fn null_counts_as_absent_also_for_the_body_of_a_get() {
    let server = TestServer::without_engine().await;
    let request = json!({
        "url": "https://api.example/orders/7", "method": "GET", "body_base64": null, "content_type": null,
    });
    server.post(REQUESTS, &request).await.ok(202);
    let mut post = request;
    post["method"] = Value::Null;
    let refused = server.post(REQUESTS, &post).await;
    assert_eq!(refused.problem(422, "invalid"), ["payload"]);
}

#[tokio::test]
async fn requests_whose_headers_cannot_be_decrypted_are_held_with_the_reason() {
    const DAMAGED: usize = 6;
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let request = json!({"url": receiver.url(), "payload": 1, "headers": {"X-Team": "billing"}});
    let first = server.post(REQUESTS, &request).await.ok(202);
    let origin = first["endpoint_id"].as_str().expect("an id");
    let damaged = NewEvent {
        tenant: "acme".parse().expect("a tenant id"),
        content: Arc::new(Content {
            event_type: "request".parse().expect("a type"),
            content_type: None,
            payload: "1".into(),
            trace: None,
            scheduled_run: None,
        }),
        idempotency: None,
        deliver_at: None,
        ordering: None,
        only: Some(origin.parse().expect("an id")),
        request: Some(Arc::new(OneOffRequest {
            method: RequestMethod::Put,
            url: receiver.url(),
            timeout: None,
            retry_policy: None,
            sealed_headers: b"damaged".to_vec(),
        })),
        received: None,
    };
    // So many that the fault looks like a shared one.
    let accepted = server.store.accept(server.now(), vec![damaged; DAMAGED]);
    let accepted = accepted.await.expect("the store can be written");
    assert!(matches!(accepted, AcceptResult::Done(_)), "{accepted:?}");
    let held = server
        .until("/v1/tenants/acme/deliveries?status=held", |listed| {
            listed["data"].as_array().map(Vec::len) == Some(DAMAGED)
        })
        .await;
    let delivery = &held["data"][0];
    assert_eq!(delivery["attempt_count"], 0);
    let detail = delivery["last_error"]["detail"].as_str().expect("a reason");
    assert!(detail.contains("cannot be decrypted"), "{detail}");
    let id = delivery["id"].as_str().expect("an id");
    let cancel = format!("/v1/tenants/acme/deliveries/{id}/cancel");
    server.post(&cancel, json!(null)).await.ok(200);
    // Other requests to the same origin are sent.
    let after = server.post(REQUESTS, &request).await.ok(202);
    let id = after["id"].as_str().expect("an id");
    server.until_status(id, "succeeded").await;
    assert_eq!(receiver.count(), 2);
}
