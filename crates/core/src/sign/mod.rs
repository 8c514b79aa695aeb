//! Signatures of webhook requests: Standard Webhooks, and two other styles for receivers that already use them.
//!
//! - **Compatible with the official libraries.** The signed content is `{id}.{timestamp}.{body}`, signed with
//!   HMAC-SHA256 (`v1`, a shared `whsec_…` secret) or ed25519 (`v1a`, a private `whsk_…` key).
//! - **Rotation without a gap.** [`SigningKeys`] signs with every key it holds, so a receiver that has any one of
//!   them can verify.
//! - **Secrets are not leaked.** A key prints as `whsec_…redacted`; only an explicit `reveal` returns it. Errors
//!   never contain the text that could not be parsed.
//! - **No clock and no randomness.** Timestamps and random bytes are parameters.

mod key;
mod key_pair;
mod secret;
mod verify;

pub use key::{KeyError, SigningKey, VerifyingKey};
pub use key_pair::{PUBLIC_BYTES, PrivateKey, PublicKey, SEED_BYTES};
pub use secret::{
    MAX_OPAQUE_BYTES, MAX_SECRET_BYTES, MIN_OPAQUE_BYTES, MIN_SECRET_BYTES, SharedSecret,
};
pub use verify::{MAX_SIGNATURES, SignedMessage, TOLERANCE_SECONDS, VerifyError, VerifyingKeys};

use base64::prelude::{BASE64_STANDARD, Engine};

/// Maximum number of keys that an endpoint may sign with at the same time. Each key costs a signature on every
/// attempt and space in the header.
pub const MAX_KEYS: usize = 8;

/// The header with the Standard Webhooks signatures.
pub const STANDARD_HEADER: &str = "webhook-signature";

/// The signature style of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SignatureStyle {
    /// Standard Webhooks: `webhook-signature: v1,… v1a,…`.
    #[default]
    Standard,
    /// As GitHub does: `x-hub-signature-256: sha256=…` over the body alone.
    GitHub,
    /// As Stripe does: `stripe-signature: t=…,v1=…` over `{t}.{body}`.
    Stripe,
}

impl SignatureStyle {
    /// Returns the name of the signature header, in lower case.
    pub fn header_name(self) -> &'static str {
        match self {
            SignatureStyle::Standard => STANDARD_HEADER,
            SignatureStyle::GitHub => "x-hub-signature-256",
            SignatureStyle::Stripe => "stripe-signature",
        }
    }
}

/// A signature header, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureHeader {
    /// The header name, in lower case.
    pub name: &'static str,
    /// The header value: visible ASCII and single spaces.
    pub value: String,
}

/// The keys that an endpoint's requests are signed with, newest first: at least one, at most [`MAX_KEYS`].
///
/// During a rotation the old key stays in the list, so receivers with either key can verify.
#[derive(Debug, Clone)]
pub struct SigningKeys {
    keys: Vec<SigningKey>,
}

impl SigningKeys {
    /// Creates the set from the keys, newest first.
    pub fn new(keys: Vec<SigningKey>) -> Result<SigningKeys, KeyError> {
        key::check_count(keys.len())?;
        Ok(SigningKeys { keys })
    }

    /// Returns the Standard Webhooks signatures of one attempt, one per key in the order of the keys, separated by
    /// spaces.
    ///
    /// The id must not contain a full stop, which separates the signed parts; ids of posthaste never do.
    pub fn header(&self, id: &str, timestamp_seconds: u64, body: &[u8]) -> String {
        const LONGEST_SIGNATURE: usize = "v1a, ".len() + 88;
        debug_assert!(
            !id.contains('.'),
            "an id that contains a full stop makes the signed content ambiguous"
        );
        let timestamp = timestamp_seconds.to_string();
        let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
        // Only ed25519 needs the parts in one buffer, because it reads them twice.
        let mut joined = None;
        let mut value = String::with_capacity(self.keys.len() * LONGEST_SIGNATURE);
        for key in &self.keys {
            if !value.is_empty() {
                value.push(' ');
            }
            match key {
                SigningKey::Shared(secret) => {
                    value.push_str("v1,");
                    BASE64_STANDARD.encode_string(secret.tag(&parts), &mut value);
                }
                SigningKey::Private(key) => {
                    let content = joined.get_or_insert_with(|| parts.concat());
                    value.push_str("v1a,");
                    BASE64_STANDARD.encode_string(key.sign(content), &mut value);
                }
            }
        }
        value
    }

    /// Signs one attempt in the given style.
    ///
    /// The GitHub and Stripe styles use only the shared secrets, and use their *text* including the prefix as the
    /// key, because that is what customers pass to the libraries of both. GitHub's header holds one signature, so
    /// the newest secret signs and a receiver must switch at the rotation. Neither style works with private keys
    /// alone: that is [`KeyError::NoSharedSecret`].
    pub fn sign(
        &self,
        style: SignatureStyle,
        id: &str,
        timestamp_seconds: u64,
        body: &[u8],
    ) -> Result<SignatureHeader, KeyError> {
        let value = match style {
            SignatureStyle::Standard => self.header(id, timestamp_seconds, body),
            SignatureStyle::GitHub => {
                let newest = self
                    .shared_secrets()
                    .next()
                    .ok_or(KeyError::NoSharedSecret)?;
                let mut value = String::from("sha256=");
                push_hex(&mut value, newest.text_tag(&[body]).as_ref());
                value
            }
            SignatureStyle::Stripe => {
                let timestamp = timestamp_seconds.to_string();
                let mut value = format!("t={timestamp}");
                let unsigned_length = value.len();
                for secret in self.shared_secrets() {
                    value.push_str(",v1=");
                    push_hex(
                        &mut value,
                        secret
                            .text_tag(&[timestamp.as_bytes(), b".", body])
                            .as_ref(),
                    );
                }
                if value.len() == unsigned_length {
                    return Err(KeyError::NoSharedSecret);
                }
                value
            }
        };
        Ok(SignatureHeader {
            name: style.header_name(),
            value,
        })
    }

    /// Returns the keys that a receiver needs to verify any of these signatures.
    pub fn verifying_keys(&self) -> VerifyingKeys {
        VerifyingKeys::from_signing(&self.keys)
    }

    fn shared_secrets(&self) -> impl Iterator<Item = &SharedSecret> {
        self.keys.iter().filter_map(|key| match key {
            SigningKey::Shared(secret) => Some(secret),
            SigningKey::Private(_) => None,
        })
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0x0f)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const VECTORS: &str = include_str!("../../tests/vectors/signatures.json");

    fn shared(fill: u8) -> SigningKey {
        SigningKey::Shared(SharedSecret::from_random([fill; 24]))
    }

    fn private(fill: u8) -> SigningKey {
        SigningKey::Private(PrivateKey::from_seed([fill; 32]))
    }

    fn keys<const N: usize>(keys: [SigningKey; N]) -> SigningKeys {
        SigningKeys::new(keys.to_vec()).unwrap()
    }

    #[test]
    fn every_vector_verifies() {
        let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
        assert_eq!(vectors.len(), 4);
        for vector in &vectors {
            let text = |field: &str| vector[field].as_str().unwrap();
            let (key, style) = match text("scheme") {
                "v1" => (SigningKey::parse(text("secret")), SignatureStyle::Standard),
                "v1a" => {
                    let key = format!("whsk_{}", text("private_key_base64"));
                    (SigningKey::parse(&key), SignatureStyle::Standard)
                }
                "x-hub-signature-256" => (
                    SharedSecret::opaque(text("secret")).map(SigningKey::Shared),
                    SignatureStyle::GitHub,
                ),
                other => panic!("unknown scheme {other}"),
            };
            let keys = keys([key.unwrap()]);
            let id = vector["id"].as_str().unwrap_or_default();
            let timestamp = vector["timestamp"].as_u64().unwrap_or_default();
            let header = keys
                .sign(style, id, timestamp, text("body").as_bytes())
                .unwrap();
            assert_eq!(header.name, style.header_name());
            assert_eq!(header.value, text("signature"));
        }
    }

    #[test]
    fn every_key_signs_in_order() {
        let both = keys([shared(1), shared(2), private(3)]).header("msg_1", 7, b"{}");
        let alone: Vec<String> = [shared(1), shared(2), private(3)]
            .map(|key| keys([key]).header("msg_1", 7, b"{}"))
            .to_vec();
        assert_eq!(both, alone.join(" "));
        assert!(both.starts_with("v1,") && alone[2].starts_with("v1a,"));
    }

    #[test]
    fn stripe_signs_time_and_body_with_the_text_of_every_shared_secret() {
        // HMAC-SHA256 of `1492774577.{"id":"evt_1"}`, computed with OpenSSL.
        const OF_FIRST: &str = "05bbab69e0815e91e52a578ff4fa43af592dcff10fe4e954e3f015aeb09130c7";
        const OF_SECOND: &str = "b150b6aa67de1cc267bdbde4f2b181a174f71f25e355c25b3f7017e17b66728c";
        let keys = keys([
            private(9),
            SigningKey::Shared(
                SharedSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            ),
            SigningKey::Shared(SharedSecret::opaque("It's a Secret to Everybody").unwrap()),
        ]);
        let header = keys
            .sign(
                SignatureStyle::Stripe,
                "unused",
                1_492_774_577,
                br#"{"id":"evt_1"}"#,
            )
            .unwrap();
        assert_eq!(header.name, "stripe-signature");
        assert_eq!(
            header.value,
            format!("t=1492774577,v1={OF_FIRST},v1={OF_SECOND}")
        );
    }

    #[test]
    fn github_signs_with_the_text_of_the_secret() {
        // HMAC-SHA256 with the whole text including the prefix as the key, computed with OpenSSL.
        const EXPECTED: &str =
            "sha256=7ad4fd21c74c164320d9ac01f24d0797c8be594bf356ab332fdd61a03b78cec0";
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let header = keys([key]).sign(SignatureStyle::GitHub, "unused", 0, b"Hello, World!");
        assert_eq!(header.unwrap().value, EXPECTED);
    }

    #[test]
    fn github_signs_with_the_newest_shared_secret() {
        let sign = |keys: SigningKeys| {
            keys.sign(SignatureStyle::GitHub, "unused", 0, b"body")
                .unwrap()
        };
        assert_eq!(
            sign(keys([private(9), shared(2), shared(1)])),
            sign(keys([shared(2)]))
        );
        assert_ne!(sign(keys([shared(2)])), sign(keys([shared(1)])));
    }

    #[test]
    fn styles_that_need_a_shared_secret_refuse_other_keys() {
        let keys = keys([private(1)]);
        for style in [SignatureStyle::GitHub, SignatureStyle::Stripe] {
            assert_eq!(
                keys.sign(style, "msg_1", 7, b"").unwrap_err(),
                KeyError::NoSharedSecret
            );
        }
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        assert_eq!(SigningKeys::new(vec![]).unwrap_err(), KeyError::NoKeys);
        assert!(SigningKeys::new(vec![shared(1); MAX_KEYS]).is_ok());
        let count = MAX_KEYS + 1;
        assert_eq!(
            SigningKeys::new(vec![shared(1); count]).unwrap_err(),
            KeyError::TooManyKeys { count }
        );
    }
}
