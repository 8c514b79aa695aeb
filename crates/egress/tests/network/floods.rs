//! HTTP/1.1 receivers that send valid bytes for ever without a response.
//!
//! Interim responses, chunk extensions and blank lines are valid and carry nothing. The connection must end when
//! the allowance of the request is used up, long before the time limit. Slow but honest responses must pass.

use std::sync::Arc;

use posthaste_core::classify::TransportError;
use posthaste_egress::{SendError, SendReport};

use crate::fixture::*;

/// Sends a request to a receiver that sends `first` and then `again` without end, as fast as possible. Only the
/// first connection behaves like this.
async fn flooded(first: impl Into<String>, again: impl Into<String>) -> SendReport {
    let (first, again): (Arc<str>, Arc<str>) = (first.into().into(), again.into().into());
    let fresh = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mut receiver = Receiver::new(move |mut peer| {
        let (first, again) = (Arc::clone(&first), again.repeat(100));
        let is_first = fresh.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            peer.read_request().await?;
            if is_first {
                peer.write(first.as_bytes()).await?;
                loop {
                    peer.write(&again).await?;
                }
            }
            peer.write(OK).await
        }
    })
    .await;
    let client = client();
    let report = post(&client, &receiver.url()).await;
    assert_eq!(fault(&report), TransportError::Connection, "{report:?}");
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
    let next = post(&client, &receiver.url()).await;
    assert_eq!((status(&next), next.reused), (200, false));
    report
}

#[tokio::test]
async fn endless_interim_responses_end_the_connection() {
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
        "HTTP/1.1 102 Processing\r\n\r\n".to_owned(),
        format!("HTTP/1.1 103 Hints\r\nlink: {}\r\n\r\n", "x".repeat(4_000)),
    ] {
        let report = flooded("", &interim).await;
        assert_eq!(report.send_error, Some(SendError::Flooded));
        assert!(report.first_byte_at.is_some());
    }
}

/// Asserts that a flood ended the connection.
fn assert_ended(report: SendReport) {
    let send_error = report.send_error.unwrap();
    assert!(
        [
            SendError::Flooded,
            SendError::Malformed,
            SendError::HeadTooLarge
        ]
        .contains(&send_error),
        "{send_error}"
    );
}

#[tokio::test]
async fn chunks_with_long_extensions_end_the_connection() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    // One chunk with a long extension, many with short ones, trailers without end.
    for (first, again) in [
        (format!("{HEAD}1;"), "x"),
        (HEAD.to_owned(), "1;xxxxxxxxxxxxxxxxxxxxx\r\nx\r\n"),
        (format!("{HEAD}0\r\n"), "x: y\r\n"),
        (format!("{HEAD}0\r\nx: "), "y"),
    ] {
        assert_ended(flooded(&first, again).await);
    }
}

#[tokio::test]
async fn endless_blank_lines_end_the_connection() {
    for blank in ["\r\n", "\n"] {
        assert_ended(flooded("", blank).await);
    }
}

#[tokio::test]
async fn a_response_in_single_bytes_is_accepted() {
    // The largest valid overhead: 60 KiB of body in 360 KiB of chunks.
    let chunks = "1\r\nx\r\n".repeat(60 * 1_024);
    let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let receiver = Receiver::answering(answer).await;
    let client = client();
    for reused in [false, true, true] {
        let report = post(&client, &receiver.url()).await;
        assert_eq!((status(&report), report.reused), (200, reused));
    }
}

#[tokio::test]
async fn unused_allowance_is_not_available_to_the_next_request() {
    // Interim responses within the allowance of one request, many times on one connection.
    let interims = "HTTP/1.1 102 Processing\r\n\r\n".repeat(4_000);
    let receiver = Receiver::answering(format!("{interims}{OK}")).await;
    let client = client();
    for nth in 0..50 {
        let report = post(&client, &receiver.url()).await;
        assert_eq!((status(&report), report.reused), (200, nth > 0));
    }
    let receiver = Receiver::answering(format!("{}{OK}", interims.repeat(8))).await;
    let report = post(&client, &receiver.url()).await;
    assert_eq!(report.send_error, Some(SendError::Flooded));
}
