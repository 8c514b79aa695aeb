//! Tests of verification: authentic requests are accepted, all others are refused with the right error.

use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, StatusCode};
use posthaste_receiver::{KeyError, MAX_KEYS, MAX_SIGNATURES, RawWebhook, ReceiveError, Verifier};
use proptest::prelude::*;
use serde_json::Value;

use crate::fixture::{NOW, Sender, at, headers};

fn verify(
    keys: &[&Sender],
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Result<RawWebhook, ReceiveError> {
    let verifier = Verifier::new(keys.iter().map(|key| key.key())).expect("keys");
    verifier.verify(headers, body.to_vec().into(), now)
}

fn refusal(result: Result<RawWebhook, ReceiveError>) -> (StatusCode, String) {
    let error = result.expect_err("it is refused");
    (error.status(), error.to_string())
}

fn unauthorized(text: &str) -> (StatusCode, String) {
    (StatusCode::UNAUTHORIZED, text.to_owned())
}

fn malformed(header: &str) -> (StatusCode, String) {
    (
        StatusCode::BAD_REQUEST,
        format!("the header {header} is malformed"),
    )
}

const NO_MATCH: &str = "no signature matches";

#[test]
fn the_published_vectors_verify() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/signatures.json")).expect("JSON");
    let mut verified = 0;
    for vector in vectors {
        let text = |name: &str| vector[name].as_str().expect("a text").to_owned();
        let key = match vector["scheme"].as_str() {
            Some("v1") => text("secret"),
            Some("v1a") => {
                // A private key in this form ends with its public key.
                let pair = BASE64_STANDARD.decode(text("private_key_base64"));
                let public = pair.expect("base64")[32..].to_vec();
                format!("whpk_{}", BASE64_STANDARD.encode(public))
            }
            _ => continue,
        };
        let seconds = vector["timestamp"].as_u64().expect("seconds");
        let headers = headers(&text("id"), &seconds.to_string(), &text("signature"));
        let verifier = Verifier::new([&key]).expect("a key");
        let body = text("body").into_bytes();
        let webhook = verifier.verify(&headers, body.clone().into(), at(seconds));
        let webhook = webhook.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(webhook.body, body);
        assert_eq!(webhook.head.id, text("id"));
        assert_eq!(webhook.head.timestamp, at(seconds));
        let changed = verifier.verify(&headers, [&body[..], b" "].concat().into(), at(seconds));
        assert_eq!(refusal(changed), unauthorized(NO_MATCH));
        verified += 1;
    }
    assert_eq!(verified, 3);
}

fn sender() -> impl Strategy<Value = Sender> {
    prop_oneof![
        any::<[u8; 24]>().prop_map(Sender::Shared),
        any::<[u8; 32]>().prop_map(Sender::Private),
    ]
}

proptest! {
    #[test]
    fn only_the_signed_content_verifies(
        key in sender(),
        stranger in sender(),
        id in "[a-z]{3}_[0-9a-z]{1,27}",
        body in prop::collection::vec(any::<u8>(), 1..300),
        place in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let sent = key.headers(&id, &body);
        let webhook = verify(&[&key], &sent, &body, at(NOW)).expect("authentic");
        prop_assert_eq!(webhook.head.id, id.clone());
        let refused = unauthorized(NO_MATCH);
        prop_assert_eq!(refusal(verify(&[&stranger], &sent, &body, at(NOW))), refused.clone());
        let mut other_body = body.clone();
        other_body[place.index(body.len())] ^= 1 << bit;
        prop_assert_eq!(refusal(verify(&[&key], &sent, &other_body, at(NOW))), refused.clone());
        prop_assert_eq!(refusal(verify(&[&key], &sent, &body[1..], at(NOW))), refused.clone());
        for (name, value) in [("webhook-id", format!("{id}x")), ("webhook-timestamp", (NOW + 1).to_string())] {
            let mut changed = sent.clone();
            changed.insert(name, value.parse().expect("a value"));
            prop_assert_eq!(refusal(verify(&[&key], &changed, &body, at(NOW))), refused.clone());
        }
    }

    #[test]
    fn old_and_new_keys_verify_while_rotating(old in sender(), new in sender(), body in prop::collection::vec(any::<u8>(), 0..99)) {
        let timestamp = NOW.to_string();
        let both = format!("{} {}", new.sign("a", &timestamp, &body), old.sign("a", &timestamp, &body));
        let both = headers("a", &timestamp, &both);
        // The sender signs with both, the receiver knows either; or the receiver knows both, the sender signs with either.
        prop_assert!(verify(&[&old], &both, &body, at(NOW)).is_ok());
        prop_assert!(verify(&[&new], &both, &body, at(NOW)).is_ok());
        prop_assert!(verify(&[&old, &new], &old.headers("a", &body), &body, at(NOW)).is_ok());
        prop_assert!(verify(&[&old, &new], &new.headers("a", &body), &body, at(NOW)).is_ok());
        prop_assert!(verify(&[&old], &new.headers("a", &body), &body, at(NOW)).is_err());
    }

    #[test]
    fn arbitrary_headers_never_panic(id in "[ -~]*", timestamp in "[ -~]*", signatures in "[ -~]*") {
        let key = Sender::Shared([1; 24]);
        let result = verify(&[&key], &headers(&id, &timestamp, &signatures), b"", at(NOW));
        prop_assert!(result.is_err());
        let result = verify(&[&key], &headers("a", &NOW.to_string(), &signatures), b"", at(NOW));
        prop_assert!(result.is_err());
    }
}

#[test]
fn the_tolerance_applies_in_both_directions() {
    let key = Sender::Shared([1; 24]);
    let check = |now: u64, tolerance: u64| {
        let verifier = Verifier::new([key.key()]).expect("a key");
        let verifier = verifier.tolerance(Duration::from_secs(tolerance));
        verifier.verify(&key.headers("a", b""), "".into(), at(now))
    };
    for tolerance in [0, 300, 3600] {
        assert!(check(NOW + tolerance, tolerance).is_ok());
        assert!(check(NOW - tolerance, tolerance).is_ok());
        let old = unauthorized("webhook-timestamp is too old");
        assert_eq!(refusal(check(NOW + tolerance + 1, tolerance)), old);
        let new = unauthorized("webhook-timestamp is in the future");
        assert_eq!(refusal(check(NOW - tolerance - 1, tolerance)), new);
    }
}

#[test]
fn malformed_headers_are_told_apart_from_wrong_signatures() {
    let key = Sender::Shared([1; 24]);
    let sent = key.headers("a", b"");
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut missing = sent.clone();
        missing.remove(name);
        let expected = (
            StatusCode::BAD_REQUEST,
            format!("the header {name} is missing"),
        );
        assert_eq!(refusal(verify(&[&key], &missing, b"", at(NOW))), expected);
        // Another program might read the other value.
        let mut twice = sent.clone();
        twice.append(name, sent[name].clone());
        assert_eq!(
            refusal(verify(&[&key], &twice, b"", at(NOW))),
            malformed(name)
        );
    }
    let too_long = "a".repeat(256);
    for id in ["", "msg.1700000000", &too_long, "ä"] {
        let result = verify(&[&key], &key.headers(id, b""), b"", at(NOW));
        assert_eq!(refusal(result), malformed("webhook-id"), "{id}");
    }
    for timestamp in [
        "",
        "+1700000000",
        "01700000000",
        "1.7e9",
        "-1",
        "99999999999999999999",
        "18446744073709551615",
    ] {
        let signature = key.sign("a", timestamp, b"");
        let result = verify(&[&key], &headers("a", timestamp, &signature), b"", at(NOW));
        let (status, _) = refusal(result);
        // The largest number of seconds is a time on some systems, in the far future.
        let expected = if timestamp.starts_with("1844") {
            [StatusCode::BAD_REQUEST, StatusCode::UNAUTHORIZED]
        } else {
            [StatusCode::BAD_REQUEST; 2]
        };
        assert!(expected.contains(&status), "{timestamp}");
    }
}

#[test]
fn a_valid_signature_is_found_among_others_up_to_the_limit() {
    let key = Sender::Shared([1; 24]);
    let timestamp = NOW.to_string();
    let good = key.sign("a", &timestamp, b"{}");
    let check = |signatures: &str| {
        let result = verify(
            &[&key],
            &headers("a", &timestamp, signatures),
            b"{}",
            at(NOW),
        );
        result.map(|_| ()).map_err(|error| error.status())
    };
    assert_eq!(
        check(&format!("v9,AAAA nonsense v1, v1,??? {good}")),
        Ok(())
    );
    for wrong in [
        String::new(),
        good.replace("v1,", "v1a,"),
        good.replace("v1,", ""),
        good[..good.len() - 1].to_owned(),
    ] {
        assert_eq!(check(&wrong), Err(StatusCode::UNAUTHORIZED), "{wrong}");
    }
    let most = format!("{}{good}", "v1,A ".repeat(MAX_SIGNATURES - 1));
    assert_eq!(check(&most), Ok(()));
    assert_eq!(check(&format!("v1,A {most}")), Err(StatusCode::BAD_REQUEST));
}

#[test]
fn the_number_of_keys_is_bounded() {
    let key = Sender::Shared([1; 24]).key();
    let with = |count: usize| Verifier::new(vec![&key; count]).map(|_| ());
    assert_eq!(with(0), Err(KeyError::NoKeys));
    assert_eq!(with(MAX_KEYS), Ok(()));
    assert_eq!(with(MAX_KEYS + 1), Err(KeyError::TooManyKeys));
}

#[test]
fn the_head_has_what_the_headers_say() {
    let key = Sender::Shared([1; 24]);
    let mut sent = key.headers("dlv_1", b"{}");
    let webhook = verify(&[&key], &sent, b"{}", at(NOW)).expect("authentic");
    assert_eq!(webhook.head.event_type, None);
    assert_eq!(webhook.head.order(), None);
    for (name, value) in [
        ("posthaste-event-id", "evt_1"),
        ("posthaste-event-type", "invoice.paid"),
        ("posthaste-event-time", "2026-03-01T09:00:00.000Z"),
        ("posthaste-attempt", "3"),
    ] {
        sent.insert(name, value.parse().expect("a value"));
    }
    let head = verify(&[&key], &sent, b"{}", at(NOW))
        .expect("authentic")
        .head;
    assert_eq!(head.event_type.as_deref(), Some("invoice.paid"));
    assert_eq!(head.attempt, Some(3));
    let order = head.order().expect("an order").to_string();
    assert_eq!(order, "2026-03-01T09:00:00.000Z evt_1");
}
