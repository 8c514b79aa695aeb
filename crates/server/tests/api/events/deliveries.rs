//! The API for deliveries.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::kit::{Receiver, World};

const DELIVERIES: &str = "/v1/tenants/acme/deliveries";

async fn deliver(world: &World, event: Value) -> String {
    let answer = world.event(&event).await.ok(202);
    answer["deliveries"][0]["id"].as_str().unwrap().to_owned()
}

async fn act(world: &World, delivery: &str, verb: &str) -> super::kit::Answer {
    let path = format!("{DELIVERIES}/{delivery}/{verb}");
    world.send(&path, "", &[]).await
}

async fn listed(world: &World, query: &str) -> Vec<String> {
    let pages = world.pages(&format!("{DELIVERIES}?{query}")).await;
    let id = |it: &Value| it["id"].as_str().unwrap().to_owned();
    pages.concat().iter().map(id).collect()
}

#[tokio::test]
async fn a_delivery_can_be_watched_and_sent_again() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    world.endpoint(json!({"url": receiver.url()})).await;
    let id = deliver(&world, json!({"type": "a.b", "payload": {"n": 1}})).await;
    receiver.arrivals(1).await;
    let shown = world.until(&id, "in_progress").await;
    assert_eq!(shown["next_attempt_at"], Value::Null);
    assert_eq!(shown["attempts"], json!([]));
    assert_eq!(
        shown["timeline"][0]["number"], 2,
        "what follows if it fails"
    );
    assert_eq!(listed(&world, "status=in_progress").await, [id.as_str()]);
    assert!(
        listed(&world, "status=in_progress&event_type=x")
            .await
            .is_empty()
    );
    assert!(listed(&world, "status=pending").await.is_empty());
    let all = world.get(DELIVERIES).await.ok(200);
    assert_eq!(all["data"][0]["status"], "in_progress");
    assert!(all["data"][0].get("attempts").is_none());
    for verb in ["retry", "cancel"] {
        let refused = act(&world, &id, verb).await;
        refused.problem(409, "delivery_in_progress");
    }
    receiver.answers.send_replace(true);
    let shown = world.until(&id, "succeeded").await;
    assert_eq!(shown["attempt_count"], 1);
    assert_eq!(shown["max_attempts"], 9);
    assert_eq!(shown["attempts"][0]["trigger"], "automatic");
    assert_eq!(shown["attempts"][0]["status_code"], 200);
    assert_eq!(shown["attempts"][0]["will_retry"], false);
    assert_eq!(shown["timeline"], json!([]));
    assert_eq!(shown["last_error"], Value::Null);
    assert!(shown["finished_at"].is_string());
    assert!(listed(&world, "status=in_progress").await.is_empty());
    act(&world, &id, "cancel")
        .await
        .problem(409, "already_finished");

    let again = act(&world, &id, "retry").await.ok(202);
    assert_eq!(
        again["max_attempts"], 10,
        "the policy's nine, and the one before"
    );
    receiver.arrivals(2).await;
    let shown = world.until(&id, "succeeded").await;
    assert_eq!(shown["attempts"][1]["trigger"], "manual");
    assert_eq!(shown["attempts"][1]["number"], 2);
}

#[tokio::test]
async fn a_delivery_that_waits_can_be_called_off() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    world.endpoint(json!({"url": receiver.url()})).await;
    let later = json!({"type": "a.b", "payload": 1, "deliver_at": "2099-01-01T00:00:00Z"});
    world.event(&later).await.problem(422, "invalid");
    let soon = world
        .app
        .clock
        .wall()
        .after(posthaste_core::time::Span::from_hours(1));
    let event = json!({"type": "a.b", "payload": 1, "deliver_at": soon.to_string()});
    let id = deliver(&world, event).await;
    assert_eq!(listed(&world, "status=pending").await, [id.as_str()]);
    let shown = act(&world, &id, "cancel").await.ok(200);
    assert_eq!(shown["status"], "cancelled");
    assert_eq!(shown["timeline"], json!([]));
    let again = act(&world, &id, "cancel").await.ok(200);
    assert_eq!(again, shown);
    assert_eq!(listed(&world, "status=cancelled").await, [id.as_str()]);
    // A cancelled delivery still exists: it can be retried.
    act(&world, &id, "retry").await.ok(202);
    world.until(&id, "succeeded").await;
}

#[tokio::test]
async fn failures_say_what_went_wrong_and_are_found_by_it() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    receiver.status.store(400, Ordering::SeqCst);
    let bad = world.endpoint(json!({"url": receiver.url()})).await;
    let id = deliver(&world, json!({"type": "a.b", "payload": 1})).await;
    let shown = world.until(&id, "failed").await;
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
        assert_eq!(listed(&world, &query).await, expected, "{query}");
    }
    for (query, field) in [
        ("status=done", "status"),
        ("endpoint=evt_1", "endpoint"),
        ("event=7", "event"),
        ("error_kind=bad", "error_kind"),
        ("until=x", "until"),
        ("type=a", "type"),
    ] {
        let answer = world.get(&format!("{DELIVERIES}?{query}")).await;
        assert_eq!(answer.problem(422, "invalid"), [field], "{query}");
    }
    let disable = format!("/v1/tenants/acme/endpoints/{bad}/disable");
    assert_eq!(world.send(&disable, "", &[]).await.status, 200);
    act(&world, &id, "retry")
        .await
        .problem(409, "endpoint_disabled");
    let path = format!("/v1/tenants/acme/endpoints/{bad}");
    let delete = http::Request::delete(path).header("authorization", "Bearer ph_admin");
    let gone = world.request(delete.body(axum::body::Body::empty()).unwrap());
    assert!(gone.await.status.is_success());
    act(&world, &id, "retry")
        .await
        .problem(409, "endpoint_deleted");
    let none = "dlv_00000000000000000000000001";
    for verb in ["retry", "cancel"] {
        act(&world, none, verb).await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn what_an_endpoint_holds_is_shown_as_held() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    let endpoint = world.endpoint(json!({"url": receiver.url()})).await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    assert_eq!(world.send(&pause, "", &[]).await.status, 200);
    let id = deliver(&world, json!({"type": "a.b", "payload": 1})).await;
    let shown = world.until(&id, "held").await;
    assert_eq!(shown["next_attempt_at"], Value::Null);
    assert_eq!(shown["timeline"][0]["number"], 1);
    assert_eq!(listed(&world, "status=held").await, [id.as_str()]);
    assert!(listed(&world, "status=pending").await.is_empty());
    let resume = pause.replace("pause", "resume");
    assert_eq!(world.send(&resume, "", &[]).await.status, 200);
    world.until(&id, "succeeded").await;
}

#[tokio::test]
async fn an_endpoint_that_is_disabled_fails_what_waits() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    let endpoint = world.endpoint(json!({"url": receiver.url()})).await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    assert_eq!(world.send(&pause, "", &[]).await.status, 200);
    let id = deliver(&world, json!({"type": "a.b", "payload": 1})).await;
    let disable = pause.replace("pause", "disable");
    assert_eq!(world.send(&disable, "", &[]).await.status, 200);
    let shown = world.until(&id, "failed").await;
    assert_eq!(shown["reason"], "endpoint_disabled");
    assert_eq!(shown["last_error"]["kind"], "webhook_disabled");
    assert_eq!(shown["last_error"]["status_code"], Value::Null);
    assert_eq!(listed(&world, "error_kind=webhook_disabled").await, [id]);
}

#[tokio::test]
async fn what_is_not_understood_is_not_done() {
    let world = World::quiet().await;
    world
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await;
    let id = deliver(&world, json!({"type": "a", "payload": 1})).await;
    let replay = world.post("/v1/tenants/acme/replays", &json!({})).await;
    let replay = replay.ok(202)["id"].as_str().unwrap().to_owned();
    for path in [
        format!("{DELIVERIES}/{id}/retry"),
        format!("{DELIVERIES}/{id}/cancel"),
        format!("/v1/tenants/acme/replays/{replay}/cancel"),
    ] {
        let answer = world.post(&path, &json!({"at": "noon"})).await;
        assert_eq!(answer.problem(422, "invalid"), ["at"], "{path}");
        let answer = world.post(&path, &json!([])).await;
        answer.problem(422, "invalid");
        let answer = world.send(&path, "{", &[]).await;
        answer.problem(400, "malformed_json");
    }
    let shown = world.get(&format!("{DELIVERIES}/{id}")).await.ok(200);
    assert_eq!(shown["status"], "pending");
    let path = format!("{DELIVERIES}/{id}/retry");
    world.post(&path, &json!({})).await.ok(202);
}

#[tokio::test]
async fn a_plan_binds_policies_that_are_older_than_it() {
    let world = World::with_engine().await;
    let receiver = Receiver::start().await;
    receiver.status.store(500, Ordering::SeqCst);
    let policy = json!({"backoff": {"kind": "fixed", "interval": "1ms"}, "max_attempts": 5});
    let endpoint = json!({"url": receiver.url(), "retry_policy": policy});
    world.endpoint(endpoint).await;
    let plan = json!({"limits": {"max_attempts": 2}});
    let changed = world.patch("/v1/tenants/acme", &plan).await;
    changed.ok(200);
    let id = deliver(&world, json!({"type": "a", "payload": 1})).await;
    let shown = world.until(&id, "failed").await;
    assert_eq!(shown["reason"], "exhausted");
    assert_eq!(shown["max_attempts"], 2);
    assert_eq!(shown["attempt_count"], 2);
}
