//! TLS client configuration, and better errors for refused certificates.
//!
//! rustls decides about a certificate; nothing here accepts one that rustls refused. The verifier only
//! distinguishes two causes of an unknown issuer, because they are fixed in different ways: the certificate is
//! self-signed, or its issuer is not trusted.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use thiserror::Error;

use crate::roots::Roots;

/// The certificate is its own issuer, and no trusted authority signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the certificate is self-signed")]
pub(crate) struct SelfSigned;

/// Returns a configuration that trusts these roots, offers no ALPN protocol and presents no certificate.
pub(crate) fn config(roots: &Roots) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots.0), provider);
    let Ok(judge) = verifier.build() else {
        // There are no roots, so there is nothing to verify. This configuration refuses every certificate too.
        let nobody = Arc::new(RootCertStore::empty());
        return builder.with_root_certificates(nobody).with_no_client_auth();
    };
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SelfSignedDetector { judge }))
        .with_no_client_auth()
}

/// Refuses exactly the certificates that rustls refuses, and reports self-signed ones as [`SelfSigned`].
#[derive(Debug)]
struct SelfSignedDetector {
    judge: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for SelfSignedDetector {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.judge.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        judged.map_err(
            |verify_error| match is_self_signed(&verify_error, end_entity) {
                true => CertificateError::Other(OtherError(Arc::new(SelfSigned))).into(),
                false => verify_error,
            },
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}

/// Returns true if a certificate was refused because it is self-signed. `openssl req -x509` marks its
/// certificates as certificate authorities; rustls refuses those before it looks for an issuer.
fn is_self_signed(verify_error: &Error, certificate: &CertificateDer<'_>) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: rustls may add errors"
    )]
    let issuer_is_unknown = match verify_error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
            let cause = cause.downcast_ref::<webpki::Error>();
            cause == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    };
    let names_itself =
        |certificate: webpki::EndEntityCert<'_>| certificate.issuer() == certificate.subject();
    issuer_is_unknown && webpki::EndEntityCert::try_from(certificate).is_ok_and(names_itself)
}
