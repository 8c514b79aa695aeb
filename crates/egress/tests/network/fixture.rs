//! Fixtures: scripted receivers, each of which can misbehave in exactly one way.
//!
//! [`Receiver`] listens on a local port, runs a script per connection ([`Peer`]) and records the requests that
//! arrive. [`FixedResolver`] answers names from a list. [`Footprint`] compares open files, tasks and memory before
//! and after a test. Requests are allowed to reach this machine by the rules of [`development`].

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::classify::{Outcome, TransportError};
use posthaste_egress::{
    Client, ClientSettings, Lookup, PoolKey, Request, Resolve, ResolveError, SendReport,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A time limit that passes only if there is a bug.
pub(crate) const AMPLE: Duration = Duration::from_secs(20);
/// A time limit for requests that must time out.
pub(crate) const SHORT: Duration = Duration::from_millis(250);

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The rules of a development machine.
pub(crate) fn development() -> EgressRules {
    EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
        allow_http: true,
        ..EgressRules::default()
    }
}

pub(crate) fn settings() -> ClientSettings {
    ClientSettings {
        rules: development(),
        resolver: Arc::new(FixedResolver::default()),
        ..ClientSettings::default()
    }
}

pub(crate) fn client() -> Client {
    Client::new(settings())
}

pub(crate) fn request(url: &str) -> Request {
    Request {
        pool_key: PoolKey::new("ep_1"),
        destination: Destination::parse(url, &development()).unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        identity: None,
        keep_bytes: None,
        time_limit: AMPLE,
        permit: None,
    }
}

pub(crate) async fn post(client: &Client, url: &str) -> SendReport {
    client.send(request(url)).await.unwrap()
}

pub(crate) async fn post_within(client: &Client, url: &str, time_limit: Duration) -> SendReport {
    let request = Request {
        time_limit,
        ..request(url)
    };
    client.send(request).await.unwrap()
}

pub(crate) fn status(report: &SendReport) -> u16 {
    match report.outcome {
        Outcome::Answered { status, .. } => status.code(),
        other @ (Outcome::StaleToken | Outcome::Failed(_)) => {
            panic!("expected a response, got {other:?}: {}", report.detail())
        }
    }
}

pub(crate) fn fault(report: &SendReport) -> TransportError {
    match report.outcome {
        other @ (Outcome::Answered { .. } | Outcome::StaleToken) => {
            panic!("expected a fault, got {other:?}")
        }
        Outcome::Failed(fault) => fault,
    }
}

/// One request as it arrived.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.head.trim_end().split("\r\n").collect()
    }
}

/// One connection, seen from the receiver.
pub(crate) struct Peer<S = TcpStream> {
    pub(crate) socket: S,
    received: mpsc::UnboundedSender<ReceivedRequest>,
}

impl<S> Peer<S> {
    /// Splits off the socket, to be wrapped, for example in TLS.
    pub(crate) fn into_parts(self) -> (S, mpsc::UnboundedSender<ReceivedRequest>) {
        (self.socket, self.received)
    }

    pub(crate) fn from_parts(
        socket: S,
        received: mpsc::UnboundedSender<ReceivedRequest>,
    ) -> Peer<S> {
        Peer { socket, received }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Reads the next request; `None` if the client has closed the connection.
    pub(crate) async fn read_request(&mut self) -> Option<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.socket.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name == "content-length").then(|| value.parse().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        self.socket.read_exact(&mut body).await.ok()?;
        let _ = self.received.send(ReceivedRequest { head, body });
        Some(())
    }

    /// Reads the next request, which must be a `CONNECT`, and returns its target.
    pub(crate) async fn read_connect_target(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.socket.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        assert!(head.starts_with("CONNECT "), "{head}");
        let _ = self.received.send(ReceivedRequest {
            head,
            body: Vec::new(),
        });
        Some(target)
    }

    /// Reads everything until the client closes the connection.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.socket.read_to_end(&mut rest).await;
        rest
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> Option<()> {
        self.socket.write_all(bytes.as_ref()).await.ok()?;
        self.socket.flush().await.ok()
    }

    /// Waits until the client closes the connection, ignoring what it sends.
    pub(crate) async fn gone(&mut self) {
        let mut rest = [0; 4_096];
        while let Ok(1..) = self.socket.read(&mut rest).await {}
    }
}

/// A receiver and its records.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Connections that have ended.
    ended: mpsc::UnboundedReceiver<()>,
    received: mpsc::UnboundedReceiver<ReceivedRequest>,
    listening: AbortHandle,
}

/// Stops listening. Open connections continue until their peers close them.
impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Receiver {
    /// Starts a receiver that handles each connection with `serve`.
    pub(crate) async fn new<F>(serve: impl Fn(Peer) -> F + Send + 'static) -> Receiver
    where
        F: Future<Output = Option<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Receiver::on(listener, serve)
    }

    pub(crate) fn on<F>(
        listener: TcpListener,
        serve: impl Fn(Peer) -> F + Send + 'static,
    ) -> Receiver
    where
        F: Future<Output = Option<()>> + Send + 'static,
    {
        let connections = Arc::new(AtomicUsize::new(0));
        let (received_sender, received) = mpsc::unbounded_channel();
        let (ended_in, ended) = mpsc::unbounded_channel();
        let address = listener.local_addr().unwrap();
        let counted = Arc::clone(&connections);
        let listening = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let received = received_sender.clone();
                let serving = serve(Peer { socket, received });
                let ended = ended_in.clone();
                tokio::spawn(async move {
                    serving.await;
                    let _ = ended.send(());
                });
            }
        });
        Receiver {
            address,
            connections,
            ended,
            received,
            listening: listening.abort_handle(),
        }
    }

    /// Starts a receiver that gives the same response to every request and keeps connections open.
    pub(crate) async fn answering(answer: impl Into<String>) -> Receiver {
        let answer: Arc<str> = answer.into().into();
        Receiver::new(move |mut peer| {
            let answer = Arc::clone(&answer);
            async move {
                loop {
                    peer.read_request().await?;
                    peer.write(answer.as_bytes()).await?;
                }
            }
        })
        .await
    }

    /// Starts a receiver that reads a request, sends these bytes and closes the connection.
    pub(crate) async fn saying(bytes: &'static [u8]) -> Receiver {
        Receiver::new(move |mut peer| async move {
            peer.read_request().await?;
            peer.write(bytes).await
        })
        .await
    }

    /// Starts a receiver that reads a request, sends these bytes, and then waits for the client to close the
    /// connection.
    pub(crate) async fn holding(bytes: &'static [u8]) -> Receiver {
        Receiver::new(move |mut peer| async move {
            peer.read_request().await?;
            peer.write(bytes).await?;
            peer.gone().await;
            Some(())
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn named(&self, scheme: &str, name: &str) -> String {
        format!("{scheme}://{name}:{}/hook", self.address.port())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the next request that arrived.
    pub(crate) async fn received(&mut self) -> ReceivedRequest {
        self.received.recv().await.unwrap()
    }

    /// Returns the number of requests that arrived and were not taken yet, and discards them.
    pub(crate) fn untaken_requests(&mut self) -> usize {
        std::iter::from_fn(|| self.received.try_recv().ok()).count()
    }

    /// Waits until a connection has ended.
    pub(crate) async fn ended(&mut self) {
        let ended = tokio::time::timeout(AMPLE, self.ended.recv()).await;
        ended
            .expect("the client did not close the connection")
            .unwrap();
    }
}

/// Returns a listener whose backlog is full, so that further connections are neither accepted nor refused while
/// the result is alive.
pub(crate) async fn full_backlog(address: &str) -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(waiting) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        queue.push(waiting.unwrap());
        assert!(queue.len() < 10, "the backlog of the listener never fills");
    }
    (listener, queue)
}

/// A resolver with a fixed list of names. Each name has a list of answers; the last one is repeated.
#[derive(Default)]
pub(crate) struct FixedResolver {
    names: std::sync::Mutex<std::collections::HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) asked: AtomicUsize,
}

impl FixedResolver {
    pub(crate) fn with(name: &str, answers: &[&str]) -> Arc<FixedResolver> {
        let answers = answers.iter().map(|answer| {
            let addresses = answer.split_whitespace();
            addresses.map(|address| address.parse().unwrap()).collect()
        });
        let book = FixedResolver::default();
        let answers = answers.rev().collect();
        book.names.lock().unwrap().insert(name.to_owned(), answers);
        Arc::new(book)
    }
}

impl Resolve for FixedResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let mut names = self.names.lock().unwrap();
            let answers = names.get_mut(name).ok_or(ResolveError::Failed)?;
            let answer = match answers.len() {
                1 => answers.first().cloned(),
                _ => answers.pop(),
            };
            answer.ok_or(ResolveError::NoAddress)
        })
    }
}

/// The resources of this process: open files, tasks, memory.
#[derive(Debug)]
pub(crate) struct Footprint {
    files: usize,
    tasks: usize,
    memory_bytes: usize,
}

impl Footprint {
    /// Far more than random variation, far less than leaking every response would add.
    const MEMORY_SLACK_BYTES: usize = 16 << 20;

    pub(crate) fn now() -> Footprint {
        let metrics = tokio::runtime::Handle::current().metrics();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        Footprint {
            files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            tasks: metrics.num_alive_tasks(),
            memory_bytes: pages * 4_096,
        }
    }

    /// Waits until the process holds no more resources than at the time of `self`.
    pub(crate) async fn check(&self, client: &Client) {
        let deadline = tokio::time::Instant::now() + AMPLE;
        loop {
            let now = Footprint::now();
            let is_flat = now.files <= self.files && now.tasks <= self.tasks;
            if is_flat && client.idle_connections() == 0 {
                let allowed = self.memory_bytes + Footprint::MEMORY_SLACK_BYTES;
                assert!(
                    now.memory_bytes <= allowed,
                    "memory grew from {self:?} to {now:?}"
                );
                return;
            }
            let idle = client.idle_connections();
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(
                !is_late,
                "resources are left over: {self:?} before, {now:?} after, {idle} idle connections"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
