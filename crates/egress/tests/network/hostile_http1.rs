//! HTTP/1.1 receivers that send wrong, incomplete or endless responses.
//!
//! Each failure maps to one send error. Sizes are bounded: a response with an endless body still counts, an endless
//! head does not. Surplus bytes never become the response to another request.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::classify::TransportError;
use posthaste_egress::{Request, RequestPhase, SendError};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::fixture::*;

/// Returns the send error for a receiver that sends these bytes and closes the connection.
async fn send_error(said: &'static [u8]) -> SendError {
    let receiver = Receiver::saying(said).await;
    let report = post(&client(), &receiver.url()).await;
    let send_error = report
        .send_error
        .clone()
        .unwrap_or_else(|| panic!("the request did not fail: {report:?}"));
    assert_eq!(fault(&report), send_error.fault());
    assert_eq!(send_error.fault(), TransportError::Connection);
    send_error
}

#[tokio::test]
async fn a_closed_port_is_a_refused_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let report = post(&client(), &format!("http://{address}/")).await;
    assert_eq!(fault(&report), TransportError::Connection);
    assert_eq!(report.send_error, Some(SendError::Refused));
    assert_eq!(report.first_byte_at, None);
    assert!(!report.detail().contains("127.0.0.1"));
}

#[tokio::test]
async fn a_reset_connection_is_a_connection_fault() {
    // A socket that is closed with unread bytes is reset.
    let receiver = Receiver::new(|peer| async move { peer.socket.readable().await.ok() }).await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(fault(&report), TransportError::Connection);
    assert_eq!(report.send_error, Some(SendError::Reset));
}

#[tokio::test]
async fn an_incomplete_response_is_a_fault() {
    assert_eq!(send_error(b"").await, SendError::ClosedBeforeAnswer);
    assert_eq!(
        send_error(b"HTTP/1.1 200 O").await,
        SendError::ClosedBeforeAnswer
    );
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n";
    assert_eq!(send_error(head).await, SendError::ClosedBeforeAnswer);
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(send_error(interim).await, SendError::ClosedBeforeAnswer);
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nshort";
    assert_eq!(send_error(body).await, SendError::ClosedMidAnswer);
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n";
    assert_eq!(send_error(chunks).await, SendError::ClosedMidAnswer);
}

#[tokio::test]
async fn a_response_that_is_not_http_is_malformed() {
    for said in [
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n".as_slice(),
        b"\x00\x01\x02\x03\r\n\r\n",
        b"<html>\r\n\r\n",
        b"HTTP/1.1 twohundred OK\r\n\r\n",
        b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 2000 Long\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c: folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nok",
    ] {
        let said_text = String::from_utf8_lossy(said);
        assert_eq!(send_error(said).await, SendError::Malformed, "{said_text}");
    }
}

#[tokio::test]
async fn invalid_statuses_are_malformed() {
    let six_hundred = b"HTTP/1.1 600 Odd\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(send_error(six_hundred).await, SendError::Status(600));
    let last = b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(send_error(last).await, SendError::Status(999));
}

#[tokio::test]
async fn an_endless_head_is_refused() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.read_request().await?;
        peer.write("HTTP/1.1 200 OK\r\n").await?;
        loop {
            peer.write("x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")
                .await?;
        }
    })
    .await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(fault(&report), TransportError::Connection);
    assert_eq!(report.send_error, Some(SendError::HeadTooLarge));
    receiver.ended().await;
}

#[tokio::test]
async fn too_many_headers_are_refused() {
    let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let receiver = Receiver::answering(head).await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(report.send_error, Some(SendError::HeadTooLarge));
}

#[tokio::test]
async fn a_head_up_to_the_limit_is_read() {
    let head = |filler: usize| {
        let filler = "y".repeat(filler);
        format!("HTTP/1.1 200 OK\r\nx: {filler}\r\ncontent-length: 0\r\n\r\n")
    };
    let receiver = Receiver::answering(head(15_000)).await;
    assert_eq!(status(&post(&client(), &receiver.url()).await), 200);
    let receiver = Receiver::answering(head(17_000)).await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(report.send_error, Some(SendError::HeadTooLarge));
}

#[tokio::test]
async fn an_endless_body_counts_as_a_response_and_closes_the_connection() {
    for framing in ["content-length: 99999999999\r\n", ""] {
        let mut receiver = Receiver::new(move |mut peer| async move {
            peer.read_request().await?;
            peer.write(format!("HTTP/1.1 500 Oh\r\n{framing}\r\n"))
                .await?;
            loop {
                peer.write([b'z'; 1_000]).await?;
            }
        })
        .await;
        let client = client();
        let report = post(&client, &receiver.url()).await;
        assert_eq!(status(&report), 500);
        assert_eq!(report.snippet, vec![b'z'; 1_024]);
        assert!(report.snippet_truncated);
        receiver.ended().await;
        assert_eq!(client.idle_connections(), 0);
    }
}

#[tokio::test]
async fn a_second_response_is_never_used_for_the_next_request() {
    let mut receiver = Receiver::new(|mut peer| async move {
        loop {
            peer.read_request().await?;
            peer.write(format!(
                "{OK}HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"
            ))
            .await?;
        }
    })
    .await;
    let client = client();
    for _ in 0..5 {
        assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    }
    assert_eq!(receiver.connections(), 5);
    receiver.ended().await;
}

/// Starts a receiver that responds before it reads anything, and reads only when the test allows it.
async fn never_reading(said: &'static str) -> (Receiver, Arc<Semaphore>) {
    let requests = Arc::new(Semaphore::new(0));
    let listening = Arc::clone(&requests);
    let receiver = Receiver::new(move |mut peer| {
        let listening = Arc::clone(&listening);
        async move {
            peer.socket.readable().await.ok()?;
            peer.write(said).await?;
            listening.acquire().await.ok()?.forget();
            peer.gone().await;
            Some(())
        }
    })
    .await;
    (receiver, requests)
}

#[tokio::test]
async fn a_response_before_the_body_was_read_counts() {
    let (mut receiver, listen) =
        never_reading("HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n").await;
    let client = client();
    let big = Request {
        body: Bytes::from(vec![0; 8_000_000]),
        ..request(&receiver.url())
    };
    let report = client.send(big.clone()).await.unwrap();
    assert_eq!(status(&report), 413);
    // The first connection is still sending the first body.
    let report = client.send(big).await.unwrap();
    assert_eq!((status(&report), report.reused), (413, false));
    assert_eq!(client.idle_connections(), 0);
    drop(client);
    listen.add_permits(2);
    receiver.ended().await;
    receiver.ended().await;
}

#[tokio::test]
async fn a_receiver_that_never_reads_times_out() {
    let (mut receiver, listen) = never_reading("").await;
    let client = client();
    let big = Request {
        body: Bytes::from(vec![0; 8_000_000]),
        time_limit: SHORT,
        ..request(&receiver.url())
    };
    let report = client.send(big).await.unwrap();
    assert_eq!(
        report.send_error,
        Some(SendError::TimedOut(RequestPhase::Awaiting))
    );
    assert!(report.first_byte_at.is_some());
    // If the connection had stayed open, the receiver would never see its end.
    listen.add_permits(1);
    receiver.ended().await;
}
