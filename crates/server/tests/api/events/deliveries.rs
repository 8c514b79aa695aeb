//! The API for deliveries: status, filters, retry and cancel.
//!
//! Deliveries go from a [`TestServer`] with an engine to a receiver of the testbed.

use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::{ApiResponse, TestServer};

const DELIVERIES: &str = "/v1/tenants/acme/deliveries";

async fn act(server: &TestServer, delivery: &str, verb: &str) -> ApiResponse {
    let path = format!("{DELIVERIES}/{delivery}/{verb}");
    server.post_text(&path, "", &[]).await
}

async fn listed(server: &TestServer, query: &str) -> Vec<String> {
    let pages = server.pages(&format!("{DELIVERIES}?{query}")).await;
    let id = |it: &Value| it["id"].as_str().unwrap().to_owned();
    pages.concat().iter().map(id).collect()
}

#[tokio::test]
async fn a_delivery_is_shown_in_progress_and_can_be_retried() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    receiver.hold();
    server.endpoint(json!({"url": receiver.url()})).await;
    let id = server
        .deliver(json!({"type": "a.b", "payload": {"n": 1}}))
        .await;
    receiver.arrivals(1).await;
    let shown = server.until_status(&id, "in_progress").await;
    assert_eq!(shown["next_attempt_at"], Value::Null);
    assert_eq!(shown["attempts"], json!([]));
    assert_eq!(
        shown["timeline"][0]["number"], 2,
        "the timeline starts with the next attempt"
    );
    assert_eq!(listed(&server, "status=in_progress").await, [id.as_str()]);
    assert!(
        listed(&server, "status=in_progress&event_type=x")
            .await
            .is_empty()
    );
    assert!(listed(&server, "status=pending").await.is_empty());
    let all = server.get(DELIVERIES).await.ok(200);
    assert_eq!(all["data"][0]["status"], "in_progress");
    assert!(all["data"][0].get("attempts").is_none());
    for verb in ["retry", "cancel"] {
        let refused = act(&server, &id, verb).await;
        refused.problem(409, "delivery_in_progress");
    }
    receiver.release();
    let shown = server.until_status(&id, "succeeded").await;
    assert_eq!(shown["attempt_count"], 1);
    assert_eq!(shown["max_attempts"], 9);
    assert_eq!(shown["attempts"][0]["trigger"], "automatic");
    assert_eq!(shown["attempts"][0]["status_code"], 200);
    assert_eq!(shown["attempts"][0]["will_retry"], false);
    assert_eq!(shown["timeline"], json!([]));
    assert_eq!(shown["last_error"], Value::Null);
    assert!(shown["finished_at"].is_string());
    assert!(listed(&server, "status=in_progress").await.is_empty());
    act(&server, &id, "cancel")
        .await
        .problem(409, "already_finished");

    let again = act(&server, &id, "retry").await.ok(202);
    assert_eq!(
        again["max_attempts"], 10,
        "nine attempts of the policy and the earlier one"
    );
    receiver.arrivals(2).await;
    let shown = server.until_status(&id, "succeeded").await;
    assert_eq!(shown["attempts"][1]["trigger"], "manual");
    assert_eq!(shown["attempts"][1]["number"], 2);
}

#[tokio::test]
async fn a_waiting_delivery_can_be_cancelled() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    server.endpoint(json!({"url": receiver.url()})).await;
    let later = json!({"type": "a.b", "payload": 1, "deliver_at": "2099-01-01T00:00:00Z"});
    server.event(&later).await.problem(422, "invalid");
    let soon = server
        .app
        .clock
        .wall()
        .after(posthaste_core::time::Span::from_hours(1));
    let event = json!({"type": "a.b", "payload": 1, "deliver_at": soon.to_string()});
    let id = server.deliver(event).await;
    assert_eq!(listed(&server, "status=pending").await, [id.as_str()]);
    let shown = act(&server, &id, "cancel").await.ok(200);
    assert_eq!(shown["status"], "cancelled");
    assert_eq!(shown["timeline"], json!([]));
    let again = act(&server, &id, "cancel").await.ok(200);
    assert_eq!(again, shown);
    assert_eq!(listed(&server, "status=cancelled").await, [id.as_str()]);
    // A cancelled delivery still exists: it can be retried.
    act(&server, &id, "retry").await.ok(202);
    server.until_status(&id, "succeeded").await;
}

#[tokio::test]
async fn failures_have_an_error_kind_and_are_found_by_it() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    receiver.answer(400);
    let bad = server.endpoint(json!({"url": receiver.url()})).await;
    let id = server.deliver(json!({"type": "a.b", "payload": 1})).await;
    let shown = server.until_status(&id, "failed").await;
    assert_eq!(shown["reason"], "permanent");
    assert_eq!(shown["last_error"]["kind"], "http");
    assert_eq!(shown["last_error"]["status_code"], 400);
    assert!(shown["last_error"]["detail"].is_string());
    assert_eq!(shown["attempts"][0]["error_kind"], "http");
    let event = shown["event_id"].as_str().unwrap();
    let created = shown["created_at"].as_str().unwrap();
    for (query, found) in [
        ("status=failed".to_owned(), true),
        ("status=succeeded".to_owned(), false),
        ("status=held".to_owned(), false),
        (format!("endpoint={bad}"), true),
        ("endpoint=ep_00000000000000000000000001".to_owned(), false),
        (format!("event={event}"), true),
        ("event_type=a.b&error_kind=http".to_owned(), true),
        ("event_type=a.c".to_owned(), false),
        ("error_kind=timeout".to_owned(), false),
        (format!("since={created}"), true),
        (format!("until={created}"), false),
        (
            format!("status=failed&endpoint={bad}&event={event}&limit=1"),
            true,
        ),
    ] {
        let expected: &[String] = if found {
            std::slice::from_ref(&id)
        } else {
            &[]
        };
        assert_eq!(listed(&server, &query).await, expected, "{query}");
    }
    for (query, field) in [
        ("status=done", "status"),
        ("endpoint=evt_1", "endpoint"),
        ("event=7", "event"),
        ("error_kind=bad", "error_kind"),
        ("until=x", "until"),
        ("type=a", "type"),
    ] {
        let answer = server.get(&format!("{DELIVERIES}?{query}")).await;
        assert_eq!(answer.problem(422, "invalid"), [field], "{query}");
    }
    let disable = format!("/v1/tenants/acme/endpoints/{bad}/disable");
    assert_eq!(server.post_text(&disable, "", &[]).await.status, 200);
    act(&server, &id, "retry")
        .await
        .problem(409, "endpoint_disabled");
    let path = format!("/v1/tenants/acme/endpoints/{bad}");
    let delete = http::Request::delete(path).header("authorization", "Bearer ph_admin");
    let gone = server.send(delete.body(axum::body::Body::empty()).unwrap());
    assert!(gone.await.status.is_success());
    act(&server, &id, "retry")
        .await
        .problem(409, "endpoint_deleted");
    let none = "dlv_00000000000000000000000001";
    for verb in ["retry", "cancel"] {
        act(&server, none, verb).await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn deliveries_of_a_paused_endpoint_are_held() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    assert_eq!(server.post_text(&pause, "", &[]).await.status, 200);
    let id = server.deliver(json!({"type": "a.b", "payload": 1})).await;
    let shown = server.until_status(&id, "held").await;
    assert_eq!(shown["next_attempt_at"], Value::Null);
    assert_eq!(shown["timeline"][0]["number"], 1);
    assert_eq!(listed(&server, "status=held").await, [id.as_str()]);
    assert!(listed(&server, "status=pending").await.is_empty());
    let resume = pause.replace("pause", "resume");
    assert_eq!(server.post_text(&resume, "", &[]).await.status, 200);
    server.until_status(&id, "succeeded").await;
}

#[tokio::test]
async fn disabling_an_endpoint_fails_its_waiting_deliveries() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = server.endpoint(json!({"url": receiver.url()})).await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    assert_eq!(server.post_text(&pause, "", &[]).await.status, 200);
    let id = server.deliver(json!({"type": "a.b", "payload": 1})).await;
    let disable = pause.replace("pause", "disable");
    assert_eq!(server.post_text(&disable, "", &[]).await.status, 200);
    let shown = server.until_status(&id, "failed").await;
    assert_eq!(shown["reason"], "endpoint_disabled");
    assert_eq!(shown["last_error"]["kind"], "webhook_disabled");
    assert_eq!(shown["last_error"]["status_code"], Value::Null);
    assert_eq!(listed(&server, "error_kind=webhook_disabled").await, [id]);
}

#[tokio::test]
async fn actions_with_an_invalid_body_do_nothing() {
    let server = TestServer::without_engine().await;
    server
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await;
    let id = server.deliver(json!({"type": "a", "payload": 1})).await;
    let replay = server.post("/v1/tenants/acme/replays", &json!({})).await;
    let replay = replay.ok(202)["id"].as_str().unwrap().to_owned();
    for path in [
        format!("{DELIVERIES}/{id}/retry"),
        format!("{DELIVERIES}/{id}/cancel"),
        format!("/v1/tenants/acme/replays/{replay}/cancel"),
    ] {
        let answer = server.post(&path, &json!({"at": "noon"})).await;
        assert_eq!(answer.problem(422, "invalid"), ["at"], "{path}");
        let answer = server.post(&path, &json!([])).await;
        answer.problem(422, "invalid");
        let answer = server.post_text(&path, "{", &[]).await;
        answer.problem(400, "malformed_json");
    }
    let shown = server.get(&format!("{DELIVERIES}/{id}")).await.ok(200);
    assert_eq!(shown["status"], "pending");
    let path = format!("{DELIVERIES}/{id}/retry");
    server.post(&path, &json!({})).await.ok(202);
}

#[tokio::test]
async fn a_plan_limits_existing_policies() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    receiver.answer(500);
    let policy = json!({"backoff": {"kind": "fixed", "interval": "1ms"}, "max_attempts": 5});
    let endpoint = json!({"url": receiver.url(), "retry_policy": policy});
    server.endpoint(endpoint).await;
    let plan = json!({"limits": {"max_attempts": 2}});
    let changed = server.patch("/v1/tenants/acme", &plan).await;
    changed.ok(200);
    let id = server.deliver(json!({"type": "a", "payload": 1})).await;
    let shown = server.until_status(&id, "failed").await;
    assert_eq!(shown["reason"], "exhausted");
    assert_eq!(shown["max_attempts"], 2);
    assert_eq!(shown["attempt_count"], 2);
}
