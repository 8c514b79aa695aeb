//! Events that the API refuses: invalid ones, and those above a limit.

use posthaste_store::StoreError;
use serde_json::json;

use crate::fixture::TestServer;

const EVENTS: &str = "/v1/tenants/acme/events";
const BATCH: &str = "/v1/tenants/acme/events/batch";

#[tokio::test]
async fn every_invalid_field_is_named() {
    let server = TestServer::without_engine().await;
    let long = "x".repeat(256);
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    for (body, fields) in [
        ("{}".to_owned(), &["payload", "type"][..]),
        (r#"{"type":"a"}"#.to_owned(), &["payload"]),
        (r#"{"type":7,"payload":1}"#.to_owned(), &["type"]),
        (r#"{"type":null,"payload":1}"#.to_owned(), &["type"]),
        (r#"{"type":"a b","payload":1}"#.to_owned(), &["type"]),
        (
            r#"{"type":"a","payload":1,"x":1,"y":{}}"#.to_owned(),
            &["x", "y"],
        ),
        (
            r#"{"type":"a","payload":1,"body_base64":"aGk="}"#.to_owned(),
            &["body_base64"],
        ),
        (
            r#"{"type":"a","body_base64":"a*"}"#.to_owned(),
            &["body_base64"],
        ),
        (
            r#"{"type":"a","body_base64":7}"#.to_owned(),
            &["body_base64"],
        ),
        (
            r#"{"type":"a","payload":1,"content_type":"text/csv"}"#.to_owned(),
            &["content_type"],
        ),
        (
            r#"{"type":"a","body_base64":"","content_type":"text/csv\r\nX: y"}"#.to_owned(),
            &["content_type"],
        ),
        (
            r#"{"type":"a","body_base64":"","content_type":"csv"}"#.to_owned(),
            &["content_type"],
        ),
        (
            r#"{"type":"","payload":1,"idempotency_key":"","deliver_at":"soon","ordering_key":5}"#
                .to_owned(),
            &["type", "idempotency_key", "deliver_at", "ordering_key"],
        ),
        (
            r#"{"type":"a","payload":1,"delay":"soon"}"#.to_owned(),
            &["delay"],
        ),
        (
            r#"{"type":"a","payload":1,"delay":90}"#.to_owned(),
            &["delay"],
        ),
        (
            r#"{"type":"a","payload":1,"delay":"366d"}"#.to_owned(),
            &["delay"],
        ),
        (
            r#"{"type":"a","payload":1,"delay":"1h","deliver_at":"2026-11-16T00:00:00Z"}"#
                .to_owned(),
            &["delay"],
        ),
        (
            format!(r#"{{"type":"a","payload":1,"idempotency_key":"{long}"}}"#),
            &["idempotency_key"],
        ),
        (
            r#"{"type":"a","payload":1,"ordering_key":"a\nb"}"#.to_owned(),
            &["ordering_key"],
        ),
        (format!(r#"{{"type":"a","payload":{deep}}}"#), &["payload"]),
        ("[]".to_owned(), &[""]),
        ("null".to_owned(), &[""]),
    ] {
        let answer = server.post_text(EVENTS, &body, &[]).await;
        assert_eq!(answer.problem(422, "invalid"), fields, "{body}");
        let batch = format!(r#"{{"events":[{{"type":"a","payload":1}},{body}]}}"#);
        let answer = server.post_text(BATCH, &batch, &[]).await;
        let placed: Vec<String> = fields
            .iter()
            .map(|field| {
                format!("events[1].{field}")
                    .trim_end_matches('.')
                    .to_owned()
            })
            .collect();
        assert_eq!(answer.problem(422, "invalid"), placed, "{batch}");
    }
    assert_eq!(server.pages(EVENTS).await.concat().len(), 0);
}

#[tokio::test]
async fn malformed_json_is_refused() {
    let server = TestServer::without_engine().await;
    for body in [
        "",
        "{",
        r#"{"type":"a","payload":1"#,
        r#"{"type":"a","payload":}"#,
        r#"{"type":"a","payload":01}"#,
        r#"{"type":"a","payload":1} x"#,
        r#"{"type":"a","payload":1,}"#,
        r#"{"type":"a","type":"b","payload":1}"#,
        r#"{"type":"a","payload":1,"payload":1}"#,
        "{\"type\":\"a\",\"payload\":\"\u{1}\"}",
        "nul",
        "[1",
    ] {
        let answer = server.post_text(EVENTS, body, &[]).await;
        answer.problem(400, "malformed_json");
        let answer = server.post_text(BATCH, &format!("[{body}"), &[]).await;
        answer.problem(400, "malformed_json");
    }
    let twice = r#"{"events":[],"events":[]}"#;
    let answer = server.post_text(BATCH, twice, &[]).await;
    answer.problem(400, "malformed_json");
    let typed = [("content-type", "text/plain")];
    let answer = server.post_text(EVENTS, "{}", &typed).await;
    answer.problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn a_deeply_nested_body_is_refused_without_a_crash() {
    let server = TestServer::without_engine().await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for body in [
            format!(r#"{{"type":"a","payload":{deep}}}"#),
            format!(r#"{{"type":"a","payload":1,"x":{deep}}}"#),
            deep.clone(),
        ] {
            for path in [EVENTS, BATCH] {
                let answer = server.post_text(path, &body, &[]).await;
                assert!([400, 422].contains(&answer.status.as_u16()), "{answer:?}");
            }
        }
    }
    // Brackets inside a text are not nesting.
    let text = "[".repeat(1_000);
    let event = json!({"type": "a", "payload": {"text": text}});
    server.event(&event).await.ok(202);
}

#[tokio::test]
async fn a_refusal_names_the_exceeded_limit() {
    let server = TestServer::without_engine().await;
    let large = "x".repeat(1 << 20);
    let event = json!({"type": "a", "payload": large});
    server.event(&event).await.problem(413, "too_large");

    let limits = json!({"payload_bytes": 10, "events_per_second": 3});
    server
        .post("/v1/tenants", json!({"id": "small", "limits": limits}))
        .await;
    let path = "/v1/tenants/small/events";
    let fits = json!({"type": "a", "payload": "12345678"});
    server.post(path, &fits).await.ok(202);
    for large in [
        json!({"type": "a", "payload": "123456789"}),
        json!({"type": "a", "body_base64": "AAAAAAAAAAAAAAA="}),
    ] {
        let answer = server.post(path, &large).await;
        answer.problem(413, "quota_exceeded");
        assert!(answer.text().contains("payload_bytes"), "{}", answer.text());
    }
    server.post(path, &fits).await.ok(202);
    server.post(path, &fits).await.ok(202);
    let answer = server.post(path, &fits).await;
    answer.problem(429, "quota_exceeded");
    assert_eq!(answer.json["limit"], "events_per_second");
    assert_eq!(answer.headers["retry-after"], "1");
    // A repeated idempotency key costs no quota. A batch larger than the limit is refused however long the caller
    // waits.
    let keyed = json!({"type": "a", "payload": 1, "idempotency_key": "k"});
    server
        .post(path, &keyed)
        .await
        .problem(429, "quota_exceeded");
    server.pass_ms(334);
    server.post(path, &keyed).await.ok(202);
    server
        .post(path, &fits)
        .await
        .problem(429, "quota_exceeded");
    server.post(path, &keyed).await.ok(200);
    let four = json!({"events": [fits, fits, fits, fits]});
    server.pass_ms(2_000);
    let answer = server.post(&format!("{path}/batch"), &four).await;
    answer.problem(403, "quota_exceeded");
    assert_eq!(answer.json["limit"], "events_per_second");
    assert!(answer.text().contains("fewer events"), "{}", answer.text());
    assert!(!answer.headers.contains_key("retry-after"));
    let three = json!({"events": [fits, fits, fits]});
    server.post(&format!("{path}/batch"), &three).await.ok(202);
    let shut = json!({"limits": {"events_per_second": 0}});
    server.patch("/v1/tenants/small", &shut).await.ok(200);
    server
        .post(path, &fits)
        .await
        .problem(403, "quota_exceeded");
}

/// The quota does not know how many events of a refused batch were new, so a smaller request is still tried.
#[tokio::test]
async fn a_refused_batch_does_not_block_smaller_requests() {
    let server = TestServer::without_engine().await;
    let limits = json!({"events_per_second": 3});
    server
        .post("/v1/tenants", json!({"id": "small", "limits": limits}))
        .await;
    let path = "/v1/tenants/small/events";
    let keyless = json!({"type": "a", "payload": 1});
    let keyed = |key: &str| json!({"type": "a", "payload": 1, "idempotency_key": key});
    server.post(path, &keyless).await.ok(202);
    let three = json!({"events": [keyless, keyed("a"), keyed("b")]});
    let answer = server.post(&format!("{path}/batch"), &three).await;
    answer.problem(429, "quota_exceeded");
    server.post(path, &keyless).await.ok(202);
    server.post(path, &keyless).await.ok(202);
    server
        .post(path, &keyless)
        .await
        .problem(429, "quota_exceeded");
}

#[tokio::test]
async fn the_monthly_quota_is_enforced() {
    let server = TestServer::without_engine().await;
    let path = "/v1/tenants/small/events";
    let event = json!({"type": "a", "payload": 1});
    server.tenant("small").await;
    server.post(path, &event).await.ok(202);
    // Events from before the limit count, too.
    let plan = json!({"limits": {"events_per_month": 4}});
    server.patch("/v1/tenants/small", &plan).await.ok(200);
    let again = json!({"type": "a", "payload": 1, "idempotency_key": "k"});
    server.post(path, &again).await.ok(202);
    server.post(path, &again).await.ok(200);
    let batch = json!({"events": [event, event, event]});
    let batch_path = format!("{path}/batch");
    let refused = server.post(&batch_path, &batch).await;
    refused.problem(429, "quota_exceeded");
    // Neither the repeated event nor the refused batch used any quota.
    server.post(path, &event).await.ok(202);
    server.post(path, &event).await.ok(202);
    let refused = server.post(path, &event).await;
    refused.problem(429, "quota_exceeded");
    assert_eq!(refused.json["limit"], "events_per_month");
    // A higher limit takes effect immediately, also after a refusal.
    let plan = json!({"limits": {"events_per_month": 5}});
    server.patch("/v1/tenants/small", &plan).await.ok(200);
    server.post(path, &event).await.ok(202);
    let refused = server.post(path, &event).await;
    refused.problem(429, "quota_exceeded");
    // From noon of 15 November to the end of the month.
    let wait_secs = (15 * 24 + 12) * 3_600;
    assert_eq!(refused.headers["retry-after"], wait_secs.to_string());
    server.pass_ms(wait_secs * 1_000);
    server.post(path, &event).await.ok(202);
}

#[tokio::test]
async fn another_tenants_key_sees_no_events() {
    let server = TestServer::without_engine().await;
    server.tenant("other").await;
    let key = json!({"name": "x"});
    let key = server.post("/v1/tenants/other/keys", &key).await;
    let key = key.ok(201)["key"].as_str().unwrap().to_owned();
    let event = server.event(&json!({"type": "a", "payload": 1})).await;
    let event = event.ok(202)["id"].as_str().unwrap().to_owned();
    for path in [
        EVENTS.to_owned(),
        format!("{EVENTS}/{event}"),
        "/v1/tenants/acme/deliveries".to_owned(),
        "/v1/tenants/acme/dead-letters".to_owned(),
        "/v1/tenants/acme/replays".to_owned(),
        "/v1/tenants/acme/stats".to_owned(),
    ] {
        let answer = server.get_as(&path, &key).await;
        answer.problem(404, "not_found");
        let answer = server.get_as(&path, "ph_unknown").await;
        answer.problem(401, "unauthorized");
        let answer = server.get_as(&path.replace("acme", "missing"), &key).await;
        answer.problem(404, "not_found");
    }
    let elsewhere = format!("/v1/tenants/other/events/{event}");
    let answer = server.get_as(&elsewhere, &key).await;
    answer.problem(404, "not_found");
    server
        .get_as("/v1/stats", &key)
        .await
        .problem(403, "forbidden");
    for nothing in ["evt_x", "dlv_01jd2kq8z3w5x7y9a1b2c3d4e5"] {
        let answer = server.get(&format!("{EVENTS}/{nothing}")).await;
        answer.problem(404, "not_found");
    }
}

#[tokio::test]
async fn a_store_that_cannot_write_accepts_nothing() {
    let server = TestServer::without_engine().await;
    let event = json!({"type": "a", "payload": 1});
    for (error, status, code) in [
        (StoreError::Full, 507, "disk_full"),
        (StoreError::Overloaded, 503, "overloaded"),
        (StoreError::Unavailable("x".to_owned()), 503, "unavailable"),
    ] {
        server.store.fail_writes(Some(error));
        server.event(&event).await.problem(status, code);
        let answer = server.post(BATCH, &json!([event])).await;
        answer.problem(status, code);
        assert!(answer.headers.contains_key("retry-after"));
    }
    server.store.fail_writes(None);
    server.event(&event).await.ok(202);
    assert_eq!(server.pages(EVENTS).await.concat().len(), 1);
}
