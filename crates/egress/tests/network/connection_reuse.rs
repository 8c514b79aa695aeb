//! Reuse of connections: which are reused, and which must not be.
//!
//! A connection is reused only for the same pool key and origin, while it is open, young enough and not idle for
//! too long. A request that was written is never sent a second time. Idle connections are bounded per key and in
//! total.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, ClientSettings, PoolKey, Request, SendError, SendReport};
use tokio::sync::Barrier;

use crate::fixture::*;

async fn post_as(client: &Client, key: &str, url: &str) -> SendReport {
    let request = Request {
        pool_key: PoolKey::new(key),
        ..request(url)
    };
    client.send(request).await.unwrap()
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    for nth in 0..5 {
        let report = post(&client, &receiver.url()).await;
        assert_eq!((status(&report), report.reused), (200, nth > 0));
        assert_eq!(client.idle_connections(), 1);
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_used_again_by_another_thread() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    for _ in 0..200 {
        assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    }
    // Sometimes a connection is needed a moment before it is ready again.
    assert!(receiver.connections() < 20, "{}", receiver.connections());
}

#[tokio::test]
async fn no_connection_is_shared_between_keys_or_origins() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    let name = receiver.named("http", "localhost");
    for round in 0..2 {
        for key in ["acme", "globex"] {
            for url in [&receiver.url(), &name] {
                let report = post_as(&client, key, url).await;
                assert_eq!((status(&report), report.reused), (200, round > 0));
            }
        }
    }
    assert_eq!(receiver.connections(), 4);
    client.forget(&PoolKey::new("acme"));
    assert_eq!(client.idle_connections(), 2);
    assert!(!post_as(&client, "acme", &name).await.reused);
    assert!(post_as(&client, "globex", &name).await.reused);
}

/// A receiver on its own thread, which answers one request per connection and closes the connection on a
/// message. Returns the number of answered requests when the test drops the sender.
fn connection_close_is_honoured(
    listener: std::net::TcpListener,
    close_signals: &std::sync::mpsc::Receiver<()>,
    closed: &std::sync::mpsc::Sender<()>,
) -> usize {
    let mut answered = 0;
    loop {
        let (mut socket, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n{}") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            received.extend(byte);
        }
        socket.write_all(OK.as_bytes()).unwrap();
        answered += 1;
        if close_signals.recv().is_err() {
            return answered;
        }
        drop(socket);
        closed.send(()).unwrap();
    }
}

#[test]
fn an_idle_connection_that_ended_causes_no_failure() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (close_sender, close_signals) = std::sync::mpsc::channel();
    let (closed_in, closed) = std::sync::mpsc::channel();
    let receiver = std::thread::spawn(move || {
        connection_close_is_honoured(listener, &close_signals, &closed_in)
    });
    // A runtime that polls the sockets after every step: the request is already on its way to the connection's
    // task when the task learns that the connection has ended.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().event_interval(1).build().unwrap();
    runtime.block_on(async {
        let client = client();
        assert_eq!(status(&post(&client, &url).await), 200);
        assert_eq!(client.idle_connections(), 1);
        let second = tokio::spawn(async move {
            // No other task runs between the end of the connection and its next use.
            close_sender.send(()).unwrap();
            closed.recv().unwrap();
            post(&client, &url).await
        });
        let report = second.await.unwrap();
        assert_eq!((status(&report), report.reused), (200, false));
    });
    assert_eq!(receiver.join().unwrap(), 2);
}

#[tokio::test]
async fn a_written_request_is_never_sent_again() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.read_request().await?;
        peer.write(OK).await?;
        peer.read_request().await
    })
    .await;
    let client = client();
    assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    let report = post(&client, &receiver.url()).await;
    assert!(report.reused);
    assert_eq!(fault(&report), TransportError::Connection);
    assert_eq!(report.send_error, Some(SendError::ClosedBeforeAnswer));
    receiver.ended().await;
    assert_eq!(receiver.untaken_requests(), 2);
    assert_eq!(receiver.connections(), 1);
}

/// Sends one request per key, all at once, and waits for all responses.
async fn all_at_once(client: &Client, receiver: &Receiver, keys: &[&str]) {
    let sent: Vec<_> = keys
        .iter()
        .map(|key| {
            let (client, key, url) = (client.clone(), (*key).to_owned(), receiver.url());
            tokio::spawn(async move { status(&post_as(&client, &key, &url).await) })
        })
        .collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

/// Starts a receiver that answers only when `count` requests have arrived.
async fn gathering(count: usize) -> Receiver {
    let gathered = Arc::new(Barrier::new(count));
    Receiver::new(move |mut peer| {
        let gathered = Arc::clone(&gathered);
        async move {
            loop {
                peer.read_request().await?;
                gathered.wait().await;
                peer.write(OK).await?;
            }
        }
    })
    .await
}

#[tokio::test]
async fn idle_connections_are_bounded_per_key() {
    let mut receiver = gathering(5).await;
    let client = Client::new(ClientSettings {
        max_idle_per_key: 2,
        ..settings()
    });
    all_at_once(&client, &receiver, &["a", "a", "a", "a", "b"]).await;
    assert_eq!(receiver.connections(), 5);
    assert_eq!(client.idle_connections(), 3);
    receiver.ended().await;
    receiver.ended().await;
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed_first() {
    let mut receiver = Receiver::answering(OK).await;
    let client = Client::new(ClientSettings {
        max_idle_total: 2,
        ..settings()
    });
    for key in ["a", "b", "a", "c"] {
        post_as(&client, key, &receiver.url()).await;
    }
    assert_eq!(client.idle_connections(), 2);
    receiver.ended().await;
    assert!(post_as(&client, "a", &receiver.url()).await.reused);
    assert!(post_as(&client, "c", &receiver.url()).await.reused);
    assert!(!post_as(&client, "b", &receiver.url()).await.reused);
}

/// Advances the clock between two requests, without waiting.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_time() {
    let mut receiver = Receiver::answering(OK).await;
    let client = client();
    post(&client, &receiver.url()).await;
    pass(Duration::from_secs(19)).await;
    assert!(post(&client, &receiver.url()).await.reused);
    // It is closed although no further request is made.
    pass(Duration::from_secs(26)).await;
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn a_connection_beyond_its_maximum_age_is_not_reused() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    for nth in 0..12 {
        let report = post(&client, &receiver.url()).await;
        // A connection lives for 120 s, even if it is busy.
        assert_eq!(report.reused, nth % 8 != 0, "after {} s", nth * 15);
        pass(Duration::from_secs(15)).await;
    }
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn the_keep_alive_timeout_of_the_receiver_is_honoured() {
    let receiver = Receiver::answering(
        "HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let client = client();
    post(&client, &receiver.url()).await;
    pass(Duration::from_millis(3_900)).await;
    assert!(post(&client, &receiver.url()).await.reused);
    pass(Duration::from_millis(4_100)).await;
    assert!(!post(&client, &receiver.url()).await.reused);
}

#[tokio::test]
async fn a_connection_closed_by_the_receiver_is_not_reused() {
    let receiver =
        Receiver::answering("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
            .await;
    let client = client();
    for _ in 0..3 {
        let report = post(&client, &receiver.url()).await;
        assert_eq!((status(&report), report.reused), (200, false));
    }
    assert_eq!(client.idle_connections(), 0);
}

/// A receiver that responds before it reads keeps the request from being written. It must not be able to
/// accumulate connections in this way.
#[tokio::test]
async fn connections_that_are_still_being_written_are_bounded() {
    const SENT: usize = 30;
    let receiver = Receiver::new(|mut peer| async move {
        peer.write(OK).await?;
        // Never reads.
        std::future::pending().await
    })
    .await;
    let client = Client::new(ClientSettings {
        max_idle_total: 4,
        ..settings()
    });
    let tasks = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    let before = tasks();
    let body = Bytes::from(vec![0; 16 << 20]);
    for _ in 0..SENT {
        let request = Request {
            body: body.clone(),
            ..request(&receiver.url())
        };
        assert_eq!(status(&client.send(request).await.unwrap()), 200);
    }
    // One task of the receiver for each, and two of the client for each connection that is awaited.
    tokio::task::yield_now().await;
    let after = tasks();
    assert!(
        after <= before + SENT + 2 * 4,
        "too many tasks: {before} before, {after} after"
    );
}
