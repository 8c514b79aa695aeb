//! Pool of idle and shared connections.
//!
//! [`Pool`] guarantees:
//!
//! - A connection is used only for the [`PoolKey`] and the target that it was opened for.
//! - It is handed out only while it is ready, younger than the maximum age, and not idle for too long.
//! - It is returned only after a complete response. If a request ends in any other way, such as a time limit or
//!   a caller that drops the future, the connection is closed.
//! - The number of idle connections is limited per key and in total; the longest idle is closed first.
//!   [`Pool::sweep`] closes expired ones. Connections whose response arrived before the request was completely
//!   written are awaited before they are returned; their number has the same limit as the idle connections.
//!
//! An HTTP/1.1 connection is removed from the pool while it is used. An HTTP/2 connection stays in it, counts
//! its requests, and is idle when it has none.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::address::{Destination, Host, Scheme};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::client_identity::{ClientIdentity, IdentityFingerprint};
use crate::connection::{Connection, Protocol};
use crate::request::PoolKey;
use crate::settings::ClientSettings;

/// Maximum time until a connection is ready again after its response. If the receiver responded early, the rest
/// of the request has to be written first.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConnectionTarget {
    scheme: Scheme,
    host: Host,
    port: u16,
    /// The client certificate on this connection. The receiver associates it with the connection until that is
    /// closed.
    identity: Option<IdentityFingerprint>,
}

impl ConnectionTarget {
    fn of(to: &Destination, identity: Option<&ClientIdentity>) -> ConnectionTarget {
        ConnectionTarget {
            identity: identity.map(ClientIdentity::fingerprint),
            scheme: to.scheme(),
            host: to.host().clone(),
            port: to.port(),
        }
    }

    fn is_of(&self, to: &Destination, identity: Option<&ClientIdentity>) -> bool {
        self.port == to.port()
            && self.scheme == to.scheme()
            && self.host == *to.host()
            && self.identity == identity.map(ClientIdentity::fingerprint)
    }
}

/// Hasher that uses the precomputed hash of a pool key.
#[derive(Default)]
struct PrecomputedHasher(u64);

impl Hasher for PrecomputedHasher {
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

/// The idle state of a connection: its position in the order of becoming idle, and when it expires.
struct IdleState {
    serial: u64,
    until: Instant,
}

struct Entry {
    target: Arc<ConnectionTarget>,
    connection: Connection,
    /// Number of requests on it; always 0 for HTTP/1.1.
    streams: usize,
    /// `None` while requests are in progress on it.
    rest: Option<IdleState>,
}

#[derive(Default)]
struct PoolState {
    by_key: HashMap<PoolKey, Vec<Entry>, BuildHasherDefault<PrecomputedHasher>>,
    /// The pool keys of all idle connections, the longest idle first.
    resting: BTreeMap<u64, PoolKey>,
    next_serial: u64,
}

/// The connections of one client.
pub(crate) struct Pool {
    settings: Arc<ClientSettings>,
    state: Mutex<PoolState>,
    /// Limits the number of connections that are awaited until they are ready again.
    settling: Arc<Semaphore>,
}

/// A connection in use. Dropping it closes an HTTP/1.1 connection. An HTTP/2 connection gets no further
/// requests.
pub(crate) struct PooledConnection {
    pool: Arc<Pool>,
    key: PoolKey,
    target: Arc<ConnectionTarget>,
    connection: Option<Connection>,
}

impl Pool {
    pub(crate) fn new(settings: Arc<ClientSettings>) -> Pool {
        let most = settings.max_idle_total.min(Semaphore::MAX_PERMITS);
        Pool {
            settings,
            state: Mutex::default(),
            settling: Arc::new(Semaphore::new(most)),
        }
    }

    /// Returns a connection to this destination that served this key before, if one is free.
    pub(crate) fn take(
        self: &Arc<Pool>,
        key: &PoolKey,
        to: &Destination,
        identity: Option<&ClientIdentity>,
    ) -> Option<PooledConnection> {
        let now = Instant::now();
        let mut state = self.lock();
        let PoolState {
            by_key, resting, ..
        } = &mut *state;
        let entries = by_key.get_mut(key)?;
        // The most recently used connection is the most likely to be still open. Closed ones are removed here
        // or by the sweep; checking all of them for every request would cost more than sending it.
        let mut index = entries.len();
        let free = loop {
            index = index.checked_sub(1)?;
            let entry = &entries[index];
            if !entry.target.is_of(to, identity) {
                continue;
            }
            if !self.is_usable(entry, now) {
                let gone = entries.remove(index);
                if let Some(serial) = gone.serial() {
                    resting.remove(&serial);
                }
                continue;
            }
            if self.has_room(entry) {
                break index;
            }
        };
        let entry = &mut entries[free];
        if let Some(rest) = entry.rest.take() {
            resting.remove(&rest.serial);
        }
        let (target, connection) = match entry.connection.share() {
            Some(connection) => {
                entry.streams += 1;
                (Arc::clone(&entry.target), connection)
            }
            None => {
                let entry = entries.remove(free);
                (entry.target, entry.connection)
            }
        };
        drop(state);
        Some(self.pooled(key, target, connection))
    }

    /// Takes a new connection into use. An HTTP/2 connection is added to the pool at once.
    pub(crate) fn insert_new(
        self: &Arc<Pool>,
        key: &PoolKey,
        to: &Destination,
        identity: Option<&ClientIdentity>,
        connection: Connection,
    ) -> PooledConnection {
        let target = Arc::new(ConnectionTarget::of(to, identity));
        if let Some(shared) = connection.share() {
            let entry = Entry {
                target: Arc::clone(&target),
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
        self.pooled(key, target, connection)
    }

    /// Removes connections that are expired, too old or have ended. Those with requests in progress are closed when
    /// these end.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let PoolState {
            by_key, resting, ..
        } = &mut *state;
        by_key.retain(|_, entries| {
            retain_entries(entries, resting, |entry| self.is_usable(entry, now));
            !entries.is_empty()
        });
    }

    /// Closes the idle connections of a key and gives no new requests to those in use.
    pub(crate) fn forget(&self, key: &PoolKey) {
        let mut state = self.lock();
        if let Some(mut entries) = state.by_key.remove(key) {
            retain_entries(&mut entries, &mut state.resting, |_| false);
        }
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.lock().resting.len()
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code that runs under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pooled(
        self: &Arc<Pool>,
        key: &PoolKey,
        target: Arc<ConnectionTarget>,
        connection: Connection,
    ) -> PooledConnection {
        PooledConnection {
            pool: Arc::clone(self),
            key: key.clone(),
            target,
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

    /// Adds an idle connection for at most `idle`. Closes the longest idle connection if there are too many
    /// then.
    fn insert_idle(
        &self,
        key: &PoolKey,
        target: Arc<ConnectionTarget>,
        connection: Connection,
        idle: Duration,
    ) {
        let now = Instant::now();
        if connection.is_closed() || !self.is_young(&connection, now) || idle.is_zero() {
            return;
        }
        let mut state = self.lock();
        let entry = Entry {
            target,
            connection,
            streams: 0,
            rest: None,
        };
        let entries = state.by_key.entry(key.clone()).or_default();
        entries.push(entry);
        let position = entries.len() - 1;
        self.rest(&mut state, key, position, now + idle);
    }

    fn rest(&self, state: &mut PoolState, key: &PoolKey, position: usize, until: Instant) {
        let serial = state.next_serial;
        state.next_serial += 1;
        state.resting.insert(serial, key.clone());
        if let Some(entries) = state.by_key.get_mut(key) {
            entries[position].rest = Some(IdleState { serial, until });
            let serials = || entries.iter().filter_map(Entry::serial);
            // Idle connections are counted only if there could be too many of them.
            if entries.len() > self.settings.max_idle_per_key
                && serials().count() > self.settings.max_idle_per_key
                && let Some(oldest) = serials().min()
            {
                state.evict(oldest);
            }
        }
        if state.resting.len() > self.settings.max_idle_total
            && let Some((oldest, _)) = state.resting.first_key_value()
        {
            let oldest = *oldest;
            state.evict(oldest);
        }
    }

    /// Ends a request on a shared connection. Other requests may still be in progress on it.
    fn end_stream(&self, key: &PoolKey, connection: &Connection, idle: Duration) {
        let mut state = self.lock();
        let Some(entries) = state.by_key.get_mut(key) else {
            return;
        };
        let position = entries
            .iter()
            .position(|entry| entry.connection.is(connection));
        // The connection may have been removed meanwhile: too old, or another request on it failed.
        let Some(position) = position else {
            return;
        };
        let entry = &mut entries[position];
        entry.streams -= 1;
        if entry.streams == 0 {
            self.rest(&mut state, key, position, Instant::now() + idle);
        }
    }

    /// Removes a shared connection, so that it is closed when its remaining requests end.
    fn remove_shared(&self, key: &PoolKey, connection: &Connection) {
        let mut state = self.lock();
        let PoolState {
            by_key, resting, ..
        } = &mut *state;
        if let Some(entries) = by_key.get_mut(key) {
            retain_entries(entries, resting, |entry| !entry.connection.is(connection));
            if entries.is_empty() {
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

impl PoolState {
    fn evict(&mut self, serial: u64) {
        let Some(key) = self.resting.get(&serial).cloned() else {
            return;
        };
        if let Some(entries) = self.by_key.get_mut(&key) {
            retain_entries(entries, &mut self.resting, |entry| {
                entry.serial() != Some(serial)
            });
            if entries.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// Keeps the entries that `keep` accepts, and removes the others from the idle order too.
fn retain_entries(
    entries: &mut Vec<Entry>,
    resting: &mut BTreeMap<u64, PoolKey>,
    keep: impl Fn(&Entry) -> bool,
) {
    entries.retain(|entry| {
        let kept = keep(entry);
        if !kept && let Some(serial) = entry.serial() {
            resting.remove(&serial);
        }
        kept
    });
}

impl PooledConnection {
    /// Returns the connection.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection
            .as_mut()
            .expect("a pooled connection is there until it is dropped")
    }

    /// Returns the connection to the pool after a complete response. `keep_alive` is the time for which the
    /// receiver announced to keep it open.
    pub(crate) fn release(mut self, keep_alive: Option<Duration>) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let longest = self.pool.settings.idle_timeout;
        let idle = keep_alive.map_or(longest, |told| told.min(longest));
        match connection.protocol() {
            Protocol::Http2 => self.pool.end_stream(&self.key, &connection, idle),
            Protocol::Http1 if connection.is_ready() => {
                let target = Arc::clone(&self.target);
                self.pool.insert_idle(&self.key, target, connection, idle);
            }
            Protocol::Http1 if connection.is_closed() => {}
            Protocol::Http1 => {
                let (pool, key) = (Arc::clone(&self.pool), self.key.clone());
                let target = Arc::clone(&self.target);
                let Ok(index) = Arc::clone(&pool.settling).try_acquire_owned() else {
                    return;
                };
                tokio::spawn(async move {
                    let _place = index;
                    if let Ok(Ok(())) = timeout(READY_TIMEOUT, connection.ready()).await {
                        pool.insert_idle(&key, target, connection, idle);
                    }
                });
            }
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && connection.protocol() == Protocol::Http2
        {
            self.pool.remove_shared(&self.key, &connection);
        }
    }
}
