//! From names to addresses.
//!
//! A resolver only answers; whether the addresses may be called is judged elsewhere, and nothing is
//! cached here, so that every new connection is judged by what the name means at that moment.
//!
//! The system's resolver (`getaddrinfo`) is used, because it is what the operator configured: name
//! servers, DNS over TLS, `nsswitch`. A library (hickory) would be a second reader of that
//! configuration, and 29 more dependencies. Three of its habits are tamed:
//!
//! - It would append the search domains of the machine's network to a name that does not exist, so it
//!   is asked for the name with the dot of the root, which is final; glibc then does not look into
//!   `/etc/hosts` either.
//! - It blocks a thread until it is done, long after the request that asked has given up. So only
//!   [`MAX_LOOKUPS`] run at once, and the [`rota`](crate::rota) sees to it that no zone whose servers
//!   keep silent takes the places of the others.
//! - It asks anew for everybody. Here those who ask for a name that is being looked up wait for the
//!   same answer, each within its own time limit; unless the lookup has been under way for longer than
//!   [`MAX_SHARED_TIME`], and is more likely stuck than about to answer.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rota::{self, Rota};

/// How many lookups the system's resolver runs at once. More wait, within their time limits.
pub const MAX_LOOKUPS: usize = rota::MAX_RUNNING;
/// The most addresses that a name may have. Every one has to be vetted, so a name with more is refused
/// rather than cut. A message of DNS holds about as many.
pub const MAX_ADDRESSES: usize = 4_096;
/// How long those who ask join a lookup that is under way.
const MAX_SHARED_TIME: Duration = Duration::from_secs(10);

/// Why a name has no addresses.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The name does not exist, or its servers do not answer.
    #[error("the name does not resolve")]
    Failed,
    /// The name exists and has no address.
    #[error("the name has no address")]
    NoAddress,
    /// This machine could not even ask; no fault of the name's.
    #[error("the resolver could not be asked")]
    Unable(#[source] io::Error),
}

/// A lookup under way.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Turns names into addresses.
pub trait Resolve: Send + Sync {
    /// Every address of `name`, the preferred first. The name is fully qualified, lower case, ASCII,
    /// and has no dot at its end; no search domain may be applied to it.
    ///
    /// Nothing may be left out: a forbidden address that is not reported is one that is not refused.
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// Looks a name up, and blocks until it is done.
type Ask = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The resolver of the operating system. Clones share everything.
#[derive(Clone)]
pub struct SystemResolver {
    desk: Arc<Desk>,
}

/// What was found, for everybody who asked.
type Answer = Result<Arc<[IpAddr]>, Failure>;

#[derive(Debug, Clone, Copy)]
enum Failure {
    Failed,
    Unable(io::ErrorKind, Option<i32>),
}

/// A lookup that is waited for.
struct Inquiry {
    name: String,
    answered: watch::Sender<Option<Answer>>,
}

impl Inquiry {
    fn is_wanted(&self) -> bool {
        self.answered.receiver_count() > 0
    }
}

/// An inquiry that can be joined.
struct Open {
    inquiry: Arc<Inquiry>,
    /// When it began to run, if it has.
    began: Option<Instant>,
}

#[derive(Default)]
struct Ledger {
    rota: Rota<Arc<Inquiry>>,
    open: HashMap<String, Open>,
}

struct Desk {
    ask: Box<Ask>,
    ledger: Mutex<Ledger>,
}

impl SystemResolver {
    /// A resolver that runs at most [`MAX_LOOKUPS`] at once.
    pub fn new() -> SystemResolver {
        SystemResolver::asking(|name| look_up(&absolute(name)))
    }

    /// A resolver for names that the operator wrote: as every other program on the machine reads them,
    /// search domains and `/etc/hosts` included.
    pub(crate) fn as_configured() -> SystemResolver {
        SystemResolver::asking(look_up)
    }

    fn asking(ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        SystemResolver {
            desk: Arc::new(Desk {
                ask: Box::new(ask),
                ledger: Mutex::default(),
            }),
        }
    }

    async fn answer(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut answered = self.desk.join(name);
        let answer = match answered.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            // Whoever looked it up is gone, and has said nothing.
            Err(_) => None,
        };
        let lost = Failure::Unable(io::ErrorKind::Other, None);
        match answer.unwrap_or(Err(lost)) {
            Ok(addresses) if addresses.is_empty() => Err(ResolveError::NoAddress),
            Ok(addresses) if addresses.len() > MAX_ADDRESSES => Err(ResolveError::Failed),
            Ok(addresses) => Ok(addresses.to_vec()),
            Err(Failure::Failed) => Err(ResolveError::Failed),
            Err(Failure::Unable(_, Some(number))) => {
                Err(ResolveError::Unable(io::Error::from_raw_os_error(number)))
            }
            Err(Failure::Unable(kind, None)) => Err(ResolveError::Unable(kind.into())),
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

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Nothing that runs under the lock leaves the ledger half changed.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer of a lookup that is open, or of a new one.
    fn join(self: &Arc<Desk>, name: &str) -> watch::Receiver<Option<Answer>> {
        let mut ledger = self.lock();
        let is_fresh = |open: &&Open| {
            let began = open.began;
            began.is_none_or(|began| began.elapsed() < MAX_SHARED_TIME)
        };
        if let Some(open) = ledger.open.get(name).filter(is_fresh) {
            return open.inquiry.answered.subscribe();
        }
        let (answered, waiting) = watch::channel(None);
        let inquiry = Arc::new(Inquiry {
            name: name.to_owned(),
            answered,
        });
        ledger.rota.queue(rota::zone(name), Arc::clone(&inquiry));
        let open = Open {
            inquiry,
            began: None,
        };
        ledger.open.insert(name.to_owned(), open);
        drop(ledger);
        self.begin();
        waiting
    }

    /// Begins what may begin.
    fn begin(self: &Arc<Desk>) {
        let mut places = Vec::new();
        let mut ledger = self.lock();
        let now = Instant::now();
        let Ledger { rota, open } = &mut *ledger;
        strike_out(rota, open, Inquiry::is_wanted);
        while let Some((zone, inquiry)) = rota.begin(now) {
            if let Some(open) = open.get_mut(&inquiry.name)
                && Arc::ptr_eq(&open.inquiry, &inquiry)
            {
                open.began = Some(now);
            }
            places.push(Place {
                desk: Arc::clone(self),
                zone,
                inquiry,
                began: now,
                filled: false,
            });
        }
        drop(ledger);
        for place in places {
            tokio::task::spawn_blocking(move || place.fill());
        }
    }
}

/// Strikes out the inquiries that nobody waits for. Each is asked about once: the last one who waits may
/// leave at any moment, lock or no lock, and what is struck out must not stay open.
fn strike_out(
    rota: &mut Rota<Arc<Inquiry>>,
    open: &mut HashMap<String, Open>,
    mut is_wanted: impl FnMut(&Inquiry) -> bool,
) {
    rota.strike(|inquiry| {
        let is_wanted = is_wanted(inquiry);
        if !is_wanted {
            close(open, inquiry);
        }
        is_wanted
    });
}

/// Nobody can join this inquiry any more.
fn close(open: &mut HashMap<String, Open>, inquiry: &Arc<Inquiry>) {
    let same = |open: &Open| Arc::ptr_eq(&open.inquiry, inquiry);
    if open.get(&inquiry.name).is_some_and(same) {
        open.remove(&inquiry.name);
    }
}

/// One of the places. It belongs to the thread, which cannot be cancelled, and not to those who wait.
struct Place {
    desk: Arc<Desk>,
    zone: String,
    inquiry: Arc<Inquiry>,
    began: Instant,
    filled: bool,
}

impl Place {
    fn fill(mut self) {
        self.filled = true;
        let found = (self.desk.ask)(&self.inquiry.name);
        let answer = found.map(Arc::from).map_err(|error| {
            // What the resolver says about the name has no error number; what the system says
            // about itself (no more files, no more memory) has one.
            match error.raw_os_error() {
                Some(number) => Failure::Unable(error.kind(), Some(number)),
                None => Failure::Failed,
            }
        });
        // Before it is told: who asks afterwards asks anew.
        close(&mut self.desk.lock().open, &self.inquiry);
        self.inquiry.answered.send_replace(Some(answer));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut ledger = self.desk.lock();
        close(&mut ledger.open, &self.inquiry);
        ledger.rota.end(&self.zone, self.began, Instant::now());
        drop(ledger);
        // One that never ran was dropped with its runtime, and so would be whatever followed it.
        if self.filled {
            self.desk.begin();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where names are resolved; whoever asked vets the answer"
)]
fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let addresses = (name, 0).to_socket_addrs()?;
    Ok(addresses.map(|address| address.ip()).collect())
}

/// The name with the dot of the root, after which no search domain is tried.
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
    /// Long enough that only a bug lets it pass.
    const AMPLE: Duration = Duration::from_secs(20);

    #[test]
    fn a_name_is_asked_for_as_it_stands() {
        assert_eq!(absolute("hooks.customer.com"), "hooks.customer.com.");
    }

    #[tokio::test]
    async fn a_name_that_cannot_exist_does_not_resolve() {
        let resolver = SystemResolver::new();
        let found = resolver.resolve("posthaste.invalid").await;
        assert!(matches!(found, Err(ResolveError::Failed)), "{found:?}");
    }

    /// A resolver whose names below `tarpit.example` answer when told to; how often it was asked, and
    /// by what it is told.
    struct Tarpit {
        resolver: SystemResolver,
        asked: Arc<AtomicUsize>,
        /// Each message lets one lookup go.
        let_go: mpsc::Sender<()>,
        stuck: tokio::sync::mpsc::UnboundedReceiver<String>,
    }

    fn tarpit() -> Tarpit {
        let (let_go, told) = mpsc::channel();
        let (stuck_in, stuck) = tokio::sync::mpsc::unbounded_channel();
        let told = Mutex::new(told);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = SystemResolver::asking(move |name| {
            counted.fetch_add(1, Ordering::SeqCst);
            if name.ends_with("tarpit.example") {
                let _ = stuck_in.send(name.to_owned());
                // When the test is over nobody tells any more.
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
    async fn a_tarpit_starves_nobody() {
        let mut tarpit = tarpit();
        let stuck: Vec<_> = (0..200)
            .map(|nth| ask(&tarpit.resolver, format!("{nth}.tarpit.example")))
            .collect();
        for _ in 0..rota::MAX_PER_ZONE {
            tarpit.stuck.recv().await.unwrap();
        }
        for nth in 0..100 {
            let name = format!("hooks.customer{nth}.example");
            let found = timeout(AMPLE, tarpit.resolver.resolve(&name)).await;
            assert_eq!(found.unwrap().unwrap(), [HOME]);
        }
        assert_eq!(
            tarpit.asked.load(Ordering::SeqCst),
            100 + rota::MAX_PER_ZONE
        );
        // Those who lost interest are not looked up at all.
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
            101 + rota::MAX_PER_ZONE
        );
        // The others are let go as well, in their own time.
        while !tarpit.resolver.desk.lock().open.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn those_who_ask_for_the_same_name_share_a_lookup() {
        let mut tarpit = tarpit();
        let name = || "a.tarpit.example".to_owned();
        let first = ask(&tarpit.resolver, name());
        tarpit.stuck.recv().await.unwrap();
        let others: Vec<_> = (0..50).map(|_| ask(&tarpit.resolver, name())).collect();
        // Each keeps its own time limit, and its end is nobody else's.
        let impatient = timeout(Duration::ZERO, tarpit.resolver.resolve("a.tarpit.example"));
        assert!(impatient.await.is_err());
        first.abort();
        while tarpit.resolver.desk.lock().open["a.tarpit.example"]
            .inquiry
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
        // Nothing is kept: the next one asks anew.
        tarpit.let_go.send(()).unwrap();
        assert_eq!(ask(&tarpit.resolver, name()).await.unwrap(), Ok(vec![HOME]));
        assert_eq!(tarpit.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn nobody_joins_a_lookup_that_is_stuck() {
        let mut tarpit = tarpit();
        let name = || "a.tarpit.example".to_owned();
        let first = ask(&tarpit.resolver, name());
        tarpit.stuck.recv().await.unwrap();
        let began = tarpit.resolver.desk.lock().open["a.tarpit.example"].began;
        tokio::time::pause();
        tokio::time::advance(MAX_SHARED_TIME).await;
        tokio::time::resume();
        let second = ask(&tarpit.resolver, name());
        while tarpit.resolver.desk.lock().open["a.tarpit.example"].began == began {
            tokio::task::yield_now().await;
        }
        // Its zone is slow by now and has a single place, which the first one holds.
        tarpit.let_go.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(vec![HOME]));
        tarpit.stuck.recv().await.unwrap();
        tarpit.let_go.send(()).unwrap();
        assert_eq!(second.await.unwrap(), Ok(vec![HOME]));
        assert_eq!(tarpit.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn whoever_looks_up_and_panics_leaves_its_place() {
        let resolver = SystemResolver::asking(|name| match name {
            "a.example" => panic!("looked up"),
            _ => Ok(vec![HOME]),
        });
        for _ in 0..2 * MAX_LOOKUPS {
            let found = resolver.resolve("a.example").await;
            assert!(matches!(found, Err(ResolveError::Unable(_))), "{found:?}");
        }
        assert_eq!(resolver.resolve("b.a.example").await.unwrap(), [HOME]);
    }

    /// The last one who waits may leave while those who wait are gone through. No name may then be left
    /// that can be joined and is never looked up.
    #[tokio::test]
    async fn whoever_leaves_at_the_wrong_moment_takes_no_name_along() {
        let mut tarpit = tarpit();
        let stuck: Vec<_> = (0..rota::MAX_PER_ZONE)
            .map(|nth| ask(&tarpit.resolver, format!("{nth}.tarpit.example")))
            .collect();
        for _ in &stuck {
            tarpit.stuck.recv().await.unwrap();
        }
        let name = "wanted.tarpit.example";
        let waiting = tarpit.resolver.desk.join(name);
        let mut ledger = tarpit.resolver.desk.lock();
        let Ledger { rota, open } = &mut *ledger;
        let mut still_there = true;
        strike_out(rota, open, |_| std::mem::replace(&mut still_there, false));
        assert_eq!(open.contains_key(name), !rota.is_empty());
        strike_out(rota, open, Inquiry::is_wanted);
        assert!(open.contains_key(name) && !rota.is_empty());
        drop(waiting);
        strike_out(rota, open, Inquiry::is_wanted);
        assert!(!open.contains_key(name) && rota.is_empty());
    }

    /// Those who wait may outlive the runtime that looks up for them. Each lookup that it drops must not
    /// begin the next, which would be dropped as well, ever deeper on the same stack.
    #[test]
    fn the_end_of_the_runtime_ends_what_waits() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut tarpit = tarpit();
        let desk = Arc::clone(&tarpit.resolver.desk);
        let waiting: Vec<_> = runtime.block_on(async {
            let join = |nth| desk.join(&format!("{nth}.{nth}-tarpit.example"));
            let waiting = (0..5_000).map(join).collect();
            for _ in 0..rota::MAX_UNPROVEN {
                tarpit.stuck.recv().await.unwrap();
            }
            waiting
        });
        runtime.shutdown_background();
        drop(tarpit.let_go);
        while Arc::strong_count(&desk) > 2 {
            std::thread::yield_now();
        }
        assert!(!desk.lock().rota.is_empty());
        drop(waiting);
    }

    #[tokio::test]
    async fn faults_are_told_apart_for_everybody() {
        let resolver = SystemResolver::asking(|name| match name {
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
        // Cut short, it could be an answer without its forbidden address.
        let more = resolver.resolve("more.example").await;
        assert!(matches!(more, Err(ResolveError::Failed)));
    }
}
