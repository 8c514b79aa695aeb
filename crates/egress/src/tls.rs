//! How TLS is spoken, and how a certificate is refused.
//!
//! rustls decides; nothing here can turn a refusal into consent. Only the words are improved: that
//! nobody vouches for a certificate has two causes, which are mended in different ways. Either it
//! vouches for itself, or for it somebody does whom we do not know.

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

/// The certificate names itself as its issuer, and nobody else vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the certificate is self-signed")]
pub(crate) struct SelfSigned;

/// A configuration that believes these roots, offers no protocol and shows no certificate.
pub(crate) fn config(roots: &Roots) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring provides what TLS 1.2 and 1.3 need");
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots.0), provider);
    let Ok(judge) = verifier.build() else {
        // There are no roots, and so nothing to verify: everything is refused all the same.
        let nobody = Arc::new(RootCertStore::empty());
        return builder.with_root_certificates(nobody).with_no_client_auth();
    };
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Plainspoken { judge }))
        .with_no_client_auth()
}

/// Refuses whatever rustls refuses, in plainer words.
#[derive(Debug)]
struct Plainspoken {
    judge: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Plainspoken {
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
        judged.map_err(|refusal| match speaks_for_itself(&refusal, end_entity) {
            true => CertificateError::Other(OtherError(Arc::new(SelfSigned))).into(),
            false => refusal,
        })
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

/// Whether a certificate was refused because nobody vouches for it but itself. `openssl req -x509` marks
/// what it makes as an authority's, which is refused before anybody is looked for.
fn speaks_for_itself(refusal: &Error, certificate: &CertificateDer<'_>) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds errors")]
    let nobody_known = match refusal {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
            let cause = cause.downcast_ref::<webpki::Error>();
            cause == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    };
    let names_itself =
        |certificate: webpki::EndEntityCert<'_>| certificate.issuer() == certificate.subject();
    nobody_known && webpki::EndEntityCert::try_from(certificate).is_ok_and(names_itself)
}
