//! TLS client configuration, and better errors for refused certificates.
//!
//! rustls decides about a certificate; [`config`] accepts none that rustls refused. It only distinguishes two causes
//! of an unknown issuer, because they are fixed in different ways: the certificate is self-signed, or its issuer is not
//! trusted. [`CertificateVerifier`] also serves connections to the database, some of which accept more.

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
    let Ok(strict) = verifier.build() else {
        // There are no roots, so there is nothing to verify. This configuration refuses every certificate too.
        let no_roots = Arc::new(RootCertStore::empty());
        return builder
            .with_root_certificates(no_roots)
            .with_no_client_auth();
    };
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(CertificateVerifier {
            strict,
            on_error: name_self_signed,
        }))
        .with_no_client_auth()
}

/// Verifies certificates as rustls does, and leaves the decision about each error to a function.
#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    pub(crate) strict: Arc<WebPkiServerVerifier>,
    /// Accepts a certificate in spite of the error, or returns the error to report.
    pub(crate) on_error: fn(Error, &CertificateDer<'_>) -> Result<ServerCertVerified, Error>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.strict
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .or_else(|error| (self.on_error)(error, end_entity))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}

/// Refuses the certificate, and reports a self-signed one as [`SelfSigned`].
fn name_self_signed(
    error: Error,
    certificate: &CertificateDer<'_>,
) -> Result<ServerCertVerified, Error> {
    Err(match is_self_signed(&error, certificate) {
        true => CertificateError::Other(OtherError(Arc::new(SelfSigned))).into(),
        false => error,
    })
}

/// Returns true if a certificate was refused because it is self-signed. `openssl req -x509` marks its
/// certificates as certificate authorities; rustls refuses those before it looks for an issuer.
fn is_self_signed(error: &Error, certificate: &CertificateDer<'_>) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: rustls may add errors"
    )]
    let issuer_is_unknown = match error {
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
