//! Tests of the trusted client: nothing is vetted, everything is bounded.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, MAX_ANSWER_BYTES, Origin, TrustedClientError};

use crate::kit::*;
use crate::secure::{Authority, secured};

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

async fn connected(receiver: &Receiver) -> Connection {
    let origin = Origin::plain(receiver.address);
    operator::connect(&origin, &Roots::none(), AMPLE)
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
        let heard = receiver.heard().await;
        assert_eq!(heard.lines()[0], format!("GET {path} HTTP/1.1"));
        let host = format!("host: {}", receiver.address);
        assert!(heard.lines().contains(&host.as_str()), "{}", heard.head);
    }
    assert_eq!(receiver.connections(), 1);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn tls_is_spoken_where_the_url_says_so() {
    let authority = Authority::new();
    let config = authority.server("localhost", (2000, 2100), &[]);
    let receiver = secured(config, OK).await;
    let origin: Origin = format!("https://localhost:{}", receiver.address.port())
        .parse()
        .unwrap();
    let trusted = operator::connect(&origin, &authority.roots(), AMPLE).await;
    let answer = trusted.unwrap().send(get("/"), AMPLE).await.unwrap();
    assert_eq!(&answer.body()[..], b"ok");
    let distrusted = operator::connect(&origin, &Roots::mozilla(), AMPLE).await;
    assert!(matches!(distrusted, Err(TrustedClientError::NotSecured(_))));
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_somebody_slow() {
    let receiver = Receiver::holding(b"").await;
    let answer = connected(&receiver).await.send(get("/"), SHORT).await;
    assert!(matches!(answer, Err(TrustedClientError::TooSlow(SHORT))));

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let refused = operator::connect(&Origin::plain(address), &Roots::none(), AMPLE).await;
    assert!(matches!(refused, Err(TrustedClientError::NotConnected(_))));
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let receiver = Receiver::new(|mut peer| async move {
        peer.hear().await?;
        peer.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
        for _ in 0..=MAX_ANSWER_BYTES >> 20 {
            peer.say(&chunk).await?;
        }
        peer.gone().await;
        Some(())
    })
    .await;
    let answer = connected(&receiver).await.send(get("/"), AMPLE).await;
    assert!(matches!(answer, Err(TrustedClientError::TooLong)));
}

#[tokio::test]
async fn a_broken_answer_is_no_answer() {
    let receiver = Receiver::saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
    let answer = connected(&receiver).await.send(get("/"), AMPLE).await;
    assert!(matches!(answer, Err(TrustedClientError::Broken(_))));
}

#[tokio::test]
async fn a_bare_connection_sends_what_it_is_given() {
    let mut receiver = Receiver::answering(OK).await;
    let mut sender = operator::dial(receiver.address).await.unwrap();
    let answer = sender.send_request(get("/x")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(receiver.heard().await.lines(), ["GET /x HTTP/1.1"]);
}
