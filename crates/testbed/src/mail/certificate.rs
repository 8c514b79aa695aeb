//! A certificate for the mail server, with the authority that signed it.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate, its key, and its authority's certificate, all in PEM.
#[derive(Debug)]
pub(super) struct Certificate {
    certificate: String,
    key: String,
    authority: String,
}

impl Certificate {
    /// Creates a certificate for this name, signed by a new authority.
    pub(super) fn made_for(name: &str) -> Certificate {
        let mut params = CertificateParams::default();
        let own_name = &mut params.distinguished_name;
        own_name.push(DnType::CommonName, "Testbed Trust");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, authority_key).expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new([name.to_owned()])
            .expect("a name")
            .signed_by(&key, &authority)
            .expect("a certificate");
        Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: authority.pem(),
        }
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Writes the certificate and its key to files and returns their paths.
    pub(super) fn write_into(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file can be written");
            path
        };
        (
            write("certificate.pem", &self.certificate),
            write("key.pem", &self.key),
        )
    }
}
