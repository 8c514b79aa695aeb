//! A TCP proxy between a node and its database.
//!
//! [`TcpProxy`] forwards every byte until a test cuts, holds, delays or closes it, if needed after an exact number of
//! bytes, in one direction or in both.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{PATIENCE, background};

/// Maximum number of bytes that are forwarded at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Maximum number of delayed pieces of a connection, in each direction.
const MAX_DELAYED: usize = 1_024;

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
    /// Directions in which nothing passes.
    held: watch::Sender<[bool; 2]>,
    /// Range of the delay of each piece, in milliseconds.
    delay_ms: Mutex<Option<RangeInclusive<u64>>>,
    /// State of the generator of delays.
    random: Mutex<u64>,
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
            held: watch::Sender::new([false; 2]),
            delay_ms: Mutex::default(),
            random: Mutex::new(1),
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

    /// Cancels a cut of [`TcpProxy::cut_after`] that has not happened.
    pub fn cancel_cut(&self) {
        *self.shared.quotas.lock().unwrap() = [None; 2];
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
        self.shared.held.send_replace([true; 2]);
    }

    /// Stops forwarding in one direction.
    pub fn hold_one_way(&self, direction: Direction) {
        let mut held = [false; 2];
        held[direction as usize] = true;
        self.shared.held.send_replace(held);
    }

    /// Forwards the held bytes and everything after them.
    pub fn release(&self) {
        self.shared.held.send_replace([false; 2]);
    }

    /// Delays everything by a random time from this range, in each direction. The seed makes the times repeatable.
    pub fn delay(&self, delay_ms: RangeInclusive<u64>, seed: u64) {
        *self.shared.random.lock().unwrap() = seed | 1;
        *self.shared.delay_ms.lock().unwrap() = Some(delay_ms);
    }

    /// Forwards without delay again. Bytes that are delayed already keep their delay.
    pub fn undelay(&self) {
        *self.shared.delay_ms.lock().unwrap() = None;
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

    /// Returns the time at which bytes that were read now are forwarded.
    fn forward_at(&self) -> Instant {
        let now = Instant::now();
        let Some(range) = self.delay_ms.lock().unwrap().clone() else {
            return now;
        };
        // A linear congruential generator: any spread will do.
        let mut random = self.random.lock().unwrap();
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let width = range.end() - range.start() + 1;
        now + Duration::from_millis(range.start() + (*random >> 33) % width)
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

/// Forwards one direction. Bytes are read at once and forwarded when their time has come, in order.
async fn pass(mut from: OwnedReadHalf, to: OwnedWriteHalf, direction: Direction, shared: &Shared) {
    let (pieces, delayed) = mpsc::channel(MAX_DELAYED);
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let Ok(read @ 1..) = from.read(&mut piece).await else {
                return;
            };
            piece.truncate(read);
            if pieces.send((shared.forward_at(), piece)).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, forward(delayed, to, direction, shared));
}

async fn forward(
    mut delayed: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    direction: Direction,
    shared: &Shared,
) {
    let mut held = shared.held.subscribe();
    while let Some((at, piece)) = delayed.recv().await {
        if at > Instant::now() {
            sleep_until(at).await;
        }
        if held
            .wait_for(|held| !held[direction as usize])
            .await
            .is_err()
        {
            return;
        }
        let (allowed, cut) = shared.take(direction, piece.len());
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
