//! Tests of the trusted client.
//!
//! It connects to addresses that the operator configured, so nothing is vetted: it reaches this machine. Responses,
//! waits and connections are bounded as everywhere, and each failure has its own error.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{
    self, BaseUrl, MAX_ANSWER_BYTES, TrustedClientError, TrustedConnection,
};

use crate::fixture::*;
use crate::tls::{Authority, secured};

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

async fn connected(receiver: &Receiver) -> TrustedConnection {
    let origin = BaseUrl::plain(receiver.address);
    trusted_client::connect(&origin, &Roots::none(), AMPLE)
        .await
        .unwrap()
}

#[tokio::test]
async fn requests_share_a_connection_to_this_machine() {
    let mut receiver = Receiver::answering(OK).await;
    let mut connection = connected(&receiver).await;
    for path in ["/v1/tenants", "/v1/stats"] {
        let answer = connection.send(get(path), AMPLE).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.body()[..]),
            (200, &b"ok"[..])
        );
        let received = receiver.received().await;
        assert_eq!(received.lines()[0], format!("GET {path} HTTP/1.1"));
        let host = format!("host: {}", receiver.address);
        assert!(
            received.lines().contains(&host.as_str()),
            "{}",
            received.head
        );
    }
    assert_eq!(receiver.connections(), 1);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn https_urls_use_tls() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2100), &[]);
    let receiver = secured(config, OK).await;
    let origin: BaseUrl = format!("https://localhost:{}", receiver.address.port())
        .parse()
        .unwrap();
    let trusted = trusted_client::connect(&origin, &authority.roots(), AMPLE).await;
    let answer = trusted.unwrap().send(get("/"), AMPLE).await.unwrap();
    assert_eq!(&answer.body()[..], b"ok");
    let distrusted = trusted_client::connect(&origin, &Roots::mozilla(), AMPLE).await;
    assert!(matches!(distrusted, Err(TrustedClientError::NotSecured(_))));
}

#[tokio::test]
async fn an_unreachable_server_and_a_slow_one_have_distinct_errors() {
    let receiver = Receiver::holding(b"").await;
    let answer = connected(&receiver).await.send(get("/"), SHORT).await;
    assert!(matches!(answer, Err(TrustedClientError::TooSlow(SHORT))));

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let refused = trusted_client::connect(&BaseUrl::plain(address), &Roots::none(), AMPLE).await;
    assert!(matches!(refused, Err(TrustedClientError::NotConnected(_))));
}

#[tokio::test]
async fn an_endless_response_is_refused() {
    let receiver = Receiver::new(|mut peer| async move {
        peer.read_request().await?;
        peer.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
        for _ in 0..=MAX_ANSWER_BYTES >> 20 {
            peer.write(&chunk).await?;
        }
        peer.gone().await;
        Some(())
    })
    .await;
    let answer = connected(&receiver).await.send(get("/"), AMPLE).await;
    assert!(matches!(answer, Err(TrustedClientError::TooLong)));
}

#[tokio::test]
async fn a_malformed_response_is_an_error() {
    let receiver = Receiver::saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
    let answer = connected(&receiver).await.send(get("/"), AMPLE).await;
    assert!(matches!(answer, Err(TrustedClientError::Broken(_))));
}

#[tokio::test]
async fn a_raw_connection_sends_bytes_unchanged() {
    let mut receiver = Receiver::answering(OK).await;
    let mut sender = trusted_client::dial(receiver.address).await.unwrap();
    let answer = sender.send_request(get("/x")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(receiver.received().await.lines(), ["GET /x HTTP/1.1"]);
}
