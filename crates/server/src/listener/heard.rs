//! What a receiver heard, and what it makes of it.

use bytes::Bytes;
use http::{HeaderMap, Method};
use posthaste_core::sign::{SignedMessage, TOLERANCE_SECONDS, VerifyError, VerifyingKeys};
use posthaste_core::time::Timestamp;

use super::Answer;

/// One request, and the answer it gets.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The how manieth it is, from 1.
    pub number: u64,
    /// When it had arrived.
    pub at: Timestamp,
    /// Its method.
    pub method: Method,
    /// Where it went.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Whether its signature holds.
    pub check: Check,
    /// What it is answered.
    pub answer: Answer,
}

/// Whether a request is what its sender signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No secret is known to check by.
    Unchecked,
    /// It is.
    Verified,
    /// It lacks this header, so it is not signed.
    Unsigned(&'static str),
    /// It is not.
    Refused(VerifyError),
}

impl Check {
    /// Checks a request by the keys that are trusted.
    pub fn of(
        keys: Option<&VerifyingKeys>,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Check {
        let Some(keys) = keys else {
            return Check::Unchecked;
        };
        let header = |name: &'static str| text(headers, name).ok_or(Check::Unsigned(name));
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
                Ok(()) => Check::Verified,
                Err(error) => Check::Refused(error),
            },
        }
    }
}

impl Heard {
    /// A header, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// The delivery it belongs to.
    pub fn delivery(&self) -> Option<&str> {
        self.header("webhook-id")
    }

    /// The event it tells of.
    pub fn event(&self) -> Option<&str> {
        self.header("posthaste-event-id")
    }

    /// The type of that event.
    pub fn event_type(&self) -> Option<&str> {
        self.header("posthaste-event-type")
    }

    /// The how manieth attempt it is.
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

/// What a receiver has heard so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Requests answered with success.
    pub succeeded: u64,
    /// Requests whose signature held.
    pub verified: u64,
    /// Requests whose signature was missing or wrong.
    pub refused: u64,
}

impl Tally {
    /// Counts one more.
    pub fn note(&mut self, heard: &Heard) {
        self.requests += 1;
        self.succeeded += u64::from(heard.answer.is_success());
        match heard.check {
            Check::Unchecked => {}
            Check::Verified => self.verified += 1,
            Check::Unsigned(_) | Check::Refused(_) => self.refused += 1,
        }
    }

    /// Requests that were not answered with success.
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
        let check =
            |headers: &HeaderMap, body: &[u8], now| Check::of(Some(&trusted), headers, body, now);
        assert_eq!(check(&headers, b"{}", NOW), Check::Verified);
        let no_match = Check::Refused(VerifyError::NoMatch);
        assert_eq!(check(&headers, b"[]", NOW), no_match);
        assert_eq!(check(&signed(&keys(2), b"{}"), b"{}", NOW), no_match);
        let later = Timestamp(NOW.0 + 301_000);
        assert_eq!(
            check(&headers, b"{}", later),
            Check::Refused(VerifyError::TooOld)
        );
    }

    #[test]
    fn without_a_signature_it_is_unsigned_and_without_a_key_unchecked() {
        let mut headers = signed(&keys(1), b"{}");
        headers.remove("webhook-signature");
        let trusted = keys(1).verifying_keys();
        assert_eq!(
            Check::of(Some(&trusted), &headers, b"{}", NOW),
            Check::Unsigned("webhook-signature")
        );
        assert_eq!(Check::of(None, &headers, b"{}", NOW), Check::Unchecked);
    }
}
