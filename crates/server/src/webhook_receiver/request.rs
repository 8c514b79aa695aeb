//! A received request and the check of its signature.
//!
//! [`ReceivedRequest`] has what the listener prints and the demo counts. [`SignatureCheck`] says if one of the trusted
//! keys signed it.

use bytes::Bytes;
use http::{HeaderMap, Method};
use posthaste_core::sign::{SignedMessage, TOLERANCE_SECONDS, VerifyError, VerifyingKeys};
use posthaste_core::time::Timestamp;

use super::behaviour::Answer;

/// A received request, and its answer.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Number of the request, from 1.
    pub number: u64,
    /// Time when it was received completely.
    pub at: Timestamp,
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The result of the signature check.
    pub check: SignatureCheck,
    /// Its answer.
    pub answer: Answer,
    /// The reason why it could not be forwarded.
    pub forward_error: Option<String>,
}

/// The result of a signature check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureCheck {
    /// No key is configured.
    Unchecked,
    /// The signature is valid.
    Verified,
    /// This header is missing, so the request is not signed.
    Unsigned(&'static str),
    /// The signature is invalid.
    Refused(VerifyError),
}

impl SignatureCheck {
    /// Verifies a request with the trusted keys.
    pub fn of(
        keys: Option<&VerifyingKeys>,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> SignatureCheck {
        let Some(keys) = keys else {
            return SignatureCheck::Unchecked;
        };
        let header = |name: &'static str| text(headers, name).ok_or(SignatureCheck::Unsigned(name));
        let message = || {
            Ok(SignedMessage {
                id: header("webhook-id")?,
                timestamp: header("webhook-timestamp")?,
                signatures: header("webhook-signature")?,
                body,
            })
        };
        match message() {
            Err(unsigned) => unsigned,
            Ok(message) => match keys.verify(&message, now.0 / 1_000, TOLERANCE_SECONDS) {
                Ok(()) => SignatureCheck::Verified,
                Err(error) => SignatureCheck::Refused(error),
            },
        }
    }
}

impl ReceivedRequest {
    /// Returns a header, if it is present and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// Returns the id of its delivery.
    pub fn delivery(&self) -> Option<&str> {
        self.header("webhook-id")
    }

    /// Returns the id of its event.
    pub fn event(&self) -> Option<&str> {
        self.header("posthaste-event-id")
    }

    /// Returns the type of its event.
    pub fn event_type(&self) -> Option<&str> {
        self.header("posthaste-event-type")
    }

    /// Returns the number of its attempt.
    pub fn attempt(&self) -> Option<u32> {
        attempt(&self.headers)
    }
}

pub(super) fn attempt(headers: &HeaderMap) -> Option<u32> {
    text(headers, "posthaste-attempt")?.parse().ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Counters of received requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests.
    pub requests: u64,
    /// Requests answered with success.
    pub succeeded: u64,
    /// Requests with a valid signature.
    pub verified: u64,
    /// Requests with a missing or invalid signature.
    pub refused: u64,
}

impl RequestTotals {
    /// Counts a request.
    pub fn add(&mut self, request: &ReceivedRequest) {
        self.requests += 1;
        self.succeeded += u64::from(request.answer.is_success());
        match request.check {
            SignatureCheck::Unchecked => {}
            SignatureCheck::Verified => self.verified += 1,
            SignatureCheck::Unsigned(_) | SignatureCheck::Refused(_) => self.refused += 1,
        }
    }

    /// Returns the number of requests that were not answered with success.
    pub fn failed(&self) -> u64 {
        self.requests - self.succeeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::sign::{SharedSecret, SigningKey, SigningKeys};

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn keys(fill: u8) -> SigningKeys {
        let secret = SharedSecret::from_random([fill; 24]);
        SigningKeys::new(vec![SigningKey::Shared(secret)]).unwrap()
    }

    fn signed(by: &SigningKeys, body: &[u8]) -> HeaderMap {
        let signature = by.header("dlv_1", NOW.0 / 1_000, body);
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "dlv_1".parse().unwrap());
        headers.insert("webhook-timestamp", "1700000000".parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers
    }

    #[test]
    fn a_signature_holds_for_its_key_body_and_time_only() {
        let trusted = keys(1).verifying_keys();
        let headers = signed(&keys(1), b"{}");
        let check = |headers: &HeaderMap, body: &[u8], now| {
            SignatureCheck::of(Some(&trusted), headers, body, now)
        };
        assert_eq!(check(&headers, b"{}", NOW), SignatureCheck::Verified);
        let no_match = SignatureCheck::Refused(VerifyError::NoMatch);
        assert_eq!(check(&headers, b"[]", NOW), no_match);
        assert_eq!(check(&signed(&keys(2), b"{}"), b"{}", NOW), no_match);
        let later = Timestamp(NOW.0 + 301_000);
        assert_eq!(
            check(&headers, b"{}", later),
            SignatureCheck::Refused(VerifyError::TooOld)
        );
    }

    #[test]
    fn without_a_signature_it_is_unsigned_and_without_a_key_unchecked() {
        let mut headers = signed(&keys(1), b"{}");
        headers.remove("webhook-signature");
        let trusted = keys(1).verifying_keys();
        assert_eq!(
            SignatureCheck::of(Some(&trusted), &headers, b"{}", NOW),
            SignatureCheck::Unsigned("webhook-signature")
        );
        assert_eq!(
            SignatureCheck::of(None, &headers, b"{}", NOW),
            SignatureCheck::Unchecked
        );
    }
}
