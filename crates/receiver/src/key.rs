//! Keys that verify webhooks, and the errors of their text forms.
//!
//! [`Key`] is either a secret that sender and receiver share (`whsec_…`, HMAC-SHA256) or the public key of the sender
//! (`whpk_…`, ed25519). Neither is printed by `Debug` or quoted in an error.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::hmac;
use ring::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

const SECRET_PREFIX: &str = "whsec_";
const PUBLIC_PREFIX: &str = "whpk_";

/// Minimum length of a decoded secret. Standard Webhooks demands 24 bytes; shorter ones can be guessed.
pub const MIN_SECRET_BYTES: usize = 24;
/// Maximum length of a decoded secret.
pub const MAX_SECRET_BYTES: usize = 64;
/// Length of a decoded public key.
pub const PUBLIC_KEY_BYTES: usize = 32;

/// Length of an HMAC-SHA256 tag.
pub(crate) const TAG_BYTES: usize = 32;
/// Length of an ed25519 signature.
pub(crate) const SIGNATURE_BYTES: usize = 64;

/// A key that verifies the signatures of one sender.
#[derive(Clone)]
pub(crate) enum Key {
    /// The secret that sender and receiver share, for `v1` signatures.
    Shared(hmac::Key),
    /// The public key of the sender, for `v1a` signatures.
    Public([u8; PUBLIC_KEY_BYTES]),
}

/// The reason why a text is no key. It quotes nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no key at all: nothing could be verified.
    #[error("at least one key is needed")]
    NoKeys,
    /// More keys than [`crate::MAX_KEYS`].
    #[error("at most {max} keys can be used at once", max = crate::MAX_KEYS)]
    TooManyKeys,
    /// The text begins neither with `whsec_` nor with `whpk_`.
    #[error("a key begins with {SECRET_PREFIX} (shared secret) or {PUBLIC_PREFIX} (public key)")]
    UnknownPrefix,
    /// The rest of the text is not base64.
    #[error("the part after {prefix} is not base64")]
    NotBase64 {
        /// The prefix of the key.
        prefix: &'static str,
    },
    /// The secret is too short or too long.
    #[error("a secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, this one has {length}")]
    SecretLength {
        /// Length of the decoded secret, in bytes.
        length: usize,
    },
    /// The public key has another length than an ed25519 key.
    #[error("a public key has {PUBLIC_KEY_BYTES} bytes, this one has {length}")]
    PublicKeyLength {
        /// Length of the decoded key, in bytes.
        length: usize,
    },
}

impl Key {
    /// Parses the text form of a key. The prefix determines its kind.
    pub(crate) fn parse(text: &str) -> Result<Key, KeyError> {
        if let Some(encoded) = text.strip_prefix(SECRET_PREFIX) {
            let secret = decode(encoded, SECRET_PREFIX)?;
            let length = secret.len();
            if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&length) {
                return Err(KeyError::SecretLength { length });
            }
            Ok(Key::Shared(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
        } else if let Some(encoded) = text.strip_prefix(PUBLIC_PREFIX) {
            let public = decode(encoded, PUBLIC_PREFIX)?;
            let length = public.len();
            let public = public.try_into();
            public
                .map(Key::Public)
                .map_err(|_| KeyError::PublicKeyLength { length })
        } else {
            Err(KeyError::UnknownPrefix)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Key::Shared(_) => "whsec_…",
            Key::Public(_) => "whpk_…",
        })
    }
}

fn decode(encoded: &str, prefix: &'static str) -> Result<Vec<u8>, KeyError> {
    let decoded = BASE64_STANDARD.decode(encoded);
    decoded.map_err(|_| KeyError::NotBase64 { prefix })
}

/// Returns whether one of the tags is the tag of the signed content. Hashes the content once, independent of the number
/// of tags. `ring` compares tags in constant time only while it computes one, so both are hashed once more to be compared.
pub(crate) fn matches_tag(key: &hmac::Key, content: &[&[u8]], tags: &[[u8; TAG_BYTES]]) -> bool {
    if tags.is_empty() {
        return false;
    }
    let mut context = hmac::Context::with_key(key);
    for part in content {
        context.update(part);
    }
    let expected = context.sign();
    tags.iter().any(|tag| {
        let blinded = hmac::sign(key, tag);
        hmac::verify(key, expected.as_ref(), blinded.as_ref()).is_ok()
    })
}

/// Returns whether one of the signatures was made over the signed content with the private half of the public key.
pub(crate) fn matches_signature(
    public: &[u8; PUBLIC_KEY_BYTES],
    content: &[&[u8]],
    signatures: &[[u8; SIGNATURE_BYTES]],
) -> bool {
    if signatures.is_empty() {
        return false;
    }
    let content = content.concat();
    let key = UnparsedPublicKey::new(&ED25519, public);
    signatures
        .iter()
        .any(|signature| key.verify(&content, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(prefix: &str, length: usize) -> String {
        format!("{prefix}{}", BASE64_STANDARD.encode(vec![7; length]))
    }

    #[test]
    fn a_key_needs_prefix_base64_and_length() {
        let error = |text: &str| Key::parse(text).expect_err("no key");
        assert_eq!(error(""), KeyError::UnknownPrefix);
        assert_eq!(error(&encoded("whsk_", 32)), KeyError::UnknownPrefix);
        for prefix in [SECRET_PREFIX, PUBLIC_PREFIX] {
            assert_eq!(
                error(&format!("{prefix}???")),
                KeyError::NotBase64 { prefix }
            );
        }
        for length in [0, 23, 65] {
            let text = encoded(SECRET_PREFIX, length);
            assert_eq!(error(&text), KeyError::SecretLength { length });
        }
        for length in [0, 31, 33] {
            let text = encoded(PUBLIC_PREFIX, length);
            assert_eq!(error(&text), KeyError::PublicKeyLength { length });
        }
        for length in [24, 32, 64] {
            assert!(Key::parse(&encoded(SECRET_PREFIX, length)).is_ok());
        }
        assert!(Key::parse(&encoded(PUBLIC_PREFIX, 32)).is_ok());
    }

    #[test]
    fn debug_and_errors_quote_nothing_of_a_key() {
        let text = encoded(SECRET_PREFIX, 24);
        let key = Key::parse(&text).expect("a key");
        assert_eq!(format!("{key:?}"), "whsec_…");
        let error = Key::parse(&format!("{text}!")).expect_err("no key");
        assert!(!format!("{error} {error:?}").contains(&text[SECRET_PREFIX.len()..]));
    }
}
