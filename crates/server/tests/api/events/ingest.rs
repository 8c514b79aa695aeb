//! The API for sending events: payloads, idempotency keys, schedules, batches and lists.
//!
//! Fixture: a [`TestServer`], without an engine where nothing is sent.

use posthaste_core::id::EventId;
use posthaste_core::time::Timestamp;
use posthaste_store::Store;
use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::{NOON, TestServer};

async fn stored(server: &TestServer, answer: &Value) -> Vec<u8> {
    let id: EventId = answer["id"].as_str().unwrap().parse().unwrap();
    let content = server.store.content(id).await.unwrap();
    content.expect("a stored event").1.payload.to_vec()
}

/// Payloads with whitespace, escapes, numbers too large for a float and duplicate names. All are stored unchanged.
const ODD_PAYLOADS: [&str; 12] = [
    "{ \"a\" :\t1 ,\r\n \"b\":[ ] }",
    r#"{"k":"\u00e9\ud83d\ude00\/\"x\\"}"#,
    r#"{"k":"é😀"}"#,
    "123456789012345678901234567890.000100",
    "-0",
    "1E+400",
    r#"{"a":1,"a":2,"a":{"a":3}}"#,
    "null",
    "true",
    r#""[{not nested}]""#,
    "[]",
    r#""\ud800""#,
];

#[tokio::test]
async fn a_payload_is_stored_byte_for_byte() {
    let server = TestServer::without_engine().await;
    for payload in ODD_PAYLOADS {
        for body in [
            format!(r#"{{"type":"a.b","payload":{payload}}}"#),
            format!("\n{{ \"payload\" : {payload} ,\"type\":\"a\\u002eb\" }} "),
        ] {
            let answer = server
                .post_text("/v1/tenants/acme/events", &body, &[])
                .await;
            let answer = answer.ok(202);
            assert_eq!(stored(&server, &answer).await, payload.as_bytes());
            let id = answer["id"].as_str().unwrap();
            let shown = server.get(&format!("/v1/tenants/acme/events/{id}")).await;
            let wanted = format!(r#""payload":{payload},"#);
            assert!(shown.text().contains(&wanted), "{}", shown.text());
        }
    }
}

#[tokio::test]
async fn a_payload_is_sent_byte_for_byte() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    server.endpoint(json!({"url": receiver.url()})).await;
    let payload = ODD_PAYLOADS[0];
    let body = format!(r#"{{"type":"a.b","payload":{payload}}}"#);
    server
        .post_text("/v1/tenants/acme/events", &body, &[])
        .await
        .ok(202);
    assert_eq!(receiver.arrivals(1).await[0].body, payload.as_bytes());
}

#[tokio::test]
async fn raw_bytes_are_stored_with_their_content_type() {
    let server = TestServer::without_engine().await;
    let raw =
        json!({"type": "a.b", "body_base64": "AP/+aGk=", "content_type": "text/csv; charset=x"});
    let answer = server.event(&raw).await.ok(202);
    assert_eq!(stored(&server, &answer).await, b"\x00\xff\xfehi");
    let id = answer["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/tenants/acme/events/{id}")).await;
    let shown = shown.ok(200);
    assert_eq!(shown["body_base64"], "AP/+aGk=");
    assert_eq!(shown["content_type"], "text/csv; charset=x");
    assert!(shown.get("payload").is_none());
    let unsaid = json!({"type": "a.b", "body_base64": ""});
    let answer = server.event(&unsaid).await.ok(202);
    assert_eq!(stored(&server, &answer).await, b"");
}

#[tokio::test]
async fn the_response_lists_the_deliveries() {
    let server = TestServer::without_engine().await;
    let wants =
        |pattern: &str| json!({"url": "http://127.0.0.1:65000/x", "event_types": [pattern]});
    let all = server.endpoint(wants("*")).await;
    let invoices = server.endpoint(wants("invoice.*")).await;
    server.endpoint(wants("user.created")).await;
    let answer = server
        .event(&json!({"type": "invoice.paid", "payload": 1}))
        .await;
    let text = answer.text().to_owned();
    let json = answer.ok(202);
    assert_eq!(json["created_at"], "2026-11-15T12:00:00.000Z");
    assert_eq!(json["type"], "invoice.paid");
    let deliveries = json["deliveries"].as_array().unwrap();
    let endpoints: Vec<&Value> = deliveries.iter().map(|it| &it["endpoint_id"]).collect();
    assert_eq!(endpoints, [&json!(all), &json!(invoices)]);
    assert!(deliveries.iter().all(|it| it["status"] == "pending"));
    assert!(text.starts_with(r#"{"id":"evt_"#), "{text}");
    let id = json["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/tenants/acme/events/{id}")).await;
    let shown = shown.ok(200);
    assert_eq!(shown["deliveries"], json["deliveries"]);
    assert_eq!(shown["delivery_count"], 2);
}

#[tokio::test]
async fn an_event_has_the_trace_id_of_its_request() {
    let server = TestServer::without_engine().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let traced = [("traceparent", parent.as_str())];
    let invalid = [("traceparent", "00-nonsense")];
    let path = "/v1/tenants/acme/events";
    let event = r#"{"type":"a.b","payload":1}"#;
    let batch = r#"{"events":[{"type":"a.b","payload":2},{"type":"a.b","payload":3}]}"#;
    let mut expected = Vec::new();
    for (headers, trace) in [(&traced, json!(trace)), (&invalid, Value::Null)] {
        let one = server.post_text(path, event, headers).await.ok(202);
        expected.push((one["id"].clone(), trace.clone()));
        let many = format!("{path}/batch");
        let many = server.post_text(&many, batch, headers).await.ok(202);
        for one in many["data"].as_array().unwrap() {
            expected.push((one["id"].clone(), trace.clone()));
        }
    }
    for (id, trace) in &expected {
        let id = id.as_str().unwrap();
        let shown = server.get(&format!("{path}/{id}")).await.ok(200);
        assert_eq!(shown["trace_id"], *trace, "{shown}");
    }
    let list = server.get(path).await.ok(200);
    let list = list["data"].as_array().unwrap().iter().rev();
    let listed: Vec<(Value, Value)> = list
        .map(|it| (it["id"].clone(), it["trace_id"].clone()))
        .collect();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn the_same_idempotency_key_makes_one_event() {
    let server = TestServer::without_engine().await;
    server
        .endpoint(json!({"url": "http://127.0.0.1:65000/x"}))
        .await;
    let event = json!({"type": "a.b", "payload": {"n": 1}, "idempotency_key": "k-1"});
    let first = server.event(&event).await;
    first.ok(202);
    let again = server.event(&event).await;
    again.ok(200);
    assert_eq!(first.bytes, again.bytes);
    // The key may also come in a header.
    let path = "/v1/tenants/acme/events";
    let bare = r#"{"type":"a.b","payload":{"n":1}}"#;
    let key = [("idempotency-key", "k-1")];
    assert_eq!(server.post_text(path, bare, &key).await.bytes, first.bytes);
    let both = event.to_string();
    assert_eq!(server.post_text(path, &both, &key).await.status, 200);
    let other = [("idempotency-key", "k-2")];
    let differs = server.post_text(path, &both, &other).await;
    assert_eq!(differs.problem(422, "invalid"), ["idempotency_key"]);
    let twice = [("idempotency-key", "k-1"), ("idempotency-key", "k-1")];
    let twice = server.post_text(path, bare, &twice).await;
    assert_eq!(twice.problem(422, "invalid"), ["Idempotency-Key"]);
    assert_eq!(server.pages(path).await.concat().len(), 1);
}

#[tokio::test]
async fn the_same_idempotency_key_with_other_content_is_a_conflict() {
    let server = TestServer::without_engine().await;
    let event = |more: Value| {
        let mut event = json!({"type": "a.b", "payload": {"n": 1}, "idempotency_key": "k"});
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        event
    };
    server.event(&event(json!({}))).await.ok(202);
    for other in [
        json!({"type": "a.c"}),
        json!({"payload": {"n": 2}}),
        json!({"deliver_at": "2026-11-16T00:00:00Z"}),
        json!({"delay": "1h"}),
        json!({"ordering_key": "o"}),
    ] {
        let answer = server.event(&event(other.clone())).await;
        answer.problem(409, "idempotency_conflict");
    }
    // Other whitespace means other bytes, and the bytes are what is sent.
    let spaced = r#"{"type":"a.b","payload":{"n": 1},"idempotency_key":"k"}"#;
    let answer = server
        .post_text("/v1/tenants/acme/events", spaced, &[])
        .await;
    answer.problem(409, "idempotency_conflict");
    let raw = json!({"type": "a.b", "body_base64": "eyJuIjoxfQ==", "idempotency_key": "k"});
    server
        .event(&raw)
        .await
        .problem(409, "idempotency_conflict");
    server.tenant("other").await;
    let elsewhere = event(json!({"type": "x"}));
    let elsewhere = server.post("/v1/tenants/other/events", &elsewhere).await;
    elsewhere.ok(202);
}

#[tokio::test]
async fn an_event_can_be_scheduled() {
    let server = TestServer::without_engine().await;
    server
        .endpoint(json!({"url": "http://127.0.0.1:65000/x"}))
        .await;
    for (field, given, next) in [
        (
            "deliver_at",
            "2026-11-15T13:30:00+01:00",
            "2026-11-15T12:30:00.000Z",
        ),
        (
            "deliver_at",
            "2027-11-15T12:00:00Z",
            "2027-11-15T12:00:00.000Z",
        ),
        (
            "deliver_at",
            "2020-01-01T00:00:00Z",
            "2026-11-15T12:00:00.000Z",
        ),
        ("delay", "1h30m", "2026-11-15T13:30:00.000Z"),
        ("delay", "365d", "2027-11-15T12:00:00.000Z"),
        ("delay", "0s", "2026-11-15T12:00:00.000Z"),
    ] {
        let event = json!({"type": "a.b", "payload": 1, field: given});
        let answer = server.event(&event).await.ok(202);
        let delivery = answer["deliveries"][0]["id"].as_str().unwrap();
        let shown = format!("/v1/tenants/acme/deliveries/{delivery}");
        let shown = server.get(&shown).await.ok(200);
        assert_eq!(shown["next_attempt_at"], next, "{given}");
        assert_eq!(shown["timeline"][0]["expected_at"], next, "{given}");
    }
    let event = json!({"type": "a.b", "payload": 1, "deliver_at": "2027-11-15T12:00:00.001Z"});
    let fields = server.event(&event).await.problem(422, "invalid");
    assert_eq!(fields, ["deliver_at"]);
}

#[tokio::test]
async fn a_delayed_event_can_be_repeated_with_its_key() {
    let server = TestServer::without_engine().await;
    let event = json!({"type": "a.b", "payload": 1, "delay": "1h", "idempotency_key": "k"});
    let first = server.event(&event).await.ok(202);
    server.set_time("2026-11-15T12:05:00Z".parse().unwrap());
    assert_eq!(server.event(&event).await.ok(200), first);
    let path = format!("/v1/tenants/acme/events/{}", first["id"].as_str().unwrap());
    let shown = server.get(&path).await.ok(200);
    assert_eq!(shown["deliver_at"], "2026-11-15T13:00:00.000Z");
}

#[tokio::test]
async fn a_batch_is_accepted_as_a_whole() {
    let server = TestServer::without_engine().await;
    server
        .endpoint(json!({"url": "http://127.0.0.1:65000/x"}))
        .await;
    let path = "/v1/tenants/acme/events/batch";
    let events = json!([
        {"type": "a.b", "payload": 1, "idempotency_key": "one"},
        {"type": "a.c", "body_base64": "aGk="},
        {"type": "a.b", "payload": 1, "idempotency_key": "one"},
    ]);
    let answer = server.post(path, &json!({"events": events})).await.ok(202);
    let data = answer["data"].as_array().unwrap();
    assert_eq!(data.len(), 3);
    assert_eq!(data[0], data[2]);
    assert_eq!(data[1]["type"], "a.c");
    assert_eq!(data[1]["deliveries"][0]["status"], "pending");
    let single = server.event(&events[0]).await.ok(200);
    assert_eq!(single, data[0]);
    let again = server.post(path, &json!([events[0]])).await.ok(200);
    assert_eq!(again["data"][0], data[0]);
    let list = "/v1/tenants/acme/events";
    assert_eq!(server.pages(list).await.concat().len(), 2);

    let conflict = json!({"events": [
        {"type": "a.d", "payload": 1},
        {"type": "a.d", "payload": 2, "idempotency_key": "one"},
        {"type": "a.d", "payload": 1, "idempotency_key": "two"},
        {"type": "a.d", "payload": 2, "idempotency_key": "two"},
    ]});
    let conflict = server.post(path, &conflict).await;
    let fields = conflict.problem(409, "idempotency_conflict");
    let named = ["events[1].idempotency_key", "events[3].idempotency_key"];
    assert_eq!(fields, named);
    assert!(
        conflict
            .text()
            .contains("events[1].idempotency_key, events[3]")
    );
    assert_eq!(server.pages(list).await.concat().len(), 2);
}

#[tokio::test]
async fn a_batch_has_at_most_1000_events() {
    let server = TestServer::without_engine().await;
    let path = "/v1/tenants/acme/events/batch";
    let batch = |count: usize| json!({"events": vec![json!({"type": "a", "payload": 1}); count]});
    let answer = server.post(path, &batch(1_000)).await.ok(202);
    assert_eq!(answer["data"].as_array().unwrap().len(), 1_000);
    for wrong in [
        batch(0),
        batch(1_001),
        json!([]),
        json!({}),
        json!({"events": 7}),
        json!({"events": {"type": "a"}}),
        json!("x"),
    ] {
        let fields = server.post(path, &wrong).await.problem(422, "invalid");
        assert_eq!(fields, ["events"]);
    }
    let unknown = json!({"events": [{"type": "a", "payload": 1}], "more": 1});
    let fields = server.post(path, &unknown).await.problem(422, "invalid");
    assert_eq!(fields, ["more"]);
    let key = [("idempotency-key", "k")];
    let keyed = server.post_text(path, &batch(1).to_string(), &key).await;
    assert_eq!(keyed.problem(422, "invalid"), ["Idempotency-Key"]);
}

#[tokio::test]
async fn a_test_event_goes_to_one_endpoint_despite_its_subscription() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let wants = json!({"url": receiver.url(), "event_types": ["invoice.paid"]});
    let one = server.endpoint(wants.clone()).await;
    server.endpoint(wants).await;
    let path = format!("/v1/tenants/acme/endpoints/{one}/test");
    let answer = server.post_text(&path, "", &[]).await.ok(202);
    assert_eq!(answer["type"], "posthaste.test");
    let deliveries = answer["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0]["endpoint_id"], json!(one));
    let delivery = deliveries[0]["id"].as_str().unwrap();
    server.until_status(delivery, "succeeded").await;
    let own = r#"{"type":"invoice.void","payload":[ 1 ]}"#;
    server.post_text(&path, own, &[]).await.ok(202);
    assert_eq!(receiver.arrivals(2).await[1].body, "[ 1 ]");

    let wrong = r#"{"type":"a b","payload":1,"deliver_at":"x"}"#;
    let fields = server
        .post_text(&path, wrong, &[])
        .await
        .problem(422, "invalid");
    assert_eq!(fields, ["deliver_at", "type"]);
    let disable = format!("/v1/tenants/acme/endpoints/{one}/disable");
    assert_eq!(server.post_text(&disable, "", &[]).await.status, 200);
    let refused = server.post_text(&path, "", &[]).await;
    refused.problem(409, "endpoint_disabled");
    server.tenant("other").await;
    let foreign = path.replace("acme", "other");
    let foreign = server.post_text(&foreign, "", &[]).await;
    foreign.problem(404, "not_found");
}

#[tokio::test]
async fn events_are_listed_newest_first_by_type_and_time() {
    let server = TestServer::without_engine().await;
    let mut ids = Vec::new();
    for minute in 0..7_u64 {
        server.set_time(Timestamp(NOON.0 + minute * 60_000));
        let kind = if minute % 2 == 0 { "even" } else { "odd" };
        let answer = server
            .event(&json!({"type": kind, "payload": minute}))
            .await;
        ids.push(answer.ok(202)["id"].clone());
    }
    ids.reverse();
    let listed = |pages: Vec<Vec<Value>>| -> Vec<Value> {
        pages.concat().iter().map(|it| it["id"].clone()).collect()
    };
    let path = "/v1/tenants/acme/events";
    let pages = server.pages(&format!("{path}?limit=3")).await;
    assert_eq!(pages.iter().map(Vec::len).max(), Some(3));
    assert_eq!(listed(pages), ids);
    let odd = [&ids[1], &ids[3], &ids[5]];
    for name in ["type", "event_type"] {
        let pages = server.pages(&format!("{path}?{name}=odd&limit=1")).await;
        assert_eq!(listed(pages).iter().collect::<Vec<_>>(), odd);
    }
    let between = "since=2026-11-15T12:02:00Z&until=2026-11-15T13:05:00%2B01:00";
    let pages = server.pages(&format!("{path}?{between}")).await;
    assert_eq!(listed(pages), ids[2..5]);
    for (query, count) in [("type=odd&event_type=odd", 3), ("type=odd&event_type=a", 0)] {
        let pages = server.pages(&format!("{path}?{query}")).await;
        assert_eq!(listed(pages).len(), count, "{query}");
    }
    for (query, field) in [
        ("type=", "type"),
        ("type=a%20b", "type"),
        ("since=now", "since"),
        ("limit=251", "limit"),
        ("status=failed", "status"),
        ("cursor=x", "cursor"),
    ] {
        let answer = server.get(&format!("{path}?{query}")).await;
        assert_eq!(answer.problem(422, "invalid"), [field], "{query}");
    }
}
