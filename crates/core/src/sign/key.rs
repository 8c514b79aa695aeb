//! Signing and verifying keys, their text forms and their errors.
//!
//! No type that holds a secret implements `Display`, and `Debug` prints only the prefix, so a derived `Debug`
//! around it cannot write a secret to a log.

use base64::prelude::{BASE64_STANDARD, Engine};
use thiserror::Error;

use super::{
    MAX_KEYS, MAX_OPAQUE_BYTES, MAX_SECRET_BYTES, MIN_OPAQUE_BYTES, MIN_SECRET_BYTES, PUBLIC_BYTES,
    PrivateKey, PublicKey, SEED_BYTES, SharedSecret,
};

pub(super) const SECRET_PREFIX: &str = "whsec_";
pub(super) const PRIVATE_PREFIX: &str = "whsk_";
pub(super) const PUBLIC_PREFIX: &str = "whpk_";

/// One key to sign with.
#[derive(Debug, Clone)]
pub enum SigningKey {
    /// HMAC-SHA256, for `v1` signatures.
    Shared(SharedSecret),
    /// ed25519, for `v1a` signatures.
    Private(PrivateKey),
}

impl SigningKey {
    /// Parses a `whsec_…` secret or a `whsk_…` private key; the prefix decides.
    pub fn parse(text: &str) -> Result<SigningKey, KeyError> {
        if text.starts_with(PRIVATE_PREFIX) {
            PrivateKey::parse(text).map(SigningKey::Private)
        } else if text.starts_with(SECRET_PREFIX) {
            SharedSecret::parse(text).map(SigningKey::Shared)
        } else {
            Err(KeyError::MissingPrefix {
                expected: "whsec_ or whsk_",
            })
        }
    }

    /// Returns the key that a receiver needs to verify this key's signatures.
    pub fn verifying_key(&self) -> VerifyingKey {
        match self {
            SigningKey::Shared(secret) => VerifyingKey::Shared(secret.clone()),
            SigningKey::Private(key) => VerifyingKey::Public(key.public_key()),
        }
    }
}

/// One key to verify with.
#[derive(Debug, Clone)]
pub enum VerifyingKey {
    /// HMAC-SHA256, for `v1` signatures.
    Shared(SharedSecret),
    /// ed25519, for `v1a` signatures.
    Public(PublicKey),
}

/// The reason why a key or a set of keys cannot be used. The message never contains the key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text has no prefix for the kind of key.
    #[error("the key must start with {expected}")]
    MissingPrefix {
        /// The expected prefix.
        expected: &'static str,
    },
    /// The text after the prefix is not base64.
    #[error("the part after {prefix} must be base64 with the standard alphabet and padding")]
    NotBase64 {
        /// The key's prefix.
        prefix: &'static str,
    },
    /// A shared secret that is too short or too long.
    #[error(
        "a shared secret must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes after decoding, not {length_bytes}"
    )]
    SecretLength {
        /// Its length.
        length_bytes: usize,
    },
    /// An opaque secret that is too short or too long.
    #[error(
        "a secret without the prefix whsec_ or whsk_ must have {MIN_OPAQUE_BYTES} to {MAX_OPAQUE_BYTES} bytes, not {length_bytes}"
    )]
    OpaqueLength {
        /// Its length.
        length_bytes: usize,
    },
    /// An opaque secret with the prefix of another kind of key.
    #[error("an opaque secret must not start with whsec_, whsk_ or whpk_")]
    OpaquePrefix,
    /// A private key that is neither a seed nor a seed with its public key.
    #[error(
        "a private key must be {SEED_BYTES} bytes (seed) or 64 (seed and public key), \
         not {length_bytes}"
    )]
    PrivateLength {
        /// Its length.
        length_bytes: usize,
    },
    /// A private key whose second half is not the public key of its first half.
    #[error("the seed and the public key in the private key do not match")]
    PublicKeyMismatch,
    /// A public key of the wrong length.
    #[error("a public key must have {PUBLIC_BYTES} bytes after decoding, not {length_bytes}")]
    PublicLength {
        /// Its length.
        length_bytes: usize,
    },
    /// An empty set of keys, which would sign nothing.
    #[error("at least one key is needed")]
    NoKeys,
    /// More keys than [`MAX_KEYS`].
    #[error("at most {MAX_KEYS} keys can be used at a time, not {count}")]
    TooManyKeys {
        /// Number of keys.
        count: usize,
    },
    /// A signature style that needs a shared secret, with private keys only.
    #[error("this signature style needs a shared secret (whsec_…)")]
    NoSharedSecret,
}

pub(super) fn check_count(count: usize) -> Result<(), KeyError> {
    if count == 0 {
        Err(KeyError::NoKeys)
    } else if count > MAX_KEYS {
        Err(KeyError::TooManyKeys { count })
    } else {
        Ok(())
    }
}

pub(super) fn decode(text: &str, prefix: &'static str) -> Result<Vec<u8>, KeyError> {
    let encoded = text
        .strip_prefix(prefix)
        .ok_or(KeyError::MissingPrefix { expected: prefix })?;
    // The decoder's error contains a byte of the secret, so it is dropped.
    BASE64_STANDARD
        .decode(encoded)
        .map_err(|_| KeyError::NotBase64 { prefix })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_prefix_determines_the_key_type() {
        let secret = SharedSecret::from_random([1; MIN_SECRET_BYTES]);
        let key = PrivateKey::from_seed([1; SEED_BYTES]);
        assert!(matches!(
            SigningKey::parse(secret.reveal()),
            Ok(SigningKey::Shared(_))
        ));
        assert!(matches!(
            SigningKey::parse(&key.reveal()),
            Ok(SigningKey::Private(_))
        ));
        for text in ["", "whsec", &key.public_key().to_string()] {
            let error = SigningKey::parse(text).unwrap_err();
            assert_eq!(
                error,
                KeyError::MissingPrefix {
                    expected: "whsec_ or whsk_"
                }
            );
        }
    }

    proptest! {
        #[test]
        fn an_error_quotes_nothing_of_the_key(
            prefix in "(whsec_|whsk_|)",
            text in "[a-zA-Z0-9+/!]{40,99}",
        ) {
            if let Err(error) = SigningKey::parse(&format!("{prefix}{text}")) {
                let shown = format!("{error} {error:?}");
                prop_assert!(!shown.contains(&text[..6]), "{}", shown);
            }
        }
    }
}
