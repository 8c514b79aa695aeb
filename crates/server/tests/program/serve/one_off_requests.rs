//! One-off requests from the API to the receiver: method, headers, body and signature, retries, cancellation, rotation of
//! the secret, and a kill between acceptance and delivery.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{Answer, Api, Receiver, TestServer};

const REQUESTS: &str = "/v1/tenants/acme/requests";
const SECRET: &str = "/v1/tenants/acme/signing-secret";

async fn send(api: &mut Api, request: Value) -> Value {
    api.post(REQUESTS, request).await.expect(202)
}

fn id_of(delivery: &Value) -> &str {
    delivery["id"].as_str().expect("an id")
}

async fn secret(api: &mut Api) -> String {
    let shown = api.get(SECRET).await.expect(200);
    shown["secret"].as_str().expect("a secret").to_owned()
}

fn is_signed(arrival: &super::fixture::Arrival, secret: &str) -> bool {
    let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
    webhook.verify(&arrival.body, &arrival.headers).is_ok()
}

#[tokio::test]
async fn every_method_arrives_as_it_was_asked_for() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let secret = secret(&mut api).await;
    for (number, method) in ["GET", "POST", "PUT", "PATCH", "DELETE"].iter().enumerate() {
        let url = format!("{}/{method}?n={number}", receiver.url());
        let mut request = json!({"url": url, "method": method, "headers": {"X-Team": "billing", "Authorization": "Basic YTpi"}});
        let body = match *method {
            "GET" | "DELETE" => "",
            "PUT" => {
                request["body_base64"] = json!("YSxiCg==");
                request["content_type"] = json!("text/csv");
                "a,b\n"
            }
            _ => {
                request["payload"] = json!({"n": number});
                &format!("{{\"n\":{number}}}")
            }
        };
        let answer = send(&mut api, request).await;
        assert_eq!(answer["request"], json!({"method": method, "url": url}));
        let arrival = receiver.arrivals(number + 1).await.remove(number);
        assert_eq!(arrival.method, *method);
        assert_eq!(arrival.path, format!("/hook/{method}"));
        assert_eq!(arrival.query, Some(format!("n={number}")));
        assert_eq!(arrival.body, body);
        assert_eq!(arrival.header("x-team"), "billing");
        assert_eq!(arrival.header("authorization"), "Basic YTpi");
        let content_type = match *method {
            "GET" | "DELETE" => None,
            "PUT" => Some("text/csv"),
            _ => Some("application/json"),
        };
        let sent = arrival.headers.get("content-type");
        assert_eq!(
            sent.map(|value| value.as_bytes()),
            content_type.map(str::as_bytes)
        );
        assert_eq!(arrival.delivery(), id_of(&answer));
        assert!(is_signed(&arrival, &secret), "{method}");
        let shown = api.until_status("acme", id_of(&answer), "succeeded").await;
        assert_eq!(shown["request"], answer["request"]);
        assert_eq!(shown["attempt_count"], 1);
    }
}

#[tokio::test]
async fn a_request_is_retried_by_its_own_policy_and_replayed() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let policy = json!({"backoff": {"kind": "fixed", "interval": "20ms"}, "jitter": {"kind": "none"}, "max_attempts": 3});
    let request = json!({
        "url": receiver.url(), "method": "PATCH", "payload": {"n": 1}, "retry_policy": policy, "headers": {"X-A": "1"},
    });
    let answer = send(&mut api, request).await;
    assert_eq!(answer["max_attempts"], 3);
    let id = id_of(&answer).to_owned();
    let shown = api.until_status("acme", &id, "failed").await;
    assert_eq!(shown["attempt_count"], 3, "{shown}");
    assert_eq!(shown["reason"], "exhausted");
    assert_eq!(receiver.count(), 3);
    receiver.answer(200);
    let retry = format!("/v1/tenants/acme/deliveries/{id}/retry");
    api.post(&retry, json!({})).await.expect(202);
    let shown = api.until_status("acme", &id, "succeeded").await;
    assert_eq!(shown["attempt_count"], 4);
    assert_eq!(shown["max_attempts"], 6, "three attempts in each round");
    // A replay of what succeeded sends it once more.
    let replay = json!({"status": "succeeded", "endpoint": answer["endpoint_id"]});
    let replay = api
        .post("/v1/tenants/acme/replays", replay)
        .await
        .expect(202);
    assert_eq!(replay["total"], 1);
    let arrivals = receiver.arrivals(5).await;
    for arrival in &arrivals {
        assert_eq!(arrival.method, "PATCH");
        assert_eq!(arrival.header("x-a"), "1");
        assert_eq!(arrival.delivery(), id);
    }
}

#[tokio::test]
async fn a_scheduled_request_can_be_cancelled() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let later = json!({"url": receiver.url(), "payload": "later", "delay": "1h"});
    let later = send(&mut api, later).await;
    let soon = json!({"url": receiver.url(), "payload": "soon", "delay": "300ms"});
    let soon = send(&mut api, soon).await;
    let cancel = format!("/v1/tenants/acme/deliveries/{}/cancel", id_of(&later));
    let cancelled = api.post(&cancel, json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled["request"]["method"], "POST");
    let arrival = receiver.arrivals(1).await.remove(0);
    assert_eq!(arrival.body, "\"soon\"");
    let shown = api.until_status("acme", id_of(&soon), "succeeded").await;
    let attempt = &shown["attempts"][0];
    assert!(attempt["started_at"].as_str() >= soon["next_attempt_at"].as_str());
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn a_rotated_secret_signs_the_next_request() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let old = secret(&mut api).await;
    send(&mut api, json!({"url": receiver.url(), "payload": 1})).await;
    receiver.arrivals(1).await;
    let rotate = format!("{SECRET}/rotate");
    api.post(&rotate, json!({"overlap": "1h"}))
        .await
        .expect(200);
    let new = secret(&mut api).await;
    send(&mut api, json!({"url": receiver.url(), "payload": 2})).await;
    let arrival = receiver.arrivals(2).await.remove(1);
    assert!(is_signed(&arrival, &old), "the old one signs along");
    assert!(is_signed(&arrival, &new));
    api.post(&rotate, json!({"overlap": "0s"}))
        .await
        .expect(200);
    let newest = secret(&mut api).await;
    send(&mut api, json!({"url": receiver.url(), "payload": 3})).await;
    let arrival = receiver.arrivals(3).await.remove(2);
    assert!(is_signed(&arrival, &newest));
    assert!(!is_signed(&arrival, &new), "it ended at once");
}

#[tokio::test]
async fn ordered_requests_to_an_origin_arrive_in_order() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|arrival| match arrival.number {
        1 => Answer::status(500),
        _ => Answer::status(200),
    })
    .await;
    let policy = json!({"backoff": {"kind": "fixed", "interval": "100ms"}, "jitter": {"kind": "none"}, "max_attempts": 5});
    for number in 0..5 {
        let request = json!({
            "url": receiver.url(), "payload": number, "ordering_key": "one", "retry_policy": policy,
        });
        send(&mut api, request).await;
    }
    let bodies: Vec<String> = receiver
        .arrivals(6)
        .await
        .iter()
        .map(|arrival| String::from_utf8_lossy(&arrival.body).into_owned())
        .collect();
    assert_eq!(bodies, ["0", "0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn accepted_requests_survive_a_kill() {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    receiver.hold();
    let secret = secret(&mut api).await;
    let mut accepted = BTreeSet::new();
    for number in 0..20 {
        let request = json!({
            "url": format!("{}/{number}", receiver.url()), "method": "PUT", "payload": number,
            "headers": {"X-Number": number.to_string()}, "idempotency_key": format!("k{number}"),
        });
        let answer = send(&mut api, request).await;
        accepted.insert(id_of(&answer).to_owned());
    }
    receiver.arrivals(1).await;
    server.kill();
    receiver.release();
    server.restart();
    let mut api = server.api();
    for id in &accepted {
        api.until_status("acme", id, "succeeded").await;
    }
    let arrivals = receiver.records();
    let arrived: BTreeSet<String> = arrivals.iter().map(|arrival| arrival.delivery()).collect();
    assert_eq!(arrived, accepted);
    for arrival in &arrivals {
        let number = arrival.header("x-number");
        assert_eq!(arrival.method, "PUT");
        assert_eq!(arrival.path, format!("/hook/{number}"));
        assert_eq!(arrival.body, number);
        assert!(is_signed(arrival, &secret));
    }
    // A repeated request is the one that was accepted before the kill.
    let again = json!({
        "url": format!("{}/0", receiver.url()), "method": "PUT", "payload": 0,
        "headers": {"X-Number": "0"}, "idempotency_key": "k0",
    });
    let again = api.post(REQUESTS, again).await.expect(200);
    assert!(accepted.contains(id_of(&again)));
    assert_eq!(receiver.count(), arrivals.len());
}
