//! Client certificates for receivers that require mutual TLS.
//!
//! A [`ClientIdentity`] is parsed once, when it is configured or loaded, so that a key that does not match its
//! certificate is refused while the caller can still fix it. The debug form shows nothing of the key.

use std::fmt;
use std::sync::Arc;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use thiserror::Error;

/// Maximum number of certificates in a chain: the client's own and its intermediates.
pub const MAX_CHAIN: usize = 10;

/// A certificate with its chain and its private key. Clones share the data.
#[derive(Clone)]
pub struct ClientIdentity {
    shown: Arc<SingleCertAndKey>,
    fingerprint: IdentityFingerprint,
}

/// SHA-256 hash of the chain, which distinguishes identities without holding the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdentityFingerprint([u8; SHA256_OUTPUT_LEN]);

/// The reason why an identity was refused. Never quotes the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The PEM contains no certificate.
    #[error(
        "contains no certificate; use PEM, with the client's certificate first and its issuers after it"
    )]
    NoCertificate,
    /// This certificate is invalid. Counted from 1.
    #[error("certificate {0} cannot be parsed; use X.509 version 3")]
    Certificate(usize),
    /// The chain has more than [`MAX_CHAIN`] certificates.
    #[error("contains more than {MAX_CHAIN} certificates")]
    LongChain,
    /// The PEM contains no key, or one that is encrypted or of a type that TLS does not support.
    #[error(
        "contains no usable private key; use PEM without a passphrase: RSA, ECDSA (P-256, P-384) or Ed25519"
    )]
    Key,
    /// The key does not match the certificate.
    #[error("does not match the certificate")]
    Mismatch,
}

impl ClientIdentity {
    /// Parses a certificate chain, the client's own certificate first, and its private key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<ClientIdentity, IdentityError> {
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(chain) {
            if certificates.len() == MAX_CHAIN {
                return Err(IdentityError::LongChain);
            }
            let number = certificates.len() + 1;
            certificates.push(certificate.map_err(|_| IdentityError::Certificate(number))?);
        }
        if certificates.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let mut digest = Context::new(&SHA256);
        for certificate in &certificates {
            digest.update(certificate);
        }
        let mut fingerprint = [0; SHA256_OUTPUT_LEN];
        fingerprint.copy_from_slice(digest.finish().as_ref());

        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Key)?;
        let signing = default_provider().key_provider.load_private_key(key);
        let certified = CertifiedKey::new(certificates, signing.map_err(|_| IdentityError::Key)?);
        match certified.keys_match() {
            Ok(()) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(IdentityError::Mismatch),
            // The only remaining cause is a malformed certificate.
            Err(_) => return Err(IdentityError::Certificate(1)),
        }
        Ok(ClientIdentity {
            shown: Arc::new(SingleCertAndKey::from(certified)),
            fingerprint: IdentityFingerprint(fingerprint),
        })
    }

    pub(crate) fn fingerprint(&self) -> IdentityFingerprint {
        self.fingerprint
    }

    /// Returns a copy of the configuration that presents this identity if the receiver asks for one.
    pub(crate) fn client_config(&self, config: &ClientConfig) -> ClientConfig {
        let mut config = config.clone();
        config.client_auth_cert_resolver = self.shown.clone();
        config
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(…)")
    }
}
