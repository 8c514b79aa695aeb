//! Connections that are used again, and those that must not be.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::classify::Fault;
use posthaste_egress::{Client, ClientSettings, Mishap, PoolKey, Report, Request};
use tokio::sync::{Barrier, mpsc};

use crate::kit::*;

async fn post_as(client: &Client, key: &str, url: &str) -> Report {
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
    // Now and then a connection is asked for a moment before it is ready again.
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

/// A receiver that answers `count` requests per connection and then does something else.
async fn answering_then_closing(count: usize) -> (Receiver, mpsc::UnboundedReceiver<()>) {
    let (closed_in, closed) = mpsc::unbounded_channel();
    let receiver = Receiver::new(move |mut peer| {
        let closed_in = closed_in.clone();
        async move {
            for _ in 0..count {
                peer.hear().await?;
                peer.say(OK).await?;
            }
            drop(peer);
            closed_in.send(()).ok()
        }
    })
    .await;
    (receiver, closed)
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_costs_nothing() {
    let (mut receiver, mut closed) = answering_then_closing(1).await;
    let client = client();
    for _ in 0..10 {
        // Each finds the connection of the one before it: closed by the receiver, and in most cases
        // not yet known to be.
        assert_eq!(status(&post(&client, &receiver.url()).await), 200);
        closed.recv().await.unwrap();
    }
    assert_eq!(receiver.connections(), 10);
    assert_eq!(receiver.unasked(), 10);
}

#[tokio::test]
async fn a_request_that_was_written_is_never_written_again() {
    let mut receiver = Receiver::new(|mut peer| async move {
        peer.hear().await?;
        peer.say(OK).await?;
        peer.hear().await
    })
    .await;
    let client = client();
    assert_eq!(status(&post(&client, &receiver.url()).await), 200);
    let report = post(&client, &receiver.url()).await;
    assert!(report.reused);
    assert_eq!(fault(&report), Fault::Connection);
    assert_eq!(report.mishap, Some(Mishap::ClosedBeforeAnswer));
    receiver.ended().await;
    assert_eq!(receiver.unasked(), 2);
    assert_eq!(receiver.connections(), 1);
}

/// Sends one request per key, all at once, and waits for all the answers.
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

/// A receiver that answers only when `count` requests have arrived.
async fn gathering(count: usize) -> Receiver {
    let gathered = Arc::new(Barrier::new(count));
    Receiver::new(move |mut peer| {
        let gathered = Arc::clone(&gathered);
        async move {
            loop {
                peer.hear().await?;
                gathered.wait().await;
                peer.say(OK).await?;
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
async fn the_longest_idle_connection_goes_first() {
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

/// Lets time pass, without waiting for it, between two requests.
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
    // Nobody asks for it any more, and still it goes.
    pass(Duration::from_secs(26)).await;
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn an_old_connection_is_not_used_again() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    let mut reused = 0;
    for _ in 0..10 {
        reused += usize::from(post(&client, &receiver.url()).await.reused);
        pass(Duration::from_secs(15)).await;
    }
    // A connection lives for 120 s, however busy it is.
    assert_eq!((receiver.connections(), reused), (2, 8));
}

#[tokio::test]
async fn a_receiver_that_closes_early_and_says_so_is_not_raced() {
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
async fn a_receiver_that_closes_is_believed() {
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
