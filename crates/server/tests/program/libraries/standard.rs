//! Standard Webhooks: `v1`, `v1a`, and rotation of secrets.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::fixture::{Answer, Api, Receiver, TestServer};
use super::verifiers::{SignatureChecks, SignedRequest, Verifier, text};

const HOUR: &str = "1h";

/// Rotates the secret and returns the new one.
pub(crate) async fn rotate(api: &mut Api, endpoint: &str, body: Value) -> String {
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}/secret/rotate");
    let shown = api.post(&path, body).await.expect(200);
    shown["secret"].as_str().expect("a secret").to_owned()
}

/// Sends an event with this payload and returns the request that arrives.
pub(crate) async fn request(api: &mut Api, receiver: &Receiver, payload: Value) -> SignedRequest {
    let before = receiver.count();
    api.event("acme", json!({"type": "a.b", "payload": payload}))
        .await;
    let records = receiver.arrivals(before + 1).await;
    SignedRequest::from(&records[before])
}

pub(crate) fn id_of(endpoint: &Value) -> String {
    endpoint["id"].as_str().expect("an id").to_owned()
}

pub(crate) fn secret_of(endpoint: &Value) -> String {
    endpoint["secret"].as_str().expect("a secret").to_owned()
}

#[tokio::test]
async fn every_request_verifies_and_no_modified_one_does() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let secret = secret_of(&endpoint);
    let mut claims = SignatureChecks::default();
    for payload in [
        json!({"invoice": 42, "paid": true}),
        json!("just a text"),
        json!([1, 2.5, null, {"a": []}]),
        json!({"größe": "żółć", "表": "🦀\u{200d}", "\u{0}": "\u{1f}\u{7f}"}),
    ] {
        let request = request(&mut api, &receiver, payload.clone()).await;
        assert_eq!(request.body, payload.to_string());
        claims.expect_valid_and_tamper_proof(
            &payload.to_string(),
            Verifier::Standard,
            &secret,
            &request,
        );
    }
    // A body that is not JSON, and one that is not text.
    for (body, method) in [
        (
            &b"plain \xc3\xa4 text\r\nof two lines\n"[..],
            Verifier::Standard,
        ),
        (&b"\x00\xff\xfe\x80 bytes \xc3("[..], Verifier::Hmac),
    ] {
        let before = receiver.count();
        let event = json!({"type": "a.b", "body_base64": BASE64_STANDARD.encode(body),
            "content_type": "application/octet-stream"});
        api.event("acme", event).await;
        let request = SignedRequest::from(&receiver.arrivals(before + 1).await[before]);
        assert_eq!(request.body, body);
        claims.expect_valid_and_tamper_proof("raw bytes", method, &secret, &request);
        let other = api.endpoint(
            "acme",
            json!({"url": receiver.url(), "event_types": ["none"]}),
        );
        let other = secret_of(&other.await);
        claims.refused("another endpoint's secret", method, &other, &request);
    }
    claims.verify();
}

#[tokio::test]
async fn retries_and_replays_are_signed_afresh() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|arrival| match arrival.number {
        1 => Answer::status(503),
        _ => Answer::status(200),
    })
    .await;
    // Longer than a second, so that the retry has another timestamp.
    let policy = json!({"backoff": {"kind": "fixed", "interval": "1100ms"},
        "jitter": {"kind": "none"}, "max_attempts": 3});
    let endpoint = json!({"url": receiver.url(), "retry_policy": policy});
    let endpoint = api.endpoint("acme", endpoint).await;
    let secret = secret_of(&endpoint);
    let event = json!({"type": "a.b", "payload": {"größe": 1}});
    let delivery = api.deliver("acme", event).await;
    receiver.arrivals(2).await;
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    api.until(&path, |shown| shown["status"] == "succeeded")
        .await;
    let retry = api.call("POST", &format!("{path}/retry"), None).await;
    assert_eq!(retry.status, 202, "{}", retry.body);
    receiver.arrivals(3).await;
    api.until(&path, |shown| shown["status"] == "succeeded")
        .await;
    let replay = json!({"endpoint": id_of(&endpoint), "status": "succeeded"});
    let replay = api
        .post("/v1/tenants/acme/replays", replay)
        .await
        .expect(202);
    assert_eq!(replay["total"], 1);
    let records = receiver.arrivals(4).await;

    let mut claims = SignatureChecks::default();
    let mut last = 0;
    for (number, arrival) in records.iter().enumerate() {
        let request = SignedRequest::from(arrival);
        let timestamp: u64 = text(&request, "webhook-timestamp")
            .parse()
            .expect("seconds");
        assert!(
            timestamp >= last,
            "a signature is older than the one before it"
        );
        assert!(
            number != 1 || timestamp > last,
            "the retry has the first one's timestamp"
        );
        last = timestamp;
        assert_eq!(
            arrival.delivery(),
            delivery,
            "receivers detect duplicates by it"
        );
        assert_eq!(arrival.body, records[0].body);
        claims.expect_valid_and_tamper_proof(
            &format!("arrival {}", number + 1),
            Verifier::Standard,
            &secret,
            &request,
        );
    }
    claims.verify();
}

#[tokio::test]
async fn old_secrets_verify_until_the_overlap_ends() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let brought = format!("whsec_{}", BASE64_STANDARD.encode([7; 32]));
    let endpoint = json!({"url": receiver.url(), "secret": brought});
    let endpoint = api.endpoint("acme", endpoint).await;
    let id = id_of(&endpoint);
    let first = secret_of(&endpoint);
    assert_eq!(first, brought);
    let mut claims = SignatureChecks::default();
    let standard = Verifier::Standard;

    let second = rotate(&mut api, &id, json!({"overlap": HOUR})).await;
    let overlapping = request(&mut api, &receiver, json!(1)).await;
    claims.expect_valid_and_tamper_proof("the new secret", standard, &second, &overlapping);
    claims.expect_valid_and_tamper_proof("the old secret in time", standard, &first, &overlapping);

    // An overlap that expires: the test waits until the server reports that.
    let third = rotate(&mut api, &id, json!({"overlap": "1s"})).await;
    let path = format!("/v1/tenants/acme/endpoints/{id}/secret");
    api.until(&path, |shown| shown["previous"] == json!([]))
        .await;
    let after = request(&mut api, &receiver, json!(2)).await;
    claims.expect_valid_and_tamper_proof("the newest secret", standard, &third, &after);
    claims.refused("the second one after its end", standard, &second, &after);
    claims.refused("the first one after its end", standard, &first, &after);

    // A leaked secret must end immediately: requests after the response do not use it.
    let mut leaked = third;
    for number in 3..20 {
        let fresh = rotate(&mut api, &id, json!({"overlap": "0s"})).await;
        let at_once = request(&mut api, &receiver, json!(number)).await;
        claims.expect_valid("the only secret", standard, &fresh, &at_once);
        claims.refused("one that was ended at once", standard, &leaked, &at_once);
        leaked = fresh;
    }
    claims.verify();
}

#[tokio::test]
async fn a_public_key_verifies_beside_a_shared_secret() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let pair = |seed: u8| format!("whsk_{}", BASE64_STANDARD.encode([seed; 32]));
    let endpoint = json!({"url": receiver.url(), "secret": pair(1)});
    let id = id_of(&api.endpoint("acme", endpoint).await);
    let path = format!("/v1/tenants/acme/endpoints/{id}/secret");
    let public = |shown: &Value| shown["public_key"].as_str().expect("a key").to_owned();
    let first = public(&api.get(&path).await.expect(200));
    let mut claims = SignatureChecks::default();
    let arrived = request(&mut api, &receiver, json!({"größe": "🦀"})).await;
    assert!(text(&arrived, "webhook-signature").starts_with("v1a,"));
    claims.expect_valid_and_tamper_proof("a public key", Verifier::Ed25519, &first, &arrived);

    let rotation = json!({"secret": pair(2), "overlap": HOUR});
    let shown = api.post(&format!("{path}/rotate"), rotation).await;
    let second = public(&shown.expect(200));
    let arrived = request(&mut api, &receiver, json!(1)).await;
    claims.expect_valid_and_tamper_proof("the new pair", Verifier::Ed25519, &second, &arrived);
    claims.expect_valid_and_tamper_proof(
        "the old pair in time",
        Verifier::Ed25519,
        &first,
        &arrived,
    );

    // From a key pair to a shared secret: a receiver can verify with either.
    let shared = rotate(&mut api, &id, json!({"overlap": HOUR})).await;
    let arrived = request(&mut api, &receiver, json!(2)).await;
    claims.expect_valid_and_tamper_proof(
        "the shared secret",
        Verifier::Standard,
        &shared,
        &arrived,
    );
    claims.expect_valid_and_tamper_proof(
        "the pair before it",
        Verifier::Ed25519,
        &second,
        &arrived,
    );

    rotate(&mut api, &id, json!({"overlap": "0s"})).await;
    let arrived = request(&mut api, &receiver, json!(3)).await;
    claims.refused(
        "a pair that was ended",
        Verifier::Ed25519,
        &second,
        &arrived,
    );
    claims.verify();
}
