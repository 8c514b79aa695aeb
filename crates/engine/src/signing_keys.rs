//! Signing keys of an endpoint, and their stored form.
//!
//! The newest key comes first and never expires. Earlier keys keep signing until their end time, so that a receiver has
//! that long to switch to the new one. The stored form is JSON, and is always encrypted:
//! `{"keys":[{"secret":"whsec_…","until":null},{"secret":"whsec_…","until":1767225600000}]}`. A secret without one of
//! the prefixes was created by another sender; its bytes are the key.

use posthaste_core::sign::{KeyError, MAX_KEYS, SharedSecret, SigningKey, SigningKeys};
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

/// Signing keys of an endpoint: at least one, newest first.
#[derive(Clone, Debug)]
pub struct SigningKeyring {
    keys: Vec<KeyWithEnd>,
}

#[derive(Clone, Debug)]
struct KeyWithEnd {
    key: SigningKey,
    until: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct StoredKeyring {
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    secret: String,
    until: Option<Timestamp>,
}

/// Error in stored signing keys. Never quotes a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// The stored form cannot be parsed.
    #[error("cannot read the stored signing keys")]
    Unreadable,
    /// One of the keys is invalid.
    #[error("cannot use a stored signing key: {0}")]
    Key(#[from] KeyError),
}

/// Error of a key rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// The endpoint already has this key.
    #[error("is already a key of the endpoint")]
    Known,
    /// The maximum number of keys is still in use.
    #[error("{MAX_KEYS} keys are still in use")]
    Full,
}

impl SigningKeyring {
    /// Creates a keyring with one key.
    pub fn new(key: SigningKey) -> SigningKeyring {
        SigningKeyring {
            keys: vec![KeyWithEnd { key, until: None }],
        }
    }

    /// Parses what [`to_stored`](SigningKeyring::to_stored) wrote.
    pub fn open(json: &[u8]) -> Result<SigningKeyring, KeyringError> {
        // serde's error may quote the text, which may contain a key.
        let kept: StoredKeyring =
            serde_json::from_slice(json).map_err(|_| KeyringError::Unreadable)?;
        if !(1..=MAX_KEYS).contains(&kept.keys.len()) {
            return Err(KeyringError::Unreadable);
        }
        let held = |kept: StoredKey| {
            let key = read(&kept.secret)?;
            let until = kept.until;
            Ok::<_, KeyError>(KeyWithEnd { key, until })
        };
        let keys: Result<Vec<KeyWithEnd>, KeyError> = kept.keys.into_iter().map(held).collect();
        Ok(SigningKeyring { keys: keys? })
    }

    /// Returns the stored form, to be encrypted.
    pub fn to_stored(&self) -> Vec<u8> {
        let keys = self.keys.iter().map(|held| StoredKey {
            secret: reveal(&held.key),
            until: held.until,
        });
        let kept = StoredKeyring {
            keys: keys.collect(),
        };
        serde_json::to_vec(&kept).expect("plain data")
    }

    /// Returns the keys to sign with at this time.
    pub fn active(&self, now: Timestamp) -> SigningKeys {
        let (newest, earlier) = self.keys.split_first().expect("never empty");
        let signs = |held: &&KeyWithEnd| held.until.is_none_or(|until| now < until);
        let keys = std::iter::once(newest).chain(earlier.iter().filter(signs));
        let keys = keys.map(|held| held.key.clone()).collect();
        SigningKeys::new(keys).expect("at least one key, and not too many")
    }

    /// Returns the newest key, in plain text.
    pub fn newest(&self) -> &SigningKey {
        &self.keys[0].key
    }

    /// Returns earlier keys that still sign, in plain text, with their end times.
    pub fn earlier(&self, now: Timestamp) -> impl Iterator<Item = (&SigningKey, Timestamp)> {
        self.keys[1..].iter().filter_map(move |held| {
            let until = held.until.filter(|until| now < *until)?;
            Some((&held.key, until))
        })
    }

    /// Adds a new key as the newest. The earlier keys keep signing for `overlap`, or until their end time if that is
    /// sooner.
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
        let mut keys = vec![KeyWithEnd { key, until: None }];
        for held in &self.keys {
            let until = held.until.map_or(ends, |until| until.min(ends));
            if now < until {
                keys.push(KeyWithEnd {
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

/// Prefixes of the secrets that posthaste creates.
const PREFIXES: [&str; 3] = ["whsec_", "whsk_", "whpk_"];

/// Returns true if another sender created this secret: it has none of the known prefixes.
pub fn is_opaque(secret: &str) -> bool {
    !PREFIXES.iter().any(|prefix| secret.starts_with(prefix))
}

/// Parses a secret of any form.
pub fn read(secret: &str) -> Result<SigningKey, KeyError> {
    match is_opaque(secret) {
        true => SharedSecret::opaque(secret).map(SigningKey::Shared),
        false => SigningKey::parse(secret),
    }
}

/// Returns a key in plain text, as its owner sees it.
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
        let reread = SigningKeyring::open(&keyring.to_stored()).expect("what was kept");
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
        keyring
            .rotate(key(2), Timestamp(0), HOUR)
            .expect("the key can be added");
        keyring
            .rotate(key(3), Timestamp(5), Span::ZERO)
            .expect("the key can be added");
        assert_eq!(signatures(&keyring, 5), 1);
    }

    #[test]
    fn secrets_of_every_form_are_kept_and_read_again() {
        let private = SigningKey::Private(PrivateKey::from_seed([3; 32]));
        let opaque = read("It's a Secret to Everybody").expect("long enough");
        let mut keyring = SigningKeyring::new(key(1));
        for other in [private.clone(), opaque.clone()] {
            keyring
                .rotate(other, Timestamp(0), HOUR)
                .expect("the key can be added");
        }
        let reread = SigningKeyring::open(&keyring.to_stored()).expect("what was kept");
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
    fn keys_are_unique_and_limited_in_number() {
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
        // Once the earlier keys have expired there is room again.
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
