//! Verification of signed requests, for receivers.
//!
//! The request is not trusted until a signature matches. So the work that it can cause is bounded, and tags are
//! compared in constant time.

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::hmac;
use ring::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

use super::key::check_count;
use super::{KeyError, SharedSecret, SigningKey, VerifyingKey};

/// Default maximum difference between a request's timestamp and the receiver's clock, in both directions.
pub const TOLERANCE_SECONDS: u64 = 300;

/// Maximum number of signatures in one header: twice the maximum that posthaste sends, to allow for other senders.
pub const MAX_SIGNATURES: usize = 16;

const TAG_BYTES: usize = 32;
const ED25519_SIGNATURE_BYTES: usize = 64;

/// The keys that a receiver trusts: at least one, at most [`super::MAX_KEYS`].
#[derive(Debug, Clone)]
pub struct VerifyingKeys {
    keys: Vec<VerifyingKey>,
}

/// A request as it arrived: the three Standard Webhooks headers and the unchanged body. It has no `Debug`, so that
/// no body is written to a log.
#[derive(Clone, Copy)]
pub struct SignedMessage<'a> {
    /// The `webhook-id` header.
    pub id: &'a str,
    /// The `webhook-timestamp` header.
    pub timestamp: &'a str,
    /// The `webhook-signature` header.
    pub signatures: &'a str,
    /// The body, before any parsing.
    pub body: &'a [u8],
}

/// The reason why a request must not be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// The id is empty or contains a full stop, which would allow parts of the body to pass as the timestamp.
    #[error("webhook-id must not be empty or contain a full stop")]
    MalformedId,
    /// The timestamp is not a number of seconds.
    #[error("webhook-timestamp must be whole seconds since 1970, in digits")]
    MalformedTimestamp,
    /// The timestamp is too far in the past.
    #[error("webhook-timestamp is too old; this may be a replay, or a clock is wrong")]
    TooOld,
    /// The timestamp is too far in the future.
    #[error("webhook-timestamp is in the future; a clock is wrong")]
    TooNew,
    /// More signatures than [`MAX_SIGNATURES`].
    #[error("webhook-signature holds more than {MAX_SIGNATURES} signatures")]
    TooManySignatures,
    /// No signature was made with any of the keys over this content.
    #[error("no signature in webhook-signature matches")]
    NoMatch,
}

/// The decoded signatures of a header that could be valid, by scheme.
#[derive(Default)]
struct Candidates {
    hmac: Vec<[u8; TAG_BYTES]>,
    ed25519: Vec<[u8; ED25519_SIGNATURE_BYTES]>,
}

impl Candidates {
    /// Reads the header. Unknown schemes and entries that cannot be decoded are skipped, because later versions may
    /// add schemes.
    fn read(header: &str) -> Result<Candidates, VerifyError> {
        let mut candidates = Candidates::default();
        for (index, entry) in header.split_ascii_whitespace().enumerate() {
            if index == MAX_SIGNATURES {
                return Err(VerifyError::TooManySignatures);
            }
            match entry.split_once(',') {
                Some(("v1", encoded)) => candidates.hmac.extend(decode(encoded)),
                Some(("v1a", encoded)) => candidates.ed25519.extend(decode(encoded)),
                Some(_) | None => {}
            }
        }
        Ok(candidates)
    }
}

fn decode<const LENGTH: usize>(encoded: &str) -> Option<[u8; LENGTH]> {
    BASE64_STANDARD.decode(encoded).ok()?.try_into().ok()
}

impl VerifyingKeys {
    /// Creates the set from the keys, in any order.
    pub fn new(keys: Vec<VerifyingKey>) -> Result<VerifyingKeys, KeyError> {
        check_count(keys.len())?;
        Ok(VerifyingKeys { keys })
    }

    pub(super) fn from_signing(keys: &[SigningKey]) -> VerifyingKeys {
        VerifyingKeys {
            keys: keys.iter().map(SigningKey::verifying_key).collect(),
        }
    }

    /// Checks that a signature of the message was made with one of these keys, and that its timestamp differs from
    /// now by at most the tolerance. [`TOLERANCE_SECONDS`] is a good value.
    pub fn verify(
        &self,
        message: &SignedMessage<'_>,
        now_seconds: u64,
        tolerance_seconds: u64,
    ) -> Result<(), VerifyError> {
        if message.id.is_empty() || message.id.contains('.') {
            return Err(VerifyError::MalformedId);
        }
        check_timestamp(message.timestamp, now_seconds, tolerance_seconds)?;
        let candidates = Candidates::read(message.signatures)?;
        let parts = [
            message.id.as_bytes(),
            b".",
            message.timestamp.as_bytes(),
            b".",
            message.body,
        ];
        let mut joined = None;
        let is_match = self.keys.iter().any(|key| match key {
            VerifyingKey::Shared(secret) => matches_tag(secret, &parts, &candidates.hmac),
            VerifyingKey::Public(public) => {
                let key = UnparsedPublicKey::new(&ED25519, public.as_bytes());
                candidates.ed25519.iter().any(|signature| {
                    key.verify(joined.get_or_insert_with(|| parts.concat()), signature)
                        .is_ok()
                })
            }
        });
        if is_match {
            Ok(())
        } else {
            Err(VerifyError::NoMatch)
        }
    }
}

/// Checks the timestamp. It is part of the signed content as it was sent, so only one spelling of a number is
/// accepted.
fn check_timestamp(
    text: &str,
    now_seconds: u64,
    tolerance_seconds: u64,
) -> Result<(), VerifyError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) || (text.len() > 1 && text.starts_with('0'))
    {
        return Err(VerifyError::MalformedTimestamp);
    }
    let timestamp: u64 = text.parse().map_err(|_| VerifyError::MalformedTimestamp)?;
    if now_seconds.abs_diff(timestamp) <= tolerance_seconds {
        Ok(())
    } else if timestamp < now_seconds {
        Err(VerifyError::TooOld)
    } else {
        Err(VerifyError::TooNew)
    }
}

/// Hashes the body once per key, independent of the number of signatures in the request. `ring` compares tags in
/// constant time only while it computes one, so both tags are hashed once more for the comparison.
fn matches_tag(secret: &SharedSecret, parts: &[&[u8]], candidates: &[[u8; TAG_BYTES]]) -> bool {
    if candidates.is_empty() {
        return false;
    }
    let expected = secret.tag(parts);
    candidates.iter().any(|candidate| {
        let blinded = hmac::sign(secret.key(), candidate);
        hmac::verify(secret.key(), expected.as_ref(), blinded.as_ref()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::{PrivateKey, SigningKeys};
    use proptest::prelude::*;

    const NOW: u64 = 1_700_000_000;

    fn signing_key() -> impl Strategy<Value = SigningKey> {
        prop_oneof![
            any::<[u8; 24]>()
                .prop_map(|bytes| SigningKey::Shared(SharedSecret::from_random(bytes))),
            any::<[u8; 32]>().prop_map(|seed| SigningKey::Private(PrivateKey::from_seed(seed))),
        ]
    }

    fn keys(keys: &[&SigningKey]) -> SigningKeys {
        SigningKeys::new(keys.iter().map(|key| (*key).clone()).collect()).unwrap()
    }

    fn verify(
        key: &SigningKey,
        id: &str,
        timestamp: &str,
        signatures: &str,
        body: &[u8],
    ) -> Result<(), VerifyError> {
        let message = SignedMessage {
            id,
            timestamp,
            signatures,
            body,
        };
        keys(&[key])
            .verifying_keys()
            .verify(&message, NOW, TOLERANCE_SECONDS)
    }

    /// Replaces the character at the place by another digit.
    fn altered(text: &str, position: prop::sample::Index) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let position = position.index(bytes.len());
        bytes[position] = if bytes[position] == b'7' { b'8' } else { b'7' };
        String::from_utf8(bytes).unwrap()
    }

    fn shared(fill: u8) -> SigningKey {
        SigningKey::Shared(SharedSecret::from_random([fill; 24]))
    }

    proptest! {
        #[test]
        fn only_the_signed_content_verifies(
            key in signing_key(),
            stranger in signing_key(),
            id in "[a-z]{3}_[0-9A-Za-z]{1,27}",
            age in 0..=TOLERANCE_SECONDS,
            body in prop::collection::vec(any::<u8>(), 1..300),
            position in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let timestamp = (NOW - age).to_string();
            let header = keys(&[&key]).header(&id, NOW - age, &body);
            prop_assert_eq!(verify(&key, &id, &timestamp, &header, &body), Ok(()));
            let refused = Err(VerifyError::NoMatch);
            let (other_id, other_header) = (altered(&id, position), altered(&header, position));
            prop_assert_eq!(verify(&stranger, &id, &timestamp, &header, &body), refused);

            let mut other_body = body.clone();
            other_body[position.index(body.len())] ^= 1 << bit;
            prop_assert_eq!(verify(&key, &id, &timestamp, &header, &other_body), refused);
            prop_assert_eq!(verify(&key, &id, &timestamp, &header, &body[1..]), refused);
            prop_assert_eq!(verify(&key, &other_id, &timestamp, &header, &body), refused);
            prop_assert_eq!(verify(&key, &id, &timestamp, &other_header, &body), refused);
            prop_assert!(verify(&key, &id, &altered(&timestamp, position), &header, &body).is_err());
            prop_assert_eq!(verify(&key, &id, &(NOW + 1).to_string(), &header, &body), refused);
        }

        #[test]
        fn old_and_new_keys_verify_while_rotating(
            old in signing_key(),
            new in signing_key(),
            body in prop::collection::vec(any::<u8>(), 0..99),
        ) {
            let now = NOW.to_string();
            let header = keys(&[&new, &old]).header("msg_1", NOW, &body);
            for key in [&old, &new] {
                prop_assert_eq!(verify(key, "msg_1", &now, &header, &body), Ok(()));
            }
            let header = keys(&[&new]).header("msg_1", NOW, &body);
            let refused = verify(&old, "msg_1", &now, &header, &body);
            prop_assert_eq!(refused, Err(VerifyError::NoMatch));
        }

        #[test]
        fn arbitrary_headers_never_panic(
            id in ".*",
            timestamp in ".*",
            signatures in any::<String>(),
        ) {
            prop_assert!(verify(&shared(1), &id, &timestamp, &signatures, b"").is_err());
            prop_assert!(verify(&shared(1), "msg_1", &NOW.to_string(), &signatures, b"").is_err());
        }
    }

    #[test]
    fn timestamps_are_bounded_on_both_sides() {
        let header = |timestamp: u64| keys(&[&shared(1)]).header("msg_1", timestamp, b"");
        let at = |timestamp: u64| {
            verify(
                &shared(1),
                "msg_1",
                &timestamp.to_string(),
                &header(timestamp),
                b"",
            )
        };
        assert_eq!(at(NOW - TOLERANCE_SECONDS), Ok(()));
        assert_eq!(at(NOW - TOLERANCE_SECONDS - 1), Err(VerifyError::TooOld));
        assert_eq!(at(NOW + TOLERANCE_SECONDS), Ok(()));
        assert_eq!(at(NOW + TOLERANCE_SECONDS + 1), Err(VerifyError::TooNew));
        assert_eq!(at(0), Err(VerifyError::TooOld));
        assert_eq!(at(u64::MAX), Err(VerifyError::TooNew));
    }

    #[test]
    fn only_plain_digits_are_a_timestamp() {
        let header = keys(&[&shared(1)]).header("msg_1", NOW, b"");
        for timestamp in [
            "",
            " ",
            "+1700000000",
            "01700000000",
            "1700000000.0",
            "1.7e9",
            "-1",
            "１７",
            "99999999999999999999",
        ] {
            let result = verify(&shared(1), "msg_1", timestamp, &header, b"");
            assert_eq!(result, Err(VerifyError::MalformedTimestamp), "{timestamp}");
        }
    }

    #[test]
    fn a_full_stop_cannot_shift_field_boundaries() {
        // The same signed bytes, split at another place: "msg" "1700000000" "1700000000.x".
        let header = keys(&[&shared(1)]).header("msg", NOW, format!("{NOW}.x").as_bytes());
        let moved = verify(
            &shared(1),
            &format!("msg.{NOW}"),
            &NOW.to_string(),
            &header,
            b"x",
        );
        assert_eq!(moved, Err(VerifyError::MalformedId));
        assert_eq!(
            verify(&shared(1), "", &NOW.to_string(), &header, b""),
            Err(VerifyError::MalformedId)
        );
    }

    #[test]
    fn a_valid_signature_is_found_among_invalid_ones() {
        let good = keys(&[&shared(1)]).header("msg_1", NOW, b"{}");
        let stranger = keys(&[&shared(2)]).header("msg_1", NOW, b"{}");
        let check = |header: &str| verify(&shared(1), "msg_1", &NOW.to_string(), header, b"{}");
        assert_eq!(
            check(&format!("v9,AAAA nonsense v1, v1,??? {stranger} {good}")),
            Ok(())
        );
        assert_eq!(
            check(&good.replace("v1,", "v1a,")),
            Err(VerifyError::NoMatch)
        );
        assert_eq!(check(&good.replace("v1,", "")), Err(VerifyError::NoMatch));
        assert_eq!(check(&good[..good.len() - 1]), Err(VerifyError::NoMatch));
        assert_eq!(check(""), Err(VerifyError::NoMatch));
        assert_eq!(
            check(&format!("{}{good}", "v1,A ".repeat(MAX_SIGNATURES - 1))),
            Ok(())
        );
        let too_many = format!("{}{good}", "v1,A ".repeat(MAX_SIGNATURES));
        assert_eq!(check(&too_many), Err(VerifyError::TooManySignatures));
    }

    #[test]
    fn any_trusted_key_verifies() {
        let private = SigningKey::Private(PrivateKey::from_seed([3; 32]));
        let trusted = keys(&[&shared(1), &shared(2), &private]).verifying_keys();
        for (signer, expected) in [
            (shared(1), Ok(())),
            (shared(2), Ok(())),
            (private, Ok(())),
            (shared(4), Err(VerifyError::NoMatch)),
        ] {
            let message = SignedMessage {
                id: "msg_1",
                timestamp: &NOW.to_string(),
                signatures: &keys(&[&signer]).header("msg_1", NOW, b"{}"),
                body: b"{}",
            };
            assert_eq!(trusted.verify(&message, NOW, 0), expected, "{signer:?}");
        }
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        assert_eq!(VerifyingKeys::new(vec![]).unwrap_err(), KeyError::NoKeys);
        let many = vec![shared(1).verifying_key(); 9];
        assert_eq!(
            VerifyingKeys::new(many).unwrap_err(),
            KeyError::TooManyKeys { count: 9 }
        );
    }
}
