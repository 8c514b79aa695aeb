//! The wire between a node and its database: a proxy that passes every byte, until it is told not to.

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

/// How much is passed on at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the node says.
    ToDatabase,
    /// What it is answered.
    FromDatabase,
}

/// A proxy in front of a database, which can be cut, held and closed. It ends with the test.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// How often everything was cut. A connection lives as long as this does not change.
    cuts: watch::Sender<u64>,
    held: watch::Sender<bool>,
    refuses: Mutex<bool>,
    /// How many bytes may still pass before everything is cut, by direction.
    allowance: Mutex<[Option<usize>; 2]>,
    passed: Mutex<[u64; 2]>,
    connections: AtomicUsize,
}

impl Wire {
    /// A wire to this address.
    pub fn to(target: SocketAddr) -> Wire {
        let shared = Arc::new(Shared {
            target,
            cuts: watch::Sender::new(0),
            held: watch::Sender::new(false),
            refuses: Mutex::new(false),
            allowance: Mutex::default(),
            passed: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let listener = background::wait(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        background::spawn(accept(listener, Arc::downgrade(&shared)));
        Wire { address, shared }
    }

    /// Where nodes connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection, now. New ones are let in.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Cuts every connection when so many more bytes have passed this way, over all of them: exactly so many pass.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.shared.allowance.lock().unwrap()[direction as usize] = Some(bytes);
    }

    /// Waits until [`Wire::cut_after`] has come about.
    pub async fn until_cut(&self) {
        let mut cuts = self.shared.cuts.subscribe();
        let spent = async {
            while self
                .shared
                .allowance
                .lock()
                .unwrap()
                .iter()
                .any(Option::is_some)
            {
                cuts.changed().await.expect("the wire is there");
            }
        };
        timeout(PATIENCE, spent)
            .await
            .expect("enough passes to cut it");
    }

    /// Passes nothing any more and closes nothing: a black hole, for new connections too.
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Passes what was held, and everything after it.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }

    /// Closes new connections at once.
    pub fn refuse(&self) {
        *self.shared.refuses.lock().unwrap() = true;
    }

    /// Lets new connections in again.
    pub fn admit(&self) {
        *self.shared.refuses.lock().unwrap() = false;
    }

    /// How many connections it carries.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes have passed this way.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.passed.lock().unwrap()[direction as usize]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.cut();
    }
}

impl Shared {
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many of these bytes may pass, and whether everything is cut after them.
    fn take(&self, direction: Direction, bytes: usize) -> (usize, bool) {
        let allowance = &mut self.allowance.lock().unwrap()[direction as usize];
        match *allowance {
            None => (bytes, false),
            Some(left) if left > bytes => {
                *allowance = Some(left - bytes);
                (bytes, false)
            }
            Some(left) => {
                *allowance = None;
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
        // A wire that is gone leads nowhere.
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if !*shared.refuses.lock().unwrap() {
            tokio::spawn(carry(node, shared));
        }
    }
}

/// One connection, until either side or the wire ends it.
async fn carry(node: TcpStream, shared: Arc<Shared>) {
    // From before it is counted, so that no cut is missed.
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
        // Before it is written: whoever has got it may look.
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
