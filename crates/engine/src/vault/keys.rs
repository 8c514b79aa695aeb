//! Master keys and their text form.
//!
//! A [`MasterKey`] is 32 bytes. Its [`MasterKeyId`] is a fingerprint of the key and therefore also a
//! checksum: a wrong character is detected when the program starts, not when the first secret cannot be
//! opened.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_system::random::random_bytes;
use ring::digest::{Context, SHA256};

use super::error::{Flaw, VaultError};
use super::key_id::{KEY_BYTES, MAX_KEYS, MasterKeyId};

/// Maximum length of the text of all keys, with ids, blanks and comments.
pub(super) const MAX_TEXT_BYTES: usize = MAX_KEYS * 128;

/// Domain separation between the fingerprint and other hashes of the key.
const ID_DOMAIN: &[u8] = b"posthaste master key id\n";

/// A master key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MasterKey([u8; KEY_BYTES]);

impl MasterKey {
    /// Generates a key whose id differs from those of `taken`.
    pub(super) fn fresh(taken: &[MasterKey]) -> MasterKey {
        loop {
            let key = MasterKey(random_bytes());
            if taken.iter().all(|other| other.id() != key.id()) {
                return key;
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(super) fn id(&self) -> MasterKeyId {
        let mut context = Context::new(&SHA256);
        context.update(ID_DOMAIN);
        context.update(&self.0);
        let hash = context.finish();
        let (id, _) = hash
            .as_ref()
            .split_first_chunk()
            .expect("a hash is longer than an id");
        MasterKeyId(*id)
    }

    /// Returns the line of the key file for this key.
    pub(super) fn line(&self) -> String {
        format!("{} {}\n", self.id(), BASE64_STANDARD.encode(self.0))
    }

    /// Reads `KEY-ID KEY`, or a key alone.
    fn read(line: &str) -> Result<MasterKey, Flaw> {
        let mut words = line.split_ascii_whitespace();
        let (id, key) = match (words.next(), words.next(), words.next()) {
            (Some(key), None, None) => (None, key),
            (Some(id), Some(key), None) => (Some(id), key),
            (None, _, _) | (Some(_), None, Some(_)) | (Some(_), Some(_), Some(_)) => {
                return Err(Flaw::Form);
            }
        };
        let bytes = BASE64_STANDARD.decode(key).map_err(|_| Flaw::Key)?;
        let key = MasterKey(bytes.try_into().map_err(|_| Flaw::Key)?);
        match id {
            Some(id) if !id.eq_ignore_ascii_case(&key.id().to_string()) => Err(Flaw::Id),
            Some(_) | None => Ok(key),
        }
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({}, …)", self.id())
    }
}

/// Reads keys from text of the environment: the newest first, separated by commas or line breaks.
pub(super) fn read_text(text: &str, origin: &str) -> Result<Vec<MasterKey>, VaultError> {
    read_lines(text.split([',', '\n']), text.len(), origin)
}

/// Reads the content of a key file.
pub(super) fn read_file_text(text: &str, origin: &str) -> Result<Vec<MasterKey>, VaultError> {
    read_lines(text.split('\n'), text.len(), origin)
}

fn read_lines<'t>(
    lines: impl Iterator<Item = &'t str>,
    length_bytes: usize,
    origin: &str,
) -> Result<Vec<MasterKey>, VaultError> {
    let flawed = |line, flaw| VaultError::Malformed {
        origin: origin.to_owned(),
        line,
        flaw,
    };
    if length_bytes > MAX_TEXT_BYTES {
        return Err(flawed(1, Flaw::TooLong));
    }
    let mut keys: Vec<MasterKey> = Vec::new();
    for (index, line) in lines.enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = MasterKey::read(line).map_err(|flaw| flawed(index + 1, flaw))?;
        if keys.iter().any(|other| other.id() == key.id()) {
            return Err(flawed(index + 1, Flaw::Twice));
        }
        if keys.len() == MAX_KEYS {
            return Err(flawed(index + 1, Flaw::TooMany));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(flawed(1, Flaw::Empty));
    }
    Ok(keys)
}
