//! Connections that wait for their next request.
//!
//! The pool promises:
//!
//! - A connection goes only to the [`PoolKey`] and the origin it was opened for.
//! - It is handed out only while it is ready, young enough and not idle for too long.
//! - It comes back only after a whole answer. Whatever else ends a request, a time limit or a caller
//!   who lost interest included, closes it.
//! - Idle connections are bounded per key and in all; the longest idle goes first. [`Pool::sweep`]
//!   closes those that nobody comes back for. Those that were answered before their request was written
//!   are waited for, and there are no more of them than may be idle.
//!
//! An HTTP/1.1 connection leaves the pool while it is used. An HTTP/2 connection stays in it, counts
//! its requests, and is idle when there are none.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::address::{Destination, Host, Scheme};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::connection::{Connection, Protocol};
use crate::identity::{Fingerprint, Identity};
use crate::request::PoolKey;
use crate::settings::ClientSettings;

/// How long a connection may take to become ready again after its answer: the rest of a request that
/// was answered early has to be written first.
const READY_GRACE: Duration = Duration::from_secs(1);

/// Whom a connection reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    scheme: Scheme,
    host: Host,
    port: u16,
    /// Who we are there: a receiver remembers it for as long as the connection lasts.
    identity: Option<Fingerprint>,
}

impl Origin {
    fn of(to: &Destination, identity: Option<&Identity>) -> Origin {
        Origin {
            identity: identity.map(Identity::fingerprint),
            scheme: to.scheme(),
            host: to.host().clone(),
            port: to.port(),
        }
    }

    fn is_of(&self, to: &Destination, identity: Option<&Identity>) -> bool {
        self.port == to.port()
            && self.scheme == to.scheme()
            && self.host == *to.host()
            && self.identity == identity.map(Identity::fingerprint)
    }
}

/// Takes over the hash that a pool key brings along.
#[derive(Default)]
struct Reckoned(u64);

impl Hasher for Reckoned {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a pool key is hashed as a number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A connection without requests: its place in the order of coming to rest, and when it must go.
struct Rest {
    serial: u64,
    until: Instant,
}

struct Entry {
    origin: Arc<Origin>,
    connection: Connection,
    /// Requests on it; always none for HTTP/1.1.
    streams: usize,
    /// `None` while there are requests on it.
    rest: Option<Rest>,
}

#[derive(Default)]
struct Shelves {
    by_key: HashMap<PoolKey, Vec<Entry>, BuildHasherDefault<Reckoned>>,
    /// Every resting connection's key, the longest resting first.
    resting: BTreeMap<u64, PoolKey>,
    next_serial: u64,
}

/// The connections of one client.
pub(crate) struct Pool {
    settings: Arc<ClientSettings>,
    shelves: Mutex<Shelves>,
    /// As many as may be waited for until they are ready again.
    settling: Arc<Semaphore>,
}

/// A connection in use. Dropping it closes an HTTP/1.1 connection, and keeps further requests off an
/// HTTP/2 one.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    key: PoolKey,
    origin: Arc<Origin>,
    connection: Option<Connection>,
}

impl Pool {
    pub(crate) fn new(settings: Arc<ClientSettings>) -> Pool {
        let most = settings.max_idle_total.min(Semaphore::MAX_PERMITS);
        Pool {
            settings,
            shelves: Mutex::default(),
            settling: Arc::new(Semaphore::new(most)),
        }
    }

    /// A connection to this destination that served this key before, if one is free.
    pub(crate) fn take(
        self: &Arc<Pool>,
        key: &PoolKey,
        to: &Destination,
        identity: Option<&Identity>,
    ) -> Option<Lease> {
        let now = Instant::now();
        let mut shelves = self.lock();
        let Shelves {
            by_key, resting, ..
        } = &mut *shelves;
        let shelf = by_key.get_mut(key)?;
        // The last one used is the likeliest to be open still. Those that are not are met here or by the
        // sweeper; looking at all of them for every request would cost more than sending it.
        let mut place = shelf.len();
        let free = loop {
            place = place.checked_sub(1)?;
            let entry = &shelf[place];
            if !entry.origin.is_of(to, identity) {
                continue;
            }
            if !self.is_usable(entry, now) {
                let gone = shelf.remove(place);
                if let Some(serial) = gone.serial() {
                    resting.remove(&serial);
                }
                continue;
            }
            if self.has_room(entry) {
                break place;
            }
        };
        let entry = &mut shelf[free];
        if let Some(rest) = entry.rest.take() {
            resting.remove(&rest.serial);
        }
        let (origin, connection) = match entry.connection.share() {
            Some(connection) => {
                entry.streams += 1;
                (Arc::clone(&entry.origin), connection)
            }
            None => {
                let entry = shelf.remove(free);
                (entry.origin, entry.connection)
            }
        };
        drop(shelves);
        Some(self.lease(key, origin, connection))
    }

    /// Takes a fresh connection into use.
    pub(crate) fn adopt(
        self: &Arc<Pool>,
        key: &PoolKey,
        to: &Destination,
        identity: Option<&Identity>,
        connection: Connection,
    ) -> Lease {
        let origin = Arc::new(Origin::of(to, identity));
        if let Some(shared) = connection.share() {
            let entry = Entry {
                origin: Arc::clone(&origin),
                connection: shared,
                streams: 1,
                rest: None,
            };
            self.lock()
                .by_key
                .entry(key.clone())
                .or_default()
                .push(entry);
        }
        self.lease(key, origin, connection)
    }

    /// Closes what has been idle for too long, is too old, or has ended by itself.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut shelves = self.lock();
        let Shelves {
            by_key, resting, ..
        } = &mut *shelves;
        by_key.retain(|_, shelf| {
            tidy(shelf, resting, |entry| self.is_usable(entry, now));
            !shelf.is_empty()
        });
    }

    /// Closes the idle connections of a key, and keeps new requests off those in use.
    pub(crate) fn forget(&self, key: &PoolKey) {
        let mut shelves = self.lock();
        if let Some(mut shelf) = shelves.by_key.remove(key) {
            tidy(&mut shelf, &mut shelves.resting, |_| false);
        }
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.lock().resting.len()
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        // Nothing that runs under the lock leaves the shelves half changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(
        self: &Arc<Pool>,
        key: &PoolKey,
        origin: Arc<Origin>,
        connection: Connection,
    ) -> Lease {
        Lease {
            pool: Arc::clone(self),
            key: key.clone(),
            origin,
            connection: Some(connection),
        }
    }

    fn is_young(&self, connection: &Connection, now: Instant) -> bool {
        now.duration_since(connection.opened_at()) < self.settings.max_connection_age
    }

    fn is_usable(&self, entry: &Entry, now: Instant) -> bool {
        let rested = entry.rest.as_ref().is_some_and(|rest| rest.until <= now);
        entry.connection.is_ready() && !rested && self.is_young(&entry.connection, now)
    }

    fn has_room(&self, entry: &Entry) -> bool {
        let most = self.settings.max_streams_per_connection.max(1);
        entry.streams < entry.connection.max_streams().min(most)
    }

    /// Puts a connection to rest for as long as `idle`, and closes the longest resting one if there
    /// are then too many.
    fn shelve(&self, key: &PoolKey, origin: Arc<Origin>, connection: Connection, idle: Duration) {
        let now = Instant::now();
        if connection.is_closed() || !self.is_young(&connection, now) || idle.is_zero() {
            return;
        }
        let mut shelves = self.lock();
        let entry = Entry {
            origin,
            connection,
            streams: 0,
            rest: None,
        };
        let shelf = shelves.by_key.entry(key.clone()).or_default();
        shelf.push(entry);
        let position = shelf.len() - 1;
        self.rest(&mut shelves, key, position, now + idle);
    }

    fn rest(&self, shelves: &mut Shelves, key: &PoolKey, position: usize, until: Instant) {
        let serial = shelves.next_serial;
        shelves.next_serial += 1;
        shelves.resting.insert(serial, key.clone());
        if let Some(shelf) = shelves.by_key.get_mut(key) {
            shelf[position].rest = Some(Rest { serial, until });
            let serials = || shelf.iter().filter_map(Entry::serial);
            // Resting ones are counted only where there could be too many of them.
            if shelf.len() > self.settings.max_idle_per_key
                && serials().count() > self.settings.max_idle_per_key
                && let Some(oldest) = serials().min()
            {
                shelves.evict(oldest);
            }
        }
        if shelves.resting.len() > self.settings.max_idle_total
            && let Some((oldest, _)) = shelves.resting.first_key_value()
        {
            let oldest = *oldest;
            shelves.evict(oldest);
        }
    }

    /// Ends a request on a shared connection that stays in use.
    fn end_stream(&self, key: &PoolKey, connection: &Connection, idle: Duration) {
        let mut shelves = self.lock();
        let Some(shelf) = shelves.by_key.get_mut(key) else {
            return;
        };
        let position = shelf
            .iter()
            .position(|entry| entry.connection.is(connection));
        // It may have been taken out meanwhile: too old, or by another request's failure.
        let Some(position) = position else {
            return;
        };
        let entry = &mut shelf[position];
        entry.streams -= 1;
        if entry.streams == 0 {
            self.rest(&mut shelves, key, position, Instant::now() + idle);
        }
    }

    /// Takes a shared connection out, so that it ends with the requests that are on it.
    fn retire(&self, key: &PoolKey, connection: &Connection) {
        let mut shelves = self.lock();
        let Shelves {
            by_key, resting, ..
        } = &mut *shelves;
        if let Some(shelf) = by_key.get_mut(key) {
            tidy(shelf, resting, |entry| !entry.connection.is(connection));
            if shelf.is_empty() {
                by_key.remove(key);
            }
        }
    }
}

impl Entry {
    fn serial(&self) -> Option<u64> {
        self.rest.as_ref().map(|rest| rest.serial)
    }
}

impl Shelves {
    fn evict(&mut self, serial: u64) {
        let Some(key) = self.resting.get(&serial).cloned() else {
            return;
        };
        if let Some(shelf) = self.by_key.get_mut(&key) {
            tidy(shelf, &mut self.resting, |entry| {
                entry.serial() != Some(serial)
            });
            if shelf.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// Keeps the entries that `keep` wants, and the order of rest in step with them.
fn tidy(
    shelf: &mut Vec<Entry>,
    resting: &mut BTreeMap<u64, PoolKey>,
    keep: impl Fn(&Entry) -> bool,
) {
    shelf.retain(|entry| {
        let kept = keep(entry);
        if !kept && let Some(serial) = entry.serial() {
            resting.remove(&serial);
        }
        kept
    });
}

impl Lease {
    /// The connection, for as long as the lease lasts.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection
            .as_mut()
            .expect("a lease has its connection until it ends")
    }

    /// Gives the connection back after a whole answer. `keep_alive` is how long the receiver said
    /// that it would keep it.
    pub(crate) fn give_back(mut self, keep_alive: Option<Duration>) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let longest = self.pool.settings.idle_timeout;
        let idle = keep_alive.map_or(longest, |told| told.min(longest));
        match connection.protocol() {
            Protocol::Http2 => self.pool.end_stream(&self.key, &connection, idle),
            Protocol::Http1 if connection.is_ready() => {
                let origin = Arc::clone(&self.origin);
                self.pool.shelve(&self.key, origin, connection, idle);
            }
            Protocol::Http1 if connection.is_closed() => {}
            Protocol::Http1 => {
                let (pool, key) = (Arc::clone(&self.pool), self.key.clone());
                let origin = Arc::clone(&self.origin);
                let Ok(place) = Arc::clone(&pool.settling).try_acquire_owned() else {
                    return;
                };
                tokio::spawn(async move {
                    let _place = place;
                    if let Ok(Ok(())) = timeout(READY_GRACE, connection.ready()).await {
                        pool.shelve(&key, origin, connection, idle);
                    }
                });
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && connection.protocol() == Protocol::Http2
        {
            self.pool.retire(&self.key, &connection);
        }
    }
}
