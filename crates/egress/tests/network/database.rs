//! Tests of `database::dial`: TLS modes and certificate checks.
//!
//! A scripted server answers the `SSLRequest` with yes or no and presents certificates of every kind. Each TLS mode
//! must accept exactly the servers that it promises to accept, and send nothing in plain text if TLS is required.

use std::io;
use std::sync::Arc;

use posthaste_egress::Roots;
use posthaste_egress::database::{ServerAddress, TlsVerification, dial};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::fixture::*;
use crate::tls::Authority;

const HELLO: &[u8] = b"hello";

/// Starts a server that accepts TLS if it has a configuration, and then echoes five bytes.
async fn server(config: Option<Arc<ServerConfig>>) -> Receiver {
    Receiver::new(move |peer| {
        let config = config.clone();
        async move {
            let (mut socket, _) = peer.into_parts();
            let mut first = [0; 5];
            socket.peek(&mut first).await.ok()?;
            if first != HELLO {
                let mut asked = [0; 8];
                socket.read_exact(&mut asked).await.ok()?;
                assert_eq!(asked, [0, 0, 0, 8, 4, 210, 22, 47]);
                if let Some(config) = config {
                    socket.write_all(b"S").await.ok()?;
                    let mut secured = TlsAcceptor::from(config).accept(socket).await.ok()?;
                    secured.read_exact(&mut first).await.ok()?;
                    secured.write_all(b"tls!!").await.ok()?;
                    return secured.flush().await.ok();
                }
                socket.write_all(b"N").await.ok()?;
            }
            socket.read_exact(&mut first).await.ok()?;
            socket.write_all(b"plain").await.ok()
        }
    })
    .await
}

/// Connects and reports how the server was reached, or the error.
async fn spoken(receiver: &Receiver, host: &str, trust: TlsVerification) -> io::Result<String> {
    let place = ServerAddress::Tcp {
        host: host.to_owned(),
        port: receiver.address.port(),
    };
    let mut wire = dial(&place, &trust).await?;
    wire.write_all(HELLO).await?;
    wire.flush().await?;
    let mut said = [0; 5];
    wire.read_exact(&mut said).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn each_tls_mode_uses_tls_as_configured() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2100), &[]);
    let receiver = server(Some(config)).await;
    let roots = authority.roots();
    for (host, trust, wanted) in [
        ("localhost", TlsVerification::Disable, Some("plain")),
        ("localhost", TlsVerification::Prefer, Some("tls!!")),
        ("127.0.0.1", TlsVerification::Require, Some("tls!!")),
        (
            "127.0.0.1",
            TlsVerification::VerifyCa(roots.clone()),
            Some("tls!!"),
        ),
        (
            "localhost",
            TlsVerification::VerifyFull(roots.clone()),
            Some("tls!!"),
        ),
        ("127.0.0.1", TlsVerification::VerifyFull(roots), None),
        (
            "localhost",
            TlsVerification::VerifyCa(Roots::mozilla()),
            None,
        ),
        (
            "localhost",
            TlsVerification::VerifyFull(Roots::mozilla()),
            None,
        ),
        (
            "localhost",
            TlsVerification::VerifyFull(Roots::none()),
            None,
        ),
    ] {
        let how = format!("{host}, {trust:?}")
            .chars()
            .take(60)
            .collect::<String>();
        let said = spoken(&receiver, host, trust).await;
        assert_eq!(said.ok().as_deref(), wanted, "{how}");
    }
}

#[tokio::test]
async fn verify_ca_refuses_an_expired_certificate() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2001), &[]);
    let receiver = server(Some(config)).await;
    for host in ["localhost", "127.0.0.1"] {
        let said = spoken(
            &receiver,
            host,
            TlsVerification::VerifyCa(authority.roots()),
        )
        .await;
        assert!(said.is_err(), "{host}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_if_tls_is_required() {
    let receiver = server(None).await;
    let said = spoken(&receiver, "localhost", TlsVerification::Prefer).await;
    assert_eq!(said.unwrap(), "plain");
    let refused = spoken(&receiver, "localhost", TlsVerification::Require).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("sslmode"), "{why}");
}

#[tokio::test]
async fn a_unix_socket_needs_no_tls() {
    let directory = std::env::temp_dir().join(format!("posthaste-db-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(HELLO).await.unwrap();
    });
    let mut wire = dial(&ServerAddress::Unix(path), &TlsVerification::Require)
        .await
        .unwrap();
    let mut said = [0; 5];
    wire.read_exact(&mut said).await.unwrap();
    assert_eq!(said, HELLO);
    serving.await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
