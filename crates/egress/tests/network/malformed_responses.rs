//! Malformed responses of every kind, on a client that must continue to work.
//!
//! Each shape is sent on a client's first connection. In every case the next request must get its own response:
//! surplus, early or wrongly framed bytes must never become the response to another request. At the end no
//! socket, task or memory may be left over.

use std::sync::Arc;

use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, SendError, SendReport};
use tokio::io::AsyncWriteExt;

use crate::fixture::*;

/// The response to the request after the shape.
const NEXT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext";

/// The receiver's behaviour after it has sent the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It responds normally to the next request.
    GoOn,
    /// It shuts down its sending side and continues to read.
    ShutDown,
    /// It closes the connection.
    HangUp,
    /// It resets the connection.
    Reset,
}

/// The expected end of the request.
#[derive(Clone, Debug, PartialEq)]
enum Ends {
    /// A response with this status and body.
    Answered(u16, &'static [u8]),
    /// A response with this status, and a connection that is not used again.
    Closed(u16),
    /// No response, with this send error.
    Failed(SendError),
    /// No response; the send error depends on the order of packets.
    Broken,
}

use Ends::{Answered, Broken, Closed, Failed};
use Then::{GoOn, HangUp, Reset, ShutDown};

struct Shape {
    said: Vec<u8>,
    then: Then,
    ends: Ends,
}

fn shape(said: impl AsRef<[u8]>, then: Then, ends: Ends) -> Shape {
    Shape {
        said: said.as_ref().to_vec(),
        then,
        ends,
    }
}

fn head(lines: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n").into_bytes()
}

fn chunked(rest: &str) -> Vec<u8> {
    let mut said = head("transfer-encoding: chunked\r\n");
    said.extend(rest.as_bytes());
    said
}

fn with(lines: &str, body: &str) -> Vec<u8> {
    [head(lines), body.as_bytes().to_vec()].concat()
}

/// Contradictory or invalid lengths.
fn lengths() -> Vec<Shape> {
    let malformed = || Failed(SendError::Malformed);
    let both = "content-length: 3\r\ntransfer-encoding: chunked\r\n";
    let both_turned = "transfer-encoding: chunked\r\ncontent-length: 3\r\n";
    let two = "content-length: 2\r\ncontent-length: 3\r\n";
    let same = "content-length: 2\r\ncontent-length: 2\r\n";
    vec![
        shape(
            with(both, "5\r\nhello\r\n0\r\n\r\n"),
            GoOn,
            Answered(200, b"hello"),
        ),
        shape(
            with(both_turned, "5\r\nhello\r\n0\r\n\r\n"),
            GoOn,
            Answered(200, b"hello"),
        ),
        shape(with(two, "ok"), GoOn, malformed()),
        shape(with(same, "ok"), GoOn, Answered(200, b"ok")),
        shape(
            with("content-length: 2, 2\r\n", "ok"),
            GoOn,
            Answered(200, b"ok"),
        ),
        shape(with("content-length: 2, 3\r\n", "ok"), HangUp, malformed()),
        shape(with("content-length: +2\r\n", "ok"), HangUp, malformed()),
        shape(with("content-length: 0x2\r\n", "ok"), HangUp, malformed()),
        shape(with("content-length: 2 2\r\n", "ok"), HangUp, malformed()),
        shape(with("content-length: -1\r\n", "ok"), HangUp, malformed()),
        shape(with("content-length: \r\n", "ok"), HangUp, malformed()),
        shape(
            with("content-length: 18446744073709551615\r\n", "ok"),
            HangUp,
            Failed(SendError::HeadTooLarge),
        ),
        shape(
            with("content-length: 18446744073709551616\r\n", "ok"),
            HangUp,
            malformed(),
        ),
        // More bytes than announced, and fewer.
        shape(
            with("content-length: 2\r\n", "okHTTP/1.1 500 No\r\n\r\n"),
            GoOn,
            Closed(200),
        ),
        shape(
            with("content-length: 4\r\n", "ok"),
            HangUp,
            Failed(SendError::ClosedMidAnswer),
        ),
    ]
}

/// Transfer encodings, with and without a final `chunked`.
fn transfer_encodings() -> Vec<Shape> {
    vec![
        // A response without a length lasts until the connection ends.
        shape(with("", "to the end"), HangUp, Closed(200)),
        shape(
            with("transfer-encoding: identity\r\n", "to the end"),
            HangUp,
            Closed(200),
        ),
        shape(
            with("transfer-encoding: gzip\r\n", "to the end"),
            HangUp,
            Closed(200),
        ),
        shape(
            with("transfer-encoding: xchunked\r\n", "to the end"),
            HangUp,
            Closed(200),
        ),
        shape(
            with("transfer-encoding: chunked, identity\r\n", "0\r\n\r\n"),
            HangUp,
            Closed(200),
        ),
        shape(
            with(
                "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
            GoOn,
            Answered(200, b""),
        ),
        shape(
            with("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n"),
            GoOn,
            Answered(200, b""),
        ),
    ]
}

/// Valid and invalid chunks.
fn chunks() -> Vec<Shape> {
    let malformed = || Failed(SendError::Malformed);
    vec![
        shape(
            chunked("5;a=b\r\nhello\r\n0\r\n\r\n"),
            GoOn,
            Answered(200, b"hello"),
        ),
        shape(chunked("0\r\nx: y\r\n\r\n"), GoOn, Answered(200, b"")),
        shape(chunked("ffffffffffffffff0\r\nhello"), HangUp, malformed()),
        shape(chunked("10000000000000000\r\nhello"), HangUp, malformed()),
        shape(chunked("-5\r\nhello\r\n0\r\n\r\n"), HangUp, malformed()),
        shape(chunked("0x5\r\nhello\r\n0\r\n\r\n"), HangUp, malformed()),
        shape(chunked("\r\nhello\r\n0\r\n\r\n"), HangUp, malformed()),
        shape(chunked("5\r\nhelloX\r\n0\r\n\r\n"), HangUp, malformed()),
        shape(chunked("5\nhello\n0\n\n"), HangUp, malformed()),
        shape(
            chunked("5\r\nhello\r\n0\r\nHTTP/1.1 500 No\r\n\r\n"),
            HangUp,
            malformed(),
        ),
        shape(
            chunked("5\r\nhello\r\n"),
            HangUp,
            Failed(SendError::ClosedMidAnswer),
        ),
        shape(
            chunked("5\r\nhe"),
            HangUp,
            Failed(SendError::ClosedMidAnswer),
        ),
        // A second response after the last chunk.
        shape(
            chunked("5\r\nhello\r\n0\r\n\r\nHTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"),
            GoOn,
            Closed(200),
        ),
        shape(
            chunked(&format!("0\r\nx: {}\r\n\r\n", "y".repeat(100_000))),
            HangUp,
            malformed(),
        ),
        shape(
            chunked(&format!("5;{}\r\nhello", "y".repeat(100_000))),
            HangUp,
            malformed(),
        ),
    ]
}

/// Invalid heads, and old forms that are accepted.
fn heads() -> Vec<Shape> {
    let malformed = || Failed(SendError::Malformed);
    let many = format!("{}content-length: 0\r\n", "a: b\r\n".repeat(5_000));
    let huge = format!("a: {}\r\ncontent-length: 0\r\n", "b".repeat(100_000));
    vec![
        shape("", HangUp, Failed(SendError::ClosedBeforeAnswer)),
        shape("hello world\r\n", HangUp, malformed()),
        shape("<html>hello</html>", HangUp, malformed()),
        shape("\0\0\0\0", HangUp, malformed()),
        shape("GET / HTTP/1.1\r\n\r\n", HangUp, malformed()),
        shape("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HangUp, malformed()),
        shape("HTTP/0.9 200 OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/2.0 200 OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/3 200 OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 2OO OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 20 OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1  200 OK\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\na : b\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\n: b\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\na\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n", HangUp, malformed()),
        shape("HTTP/1.1 200 OK\r\n a: b\r\n\r\n", HangUp, malformed()),
        shape(head(&many), HangUp, Failed(SendError::HeadTooLarge)),
        shape(head(&huge), HangUp, Failed(SendError::HeadTooLarge)),
        shape(
            "HTTP/1.1 200 OK\r\n",
            HangUp,
            Failed(SendError::ClosedBeforeAnswer),
        ),
        // Old forms that are accepted.
        shape("HTTP/1.0 200 OK\r\n\r\nto the end", HangUp, Closed(200)),
        shape(
            "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok",
            GoOn,
            Answered(200, b"ok"),
        ),
        shape(
            "HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
            GoOn,
            Answered(200, b"ok"),
        ),
    ]
}

/// Responses without a body that have one anyway, several responses, and none.
fn endings() -> Vec<Shape> {
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03bomb";
    let bomb = head(&format!(
        "content-encoding: gzip\r\ncontent-length: {}\r\n",
        gzip.len()
    ));
    let second = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
    vec![
        shape("HTTP/1.1 204 No\r\n\r\n", GoOn, Answered(204, b"")),
        shape(
            "HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\nhello",
            GoOn,
            Closed(204),
        ),
        shape(
            "HTTP/1.1 304 No\r\ncontent-length: 5\r\n\r\nhello",
            GoOn,
            Closed(304),
        ),
        shape(
            "HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            GoOn,
            Closed(204),
        ),
        shape(format!("{OK}{second}"), GoOn, Closed(200)),
        shape(format!("{OK}{OK}{OK}"), GoOn, Closed(200)),
        shape(format!("{OK}\r\n"), GoOn, Closed(200)),
        shape(format!("{OK}\0"), GoOn, Closed(200)),
        shape(
            "HTTP/1.1 101 Other\r\nupgrade: x\r\n\r\nhello",
            HangUp,
            Closed(101),
        ),
        shape(
            format!("HTTP/1.1 100 Continue\r\n\r\n{OK}"),
            GoOn,
            Answered(200, b"ok"),
        ),
        shape(
            format!("HTTP/1.1 103 Hints\r\nlink: </>\r\n\r\n{OK}"),
            GoOn,
            Answered(200, b"ok"),
        ),
        shape([bomb, gzip.to_vec()].concat(), GoOn, Answered(200, gzip)),
        // Half-closed: before the response, and after it.
        shape("", ShutDown, Failed(SendError::ClosedBeforeAnswer)),
        shape(
            "HTTP/1.1 200 O",
            ShutDown,
            Failed(SendError::ClosedBeforeAnswer),
        ),
        shape(OK, ShutDown, Closed(200)),
        shape("HTTP/1.1 200 OK\r\n\r\nto the end", ShutDown, Closed(200)),
        shape(OK, HangUp, Closed(200)),
        // Reset: before the response, in its head, in its body.
        shape("", Reset, Broken),
        shape("HTTP/1.1 200 O", Reset, Broken),
        shape(
            "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf",
            Reset,
            Broken,
        ),
        shape(chunked("5\r\nhel"), Reset, Broken),
    ]
}

fn every_shape() -> Vec<Shape> {
    [
        lengths(),
        transfer_encodings(),
        chunks(),
        heads(),
        endings(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Starts a receiver whose first connection sends this shape. The others behave correctly.
async fn shaped(shape: &Shape) -> Receiver {
    let said: Arc<[u8]> = shape.said.clone().into();
    let then = shape.then;
    let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
    Receiver::new(move |mut peer| {
        let said = Arc::clone(&said);
        let is_first = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            if is_first {
                peer.read_request().await?;
                peer.write(&said).await?;
                match then {
                    GoOn => {}
                    ShutDown => {
                        peer.socket.shutdown().await.ok()?;
                        peer.gone().await;
                        return Some(());
                    }
                    HangUp => return Some(()),
                    Reset => {
                        peer.socket.set_zero_linger().ok()?;
                        return Some(());
                    }
                }
            }
            loop {
                peer.read_request().await?;
                peer.write(NEXT).await?;
            }
        }
    })
    .await
}

fn check(shape: &Shape, report: &SendReport, next: &SendReport) {
    let said = String::from_utf8_lossy(&shape.said[..shape.said.len().min(200)]);
    let context = format!("{said:?} {:?}: {report:?}", shape.then);
    match &shape.ends {
        Answered(code, body) => {
            assert_eq!(status(report), *code, "{context}");
            assert_eq!(report.snippet, *body, "{context}");
            assert!(next.reused, "{context}");
        }
        Closed(code) => {
            assert_eq!(status(report), *code, "{context}");
            assert!(!next.reused, "{context}");
        }
        Failed(send_error) => {
            assert_eq!(report.send_error.as_ref(), Some(send_error), "{context}");
            assert_eq!(fault(report), TransportError::Connection, "{context}");
            assert!(!next.reused, "{context}");
        }
        Broken => {
            assert_eq!(fault(report), TransportError::Connection, "{context}");
            assert!(!next.reused, "{context}");
        }
    }
    assert_eq!(status(next), 200, "{context}");
    assert_eq!(next.snippet, b"next", "{context}");
}

/// Sends two requests to a receiver with this shape.
async fn send_twice(client: &Client, shape: &Shape) -> (SendReport, SendReport) {
    let receiver = shaped(shape).await;
    let report = post(client, &receiver.url()).await;
    let next = post(client, &receiver.url()).await;
    client.forget(&request(&receiver.url()).pool_key);
    (report, next)
}

#[tokio::test]
async fn every_shape_has_its_result_and_the_next_request_its_own_response() {
    let client = client();
    for shape in every_shape() {
        let (report, next) = send_twice(&client, &shape).await;
        check(&shape, &report, &next);
    }
}

#[tokio::test]
async fn bytes_on_an_idle_connection_end_it() {
    // The second response arrives after the first was read, and before the next request.
    let (ready_sender, context) = tokio::sync::watch::channel(false);
    let mut receiver = Receiver::new(move |mut peer| {
        let mut context = context.clone();
        async move {
            peer.read_request().await?;
            peer.write(OK).await?;
            context.wait_for(|context| *context).await.ok()?;
            peer.write("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n")
                .await?;
            peer.gone().await;
            Some(())
        }
    })
    .await;
    let client = client();
    assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    assert_eq!(client.idle_connections(), 1);
    ready_sender.send(true).unwrap();
    // The client closes the connection although no request uses it.
    receiver.ended().await;
    let report = post(&client, &receiver.url()).await;
    assert_eq!((status(&report), report.reused), (200, false));
}

#[tokio::test]
async fn no_resources_are_left_over() {
    let shapes = every_shape();
    let client = client();
    let mut footprint = Footprint::now();
    for round in 0..12 {
        for shape in &shapes {
            let (report, next) = send_twice(&client, shape).await;
            check(shape, &report, &next);
        }
        footprint.check(&client).await;
        if round == 1 {
            // Allocations of the first rounds (warm-up) are not counted.
            footprint = Footprint::now();
        }
    }
}
