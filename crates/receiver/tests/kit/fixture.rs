//! A sender that signs, at a fixed time.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, HeaderValue, Request};
use posthaste_receiver::{Receiver, Verifier};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};

/// The time of all requests and receivers, in seconds since 1970.
pub(crate) const NOW: u64 = 1_700_000_000;

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A key of a sender.
#[derive(Debug)]
pub(crate) enum Sender {
    Shared([u8; 24]),
    Private([u8; 32]),
}

impl Sender {
    /// The key that receivers get.
    pub(crate) fn key(&self) -> String {
        match self {
            Sender::Shared(secret) => format!("whsec_{}", BASE64_STANDARD.encode(secret)),
            Sender::Private(seed) => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed");
                format!(
                    "whpk_{}",
                    BASE64_STANDARD.encode(pair.public_key().as_ref())
                )
            }
        }
    }

    /// One entry of `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let content = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
        match self {
            Sender::Shared(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                let tag = hmac::sign(&key, &content);
                format!("v1,{}", BASE64_STANDARD.encode(tag.as_ref()))
            }
            Sender::Private(seed) => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed");
                format!(
                    "v1a,{}",
                    BASE64_STANDARD.encode(pair.sign(&content).as_ref())
                )
            }
        }
    }

    /// The headers of a request that is sent at [`NOW`].
    pub(crate) fn headers(&self, id: &str, body: &[u8]) -> HeaderMap {
        let timestamp = NOW.to_string();
        headers(id, &timestamp, &self.sign(id, &timestamp, body))
    }

    /// A request that is sent at [`NOW`].
    pub(crate) fn request(&self, id: &str, body: &str) -> Request<Body> {
        let mut request = Request::post("/hooks")
            .body(Body::from(body.to_owned()))
            .expect("a request");
        *request.headers_mut() = self.headers(id, body.as_bytes());
        request
    }

    /// A receiver that trusts this sender, with a clock that stands at [`NOW`].
    pub(crate) fn receiver(&self) -> Receiver {
        Receiver::new(Verifier::new([self.key()]).expect("a key")).clock(|| at(NOW))
    }
}

pub(crate) fn headers(id: &str, timestamp: &str, signatures: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("webhook-id", id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", signatures),
    ] {
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.insert(name, value.expect("a header value"));
    }
    headers
}
