//! Verification of Standard Webhooks signatures.
//!
//! [`Verifier`] holds the keys of one sender and decides whether a request is authentic. It takes the time as a parameter
//! and does no I/O. A request is not trusted until a signature matches, so the work that it can cause is bounded.

use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use http::HeaderMap;

use crate::key::{Key, SIGNATURE_BYTES, TAG_BYTES, matches_signature, matches_tag};
use crate::{Head, KeyError, RawWebhook, ReceiveError};

/// Default maximum difference between the timestamp of a request and the clock of the receiver, in both directions.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
/// Default maximum size of a body, in bytes: 1 MiB, as large as a payload of posthaste is by default.
pub const DEFAULT_MAX_BODY_BYTES: usize = 1024 * 1024;
/// Maximum number of keys: enough for any rotation.
pub const MAX_KEYS: usize = 16;
/// Maximum number of signatures in one header. More are refused, so that a request cannot cause endless work.
pub const MAX_SIGNATURES: usize = 16;
/// Maximum length of `webhook-id`, in bytes. It becomes a key of the inbox.
pub const MAX_ID_BYTES: usize = 255;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Verifies the webhooks of one sender.
///
/// During a rotation, give it the old and the new key: a request is authentic if any key matches.
///
/// ```
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
/// use http::HeaderMap;
/// use posthaste_receiver::Verifier;
///
/// let verifier = Verifier::new(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])?;
/// let mut headers = HeaderMap::new();
/// headers.insert("webhook-id", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk".parse()?);
/// headers.insert("webhook-timestamp", "1649367553".parse()?);
/// headers.insert("webhook-signature", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=".parse()?);
/// let body = r#"{"email":"test@example.com","username":"test_user"}"#;
///
/// let now = UNIX_EPOCH + Duration::from_secs(1_649_367_600);
/// let webhook = verifier.verify(&headers, body.into(), now)?;
/// assert_eq!(webhook.head.id, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk");
/// // An hour later the request is too old: it may have been recorded.
/// assert!(verifier.verify(&headers, body.into(), now + Duration::from_secs(3600)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Verifier {
    keys: Vec<Key>,
    tolerance: Duration,
    max_body_bytes: usize,
}

impl Verifier {
    /// Creates a verifier from keys: `whsec_…` (shared secret, `v1`) or `whpk_…` (public key, `v1a`), in any order.
    pub fn new<I>(keys: I) -> Result<Verifier, KeyError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let keys = keys.into_iter().map(|key| Key::parse(key.as_ref()));
        // One more than is allowed is enough to see that there are too many.
        let keys: Vec<Key> = keys.take(MAX_KEYS + 1).collect::<Result<_, _>>()?;
        match keys.len() {
            0 => Err(KeyError::NoKeys),
            1..=MAX_KEYS => Ok(Verifier {
                keys,
                tolerance: DEFAULT_TOLERANCE,
                max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            }),
            _ => Err(KeyError::TooManyKeys),
        }
    }

    /// Sets the maximum difference between the timestamp of a request and the clock of the receiver.
    /// The default is [`DEFAULT_TOLERANCE`].
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Verifier {
        Verifier { tolerance, ..self }
    }

    /// Sets the maximum size of a body. The default is [`DEFAULT_MAX_BODY_BYTES`].
    #[must_use]
    pub fn max_body_bytes(self, max_body_bytes: usize) -> Verifier {
        Verifier {
            max_body_bytes,
            ..self
        }
    }

    /// Returns the maximum size of a body, in bytes.
    pub fn body_limit(&self) -> usize {
        self.max_body_bytes
    }

    /// Verifies a request. `body` is what was sent, byte for byte, before any parsing.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        now: SystemTime,
    ) -> Result<RawWebhook, ReceiveError> {
        let signed = self.read_head(headers, now)?;
        let limit = self.max_body_bytes;
        if body.len() > limit {
            return Err(ReceiveError::BodyTooLarge { limit });
        }
        let content: [&[u8]; 5] = [
            signed.id.as_bytes(),
            b".",
            signed.timestamp.as_bytes(),
            b".",
            &body,
        ];
        let is_authentic = self.keys.iter().any(|key| match key {
            Key::Shared(secret) => matches_tag(secret, &content, &signed.tags),
            Key::Public(public) => matches_signature(public, &content, &signed.signatures),
        });
        if !is_authentic {
            return Err(ReceiveError::NoMatchingSignature);
        }
        let head = Head::read(signed.id, signed.sent_at, headers);
        Ok(RawWebhook { head, body })
    }

    /// Checks everything that the headers alone tell, so that the body of a hopeless request need not be read.
    pub(crate) fn read_head<'a>(
        &self,
        headers: &'a HeaderMap,
        now: SystemTime,
    ) -> Result<SignedHead<'a>, ReceiveError> {
        let id = single(headers, ID)?;
        // A full stop would allow parts of the body to pass as the timestamp.
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.contains('.') {
            return Err(ReceiveError::InvalidHeader(ID));
        }
        let timestamp = single(headers, TIMESTAMP)?;
        let sent_at = parse_timestamp(timestamp).ok_or(ReceiveError::InvalidHeader(TIMESTAMP))?;
        let mut head = SignedHead {
            id,
            timestamp,
            sent_at,
            tags: Vec::new(),
            signatures: Vec::new(),
        };
        let signatures = single(headers, SIGNATURE)?;
        for (index, entry) in signatures.split_ascii_whitespace().enumerate() {
            if index == MAX_SIGNATURES {
                return Err(ReceiveError::InvalidHeader(SIGNATURE));
            }
            // Unknown schemes and what cannot be decoded is skipped, because later versions may add schemes.
            match entry.split_once(',') {
                Some(("v1", encoded)) => head.tags.extend(decode(encoded)),
                Some(("v1a", encoded)) => head.signatures.extend(decode(encoded)),
                Some(_) | None => {}
            }
        }
        match now.duration_since(sent_at) {
            Ok(age) if age > self.tolerance => Err(ReceiveError::TooOld),
            Err(ahead) if ahead.duration() > self.tolerance => Err(ReceiveError::TooNew),
            Ok(_) | Err(_) => Ok(head),
        }
    }
}

/// The parts of a request that are signed, except the body, and the decoded signatures by scheme.
pub(crate) struct SignedHead<'a> {
    id: &'a str,
    timestamp: &'a str,
    sent_at: SystemTime,
    tags: Vec<[u8; TAG_BYTES]>,
    signatures: Vec<[u8; SIGNATURE_BYTES]>,
}

/// Returns the value of a header that must exist once. Of two values, another program might read the other one.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, ReceiveError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(ReceiveError::MissingHeader(name))?;
    if values.next().is_some() {
        return Err(ReceiveError::InvalidHeader(name));
    }
    value
        .to_str()
        .map_err(|_| ReceiveError::InvalidHeader(name))
}

/// Parses whole seconds since 1970. The text is signed as it was sent, so only one spelling of a number is accepted.
fn parse_timestamp(text: &str) -> Option<SystemTime> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(text.parse().ok()?))
}

fn decode<const LENGTH: usize>(encoded: &str) -> Option<[u8; LENGTH]> {
    BASE64_STANDARD.decode(encoded).ok()?.try_into().ok()
}
