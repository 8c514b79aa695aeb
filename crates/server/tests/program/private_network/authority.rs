//! A certificate authority made for one test, and certificates of every kind.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Years in which a valid certificate is valid.
pub(crate) const VALID: (i32, i32) = (2020, 2100);

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Creates an authority with this name.
    pub(crate) fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate, in PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// TLS configuration of a receiver with a certificate for this name or address, valid in these years.
    pub(crate) fn receiver(&self, name: &str, years: (i32, i32)) -> Arc<ServerConfig> {
        let (certificate, key) = self.certificate(name, years);
        receiver(certificate, &key)
    }

    /// TLS configuration of a receiver that requires a client certificate of this authority.
    pub(crate) fn mistrustful_receiver(&self, name: &str) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .expect("a verifier");
        let (certificate, key) = self.certificate(name, VALID);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.into()], key)
            .expect("they belong together");
        Arc::new(config)
    }

    fn certificate(&self, name: &str, years: (i32, i32)) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate, key)
    }
}

/// TLS configuration of a receiver with a self-signed certificate.
pub(crate) fn self_signed_receiver(name: &str) -> Arc<ServerConfig> {
    let own = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    receiver(own.cert, &own.signing_key)
}

fn receiver(certificate: rcgen::Certificate, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key)
        .expect("they belong together");
    Arc::new(config)
}
