//! The operator's egress proxy, and deliveries that wait while it is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fixture::{PATIENCE, Receiver, TestServer, posthaste};

/// Minimum pause of a delivery after a fault of posthaste itself.
const REST: Duration = Duration::from_secs(1);

/// A proxy that closes every connection until it is fixed.
struct Proxy {
    url: String,
    repaired: Arc<AtomicBool>,
    /// One message for each connection.
    visits: mpsc::UnboundedReceiver<()>,
}

impl Proxy {
    async fn broken() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let repaired = Arc::new(AtomicBool::new(false));
        let (came, visits) = mpsc::unbounded_channel();
        let works = repaired.clone();
        tokio::spawn(async move {
            while let Ok((visitor, _)) = listener.accept().await {
                let _ = came.send(());
                if works.load(Ordering::SeqCst) {
                    tokio::spawn(relay(visitor));
                }
            }
        });
        Proxy {
            url: format!("http://canary-user:canary-word@{address}"),
            repaired,
            visits,
        }
    }

    async fn visited(&mut self) {
        let visit = timeout(PATIENCE, self.visits.recv()).await;
        visit
            .expect("the proxy was not called in time")
            .expect("a running proxy");
    }
}

async fn relay(mut visitor: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(visitor.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut beyond = TcpStream::connect(head.split(' ').nth(1)?).await.ok()?;
    visitor.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    copy_bidirectional(&mut visitor, &mut beyond).await.ok()?;
    Some(())
}

#[tokio::test]
async fn deliveries_wait_for_a_broken_proxy_without_using_attempts() {
    let mut proxy = Proxy::broken().await;
    let receiver = Receiver::healthy().await;
    let setting = format!("egress_proxy={}", proxy.url);
    // One failure would trip the breaker.
    let trips = "breaker.consecutive_failures=1";
    let (_server, mut api) =
        TestServer::start_with_tenant(&["--set", &setting, "--set", trips]).await;
    // The first attempt that counts is the last one.
    let endpoint = json!({
        "url": receiver.url(),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "1s"}, "max_attempts": 1},
    });
    let endpoint = api.endpoint("acme", endpoint).await;
    let event = json!({"type": "a.b", "payload": {}});
    let delivery = api.deliver("acme", event).await;
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");

    proxy.visited().await;
    let first = Instant::now();
    for _ in 0..2 {
        proxy.visited().await;
    }
    // The delivery is not tried again immediately.
    assert!(first.elapsed() >= REST, "{:?}", first.elapsed());
    let shown = api.get(&path).await.expect(200);
    assert_eq!(shown["attempt_count"], 0, "{shown}");
    assert_eq!(shown["attempts"], json!([]));
    assert!(!["failed", "succeeded"].contains(&shown["status"].as_str().expect("a status")));
    let id = endpoint["id"].as_str().expect("an id");
    let health = format!("/v1/tenants/acme/endpoints/{id}/health");
    let health = api.get(&health).await.expect(200);
    assert_eq!(health["breaker"]["state"], "passing", "{health}");
    assert_eq!(receiver.count(), 0);

    proxy.repaired.store(true, Ordering::SeqCst);
    let arrival = receiver.arrivals(1).await.remove(0);
    assert_eq!(
        (arrival.attempt(), arrival.delivery()),
        (1, delivery.to_owned())
    );
    let shown = api.until(&path, |body| body["status"] == "succeeded").await;
    assert_eq!(shown["attempt_count"], 1);
    assert_eq!(receiver.count(), 1);
}

#[test]
fn an_invalid_proxy_url_is_not_repeated() {
    let output = posthaste()
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("POSTHASTE_EGRESS_PROXY", "http://u:canary@proxy:port")
        .output()
        .expect("the program runs");
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("POSTHASTE_EGRESS_PROXY"), "{stderr}");
    assert!(!stderr.contains("canary"), "{stderr}");
}
