//! HTTP connections over real sockets: reuse, shutdown, timeouts and limits.
//!
//! [`ListeningServer`] serves the router of a [`TestServer`] on a loopback port.

use std::time::Duration;

use posthaste_api::ApiSettings;
use posthaste_api::serve::serve;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fixture::{ADMIN, TestServer};

pub(super) struct ListeningServer {
    pub(super) address: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

pub(super) async fn start(
    server: &TestServer,
    adjust: impl FnOnce(&mut ApiSettings),
) -> ListeningServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let router = server.router.clone();
    let metrics = server.app.metrics.clone();
    let mut settings = ApiSettings::default();
    adjust(&mut settings);
    let task = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        serve(listener, router, &settings, metrics, stopped).await
    });
    ListeningServer {
        address,
        stop: Some(stop),
        task,
    }
}

impl ListeningServer {
    pub(super) async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address).await;
        connected.expect("a listening server")
    }

    /// Connects and sends the head of a request that waits for `100 Continue` before its body.
    async fn begin_request(&self, body_bytes: usize) -> TcpStream {
        let mut stream = self.connect().await;
        let head = format!(
            "POST /v1/tenants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\
             Expect: 100-continue\r\nContent-Length: {body_bytes}\r\n\r\n"
        );
        write(&mut stream, head.as_bytes()).await;
        stream
    }

    /// Asks the server to stop.
    fn stop(&mut self) {
        let stop = self.stop.take().expect("the first stop");
        stop.send(()).expect("a running server");
    }

    /// Waits until the server has ended after a stop.
    async fn ended(self) {
        let result = self.task.await.expect("the server did not panic");
        result.expect("a clean end");
    }
}

pub(super) async fn write(stream: &mut TcpStream, bytes: &[u8]) {
    let written = stream.write_all(bytes).await;
    written.expect("the server reads");
}

/// Reads `100 Continue`, which proves that the server has started to handle the request.
async fn read_continue(stream: &mut TcpStream) {
    let mut received = [0; 25];
    stream.read_exact(&mut received).await.expect("an answer");
    assert_eq!(&received, b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Reads one whole response: the head, and a body of the announced length.
pub(super) async fn read_answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let seen = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = seen.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse::<usize>().ok());
            if length.is_some_and(|length| body.len() >= length) {
                return seen;
            }
        }
        let mut buffer = [0; 4_096];
        let count = stream.read(&mut buffer).await.expect("bytes");
        if count == 0 {
            return seen;
        }
        text.extend_from_slice(&buffer[..count]);
    }
}

const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn a_connection_is_reused_and_closed_at_shutdown() {
    let server = TestServer::without_tenants().await;
    let mut listening = start(&server, |_| {}).await;
    let mut stream = listening.connect().await;
    for _ in 0..3 {
        write(&mut stream, ASK).await;
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    listening.stop();
    let address = listening.address;
    listening.ended().await;
    assert_eq!(stream.read(&mut [0; 16]).await.expect("an end"), 0);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_request_in_progress_is_answered_at_shutdown() {
    let server = TestServer::without_tenants().await;
    let mut listening = start(&server, |_| {}).await;
    let mut stream = listening.begin_request(13).await;
    read_continue(&mut stream).await;
    listening.stop();
    write(&mut stream, b"{\"id\":\"late\"}").await;
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    listening.ended().await;
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off_after_the_grace_period() {
    let server = TestServer::without_tenants().await;
    let mut listening = start(&server, |settings| {
        settings.grace = Duration::from_millis(20);
    })
    .await;
    let mut stream = listening.begin_request(13).await;
    read_continue(&mut stream).await;
    listening.stop();
    listening.ended().await;
}

#[tokio::test]
async fn a_slow_or_large_request_head_closes_the_connection() {
    let server = TestServer::without_tenants().await;
    let listening = start(&server, |settings| {
        settings.head_timeout = Duration::from_millis(50);
    })
    .await;
    let mut slow = listening.connect().await;
    write(&mut slow, b"GET /healthz HT").await;
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.expect("an end");
    let mut large = listening.connect().await;
    let line = format!("X-Long: {}\r\n", "x".repeat(1_000));
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: x\r\n{}\r\n",
        line.repeat(60)
    );
    // The server may have closed the connection before all of it is written.
    let _ = large.write_all(head.as_bytes()).await;
    let answer = read_answer(&mut large).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn health_checks_are_answered_beyond_the_limit_of_connections() {
    let server = TestServer::without_tenants().await;
    let listening = start(&server, |settings| settings.max_connections = 1).await;
    let mut first = listening.connect().await;
    write(&mut first, ASK).await;
    read_answer(&mut first).await;
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    for (path, status) in [
        ("/healthz", "200"),
        ("/readyz", "200"),
        ("/metrics", "200"),
        ("/openapi.json", "503"),
        ("/v1/tenants", "503"),
    ] {
        let mut second = listening.connect().await;
        write(&mut second, ask(path).as_bytes()).await;
        let answer = read_answer(&mut second).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{path}: {answer}");
        assert_eq!(second.read(&mut [0; 16]).await.expect("an end"), 0);
    }
}

/// Sends the whole body before reading the response, as many clients do.
async fn send_all(listening: &ListeningServer, head: &str, body_bytes: usize) -> String {
    let mut stream = listening.connect().await;
    write(&mut stream, head.as_bytes()).await;
    let piece = vec![b' '; 64 * 1024];
    let mut left = body_bytes;
    while left > 0 {
        let next = left.min(piece.len());
        let sent = stream.write_all(&piece[..next]).await;
        sent.expect("a server that reads");
        left -= next;
    }
    read_answer(&mut stream).await
}

#[tokio::test]
async fn a_client_that_sends_a_too_large_body_gets_an_answer() {
    let server = TestServer::without_tenants().await;
    let listening = start(&server, |_| {}).await;
    let body_bytes = 20 << 20;
    for (path, key, status) in [
        ("/v1/tenants", ADMIN, "413"),
        ("/v1/tenants", "ph_unknown", "401"),
        ("/v1/nowhere", ADMIN, "404"),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {body_bytes}\r\n\r\n"
        );
        let answer = send_all(&listening, &head, body_bytes).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered_immediately() {
    let server = TestServer::without_tenants().await;
    let listening = start(&server, |_| {}).await;
    let mut stream = listening.begin_request(20_000_000).await;
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}
