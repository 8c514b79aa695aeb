//! The ed25519 key pair: a private key that signs and a public key that verifies.
//!
//! [`PrivateKey`] is written as `whsk_…` and [`PublicKey`] as `whpk_…`, each followed by base64. The private key is
//! never shown: `Debug` prints a placeholder, and only [`PrivateKey::reveal`] returns the text, for encrypted
//! storage. If a text contains both halves, they must belong together.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::signature::{Ed25519KeyPair, KeyPair, Signature};

use super::KeyError;
use super::key::{PRIVATE_PREFIX, PUBLIC_PREFIX, decode};

/// Length of the seed, the random part of a private key.
pub const SEED_BYTES: usize = 32;
/// Length of the public key.
pub const PUBLIC_BYTES: usize = 32;

/// An ed25519 private key, known only to the sender.
#[derive(Clone)]
pub struct PrivateKey {
    seed: [u8; SEED_BYTES],
    pair: Arc<Ed25519KeyPair>,
}

impl PrivateKey {
    /// Parses `whsk_` and the base64 of a seed, or of a seed followed by its public key.
    pub fn parse(text: &str) -> Result<PrivateKey, KeyError> {
        let bytes = decode(text, PRIVATE_PREFIX)?;
        let wrong_length = KeyError::PrivateLength {
            length_bytes: bytes.len(),
        };
        let (seed, public) = bytes
            .split_first_chunk::<SEED_BYTES>()
            .ok_or(wrong_length.clone())?;
        let key = PrivateKey::from_seed(*seed);
        if public.is_empty() || key.pair.public_key().as_ref() == public {
            Ok(key)
        } else if public.len() == PUBLIC_BYTES {
            Err(KeyError::PublicKeyMismatch)
        } else {
            Err(wrong_length)
        }
    }

    /// Creates a key from random bytes.
    pub fn from_seed(seed: [u8; SEED_BYTES]) -> PrivateKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .expect("every seed of 32 bytes makes a key pair");
        PrivateKey {
            seed,
            pair: Arc::new(pair),
        }
    }

    /// Returns the key as plain text: `whsk_` and the base64 of seed and public key. The caller encrypts it for
    /// storage.
    pub fn reveal(&self) -> String {
        let mut bytes = [0; SEED_BYTES + PUBLIC_BYTES];
        bytes[..SEED_BYTES].copy_from_slice(&self.seed);
        bytes[SEED_BYTES..].copy_from_slice(self.pair.public_key().as_ref());
        let mut text = PRIVATE_PREFIX.to_owned();
        BASE64_STANDARD.encode_string(bytes, &mut text);
        text
    }

    /// Returns the public key.
    pub fn public_key(&self) -> PublicKey {
        let bytes = self
            .pair
            .public_key()
            .as_ref()
            .try_into()
            .expect("a public key has 32 bytes");
        PublicKey { bytes }
    }

    pub(super) fn sign(&self, content: &[u8]) -> Signature {
        self.pair.sign(content)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("whsk_…redacted")
    }
}

/// The public half of a [`PrivateKey`], printed and parsed as `whpk_…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    bytes: [u8; PUBLIC_BYTES],
}

impl PublicKey {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{PUBLIC_PREFIX}{}",
            BASE64_STANDARD.encode(self.bytes)
        )
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let bytes = decode(text, PUBLIC_PREFIX)?;
        match bytes.as_slice().try_into() {
            Ok(bytes) => Ok(PublicKey { bytes }),
            Err(_) => Err(KeyError::PublicLength {
                length_bytes: bytes.len(),
            }),
        }
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
    fn a_private_key_is_a_seed_with_or_without_its_public_half() {
        let key = PrivateKey::from_seed([5; 32]);
        let seed_only =
            PrivateKey::parse(&format!("whsk_{}", BASE64_STANDARD.encode([5; 32]))).unwrap();
        assert_eq!(seed_only.reveal(), key.reveal());
        assert_eq!(
            PrivateKey::parse(&key.reveal()).unwrap().public_key(),
            key.public_key()
        );

        let error = |text: &str| PrivateKey::parse(text).unwrap_err();
        for length_bytes in [0, 31, 33, 63, 65] {
            assert_eq!(
                error(&encoded("whsk_", length_bytes)),
                KeyError::PrivateLength { length_bytes }
            );
        }
        assert_eq!(error(&encoded("whsk_", 64)), KeyError::PublicKeyMismatch);
    }

    #[test]
    fn a_public_key_reads_what_it_prints() {
        // RFC 8032, section 7.1, test 1.
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let byte = |at: usize| u8::from_str_radix(&seed[2 * at..2 * at + 2], 16).unwrap();
        let key = PrivateKey::from_seed(std::array::from_fn(byte)).public_key();
        assert_eq!(
            key.to_string(),
            "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
        );
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(
            "whpk_AAAA".parse::<PublicKey>(),
            Err(KeyError::PublicLength { length_bytes: 3 })
        );
    }

    proptest! {
        #[test]
        fn a_private_key_round_trips_and_is_redacted_in_debug(
            seed in any::<[u8; SEED_BYTES]>(),
        ) {
            let key = PrivateKey::from_seed(seed);
            let again = PrivateKey::parse(&key.reveal()).unwrap();
            prop_assert_eq!(again.reveal(), key.reveal());
            prop_assert_eq!(format!("{key:?} {key:#?}"), "whsk_…redacted whsk_…redacted");
        }
    }
}
