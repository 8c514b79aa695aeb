//! Randomness. The only module that uses the random source of the operating system.
//!
//! Values that must not be guessable (secrets, keys, nonces) come from the operating system. Everything else uses
//! [`Rng`], which is seeded here once.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use posthaste_core::rng::Rng;
use posthaste_core::sign::{PrivateKey, SharedSecret};
use ring::rand::{SecureRandom, SystemRandom};

/// Prefix of every API key, so that people and secret scanners recognise one.
pub const API_KEY_PREFIX: &str = "ph_";

const API_KEY_BYTES: usize = 32;

/// Returns `N` random bytes that cannot be guessed.
///
/// # Panics
/// If the operating system provides no randomness: then no secret can be created.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the operating system provides randomness");
    bytes
}

/// Creates a signing secret.
pub fn fresh_secret() -> SharedSecret {
    SharedSecret::from_random(random_bytes())
}

/// Creates a key pair for signing. Receivers need only the public key.
pub fn fresh_private_key() -> PrivateKey {
    PrivateKey::from_seed(random_bytes())
}

/// Creates an API key. It is shown once; only its `hash_key` is stored.
pub fn fresh_api_key() -> String {
    let mut key = API_KEY_PREFIX.to_owned();
    BASE64_URL_SAFE_NO_PAD.encode_string(random_bytes::<API_KEY_BYTES>(), &mut key);
    key
}

/// Creates a token of a session or a link. Like a key it is shown once, and only its `hash_key` is stored.
pub fn fresh_token() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(random_bytes::<API_KEY_BYTES>())
}

/// Returns an RNG with a different seed in every process.
pub fn seed() -> Rng {
    Rng::seeded(u64::from_le_bytes(random_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_differ() {
        assert_ne!(fresh_api_key(), fresh_api_key());
        assert_ne!(fresh_secret().reveal(), fresh_secret().reveal());
        assert_ne!(fresh_private_key().reveal(), fresh_private_key().reveal());
        assert_ne!(seed().bits(), seed().bits());
    }

    #[test]
    fn an_api_key_fits_into_a_header_and_a_url() {
        let key = fresh_api_key();
        assert_eq!(key.len(), "ph_".len() + 43);
        let rest = key.strip_prefix("ph_").expect("the prefix");
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(rest.chars().all(plain), "{key}");
    }

    #[test]
    fn a_new_secret_is_valid() {
        let secret = fresh_secret();
        assert!(SharedSecret::parse(secret.reveal()).is_ok());
    }
}
