//! Requests through the operator's proxy.
//!
//! The destination is vetted before the proxy is asked, and the proxy gets the vetted address. Faults of the proxy
//! are local faults; errors of the destination count as its own. Credentials go to the proxy only, and TLS to the
//! receiver runs through the tunnel.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use posthaste_core::address::{EgressRules, ForbiddenAddress};
use posthaste_core::classify::TransportError;
use posthaste_egress::{
    Client, ClientSettings, LocalFault, Proxy, ProxyFault, Request, RequestPhase, Roots, SendError,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::fixture::*;
use crate::tls::{Authority, NAME, secured};

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// Connects a peer to the port that it asks for, on this machine.
async fn relay<S: AsyncRead + AsyncWrite + Unpin>(mut peer: Peer<S>) -> Option<()> {
    let target = peer.read_connect_target().await?;
    let port = target.rsplit_once(':')?.1.parse::<u16>().ok()?;
    let mut beyond = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    peer.write(ESTABLISHED).await?;
    copy_bidirectional(&mut peer.socket, &mut beyond).await.ok();
    Some(())
}

/// Starts a proxy that behaves correctly.
async fn honest() -> Receiver {
    Receiver::new(relay).await
}

fn via(proxy: &str) -> ClientSettings {
    ClientSettings {
        proxy: Some(proxy.parse().unwrap()),
        resolver: FixedResolver::with(NAME, &["127.0.0.1"]),
        ..settings()
    }
}

fn through(proxy: &Receiver) -> Client {
    Client::new(via(&format!("http://{}", proxy.address)))
}

/// A request with a secret that only the receiver may see.
fn confidential(url: &str) -> Request {
    let mut request = Request {
        body: Bytes::from_static(b"canary"),
        ..request(url)
    };
    let headers = &mut request.headers;
    headers.insert("authorization", HeaderValue::from_static("Bearer canary"));
    request
}

#[tokio::test]
async fn a_request_goes_through_the_tunnel_to_the_vetted_address() {
    let mut proxy = honest().await;
    let mut receiver = Receiver::answering(OK).await;
    let client = through(&proxy);
    for url in [receiver.url(), receiver.named("http", NAME)] {
        for reused in [false, true] {
            let report = client.send(confidential(&url)).await.unwrap();
            assert_eq!((status(&report), report.reused), (200, reused));
            assert_eq!(receiver.received().await.body, b"canary");
        }
        let asked = proxy.received().await;
        let target = receiver.address;
        assert_eq!(
            asked.head,
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
        );
        assert_eq!(asked.body, b"");
    }
    assert_eq!(proxy.connections(), 2);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn tls_through_the_tunnel_uses_the_name_of_the_receiver() {
    let authority = Authority::new();
    for protocols in [&["http/1.1"] as &[&str], &["h2"]] {
        let receiver = secured(authority.server(NAME, (2020, 2100), protocols), OK).await;
        let mut proxy = honest().await;
        let settings = ClientSettings {
            roots: authority.roots(),
            ..via(&format!("http://{}", proxy.address))
        };
        let url = receiver.named("https", NAME);
        if protocols == ["http/1.1"] {
            let report = Client::new(settings.clone()).send(confidential(&url)).await;
            assert_eq!(status(&report.unwrap()), 200);
            let asked = proxy.received().await.head;
            assert!(asked.starts_with(&format!("CONNECT {} ", receiver.address)));
        }
        // An attacker in the position of the proxy has no trusted certificate.
        let distrusting = ClientSettings {
            roots: Roots::mozilla(),
            ..settings
        };
        let report = Client::new(distrusting).send(confidential(&url)).await;
        let report = report.unwrap();
        assert_eq!(report.send_error, Some(SendError::CertificateUnknownIssuer));
    }
}

#[tokio::test]
async fn the_proxy_itself_can_use_tls() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server("127.0.0.1", (2020, 2100), &[]));
    let proxy = Receiver::new(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let (socket, received) = peer.into_parts();
            relay(Peer::from_parts(
                acceptor.accept(socket).await.ok()?,
                received,
            ))
            .await
        }
    })
    .await;
    let inside = secured(authority.server(NAME, (2020, 2100), &[]), OK).await;
    let plain = Receiver::answering(OK).await;
    let trusting = ClientSettings {
        roots: authority.roots(),
        ..via(&format!("https://{}", proxy.address))
    };
    let client = Client::new(trusting.clone());
    for url in [inside.named("https", NAME), plain.url()] {
        for reused in [false, true] {
            let report = post(&client, &url).await;
            assert_eq!((status(&report), report.reused), (200, reused));
        }
    }

    let distrusting = ClientSettings {
        roots: Roots::mozilla(),
        ..trusting
    };
    let distrusting = Client::new(distrusting);
    let sent = distrusting.send(confidential(&plain.url())).await;
    let insecure = ProxyFault::Insecure(SendError::CertificateUnknownIssuer);
    assert_eq!(sent.unwrap_err(), LocalFault::Proxy(insecure));
}

#[tokio::test]
async fn destinations_are_vetted_before_the_proxy_connects() {
    let proxy = honest().await;
    let receiver = Receiver::answering(OK).await;
    for (answer, kind) in [
        ("127.0.0.1 10.0.0.1", ForbiddenAddress::Private),
        ("169.254.169.254", ForbiddenAddress::Metadata),
    ] {
        let client = Client::new(ClientSettings {
            resolver: FixedResolver::with(NAME, &[answer]),
            ..via(&format!("http://{}", proxy.address))
        });
        let report = post(&client, &receiver.named("http", NAME)).await;
        assert_eq!(report.send_error, Some(SendError::Forbidden(kind)));
    }
    // The proxy may be at an address that destinations may not have. Literal destinations stay forbidden.
    let strict = Client::new(ClientSettings {
        rules: EgressRules::default(),
        ..via(&format!("http://{}", proxy.address))
    });
    let report = post(&strict, &receiver.url()).await;
    assert_eq!(fault(&report), TransportError::UnsafeDestination);
    assert_eq!(proxy.connections(), 0);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn names_are_passed_to_the_proxy_only_if_configured() {
    let mut proxy = honest().await;
    let receiver = Receiver::answering(OK).await;
    let address = format!("http://{}", proxy.address);
    let book = FixedResolver::with(NAME, &["10.0.0.1"]);
    let client = Client::new(ClientSettings {
        proxy: Some(address.parse::<Proxy>().unwrap().resolving(true)),
        resolver: book.clone(),
        ..settings()
    });
    assert_eq!(
        status(&post(&client, &receiver.named("http", NAME)).await),
        200
    );
    let port = receiver.address.port();
    let asked = proxy.received().await.head;
    assert!(
        asked.starts_with(&format!("CONNECT {NAME}:{port} ")),
        "{asked}"
    );
    assert_eq!(book.asked.load(std::sync::atomic::Ordering::SeqCst), 0);
    // `localhost` means this machine, not the proxy's.
    post(&client, &receiver.named("http", "localhost")).await;
    let asked = proxy.received().await.head;
    assert!(
        asked.starts_with(&format!("CONNECT 127.0.0.1:{port} ")),
        "{asked}"
    );
    // Forbidden literals and names stay forbidden.
    let strict = Client::new(ClientSettings {
        rules: EgressRules::default(),
        proxy: Some(address.parse::<Proxy>().unwrap().resolving(true)),
        ..settings()
    });
    for url in [receiver.url(), receiver.named("http", "localhost")] {
        assert_eq!(
            fault(&post(&strict, &url).await),
            TransportError::UnsafeDestination
        );
    }
    assert_eq!(proxy.connections(), 2);
}

/// Returns the outcome of a request whose proxy sends these bytes and closes the connection.
async fn answered(said: &'static [u8]) -> Result<SendError, ProxyFault> {
    let mut proxy = Receiver::new(move |mut peer| async move {
        peer.read_connect_target().await?;
        peer.write(said).await?;
        peer.socket.shutdown().await.ok()?;
        // Everything that the client sends after the CONNECT request.
        assert_eq!(peer.read_to_end().await, b"");
        Some(())
    })
    .await;
    let sent = through(&proxy)
        .send(confidential("http://127.0.0.1:9999/"))
        .await;
    let asked = proxy.received().await;
    assert!(!format!("{asked:?}").contains("canary"));
    proxy.ended().await;
    match sent {
        Ok(report) => {
            assert_eq!(report.first_byte_at, None);
            assert_eq!(fault(&report), TransportError::Connection);
            Ok(report.send_error.unwrap())
        }
        Err(LocalFault::Proxy(fault)) => Err(fault),
        Err(other) => panic!("expected a proxy fault, got {other}"),
    }
}

#[tokio::test]
async fn faults_of_the_proxy_are_distinct_local_faults() {
    for (said, fault) in [
        (
            b"HTTP/1.1 407 Who are you\r\ncontent-length: 2\r\n\r\nno".as_slice(),
            ProxyFault::Unauthorized,
        ),
        (b"HTTP/1.1 400 No\r\n\r\n", ProxyFault::Status(400)),
        (b"HTTP/1.1 405 No\r\n\r\n", ProxyFault::Status(405)),
        (b"HTTP/1.1 429 No\r\n\r\n", ProxyFault::Status(429)),
        (b"HTTP/1.1 500 No\r\n\r\n", ProxyFault::Status(500)),
        (
            b"HTTP/1.1 302 No\r\nlocation: http://127.0.0.1/\r\n\r\n",
            ProxyFault::Status(302),
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ProxyFault::Status(100)),
        (b"HTTP/1.1 101 Other\r\n\r\n", ProxyFault::Status(101)),
        (b"SSH-2.0-OpenSSH_9.9\r\n", ProxyFault::Malformed),
        (b"\x15\x03\x01\x00\x02\x02\x46", ProxyFault::Malformed),
        (b"HTTP/2.0 200 OK\r\n\r\n", ProxyFault::Malformed),
        (b"HTTP/1.1 2OO OK\r\n\r\n", ProxyFault::Malformed),
        (b"HTTP/1.1 200 OK\r\n", ProxyFault::Closed),
        (b"", ProxyFault::Closed),
    ] {
        assert_eq!(answered(said).await, Err(fault));
    }
}

#[tokio::test]
async fn errors_of_the_destination_count_as_its_fault() {
    for said in [
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n".as_slice(),
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
        b"HTTP/1.1 504 Gateway Timeout\r\n\r\n",
    ] {
        assert_eq!(answered(said).await, Ok(SendError::UnreachableThroughProxy));
    }
    let forbidden = answered(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
    assert_eq!(forbidden, Ok(SendError::RefusedByProxy));
}

#[tokio::test]
async fn an_endless_proxy_response_is_refused() {
    let mut proxy = Receiver::new(|mut peer| async move {
        peer.read_connect_target().await?;
        peer.write("HTTP/1.1 200 OK\r\n").await?;
        loop {
            peer.write("x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")
                .await?;
        }
    })
    .await;
    let sent = through(&proxy)
        .send(confidential("http://127.0.0.1:9999/"))
        .await;
    assert_eq!(
        sent.unwrap_err(),
        LocalFault::Proxy(ProxyFault::HeadTooLarge)
    );
    proxy.ended().await;
}

#[tokio::test]
async fn an_unreachable_proxy_is_a_local_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for (proxy, fault) in [
        (
            format!("http://{address}"),
            ProxyFault::Unreached(SendError::Refused),
        ),
        (
            "http://posthaste-proxy.invalid:3128".to_owned(),
            ProxyFault::Unresolved,
        ),
    ] {
        let client = Client::new(via(&proxy));
        let sent = client.send(confidential("http://127.0.0.1:9999/")).await;
        assert_eq!(sent.unwrap_err(), LocalFault::Proxy(fault));
    }
}

#[tokio::test]
async fn a_timeout_before_the_connect_request_is_a_local_fault() {
    let late = |client: Client, url: &'static str| async move {
        let request = Request {
            time_limit: SHORT,
            ..confidential(url)
        };
        client.send(request).await
    };
    let (listener, _queue) = full_backlog("127.0.0.1:0").await;
    let full_backlog = format!("http://{}", listener.local_addr().unwrap());
    let sent = late(Client::new(via(&full_backlog)), "http://127.0.0.1:9999/").await;
    assert_eq!(sent.unwrap_err(), LocalFault::Proxy(ProxyFault::TimedOut));

    let silent = Receiver::new(|mut peer| async move {
        peer.gone().await;
        Some(())
    })
    .await;
    let stalled = format!("https://{}", silent.address);
    let sent = late(Client::new(via(&stalled)), "http://127.0.0.1:9999/").await;
    assert_eq!(sent.unwrap_err(), LocalFault::Proxy(ProxyFault::TimedOut));

    let report = late(through(&silent), "http://127.0.0.1:9999/").await;
    let report = report.unwrap();
    assert_eq!(
        report.send_error,
        Some(SendError::TimedOut(RequestPhase::Connecting))
    );
    assert_eq!(fault(&report), TransportError::Timeout);
}

#[tokio::test]
async fn credentials_are_sent_only_to_the_proxy() {
    let mut proxy = honest().await;
    let mut receiver = Receiver::answering(OK).await;
    let url = format!("http://canary-user:canary-word@{}", proxy.address);
    let client = Client::new(via(&url));
    assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    let asked = proxy.received().await.head;
    // canary-user:canary-word
    let encoded = "Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXdvcmQ=";
    assert!(asked.contains(&format!("\r\nProxy-Authorization: Basic {encoded}\r\n")));
    let received = receiver.received().await;
    assert!(
        !received.head.to_lowercase().contains("proxy"),
        "{}",
        received.head
    );

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_url = url.replace(
        &proxy.address.to_string(),
        &gone.local_addr().unwrap().to_string(),
    );
    drop(gone);
    let fault = Client::new(via(&gone_url))
        .send(request(&receiver.url()))
        .await;
    let fault = fault.unwrap_err();
    let shown = format!("{fault} {fault:?} {:?}", via(&url).proxy);
    for secret in ["canary", encoded] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn bytes_after_the_head_belong_to_the_tunnel() {
    // The response of the proxy and the first bytes of the receiver arrive together. An HTTP receiver that
    // sends first is wrong, which can only be detected if its bytes are not lost.
    let early = format!("{ESTABLISHED}HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly");
    let early: Arc<str> = early.into();
    let proxy = Receiver::new(move |mut peer| {
        let early = Arc::clone(&early);
        async move {
            peer.read_connect_target().await?;
            peer.write(early.as_bytes()).await?;
            peer.gone().await;
            Some(())
        }
    })
    .await;
    let report = through(&proxy)
        .send(confidential("http://127.0.0.1:9999/"))
        .await;
    let report = report.unwrap();
    assert_eq!(
        fault(&report),
        TransportError::Connection,
        "{}",
        report.detail()
    );
}

#[tokio::test]
async fn the_next_address_is_tried_if_the_proxy_does_not_reach_the_first() {
    let receiver = Receiver::answering(OK).await;
    let mut proxy = Receiver::new(|mut peer| async move {
        let target = peer.read_connect_target().await?;
        if target.starts_with("127.0.0.3:") {
            let mut beyond = TcpStream::connect(target.replace("0.3", "0.1"))
                .await
                .ok()?;
            peer.write(ESTABLISHED).await?;
            copy_bidirectional(&mut peer.socket, &mut beyond).await.ok();
            return Some(());
        }
        peer.write("HTTP/1.1 503 No\r\n\r\n").await
    })
    .await;
    let reached = |addresses: &str| {
        let client = Client::new(ClientSettings {
            resolver: FixedResolver::with(NAME, &[addresses]),
            ..via(&format!("http://{}", proxy.address))
        });
        let url = receiver.named("http", NAME);
        async move { post(&client, &url).await }
    };
    let report = reached("127.0.0.2 127.0.0.3").await;
    assert_eq!(status(&report), 200);
    let report = reached("127.0.0.4 127.0.0.5 127.0.0.6 127.0.0.3").await;
    assert_eq!(report.send_error, Some(SendError::UnreachableThroughProxy));
    assert_eq!(proxy.connections(), 5);
    assert_eq!(proxy.untaken_requests(), 5);
}
