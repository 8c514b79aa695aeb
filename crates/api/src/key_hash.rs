//! The hash of a key or token, which the store keeps instead of the key itself.

use posthaste_store::KeyHash;
use ring::digest::{SHA256, digest};

/// Returns the hash that identifies a key. A key created here has 256 random bits, so a fast hash is enough: a slow one
/// would protect only guessable keys.
pub fn hash_key(key: &str) -> KeyHash {
    let hash = digest(&SHA256, key.as_bytes());
    KeyHash(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_with_sha_256() {
        // The example of FIPS 180-4.
        let expected = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(hash_key("abc"), KeyHash(expected));
    }
}
