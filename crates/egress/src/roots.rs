//! Trusted certificate authorities.
//!
//! The default of [`Roots`] is Mozilla's list, compiled in. So the binary behaves the same on every machine,
//! also in an empty container, and no package on the host can add an authority. The disadvantage is that the
//! list is only as recent as the binary. An operator who has an own authority, or prefers the machine's list,
//! configures a bundle.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// The reason why a certificate bundle was refused. Certificates are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BundleError {
    /// The certificate is not valid PEM.
    #[error("certificate {0} of the bundle is not valid PEM")]
    Unreadable(usize),
    /// The certificate is valid PEM but cannot be used as an authority.
    #[error("certificate {0} of the bundle cannot be used as a certificate authority")]
    Unusable(usize),
    /// The bundle is empty.
    #[error("the bundle contains no certificate; use a PEM file of certificate authorities")]
    Empty,
}

/// A list of certificate authorities.
#[derive(Debug, Clone)]
pub struct Roots(pub(crate) Arc<RootCertStore>);

impl Roots {
    /// Returns Mozilla's list, as of this build.
    pub fn mozilla() -> Roots {
        Roots(Arc::new(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        }))
    }

    /// Returns an empty list, which trusts no certificate.
    pub fn none() -> Roots {
        Roots(Arc::new(RootCertStore::empty()))
    }

    /// Returns this list plus every certificate of a PEM bundle.
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
    fn a_bundle_is_added_to_the_list() {
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
