//! Tests of idle connections, of the limits per peer, and of the slots that are reserved for health checks.

use super::*;

#[tokio::test]
async fn an_idle_connection_is_closed_but_none_with_a_request_in_progress() {
    let listening = Listening::start(|settings| {
        settings.idle_timeout = Duration::from_millis(50);
        settings.head_timeout = Duration::from_mins(1);
    })
    .await;
    let mut idle = listening.connect().await;
    assert!(idle.get("/").await.ends_with("anything"));
    let mut silent = listening.connect().await;
    let mut waiting = listening.connect().await;
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.read_to_end().await, "");
    assert_eq!(silent.read_to_end().await, "");
    // The one that waits has been idle for as long.
    tokio::time::sleep(Duration::from_millis(150)).await;
    listening.release.notify_one();
    let answer = waiting.read_answer().await;
    assert!(answer.ends_with("waited"), "{answer}");
    assert_eq!(waiting.read_to_end().await, "");
    listening.until_open(0).await;
}

#[tokio::test]
async fn the_time_limit_of_heads_does_not_end_an_idle_connection() {
    let limit = Duration::from_millis(100);
    let listening = Listening::start(|settings| {
        settings.idle_timeout = Duration::from_mins(1);
        settings.head_timeout = limit;
    })
    .await;
    let mut idle = listening.connect().await;
    assert!(idle.get("/").await.ends_with("anything"));
    // The first head must arrive in time, and so must one that has begun.
    let mut silent = listening.connect().await;
    assert_eq!(silent.read_to_end().await, "");
    let mut slow = listening.connect().await;
    assert!(slow.get("/").await.ends_with("anything"));
    tokio::time::sleep(2 * limit).await;
    slow.send("GET / HTTP/1.1\r\nHost").await;
    assert_eq!(slow.read_to_end().await, "");
    assert!(idle.get("/").await.ends_with("anything"));
    // A slow response or body is no slow head.
    idle.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n")
        .await;
    tokio::time::sleep(2 * limit).await;
    listening.release.notify_one();
    idle.send("Host: a\r\n\r\n").await;
    assert!(idle.read_answer().await.ends_with("waited"));
    assert!(idle.read_answer().await.ends_with("anything"));
    idle.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1")
        .await;
    tokio::time::sleep(2 * limit).await;
    idle.send("2").await;
    assert!(idle.read_answer().await.ends_with("12"));
}

#[tokio::test]
async fn a_peer_beyond_its_connections_gets_only_health_checks() {
    let listening = Listening::start(|settings| {
        settings.max_connections_per_peer = Some(2);
    })
    .await;
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut first = listening.connect().await;
    let mut second = listening.connect().await;
    assert!(first.get("/").await.ends_with("anything"));
    assert!(second.get("/").await.ends_with("anything"));
    let mut third = listening.connect().await;
    let answer = third.get("/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}",
            "x".repeat(100_000)
        ),
    ] {
        let mut refused = listening.connect().await;
        refused.send(request).await;
        let answer = refused.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        assert!(answer.contains("\"code\":\"overloaded\""), "{answer}");
        assert!(answer.contains("limits.connections_per_peer"), "{answer}");
    }
    let mut of_other = listening.connect_from(other).await;
    assert!(of_other.get("/").await.ends_with("anything"));
    let refused = "posthaste_connections_refused_total{reason=\"connections_per_peer\"}";
    listening.until_open(3).await;
    assert_eq!(listening.metric(refused), 2);
    drop(first);
    listening.until_open(2).await;
    let mut again = listening.connect().await;
    assert!(again.get("/").await.ends_with("anything"));
}

#[tokio::test]
async fn health_checks_are_answered_while_all_connections_are_in_use() {
    let listening = Listening::start(|settings| settings.max_connections = 1).await;
    let mut only = listening.connect().await;
    assert!(only.get("/").await.ends_with("anything"));
    // More than there are reserved slots, and none of them sends anything.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(listening.connect().await);
    }
    for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        for path in ["/healthz", "/readyz", "/metrics"] {
            let mut prober = listening.connect_from(address).await;
            let answer = prober.get(path).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
    }
    let mut refused = listening.connect().await;
    let answer = refused.get("/").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("limits.connections`"), "{answer}");
    assert!(only.get("/").await.ends_with("anything"));
    drop(silent);
    listening.until_open(1).await;
}

#[tokio::test]
async fn a_connection_in_a_reserved_slot_is_short() {
    let listening = Listening::start(|settings| {
        settings.max_connections = 0;
        settings.head_timeout = Duration::from_millis(50);
    })
    .await;
    let mut silent = listening.connect().await;
    assert_eq!(silent.read_to_end().await, "");
    listening.until_open(0).await;
    let refused = "posthaste_connections_refused_total{reason=\"connections\"}";
    assert_eq!(listening.metric(refused), 1);
}
