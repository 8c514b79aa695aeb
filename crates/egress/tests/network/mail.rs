//! Tests of `mail::dial`: certificate checks, STARTTLS injection and limits.
//!
//! Scripted SMTP servers offer TLS at once, with STARTTLS or not at all, and some add bytes before TLS is
//! established. No part of an email may be sent before TLS with a valid certificate, and time and sizes are
//! bounded.

use std::sync::Arc;

use posthaste_egress::Roots;
use posthaste_egress::mail::{DialError, MAX_SESSION_BYTES, MailSession, Security, Server, dial};
use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_rustls::TlsAcceptor;

use crate::fixture::*;
use crate::tls::Authority;

/// The server's responses in plain text; with STARTTLS, those before TLS.
const OPENING: [&str; 3] = [
    "220 mx.example ESMTP\r\n",
    "250-mx.example\r\n250-STARTTLS\r\n250 HELP\r\n",
    "220 go ahead\r\n",
];

fn at(receiver: &Receiver, host: &str, security: Security) -> Server {
    Server {
        host: host.to_owned(),
        port: receiver.address.port(),
        security,
        hello: "posthaste.example".to_owned(),
    }
}

/// Starts a server that accepts STARTTLS and adds `said_besides` to its last response before TLS.
async fn starting_tls(config: Arc<ServerConfig>, said_besides: &'static str) -> Receiver {
    Receiver::new(move |mut peer| {
        let config = config.clone();
        async move {
            let [greeting, offer, ready] = OPENING;
            peer.write(greeting).await?;
            assert_eq!(asked(&mut peer).await?, "EHLO posthaste.example\r\n");
            peer.write(offer).await?;
            assert_eq!(asked(&mut peer).await?, "STARTTLS\r\n");
            peer.write(format!("{ready}{said_besides}")).await?;
            let (socket, _) = peer.into_parts();
            let secured = TlsAcceptor::from(config).accept(socket).await.ok()?;
            echo(secured).await
        }
    })
    .await
}

/// Starts a server with implicit TLS that greets and echoes.
async fn tls_at_once(config: Arc<ServerConfig>) -> Receiver {
    Receiver::new(move |peer| {
        let config = config.clone();
        async move {
            let (socket, _) = peer.into_parts();
            let mut secured = TlsAcceptor::from(config).accept(socket).await.ok()?;
            secured.write_all(OPENING[0].as_bytes()).await.ok()?;
            echo(secured).await
        }
    })
    .await
}

async fn asked(peer: &mut Peer) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.push(peer.socket.read_u8().await.ok()?);
    }
    String::from_utf8(line).ok()
}

/// Sends the received line back.
async fn echo(stream: impl tokio::io::AsyncRead + AsyncWrite + Unpin) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    stream.write_all(line.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// Returns the greeting and the echo of a line.
async fn spoken(stream: MailSession) -> (String, String) {
    let mut stream = BufReader::new(stream);
    let mut greeting = String::new();
    stream.read_line(&mut greeting).await.unwrap();
    stream.write_all(b"NOOP\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let mut echoed = String::new();
    stream.read_line(&mut echoed).await.unwrap();
    (greeting, echoed)
}

#[tokio::test]
async fn the_returned_stream_starts_with_a_greeting() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2100), &[]);
    let roots = authority.roots();

    let receiver = starting_tls(config.clone(), "").await;
    let server = at(&receiver, "localhost", Security::StartTls);
    let stream = dial(&server, &roots, AMPLE).await.unwrap();
    assert!(stream.is_secure());
    assert_eq!(stream.peer_addr().unwrap(), receiver.address);
    // Everything sent in plain text is discarded, including the greeting.
    let (greeting, echoed) = spoken(stream).await;
    assert!(greeting.starts_with("220 ") && !greeting.contains("mx.example"));
    assert_eq!(echoed, "NOOP\r\n");

    let receiver = tls_at_once(config).await;
    let server = at(&receiver, "localhost", Security::Implicit);
    let stream = dial(&server, &roots, AMPLE).await.unwrap();
    assert!(stream.is_secure());
    let exchanged = spoken(stream).await;
    assert_eq!(exchanged, (OPENING[0].to_owned(), "NOOP\r\n".to_owned()));

    let receiver = Receiver::new(|mut peer| async move {
        peer.write(OPENING[0]).await?;
        echo(peer.into_parts().0).await
    })
    .await;
    let server = at(&receiver, "localhost", Security::None);
    let stream = dial(&server, &roots, AMPLE).await.unwrap();
    assert!(!stream.is_secure());
    let exchanged = spoken(stream).await;
    assert_eq!(exchanged, (OPENING[0].to_owned(), "NOOP\r\n".to_owned()));
}

#[tokio::test]
async fn the_certificate_must_be_trusted_and_match_the_host() {
    let authority = Authority::new();
    for (name, years, host, roots) in [
        (
            "other.example",
            (2000, 2100),
            "localhost",
            authority.roots(),
        ),
        ("localhost", (2000, 2100), "127.0.0.1", authority.roots()),
        ("localhost", (2000, 2001), "localhost", authority.roots()),
        ("localhost", (2000, 2100), "localhost", Roots::mozilla()),
        ("localhost", (2000, 2100), "localhost", Roots::none()),
    ] {
        let config = authority.server(name, years, &[]);
        let receiver = starting_tls(config.clone(), "").await;
        let server = at(&receiver, host, Security::StartTls);
        let refused = dial(&server, &roots, AMPLE).await;
        assert!(matches!(refused, Err(DialError::NotSecured(_))), "{host}");
        let receiver = tls_at_once(config).await;
        let server = at(&receiver, host, Security::Implicit);
        let refused = dial(&server, &roots, AMPLE).await;
        assert!(matches!(refused, Err(DialError::NotSecured(_))), "{host}");
    }
}

#[tokio::test]
async fn bytes_injected_before_tls_are_refused() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2100), &[]);
    let added = "250-localhost\r\n250-AUTH PLAIN\r\n250 HELP\r\n";
    let receiver = starting_tls(config, added).await;
    let server = at(&receiver, "localhost", Security::StartTls);
    let refused = dial(&server, &authority.roots(), AMPLE).await;
    assert!(matches!(refused, Err(DialError::Injected)));
}

/// Bytes that arrive after the response was read are parsed as TLS, which fails.
#[tokio::test]
async fn bytes_injected_later_are_refused() {
    let receiver = Receiver::new(|mut peer| async move {
        let [greeting, offer, ready] = OPENING;
        peer.write(greeting).await?;
        asked(&mut peer).await?;
        peer.write(offer).await?;
        asked(&mut peer).await?;
        peer.write(ready).await?;
        // The first byte of the handshake shows that the response was read.
        peer.socket.read_u8().await.ok()?;
        peer.write("250-localhost\r\n250 AUTH PLAIN\r\n").await?;
        peer.gone().await;
        Some(())
    })
    .await;
    let server = at(&receiver, "localhost", Security::StartTls);
    let refused = dial(&server, &Authority::new().roots(), AMPLE).await;
    assert!(matches!(refused, Err(DialError::NotSecured(_))));
}

#[tokio::test]
async fn without_tls_nothing_is_sent() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.write(OPENING[0]).await?;
        asked(&mut peer).await?;
        peer.write("250-mx.example\r\n250 AUTH PLAIN LOGIN\r\n")
            .await?;
        let rest = peer.read_to_end().await;
        assert_eq!(rest, b"", "nothing is sent in plain text");
        Some(())
    })
    .await;
    let server = at(&receiver, "localhost", Security::StartTls);
    let refused = dial(&server, &Roots::mozilla(), AMPLE).await;
    assert!(matches!(refused, Err(DialError::NotOffered)));
    receiver.ended().await;
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.gone().await;
        Some(())
    })
    .await;
    for security in [Security::StartTls, Security::Implicit] {
        let server = at(&receiver, "localhost", security);
        let silent = dial(&server, &Roots::mozilla(), SHORT).await;
        assert!(matches!(silent, Err(DialError::TooSlow(SHORT))));
        receiver.ended().await;
    }
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let server = Server {
        host: "127.0.0.1".to_owned(),
        port,
        security: Security::Implicit,
        hello: "posthaste.example".to_owned(),
    };
    let refused = dial(&server, &Roots::mozilla(), AMPLE).await;
    assert!(matches!(refused, Err(DialError::NotConnected(_))));
}

#[tokio::test]
async fn an_endless_greeting_is_refused() {
    for security in [Security::StartTls, Security::None] {
        let mut receiver = Receiver::new(|mut peer| async move {
            loop {
                peer.write([b'2'; 4_096]).await?;
            }
        })
        .await;
        let server = at(&receiver, "localhost", security);
        match dial(&server, &Roots::mozilla(), AMPLE).await {
            Err(refused) => assert!(matches!(refused, DialError::TooLong), "{refused}"),
            Ok(mut stream) => {
                let mut received = Vec::new();
                let ended = stream.read_to_end(&mut received).await;
                assert!(ended.unwrap_err().to_string().contains("64 KiB"));
                assert!(received.len() < 2 * MAX_SESSION_BYTES, "{}", received.len());
            }
        }
        receiver.ended().await;
    }
}
