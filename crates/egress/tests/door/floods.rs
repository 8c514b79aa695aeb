//! HTTP/1.1 receivers that send valid bytes for ever without a response.

use std::sync::Arc;

use posthaste_core::classify::Fault;
use posthaste_egress::{SendError, SendReport};

use crate::kit::*;

/// Sends a request to a receiver that sends `first` and then `again` without end, as fast as possible. Only the
/// first connection behaves like this.
async fn flooded(first: impl Into<String>, again: impl Into<String>) -> SendReport {
    let (first, again): (Arc<str>, Arc<str>) = (first.into().into(), again.into().into());
    let fresh = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mut receiver = Receiver::new(move |mut peer| {
        let (first, again) = (Arc::clone(&first), again.repeat(100));
        let is_first = fresh.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            peer.hear().await?;
            if is_first {
                peer.say(first.as_bytes()).await?;
                loop {
                    peer.say(&again).await?;
                }
            }
            peer.say(OK).await
        }
    })
    .await;
    let client = client();
    let report = post(&client, &receiver.url()).await;
    assert_eq!(fault(&report), Fault::Connection, "{report:?}");
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
    let next = post(&client, &receiver.url()).await;
    assert_eq!((status(&next), next.reused), (200, false));
    report
}

#[tokio::test]
async fn interim_answers_without_end() {
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
        "HTTP/1.1 102 Processing\r\n\r\n".to_owned(),
        format!("HTTP/1.1 103 Hints\r\nlink: {}\r\n\r\n", "x".repeat(4_000)),
    ] {
        let report = flooded("", &interim).await;
        assert_eq!(report.mishap, Some(SendError::Flooded));
        assert!(report.first_byte_at.is_some());
    }
}

#[tokio::test]
async fn chunks_that_are_mostly_extensions() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    // One chunk with a long extension, many with short ones, trailers without end.
    for (first, again) in [
        (format!("{HEAD}1;"), "x"),
        (HEAD.to_owned(), "1;xxxxxxxxxxxxxxxxxxxxx\r\nx\r\n"),
        (format!("{HEAD}0\r\n"), "x: y\r\n"),
        (format!("{HEAD}0\r\nx: "), "y"),
    ] {
        let report = flooded(&first, again).await;
        let mishap = report.mishap.unwrap();
        assert!(
            [
                SendError::Flooded,
                SendError::Malformed,
                SendError::HeadTooLarge
            ]
            .contains(&mishap),
            "{mishap}"
        );
    }
}

#[tokio::test]
async fn a_head_of_blank_lines() {
    for blank in ["\r\n", "\n"] {
        let report = flooded("", blank).await;
        let mishap = report.mishap.unwrap();
        assert!(
            [
                SendError::Flooded,
                SendError::Malformed,
                SendError::HeadTooLarge
            ]
            .contains(&mishap),
            "{mishap}"
        );
    }
}

#[tokio::test]
async fn an_answer_in_single_bytes_is_no_flood() {
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
async fn what_one_request_left_over_another_cannot_use() {
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
    assert_eq!(report.mishap, Some(SendError::Flooded));
}
