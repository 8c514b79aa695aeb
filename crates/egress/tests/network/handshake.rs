//! TLS handshakes that fail.
//!
//! Certificates are expired, not yet valid, self-signed, for another name or of an unknown issuer; servers stall,
//! close, or send bytes that are not TLS. Each case has a distinct send error, and no plain text is ever sent.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, Request, RequestPhase, Roots, SendError, SendReport};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::fixture::*;
use crate::tls::{Authority, NAME, secured, trusting};

fn confidential(receiver: &Receiver) -> Request {
    Request {
        body: Bytes::from_static(b"a secret payload"),
        time_limit: AMPLE,
        ..request(&receiver.named("https", NAME))
    }
}

/// Returns the error of a failed handshake, after which the client still works.
async fn failed(client: &Client, receiver: &Receiver) -> SendError {
    let report = client.send(confidential(receiver)).await.unwrap();
    assert_eq!(fault(&report), TransportError::Tls, "{}", report.detail());
    assert!(report.detail().starts_with("TLS failed: "));
    assert_eq!(report.first_byte_at, None);
    assert_eq!(client.idle_connections(), 0);
    report.send_error.unwrap()
}

fn served(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    Arc::new(config.with_single_cert(chain, key).unwrap())
}

#[tokio::test]
async fn every_bad_certificate_has_its_own_error() {
    let (authority, unknown) = (Authority::new(), Authority::named("Unknown Trust"));
    let client = trusting(authority.roots());
    let key = KeyPair::generate().unwrap();
    let own = |is_ca: IsCa| {
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        params.is_ca = is_ca;
        served(vec![params.self_signed(&key).unwrap().into()], &key)
    };
    // Self-signed, as libraries generate it and as `openssl req -x509` does.
    let by_itself = own(IsCa::NoCa);
    let as_authority = own(IsCa::Ca(BasicConstraints::Unconstrained));
    let mut words = Vec::new();
    for (config, expected) in [
        (
            authority.server(NAME, (2020, 2021), &[]),
            SendError::CertificateExpired,
        ),
        (
            authority.server(NAME, (2098, 2099), &[]),
            SendError::CertificateNotYetValid,
        ),
        (
            authority.server("other.customer.com", (2020, 2100), &[]),
            SendError::CertificateWrongHost,
        ),
        (
            unknown.server(NAME, (2020, 2100), &[]),
            SendError::CertificateUnknownIssuer,
        ),
        (by_itself, SendError::CertificateSelfSigned),
        (as_authority, SendError::CertificateSelfSigned),
    ] {
        let receiver = secured(config, OK).await;
        let send_error = failed(&client, &receiver).await;
        assert_eq!(send_error, expected);
        words.push(send_error.to_string());
    }
    words.sort();
    words.dedup();
    assert_eq!(words.len(), 5);
    // The failures have not changed the trusted roots.
    let receiver = secured(authority.server(NAME, (2020, 2100), &[]), OK).await;
    let url = receiver.named("https", NAME);
    assert_eq!(status(&post(&client, &url).await), 200);
}

#[tokio::test]
async fn a_self_signed_certificate_is_accepted_if_configured() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.not_after = date_time_ymd(2100, 1, 1);
    let own = params.self_signed(&key).unwrap();
    let roots = Roots::none().with_bundle(own.pem().as_bytes()).unwrap();
    let receiver = secured(served(vec![own.into()], &key), OK).await;
    let url = receiver.named("https", NAME);
    assert_eq!(status(&post(&trusting(roots), &url).await), 200);
}

#[tokio::test]
async fn an_enormous_certificate_chain_is_refused() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_owned()]).unwrap();
    let own: CertificateDer = params.signed_by(&key, authority.issuer()).unwrap().into();
    let receiver = secured(served(vec![own; 2_000], &key), OK).await;
    let client = trusting(authority.roots());
    assert_eq!(
        failed(&client, &receiver).await,
        SendError::CertificateTooLarge
    );
}

/// Starts a receiver that reads a ClientHello, sends these bytes, and then ends in one of several ways. Also
/// returns everything that it received.
async fn greeting(said: &'static [u8], end: End) -> (Receiver, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (sent_in, sent) = mpsc::unbounded_channel();
    let receiver = Receiver::new(move |mut peer| {
        let sent_in = sent_in.clone();
        async move {
            let mut all = vec![0; 4_096];
            let length = peer.socket.read(&mut all).await.ok()?;
            all.truncate(length);
            peer.write(said).await?;
            match end {
                End::Close => {
                    peer.socket.shutdown().await.ok()?;
                    all.extend(peer.read_to_end().await);
                }
                End::Reset => peer.socket.set_zero_linger().ok()?,
                End::Stall => all.extend(peer.read_to_end().await),
            }
            sent_in.send(all).ok()
        }
    })
    .await;
    (receiver, sent)
}

#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    Stall,
}

/// The beginning of a ServerHello for TLS 1.0: its version, 32 random bytes, no session, an old cipher suite,
/// no compression.
const OLD_HELLO: &[u8] = b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01\
    0123456789abcdef0123456789abcdef\x00\x00\x2f\x00";
/// The same in TLS 1.2, with a cipher suite without forward secrecy, which the client did not offer.
const UNOFFERED_CIPHER: &[u8] = b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03\
    0123456789abcdef0123456789abcdef\x00\x00\x2f\x00";

#[tokio::test]
async fn wrong_handshake_bytes_have_distinct_errors() {
    for (said, end, expected) in [
        (
            OLD_HELLO,
            End::Close,
            &[SendError::TlsIncompatible] as &[SendError],
        ),
        (
            b"\x15\x03\x01\x00\x02\x02\x46",
            End::Close,
            &[SendError::TlsIncompatible],
        ),
        (
            b"\x15\x03\x03\x00\x02\x02\x47",
            End::Close,
            &[SendError::TlsIncompatible],
        ),
        (UNOFFERED_CIPHER, End::Close, &[SendError::TlsBroken]),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            End::Close,
            &[SendError::TlsAlert],
        ),
        // An alert about a certificate although none was presented.
        (
            b"\x15\x03\x03\x00\x02\x02\x2a",
            End::Close,
            &[SendError::ClientCertificateRequired],
        ),
        (
            b"220 mail.customer.com ESMTP\r\n",
            End::Close,
            &[SendError::NotTls],
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            End::Close,
            &[SendError::NotTls],
        ),
        (b"", End::Close, &[SendError::TlsClosed]),
        (OLD_HELLO.split_at(5).0, End::Close, &[SendError::TlsClosed]),
        (b"", End::Reset, &[SendError::TlsClosed]),
        (b"\x16\x03\x03\x40\x00", End::Reset, &[SendError::TlsClosed]),
        (b"\x16\x03\x03\x00\x00", End::Close, &[SendError::TlsBroken]),
        (b"\x16\x03\x03\xff\xff", End::Close, &[SendError::TlsBroken]),
        (
            b"\x17\x03\x03\x00\x05hello",
            End::Close,
            &[SendError::TlsBroken],
        ),
    ] {
        let (receiver, mut sent) = greeting(said, end).await;
        let client = trusting(Roots::mozilla());
        let send_error = failed(&client, &receiver).await;
        assert!(expected.contains(&send_error), "{said:?}: {send_error:?}");
        let sent = sent.recv().await.unwrap();
        let sent = String::from_utf8_lossy(&sent);
        assert!(!sent.contains("secret") && !sent.contains("POST"));
    }
}

#[tokio::test]
async fn a_stalled_handshake_times_out() {
    for said in [b"".as_slice(), b"\x16", b"\x16\x03\x03\x40\x00\x02"] {
        let (receiver, mut sent) = greeting(said, End::Stall).await;
        let client = trusting(Roots::mozilla());
        let hurried = Request {
            time_limit: SHORT,
            ..confidential(&receiver)
        };
        let report: SendReport = client.send(hurried).await.unwrap();
        assert_eq!(
            report.send_error,
            Some(SendError::TimedOut(RequestPhase::Securing))
        );
        assert_eq!(fault(&report), TransportError::Tls);
        let sent = sent.recv().await.unwrap();
        assert!(!String::from_utf8_lossy(&sent).contains("secret"));
    }
}
