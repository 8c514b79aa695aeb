//! Tests over real sockets on loopback, without the API behind the listener.

mod callers;
mod malformed_heads;
mod stalled_writes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use posthaste_egress::trusted_client::dial_tcp;
use posthaste_telemetry::metrics::{Gauges, Metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{listen, serve};
use crate::settings::ApiSettings;

/// Time after which a test that waits has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Length of the response of `/large`: more than the sockets buffer.
const LARGE_BYTES: usize = 16 << 20;

/// A listener whose router counts requests.
struct Listening {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    requests: Arc<AtomicUsize>,
    /// Lets `/wait` answer.
    release: Arc<Notify>,
}

impl Listening {
    async fn start(adjust: impl FnOnce(&mut ApiSettings)) -> Listening {
        let requests = Arc::new(AtomicUsize::new(0));
        let release = Arc::new(Notify::new());
        let large = Bytes::from(vec![b'x'; LARGE_BYTES]);
        let waits = release.clone();
        let counted = requests.clone();
        let router = Router::new()
            .route("/healthz", get(|| async { "lives" }))
            .route("/large", get(move || async move { large }))
            .route(
                "/wait",
                get(move || async move {
                    waits.notified().await;
                    "waited"
                }),
            )
            .route("/echo", post(|body: Bytes| async move { body }))
            .fallback(|| async { "anything" })
            .layer(axum::middleware::map_request(
                move |request: axum::extract::Request| {
                    counted.fetch_add(1, SeqCst);
                    async move { request }
                },
            ));
        let mut settings = ApiSettings::default();
        adjust(&mut settings);
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let metrics = Arc::new(Metrics::new());
        let counting = metrics.clone();
        tokio::spawn(async move {
            serve(
                listener,
                router,
                &settings,
                counting,
                std::future::pending(),
            )
            .await
        });
        Listening {
            address,
            metrics,
            requests,
            release,
        }
    }

    async fn connect(&self) -> Caller {
        self.connect_from(Ipv4Addr::LOCALHOST).await
    }

    async fn connect_from(&self, address: Ipv4Addr) -> Caller {
        let connected = dial_tcp(self.address, Some(IpAddr::V4(address))).await;
        Caller(connected.expect("a listening server"))
    }

    /// Returns the value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render(&Gauges::default());
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.parse().expect("a count")
    }

    /// Waits until this number of connections is open.
    async fn until_open(&self, connections: u64) {
        let polling = async {
            while self.metric("posthaste_open_connections") != connections {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let open = || self.metric("posthaste_open_connections");
        let waited = timeout(PATIENCE, polling).await;
        assert!(waited.is_ok(), "{} connections are open", open());
    }
}

/// A connection of a caller.
struct Caller(TcpStream);

impl Caller {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.0.write_all(bytes.as_ref()).await;
        sent.expect("a server that reads");
    }

    /// Sends a `GET` request and returns the response.
    async fn get(&mut self, path: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        self.read_answer().await
    }

    /// Reads one response, whose body has an announced length.
    async fn read_answer(&mut self) -> String {
        let reading = async {
            let mut text = String::new();
            loop {
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: "));
                    let length: usize = length.map_or(0, |it| it.parse().expect("a length"));
                    if body.len() >= length {
                        assert_eq!(body.len(), length, "{text}");
                        return text;
                    }
                }
                let byte = self.0.read_u8().await;
                text.push(char::from(byte.expect("a whole response")));
            }
        };
        timeout(PATIENCE, reading).await.expect("a response")
    }

    /// Reads until the server closes the connection.
    async fn read_to_end(&mut self) -> String {
        let mut text = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut text)).await;
        read.expect("the server closes the connection")
            .expect("no reset");
        String::from_utf8(text).expect("text")
    }
}
