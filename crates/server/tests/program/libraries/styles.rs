//! Signature styles of GitHub and Stripe, verified with their libraries.

use serde_json::{Value, json};

use super::fixture::{Receiver, TestServer};
use super::standard::{id_of, request, rotate, secret_of};
use super::verifiers::{SignatureChecks, SignedRequest, Verifier, text};

/// A secret in the format of another webhook sender.
const BROUGHT: &str = "It's a Secret to Everybody";

/// Sends requests in this style, and verifies them before and after a rotation of the secret.
async fn judge_style(style: &str, method: Verifier, header: &'static str) {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let mut claims = SignatureChecks::default();
    let fields = json!({"url": receiver.url(), "signature_style": style});
    let endpoint = api.endpoint("acme", fields).await;
    let id = id_of(&endpoint);
    let made = secret_of(&endpoint);
    for payload in [
        json!({"id": "evt_1", "object": "event"}),
        json!({"größe": "🦀"}),
    ] {
        let arrived = request(&mut api, &receiver, payload.clone()).await;
        let what = format!("{style} {payload}");
        claims.expect_valid(&what, method, &made, &arrived);
        // The standard signature is always present, with the same secret.
        claims.expect_valid(&what, Verifier::Standard, &made, &arrived);
        refuse_changes(&mut claims, method, &made, &arrived, header);
        claims.refused(
            &what,
            method,
            "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            &arrived,
        );
    }
    // The secret that another sender used with this receiver.
    rotate(&mut api, &id, json!({"secret": BROUGHT, "overlap": "0s"})).await;
    let arrived = request(
        &mut api,
        &receiver,
        json!({"id": "evt_2", "object": "event"}),
    )
    .await;
    claims.expect_valid("a secret that was brought", method, BROUGHT, &arrived);
    claims.refused("one that was ended", method, &made, &arrived);
    refuse_changes(&mut claims, method, BROUGHT, &arrived, header);
    // The style's own header is present.
    assert!(!text(&arrived, header).is_empty());
    claims.verify();
}

fn refuse_changes(
    claims: &mut SignatureChecks,
    method: Verifier,
    secret: &str,
    arrived: &SignedRequest,
    header: &'static str,
) {
    let mut longer = arrived.body.to_vec();
    longer.push(b' ');
    claims.refused("another body", method, secret, &arrived.with_body(&longer));
    let flipped: String = flip_last(text(arrived, header));
    let flipped = arrived.with_header(header, &flipped);
    claims.refused("another signature", method, secret, &flipped);
}

/// Returns the text with another last digit.
fn flip_last(text: &str) -> String {
    let (rest, last) = text.split_at(text.len() - 1);
    let other = if last == "0" { "1" } else { "0" };
    format!("{rest}{other}")
}

#[tokio::test]
async fn github_libraries_verify_our_requests() {
    judge_style("github", Verifier::GitHub, "x-hub-signature-256").await;
}

#[tokio::test]
async fn stripe_libraries_verify_our_requests() {
    judge_style("stripe", Verifier::Stripe, "stripe-signature").await;
}

#[tokio::test]
async fn a_changed_time_is_refused_where_the_style_has_one() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let fields = json!({"url": receiver.url(), "signature_style": "stripe"});
    let endpoint = api.endpoint("acme", fields).await;
    let arrived = request(&mut api, &receiver, json!({"object": "event"})).await;
    let signature = text(&arrived, "stripe-signature");
    let time = signature
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(','));
    let (time, rest) = time.expect("a timestamp");
    let later = time.parse::<u64>().expect("seconds") + 1;
    let changed = arrived.with_header("stripe-signature", &format!("t={later},{rest}"));
    let mut claims = SignatureChecks::default();
    claims.expect_valid(
        "as it came",
        Verifier::Stripe,
        &secret_of(&endpoint),
        &arrived,
    );
    claims.refused(
        "another time",
        Verifier::Stripe,
        &secret_of(&endpoint),
        &changed,
    );
    claims.verify();
}

/// While two secrets overlap, a receiver can verify with either.
#[tokio::test]
async fn both_secrets_verify_in_stripes_style_while_they_overlap() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let fields = json!({"url": receiver.url(), "signature_style": "stripe"});
    let endpoint = api.endpoint("acme", fields).await;
    let old = secret_of(&endpoint);
    let new = rotate(&mut api, &id_of(&endpoint), json!({"overlap": "1h"})).await;
    let arrived = request(&mut api, &receiver, json!({"object": "event"})).await;
    let mut claims = SignatureChecks::default();
    for (what, secret) in [("the old secret", &old), ("the new secret", &new)] {
        claims.expect_valid(what, Verifier::Stripe, secret, &arrived);
    }
    claims.verify();
}

/// A key pair that the server generates: only the public key leaves the server.
#[tokio::test]
async fn a_generated_key_pair_verifies_by_its_public_key() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let fields = json!({"url": receiver.url(), "secret_kind": "ed25519"});
    let endpoint = api.endpoint("acme", fields).await;
    let public = |shown: &Value| shown["public_key"].as_str().expect("a key").to_owned();
    let first = public(&endpoint);
    let mut claims = SignatureChecks::default();
    let arrived = request(&mut api, &receiver, json!({"größe": "🦀"})).await;
    claims.expect_valid_and_tamper_proof(
        "a pair that was made",
        Verifier::Ed25519,
        &first,
        &arrived,
    );
    let path = format!(
        "/v1/tenants/acme/endpoints/{}/secret/rotate",
        id_of(&endpoint)
    );
    let rotation = json!({"secret_kind": "ed25519", "overlap": "1h"});
    let second = public(&api.post(&path, rotation).await.expect(200));
    let arrived = request(&mut api, &receiver, json!(1)).await;
    claims.expect_valid_and_tamper_proof("the new pair", Verifier::Ed25519, &second, &arrived);
    claims.expect_valid_and_tamper_proof(
        "the old pair in time",
        Verifier::Ed25519,
        &first,
        &arrived,
    );
    claims.verify();
}
