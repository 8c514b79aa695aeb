//! Who we are to a receiver that asks for a certificate (mutual TLS).
//!
//! An identity is read once, when it is registered or opened, so that a key which does not fit its
//! certificate is refused where somebody can mend it. Its debug form shows nothing of the key.

use std::fmt;
use std::sync::Arc;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use thiserror::Error;

/// The most certificates in a chain: its own, and those between it and the authority.
pub const MAX_CHAIN: usize = 10;

/// A certificate with its chain, and the private key that belongs to it. Clones share everything.
#[derive(Clone)]
pub struct Identity {
    shown: Arc<SingleCertAndKey>,
    fingerprint: Fingerprint,
}

/// Tells identities apart without holding the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

/// Why there is no identity. Never quotes what it could not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// No certificate in the PEM.
    #[error("holds no certificate; it should be PEM, the client's own first, its issuers after it")]
    NoCertificate,
    /// One of the certificates is none. The count begins at 1.
    #[error("certificate {0} cannot be read; it should be X.509 version 3")]
    Certificate(usize),
    /// More than [`MAX_CHAIN`].
    #[error("holds more than {MAX_CHAIN} certificates")]
    LongChain,
    /// No key in the PEM, or one that is encrypted or of a kind that TLS does not use.
    #[error(
        "holds no private key that can be used; it should be PEM without a passphrase: \
         RSA, ECDSA (P-256, P-384) or Ed25519"
    )]
    Key,
    /// They do not belong together.
    #[error("does not belong to the certificate")]
    Mismatch,
}

impl Identity {
    /// Reads a chain of certificates, our own first, and its private key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Identity, IdentityError> {
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
            // Only the certificate's own form is left to be wrong.
            Err(_) => return Err(IdentityError::Certificate(1)),
        }
        Ok(Identity {
            shown: Arc::new(SingleCertAndKey::from(certified)),
            fingerprint: Fingerprint(fingerprint),
        })
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The configuration of a connection on which this identity is shown if it is asked for.
    pub(crate) fn shown_by(&self, config: &ClientConfig) -> ClientConfig {
        let mut config = config.clone();
        config.client_auth_cert_resolver = self.shown.clone();
        config
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(…)")
    }
}
