//! Encrypts the secrets in the store.
//!
//! Signing keys, the values of custom headers and credentials are encrypted ("sealed") by [`Vault`] before
//! they are stored. Guarantees:
//!
//! - **Bound to their row.** Data that was sealed for one tenant, endpoint and purpose cannot be opened for
//!   another. Copying a row therefore reveals no secret of another tenant. Data with a changed bit cannot be
//!   opened.
//! - **Rotation without downtime.** Data is sealed with the newest master key. Older data can be opened as
//!   long as its key is kept, and [`Vault::reseal_endpoint`] encrypts it with the newest key.
//! - **A missing key is not replaced.** Only a new database gets a new key file. Sealed data without its key
//!   is an error, and the message lists what to restore.
//! - **No secrets in output.** Neither keys nor sealed secrets appear in any message or `Debug` output.
//!
//! Sealed data is `format (1) | key id (4) | nonce (12) | ciphertext and tag`, encrypted with
//! ChaCha20-Poly1305 and random nonces. A repeated nonce under the same key becomes likely after about
//! 4,000,000,000 seals, far more than endpoints are ever changed.

mod error;
mod file;
mod key_id;
mod keys;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_store::Endpoint;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

pub use error::{Flaw, VaultError};
pub use file::{key_file_text, rotate_key_file};
pub use key_id::{KEY_BYTES, MAX_KEYS, MasterKeyId};

use key_id::KEY_ID_BYTES;
use keys::MasterKey;
use posthaste_system::random::random_bytes;

/// The version of the layout. There is only this one.
const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_LEN;
/// Domain separation: the key may be used for other encrypted data too.
const DOMAIN: &[u8] = b"posthaste vault";

/// The kind of secret that is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The keys that sign requests to an endpoint.
    SigningKeys,
    /// An endpoint's custom headers.
    Headers,
    /// Credentials that requests to an endpoint carry besides signatures: passwords, tokens, private keys.
    Credentials,
    /// The keys of a tenant, for one-off requests.
    TenantKeys,
}

impl Purpose {
    /// Returns the number in the authenticated data. Stored data depends on it, so it never changes.
    fn code(self) -> u8 {
        match self {
            Purpose::SigningKeys => 1,
            Purpose::Headers => 2,
            Purpose::Credentials => 3,
            Purpose::TenantKeys => 4,
        }
    }
}

/// The source of the master keys.
pub enum KeySource {
    /// Text from the environment or the configuration: keys in base64, the newest first, separated by commas
    /// or line breaks.
    Text {
        /// The keys.
        text: String,
        /// The setting that holds the text, for messages: `POSTHASTE_MASTER_KEY`.
        origin: String,
    },
    /// A file with one key per line, the newest first.
    File {
        /// The file.
        path: PathBuf,
        /// Creates the file if it is missing. Allowed only while nothing has been sealed.
        may_create: bool,
    },
}

impl KeySource {
    /// Returns the key file of a database. The file may be created only if the database is new.
    ///
    /// Open the vault before the database. If the process dies in between, there is a key without data, which
    /// is harmless, and never data without a key.
    pub fn for_database(path: PathBuf, database: &Path) -> KeySource {
        let holds_something = database.metadata().is_ok_and(|meta| meta.len() > 0);
        KeySource::File {
            path,
            may_create: !holds_something,
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Text { origin, .. } => write!(f, "KeySource::Text({origin})"),
            KeySource::File { path, .. } => write!(f, "KeySource::File({})", path.display()),
        }
    }
}

/// Returns the default path of a database's key file: next to the database.
pub fn key_file_beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

/// Seals and opens secrets. Clones share the keys.
#[derive(Clone)]
pub struct Vault {
    /// The newest first; never empty.
    keys: Arc<[(MasterKeyId, LessSafeKey)]>,
}

impl Vault {
    /// Reads the master keys from `source`, or creates the first one where that is allowed.
    pub fn open_or_create(source: KeySource) -> Result<Vault, VaultError> {
        let keys = match source {
            KeySource::Text { text, origin } => keys::read_text(&text, &origin)?,
            KeySource::File { path, may_create } => match file::read(&path)? {
                Some(keys) => keys,
                None if may_create => file::create(&path)?,
                None => return Err(VaultError::Missing { path }),
            },
        };
        Ok(Vault::new(keys))
    }

    /// Returns a new master key in its text form.
    pub fn generate_key_text() -> String {
        MasterKey::fresh(&[]).line().trim_end().to_owned()
    }

    /// Adds older keys, so that the vault also opens data that was sealed with them.
    pub fn with_older_keys(self, text: &str, origin: &str) -> Result<Vault, VaultError> {
        let older = Vault::new(keys::read_text(text, origin)?);
        let mut all: Vec<_> = self.keys.to_vec();
        for (id, key) in older.keys.iter() {
            if all.iter().all(|(known, _)| known != id) {
                all.push((*id, key.clone()));
            }
        }
        Ok(Vault { keys: all.into() })
    }

    fn new(keys: Vec<MasterKey>) -> Vault {
        assert!(!keys.is_empty(), "a vault has at least one key");
        let usable = |key: MasterKey| {
            let unbound = UnboundKey::new(&CHACHA20_POLY1305, key.bytes());
            let unbound = unbound.expect("a key of the right length");
            (key.id(), LessSafeKey::new(unbound))
        };
        Vault {
            keys: keys.into_iter().map(usable).collect(),
        }
    }

    /// Seals `plain` for one purpose of one endpoint, with the newest key.
    pub fn seal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        purpose: Purpose,
        plain: &[u8],
    ) -> Vec<u8> {
        let (id, key) = &self.keys[0];
        let nonce: [u8; NONCE_LEN] = random_bytes();
        let overhead = HEAD_BYTES + CHACHA20_POLY1305.tag_len();
        let mut sealed = Vec::with_capacity(overhead + plain.len());
        sealed.push(FORMAT);
        sealed.extend_from_slice(&id.0);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(FORMAT, tenant, endpoint, purpose)),
                &mut sealed[HEAD_BYTES..],
            )
            .expect("nothing in memory is too long to be sealed");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens data that was sealed for this purpose of this endpoint.
    pub fn open(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        purpose: Purpose,
        sealed: &[u8],
    ) -> Result<Vec<u8>, VaultError> {
        let (id, nonce, ciphertext) = parts(sealed).ok_or(VaultError::NotSealed)?;
        let (_, key) = self
            .keys
            .iter()
            .find(|(known, _)| *known == id)
            .ok_or(VaultError::UnknownKey { id })?;
        let mut plain = ciphertext.to_vec();
        let length = key
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(FORMAT, tenant, endpoint, purpose)),
                &mut plain,
            )
            .map_err(|_| VaultError::Altered)?
            .len();
        plain.truncate(length);
        Ok(plain)
    }

    /// Returns the id of the key that seals new data.
    pub fn newest_key(&self) -> MasterKeyId {
        self.keys[0].0
    }

    /// Returns the ids of all keys, the newest first.
    pub fn key_ids(&self) -> impl Iterator<Item = MasterKeyId> {
        self.keys.iter().map(|(id, _)| *id)
    }

    /// Returns true if the data was sealed with an older key than the newest. Empty data needs no resealing.
    pub fn needs_resealing(&self, sealed: &[u8]) -> bool {
        parts(sealed).is_some_and(|(id, _, _)| id != self.newest_key())
    }

    /// Returns the data sealed with the newest key, or `None` if that is already so.
    pub fn reseal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        purpose: Purpose,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, VaultError> {
        if !self.needs_resealing(sealed) {
            return Ok(None);
        }
        let plain = self.open(tenant, endpoint, purpose, sealed)?;
        Ok(Some(self.seal(tenant, endpoint, purpose, &plain)))
    }

    /// Returns the endpoint with all its secrets sealed with the newest key, or `None` if that is already so.
    pub fn reseal_endpoint(&self, endpoint: &Endpoint) -> Result<Option<Endpoint>, VaultError> {
        let again = |purpose, sealed| self.reseal(&endpoint.tenant, endpoint.id, purpose, sealed);
        let keys = again(Purpose::SigningKeys, &endpoint.sealed_keys)?;
        let headers = again(Purpose::Headers, &endpoint.sealed_headers)?;
        let credentials = again(Purpose::Credentials, &endpoint.sealed_credentials)?;
        if keys.is_none() && headers.is_none() && credentials.is_none() {
            return Ok(None);
        }
        let mut resealed = endpoint.clone();
        resealed.sealed_keys = keys.unwrap_or(resealed.sealed_keys);
        resealed.sealed_headers = headers.unwrap_or(resealed.sealed_headers);
        resealed.sealed_credentials = credentials.unwrap_or(resealed.sealed_credentials);
        Ok(Some(resealed))
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

/// Splits sealed data into key id, nonce and ciphertext. Returns `None` if it has another format.
fn parts(sealed: &[u8]) -> Option<(MasterKeyId, [u8; NONCE_LEN], &[u8])> {
    let (format, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
    let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_LEN>()?;
    (*format == FORMAT).then_some((MasterKeyId(*id), *nonce, ciphertext))
}

/// Returns the authenticated data that binds a secret to its row. The length precedes each part, so that no
/// two combinations give the same bytes.
fn associated_data(
    format: u8,
    tenant: &TenantId,
    endpoint: EndpointId,
    purpose: Purpose,
) -> Vec<u8> {
    let endpoint = endpoint.0.to_be_bytes();
    let (format, purpose) = ([format], [purpose.code()]);
    let parts: [&[u8]; 5] = [
        DOMAIN,
        &format,
        tenant.as_str().as_bytes(),
        &endpoint,
        &purpose,
    ];
    let mut bytes = Vec::new();
    for part in parts {
        let length = u32::try_from(part.len()).expect("names are short");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

#[cfg(test)]
mod tests;
