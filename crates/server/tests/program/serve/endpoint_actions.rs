//! Actions on endpoints and deliveries, and their effect on the traffic.

use serde_json::{Value, json};

use super::fixture::{Answer, Api, Receiver, TestServer};

async fn delivery_of(api: &mut Api, fields: Value) -> String {
    let id = api.deliver("acme", fields).await;
    id.to_owned()
}

#[tokio::test]
async fn a_paused_endpoint_loses_nothing_and_a_disabled_one_receives_nothing() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let endpoint = endpoint["id"].as_str().unwrap();
    let act = |verb: &str| format!("/v1/tenants/acme/endpoints/{endpoint}/{verb}");
    let show = |delivery: &str| format!("/v1/tenants/acme/deliveries/{delivery}");

    let paused = api.call("POST", &act("pause"), None).await.expect(200);
    assert_eq!(paused["status"], "paused");
    let held = delivery_of(&mut api, json!({"type": "a", "payload": 1})).await;
    api.until(&show(&held), |body| body["status"] == "held")
        .await;
    assert_eq!(receiver.count(), 0);
    api.call("POST", &act("resume"), None).await.expect(200);
    receiver.arrivals(1).await;
    api.until(&show(&held), |body| body["status"] == "succeeded")
        .await;

    api.call("POST", &act("pause"), None).await.expect(200);
    let lost = delivery_of(&mut api, json!({"type": "a", "payload": 2})).await;
    let disabled = api.call("POST", &act("disable"), None).await.expect(200);
    assert_eq!(disabled["status"], "disabled");
    assert_eq!(disabled["disabled_reason"], "manual");
    let shown = api
        .until(&show(&lost), |body| body["status"] == "failed")
        .await;
    assert_eq!(shown["reason"], "endpoint_disabled");
    assert_eq!(shown["last_error"]["kind"], "webhook_disabled");
    let event = json!({"type": "a", "payload": 3});
    let unrouted = api.event("acme", event).await;
    assert_eq!(unrouted["deliveries"], json!([]));

    // Enabled again, the endpoint can get everything that it missed.
    api.call("POST", &act("enable"), None).await.expect(200);
    let replay = json!({"endpoint": endpoint, "missed_since": "2020-01-01T00:00:00Z"});
    let replay = api
        .post("/v1/tenants/acme/replays", replay)
        .await
        .expect(202);
    assert_eq!(replay["total"], 2);
    receiver.arrivals(3).await;
    let path = format!(
        "/v1/tenants/acme/replays/{}",
        replay["id"].as_str().unwrap()
    );
    let done = api.until(&path, |body| body["status"] == "done").await;
    assert_eq!(done["replayed"], 2);
    assert_eq!(receiver.count(), 3);
}

#[tokio::test]
async fn deliveries_held_past_their_deadline_are_dropped_or_sent_by_policy() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let mut held = Vec::new();
    for late in ["send", "drop"] {
        let fields = json!({
            "url": receiver.url_of(late), "event_types": [late],
            "retry_policy": {"preset": "brisk", "give_up_after": "1ms", "late": late},
        });
        let endpoint = api.endpoint("acme", fields).await;
        assert_eq!(endpoint["retry_policy"]["late"], late);
        let endpoint = endpoint["id"].as_str().unwrap().to_owned();
        let act = format!("/v1/tenants/acme/endpoints/{endpoint}");
        let pause = format!("{act}/pause");
        api.call("POST", &pause, None).await.expect(200);
        let event = json!({"type": late, "payload": 1});
        let delivery = delivery_of(&mut api, event).await;
        let show = format!("/v1/tenants/acme/deliveries/{delivery}");
        api.until(&show, |body| body["status"] == "held").await;
        held.push((act, show));
    }
    let [(send, sent), (drop, dropped)] = &held[..] else {
        panic!("two endpoints")
    };
    // After the deadline, no attempt is promised any more.
    let none = json!([]);
    let shown = api.until(dropped, |body| body["timeline"] == none).await;
    assert_eq!(
        (&shown["status"], &shown["reason"]),
        (&json!("held"), &Value::Null)
    );
    assert_eq!(shown["next_attempt_at"], Value::Null);
    for endpoint in [drop, send] {
        let resume = format!("{endpoint}/resume");
        api.call("POST", &resume, None).await.expect(200);
    }
    let shown = api.until(dropped, |body| body["status"] == "failed").await;
    assert_eq!(shown["reason"], "expired");
    assert_eq!(shown["attempts"], none);
    assert_eq!(shown["attempt_count"], 0);
    assert_eq!(shown["last_error"], Value::Null);
    api.until(sent, |body| body["status"] == "succeeded").await;
    assert_eq!(receiver.records_at("send").len(), 1);
    assert_eq!(receiver.records_at("drop").len(), 0);

    let dead = api.get("/v1/tenants/acme/dead-letters").await.expect(200);
    assert_eq!(dead["data"][0]["count"], 1, "{dead}");
    let mut operator = api;
    operator
        .until("/v1/tenants/acme/stats", |body| {
            body["windows"]["5m"]["dead_letter_ratio"]["value"] == 0.5
        })
        .await;
    // A person can have it sent all the same.
    let retry = format!("{dropped}/retry");
    operator.call("POST", &retry, None).await.expect(202);
    operator
        .until(dropped, |body| body["status"] != "pending")
        .await;
}

#[tokio::test]
async fn a_scheduled_delivery_can_be_cancelled_until_it_is_sent() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let later = json!({"type": "a", "payload": 1, "deliver_at": "2027-01-01T00:00:00Z"});
    let delivery = delivery_of(&mut api, later).await;
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    let cancel = format!("{path}/cancel");
    let shown = api.call("POST", &cancel, None).await.expect(200);
    assert_eq!(shown["status"], "cancelled");
    let at_once = delivery_of(&mut api, json!({"type": "a", "payload": 2})).await;
    let path = format!("/v1/tenants/acme/deliveries/{at_once}");
    api.until(&path, |body| body["status"] == "succeeded").await;
    let refused = api.call("POST", &format!("{path}/cancel"), None).await;
    assert_eq!(refused.expect(409)["code"], "already_finished");
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn a_410_response_disables_the_endpoint() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(410)).await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let path = format!(
        "/v1/tenants/acme/endpoints/{}",
        endpoint["id"].as_str().unwrap()
    );
    delivery_of(&mut api, json!({"type": "a", "payload": 1})).await;
    let shown = api.until(&path, |body| body["status"] == "disabled").await;
    assert_eq!(shown["disabled_reason"], "gone");
}

#[tokio::test]
async fn deleting_an_endpoint_fails_its_waiting_deliveries() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let endpoint = endpoint["id"].as_str().unwrap();
    let delivery = delivery_of(&mut api, json!({"type": "a", "payload": 1})).await;
    receiver.arrivals(1).await;
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    api.until(&path, |body| body["status"] == "retrying").await;
    let gone = format!("/v1/tenants/acme/endpoints/{endpoint}");
    assert_eq!(api.call("DELETE", &gone, None).await.status, 204);
    assert_eq!(api.get(&gone).await.status, 404);
    let shown = api.until(&path, |body| body["status"] == "failed").await;
    assert_eq!(shown["reason"], "endpoint_deleted");
}
