//! The secret that sender and receiver share, for HMAC-SHA256.
//!
//! [`SharedSecret`] is either in the form of Standard Webhooks (`whsec_` and base64) or an opaque text that a
//! receiver brings from another webhook sender. The prefix alone tells them apart. Lengths are bounded. `Debug`
//! prints a placeholder; only [`SharedSecret::reveal`] returns the text.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::hmac;

use super::KeyError;
use super::key::{PRIVATE_PREFIX, PUBLIC_PREFIX, SECRET_PREFIX, decode};

/// Minimum length of a decoded shared secret in Standard Webhooks.
pub const MIN_SECRET_BYTES: usize = 24;
/// Maximum length of a decoded shared secret in Standard Webhooks.
pub const MAX_SECRET_BYTES: usize = 64;
/// Minimum length of an opaque secret; shorter ones can be guessed.
pub const MIN_OPAQUE_BYTES: usize = 16;
/// Maximum length of an opaque secret.
pub const MAX_OPAQUE_BYTES: usize = 256;

/// A secret that sender and receiver both know.
#[derive(Clone)]
pub struct SharedSecret {
    text: String,
    key: hmac::Key,
}

impl SharedSecret {
    /// Parses `whsec_` and base64.
    pub fn parse(text: &str) -> Result<SharedSecret, KeyError> {
        let bytes = decode(text, SECRET_PREFIX)?;
        SharedSecret::from_bytes(&bytes)
    }

    /// Creates a new secret from random bytes.
    pub fn from_random(bytes: [u8; MIN_SECRET_BYTES]) -> SharedSecret {
        SharedSecret::from_checked(&bytes)
    }

    /// Creates a secret from the given bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<SharedSecret, KeyError> {
        if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&bytes.len()) {
            return Err(KeyError::SecretLength {
                length_bytes: bytes.len(),
            });
        }
        Ok(SharedSecret::from_checked(bytes))
    }

    /// Creates a secret from a text of another webhook sender; the bytes of the text are the key. This is for
    /// receivers that migrated to posthaste and still verify in the GitHub or Stripe style with their existing
    /// secret. A text with one of the prefixes is refused, so that the prefix alone determines how a stored secret
    /// is read.
    pub fn opaque(text: &str) -> Result<SharedSecret, KeyError> {
        if [SECRET_PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            return Err(KeyError::OpaquePrefix);
        }
        if !(MIN_OPAQUE_BYTES..=MAX_OPAQUE_BYTES).contains(&text.len()) {
            return Err(KeyError::OpaqueLength {
                length_bytes: text.len(),
            });
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        Ok(SharedSecret {
            text: text.to_owned(),
            key,
        })
    }

    fn from_checked(bytes: &[u8]) -> SharedSecret {
        let mut text = SECRET_PREFIX.to_owned();
        BASE64_STANDARD.encode_string(bytes, &mut text);
        SharedSecret {
            text,
            key: hmac::Key::new(hmac::HMAC_SHA256, bytes),
        }
    }

    /// Returns the secret as plain text, to be shown to the tenant or encrypted for storage.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    pub(super) fn key(&self) -> &hmac::Key {
        &self.key
    }

    /// Returns the authentication tag of the concatenated parts, without copying them.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        tag(&self.key, parts)
    }

    /// Like [`Self::tag`], with the revealed text as the key.
    pub(super) fn text_tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        tag(
            &hmac::Key::new(hmac::HMAC_SHA256, self.text.as_bytes()),
            parts,
        )
    }
}

fn tag(key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    context.sign()
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("whsec_…redacted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(prefix: &str, length: usize) -> String {
        format!("{prefix}{}", BASE64_STANDARD.encode(vec![7; length]))
    }

    #[test]
    fn a_shared_secret_needs_prefix_base64_and_length() {
        let error = |text: &str| SharedSecret::parse(text).unwrap_err();
        let plain = BASE64_STANDARD.encode([7; 24]);
        assert_eq!(
            error(&plain),
            KeyError::MissingPrefix { expected: "whsec_" }
        );
        assert_eq!(
            error(&encoded("whsk_", 24)),
            KeyError::MissingPrefix { expected: "whsec_" }
        );
        assert_eq!(
            error("whsec_????"),
            KeyError::NotBase64 { prefix: "whsec_" }
        );
        assert_eq!(
            error(&format!("whsec_{plain} ")),
            KeyError::NotBase64 { prefix: "whsec_" }
        );
        assert_eq!(
            error(&encoded("whsec_", 23)),
            KeyError::SecretLength { length_bytes: 23 }
        );
        assert_eq!(
            error(&encoded("whsec_", 65)),
            KeyError::SecretLength { length_bytes: 65 }
        );
        for length in [24, 32, 64] {
            assert!(
                SharedSecret::parse(&encoded("whsec_", length)).is_ok(),
                "{length}"
            );
        }
    }

    #[test]
    fn an_opaque_secret_is_bounded_and_has_no_prefix() {
        let error = |text: &str| SharedSecret::opaque(text).unwrap_err();
        assert_eq!(
            error("too short"),
            KeyError::OpaqueLength { length_bytes: 9 }
        );
        assert_eq!(
            error(&"a".repeat(257)),
            KeyError::OpaqueLength { length_bytes: 257 }
        );
        assert_eq!(error(&encoded("whsec_", 24)), KeyError::OpaquePrefix);
        assert_eq!(
            SharedSecret::opaque("It's a Secret to Everybody")
                .unwrap()
                .reveal(),
            "It's a Secret to Everybody"
        );
    }

    proptest! {
        #[test]
        fn secrets_round_trip_and_are_redacted_in_debug(
            bytes in prop::collection::vec(any::<u8>(), MIN_SECRET_BYTES..=MAX_SECRET_BYTES),
        ) {
            let secret = SharedSecret::from_bytes(&bytes).unwrap();
            let again = SharedSecret::parse(secret.reveal()).unwrap();
            prop_assert_eq!(again.reveal(), secret.reveal());
            let shown = format!("{secret:?} {secret:#?}");
            prop_assert_eq!(shown, "whsec_…redacted whsec_…redacted");
        }
    }
}
