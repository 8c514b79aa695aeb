//! The keys an endpoint's requests are signed with, as they are kept.
//!
//! The newest key stands first and never ends; earlier ones sign along until their time is over, so
//! that a receiver has that long to learn the new one. What is kept is JSON, and it is always sealed:
//! `{"keys":[{"secret":"whsec_…","until":null},{"secret":"whsec_…","until":1767225600000}]}`. A secret
//! without one of the prefixes was made up by another sender, and its own bytes are the key.

use posthaste_core::sign::{KeyError, MAX_KEYS, SharedSecret, SigningKey, SigningKeys};
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

/// An endpoint's signing keys: at least one, newest first.
#[derive(Clone, Debug)]
pub struct SigningKeyring {
    keys: Vec<HeldKey>,
}

#[derive(Clone, Debug)]
struct HeldKey {
    key: SigningKey,
    until: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    keys: Vec<KeptKey>,
}

#[derive(Serialize, Deserialize)]
struct KeptKey {
    secret: String,
    until: Option<Timestamp>,
}

/// Why what was kept cannot be used. Never quotes a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// It is not what was written.
    #[error("the signing keys that are kept cannot be read")]
    Unreadable,
    /// One of the keys is none.
    #[error("a signing key that is kept cannot be used: {0}")]
    Key(#[from] KeyError),
}

/// Why a key cannot be changed for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// The new one is one of those at hand.
    #[error("is one of the endpoint's keys already")]
    Known,
    /// As many keys as may be are still in use.
    #[error("{MAX_KEYS} keys are still in use")]
    Full,
}

impl SigningKeyring {
    /// A keyring of one key.
    pub fn new(key: SigningKey) -> SigningKeyring {
        SigningKeyring {
            keys: vec![HeldKey { key, until: None }],
        }
    }

    /// Reads what [`keep`](SigningKeyring::keep) wrote.
    pub fn open(json: &[u8]) -> Result<SigningKeyring, KeyringError> {
        // What serde says of rubbish may quote it, and it may be a key.
        let kept: Kept = serde_json::from_slice(json).map_err(|_| KeyringError::Unreadable)?;
        if !(1..=MAX_KEYS).contains(&kept.keys.len()) {
            return Err(KeyringError::Unreadable);
        }
        let held = |kept: KeptKey| {
            let key = read(&kept.secret)?;
            let until = kept.until;
            Ok::<_, KeyError>(HeldKey { key, until })
        };
        let keys: Result<Vec<HeldKey>, KeyError> = kept.keys.into_iter().map(held).collect();
        Ok(SigningKeyring { keys: keys? })
    }

    /// The keyring as bytes, to be sealed.
    pub fn keep(&self) -> Vec<u8> {
        let keys = self.keys.iter().map(|held| KeptKey {
            secret: reveal(&held.key),
            until: held.until,
        });
        let kept = Kept {
            keys: keys.collect(),
        };
        serde_json::to_vec(&kept).expect("plain data")
    }

    /// The keys to sign with now.
    pub fn active(&self, now: Timestamp) -> SigningKeys {
        let (newest, earlier) = self.keys.split_first().expect("never empty");
        let signs = |held: &&HeldKey| held.until.is_none_or(|until| now < until);
        let keys = std::iter::once(newest).chain(earlier.iter().filter(signs));
        let keys = keys.map(|held| held.key.clone()).collect();
        SigningKeys::new(keys).expect("at least one key, and not too many")
    }

    /// The newest key, in the open.
    pub fn newest(&self) -> &SigningKey {
        &self.keys[0].key
    }

    /// Earlier keys that still sign, in the open, and until when.
    pub fn earlier(&self, now: Timestamp) -> impl Iterator<Item = (&SigningKey, Timestamp)> {
        self.keys[1..].iter().filter_map(move |held| {
            let until = held.until.filter(|until| now < *until)?;
            Some((&held.key, until))
        })
    }

    /// Puts a new key first. Those before it sign along for `overlap`, or less if less was left.
    pub fn rotate(
        &mut self,
        key: SigningKey,
        now: Timestamp,
        overlap: Span,
    ) -> Result<(), RotationError> {
        let secret = reveal(&key);
        if self.keys.iter().any(|held| reveal(&held.key) == secret) {
            return Err(RotationError::Known);
        }
        let ends = now.after(overlap);
        let mut keys = vec![HeldKey { key, until: None }];
        for held in &self.keys {
            let until = held.until.map_or(ends, |until| until.min(ends));
            if now < until {
                keys.push(HeldKey {
                    key: held.key.clone(),
                    until: Some(until),
                });
            }
        }
        if keys.len() > MAX_KEYS {
            return Err(RotationError::Full);
        }
        self.keys = keys;
        Ok(())
    }
}

/// What the secrets of posthaste's own begin with.
const PREFIXES: [&str; 3] = ["whsec_", "whsk_", "whpk_"];

/// Whether another sender made this secret up: its form says nothing of what it is.
pub fn is_opaque(secret: &str) -> bool {
    !PREFIXES.iter().any(|prefix| secret.starts_with(prefix))
}

/// Reads a secret of any form.
pub fn read(secret: &str) -> Result<SigningKey, KeyError> {
    match is_opaque(secret) {
        true => SharedSecret::opaque(secret).map(SigningKey::Shared),
        false => SigningKey::parse(secret),
    }
}

/// A key in the open, as its owner is shown it.
pub fn reveal(key: &SigningKey) -> String {
    match key {
        SigningKey::Shared(secret) => secret.reveal().to_owned(),
        SigningKey::Private(key) => key.reveal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::sign::PrivateKey;

    const HOUR: Span = Span::from_hours(1);

    fn key(number: u8) -> SigningKey {
        SigningKey::Shared(SharedSecret::from_random([number; 24]))
    }

    fn signatures(keyring: &SigningKeyring, now: u64) -> usize {
        let header = keyring.active(Timestamp(now)).header("msg", 1, b"{}");
        header.split(' ').count()
    }

    #[test]
    fn the_old_key_signs_along_until_its_time_is_over() {
        let mut keyring = SigningKeyring::new(key(1));
        assert_eq!(keyring.rotate(key(2), Timestamp(1_000), HOUR), Ok(()));
        let end = 1_000 + HOUR.as_millis();
        let reread = SigningKeyring::open(&keyring.keep()).expect("what was kept");
        for keyring in [&keyring, &reread] {
            assert_eq!(reveal(keyring.newest()), reveal(&key(2)));
            assert_eq!(signatures(keyring, 1_000), 2);
            assert_eq!(signatures(keyring, end - 1), 2);
            assert_eq!(signatures(keyring, end), 1);
            let earlier: Vec<_> = keyring.earlier(Timestamp(2_000)).collect();
            assert_eq!(reveal(earlier[0].0), reveal(&key(1)));
            assert_eq!(earlier[0].1, Timestamp(end));
            assert_eq!(keyring.earlier(Timestamp(end)).count(), 0);
        }
    }

    #[test]
    fn a_rotation_without_overlap_ends_every_earlier_key() {
        let mut keyring = SigningKeyring::new(key(1));
        keyring.rotate(key(2), Timestamp(0), HOUR).expect("room");
        keyring
            .rotate(key(3), Timestamp(5), Span::ZERO)
            .expect("room");
        assert_eq!(signatures(&keyring, 5), 1);
    }

    #[test]
    fn secrets_of_every_form_are_kept_and_read_again() {
        let private = SigningKey::Private(PrivateKey::from_seed([3; 32]));
        let opaque = read("It's a Secret to Everybody").expect("long enough");
        let mut keyring = SigningKeyring::new(key(1));
        for other in [private.clone(), opaque.clone()] {
            keyring.rotate(other, Timestamp(0), HOUR).expect("room");
        }
        let reread = SigningKeyring::open(&keyring.keep()).expect("what was kept");
        let revealed: Vec<String> = std::iter::once(reread.newest())
            .chain(reread.earlier(Timestamp(1)).map(|(key, _)| key))
            .map(reveal)
            .collect();
        assert_eq!(revealed, [&opaque, &private, &key(1)].map(reveal));
        let sign = |keyring: &SigningKeyring| keyring.active(Timestamp(1)).header("msg", 1, b"{}");
        assert_eq!(sign(&reread), sign(&keyring));
        assert!(sign(&reread).contains(" v1a,"));
    }

    #[test]
    fn no_key_comes_twice_and_not_too_many_at_once() {
        let mut keyring = SigningKeyring::new(key(0));
        assert_eq!(
            keyring.rotate(key(0), Timestamp(0), HOUR),
            Err(RotationError::Known)
        );
        for number in 1..MAX_KEYS as u8 {
            assert_eq!(keyring.rotate(key(number), Timestamp(0), HOUR), Ok(()));
        }
        assert_eq!(
            keyring.rotate(key(99), Timestamp(0), HOUR),
            Err(RotationError::Full)
        );
        // Once the earlier ones have ended there is room again.
        let later = Timestamp(HOUR.as_millis());
        assert_eq!(keyring.rotate(key(99), later, HOUR), Ok(()));
        assert_eq!(signatures(&keyring, later.0), 2);
    }

    #[test]
    fn rubbish_is_refused_and_not_quoted() {
        for json in [
            "",
            "{}",
            r#"{"keys":[]}"#,
            r#"{"keys":[{"secret":"hunter2","until":null}]}"#,
            r#"{"keys":["hunter2"]}"#,
        ] {
            let error = SigningKeyring::open(json.as_bytes()).expect_err(json);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", SigningKeyring::new(key(1))).contains("AQEB"));
    }
}
