//! TLS: certificate checks, failed handshakes, and session resumption.
//!
//! [`Authority`] issues the certificates of the tests. Names, addresses, validity and issuer are checked, errors
//! are distinct, sessions are not resumed, and a receiver that stops reading leaves no task.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, ClientSettings, PoolKey, Request, Roots, SendError, SendReport};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::fixture::*;

pub(crate) const NAME: &str = "hooks.customer.com";

/// A certificate authority for one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::named("Example Trust")
    }

    pub(crate) fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.0
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::none().with_bundle(self.0.pem().as_bytes()).unwrap()
    }

    /// Returns a server configuration with a certificate for this name, valid for these years.
    pub(crate) fn server(
        &self,
        name: &str,
        years: (i32, i32),
        protocols: &[&str],
    ) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        server(certificate, &key, protocols)
    }
}

fn server(certificate: rcgen::Certificate, key: &KeyPair, protocols: &[&str]) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key)
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

/// Creates a client that trusts these roots, and for which [`NAME`] is this machine.
pub(crate) fn trusting(roots: Roots) -> Client {
    Client::new(ClientSettings {
        roots,
        resolver: FixedResolver::with(NAME, &["127.0.0.1"]),
        ..settings()
    })
}

/// Starts a receiver with TLS and scripted HTTP/1.1.
pub(crate) async fn secured(config: Arc<ServerConfig>, answer: &'static str) -> Receiver {
    let acceptor = TlsAcceptor::from(config);
    Receiver::new(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let (socket, received) = peer.into_parts();
            let mut peer = Peer::from_parts(acceptor.accept(socket).await.ok()?, received);
            loop {
                peer.read_request().await?;
                peer.write(answer).await?;
                if !answer.contains("content-length") {
                    return Some(());
                }
            }
        }
    })
    .await
}

async fn failing(roots: Roots, receiver: &Receiver, name: &str) -> SendReport {
    let report = post(&trusting(roots), &receiver.named("https", name)).await;
    assert_eq!(fault(&report), TransportError::Tls, "{}", report.detail());
    assert!(report.detail().starts_with("TLS failed"));
    assert_eq!(report.first_byte_at, None);
    report
}

#[tokio::test]
async fn http1_inside_tls() {
    let authority = Authority::new();
    for protocols in [&["http/1.1"] as &[&str], &[]] {
        let config = authority.server(NAME, (2020, 2100), protocols);
        let mut receiver = secured(config, OK).await;
        let client = trusting(authority.roots());
        for nth in 0..3 {
            let report = post(&client, &receiver.named("https", NAME)).await;
            assert_eq!((status(&report), report.reused), (200, nth > 0));
            assert!(
                receiver
                    .received()
                    .await
                    .head
                    .starts_with("POST /hook HTTP/1.1\r\n")
            );
        }
        assert_eq!(receiver.connections(), 1);
    }
}

#[tokio::test]
async fn a_certificate_for_an_ip_address_is_accepted() {
    let authority = Authority::new();
    let config = authority.server("127.0.0.1", (2020, 2100), &[]);
    let receiver = secured(config, OK).await;
    let url = receiver.named("https", "127.0.0.1");
    assert_eq!(status(&post(&trusting(authority.roots()), &url).await), 200);
}

#[tokio::test]
async fn a_close_without_close_notify_ends_the_body() {
    let authority = Authority::new();
    let config = authority.server(NAME, (2020, 2100), &[]);
    let receiver = secured(config, "HTTP/1.1 200 OK\r\n\r\nto the end").await;
    let report = post(&trusting(authority.roots()), &receiver.named("https", NAME)).await;
    assert_eq!(status(&report), 200);
    assert_eq!(report.snippet, b"to the end");
}

#[tokio::test]
async fn bad_certificates_have_distinct_errors() {
    let authority = Authority::new();
    for (name, years, send_error) in [
        (NAME, (2020, 2021), SendError::CertificateExpired),
        (NAME, (2099, 2100), SendError::CertificateNotYetValid),
        (
            "other.customer.com",
            (2020, 2100),
            SendError::CertificateWrongHost,
        ),
        ("127.0.0.1", (2020, 2100), SendError::CertificateWrongHost),
    ] {
        let receiver = secured(authority.server(name, years, &[]), OK).await;
        let report = failing(authority.roots(), &receiver, NAME).await;
        assert_eq!(report.send_error, Some(send_error));
    }
}

#[tokio::test]
async fn an_unknown_issuer_is_refused() {
    let authority = Authority::new();
    let receiver = secured(authority.server(NAME, (2020, 2100), &[]), OK).await;
    let other = Authority::named("Other Trust");
    for roots in [Roots::mozilla(), Roots::none(), other.roots()] {
        let report = failing(roots, &receiver, NAME).await;
        assert_eq!(report.send_error, Some(SendError::CertificateUnknownIssuer));
    }

    let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let receiver = secured(server(own.cert, &own.signing_key, &[]), OK).await;
    for roots in [Roots::mozilla(), authority.roots()] {
        let report = failing(roots, &receiver, NAME).await;
        assert_eq!(report.send_error, Some(SendError::CertificateSelfSigned));
    }
}

/// Starts a receiver that reads a ClientHello, sends these bytes and closes the connection. Also returns what
/// it received.
async fn greeting(said: &'static [u8]) -> (Receiver, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (sent_in, sent) = mpsc::unbounded_channel();
    let receiver = Receiver::new(move |mut peer| {
        let sent_in = sent_in.clone();
        async move {
            let mut all = vec![0; 4_096];
            let length = peer.socket.read(&mut all).await.ok()?;
            all.truncate(length);
            peer.write(said).await?;
            peer.socket.shutdown().await.ok()?;
            peer.socket.read_to_end(&mut all).await.ok()?;
            sent_in.send(all).ok()
        }
    })
    .await;
    (receiver, sent)
}

#[tokio::test]
async fn a_server_without_tls_gets_no_plain_text() {
    for (said, send_error) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(),
            SendError::NotTls,
        ),
        (b"SSH-2.0-OpenSSH_9.9\r\n", SendError::NotTls),
        (b"", SendError::TlsClosed),
        // Alerts: protocol version, handshake failure.
        (b"\x15\x03\x01\x00\x02\x02\x46", SendError::TlsIncompatible),
        (b"\x15\x03\x03\x00\x02\x02\x28", SendError::TlsAlert),
        // A handshake record with invalid content.
        (
            b"\x16\x03\x03\x00\x04\x63\x00\x00\x00",
            SendError::TlsBroken,
        ),
    ] {
        let (receiver, mut sent) = greeting(said).await;
        let client = trusting(Roots::mozilla());
        let request = Request {
            body: Bytes::from_static(b"a secret payload"),
            ..request(&receiver.named("https", NAME))
        };
        let report = client.send(request).await.unwrap();
        assert_eq!(fault(&report), TransportError::Tls);
        assert_eq!(report.send_error, Some(send_error));
        let sent = sent.recv().await.unwrap();
        let sent = String::from_utf8_lossy(&sent);
        assert!(sent.contains(NAME), "the ClientHello names the host");
        assert!(!sent.contains("secret") && !sent.contains("POST"));
    }
}

/// Returns the number of tasks after the runtime has become idle.
async fn tasks_left() -> usize {
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    metrics.num_alive_tasks()
}

#[tokio::test]
async fn a_receiver_that_stops_reading_leaves_no_task() {
    let authority = Authority::new();
    for protocol in ["h2", "http/1.1"] {
        let acceptor = TlsAcceptor::from(authority.server(NAME, (2020, 2100), &[protocol]));
        let receiver = Receiver::new(move |peer| {
            let acceptor = acceptor.clone();
            async move {
                let _secured = acceptor.accept(peer.into_parts().0).await.ok()?;
                std::future::pending().await
            }
        })
        .await;
        let client = trusting(authority.roots());
        let before = tasks_left().await;
        let big = Request {
            body: Bytes::from(vec![0; 8_000_000]),
            time_limit: SHORT,
            ..request(&receiver.named("https", NAME))
        };
        let report = client.send(big).await.unwrap();
        assert_eq!(fault(&report), TransportError::Timeout);
        // The receiver's task for the connection remains, and none of the client's.
        assert_eq!(tasks_left().await, before + 1, "{protocol}");
    }
}

/// A resumed session would carry the receiver's knowledge of one tenant over to another.
#[tokio::test]
async fn tls_sessions_are_not_resumed() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server(NAME, (2020, 2100), &[]));
    let (seen_in, mut seen) = mpsc::unbounded_channel();
    let receiver = Receiver::new(move |peer| {
        let (acceptor, seen) = (acceptor.clone(), seen_in.clone());
        async move {
            let (socket, received) = peer.into_parts();
            let secured = acceptor.accept(socket).await.ok()?;
            let _ = seen.send(secured.get_ref().1.handshake_kind());
            let mut peer = Peer::from_parts(secured, received);
            peer.read_request().await?;
            peer.write(OK).await
        }
    })
    .await;
    let client = trusting(authority.roots());
    for tenant in ["acme", "globex", "acme"] {
        let request = Request {
            pool_key: PoolKey::new(tenant),
            ..request(&receiver.named("https", NAME))
        };
        assert_eq!(status(&client.send(request).await.unwrap()), 200);
        assert_eq!(seen.recv().await, Some(Some(HandshakeKind::Full)));
        client.forget(&PoolKey::new(tenant));
    }
}
