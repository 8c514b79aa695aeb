//! Resolves host names with the operating system's resolver.
//!
//! A [`Resolve`] only returns addresses; the caller vets them. Nothing is cached, so that every new connection
//! is vetted against the current addresses of its name. [`SystemResolver`] calls `getaddrinfo`, because it uses
//! the operator's configuration: name servers, DNS over TLS, `nsswitch`. A library (hickory) would have to read
//! that configuration a second time, and would add 29 dependencies. Three properties of `getaddrinfo` need a
//! workaround:
//!
//! - It appends the search domains of the machine's network to a name that does not exist. So the name is
//!   passed with a trailing dot, which prevents this. glibc then does not read `/etc/hosts` either.
//! - It blocks a thread until it is done, long after the request has timed out. So at most [`MAX_LOOKUPS`] run
//!   at once, and the [lookup scheduler](crate::lookup_scheduler) prevents a zone with unresponsive servers from
//!   blocking the others.
//! - It sends a new query for every call. So callers that ask for a name that is being looked up share that
//!   lookup, each with its own time limit. A lookup that has run for longer than [`MAX_SHARED_TIME`] is not
//!   shared, because it is more likely stuck than about to return.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::lookup_failure::{LookupFailure, ResolveError};
use crate::lookup_scheduler::{self, LookupScheduler};

/// Maximum number of concurrent lookups. Further ones wait, within their time limits.
pub const MAX_LOOKUPS: usize = lookup_scheduler::MAX_RUNNING;
/// Maximum number of addresses of a name. A name with more is refused instead of truncated, because every
/// address has to be vetted. A DNS message holds about as many.
pub const MAX_ADDRESSES: usize = 4_096;
/// Age up to which a running lookup is shared with further callers.
const MAX_SHARED_TIME: Duration = Duration::from_secs(10);

/// The future of a lookup.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Resolves names to addresses.
pub trait Resolve: Send + Sync {
    /// Returns all addresses of `name`, the preferred one first. The name is fully qualified, lower case,
    /// ASCII, and has no trailing dot. No search domain may be applied to it.
    ///
    /// Must not omit any address: a forbidden address that is not returned is not refused.
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// Looks a name up, blocking the thread.
type LookupFn = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The resolver of the operating system. Clones share the lookups and their limits.
#[derive(Clone)]
pub struct SystemResolver {
    queue: Arc<LookupQueue>,
}

/// The result of a lookup, shared by all callers that wait for it.
type Answer = Result<Arc<[IpAddr]>, LookupFailure>;

/// A lookup that callers wait for.
struct PendingLookup {
    name: String,
    answered: watch::Sender<Option<Answer>>,
}

impl PendingLookup {
    fn is_wanted(&self) -> bool {
        self.answered.receiver_count() > 0
    }
}

/// A lookup that further callers can join.
struct JoinableLookup {
    lookup: Arc<PendingLookup>,
    /// Start time, if it has started.
    began: Option<Instant>,
}

#[derive(Default)]
struct LookupState {
    scheduler: LookupScheduler<Arc<PendingLookup>>,
    open: HashMap<String, JoinableLookup>,
}

struct LookupQueue {
    ask: Box<LookupFn>,
    state: Mutex<LookupState>,
}

impl SystemResolver {
    /// Creates a resolver that runs at most [`MAX_LOOKUPS`] at once.
    pub fn new() -> SystemResolver {
        SystemResolver::with_lookup_fn(|name| look_up(&absolute(name)))
    }

    /// Creates a resolver for names that the operator configured. They are resolved as in every other program
    /// on the machine, with search domains and `/etc/hosts`.
    pub(crate) fn as_configured() -> SystemResolver {
        SystemResolver::with_lookup_fn(look_up)
    }

    fn with_lookup_fn(
        ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        SystemResolver {
            queue: Arc::new(LookupQueue {
                ask: Box::new(ask),
                state: Mutex::default(),
            }),
        }
    }

    async fn answer(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut answered = self.queue.join(name);
        let answer = match answered.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            // The thread that looked it up ended without a result.
            Err(_) => None,
        };
        let lost = LookupFailure::Unable(io::ErrorKind::Other, None);
        match answer.unwrap_or(Err(lost)) {
            Ok(addresses) if addresses.is_empty() => Err(ResolveError::NoAddress),
            Ok(addresses) if addresses.len() > MAX_ADDRESSES => Err(ResolveError::Failed),
            Ok(addresses) => Ok(addresses.to_vec()),
            Err(failure) => Err(failure.into_error()),
        }
    }
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver::new()
    }
}

impl std::fmt::Debug for SystemResolver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SystemResolver")
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(self.answer(name))
    }
}

impl LookupQueue {
    fn lock(&self) -> MutexGuard<'_, LookupState> {
        // No code that runs under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a running or queued lookup of the name, or queues a new one.
    fn join(self: &Arc<LookupQueue>, name: &str) -> watch::Receiver<Option<Answer>> {
        let mut state = self.lock();
        let is_fresh = |open: &&JoinableLookup| {
            let began = open.began;
            began.is_none_or(|began| began.elapsed() < MAX_SHARED_TIME)
        };
        if let Some(open) = state.open.get(name).filter(is_fresh) {
            return open.lookup.answered.subscribe();
        }
        let (answered, waiting) = watch::channel(None);
        let lookup = Arc::new(PendingLookup {
            name: name.to_owned(),
            answered,
        });
        state
            .scheduler
            .enqueue(lookup_scheduler::zone(name), Arc::clone(&lookup));
        let open = JoinableLookup {
            lookup,
            began: None,
        };
        state.open.insert(name.to_owned(), open);
        drop(state);
        self.begin();
        waiting
    }

    /// Starts as many queued lookups as the limits allow.
    fn begin(self: &Arc<LookupQueue>) {
        let mut slots = Vec::new();
        let mut state = self.lock();
        let now = Instant::now();
        let LookupState { scheduler, open } = &mut *state;
        remove_unwanted(scheduler, open, PendingLookup::is_wanted);
        while let Some((zone, lookup)) = scheduler.begin(now) {
            if let Some(open) = open.get_mut(&lookup.name)
                && Arc::ptr_eq(&open.lookup, &lookup)
            {
                open.began = Some(now);
            }
            slots.push(LookupSlot {
                queue: Arc::clone(self),
                zone,
                lookup,
                began: now,
                filled: false,
            });
        }
        drop(state);
        for slot in slots {
            tokio::task::spawn_blocking(move || slot.fill());
        }
    }
}

/// Removes the lookups that no caller waits for. `is_wanted` is called once for each: the last caller may leave
/// at any moment, even while the lock is held, and a removed lookup must not stay joinable.
fn remove_unwanted(
    scheduler: &mut LookupScheduler<Arc<PendingLookup>>,
    open: &mut HashMap<String, JoinableLookup>,
    mut is_wanted: impl FnMut(&PendingLookup) -> bool,
) {
    scheduler.retain_waiting(|lookup| {
        let is_wanted = is_wanted(lookup);
        if !is_wanted {
            close(open, lookup);
        }
        is_wanted
    });
}

/// Makes a lookup unavailable to further callers.
fn close(open: &mut HashMap<String, JoinableLookup>, lookup: &Arc<PendingLookup>) {
    let same = |open: &JoinableLookup| Arc::ptr_eq(&open.lookup, lookup);
    if open.get(&lookup.name).is_some_and(same) {
        open.remove(&lookup.name);
    }
}

/// A slot for one running lookup. It belongs to the thread, which cannot be cancelled, and not to the callers.
struct LookupSlot {
    queue: Arc<LookupQueue>,
    zone: String,
    lookup: Arc<PendingLookup>,
    began: Instant,
    filled: bool,
}

impl LookupSlot {
    fn fill(mut self) {
        self.filled = true;
        let found = (self.queue.ask)(&self.lookup.name);
        let answer = found
            .map(Arc::from)
            .map_err(|error| LookupFailure::of(&error));
        // Before the result is sent, so that later callers start a new lookup.
        close(&mut self.queue.lock().open, &self.lookup);
        self.lookup.answered.send_replace(Some(answer));
    }
}

impl Drop for LookupSlot {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        close(&mut state.open, &self.lookup);
        state.scheduler.end(&self.zone, self.began, Instant::now());
        drop(state);
        // A lookup that never ran was dropped with its runtime. The next one would be dropped too.
        if self.filled {
            self.queue.begin();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only place that resolves names; the caller vets the addresses"
)]
fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let addresses = (name, 0).to_socket_addrs()?;
    Ok(addresses.map(|address| address.ip()).collect())
}

/// Appends the dot of the DNS root, which prevents search domains.
fn absolute(name: &str) -> String {
    format!("{name}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    /// A timeout that passes only if there is a bug.
    const AMPLE: Duration = Duration::from_secs(20);

    #[test]
    fn a_name_is_resolved_without_search_domains() {
        assert_eq!(absolute("hooks.customer.com"), "hooks.customer.com.");
    }

    #[tokio::test]
    async fn a_name_that_cannot_exist_does_not_resolve() {
        let resolver = SystemResolver::new();
        let found = resolver.resolve("posthaste.invalid").await;
        // Without a name server the failure is a temporary one.
        let told = matches!(
            found,
            Err(ResolveError::NoSuchName | ResolveError::Temporary)
        );
        assert!(told, "{found:?}");
    }

    /// A resolver that blocks for names below `tarpit.example` until the test releases them, and counts
    /// lookups.
    struct Tarpit {
        resolver: SystemResolver,
        asked: Arc<AtomicUsize>,
        /// Each message releases one lookup.
        let_go: mpsc::Sender<()>,
        stuck: tokio::sync::mpsc::UnboundedReceiver<String>,
    }

    fn tarpit() -> Tarpit {
        let (let_go, told) = mpsc::channel();
        let (stuck_in, stuck) = tokio::sync::mpsc::unbounded_channel();
        let told = Mutex::new(told);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = SystemResolver::with_lookup_fn(move |name| {
            counted.fetch_add(1, Ordering::SeqCst);
            if name.ends_with("tarpit.example") {
                let _ = stuck_in.send(name.to_owned());
                // Fails when the test is over and the sender is dropped.
                let _ = told.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }
            Ok(vec![HOME])
        });
        Tarpit {
            resolver,
            asked,
            let_go,
            stuck,
        }
    }

    fn ask(resolver: &SystemResolver, name: String) -> JoinHandle<Result<Vec<IpAddr>, String>> {
        let resolver = resolver.clone();
        tokio::spawn(async move {
            let found = resolver.resolve(&name).await;
            found.map_err(|error| error.to_string())
        })
    }

    #[tokio::test]
    async fn unresponsive_servers_do_not_block_other_names() {
        let mut tarpit = tarpit();
        let stuck: Vec<_> = (0..200)
            .map(|nth| ask(&tarpit.resolver, format!("{nth}.tarpit.example")))
            .collect();
        for _ in 0..lookup_scheduler::MAX_PER_ZONE {
            tarpit.stuck.recv().await.unwrap();
        }
        for nth in 0..100 {
            let name = format!("hooks.customer{nth}.example");
            let found = timeout(AMPLE, tarpit.resolver.resolve(&name)).await;
            assert_eq!(found.unwrap().unwrap(), [HOME]);
        }
        assert_eq!(
            tarpit.asked.load(Ordering::SeqCst),
            100 + lookup_scheduler::MAX_PER_ZONE
        );
        // Lookups whose callers have left are not made at all.
        for request in &stuck {
            request.abort();
        }
        for request in stuck {
            assert!(request.await.unwrap_err().is_cancelled());
        }
        drop(tarpit.let_go);
        let name = "last.tarpit.example".to_owned();
        let found = timeout(AMPLE, ask(&tarpit.resolver, name)).await;
        assert_eq!(found.unwrap().unwrap(), Ok(vec![HOME]));
        assert_eq!(
            tarpit.asked.load(Ordering::SeqCst),
            101 + lookup_scheduler::MAX_PER_ZONE
        );
        // The blocked lookups end too, soon after.
        while !tarpit.resolver.queue.lock().open.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn callers_of_the_same_name_share_a_lookup() {
        let mut tarpit = tarpit();
        let name = || "a.tarpit.example".to_owned();
        let first = ask(&tarpit.resolver, name());
        tarpit.stuck.recv().await.unwrap();
        let others: Vec<_> = (0..50).map(|_| ask(&tarpit.resolver, name())).collect();
        // Each caller has its own time limit. A caller that gives up does not affect the others.
        let impatient = timeout(Duration::ZERO, tarpit.resolver.resolve("a.tarpit.example"));
        assert!(impatient.await.is_err());
        first.abort();
        while tarpit.resolver.queue.lock().open["a.tarpit.example"]
            .lookup
            .answered
            .receiver_count()
            != 50
        {
            tokio::task::yield_now().await;
        }
        tarpit.let_go.send(()).unwrap();
        for other in others {
            assert_eq!(other.await.unwrap(), Ok(vec![HOME]));
        }
        assert_eq!(tarpit.asked.load(Ordering::SeqCst), 1);
        // Nothing is cached: the next caller starts a new lookup.
        tarpit.let_go.send(()).unwrap();
        assert_eq!(ask(&tarpit.resolver, name()).await.unwrap(), Ok(vec![HOME]));
        assert_eq!(tarpit.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn no_caller_joins_a_stuck_lookup() {
        let mut tarpit = tarpit();
        let name = || "a.tarpit.example".to_owned();
        let first = ask(&tarpit.resolver, name());
        tarpit.stuck.recv().await.unwrap();
        let began = tarpit.resolver.queue.lock().open["a.tarpit.example"].began;
        tokio::time::pause();
        tokio::time::advance(MAX_SHARED_TIME).await;
        tokio::time::resume();
        let second = ask(&tarpit.resolver, name());
        while tarpit.resolver.queue.lock().open["a.tarpit.example"].began == began {
            tokio::task::yield_now().await;
        }
        // The zone is now classified as slow and has one slot, which the first lookup holds.
        tarpit.let_go.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(vec![HOME]));
        tarpit.stuck.recv().await.unwrap();
        tarpit.let_go.send(()).unwrap();
        assert_eq!(second.await.unwrap(), Ok(vec![HOME]));
        assert_eq!(tarpit.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_panicking_lookup_frees_its_slot() {
        let resolver = SystemResolver::with_lookup_fn(|name| match name {
            "a.example" => panic!("the lookup panics"),
            _ => Ok(vec![HOME]),
        });
        for _ in 0..2 * MAX_LOOKUPS {
            let found = resolver.resolve("a.example").await;
            assert!(matches!(found, Err(ResolveError::Unable(_))), "{found:?}");
        }
        assert_eq!(resolver.resolve("b.a.example").await.unwrap(), [HOME]);
    }

    /// The last caller may leave while unwanted lookups are being removed. No name may stay joinable without
    /// being looked up.
    #[tokio::test]
    async fn removing_unwanted_lookups_keeps_queue_and_index_consistent() {
        let mut tarpit = tarpit();
        let stuck: Vec<_> = (0..lookup_scheduler::MAX_PER_ZONE)
            .map(|nth| ask(&tarpit.resolver, format!("{nth}.tarpit.example")))
            .collect();
        for _ in &stuck {
            tarpit.stuck.recv().await.unwrap();
        }
        let name = "wanted.tarpit.example";
        let waiting = tarpit.resolver.queue.join(name);
        let mut state = tarpit.resolver.queue.lock();
        let LookupState { scheduler, open } = &mut *state;
        let mut still_there = true;
        remove_unwanted(scheduler, open, |_| {
            std::mem::replace(&mut still_there, false)
        });
        assert_eq!(open.contains_key(name), !scheduler.is_empty());
        remove_unwanted(scheduler, open, PendingLookup::is_wanted);
        assert!(open.contains_key(name) && !scheduler.is_empty());
        drop(waiting);
        remove_unwanted(scheduler, open, PendingLookup::is_wanted);
        assert!(!open.contains_key(name) && scheduler.is_empty());
    }

    /// Callers may outlive the runtime that runs their lookups. A lookup that is dropped with it must not start
    /// the next one, which would be dropped too, in an ever deeper recursion.
    #[test]
    fn the_end_of_the_runtime_ends_waiting_lookups() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut tarpit = tarpit();
        let queue = Arc::clone(&tarpit.resolver.queue);
        let waiting: Vec<_> = runtime.block_on(async {
            let join = |nth| queue.join(&format!("{nth}.{nth}-tarpit.example"));
            let waiting = (0..5_000).map(join).collect();
            for _ in 0..lookup_scheduler::MAX_UNPROVEN {
                tarpit.stuck.recv().await.unwrap();
            }
            waiting
        });
        runtime.shutdown_background();
        drop(tarpit.let_go);
        while Arc::strong_count(&queue) > 2 {
            std::thread::yield_now();
        }
        assert!(!queue.lock().scheduler.is_empty());
        drop(waiting);
    }

    #[tokio::test]
    async fn errors_of_the_resolver_are_distinct() {
        let resolver = SystemResolver::with_lookup_fn(|name| match name {
            "full.example" => Err(io::Error::from_raw_os_error(24)),
            "none.example" => Ok(Vec::new()),
            "many.example" => Ok(vec![HOME; MAX_ADDRESSES]),
            "more.example" => Ok(vec![HOME; MAX_ADDRESSES + 1]),
            _ => Err(io::Error::other("nodename nor servname provided")),
        });
        let full = resolver.resolve("full.example").await.unwrap_err();
        assert!(matches!(full, ResolveError::Unable(error) if error.raw_os_error() == Some(24)));
        let none = resolver.resolve("none.example").await;
        assert!(matches!(none, Err(ResolveError::NoAddress)));
        let other = resolver.resolve("other.example").await;
        assert!(matches!(other, Err(ResolveError::Failed)));
        let many = resolver.resolve("many.example").await;
        assert_eq!(many.unwrap().len(), MAX_ADDRESSES);
        // A truncated result could be missing its forbidden address.
        let more = resolver.resolve("more.example").await;
        assert!(matches!(more, Err(ResolveError::Failed)));
    }
}
