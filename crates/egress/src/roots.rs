//! Whose certificates are believed.
//!
//! The default is Mozilla's list, compiled in: the binary then behaves the same on every machine,
//! in an empty container too, and no package on the host can widen what it trusts. The price is
//! that the list ages with the binary. An operator with an authority of their own, or who prefers
//! the machine's list, names a bundle.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// Why a bundle of certificates was not taken. The count begins at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BundleError {
    /// Not PEM.
    #[error("certificate {0} of the bundle is not valid PEM")]
    Unreadable(usize),
    /// PEM, but not a certificate that can be trusted.
    #[error("certificate {0} of the bundle cannot be used as a certificate authority")]
    Unusable(usize),
    /// Nothing in it.
    #[error("the bundle holds no certificate; it should be a PEM file of certificate authorities")]
    Empty,
}

/// A list of certificate authorities.
#[derive(Debug, Clone)]
pub struct Roots(pub(crate) Arc<RootCertStore>);

impl Roots {
    /// Mozilla's list, as of this build.
    pub fn mozilla() -> Roots {
        Roots(Arc::new(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        }))
    }

    /// Nobody, until a bundle is added.
    pub fn none() -> Roots {
        Roots(Arc::new(RootCertStore::empty()))
    }

    /// This list and every certificate of a PEM bundle.
    pub fn with_bundle(self, pem: &[u8]) -> Result<Roots, BundleError> {
        let mut store = Arc::unwrap_or_clone(self.0);
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            count += 1;
            let certificate = certificate.map_err(|_| BundleError::Unreadable(count))?;
            store
                .add(certificate)
                .map_err(|_| BundleError::Unusable(count))?;
        }
        if count == 0 {
            return Err(BundleError::Empty);
        }
        Ok(Roots(Arc::new(store)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(pem: &[u8]) -> Result<usize, BundleError> {
        Roots::none()
            .with_bundle(pem)
            .map(|roots| roots.0.roots.len())
    }

    #[test]
    fn a_bundle_adds_to_the_list() {
        let make = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let bundle = make("a.example").cert.pem() + &make("b.example").cert.pem();
        assert_eq!(added(bundle.as_bytes()), Ok(2));
        let public = Roots::mozilla().0.roots.len();
        let both = Roots::mozilla().with_bundle(bundle.as_bytes()).unwrap();
        assert!(public > 100);
        assert_eq!(both.0.roots.len(), public + 2);
    }

    #[test]
    fn a_bad_bundle_is_refused_as_a_whole() {
        let good = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let pem = |body: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        assert_eq!(added(b""), Err(BundleError::Empty));
        assert_eq!(added(b"hello"), Err(BundleError::Empty));
        let bundle = good.cert.pem() + &pem("AAAA");
        assert_eq!(added(bundle.as_bytes()), Err(BundleError::Unusable(2)));
        let bundle = good.cert.pem() + &pem("!!!!");
        assert_eq!(added(bundle.as_bytes()), Err(BundleError::Unreadable(2)));
    }
}
