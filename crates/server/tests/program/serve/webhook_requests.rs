//! The requests that a receiver gets: body, headers, signature and retries.
//!
//! Fixture: a [`TestServer`] and a receiver.

use serde_json::{Value, json};

use super::fixture::{Answer, Receiver, TestServer};

#[tokio::test]
async fn an_event_arrives_byte_for_byte_signed_and_labelled() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let endpoint = json!({
        "url": receiver.url(),
        "event_types": ["invoice.*"],
        "headers": {"X-Team": "billing"},
    });
    let endpoint = api.endpoint("acme", endpoint).await;
    let secret = endpoint["secret"]
        .as_str()
        .expect("a secret in the response");

    let payload = r#"{ "n" : 1.0,"b":[1,2 , 3], "ü":"\u00fc" , "big":12345678901234567890123 }"#;
    let body = format!(r#"{{"type":"invoice.paid","payload":{payload}}}"#);
    let reply = api
        .try_call("POST", "/v1/tenants/acme/events", Some(body.as_bytes()))
        .await;
    let event = reply.expect("an answer").expect(202);
    let other = json!({"type": "user.created", "payload": {}});
    let other = api.event("acme", other).await;
    assert_eq!(
        other["deliveries"],
        json!([]),
        "no endpoint subscribes to this type"
    );

    let arrival = receiver.arrivals(1).await.remove(0);
    assert_eq!(arrival.body, payload.as_bytes());
    assert_eq!(arrival.path, "/hook");
    assert_eq!(arrival.header("content-type"), "application/json");
    assert_eq!(arrival.header("x-team"), "billing");
    assert_eq!(arrival.event(), event["id"].as_str().unwrap());
    assert_eq!(arrival.header("posthaste-event-type"), "invoice.paid");
    assert_eq!(
        arrival.header("posthaste-event-time"),
        event["created_at"].as_str().unwrap()
    );
    assert_eq!(arrival.attempt(), 1);
    let delivery = event["deliveries"][0]["id"].as_str().unwrap();
    assert_eq!(arrival.delivery(), delivery);
    assert!(arrival.header("user-agent").starts_with("posthaste/"));

    // The official library accepts the signature.
    let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
    webhook
        .verify(&arrival.body, &arrival.headers)
        .expect("the signature holds");
    let forged = [arrival.body.as_ref(), b" "].concat();
    assert!(webhook.verify(&forged, &arrival.headers).is_err());

    let shown = api.until_status("acme", delivery, "succeeded").await;
    assert_eq!(shown["attempt_count"], 1);
    assert_eq!(shown["attempts"][0]["status_code"], 200);
    assert_eq!(shown["timeline"], json!([]));
}

#[tokio::test]
async fn raw_bytes_keep_their_content_type() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    api.endpoint("acme", json!({"url": receiver.url()})).await;
    let event = json!({"type": "raw", "body_base64": "AAEC/w==", "content_type": "image/x-tiny"});
    api.event("acme", event).await;
    let arrival = receiver.arrivals(1).await.remove(0);
    assert_eq!(arrival.body.as_ref(), [0, 1, 2, 255]);
    assert_eq!(arrival.header("content-type"), "image/x-tiny");
}

#[tokio::test]
async fn a_failing_delivery_is_retried_with_the_same_id_and_then_fails_for_good() {
    let server = TestServer::start(&[]);
    let receiver = Receiver::start(|arrival| Answer {
        body: format!("no {}", arrival.number).into(),
        headers: vec![
            ("x-request-id", format!("req-{}", arrival.number)),
            ("set-cookie", "session=1".to_owned()),
            ("x-said", arrival.header("x-api-key").to_owned()),
        ],
        ..Answer::status(503)
    })
    .await;
    let mut api = server.api();
    api.tenant("acme").await;
    let endpoint = json!({
        "url": receiver.url(),
        "headers": {"x-api-key": "correct-horse"},
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "30ms"}, "max_attempts": 3},
    });
    api.endpoint("acme", endpoint).await;
    let event = json!({"type": "a.b", "payload": {"x": 1}});
    let delivery = api.deliver("acme", event).await;
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    let shown = api.until(&path, |body| body["status"] == "failed").await;
    assert_eq!(shown["reason"], "exhausted");
    assert_eq!(shown["attempt_count"], 3);
    assert_eq!(shown["max_attempts"], 3);
    assert_eq!(shown["last_error"]["kind"], "http");
    assert_eq!(shown["last_error"]["status_code"], 503);
    let attempts: Vec<Value> = shown["attempts"].as_array().unwrap().clone();
    for (index, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt["number"], index + 1);
        assert_eq!(attempt["trigger"], "automatic");
        assert_eq!(attempt["response_snippet"], format!("no {}", index + 1));
        assert_eq!(attempt["will_retry"], index < 2);
        let headers = attempt["response_headers"].as_object().unwrap();
        assert_eq!(headers["x-request-id"], format!("req-{}", index + 1));
        assert_eq!(headers["x-said"], "…", "our own secrets are not kept");
        assert!(!headers.contains_key("set-cookie"));
    }
    let records = receiver.records();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|arrival| arrival.delivery() == delivery));
    assert!(
        records
            .iter()
            .all(|arrival| arrival.body == records[0].body)
    );
    let numbers: Vec<u32> = records.iter().map(|arrival| arrival.attempt()).collect();
    assert_eq!(numbers, [1, 2, 3]);

    // A manual retry starts a new series of attempts with the same delivery id.
    receiver.answer(204);
    let retry = format!("{path}/retry");
    api.call("POST", &retry, None).await.expect(202);
    let shown = api.until(&path, |body| body["status"] == "succeeded").await;
    assert_eq!(shown["attempts"][3]["trigger"], "manual");
    assert_eq!(shown["attempts"][3]["response_headers"], Value::Null);
    assert_eq!(
        shown["attempts"][2]["response_headers"]["x-request-id"],
        "req-3"
    );
    assert_eq!(receiver.records()[3].delivery(), delivery);
}
