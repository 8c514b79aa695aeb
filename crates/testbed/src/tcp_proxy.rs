//! A TCP proxy between a node and its database.
//!
//! [`TcpProxy`] forwards every byte until a test cuts, holds or closes it, if needed after an exact number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::{PATIENCE, background};

/// Maximum number of bytes that are forwarded at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the node to the database.
    ToDatabase,
    /// From the database to the node.
    FromDatabase,
}

/// A TCP proxy in front of a database. It ends with the test.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// Number of cuts. Each connection ends when this changes.
    cuts: watch::Sender<u64>,
    held: watch::Sender<bool>,
    refuses: Mutex<bool>,
    /// Number of bytes that may pass before everything is cut, by direction. `None`: no limit.
    quotas: Mutex<[Option<usize>; 2]>,
    passed: Mutex<[u64; 2]>,
    connections: AtomicUsize,
}

impl TcpProxy {
    /// Starts a proxy to this address.
    pub fn to(target: SocketAddr) -> TcpProxy {
        let shared = Arc::new(Shared {
            target,
            cuts: watch::Sender::new(0),
            held: watch::Sender::new(false),
            refuses: Mutex::new(false),
            quotas: Mutex::default(),
            passed: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let listener = background::wait(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        background::spawn(accept(listener, Arc::downgrade(&shared)));
        TcpProxy { address, shared }
    }

    /// Address that nodes connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection now. New connections are accepted.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Cuts every connection when exactly `bytes` more bytes have passed in this direction, over all connections.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.shared.quotas.lock().unwrap()[direction as usize] = Some(bytes);
    }

    /// Waits until the cut of [`TcpProxy::cut_after`] has happened.
    pub async fn until_cut(&self) {
        let mut cuts = self.shared.cuts.subscribe();
        let spent = async {
            while self
                .shared
                .quotas
                .lock()
                .unwrap()
                .iter()
                .any(Option::is_some)
            {
                cuts.changed().await.expect("a running proxy");
            }
        };
        timeout(PATIENCE, spent)
            .await
            .expect("the proxy did not cut the connection in time");
    }

    /// Stops forwarding without closing anything: a black hole, also for new connections.
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Forwards the held bytes and everything after them.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }

    /// Closes new connections immediately.
    pub fn refuse(&self) {
        *self.shared.refuses.lock().unwrap() = true;
    }

    /// Accepts new connections again.
    pub fn admit(&self) {
        *self.shared.refuses.lock().unwrap() = false;
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Number of bytes that have passed in this direction.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.passed.lock().unwrap()[direction as usize]
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.cut();
    }
}

impl Shared {
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns how many of these bytes may pass, and true if everything is cut after them.
    fn take(&self, direction: Direction, bytes: usize) -> (usize, bool) {
        let quotas = &mut self.quotas.lock().unwrap()[direction as usize];
        match *quotas {
            None => (bytes, false),
            Some(left) if left > bytes => {
                *quotas = Some(left - bytes);
                (bytes, false)
            }
            Some(left) => {
                *quotas = None;
                (left, true)
            }
        }
    }

    fn note(&self, direction: Direction, bytes: usize) {
        self.passed.lock().unwrap()[direction as usize] += bytes as u64;
    }
}

async fn accept(listener: TcpListener, shared: std::sync::Weak<Shared>) {
    loop {
        let Ok((node, _)) = listener.accept().await else {
            return;
        };
        // The proxy was dropped.
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if !*shared.refuses.lock().unwrap() {
            tokio::spawn(carry(node, shared));
        }
    }
}

/// Forwards one connection until either side or the proxy ends it.
async fn carry(node: TcpStream, shared: Arc<Shared>) {
    // Subscribed before the connection is counted, so that no cut is missed.
    let mut cuts = shared.cuts.subscribe();
    cuts.borrow_and_update();
    let Ok(database) = TcpStream::connect(shared.target).await else {
        return;
    };
    let _ = node.set_nodelay(true);
    let _ = database.set_nodelay(true);
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let (from_node, to_node) = node.into_split();
    let (from_database, to_database) = database.into_split();
    tokio::select! {
        () = pass(from_node, to_database, Direction::ToDatabase, &shared) => {}
        () = pass(from_database, to_node, Direction::FromDatabase, &shared) => {}
        _ = cuts.changed() => {}
    }
    shared.connections.fetch_sub(1, Ordering::SeqCst);
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    shared: &Shared,
) {
    let mut held = shared.held.subscribe();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(read @ 1..) = from.read(&mut piece).await else {
            return;
        };
        if held.wait_for(|held| !held).await.is_err() {
            return;
        }
        let (allowed, cut) = shared.take(direction, read);
        // Before the bytes are written: a test that sees their effect may read the count.
        shared.note(direction, allowed);
        let written = to.write_all(&piece[..allowed]).await;
        if cut {
            shared.cut();
        }
        if cut || written.is_err() {
            return;
        }
    }
}
