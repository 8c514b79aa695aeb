//! The detail of failed attempts: precise, the same in the API and in the log, and without addresses.
//!
//! Fixture: one server, and one receiver on loopback for each way to fail.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::fixture::{Answer, Receiver, TestServer};

/// The behaviour of a receiver after it has accepted a connection.
#[derive(Clone)]
enum Behaviour {
    /// Reads the request, writes this, and closes the connection.
    Says(&'static str),
    /// Reads the request, and resets the connection.
    Resets,
    /// Writes this, and waits for ever.
    Hangs(&'static str),
    /// Completes a TLS handshake, and answers 200.
    Tls(Arc<ServerConfig>),
}

async fn read_some(stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 4_096];
    let _ = stream.read(&mut buffer).await;
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), said: &str) {
    let _ = stream.write_all(said.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn behave(mut stream: TcpStream, behaviour: Behaviour) {
    match behaviour {
        Behaviour::Says(said) => {
            read_some(&mut stream).await;
            say(&mut stream, said).await;
        }
        Behaviour::Resets => {
            read_some(&mut stream).await;
            stream.set_zero_linger().expect("a socket");
        }
        Behaviour::Hangs(said) => {
            read_some(&mut stream).await;
            let _ = stream.write_all(said.as_bytes()).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        Behaviour::Tls(config) => {
            if let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await {
                read_some(&mut stream).await;
                say(
                    &mut stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                )
                .await;
            }
        }
    }
}

/// Starts a receiver, and returns its port.
async fn start(behaviour: Behaviour) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("a bound address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(behave(stream, behaviour.clone()));
        }
    });
    port
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

/// A certificate for this name, signed by the authority or by itself.
fn certificate(
    issuer: Option<&Authority>,
    name: &str,
    is_expired: bool,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    if is_expired {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer),
        None => params.self_signed(&key),
    };
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    (certificate.expect("a certificate").into(), key.into())
}

fn tls(issuer: Option<&Authority>, name: &str, is_expired: bool) -> Behaviour {
    let (certificate, key) = certificate(issuer, name, is_expired);
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
    Behaviour::Tls(Arc::new(config.expect("a server")))
}

/// A receiver that requires a client certificate of the authority.
fn mutual_tls(issuer: &Authority) -> Behaviour {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let (certificate, key) = certificate(Some(issuer), "127.0.0.1", false);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![certificate], key);
    Behaviour::Tls(Arc::new(config.expect("a server")))
}

/// One way to fail.
struct Case {
    url: String,
    kind: &'static str,
    /// The possible details: the environment decides about some.
    details: &'static [&'static str],
}

async fn cases(trusted: &Authority) -> Vec<Case> {
    let mut cases = Vec::new();
    let http = |port: u16| format!("http://127.0.0.1:{port}/hook");
    let https = |port: u16| format!("https://127.0.0.1:{port}/hook");
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let closed = closed.local_addr().expect("a bound address").port();
    let mut add = |url: String, kind, details| cases.push(Case { url, kind, details });
    add(
        http(closed),
        "connection",
        &["connection refused: nothing is listening on the port"],
    );
    add(
        "http://posthaste.invalid/hook".to_owned(),
        "dns",
        &[
            "DNS: the host name does not exist",
            "DNS: the name servers did not respond, or failed; the name may exist",
        ],
    );
    let plain: [(Behaviour, &str, &'static [&'static str]); 5] = [
        (
            Behaviour::Says(""),
            "connection",
            &["the receiver closed the connection before responding"],
        ),
        (
            Behaviour::Resets,
            "connection",
            &["the receiver reset the connection"],
        ),
        (
            Behaviour::Says("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
            "connection",
            &["the response is not valid HTTP"],
        ),
        (
            Behaviour::Hangs(""),
            "timeout",
            &["timeout while waiting for the response"],
        ),
        (
            Behaviour::Hangs("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
            "timeout",
            &["timeout while reading the response"],
        ),
    ];
    for (behaviour, kind, details) in plain {
        add(http(start(behaviour).await), kind, details);
    }
    let stranger = authority("Stranger");
    let secured: [(Behaviour, &'static [&'static str]); 7] = [
        (
            tls(Some(trusted), "127.0.0.1", true),
            &["TLS failed: the certificate has expired"],
        ),
        (
            tls(Some(trusted), "other.example", false),
            &["TLS failed: the certificate is not for this host name"],
        ),
        (
            tls(None, "127.0.0.1", false),
            &["TLS failed: the certificate is self-signed"],
        ),
        (
            tls(Some(&stranger), "127.0.0.1", false),
            &[
                "TLS failed: the certificate authority is unknown; an intermediate certificate may be missing",
            ],
        ),
        (
            mutual_tls(trusted),
            &["TLS failed: the receiver requires a client certificate"],
        ),
        (
            Behaviour::Says("HTTP/1.1 400 Bad Request\r\n\r\n"),
            &["TLS failed: the receiver does not use TLS on this port"],
        ),
        (
            Behaviour::Hangs(""),
            &["TLS failed: timeout during the handshake"],
        ),
    ];
    for (behaviour, details) in secured {
        add(https(start(behaviour).await), "tls", details);
    }
    cases
}

/// Returns an address in the text, if there is one.
fn address_in(text: &str) -> Option<IpAddr> {
    let words = text.split(|c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c)));
    words
        .filter(|word| word.matches(['.', ':']).count() >= 2)
        .find_map(|word| {
            let word = word.trim_matches(['.', ':', '[', ']']);
            let host = word.rsplit_once(':').map_or(word, |(host, _)| host);
            word.parse().or_else(|_| host.parse()).ok()
        })
}

#[tokio::test]
async fn every_failure_is_told_precisely_in_the_api_and_in_the_log() {
    assert!(address_in("connect to 10.0.0.1:80 failed").is_some());
    assert!(address_in("at [2001:db8::1].").is_some());
    let home = tempfile::tempdir().expect("a directory");
    let trusted = authority("Test Trust");
    let bundle = home.path().join("trust.pem");
    std::fs::write(&bundle, trusted.pem()).expect("written");
    let config = home.path().join("posthaste.toml");
    let text = format!("ca_bundle = {:?}\n", bundle.display().to_string());
    std::fs::write(&config, text).expect("written");
    let config = config.display().to_string();
    let server = TestServer::start_in(home.path(), &["--config", &config]);
    let mut api = server.api();
    api.tenant("acme").await;

    let mut cases = cases(&trusted).await;
    let unwilling = Receiver::start(|_| Answer::status(503)).await;
    cases.push(Case {
        url: unwilling.url(),
        kind: "http",
        details: &["the receiver responded with 503 Service Unavailable"],
    });
    let mut deliveries = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let event_type = format!("case.{number}");
        let endpoint = json!({
            "url": case.url, "timeout": "1s", "event_types": [event_type],
            "retry_policy": {"backoff": {"kind": "fixed", "interval": "1s"}, "max_attempts": 1},
        });
        api.endpoint("acme", endpoint).await;
        let event = json!({"type": event_type, "payload": {}});
        deliveries.push(api.deliver("acme", event).await);
    }
    for (case, delivery) in cases.iter().zip(&deliveries) {
        let shown = api.until_status("acme", delivery, "failed").await;
        let attempt = &shown["attempts"][0];
        let detail = attempt["detail"].as_str().expect("a detail");
        assert!(case.details.contains(&detail), "{}: {shown}", case.url);
        assert_eq!(attempt["error_kind"], case.kind, "{detail}");
        assert_eq!(shown["last_error"]["detail"], detail);
        assert_eq!(address_in(detail), None, "{detail}");
        let of_this = |line: &String| line.contains(delivery.as_str());
        let logged = || server.log().into_iter().find(of_this);
        let line = loop {
            match logged() {
                Some(line) => break line,
                // Log lines are collected for some milliseconds.
                None => tokio::task::yield_now().await,
            }
        };
        let line: Value = serde_json::from_str(&line).unwrap_or(Value::String(line));
        let same = line["detail"] == detail || line.to_string().contains(detail);
        assert!(same, "{detail} is not in {line}");
    }
}
