//! One time limit covers all phases of a request.
//!
//! Resolving, connecting, the handshake, waiting for the response, and reading head and body each exceed the limit
//! in one test. The send error names the phase, and a dropped request closes its connection.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::classify::TransportError;
use posthaste_egress::{
    Client, ClientSettings, Lookup, RequestPhase, Resolve, SendError, SendReport,
};

use crate::fixture::*;

/// The latency must be at least the limit, and at most 20 times it, for a busy machine.
fn check(report: &SendReport, phase: RequestPhase) {
    assert_eq!(report.send_error, Some(SendError::TimedOut(phase)));
    assert!(report.latency >= SHORT, "{:?}", report.latency);
    assert!(report.latency < SHORT * 20, "{:?}", report.latency);
}

struct Silent;

impl Resolve for Silent {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn covers_resolving() {
    let client = Client::new(ClientSettings {
        resolver: Arc::new(Silent),
        ..settings()
    });
    let report = post_within(&client, "http://hooks.customer.com/", SHORT).await;
    check(&report, RequestPhase::Resolving);
    assert_eq!(fault(&report), TransportError::Timeout);
}

#[tokio::test]
async fn covers_connecting() {
    let (listener, _queue) = full_backlog("127.0.0.1:0").await;
    let address = listener.local_addr().unwrap();
    let report = post_within(&client(), &format!("http://{address}/"), SHORT).await;
    check(&report, RequestPhase::Connecting);
    assert_eq!(fault(&report), TransportError::Timeout);
}

#[tokio::test]
async fn covers_the_handshake() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.gone().await;
        Some(())
    })
    .await;
    let url = receiver.named("https", "127.0.0.1");
    let report = post_within(&client(), &url, SHORT).await;
    check(&report, RequestPhase::Securing);
    assert_eq!(fault(&report), TransportError::Tls);
    assert!(report.detail().contains("timeout during the handshake"));
    receiver.ended().await;
}

#[tokio::test]
async fn covers_the_wait_for_a_response() {
    let mut receiver = Receiver::holding(b"").await;
    let report = post_within(&client(), &receiver.url(), SHORT).await;
    check(&report, RequestPhase::Awaiting);
    assert_eq!(fault(&report), TransportError::Timeout);
    receiver.ended().await;
}

/// Starts a receiver that sends `head` and then `drop` every 20 ms.
async fn dripping(head: &'static str, drop: &'static str) -> Receiver {
    Receiver::new(move |mut peer| async move {
        peer.read_request().await?;
        peer.write(head).await?;
        loop {
            peer.write(drop).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn covers_a_head_that_arrives_slowly() {
    let mut receiver = dripping("HTTP/1.1 200 OK\r\n", "a: b\r\n").await;
    let report = post_within(&client(), &receiver.url(), SHORT).await;
    check(&report, RequestPhase::Awaiting);
    receiver.ended().await;
}

#[tokio::test]
async fn covers_endless_interim_responses() {
    let mut receiver = dripping("", "HTTP/1.1 102 Processing\r\n\r\n").await;
    let report = post_within(&client(), &receiver.url(), SHORT).await;
    check(&report, RequestPhase::Awaiting);
    receiver.ended().await;
}

#[tokio::test]
async fn covers_a_body_that_arrives_slowly() {
    let mut receiver = dripping("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", "x").await;
    let client = client();
    let report = post_within(&client, &receiver.url(), SHORT).await;
    check(&report, RequestPhase::Reading);
    assert_eq!(fault(&report), TransportError::Timeout);
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let mut receiver = Receiver::holding(b"").await;
    let client = client();
    let url = receiver.url();
    let sending = tokio::spawn(async move { post(&client, &url).await });
    receiver.received().await;
    sending.abort();
    receiver.ended().await;
}
