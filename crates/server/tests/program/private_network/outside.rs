//! All receivers outside the program: every connection to any address at one of [`PORTS`] is recorded and answered.
//!
//! An address without a configured behaviour belongs to a good receiver, with a certificate for the requested name.
//! Public and private addresses are treated alike: the ledger lists every address that got a connection, and tests
//! compare it with the expected ones.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use super::PATIENCE;
use super::authority::{Authority, VALID};

/// Port of the proxy that the environment names, and that the program must not use.
pub(crate) const PROXY_PORT: u16 = 3128;
/// Ports with a listener at every address: those of the test vectors that may be called, and some that attackers try.
const PORTS: [u16; 16] = [
    80, 443, 8080, 8443, 40_000, 65_535, PROXY_PORT, 22, 25, 2375, 3306, 5432, 6379, 9200, 10_250,
    11_211,
];

/// A connection that was opened.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionRecord {
    /// Destination address.
    pub(crate) address: IpAddr,
    /// Destination port.
    pub(crate) port: u16,
    /// Server name in the ClientHello.
    pub(crate) name: Option<String>,
    /// True if it has ended.
    pub(crate) is_over: bool,
}

/// A request that arrived completely.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Index of its connection in the ledger.
    pub(crate) visit: usize,
    /// Id of the delivery.
    pub(crate) delivery: String,
}

/// All recorded connections and requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) visits: Vec<ConnectionRecord>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Bytes that receivers without TLS have read.
    pub(crate) received_bytes: Vec<Vec<u8>>,
}

impl Records {
    /// Every address that got a connection.
    pub(crate) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.visits.iter().map(|visit| visit.address).collect()
    }

    /// Indices of the connections to this address.
    pub(crate) fn visits_to(&self, address: IpAddr) -> Vec<usize> {
        let numbered = self.visits.iter().enumerate();
        let there = numbered.filter(|(_, visit)| visit.address == address);
        there.map(|(number, _)| number).collect()
    }
}

/// A boxed future.
pub(crate) type Act<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The behaviour of a bad receiver. If it returns the line, the connection continues as that of a good receiver.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Behaves like this before any TLS, and returns the bytes it read.
    Bare(fn(TcpStream) -> Act<Vec<u8>>),
    /// Behaves like this inside TLS.
    Secured(fn(Line) -> Act<Option<Line>>),
    /// Behaves like this inside TLS, and then resets the connection.
    Abrupt(fn(Line) -> Act<Option<Line>>),
    /// Behaves like this inside TLS with HTTP/2.
    Http2(fn(Line) -> Act<Option<Line>>),
    /// Behaves like a good receiver, with this certificate.
    Certified(Arc<ServerConfig>),
}

struct ReceiverState {
    conduct: Behaviour,
    is_good: bool,
}

struct Shared {
    authority: Arc<Authority>,
    places: Mutex<HashMap<IpAddr, ReceiverState>>,
    configs: Mutex<HashMap<String, Arc<ServerConfig>>>,
    records: watch::Sender<Records>,
}

/// All receivers outside the program.
#[derive(Clone)]
pub(crate) struct RecordingReceivers(Arc<Shared>);

impl RecordingReceivers {
    /// Listens at every address.
    pub(crate) async fn start(authority: Arc<Authority>) -> RecordingReceivers {
        let outside = RecordingReceivers(Arc::new(Shared {
            authority,
            places: Mutex::default(),
            configs: Mutex::default(),
            records: watch::Sender::default(),
        }));
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).await.expect("a free port");
            tokio::spawn(outside.clone().accept(listener));
        }
        outside
    }

    /// Puts a bad receiver at an address. After [`RecordingReceivers::set_good`] it is good and closes the connection
    /// after each answer.
    pub(crate) fn set_behaviour(&self, address: IpAddr, conduct: Behaviour) {
        let place = ReceiverState {
            conduct,
            is_good: false,
        };
        self.places().insert(address, place);
    }

    /// Makes every bad receiver good from now on, or bad again.
    pub(crate) fn set_good(&self, is_good: bool) {
        for place in self.places().values_mut() {
            place.is_good = is_good;
        }
    }

    /// Returns the ledger so far.
    pub(crate) fn records(&self) -> Records {
        self.0.records.borrow().clone()
    }

    /// Waits until the ledger is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Records) -> bool) -> Records {
        let mut records = self.0.records.subscribe();
        let seen = timeout(PATIENCE, records.wait_for(wanted)).await;
        match seen {
            Ok(seen) => seen.expect("we hold the sender").clone(),
            Err(_) => panic!("{what} was never seen; what was: {:#?}", self.records()),
        }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, ReceiverState>> {
        self.0.places.lock().expect("the mutex is not poisoned")
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(here) = socket.local_addr() else {
                continue;
            };
            let address = here.ip().to_canonical();
            let visit = self.note(|records| {
                records.visits.push(ConnectionRecord {
                    address,
                    port: here.port(),
                    name: None,
                    is_over: false,
                });
                records.visits.len() - 1
            });
            let outside = self.clone();
            tokio::spawn(async move {
                outside.receive(socket, address, visit).await;
                outside.note(|records| records.visits[visit].is_over = true);
            });
        }
    }

    fn note<T>(&self, write: impl FnOnce(&mut Records) -> T) -> T {
        let mut written = None;
        self.0
            .records
            .send_modify(|records| written = Some(write(records)));
        written.expect("it was just written")
    }

    async fn receive(&self, socket: TcpStream, address: IpAddr, visit: usize) -> Option<()> {
        let (conduct, is_settled) = match self.places().get(&address) {
            None => (None, false),
            Some(place) => ((!place.is_good).then(|| place.conduct.clone()), true),
        };
        if let Some(Behaviour::Bare(act)) = conduct {
            let received = act(socket).await;
            self.note(|records| records.received_bytes.push(received));
            return Some(());
        }
        if let Some(Behaviour::Abrupt(_)) = conduct {
            socket.set_zero_linger().expect("a socket");
        }
        let line = self.secure(socket, address, visit, &conduct).await?;
        let line = match conduct {
            Some(Behaviour::Secured(act) | Behaviour::Abrupt(act) | Behaviour::Http2(act)) => {
                act(line).await?
            }
            Some(Behaviour::Bare(_) | Behaviour::Certified(_)) | None => line,
        };
        self.serve(line, visit, is_settled).await
    }

    /// Performs the TLS handshake, with a certificate for the requested name.
    async fn secure(
        &self,
        socket: TcpStream,
        address: IpAddr,
        visit: usize,
        conduct: &Option<Behaviour>,
    ) -> Option<Line> {
        let greeting = LazyConfigAcceptor::new(Acceptor::default(), socket);
        let greeting = greeting.await.ok()?;
        let name = greeting.client_hello().server_name().map(str::to_owned);
        self.note(|records| records.visits[visit].name.clone_from(&name));
        let called = name.unwrap_or_else(|| address.to_string());
        let config = match conduct {
            Some(Behaviour::Certified(config)) => config.clone(),
            Some(Behaviour::Http2(_)) => {
                let mut config = ServerConfig::clone(&self.config(&called));
                config.alpn_protocols = vec![b"h2".to_vec()];
                Arc::new(config)
            }
            Some(Behaviour::Bare(_) | Behaviour::Secured(_) | Behaviour::Abrupt(_)) | None => {
                self.config(&called)
            }
        };
        let stream = greeting.into_stream(config).await.ok()?;
        Some(Line::new(stream))
    }

    fn config(&self, name: &str) -> Arc<ServerConfig> {
        let mut configs = self.0.configs.lock().expect("the mutex is not poisoned");
        let make = || self.0.authority.receiver(name, VALID);
        configs.entry(name.to_owned()).or_insert_with(make).clone()
    }

    /// Answers each request with the id of its delivery.
    async fn serve(&self, mut line: Line, visit: usize, then_close: bool) -> Option<()> {
        loop {
            let delivery = line.read_request().await?;
            let arrival = Arrival {
                visit,
                delivery: delivery.clone(),
            };
            self.note(|records| records.arrivals.push(arrival));
            let connection = if then_close { "close" } else { "keep-alive" };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: {connection}\r\ncontent-length: {}\r\n\r\n{delivery}",
                delivery.len()
            );
            line.say(answer).await?;
            if then_close {
                line.close_write().await?;
                line.gone().await;
                return Some(());
            }
        }
    }
}

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// One connection, seen from the receiver.
pub(crate) struct Line {
    wire: Box<dyn ByteStream>,
    read: Vec<u8>,
}

impl Line {
    fn new(wire: impl ByteStream + 'static) -> Line {
        Line {
            wire: Box::new(wire),
            read: Vec::new(),
        }
    }

    /// Reads the head of the next request.
    pub(crate) async fn read_head(&mut self) -> Option<String> {
        const END: &[u8] = b"\r\n\r\n";
        loop {
            let end = self.read.windows(END.len()).position(|bytes| bytes == END);
            if let Some(end) = end {
                let head = self.read.drain(..end + END.len()).collect();
                return Some(String::from_utf8(head).expect("a head is text"));
            }
            self.read_more().await?;
        }
    }

    /// Reads the body of the request with this head. Returns the id of its delivery, or an empty text.
    pub(crate) async fn read_body(&mut self, head: &str) -> Option<String> {
        let header = |wanted: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().map(|(_, value)| value.to_owned())
        };
        let length: usize = header("content-length")?.parse().ok()?;
        while self.read.len() < length {
            self.read_more().await?;
        }
        self.read.drain(..length);
        Some(header("webhook-id").unwrap_or_default())
    }

    /// Reads the next request and returns the id of its delivery.
    pub(crate) async fn read_request(&mut self) -> Option<String> {
        let head = self.read_head().await?;
        self.read_body(&head).await
    }

    /// Reads exactly `count` bytes.
    pub(crate) async fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            self.read_more().await?;
        }
        Some(self.read.drain(..count).collect())
    }

    async fn read_more(&mut self) -> Option<()> {
        let read = self.wire.read_buf(&mut self.read).await.ok()?;
        (read > 0).then_some(())
    }

    /// Writes these bytes.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) -> Option<()> {
        self.wire.write_all(bytes.as_ref()).await.ok()?;
        self.wire.flush().await.ok()
    }

    /// Closes the writing side.
    pub(crate) async fn close_write(&mut self) -> Option<()> {
        self.wire.shutdown().await.ok()
    }

    /// Waits until the other side closes.
    pub(crate) async fn gone(&mut self) {
        while self.read_more().await.is_some() {
            self.read.clear();
        }
    }
}
