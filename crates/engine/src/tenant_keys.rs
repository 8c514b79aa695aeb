//! The keys of a tenant: they sign its one-off requests, and encrypt their custom headers.
//!
//! A request to a registered endpoint is signed with the keys of the endpoint. A one-off request has no registered
//! endpoint, so each tenant has [`TenantKeys`] of its own, generated when they are first needed. They are stored with the
//! tenant, encrypted with the master key.
//!
//! The custom headers of a one-off request are stored with its event for as long as the event. They are encrypted with
//! the tenant's header key instead of the master key, so that a change of the master key re-encrypts only the tenant.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::sign::SigningKey;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::signing_keys::{KeyringError, SigningKeyring};
use crate::vault::{KeySource, Purpose, Vault, VaultError};

/// The place of an endpoint in the authenticated data of a tenant's keys. No endpoint has this id.
const NO_ENDPOINT: EndpointId = EndpointId(0);
/// Origin of the header key, for error messages.
const HEADER_KEY_ORIGIN: &str = "the keys of the tenant";

/// The keys of a tenant.
pub struct TenantKeys {
    /// The keys that sign one-off requests.
    pub keyring: SigningKeyring,
    header_key: String,
    header_vault: Vault,
}

#[derive(Serialize, Deserialize)]
struct StoredTenantKeys {
    signing: Box<RawValue>,
    header_key: String,
}

/// Error in the stored keys of a tenant. Never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum TenantKeysError {
    /// They cannot be decrypted.
    #[error(transparent)]
    Sealed(#[from] VaultError),
    /// The signing keys are invalid.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The decrypted keys have another format.
    #[error("the stored keys of the tenant cannot be read")]
    Unreadable,
    /// The tenant has no keys yet.
    #[error("the tenant has no keys")]
    Missing,
}

impl TenantKeys {
    /// Creates keys with this signing key and a new header key.
    pub fn new(key: SigningKey) -> Result<TenantKeys, TenantKeysError> {
        TenantKeys::with(SigningKeyring::new(key), Vault::generate_key_text())
    }

    fn with(keyring: SigningKeyring, header_key: String) -> Result<TenantKeys, TenantKeysError> {
        let header_vault = Vault::open_or_create(KeySource::Text {
            text: header_key.clone(),
            origin: HEADER_KEY_ORIGIN.to_owned(),
        })?;
        Ok(TenantKeys {
            keyring,
            header_key,
            header_vault,
        })
    }

    /// Decrypts the keys of a tenant.
    pub fn open(
        vault: &Vault,
        tenant: &TenantId,
        sealed: &[u8],
    ) -> Result<TenantKeys, TenantKeysError> {
        if sealed.is_empty() {
            return Err(TenantKeysError::Missing);
        }
        let json = vault.open(tenant, NO_ENDPOINT, Purpose::TenantKeys, sealed)?;
        // serde's error may quote the text, which contains keys.
        let stored: StoredTenantKeys =
            serde_json::from_slice(&json).map_err(|_| TenantKeysError::Unreadable)?;
        let keyring = SigningKeyring::open(stored.signing.get().as_bytes())?;
        TenantKeys::with(keyring, stored.header_key)
    }

    /// Encrypts the keys, to be stored with their tenant.
    pub fn seal(&self, vault: &Vault, tenant: &TenantId) -> Vec<u8> {
        let signing = String::from_utf8(self.keyring.to_stored()).expect("JSON is UTF-8");
        let stored = StoredTenantKeys {
            signing: RawValue::from_string(signing).expect("the stored form is JSON"),
            header_key: self.header_key.clone(),
        };
        let json = serde_json::to_vec(&stored).expect("plain data");
        vault.seal(tenant, NO_ENDPOINT, Purpose::TenantKeys, &json)
    }

    /// Encrypts the custom headers of a one-off request to this origin endpoint.
    pub fn seal_headers(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        headers: &Map<String, Value>,
    ) -> Vec<u8> {
        let json = serde_json::to_vec(headers).expect("plain data");
        self.header_vault
            .seal(tenant, endpoint, Purpose::Headers, &json)
    }

    /// Decrypts custom headers that are encrypted for an endpoint, and encrypts them for another.
    pub fn reseal_headers(
        &self,
        tenant: &TenantId,
        from: EndpointId,
        to: EndpointId,
        sealed: &[u8],
    ) -> Result<Vec<u8>, TenantKeysError> {
        let vault = &self.header_vault;
        let json = vault.open(tenant, from, Purpose::Headers, sealed)?;
        Ok(vault.seal(tenant, to, Purpose::Headers, &json))
    }

    /// Decrypts the custom headers of a one-off request that were encrypted for this endpoint.
    pub fn open_headers(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        sealed: &[u8],
    ) -> Result<Map<String, Value>, TenantKeysError> {
        let vault = &self.header_vault;
        let json = vault.open(tenant, endpoint, Purpose::Headers, sealed)?;
        // serde's error may quote the text, which contains secrets.
        serde_json::from_slice(&json).map_err(|_| TenantKeysError::Unreadable)
    }

    /// Returns the vault that decrypts the custom headers of one-off requests.
    pub(crate) fn header_vault(&self) -> &Vault {
        &self.header_vault
    }
}

/// Returns the keys of a tenant encrypted with the newest master key, or `None` if that is already so.
pub(crate) fn reseal(
    vault: &Vault,
    tenant: &TenantId,
    sealed: &[u8],
) -> Result<Option<Vec<u8>>, VaultError> {
    vault.reseal(tenant, NO_ENDPOINT, Purpose::TenantKeys, sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing_keys::reveal;
    use posthaste_core::sign::SharedSecret;
    use serde_json::json;

    fn vault(text: &str) -> Vault {
        let source = KeySource::Text {
            text: text.to_owned(),
            origin: "the test".to_owned(),
        };
        Vault::open_or_create(source).expect("a valid key")
    }

    #[test]
    fn keys_are_read_back_and_belong_to_their_tenant() {
        let master = vault(&Vault::generate_key_text());
        let (acme, other): (TenantId, TenantId) =
            ("acme".parse().unwrap(), "other".parse().unwrap());
        let key = SigningKey::Shared(SharedSecret::from_random([7; 24]));
        let keys = TenantKeys::new(key.clone()).expect("new keys");
        let sealed = keys.seal(&master, &acme);
        let read = TenantKeys::open(&master, &acme, &sealed).expect("what was sealed");
        assert_eq!(reveal(read.keyring.newest()), reveal(&key));
        assert!(TenantKeys::open(&master, &other, &sealed).is_err());
        assert!(matches!(
            TenantKeys::open(&master, &acme, &[]),
            Err(TenantKeysError::Missing)
        ));
    }

    #[test]
    fn headers_stay_readable_after_a_change_of_the_master_key() {
        let (old, new) = (Vault::generate_key_text(), Vault::generate_key_text());
        let acme: TenantId = "acme".parse().unwrap();
        let keys = TenantKeys::new(SigningKey::Shared(SharedSecret::from_random([7; 24])));
        let keys = keys.expect("new keys");
        let headers = json!({"authorization": "Bearer canary"});
        let headers = headers.as_object().expect("an object");
        let sealed_headers = keys.seal_headers(&acme, EndpointId(3), headers);
        let sealed = keys.seal(&vault(&old), &acme);
        let both = vault(&new)
            .with_older_keys(&old, "the test")
            .expect("valid keys");
        let resealed = reseal(&both, &acme, &sealed)
            .expect("opened")
            .expect("resealed");
        let read = TenantKeys::open(&vault(&new), &acme, &resealed).expect("the new key is enough");
        let opened =
            read.header_vault()
                .open(&acme, EndpointId(3), Purpose::Headers, &sealed_headers);
        assert_eq!(opened.ok(), serde_json::to_vec(headers).ok());
    }
}
