//! The limit of wrong keys per address, for the API and the sign-in page.

use std::net::IpAddr;

use axum::body::Body;
use http::Request;
use posthaste_api::request_source::Peer;
use serde_json::json;

use crate::fixture::{ADMIN, ApiResponse, TestServer};

/// The number of wrong keys that an address may send at once.
const MAX_FAILURES: usize = 50;

fn peer(text: &str) -> Peer {
    let address: IpAddr = text.parse().expect("an address");
    Peer(address)
}

impl TestServer {
    async fn list_from(&self, from: &str, key: &str) -> ApiResponse {
        let request = Request::get("/v1/policies").header("authorization", format!("Bearer {key}"));
        let request = request.extension(peer(from)).body(Body::empty());
        self.send(request.expect("a request")).await
    }

    async fn sign_in_from(&self, from: &str, key: &str) -> ApiResponse {
        let request = Request::post("/dashboard/sign-in")
            .header("host", "hooks.example")
            .header("content-type", "application/x-www-form-urlencoded")
            .extension(peer(from))
            .body(Body::from(format!("key={key}")));
        self.send(request.expect("a request")).await
    }
}

#[tokio::test]
async fn an_address_with_too_many_wrong_keys_is_refused_before_its_key_is_looked_at() {
    let server = TestServer::with_manual_clock().await;
    let attacker = "192.0.2.1";
    // Half of the guesses are made in the API, half on the sign-in page.
    for guess in 0..MAX_FAILURES / 2 {
        let answer = server.list_from(attacker, &format!("ph_{guess}")).await;
        assert_eq!(answer.status, 401);
        let answer = server
            .sign_in_from(attacker, &format!("sign_in_{guess}"))
            .await;
        assert_eq!(answer.status, 401);
    }
    let refused = server.list_from(attacker, "ph_one_more").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("code"), "rate_limited");
    assert_eq!(refused.headers["retry-after"], "1");
    // The right key gets the same answer.
    let right = server.list_from(attacker, ADMIN).await;
    assert_eq!(
        (right.status, &right.bytes),
        (refused.status, &refused.bytes)
    );
    let right = server.sign_in_from(attacker, ADMIN).await;
    assert_eq!(right.status, 429);
    assert_eq!(right.headers["retry-after"], "1");
    // Other addresses are not affected.
    assert_eq!(server.list_from("192.0.2.2", ADMIN).await.status, 200);
    server.pass_ms(1_000);
    assert_eq!(server.list_from(attacker, ADMIN).await.status, 200);
    let metrics = server.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
    for (outcome, count) in [("wrong_key", MAX_FAILURES), ("refused", 3)] {
        let sample =
            format!("posthaste_failed_authentications_total{{outcome=\"{outcome}\"}} {count}");
        assert!(text.lines().any(|line| line == sample), "{sample}");
    }
}

#[tokio::test]
async fn stored_keys_in_use_pass_beside_a_guesser_at_the_same_address() {
    let server = TestServer::with_manual_clock().await;
    let key = server.tenant("other").await;
    let unused = server.tenant("third").await;
    assert_eq!(server.list_from("192.0.2.1", &key).await.status, 200);
    for guess in 0..MAX_FAILURES {
        server.list_from("192.0.2.1", &format!("ph_{guess}")).await;
    }
    for _ in 0..10 {
        assert_eq!(server.list_from("192.0.2.1", &key).await.status, 200);
        assert_eq!(server.list_from("192.0.2.1", &unused).await.status, 429);
    }
}

#[tokio::test]
async fn a_program_with_a_revoked_key_does_not_use_up_the_limit() {
    let server = TestServer::with_manual_clock().await;
    let made = server.post("/v1/tenants/acme/keys", json!({})).await;
    let (id, revoked) = (made.field("id"), made.field("key"));
    assert_eq!(server.list_from("192.0.2.1", &revoked).await.status, 200);
    let deleted = server.delete(&format!("/v1/tenants/acme/keys/{id}")).await;
    assert_eq!(deleted.status, 204);
    for _ in 0..3 * MAX_FAILURES {
        assert_eq!(server.list_from("192.0.2.1", &revoked).await.status, 401);
    }
    assert_eq!(server.list_from("192.0.2.1", ADMIN).await.status, 200);
}

#[tokio::test]
async fn valid_keys_and_requests_without_a_key_are_not_counted() {
    let server = TestServer::with_manual_clock().await;
    for number in 0..MAX_FAILURES + 50 {
        let answer = server.list_from("2001:db8::1", ADMIN).await;
        assert_eq!(answer.status, 200, "{number}");
        let request = Request::get("/v1/policies").extension(peer("2001:db8::1"));
        let answer = server
            .send(request.body(Body::empty()).expect("a request"))
            .await;
        assert_eq!(answer.status, 401);
    }
    // Without a store there is no answer about the key, which is no failure either.
    let unavailable = posthaste_store::StoreError::Unavailable("on purpose".to_owned());
    server.store.fail_reads(Some(unavailable));
    for number in 0..MAX_FAILURES + 50 {
        let answer = server
            .list_from("2001:db8::1", &format!("ph_{number}"))
            .await;
        assert_eq!(answer.status, 503);
    }
    server.store.fail_reads(None);
    let answer = server.list_from("2001:db8::1", ADMIN).await;
    assert_eq!(answer.status, 200, "{}", json!(answer.json));
}
